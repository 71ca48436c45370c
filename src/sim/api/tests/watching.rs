use std::time::Duration;

use futures::TryStreamExt;
use kube::{
    api::{WatchEvent, WatchParams},
    runtime::{WatchStreamExt, reflector, watcher},
};

use super::*;

fn name(map: &ConfigMap) -> &str {
    map.metadata.name.as_deref().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_happened_after_its_revision() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let made = maps.create(&params(), &map("a")).await.unwrap();
    maps.create(&params(), &map("b")).await.unwrap();
    maps.delete("a", &Default::default()).await.unwrap();
    KubeApi::<ConfigMap>::namespaced(world.client.clone(), "other")
        .create(&params(), &map("z"))
        .await
        .unwrap();
    maps.patch(
        "b",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"a": "2"}})),
    )
    .await
    .unwrap();
    let version = made.metadata.resource_version.unwrap();
    let events = maps
        .watch(&WatchParams::default().timeout(1), &version)
        .await
        .unwrap();
    let seen: Vec<String> = events
        .map_ok(|event| match event {
            WatchEvent::Added(object) => format!("+{}", name(&object)),
            WatchEvent::Modified(object) => format!("~{}", name(&object)),
            WatchEvent::Deleted(object) => format!("-{}", name(&object)),
            WatchEvent::Bookmark(_) => "bookmark".to_owned(),
            WatchEvent::Error(status) => format!("{status:?}"),
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(seen, ["+b", "-a", "~b", "bookmark"]);
}

#[tokio::test(start_paused = true)]
async fn what_moves_into_a_selection_is_added_and_what_moves_out_is_deleted() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    maps.create(&params(), &map("a")).await.unwrap();
    let version = world.api.objects.revision().to_string();
    let label = async |value: Value| {
        let change = Patch::Merge(json!({"metadata": {"labels": {"on": value}}}));
        maps.patch("a", &PatchParams::default(), &change).await.unwrap();
    };
    label(json!("yes")).await;
    label(json!("no")).await;
    let events = maps
        .watch(
            &WatchParams::default()
                .labels("on=yes")
                .disable_bookmarks()
                .timeout(1),
            &version,
        )
        .await
        .unwrap();
    let events: Vec<WatchEvent<ConfigMap>> = events.try_collect().await.unwrap();
    let [WatchEvent::Added(_), WatchEvent::Deleted(last)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(
        last.metadata.resource_version,
        Some(world.api.objects.revision().to_string())
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_or_a_future_revision_is_told_410() {
    let world = world_remembering(2);
    let maps = world.here::<ConfigMap>();
    for name in ["a", "b", "c", "d"] {
        maps.create(&params(), &map(name)).await.unwrap();
    }
    for version in ["2", "99999"] {
        let mut events = maps
            .watch(&WatchParams::default(), version)
            .await
            .unwrap()
            .boxed();
        let Some(Ok(WatchEvent::Error(status))) = events.next().await else {
            panic!()
        };
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        assert!(events.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_a_bookmark_of_the_present_revision_every_minute() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let version = world.api.objects.revision().to_string();
    let mut events = maps
        .watch(&WatchParams::default().timeout(290), &version)
        .await
        .unwrap()
        .boxed();
    // Another resource moves the revision on.
    world.here::<Pod>().create(&params(), &pod("p")).await.unwrap();
    let Some(Ok(WatchEvent::Bookmark(bookmark))) = events.next().await else {
        panic!()
    };
    assert_eq!(
        bookmark.metadata.resource_version,
        world.api.objects.revision().to_string()
    );
}

async fn follow(world: &World, config: watcher::Config) {
    let maps = world.here::<ConfigMap>();
    for name in ["a", "b"] {
        maps.create(&params(), &map(name)).await.unwrap();
    }
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, watcher(maps.clone(), config))
        .applied_objects()
        .boxed();
    let task = tokio::spawn(stream.for_each(|event| async move {
        event.unwrap();
    }));
    reader.wait_until_ready().await.unwrap();
    assert_eq!(reader.len(), 2);
    maps.delete("a", &Default::default()).await.unwrap();
    maps.create(&params(), &map("c")).await.unwrap();
    let settled = async {
        loop {
            let mut names: Vec<String> = reader.state().iter().map(|map| name(map).to_owned()).collect();
            names.sort();
            if names == ["b", "c"] {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), settled)
        .await
        .unwrap();
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn kubes_reflector_follows_by_list_and_watch() {
    follow(&world(), watcher::Config::default().page_size(1)).await;
}

#[tokio::test(start_paused = true)]
async fn kubes_reflector_follows_by_a_streaming_list() {
    follow(&world(), watcher::Config::default().streaming_lists()).await;
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_lists_again_when_its_revision_is_forgotten() {
    let world = world_remembering(4);
    let maps = world.here::<ConfigMap>();
    maps.create(&params(), &map("a")).await.unwrap();
    let mut events = watcher(maps.clone(), watcher::Config::default()).boxed();
    let mut inits = 0;
    let mut churned = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitDone) => {
                inits += 1;
                if inits == 2 {
                    break;
                }
            }
            Ok(watcher::Event::Init) if churned => {}
            Ok(_) => {}
            Err(error) => assert!(matches!(error, watcher::Error::WatchError(_)), "{error}"),
        }
        if inits == 1 && !churned {
            churned = true;
            for number in 0..20 {
                let change = Patch::Merge(json!({"data": {"a": number.to_string()}}));
                maps.patch("a", &PatchParams::default(), &change).await.unwrap();
            }
        }
    }
    assert_eq!(inits, 2);
}

#[tokio::test(start_paused = true)]
async fn options_that_make_no_sense_are_refused() {
    let world = world();
    let code = async |query: &str| {
        world
            .raw("GET", &format!("/api/v1/configmaps?{query}"), Value::Null)
            .await
            .unwrap_err()
            .code
    };
    assert_eq!(code("watch=1&sendInitialEvents=true").await, 422);
    assert_eq!(code("watch=1&resourceVersionMatch=NotOlderThan").await, 422);
    assert_eq!(code("watch=1&resourceVersion=x").await, 422);
    assert_eq!(code("watch=1&timeoutSeconds=x").await, 400);
    assert_eq!(code("resourceVersionMatch=Exact").await, 422);
    assert_eq!(code("limit=-1").await, 400);
}
