//! Writing: names, conflicts, dry runs, the three kinds of patch, what refusals look like.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use super::world::{World, object, refusal};

fn post() -> PostParams {
    PostParams::default()
}

pub fn deployment(name: &str, replicas: i32) -> Deployment {
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "schedulerName": "nobody",
                    "containers": [
                        {"name": "main", "image": "example:1", "ports": [{"containerPort": 80}]},
                        {"name": "side", "image": "side:1"},
                    ],
                },
            },
        },
    }))
}

pub async fn what_is_made_gets_an_identity(world: &World) {
    let made = world.config_map("one", json!({})).await;
    assert!(made.uid().is_some_and(|uid| uid.len() == 36));
    assert!(made.resource_version().is_some());
    assert!(made.creation_timestamp().is_some());
    assert_eq!(made.namespace().as_deref(), Some(world.namespace.as_str()));
    assert!(!made.managed_fields().is_empty());
    let again = world.api::<ConfigMap>().get("one").await.unwrap();
    assert_eq!(again, made);
}

pub async fn generated_names_are_different(world: &World) {
    let maps = world.api::<ConfigMap>();
    let wanted: ConfigMap = object(json!({"metadata": {"generateName": "gen-"}}));
    let one = maps.create(&post(), &wanted).await.unwrap().name_any();
    let other = maps.create(&post(), &wanted).await.unwrap().name_any();
    assert!(one.starts_with("gen-") && one.len() == "gen-".len() + 5, "{one}");
    assert_ne!(one, other);
    let nameless = refusal(maps.create(&post(), &ConfigMap::default()).await);
    assert_eq!((nameless.code, nameless.reason.as_str()), (422, "Invalid"));
}

