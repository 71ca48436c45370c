//! Ends and in-betweens: finalizers, namespaces, owners, generations, status and scale.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Pod, ServiceAccount},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    lists::pod,
    world::{World, eventually, object, refusal},
    writes::deployment,
};

fn post() -> PostParams {
    PostParams::default()
}

/// Pods are refused before it is there.
pub async fn wait_for_default_account(world: &World) {
    let accounts = world.api::<ServiceAccount>();
    eventually("the namespace has its default ServiceAccount", || async {
        accounts.get_opt("default").await.unwrap()
    })
    .await;
}

pub async fn a_finalizer_holds_what_is_deleted(world: &World) {
    let maps = world.api::<ConfigMap>();
    let wanted = object(json!({"metadata": {"name": "one", "finalizers": ["freehold.dev/test"]}}));
    maps.create(&post(), &wanted).await.unwrap();
    let held = maps.delete("one", &DeleteParams::default()).await.unwrap();
    let held = held.left().expect("the object, as it is not gone");
    let since = held
        .metadata
        .deletion_timestamp
        .clone()
        .expect("a deletion timestamp");
    let again = maps
        .delete("one", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(again.metadata.deletion_timestamp, Some(since));
    let patch = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let more = patch(json!(["freehold.dev/test", "freehold.dev/late"]));
    assert_eq!(
        refusal(maps.patch("one", &PatchParams::default(), &more).await).code,
        422
    );
    maps.patch("one", &PatchParams::default(), &patch(Value::Null))
        .await
        .unwrap();
    assert_eq!(refusal(maps.get("one").await).code, 404);
}

pub async fn a_namespace_takes_its_contents_along(world: &World) {
    let namespaces = Api::<Namespace>::all(world.client.clone());
    world.config_map("plain", json!({})).await;
    let maps = world.api::<ConfigMap>();
    let wanted = object(json!({"metadata": {"name": "held", "finalizers": ["freehold.dev/test"]}}));
    maps.create(&post(), &wanted).await.unwrap();
    let going = namespaces
        .delete(&world.namespace, &DeleteParams::default())
        .await
        .unwrap();
    let going = going.left().expect("the namespace, as it is not gone");
    assert_eq!(going.status.unwrap().phase.as_deref(), Some("Terminating"));

    let late = object(json!({"metadata": {"name": "late"}}));
    let refused = refusal(maps.create(&post(), &late).await);
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    let causes = refused.details.unwrap().causes;
    assert_eq!(causes[0].reason, "NamespaceTerminating");

    eventually("what nothing holds is gone", || async {
        maps.get_opt("plain").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(namespaces.get_opt(&world.namespace).await.unwrap().is_some());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &patch).await.unwrap();
    eventually("the namespace is gone", || async {
        namespaces
            .get_opt(&world.namespace)
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
}

async fn family(world: &World, owner: &str) -> (Api<ConfigMap>, String) {
    let maps = world.api::<ConfigMap>();
    let parent = world.config_map(owner, json!({})).await;
    let child = format!("{owner}-child");
    let wanted = object(json!({"metadata": {"name": child, "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": parent.uid(), "blockOwnerDeletion": true,
    }]}}));
    maps.create(&post(), &wanted).await.unwrap();
    (maps, child)
}

pub async fn what_is_owned_goes_with_its_owner(world: &World) {
    let (maps, child) = family(world, "background").await;
    maps.delete("background", &DeleteParams::background())
        .await
        .unwrap();
    assert!(
        maps.get_opt("background").await.unwrap().is_none(),
        "the owner goes at once"
    );
    eventually("the child follows", || async {
        maps.get_opt(&child).await.unwrap().is_none().then_some(())
    })
    .await;

    let (maps, child) = family(world, "foreground").await;
    let held = maps
        .delete("foreground", &DeleteParams::foreground())
        .await
        .unwrap();
    let held = held.left().expect("the owner, as it waits");
    assert!(held.finalizers().contains(&"foregroundDeletion".to_owned()));
    eventually("the owner goes after the child", || async {
        maps.get_opt("foreground").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(maps.get_opt(&child).await.unwrap().is_none());

    let (maps, child) = family(world, "orphan").await;
    maps.delete("orphan", &DeleteParams::orphan()).await.unwrap();
    eventually("the child has no owner any more", || async {
        let child = maps.get(&child).await.unwrap();
        child.owner_references().is_empty().then_some(())
    })
    .await;
    eventually("the owner goes after that", || async {
        maps.get_opt("orphan").await.unwrap().is_none().then_some(())
    })
    .await;
}

pub async fn an_owner_that_never_was_takes_its_children(world: &World) {
    let maps = world.api::<ConfigMap>();
    let wanted = object(json!({"metadata": {"name": "stray", "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-0000-0000-000000000000",
    }]}}));
    maps.create(&post(), &wanted).await.unwrap();
    eventually("the stray is collected", || async {
        maps.get_opt("stray").await.unwrap().is_none().then_some(())
    })
    .await;
}

pub async fn the_generation_counts_changes_of_the_spec(world: &World) {
    let deployments = world.api::<Deployment>();
    let made = deployments.create(&post(), &deployment("one", 0)).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let labelled = deployments
        .patch("one", &PatchParams::default(), &label)
        .await
        .unwrap();
    assert_eq!(labelled.metadata.generation, Some(1));
    let scale = Patch::Merge(json!({"spec": {"minReadySeconds": 3}}));
    let scaled = deployments
        .patch("one", &PatchParams::default(), &scale)
        .await
        .unwrap();
    assert_eq!(scaled.metadata.generation, Some(2));
}

pub async fn status_and_spec_are_written_apart(world: &World) {
    wait_for_default_account(world).await;
    let pods = world.api::<Pod>();
    let mut wanted = pod("one");
    wanted.status = object(json!({"phase": "Running"}));
    let made = pods.create(&post(), &wanted).await.unwrap();
    assert_eq!(
        made.status.unwrap().phase.as_deref(),
        Some("Pending"),
        "a status cannot be created"
    );
    let both = Patch::Merge(json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"activeDeadlineSeconds": 100},
        "status": {"phase": "Failed", "message": "so it is"},
    }));
    let pod = pods.patch("one", &PatchParams::default(), &both).await.unwrap();
    assert_eq!(pod.spec.as_ref().unwrap().active_deadline_seconds, Some(100));
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
    let both = Patch::Merge(json!({
        "spec": {"activeDeadlineSeconds": 50},
        "status": {"phase": "Failed", "message": "so it is"},
    }));
    let pod = pods
        .patch_status("one", &PatchParams::default(), &both)
        .await
        .unwrap();
    assert_eq!(pod.spec.as_ref().unwrap().active_deadline_seconds, Some(100));
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Failed"));
    assert_eq!(pod.status.as_ref().unwrap().message.as_deref(), Some("so it is"));
}

pub async fn scale_is_a_view_of_its_own(world: &World) {
    let deployments = world.api::<Deployment>();
    deployments.create(&post(), &deployment("one", 0)).await.unwrap();
    let scale = deployments.get_scale("one").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, None, "none is left out");
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=one"));
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let scale = deployments
        .patch_scale("one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
    let deployment = deployments.get("one").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    assert_eq!(deployment.metadata.generation, Some(2));
    let patch = Patch::Merge(json!({"spec": {"replicas": -1}}));
    assert_eq!(
        refusal(
            deployments
                .patch_scale("one", &PatchParams::default(), &patch)
                .await
        )
        .code,
        422
    );
}
