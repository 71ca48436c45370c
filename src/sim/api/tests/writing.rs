use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Service, ServiceAccount},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Preconditions, PropagationPolicy,
};

use super::*;
use crate::sim::objects::Deletion;

type Status = kube::core::Status;

#[tokio::test(start_paused = true)]
async fn a_stale_update_is_a_conflict_and_so_is_another_uid() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let first = maps.create(&params(), &map("a")).await.unwrap();
    assert_eq!(
        status(maps.create(&params(), &map("a")).await).reason,
        "AlreadyExists"
    );
    let mut second = first.clone();
    second.data = Some([("a".to_owned(), "2".to_owned())].into());
    let second = maps.replace("a", &params(), &second).await.unwrap();
    assert_ne!(first.metadata.resource_version, second.metadata.resource_version);
    let stale: Status = status(maps.replace("a", &params(), &first).await);
    assert_eq!((stale.code, stale.reason.as_str()), (409, "Conflict"));
    assert!(stale.message.contains("the object has been modified"));
    let mut other = second.clone();
    other.metadata.uid = Some("00000000-0000-0000-0000-000000000000".into());
    assert_eq!(status(maps.replace("a", &params(), &other).await).code, 409);
    // The same again changes nothing, not even the revision.
    let same = maps.replace("a", &params(), &second).await.unwrap();
    assert_eq!(same.metadata.resource_version, second.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn patches_of_every_kind_do_what_they_say() {
    let world = world();
    let deployments = world.here::<Deployment>();
    deployments
        .create(&params(), &typed(deployment("web", "nginx:1")))
        .await
        .unwrap();
    let plain = PatchParams::default();
    let merge = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    deployments.patch("web", &plain, &merge).await.unwrap();
    let strategic = Patch::Strategic(
        json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "x"}]}}}}),
    );
    let after = deployments.patch("web", &plain, &strategic).await.unwrap();
    let containers = after.spec.unwrap().template.spec.unwrap().containers;
    assert_eq!(containers.len(), 2);
    let operations: json_patch::Patch = typed(
        json!([{"op": "test", "path": "/spec/replicas", "value": 1}, {"op": "replace", "path": "/spec/replicas", "value": 4}]),
    );
    let after = deployments
        .patch("web", &plain, &Patch::Json::<()>(operations.clone()))
        .await
        .unwrap();
    assert_eq!(after.spec.unwrap().replicas, Some(4));
    assert_eq!(after.metadata.generation, Some(3));
    assert_eq!(after.metadata.labels.unwrap()["x"], "y");
    let failed = status(
        deployments
            .patch("web", &plain, &Patch::Json::<()>(operations))
            .await,
    );
    assert_eq!(failed.code, 422);
    let stale = Patch::Merge(json!({"metadata": {"resourceVersion": "1"}}));
    assert_eq!(status(deployments.patch("web", &plain, &stale).await).code, 409);
    let path = "/apis/apps/v1/namespaces/default/deployments/web";
    let unknown = world
        .raw_as("PATCH", path, "text/plain", json!({}))
        .await
        .unwrap_err();
    assert_eq!(
        (unknown.code, unknown.reason.as_str()),
        (415, "UnsupportedMediaType")
    );
}

