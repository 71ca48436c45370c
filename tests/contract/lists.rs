//! Reading: pages, selectors, metadata only.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    ResourceExt as _,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use super::world::{World, object, refusal};

pub async fn pages_are_complete_and_of_one_moment(world: &World) {
    for name in ["a", "b", "c", "d", "e"] {
        world.config_map(name, json!({"for": "pages"})).await;
    }
    let maps = world.api::<ConfigMap>();
    let chosen = ListParams::default().labels("for=pages");
    let first = maps.list(&chosen.clone().limit(2)).await.unwrap();
    // With a selector the server does not count the rest.
    assert_eq!(first.metadata.remaining_item_count, None);
    let version = first.metadata.resource_version.clone().unwrap();
    // What happens between pages is not in them.
    world.config_map("bb", json!({"for": "pages"})).await;
    maps.delete("e", &Default::default()).await.unwrap();

    let mut names: Vec<String> = first.iter().map(|map| map.name_any()).collect();
    let mut token = first.metadata.continue_.unwrap_or_default();
    while !token.is_empty() {
        let page = maps
            .list(&chosen.clone().limit(2).continue_token(&token))
            .await
            .unwrap();
        assert_eq!(page.metadata.resource_version.as_ref(), Some(&version));
        names.extend(page.iter().map(|map| map.name_any()));
        token = page.metadata.continue_.unwrap_or_default();
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
}

pub async fn a_page_says_how_many_are_left(world: &World) {
    for name in ["a", "b", "c"] {
        world.config_map(name, json!({})).await;
    }
    let maps = world.api::<ConfigMap>();
    let all = maps.list(&ListParams::default()).await.unwrap().items.len();
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(
        page.metadata.remaining_item_count,
        Some(i64::try_from(all - 1).unwrap())
    );
    let whole = maps.list(&ListParams::default().limit(500)).await.unwrap();
    assert_eq!(whole.metadata.continue_.unwrap_or_default(), "");
}

pub async fn a_continue_token_that_is_none_is_refused(world: &World) {
    let maps = world.api::<ConfigMap>();
    let refused = refusal(
        maps.list(&ListParams::default().limit(1).continue_token("x!"))
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (400, "BadRequest"));
}

pub async fn label_selectors_choose(world: &World) {
    world
        .config_map("one", json!({"color": "red", "size": "s"}))
        .await;
    world.config_map("two", json!({"color": "blue"})).await;
    world.config_map("three", json!({"set": "yes"})).await;
    let maps = world.api::<ConfigMap>();
    for (selector, chosen) in [
        ("color=red", vec!["one"]),
        ("color==blue", vec!["two"]),
        ("color!=red,set", vec!["three"]),
        ("color in (red, blue)", vec!["one", "two"]),
        ("color notin (red),color", vec!["two"]),
        ("!color,set", vec!["three"]),
        ("color,size=s", vec!["one"]),
        ("color=green", vec![]),
    ] {
        let list = maps.list(&ListParams::default().labels(selector)).await.unwrap();
        let names: Vec<String> = list.iter().map(|map| map.name_any()).collect();
        assert_eq!(names, chosen, "{selector}");
    }
    let refused = refusal(maps.list(&ListParams::default().labels("color in red")).await);
    assert_eq!((refused.code, refused.reason.as_str()), (400, "BadRequest"));
}

/// A pod that no scheduler takes.
pub fn pod(name: &str) -> Pod {
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "example"}],
        },
    }))
}

pub async fn field_selectors_choose(world: &World) {
    super::lifecycle::wait_for_default_account(world).await;
    let pods = world.api::<Pod>();
    for name in ["one", "two"] {
        pods.create(&PostParams::default(), &pod(name)).await.unwrap();
    }
    let namespace = &world.namespace;
    for (selector, chosen) in [
        ("metadata.name=one".to_owned(), vec!["one"]),
        ("metadata.name!=one".to_owned(), vec!["two"]),
        (format!("metadata.namespace={namespace}"), vec!["one", "two"]),
        (
            "status.phase=Pending,spec.nodeName=".to_owned(),
            vec!["one", "two"],
        ),
        ("status.phase=Running".to_owned(), vec![]),
        ("spec.nodeName=absent".to_owned(), vec![]),
    ] {
        let list = pods.list(&ListParams::default().fields(&selector)).await.unwrap();
        let names: Vec<String> = list.iter().map(|pod| pod.name_any()).collect();
        assert_eq!(names, chosen, "{selector}");
    }
    let refused = refusal(pods.list(&ListParams::default().fields("spec.color=red")).await);
    assert_eq!((refused.code, refused.reason.as_str()), (400, "BadRequest"));
    let maps = world.api::<ConfigMap>();
    let refused = refusal(
        maps.list(&ListParams::default().fields("status.phase=Running"))
            .await,
    );
    assert_eq!(refused.code, 400);
}

pub async fn metadata_alone_can_be_had(world: &World) {
    world.config_map("one", json!({"for": "metadata"})).await;
    let maps = world.api::<ConfigMap>();
    let list = maps
        .list_metadata(&ListParams::default().labels("for=metadata"))
        .await
        .unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.items[0].name_any(), "one");
    assert_eq!(
        maps.get_metadata("one").await.unwrap().labels()["for"],
        "metadata"
    );
}

pub async fn a_list_without_a_version_is_of_now(world: &World) {
    let maps = world.api::<ConfigMap>();
    let made = world.config_map("one", json!({"for": "now"})).await;
    let made: u64 = made.resource_version().unwrap().parse().unwrap();
    let list = maps.list(&ListParams::default().labels("for=now")).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let version: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
    assert!(version >= made);
    let not_older = ListParams::default()
        .labels("for=now")
        .at(&made.to_string())
        .matching(kube::api::VersionMatch::NotOlderThan);
    assert_eq!(maps.list(&not_older).await.unwrap().items.len(), 1);
}

pub async fn items_of_a_list_are_sorted_and_carry_no_kind(world: &World) {
    for name in ["b", "c", "a"] {
        world.config_map(name, json!({"for": "order"})).await;
    }
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?labelSelector=for%3Dorder",
        world.namespace
    );
    let (code, list) = world.send("GET", &path, "application/json", "").await;
    assert_eq!(code, 200);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    let names: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(list["items"][0].get("kind").is_none());
}
