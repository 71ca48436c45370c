use k8s_openapi::api::apps::v1::Deployment;

use super::*;

fn manager(name: &str) -> PatchParams {
    PatchParams::apply(name)
}

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

#[tokio::test(start_paused = true)]
async fn applying_creates_then_owns_and_a_second_manager_conflicts_unless_it_forces() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let made = maps
        .patch(
            "a",
            &manager("one"),
            &Patch::Apply(config(json!({"x": "1", "y": "1"}))),
        )
        .await
        .unwrap();
    let managed = &made.metadata.managed_fields.as_ref().unwrap()[0];
    assert_eq!(
        (managed.manager.as_deref(), managed.operation.as_deref()),
        (Some("one"), Some("Apply"))
    );
    assert_eq!(
        managed.fields_v1.as_ref().unwrap().0,
        json!({"f:data": {"f:x": {}, "f:y": {}}})
    );
    // The same again is nothing new.
    let again = maps
        .patch(
            "a",
            &manager("one"),
            &Patch::Apply(config(json!({"x": "1", "y": "1"}))),
        )
        .await
        .unwrap();
    assert_eq!(again.metadata.resource_version, made.metadata.resource_version);
    // The same value is shared, another one is a conflict.
    maps.patch("a", &manager("two"), &Patch::Apply(config(json!({"x": "1"}))))
        .await
        .unwrap();
    let refused = status(
        maps.patch("a", &manager("two"), &Patch::Apply(config(json!({"x": "2"}))))
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"one\": .data.x"
    );
    let cause = &refused.details.unwrap().causes[0];
    assert_eq!(
        (cause.reason.as_str(), cause.field.as_str()),
        ("FieldManagerConflict", ".data.x")
    );
    let forced = maps
        .patch(
            "a",
            &manager("two").force(),
            &Patch::Apply(config(json!({"x": "2"}))),
        )
        .await
        .unwrap();
    assert_eq!(forced.data.as_ref().unwrap()["x"], "2");
    let of_one = forced
        .metadata
        .managed_fields
        .unwrap()
        .into_iter()
        .find(|entry| entry.manager.as_deref() == Some("one"));
    assert_eq!(
        of_one.unwrap().fields_v1.unwrap().0,
        json!({"f:data": {"f:y": {}}})
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_manager_no_longer_applies_goes_unless_somebody_else_owns_it() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    maps.patch(
        "a",
        &manager("one"),
        &Patch::Apply(config(json!({"x": "1", "y": "1", "z": "1"}))),
    )
    .await
    .unwrap();
    maps.patch("a", &manager("two"), &Patch::Apply(config(json!({"y": "1"}))))
        .await
        .unwrap();
    maps.patch(
        "a",
        &PatchParams {
            field_manager: Some("edit".into()),
            ..Default::default()
        },
        &Patch::Merge(json!({"data": {"w": "1"}})),
    )
    .await
    .unwrap();
    let after = maps
        .patch("a", &manager("one"), &Patch::Apply(config(json!({"z": "1"}))))
        .await
        .unwrap();
    let keys: Vec<String> = after.data.unwrap().into_keys().collect();
    assert_eq!(keys, ["w", "y", "z"]);
}

#[tokio::test(start_paused = true)]
async fn an_update_takes_ownership_and_then_an_apply_of_the_old_value_conflicts() {
    let world = world();
    let deployments = world.here::<Deployment>();
    let mut wanted = deployment("web", "nginx:1");
    wanted["spec"]["replicas"] = json!(2);
    deployments
        .patch("web", &manager("freehold"), &Patch::Apply(wanted.clone()))
        .await
        .unwrap();
    let edit = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..Default::default()
    };
    deployments
        .patch("web", &edit, &Patch::Merge(json!({"spec": {"replicas": 5}})))
        .await
        .unwrap();
    let refused = status(
        deployments
            .patch("web", &manager("freehold"), &Patch::Apply(wanted.clone()))
            .await,
    );
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"kubectl-edit\" using apps/v1 at 2026-01-01T04:00:00Z: .spec.replicas"
    );
    // Leaving the field out gives it up: the other's value stays.
    wanted["spec"].as_object_mut().unwrap().remove("replicas");
    let after = deployments
        .patch("web", &manager("freehold"), &Patch::Apply(wanted))
        .await
        .unwrap();
    assert_eq!(after.spec.unwrap().replicas, Some(5));
}