#[tokio::test(start_paused = true)]
async fn status_is_written_through_its_own_endpoint_only() {
    let world = world();
    let deployments = world.here::<Deployment>();
    let mut new = deployment("web", "nginx");
    new["status"] = json!({"replicas": 9});
    let made = deployments.create(&params(), &typed(new)).await.unwrap();
    assert_eq!(made.status.clone().unwrap().replicas, None);
    let both = json!({"spec": {"replicas": 3}, "status": {"replicas": 7}});
    let main = deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(both.clone()))
        .await
        .unwrap();
    assert_eq!(
        (main.spec.unwrap().replicas, main.status.unwrap().replicas),
        (Some(3), None)
    );
    let both = json!({"spec": {"replicas": 5}, "status": {"replicas": 7}});
    let stated = deployments
        .patch_status("web", &PatchParams::default(), &Patch::Merge(both))
        .await
        .unwrap();
    assert_eq!(
        (stated.spec.unwrap().replicas, stated.status.unwrap().replicas),
        (Some(3), Some(7))
    );
    assert_eq!(stated.metadata.generation, Some(2));
    let scale = deployments.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(3));
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=web"));
    let change = Patch::Merge(json!({"spec": {"replicas": 6}}));
    deployments
        .patch_scale("web", &PatchParams::default(), &change)
        .await
        .unwrap();
    assert_eq!(
        deployments.get("web").await.unwrap().spec.unwrap().replicas,
        Some(6)
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_as_if_and_stores_nothing() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let before = world.api.objects.revision();
    let dry = PostParams {
        dry_run: true,
        ..params()
    };
    assert!(maps.create(&dry, &map("a")).await.unwrap().metadata.uid.is_some());
    assert_eq!(world.api.objects.revision(), before);
    maps.create(&params(), &map("a")).await.unwrap();
    let before = world.api.objects.revision();
    maps.delete("a", &DeleteParams::default().dry_run())
        .await
        .unwrap();
    maps.patch(
        "a",
        &PatchParams::default().dry_run(),
        &Patch::Merge(json!({"data": {"a": "9"}})),
    )
    .await
    .unwrap();
    assert_eq!(world.api.objects.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn nothing_new_goes_into_a_namespace_that_is_missing_or_going() {
    let world = world();
    let lost = KubeApi::<ConfigMap>::namespaced(world.client.clone(), "lost");
    let missing = status(lost.create(&params(), &map("a")).await);
    assert_eq!(
        (missing.code, missing.message.as_str()),
        (404, "namespaces \"lost\" not found")
    );
    let spaces = world.all::<Namespace>();
    let made = spaces
        .create(&params(), &typed(json!({"metadata": {"name": "going"}})))
        .await
        .unwrap();
    assert_eq!(made.spec.unwrap().finalizers, Some(vec!["kubernetes".to_owned()]));
    assert_eq!(
        made.metadata.labels.unwrap()["kubernetes.io/metadata.name"],
        "going"
    );
    let deleted = spaces
        .delete("going", &Default::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(deleted.status.unwrap().phase.as_deref(), Some("Terminating"));
    let going = KubeApi::<ConfigMap>::namespaced(world.client.clone(), "going");
    let refused = status(going.create(&params(), &map("a")).await);
    assert_eq!(refused.code, 403);
    assert!(
        refused.message.ends_with("because it is being terminated"),
        "{}",
        refused.message
    );
    assert_eq!(refused.details.unwrap().causes[0].reason, "NamespaceTerminating");
    let empty = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}, "spec": {"finalizers": []}});
    world
        .raw("PUT", "/api/v1/namespaces/going/finalize", empty)
        .await
        .unwrap();
    assert_eq!(spaces.get_opt("going").await.unwrap(), None);
    assert_eq!(
        status(spaces.delete("kube-system", &Default::default()).await).code,
        403
    );
}

#[tokio::test(start_paused = true)]
async fn names_are_checked_and_generated() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let bad = status(maps.create(&params(), &map("Not_A_Name")).await);
    assert_eq!((bad.code, bad.reason.as_str()), (422, "Invalid"));
    assert!(
        bad.message
            .contains("a lowercase RFC 1123 subdomain must consist of"),
        "{}",
        bad.message
    );
    let generated: ConfigMap = typed(json!({"metadata": {"generateName": "run-"}}));
    let names: Vec<String> = [
        maps.create(&params(), &generated)
            .await
            .unwrap()
            .metadata
            .name
            .unwrap(),
        maps.create(&params(), &generated)
            .await
            .unwrap()
            .metadata
            .name
            .unwrap(),
    ]
    .into();
    assert!(
        names[0].starts_with("run-") && names[0].len() == 9 && names[0] != names[1],
        "{names:?}"
    );
    let path = "/api/v1/namespaces/default/configmaps";
    let nameless = world
        .raw("POST", path, json!({"metadata": {}}))
        .await
        .unwrap_err();
    assert_eq!(nameless.code, 422);
    let elsewhere = world
        .raw(
            "POST",
            path,
            json!({"metadata": {"name": "x", "namespace": "other"}}),
        )
        .await
        .unwrap_err();
    assert_eq!(elsewhere.code, 400);
    let wrong = world
        .raw(
            "POST",
            path,
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}),
        )
        .await
        .unwrap_err();
    assert_eq!(wrong.code, 400);
    let versioned = world
        .raw(
            "POST",
            path,
            json!({"metadata": {"name": "x", "resourceVersion": "5"}}),
        )
        .await
        .unwrap_err();
    assert_eq!(
        versioned.message,
        "resourceVersion should not be set on objects to be created"
    );
    let label = world
        .raw(
            "POST",
            path,
            json!({"metadata": {"name": "x", "labels": {"a": "-"}}}),
        )
        .await
        .unwrap_err();
    assert_eq!(label.code, 422);
}

