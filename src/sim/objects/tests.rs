use futures::StreamExt;
use serde_json::json;

use super::*;
use crate::ports::clock::SimulatedClock;

const PODS: Resource = Resource::new("", "pods");
const MAPS: Resource = Resource::new("", "configmaps");
const DEPLOYMENTS: Resource = Resource::new("apps", "deployments");

fn options(history: usize) -> ObjectsOptions {
    ObjectsOptions {
        clock: Arc::new(SimulatedClock::starting_at(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        )),
        history,
        uid_seed: 7,
    }
}

fn object(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"namespace": "default", "name": name}})
}

fn pod(name: &str, node: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "default", "name": name},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30}})
}

#[tokio::test(start_paused = true)]
async fn a_new_object_gets_what_belongs_to_the_server() {
    let objects = Objects::new(options(10));
    let made = objects.create(&PODS, pod("a", "")).unwrap();
    assert_eq!(metadata_text(&made, "creationTimestamp"), "2026-01-01T00:00:00Z");
    assert_eq!(metadata_text(&made, "resourceVersion"), "2");
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(
        objects.create(&PODS, pod("a", "")).unwrap_err().reason,
        "AlreadyExists"
    );
    assert_eq!(objects.revision(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_same_run_gives_the_same_uids_and_a_second_object_of_a_name_gets_another() {
    let run = || {
        let objects = Objects::new(options(10));
        let first = objects.create(&MAPS, object("a")).unwrap();
        objects
            .delete(&MAPS, "default", "a", Deletion::default())
            .unwrap();
        let second = objects.create(&MAPS, object("a")).unwrap();
        let generated = json!({"metadata": {"namespace": "default", "generateName": "web-"}});
        let third = objects.create(&MAPS, generated.clone()).unwrap();
        let fourth = objects.create(&MAPS, generated).unwrap();
        let uid = |object: &Value| metadata_text(object, "uid").to_owned();
        let name = |object: &Value| metadata_text(object, "name").to_owned();
        assert_ne!(uid(&first), uid(&second));
        assert_ne!(name(&third), name(&fourth));
        assert_eq!(name(&third).len(), "web-".len() + 5);
        (uid(&first), uid(&second), name(&third), name(&fourth))
    };
    assert_eq!(run(), run());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_nothing_makes_no_revision_and_a_change_of_spec_raises_the_generation() {
    let objects = Objects::new(options(10));
    objects.create(&DEPLOYMENTS, object("a")).unwrap();
    let before = objects.revision();
    objects.modify(&DEPLOYMENTS, "default", "a", |_| Ok(())).unwrap();
    assert_eq!(objects.revision(), before);
    let write_status = |object: &mut Value| {
        object["status"] = json!({"replicas": 1});
        object["metadata"]["uid"] = json!("forged");
        Ok(())
    };
    let after = objects
        .modify(&DEPLOYMENTS, "default", "a", write_status)
        .unwrap();
    assert_eq!(after["metadata"]["generation"], 1);
    assert_ne!(metadata_text(&after, "uid"), "forged");
    let write_spec = |object: &mut Value| {
        object["spec"] = json!({"replicas": 2});
        Ok(())
    };
    let after = objects.modify(&DEPLOYMENTS, "default", "a", write_spec).unwrap();
    assert_eq!(after["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_a_deleted_object_until_the_last_one_is_removed() {
    let objects = Objects::new(options(10));
    let mut held = object("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    objects.create(&MAPS, held).unwrap();
    let deleted = objects
        .delete(&MAPS, "default", "a", Deletion::default())
        .unwrap();
    assert!(matches!(deleted, Deleted::Marked(_)));
    assert!(is_deleting(&objects.get(&MAPS, "default", "a").unwrap()));
    let mut changes = objects.subscribe(&MAPS, None).unwrap();
    let release = |object: &mut Value| {
        object["metadata"]["finalizers"] = json!([]);
        Ok(())
    };
    objects.modify(&MAPS, "default", "a", release).unwrap();
    assert!(objects.get(&MAPS, "default", "a").is_none());
    assert_eq!(changes.next().await.unwrap().unwrap().kind, ChangeKind::Deleted);
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_has_its_grace_and_one_without_goes_at_once() {
    let objects = Objects::new(options(10));
    objects.create(&PODS, pod("bound", "node-1")).unwrap();
    objects.create(&PODS, pod("free", "")).unwrap();
    let removed = objects
        .delete(&PODS, "default", "free", Deletion::default())
        .unwrap();
    assert!(matches!(removed, Deleted::Removed(_)));
    let marked = objects
        .delete(&PODS, "default", "bound", Deletion::default())
        .unwrap();
    assert_eq!(
        metadata_text(marked.object(), "deletionTimestamp"),
        "2026-01-01T00:00:30Z"
    );
    let sooner = Deletion {
        grace_seconds: Some(5),
        ..Deletion::default()
    };
    let marked = objects.delete(&PODS, "default", "bound", sooner).unwrap();
    assert_eq!(
        metadata_text(marked.object(), "deletionTimestamp"),
        "2026-01-01T00:00:05Z"
    );
    let later = objects
        .delete(&PODS, "default", "bound", Deletion::default())
        .unwrap();
    assert_eq!(later.object()["metadata"]["deletionGracePeriodSeconds"], 5);
    let gone = objects
        .delete(&PODS, "default", "bound", Deletion::now())
        .unwrap();
    assert!(matches!(gone, Deleted::Removed(_)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_off_the_history_is_told_so_and_never_holds_up_a_writer() {
    let objects = Objects::new(options(4));
    let start = objects.revision();
    let mut slow = objects.subscribe(&MAPS, Some(start)).unwrap();
    for number in 0..10 {
        objects.create(&MAPS, object(&format!("m{number}"))).unwrap();
    }
    assert!(slow.next().await.unwrap().is_err());
    assert!(slow.next().await.is_none());
    assert!(objects.subscribe(&MAPS, Some(start)).is_err());
    let mut kept = objects.subscribe(&MAPS, Some(objects.revision() - 4)).unwrap();
    assert_eq!(
        metadata_text(&kept.next().await.unwrap().unwrap().object, "name"),
        "m6"
    );
    // A quiet resource is never too old.
    objects.subscribe(&PODS, Some(start)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restored_store_goes_on_where_the_snapshot_was_taken() {
    let objects = Objects::new(options(10));
    let made = objects.create(&MAPS, object("a")).unwrap();
    objects.create(&PODS, pod("p", "")).unwrap();
    let text = serde_json::to_string(&objects.snapshot()).unwrap();
    let restored = Objects::restore(options(10), serde_json::from_str(&text).unwrap());
    assert_eq!(restored.get(&MAPS, "default", "a"), Some(made));
    assert_eq!(restored.revision(), objects.revision());
    assert!(restored.subscribe(&MAPS, Some(1)).is_err());
    restored.subscribe_all(Some(objects.revision())).unwrap();
    restored
        .delete(&MAPS, "default", "a", Deletion::default())
        .unwrap();
    let again = restored.create(&MAPS, object("a")).unwrap();
    assert_ne!(
        metadata_text(&again, "uid"),
        metadata_text(&objects.get(&MAPS, "default", "a").unwrap(), "uid")
    );
}

#[tokio::test(start_paused = true)]
async fn every_change_of_every_resource_can_be_followed_in_order() {
    let objects = Objects::new(options(1000));
    let all = objects.subscribe_all(None).unwrap();
    for number in 0..300 {
        objects.create(&MAPS, object(&format!("m{number}"))).unwrap();
        objects.create(&PODS, pod(&format!("p{number}"), "")).unwrap();
    }
    let seen: Vec<u64> = all
        .take(600)
        .map(|change| change.unwrap().revision)
        .collect()
        .await;
    assert_eq!(seen, (2..602).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_list_shares_the_objects_and_one_of_the_past_is_as_it_was() {
    let objects = Objects::new(options(100));
    for name in ["a", "b"] {
        objects.create(&MAPS, object(name)).unwrap();
    }
    let then = objects.list(&MAPS, None);
    assert!(Arc::ptr_eq(
        &then.items[0],
        &objects.get(&MAPS, "default", "a").unwrap()
    ));
    objects
        .delete(&MAPS, "default", "a", Deletion::default())
        .unwrap();
    objects.create(&MAPS, object("aa")).unwrap();
    objects.create(&MAPS, object("a")).unwrap();
    let again = objects.list_at(&MAPS, Some("default"), then.revision).unwrap();
    assert_eq!(again.items, then.items);
    assert!(
        objects
            .list_at(&MAPS, Some("elsewhere"), then.revision)
            .unwrap()
            .items
            .is_empty()
    );
}