#[tokio::test(start_paused = true)]
async fn lists_with_keys_merge_by_item_and_a_dropped_item_goes() {
    let world = world();
    let deployments = world.here::<Deployment>();
    let mut wanted = deployment("web", "nginx:1");
    wanted["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
    deployments
        .patch("web", &manager("one"), &Patch::Apply(wanted.clone()))
        .await
        .unwrap();
    let sidecar = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "side", "image": "x:1"}]}}}});
    deployments
        .patch("web", &manager("injector"), &Patch::Apply(sidecar))
        .await
        .unwrap();
    wanted["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "B", "value": "3"}]);
    let after = deployments
        .patch("web", &manager("one"), &Patch::Apply(wanted.clone()))
        .await
        .unwrap();
    let containers = after.spec.unwrap().template.spec.unwrap().containers;
    let names: Vec<&str> = containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    assert_eq!(names, ["web", "side"]);
    let env = containers[0].env.clone().unwrap();
    assert_eq!(
        (env.len(), env[0].name.as_str(), env[0].value.as_deref()),
        (1, "B", Some("3"))
    );
    let none = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    let after = deployments
        .patch("web", &manager("injector"), &Patch::Apply(none))
        .await
        .unwrap();
    assert_eq!(after.spec.unwrap().template.spec.unwrap().containers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_status_has_owners_of_its_own() {
    let world = world();
    let deployments = world.here::<Deployment>();
    deployments
        .patch("web", &manager("one"), &Patch::Apply(deployment("web", "nginx")))
        .await
        .unwrap();
    let state = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 99},
        "status": {"replicas": 3, "conditions": [{"type": "Available", "status": "True"}]}});
    let after = deployments
        .patch_status("web", &manager("one"), &Patch::Apply(state))
        .await
        .unwrap();
    assert_eq!(after.spec.unwrap().replicas, Some(1));
    assert_eq!(after.status.unwrap().replicas, Some(3));
    let entries = after.metadata.managed_fields.unwrap();
    let of_status = entries
        .iter()
        .find(|entry| entry.subresource.as_deref() == Some("status"))
        .unwrap();
    assert!(of_status.fields_v1.as_ref().unwrap().0.get("f:spec").is_none());
    assert_eq!(entries.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_there_before_anybody_applied_has_an_owner() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let stored = json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "1"}});
    world
        .api
        .objects
        .create(&Resource::new("", "configmaps"), stored)
        .unwrap();
    let refused = status(
        maps.patch("a", &manager("one"), &Patch::Apply(config(json!({"x": "2"}))))
            .await,
    );
    assert!(
        refused.message.contains("before-first-apply"),
        "{}",
        refused.message
    );
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_cannot_be_understood_is_refused() {
    let world = world();
    let path = "/api/v1/namespaces/default/configmaps/a";
    let apply = async |query: &str, body: Value| {
        let path = format!("{path}?{query}");
        world
            .raw_as("PATCH", &path, "application/apply-patch+yaml", body)
            .await
            .unwrap_err()
    };
    let nobody = apply("", config(json!({}))).await;
    assert_eq!(nobody.code, 422);
    assert!(
        nobody
            .message
            .contains("fieldManager: Required value: is required for apply patch"),
        "{}",
        nobody.message
    );
    assert_eq!(apply("fieldManager=m", json!({"data": {}})).await.code, 400);
    let mut managed = config(json!({}));
    managed["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    assert_eq!(
        apply("fieldManager=m", managed).await.message,
        "metadata.managedFields must be nil"
    );
    let force = world
        .raw_as(
            "PATCH",
            &format!("{path}?force=true"),
            "application/merge-patch+json",
            json!({}),
        )
        .await;
    assert_eq!(force.unwrap_err().code, 422);
}