#[tokio::test(start_paused = true)]
async fn deletion_honours_finalizers_preconditions_propagation_and_grace() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let mut held = map("held");
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    maps.create(&params(), &held).await.unwrap();
    let wrong = DeleteParams::default().preconditions(Preconditions {
        uid: Some("x".into()),
        resource_version: None,
    });
    assert_eq!(status(maps.delete("held", &wrong).await).code, 409);
    let marked = maps
        .delete("held", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    let more = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}));
    assert_eq!(
        status(maps.patch("held", &PatchParams::default(), &more).await).code,
        422
    );
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &release)
        .await
        .unwrap();
    assert_eq!(maps.get_opt("held").await.unwrap(), None);

    maps.create(&params(), &map("fore")).await.unwrap();
    let foreground = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..Default::default()
    };
    let marked = maps.delete("fore", &foreground).await.unwrap().left().unwrap();
    assert_eq!(
        marked.metadata.finalizers,
        Some(vec!["foregroundDeletion".to_owned()])
    );

    let pods = world.here::<Pod>();
    let mut bound = pod("p");
    bound.spec.as_mut().unwrap().node_name = Some("n".into());
    pods.create(&params(), &bound).await.unwrap();
    let going = pods
        .delete("p", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(30));
    pods.delete("p", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert_eq!(pods.get_opt("p").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selection() {
    let world = world();
    let pods = world.here::<Pod>();
    for name in ["a", "b", "c"] {
        pods.create(&params(), &pod(name)).await.unwrap();
    }
    let list = ListParams::default().labels("app!=b");
    let deleted = pods
        .delete_collection(&DeleteParams::default(), &list)
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(deleted.items.len(), 2);
    let left = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items[0].metadata.name.as_deref(), Some("b"));
    assert_eq!(left.items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_real_server_fills_in_is_filled_in() {
    let world = world();
    let made = world.here::<Pod>().create(&params(), &pod("p")).await.unwrap();
    let spec = made.spec.unwrap();
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
    assert_eq!(spec.scheduler_name.as_deref(), Some("default-scheduler"));
    assert_eq!(spec.tolerations.unwrap().len(), 2);
    let state = made.status.unwrap();
    assert_eq!(
        (state.phase.as_deref(), state.qos_class.as_deref()),
        (Some("Pending"), Some("BestEffort"))
    );
    let made = world
        .here::<Deployment>()
        .create(&params(), &typed(deployment("web", "nginx")))
        .await
        .unwrap();
    let spec = made.spec.unwrap();
    assert_eq!((spec.replicas, spec.revision_history_limit), (Some(1), Some(10)));
    assert_eq!(spec.strategy.unwrap().type_.as_deref(), Some("RollingUpdate"));
    let mut mismatched = deployment("bad", "nginx");
    mismatched["spec"]["selector"]["matchLabels"]["app"] = json!("other");
    assert_eq!(
        status(
            world
                .here::<Deployment>()
                .create(&params(), &typed(mismatched))
                .await
        )
        .code,
        422
    );
    let moved = Patch::Merge(
        json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}}}}),
    );
    assert_eq!(
        status(
            world
                .here::<Deployment>()
                .patch("web", &PatchParams::default(), &moved)
                .await
        )
        .code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn services_get_addresses_and_ports_that_no_other_has() {
    let world = world();
    let services = world.here::<Service>();
    let service =
        |name: &str, spec: Value| -> Service { typed(json!({"metadata": {"name": name}, "spec": spec})) };
    let ports = json!([{"port": 80}]);
    let first = services
        .create(&params(), &service("a", json!({"ports": ports})))
        .await
        .unwrap()
        .spec
        .unwrap();
    let second = services
        .create(
            &params(),
            &service("b", json!({"ports": ports, "type": "NodePort"})),
        )
        .await
        .unwrap();
    let spec = second.spec.clone().unwrap();
    assert_ne!(first.cluster_ip, spec.cluster_ip);
    assert_eq!(first.ports.unwrap()[0].node_port, None);
    assert_eq!(spec.ports.as_ref().unwrap()[0].protocol.as_deref(), Some("TCP"));
    let port = spec.ports.unwrap()[0].node_port.unwrap();
    assert!((30000..=32767).contains(&port));
    let taken = json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": port}]});
    let refused = status(services.create(&params(), &service("c", taken)).await);
    assert!(
        refused.code == 422 && refused.message.contains("provided port is already allocated"),
        "{}",
        refused.message
    );
    let same = json!({"ports": ports, "clusterIP": first.cluster_ip});
    assert_eq!(
        status(services.create(&params(), &service("d", same)).await).code,
        422
    );
    let headless = json!({"ports": ports, "clusterIP": "None"});
    let headless = services
        .create(&params(), &service("e", headless))
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(headless.cluster_ip.as_deref(), Some("None"));
    // A replacement that leaves them out keeps them, and one without node ports gives them back.
    let mut again = service("b", json!({"ports": ports, "type": "NodePort"}));
    again.metadata.resource_version = second.metadata.resource_version;
    let kept = services
        .replace("b", &params(), &again)
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(
        (kept.cluster_ip, kept.ports.unwrap()[0].node_port),
        (spec.cluster_ip, Some(port))
    );
    let plain = Patch::Merge(json!({"spec": {"type": "ClusterIP", "ports": ports}}));
    let plain = services
        .patch("b", &PatchParams::default(), &plain)
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(plain.ports.unwrap()[0].node_port, None);
}

#[tokio::test(start_paused = true)]
async fn a_gated_pod_says_so_and_is_pinned_and_let_go_in_one_patch() {
    let world = world();
    let pods = world.here::<Pod>();
    let mut gated = serde_json::to_value(pod("p")).unwrap();
    gated["spec"]["schedulingGates"] = json!([{"name": "freehold.dev/placement"}]);
    let made = pods.create(&params(), &typed(gated)).await.unwrap();
    let condition = &made.status.unwrap().conditions.unwrap()[0];
    assert_eq!(
        (condition.type_.as_str(), condition.reason.as_deref()),
        ("PodScheduled", Some("SchedulingGated"))
    );
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    let path = "/api/v1/namespaces/default/pods/p/binding";
    assert_eq!(
        world.raw("POST", path, binding.clone()).await.unwrap_err().code,
        409
    );
    let pin = json!({"spec": {"schedulingGates": null, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}}});
    let pinned = pods
        .patch("p", &PatchParams::default(), &Patch::Merge(pin.clone()))
        .await
        .unwrap();
    assert!(pinned.spec.as_ref().unwrap().affinity.is_some());
    world.raw("POST", path, binding.clone()).await.unwrap();
    let bound = pods.get("p").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
    assert_eq!(world.raw("POST", path, binding).await.unwrap_err().code, 409);
    let late = Patch::Merge(json!({"spec": {"affinity": null}}));
    assert_eq!(
        status(pods.patch("p", &PatchParams::default(), &late).await).code,
        422
    );
}