pub async fn a_second_one_of_the_name_is_refused(world: &World) {
    world.config_map("one", json!({})).await;
    let maps = world.api::<ConfigMap>();
    let refused = refusal(
        maps.create(&post(), &object(json!({"metadata": {"name": "one"}})))
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(refused.message, "configmaps \"one\" already exists");
    let details = refused.details.unwrap();
    assert_eq!(
        (details.name.as_str(), details.kind.as_str()),
        ("one", "configmaps")
    );
}

pub async fn what_is_not_there_is_not_found(world: &World) {
    let maps = world.api::<ConfigMap>();
    let refused = refusal(maps.get("absent").await);
    assert_eq!((refused.code, refused.reason.as_str()), (404, "NotFound"));
    assert_eq!(refused.message, "configmaps \"absent\" not found");
    let details = refused.details.unwrap();
    assert_eq!(
        (details.name.as_str(), details.kind.as_str()),
        ("absent", "configmaps")
    );
    assert_eq!(
        refusal(maps.delete("absent", &DeleteParams::default()).await).code,
        404
    );
    let patch = Patch::Merge(json!({"data": {"a": "b"}}));
    assert_eq!(
        refusal(maps.patch("absent", &PatchParams::default(), &patch).await).code,
        404
    );
    let nowhere = Api::<ConfigMap>::namespaced(world.client.clone(), "no-such-namespace");
    let refused = refusal(
        nowhere
            .create(&post(), &object(json!({"metadata": {"name": "one"}})))
            .await,
    );
    assert_eq!(refused.code, 404);
    assert_eq!(refused.message, "namespaces \"no-such-namespace\" not found");
}

pub async fn a_stale_write_conflicts(world: &World) {
    let old = world.config_map("one", json!({})).await;
    let maps = world.api::<ConfigMap>();
    let mut fresh = old.clone();
    fresh.data = Some([("key".to_owned(), "second".to_owned())].into());
    let fresh = maps.replace("one", &post(), &fresh).await.unwrap();
    assert_ne!(fresh.resource_version(), old.resource_version());
    let mut late = old.clone();
    late.data = Some([("key".to_owned(), "late".to_owned())].into());
    let refused = refusal(maps.replace("one", &post(), &late).await);
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert!(
        refused.message.contains("the object has been modified"),
        "{}",
        refused.message
    );
    // A patch may carry the version too.
    let version = old.resource_version();
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": {"key": "late"}}));
    assert_eq!(
        refusal(maps.patch("one", &PatchParams::default(), &patch).await).code,
        409
    );
    // Without a version the last one wins.
    late.metadata.resource_version = None;
    assert_eq!(
        maps.replace("one", &post(), &late).await.unwrap().data.unwrap()["key"],
        "late"
    );
}

pub async fn a_write_that_changes_nothing_keeps_the_version(world: &World) {
    let made = world.config_map("one", json!({})).await;
    let maps = world.api::<ConfigMap>();
    let same = maps.replace("one", &post(), &made).await.unwrap();
    assert_eq!(same.resource_version(), made.resource_version());
    let patch = Patch::Merge(json!({"data": {"key": "value"}}));
    let same = maps.patch("one", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(same.resource_version(), made.resource_version());
}

pub async fn a_dry_run_changes_nothing(world: &World) {
    let maps = world.api::<ConfigMap>();
    let dry = PostParams {
        dry_run: true,
        ..post()
    };
    let would = maps
        .create(&dry, &object(json!({"metadata": {"name": "never"}})))
        .await
        .unwrap();
    assert!(would.uid().is_some());
    assert_eq!(refusal(maps.get("never").await).code, 404);

    let made = world.config_map("one", json!({})).await;
    let patch = Patch::Merge(json!({"data": {"key": "changed"}}));
    let would = maps
        .patch("one", &PatchParams::default().dry_run(), &patch)
        .await
        .unwrap();
    assert_eq!(would.data.unwrap()["key"], "changed");
    maps.delete("one", &DeleteParams::default().dry_run())
        .await
        .unwrap();
    assert_eq!(maps.get("one").await.unwrap(), made);
    // It is judged all the same.
    let bad = maps
        .create(&dry, &object(json!({"metadata": {"name": "Not Valid"}})))
        .await;
    assert_eq!(refusal(bad).code, 422);
}

pub async fn a_merge_patch_sets_and_removes(world: &World) {
    world.config_map("one", json!({"a": "1", "b": "2"})).await;
    let maps = world.api::<ConfigMap>();
    let patch = Patch::Merge(json!({
        "metadata": {"labels": {"a": null, "c": "3"}},
        "data": {"key": null, "other": "x"},
    }));
    let map = maps.patch("one", &PatchParams::default(), &patch).await.unwrap();
    let labels: Vec<(&str, &str)> = map
        .labels()
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(labels, [("b", "2"), ("c", "3")]);
    assert_eq!(
        map.data.unwrap().into_iter().collect::<Vec<_>>(),
        [("other".to_owned(), "x".to_owned())]
    );
}

pub async fn a_json_patch_is_all_or_nothing(world: &World) {
    let made = world.config_map("one", json!({})).await;
    let maps = world.api::<ConfigMap>();
    let apply = async |operations: Value| {
        let patch: json_patch::Patch = serde_json::from_value(operations).unwrap();
        maps.patch("one", &PatchParams::default(), &Patch::Json::<()>(patch))
            .await
    };
    let refused = refusal(
        apply(json!([
            {"op": "add", "path": "/data/extra", "value": "x"},
            {"op": "test", "path": "/data/key", "value": "something else"},
        ]))
        .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert_eq!(maps.get("one").await.unwrap(), made);
    let map = apply(json!([
        {"op": "test", "path": "/data/key", "value": "value"},
        {"op": "move", "from": "/data/key", "path": "/data/moved"},
        {"op": "add", "path": "/metadata/labels", "value": {"a~b": "no"}},
        {"op": "replace", "path": "/metadata/labels", "value": {"new": "yes"}},
    ]))
    .await
    .unwrap();
    assert_eq!(map.data.as_ref().unwrap().keys().collect::<Vec<_>>(), ["moved"]);
    assert_eq!(map.labels()["new"], "yes");
    let refused = refusal(apply(json!([{"op": "remove", "path": "/data/absent"}])).await);
    assert_eq!(refused.code, 422);
}

pub async fn a_strategic_patch_merges_lists_by_key(world: &World) {
    let deployments = world.api::<Deployment>();
    deployments.create(&post(), &deployment("one", 0)).await.unwrap();
    let patch = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [
        {"name": "side", "image": "side:2"},
        {"name": "third", "image": "third:1"},
    ]}}}}));
    let merged = deployments
        .patch("one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let images = |deployment: &Deployment| -> Vec<(String, String)> {
        let containers = &deployment
            .spec
            .as_ref()
            .unwrap()
            .template
            .spec
            .as_ref()
            .unwrap()
            .containers;
        let mut images: Vec<_> = containers
            .iter()
            .map(|container| (container.name.clone(), container.image.clone().unwrap()))
            .collect();
        images.sort();
        images
    };
    let pair = |name: &str, image: &str| (name.to_owned(), image.to_owned());
    assert_eq!(
        images(&merged),
        [
            pair("main", "example:1"),
            pair("side", "side:2"),
            pair("third", "third:1")
        ]
    );
    let patch = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [
        {"name": "side", "$patch": "delete"},
    ]}}}}));
    let merged = deployments
        .patch("one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(
        images(&merged),
        [pair("main", "example:1"), pair("third", "third:1")]
    );
    // A merge patch replaces the list.
    let patch = Patch::Merge(json!({"spec": {"template": {"spec": {"containers": [
        {"name": "only", "image": "only:1"},
    ]}}}}));
    let merged = deployments
        .patch("one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(images(&merged), [pair("only", "only:1")]);
}

