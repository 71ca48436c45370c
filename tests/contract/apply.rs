//! Server-side apply: managers, conflicts, force, and what becomes of fields nobody wants any more.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::world::{World, refusal};

async fn apply(world: &World, parameters: &PatchParams, data: Value) -> Result<ConfigMap, kube::Error> {
    let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data});
    world
        .api::<ConfigMap>()
        .patch("one", parameters, &Patch::Apply(&wanted))
        .await
}

fn manager(name: &str) -> PatchParams {
    PatchParams::apply(name)
}

fn data(map: &ConfigMap) -> Vec<(&str, &str)> {
    map.data
        .iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

fn managers(map: &ConfigMap) -> Vec<&str> {
    let mut names: Vec<&str> = map
        .managed_fields()
        .iter()
        .filter(|entry| entry.operation.as_deref() == Some("Apply"))
        .filter_map(|entry| entry.manager.as_deref())
        .collect();
    names.sort_unstable();
    names
}

pub async fn applying_makes_and_remembers_who(world: &World) {
    let map = apply(world, &manager("first"), json!({"a": "1"})).await.unwrap();
    assert_eq!(data(&map), [("a", "1")]);
    assert_eq!(managers(&map), ["first"]);
    let fields = map.managed_fields()[0].fields_v1.as_ref().unwrap();
    assert_eq!(fields.0, json!({"f:data": {"f:a": {}}}));
    // The same again is no change.
    let again = apply(world, &manager("first"), json!({"a": "1"})).await.unwrap();
    assert_eq!(again.resource_version(), map.resource_version());
}

pub async fn another_manager_conflicts_until_it_forces(world: &World) {
    apply(world, &manager("first"), json!({"a": "1", "b": "1"}))
        .await
        .unwrap();
    let refused = refusal(apply(world, &manager("second"), json!({"a": "2"})).await);
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    let cause = &refused.details.unwrap().causes[0];
    assert_eq!(
        (cause.reason.as_str(), cause.field.as_str()),
        ("FieldManagerConflict", ".data.a")
    );
    assert_eq!(cause.message, "conflict with \"first\"");
    // The same value is no conflict: both own it.
    apply(world, &manager("second"), json!({"a": "1"})).await.unwrap();
    let map = apply(world, &manager("second").force(), json!({"a": "2"}))
        .await
        .unwrap();
    assert_eq!(data(&map), [("a", "2"), ("b", "1")]);
    // The first has lost the field, and must not get it back by asking for the old value.
    let refused = refusal(apply(world, &manager("first"), json!({"a": "1", "b": "1"})).await);
    assert_eq!(refused.code, 409);
}

pub async fn what_nobody_applies_any_more_is_removed(world: &World) {
    apply(world, &manager("first"), json!({"a": "1", "b": "1", "c": "1"}))
        .await
        .unwrap();
    apply(world, &manager("second"), json!({"b": "1"})).await.unwrap();
    let map = apply(world, &manager("first"), json!({"a": "1"})).await.unwrap();
    assert_eq!(
        data(&map),
        [("a", "1"), ("b", "1")],
        "c is gone, b is held by the second"
    );
    let map = apply(world, &manager("second"), json!({})).await.unwrap();
    assert_eq!(data(&map), [("a", "1")]);
    assert_eq!(managers(&map), ["first", "second"], "an empty map is owned too");
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let maps = world.api::<ConfigMap>();
    let map = maps
        .patch("one", &manager("second"), &Patch::Apply(&nothing))
        .await
        .unwrap();
    assert_eq!(managers(&map), ["first"], "who owns nothing is forgotten");
}

pub async fn a_plain_write_takes_ownership(world: &World) {
    apply(world, &manager("first"), json!({"a": "1"})).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"a": "2"}}));
    let parameters = PatchParams {
        field_manager: Some("editor".to_owned()),
        ..PatchParams::default()
    };
    world
        .api::<ConfigMap>()
        .patch("one", &parameters, &patch)
        .await
        .unwrap();
    let refused = refusal(apply(world, &manager("first"), json!({"a": "1"})).await);
    assert_eq!(refused.code, 409);
    let cause = &refused.details.unwrap().causes[0];
    assert!(
        cause.message.starts_with("conflict with \"editor\" using v1"),
        "{}",
        cause.message
    );
}

pub async fn lists_with_keys_are_shared(world: &World) {
    let deployments = world.api::<Deployment>();
    let wanted = |containers: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "one"}},
                "template": {
                    "metadata": {"labels": {"app": "one"}},
                    "spec": {"containers": containers},
                },
            },
        })
    };
    let main = json!({"name": "main", "image": "example:1"});
    let side = json!({"name": "side", "image": "side:1"});
    let names = |deployment: &Deployment| -> Vec<String> {
        let containers = &deployment
            .spec
            .as_ref()
            .unwrap()
            .template
            .spec
            .as_ref()
            .unwrap()
            .containers;
        containers
            .iter()
            .map(|container| container.name.clone())
            .collect()
    };
    let first = Patch::Apply(wanted(json!([main])));
    deployments.patch("one", &manager("first"), &first).await.unwrap();
    let second = Patch::Apply(wanted(json!([side])));
    let both = deployments
        .patch("one", &manager("second"), &second)
        .await
        .unwrap();
    assert_eq!(names(&both), ["main", "side"]);
    let second = Patch::Apply(wanted(json!([main])));
    let one = deployments
        .patch("one", &manager("second"), &second)
        .await
        .unwrap();
    assert_eq!(names(&one), ["main"]);
}

pub async fn applying_needs_a_manager(world: &World) {
    let path = format!("/api/v1/namespaces/{}/configmaps/one", world.namespace);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}).to_string();
    let (code, status) = world
        .send("PATCH", &path, "application/apply-patch+yaml", &body)
        .await;
    assert_eq!(code, 422, "{status}");
    let path = format!("{path}?fieldManager=x");
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}}).to_string();
    let (code, status) = world
        .send("PATCH", &path, "application/apply-patch+yaml", &other)
        .await;
    assert_eq!(code, 400, "{status}");
}