fn definition(name: &str) -> CustomResourceDefinition {
    typed(
        json!({"metadata": {"name": format!("{name}s.example.com")}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": format!("{name}s"), "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale":
            {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
    )
}

#[tokio::test(start_paused = true)]
async fn a_definition_makes_its_kind_served_until_it_is_deleted() {
    let world = world();
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    let widgets: KubeApi<DynamicObject> = KubeApi::namespaced_with(world.client.clone(), "default", &kind);
    assert_eq!(status(widgets.list(&ListParams::default()).await).code, 404);
    let made = world
        .all::<CustomResourceDefinition>()
        .create(&params(), &definition("widget"))
        .await
        .unwrap();
    let conditions = made.status.unwrap().conditions.unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
    );
    let widget = DynamicObject::new("w", &kind).data(json!({"spec": {"replicas": 1}, "status": {"x": 1}}));
    let made = widgets.create(&params(), &widget).await.unwrap();
    assert_eq!(made.data.get("status"), None);
    widgets
        .patch_status(
            "w",
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"replicas": 2}})),
        )
        .await
        .unwrap();
    let older = world
        .raw(
            "GET",
            "/apis/example.com/v1beta1/namespaces/default/widgets/w",
            Value::Null,
        )
        .await
        .unwrap();
    assert_eq!(older["apiVersion"], "example.com/v1beta1");
    let scale = world
        .raw(
            "GET",
            "/apis/example.com/v1/namespaces/default/widgets/w/scale",
            Value::Null,
        )
        .await
        .unwrap();
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]["replicas"]),
        (&json!(1), &json!(2))
    );
    let blind = DynamicObject::new("w", &kind).data(json!({"spec": {}}));
    assert_eq!(status(widgets.replace("w", &params(), &blind).await).code, 422);
    let strategic = Patch::Strategic(json!({}));
    assert_eq!(
        status(widgets.patch("w", &PatchParams::default(), &strategic).await).code,
        415
    );
    let groups = world.client.list_api_groups().await.unwrap();
    let group = groups
        .groups
        .iter()
        .find(|group| group.name == "example.com")
        .unwrap();
    assert_eq!(group.preferred_version.as_ref().unwrap().version, "v1");
    world
        .all::<CustomResourceDefinition>()
        .delete("widgets.example.com", &Default::default())
        .await
        .unwrap();
    assert!(
        world
            .api
            .objects
            .list(&Resource::new("example.com", "widgets"), None)
            .items
            .is_empty()
    );
    let wrong = CustomResourceDefinition {
        metadata: kube::core::ObjectMeta {
            name: Some("x.y".into()),
            ..Default::default()
        },
        ..definition("a")
    };
    assert_eq!(
        status(
            world
                .all::<CustomResourceDefinition>()
                .create(&params(), &wrong)
                .await
        )
        .code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_needs_a_budget_that_allows_it() {
    let world = world();
    let pods = world.here::<Pod>();
    let mut running = serde_json::to_value(pod("p")).unwrap();
    running["spec"]["nodeName"] = json!("n");
    pods.create(&params(), &typed(running)).await.unwrap();
    pods.patch_status(
        "p",
        &PatchParams::default(),
        &Patch::Merge(json!({"status": {"phase": "Running"}})),
    )
    .await
    .unwrap();
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "p"}}}, "status": {"disruptionsAllowed": 0}});
    let budgets = Resource::new("policy", "poddisruptionbudgets");
    world.api.objects.create(&budgets, budget).unwrap();
    let refused = status(pods.evict("p", &Default::default()).await);
    assert_eq!((refused.code, refused.reason.as_str()), (429, "TooManyRequests"));
    assert!(pods.get("p").await.unwrap().metadata.deletion_timestamp.is_none());
    world
        .api
        .objects
        .delete(&budgets, "default", "b", Deletion::default())
        .unwrap();
    pods.evict("p", &Default::default()).await.unwrap();
    assert!(pods.get("p").await.unwrap().metadata.deletion_timestamp.is_some());
}