pub async fn deleting_can_ask_for_the_one_it_means(world: &World) {
    let made = world.config_map("one", json!({})).await;
    let maps = world.api::<ConfigMap>();
    let another = DeleteParams::default().preconditions(Preconditions {
        uid: Some("another".to_owned()),
        resource_version: None,
    });
    let refused = refusal(maps.delete("one", &another).await);
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    let this = DeleteParams::default().preconditions(Preconditions {
        uid: made.uid(),
        resource_version: made.resource_version(),
    });
    assert!(maps.delete("one", &this).await.unwrap().is_right());
    assert_eq!(refusal(maps.get("one").await).code, 404);
}

pub async fn a_collection_is_deleted_by_selector(world: &World) {
    for name in ["a", "b"] {
        world.config_map(name, json!({"go": "yes"})).await;
    }
    world.config_map("c", json!({"go": "no"})).await;
    let maps = world.api::<ConfigMap>();
    let gone = ListParams::default().labels("go=yes");
    maps.delete_collection(&DeleteParams::default(), &gone)
        .await
        .unwrap();
    let left = maps.list(&ListParams::default().labels("go")).await.unwrap();
    assert_eq!(left.iter().map(|map| map.name_any()).collect::<Vec<_>>(), ["c"]);
}

pub async fn what_is_invalid_is_told_field_by_field(world: &World) {
    let maps = world.api::<ConfigMap>();
    let refused = refusal(
        maps.create(&post(), &object(json!({"metadata": {"name": "Not Valid"}})))
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let details = refused.details.unwrap();
    assert_eq!(details.kind, "ConfigMap");
    assert_eq!(details.causes[0].field, "metadata.name");
    assert_eq!(details.causes[0].reason, "FieldValueInvalid");
    // What may not change.
    let services = world.api::<Service>();
    let service = object(json!({"metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}}));
    let service = services.create(&post(), &service).await.unwrap();
    assert!(service.spec.as_ref().unwrap().cluster_ip.is_some());
    let patch =
        Patch::Merge(json!({"spec": {"clusterIP": "127.100.99.99", "clusterIPs": ["127.100.99.99"]}}));
    let refused = refusal(services.patch("one", &PatchParams::default(), &patch).await);
    assert_eq!(refused.code, 422);
    let mut other = deployment("one", 0);
    let deployments = world.api::<Deployment>();
    deployments.create(&post(), &other).await.unwrap();
    other.spec.as_mut().unwrap().selector.match_labels = Some([("app".to_owned(), "two".to_owned())].into());
    assert_eq!(
        refusal(deployments.replace("one", &post(), &other).await).code,
        422
    );
}

pub async fn what_cannot_be_read_is_a_bad_request(world: &World) {
    let path = format!("/api/v1/namespaces/{}/configmaps", world.namespace);
    let json_type = "application/json";
    let (code, status) = world.send("POST", &path, json_type, "{not json").await;
    assert_eq!(
        (code, &status["kind"], &status["reason"]),
        (400, &json!("Status"), &json!("BadRequest"))
    );
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}).to_string();
    let (code, status) = world.send("POST", &path, json_type, &pod).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{status}");
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data});
    let (code, _) = world
        .send("POST", &path, json_type, &map(json!({"a": 1})).to_string())
        .await;
    assert_eq!(code, 400);
    let mut unknown = map(json!({}));
    unknown["colour"] = json!("red");
    let strict = format!("{path}?fieldValidation=Strict");
    let (code, status) = world.send("POST", &strict, json_type, &unknown.to_string()).await;
    assert_eq!(code, 400);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("unknown field \"colour\""),
        "{status}"
    );
    let elsewhere =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}});
    let (code, _) = world.send("POST", &path, json_type, &elsewhere.to_string()).await;
    assert_eq!(code, 400);
    let (code, status) = world
        .send("PATCH", &format!("{path}/x"), "text/plain", "{}")
        .await;
    assert_eq!(
        (code, &status["reason"]),
        (415, &json!("UnsupportedMediaType")),
        "{status}"
    );
    let (code, status) = world.send("PUT", &path, json_type, "{}").await;
    assert_eq!(
        (code, &status["reason"]),
        (405, &json!("MethodNotAllowed")),
        "{status}"
    );
    let (code, _) = world.send("GET", "/api/v1/nonsense", json_type, "").await;
    assert_eq!(code, 404);
    let (code, _) = world
        .send("GET", "/apis/nonsense.example/v1/things", json_type, "")
        .await;
    assert_eq!(code, 404);
}
