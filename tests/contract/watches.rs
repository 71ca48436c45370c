//! Following what happens: events, bookmarks, resuming, streaming lists, history that is gone.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::json;

use super::world::{Watch, World, refusal, told};

fn chosen() -> WatchParams {
    WatchParams::default().labels("for=watch").disable_bookmarks()
}

async fn version_now(world: &World) -> String {
    let list = world
        .api::<ConfigMap>()
        .list(&ListParams::default())
        .await
        .unwrap();
    list.metadata.resource_version.unwrap()
}

async fn relabel(world: &World, name: &str, value: Option<&str>) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"for": value}}}));
    let maps = world.api::<ConfigMap>();
    maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

pub async fn a_watch_tells_what_happens_after_its_version(world: &World) {
    world.config_map("before", json!({"for": "watch"})).await;
    let start = version_now(world).await;
    let maps = world.api::<ConfigMap>();
    let mut watch = Watch::open(&maps, &chosen(), &start).await;
    world.config_map("new", json!({"for": "watch"})).await;
    world.config_map("other", json!({"for": "others"})).await;
    let patch = Patch::Merge(json!({"data": {"key": "changed"}}));
    let changed = maps
        .patch("before", &PatchParams::default(), &patch)
        .await
        .unwrap();
    maps.delete("new", &Default::default()).await.unwrap();

    let mut events = Vec::new();
    let mut versions = Vec::new();
    for _ in 0..3 {
        let event = watch.next().await.unwrap();
        events.push(told(&event));
        if let WatchEvent::Added(map) | WatchEvent::Modified(map) | WatchEvent::Deleted(map) = event {
            versions.push(map.resource_version().unwrap().parse::<u64>().unwrap());
        }
    }
    assert_eq!(events, ["added new", "modified before", "deleted new"]);
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
    assert_eq!(versions[1].to_string(), changed.resource_version().unwrap());
}

pub async fn a_watch_resumes_without_loss(world: &World) {
    let first = world.config_map("first", json!({"for": "watch"})).await;
    world.config_map("second", json!({"for": "watch"})).await;
    let third = world.config_map("third", json!({"for": "watch"})).await;
    let maps = world.api::<ConfigMap>();
    let mut watch = Watch::open(&maps, &chosen(), &first.resource_version().unwrap()).await;
    assert_eq!(told(&watch.next().await.unwrap()), "added second");
    assert_eq!(told(&watch.next().await.unwrap()), "added third");
    let mut watch = Watch::open(&maps, &chosen(), &third.resource_version().unwrap()).await;
    world.config_map("fourth", json!({"for": "watch"})).await;
    assert_eq!(told(&watch.next().await.unwrap()), "added fourth");
}

pub async fn what_leaves_the_selection_is_deleted_and_what_enters_is_added(world: &World) {
    world.config_map("one", json!({"for": "watch"})).await;
    let start = version_now(world).await;
    let maps = world.api::<ConfigMap>();
    let mut watch = Watch::open(&maps, &chosen(), &start).await;
    relabel(world, "one", None).await;
    relabel(world, "one", Some("watch")).await;
    assert_eq!(told(&watch.next().await.unwrap()), "deleted one");
    assert_eq!(told(&watch.next().await.unwrap()), "added one");
}

pub async fn version_zero_gives_the_present_first(world: &World) {
    world.config_map("there", json!({"for": "watch"})).await;
    let maps = world.api::<ConfigMap>();
    let mut watch = Watch::open(&maps, &chosen(), "0").await;
    assert_eq!(told(&watch.next().await.unwrap()), "added there");
}

pub async fn a_watch_ends_at_its_time_with_a_bookmark_before(world: &World) {
    world.config_map("one", json!({"for": "watch"})).await;
    let start = version_now(world).await;
    world.config_map("elsewhere", json!({"for": "others"})).await;
    let maps = world.api::<ConfigMap>();
    let parameters = WatchParams::default().labels("for=watch").timeout(5);
    let mut bookmark = None;
    // It comes two seconds before the end, at best: a busy server may miss it.
    for _ in 0..4 {
        let mut watch = Watch::open(&maps, &parameters, &start).await;
        while let Some(event) = watch.next().await {
            match event {
                WatchEvent::Bookmark(event) => bookmark = Some(event.metadata.resource_version),
                other => panic!("nothing happened, yet {other:?}"),
            }
        }
        if bookmark.is_some() {
            break;
        }
    }
    let bookmark: u64 = bookmark.expect("a bookmark").parse().unwrap();
    assert!(
        bookmark > start.parse::<u64>().unwrap(),
        "it goes on though nothing was told"
    );
}

pub async fn a_list_can_be_streamed(world: &World) {
    for name in ["b", "a"] {
        world.config_map(name, json!({"for": "watch"})).await;
    }
    let maps = world.api::<ConfigMap>();
    let parameters = WatchParams::streaming_lists().labels("for=watch");
    let mut watch = Watch::open(&maps, &parameters, "").await;
    let mut names = Vec::new();
    let end = loop {
        match watch.next().await.expect("an event") {
            WatchEvent::Added(map) => names.push(map.name_any()),
            WatchEvent::Bookmark(bookmark) => break bookmark,
            other => panic!("not part of a list: {other:?}"),
        }
    };
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        end.metadata
            .annotations
            .get("k8s.io/initial-events-end")
            .map(String::as_str),
        Some("true")
    );
    assert!(!end.metadata.resource_version.is_empty());
    world.config_map("later", json!({"for": "watch"})).await;
    assert_eq!(told(&watch.next().await.unwrap()), "added later");
}

pub async fn streaming_a_list_needs_its_parameters_together(world: &World) {
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?watch=true&sendInitialEvents=true",
        world.namespace
    );
    let (code, status) = world.send("GET", &path, "application/json", "").await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
}

/// `expire` makes all history so far unavailable.
pub async fn history_that_is_gone_answers_410(world: &World, expire: impl AsyncFnOnce()) {
    for name in ["a", "b", "c"] {
        world.config_map(name, json!({"for": "watch"})).await;
    }
    let maps = world.api::<ConfigMap>();
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let version = page.metadata.resource_version.unwrap();
    let next = ListParams::default()
        .limit(1)
        .continue_token(&page.metadata.continue_.unwrap());
    maps.delete("c", &Default::default()).await.unwrap();
    expire().await;

    let refused = refusal(maps.list(&next).await);
    assert_eq!((refused.code, refused.reason.as_str()), (410, "Expired"));
    // The refusal carries a token to go on with, inconsistently.
    let token = refused.metadata.and_then(|metadata| metadata.continue_);
    assert!(token.is_some_and(|token| !token.is_empty()));

    let mut watch = Watch::open(&maps, &chosen(), &version).await;
    match watch.next().await {
        Some(WatchEvent::Error(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        }
        other => panic!("not gone: {other:?}"),
    }
    assert!(watch.next().await.is_none());
}