#[tokio::test(start_paused = true)]
async fn bodies_may_be_yaml_and_neither_protobuf_nor_nonsense_nor_huge() {
    let world = world();
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let request = http::Request::post(path).header("content-type", "application/yaml");
    let yaml = b"metadata:\n  name: robot\n".to_vec();
    let made: ServiceAccount = world.client.request(request.body(yaml).unwrap()).await.unwrap();
    assert_eq!(made.metadata.name.as_deref(), Some("robot"));
    let protobuf = world
        .raw_as("POST", path, "application/vnd.kubernetes.protobuf", json!({}))
        .await
        .unwrap_err();
    assert_eq!(protobuf.code, 415);
    let code = async |body: Vec<u8>| {
        let request = http::Request::post(path).body(body).unwrap();
        status(world.client.request::<Value>(request).await).code
    };
    assert_eq!(code(b"{".to_vec()).await, 400);
    assert_eq!(code(b"[]".to_vec()).await, 400);
    assert_eq!(code(b"{\"metadata\": 5}".to_vec()).await, 400);
    assert_eq!(code(vec![b' '; 4 * 1024 * 1024]).await, 413);
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_class_gets_the_default_one() {
    use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};
    let world = world();
    for (name, default) in [("beta1", "false"), ("beta2", "true")] {
        let class = json!({"metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}},
            "provisioner": "x"});
        world
            .all::<StorageClass>()
            .create(&params(), &typed(class))
            .await
            .unwrap();
    }
    let claim = |name: &str, class: Value| -> PersistentVolumeClaim {
        let mut claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
        if !class.is_null() {
            claim["spec"]["storageClassName"] = class;
        }
        typed(claim)
    };
    let claims = world.here::<PersistentVolumeClaim>();
    let made = claims
        .create(&params(), &claim("a", Value::Null))
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(made.storage_class_name.as_deref(), Some("beta2"));
    assert_eq!(made.volume_mode.as_deref(), Some("Filesystem"));
    let made = claims
        .create(&params(), &claim("b", json!("beta1")))
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(made.storage_class_name.as_deref(), Some("beta1"));
    let larger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    claims.patch("b", &PatchParams::default(), &larger).await.unwrap();
    let moved = Patch::Merge(json!({"spec": {"storageClassName": "beta2"}}));
    assert_eq!(
        status(claims.patch("b", &PatchParams::default(), &moved).await).code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn hostile_objects_are_refused_and_never_a_panic() {
    let world = world();
    let odd = [
        json!(5),
        json!("x"),
        json!([]),
        json!([1, "a", null]),
        json!({"a": {"b": []}}),
        json!(true),
    ];
    let plurals = [
        "pods",
        "services",
        "namespaces",
        "persistentvolumeclaims",
        "secrets",
        "nodes",
        "configmaps",
    ];
    for plural in plurals {
        let path = match plural {
            "namespaces" | "nodes" => format!("/api/v1/{plural}"),
            _ => format!("/api/v1/namespaces/default/{plural}"),
        };
        for value in &odd {
            for field in ["spec", "status", "metadata", "data", "type", "stringData"] {
                let mut body = json!({"metadata": {"name": "odd"}});
                body[field] = value.clone();
                let made = world.raw("POST", &path, body.clone()).await;
                let patch = "application/merge-patch+json";
                let status = format!("{path}/odd/status");
                let named = format!("{path}/odd");
                for kind in [patch, "application/strategic-merge-patch+json"] {
                    world.raw_as("PATCH", &named, kind, body.clone()).await.ok();
                }
                let apply = format!("{named}?fieldManager=m&force=true");
                let mut intent = body.clone();
                intent["apiVersion"] = json!("v1");
                intent["kind"] = json!("Odd");
                world
                    .raw_as("PATCH", &apply, "application/apply-patch+yaml", intent)
                    .await
                    .ok();
                world.raw_as("PATCH", &status, patch, body).await.ok();
                if made.is_ok() {
                    world
                        .raw("DELETE", &named, json!({"gracePeriodSeconds": 0}))
                        .await
                        .unwrap();
                    let empty = json!({"metadata": {"name": "odd"}});
                    world.raw("PUT", &format!("{named}/finalize"), empty).await.ok();
                }
            }
        }
    }
    let nested = json!({"spec": {"ports": ["x", 5, null, {"port": "y"}], "type": "NodePort"}, "metadata": {"name": "odd"}});
    assert_eq!(
        world
            .raw("POST", "/api/v1/namespaces/default/services", nested)
            .await
            .unwrap_err()
            .code,
        400
    );
    world
        .raw(
            "GET",
            "/api/v1/pods?watch=1&timeoutSeconds=18446744073709551615&resourceVersion=x",
            Value::Null,
        )
        .await
        .unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_controller_stored_without_defaults_can_be_let_go_through_the_api() {
    let world = world();
    let bare = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"schedulingGates": [{"name": "g"}],
        "containers": [{"name": "web", "image": "nginx"}]}, "status": {"phase": "Pending"}});
    world
        .api
        .objects
        .create(&Resource::new("", "pods"), bare)
        .unwrap();
    let free = Patch::Strategic(
        json!({"spec": {"schedulingGates": [{"name": "g", "$patch": "delete"}], "nodeSelector": {"a": "b"}}}),
    );
    let after = world
        .here::<Pod>()
        .patch("p", &PatchParams::default(), &free)
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(after.scheduling_gates.unwrap_or_default().len(), 0);
    assert_eq!(after.restart_policy.as_deref(), Some("Always"));
}
