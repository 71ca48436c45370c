use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_object_can_be_created_read_listed_and_is_missed_when_it_is_not_there() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    let made = maps.create(&params(), &map("a")).await.unwrap();
    assert!(made.metadata.uid.is_some());
    assert_eq!(maps.get("a").await.unwrap(), made);
    assert_eq!(maps.get_opt("b").await.unwrap(), None);
    let missing = status(maps.get("b").await);
    assert_eq!(
        (missing.code, missing.message.as_str()),
        (404, "configmaps \"b\" not found")
    );
    let listed = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(
        listed.metadata.resource_version,
        Some(world.api.objects.revision().to_string())
    );
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_a_list_all_show_the_same_revision() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    for name in ["a", "b", "c", "d", "e"] {
        maps.create(&params(), &map(name)).await.unwrap();
    }
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    maps.delete("c", &Default::default()).await.unwrap();
    maps.create(&params(), &map("cc")).await.unwrap();
    maps.patch(
        "d",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"a": "2"}})),
    )
    .await
    .unwrap();
    let mut token = first.metadata.continue_.unwrap();
    let mut names = Vec::new();
    loop {
        let page = maps
            .list(&ListParams::default().limit(2).continue_token(&token))
            .await
            .unwrap();
        assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
        for item in page.items {
            let value = item.data.unwrap()["a"].clone();
            names.push((item.metadata.name.unwrap(), value));
        }
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => token = next,
            _ => break,
        }
    }
    let seen: Vec<(&str, &str)> = names
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(seen, [("c", "1"), ("d", "1"), ("e", "1")]);
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_revision_is_forgotten_is_410_and_a_revision_to_come_is_504() {
    let world = world_remembering(3);
    let maps = world.here::<ConfigMap>();
    for name in ["a", "b", "c"] {
        maps.create(&params(), &map(name)).await.unwrap();
    }
    let first = maps.list(&ListParams::default().limit(1)).await.unwrap();
    for value in 0..5 {
        let change = Patch::Merge(json!({"data": {"a": format!("x{value}")}}));
        maps.patch("a", &PatchParams::default(), &change).await.unwrap();
    }
    let token = first.metadata.continue_.unwrap();
    let gone = status(
        maps.list(&ListParams::default().limit(1).continue_token(&token))
            .await,
    );
    assert_eq!((gone.code, gone.reason.as_str()), (410, "Expired"));
    let early = world
        .raw("GET", "/api/v1/configmaps?resourceVersion=9999", Value::Null)
        .await
        .unwrap_err();
    assert_eq!(early.code, 504);
    let odd = world
        .raw("GET", "/api/v1/configmaps?continue=nonsense", Value::Null)
        .await
        .unwrap_err();
    assert_eq!(odd.code, 400);
}

#[tokio::test(start_paused = true)]
async fn labels_and_fields_select_and_an_unknown_field_is_refused() {
    let world = world();
    let pods = world.here::<Pod>();
    pods.create(&params(), &pod("web")).await.unwrap();
    let mut bound = pod("db");
    bound.spec.as_mut().unwrap().node_name = Some("node-1".into());
    pods.create(&params(), &bound).await.unwrap();
    let count = async |params: ListParams| pods.list(&params).await.unwrap().items.len();
    assert_eq!(count(ListParams::default().labels("app in (web, x)")).await, 1);
    assert_eq!(count(ListParams::default().labels("app!=web")).await, 1);
    assert_eq!(
        count(ListParams::default().fields("spec.nodeName=node-1")).await,
        1
    );
    assert_eq!(count(ListParams::default().fields("spec.nodeName=")).await, 1);
    assert_eq!(
        count(ListParams::default().fields("metadata.name=web,status.phase=Pending")).await,
        1
    );
    assert_eq!(
        count(ListParams::default().fields("status.phase!=Pending")).await,
        0
    );
    let refused = status(pods.list(&ListParams::default().fields("spec.image=x")).await);
    assert_eq!(refused.code, 400);
    assert!(
        refused.message.ends_with("field label not supported: spec.image"),
        "{}",
        refused.message
    );
    assert_eq!(
        status(pods.list(&ListParams::default().labels("a in (b")).await).code,
        400
    );
}

#[tokio::test(start_paused = true)]
async fn discovery_tells_every_kind_in_both_forms() {
    let world = world();
    let groups = world.client.list_api_groups().await.unwrap();
    assert!(groups.groups.iter().any(|group| group.name == "apps"));
    let core = world.client.list_core_api_resources("v1").await.unwrap();
    let pods = core
        .resources
        .iter()
        .find(|resource| resource.name == "pods")
        .unwrap();
    assert!(pods.namespaced && pods.verbs.contains(&"watch".to_owned()));
    assert!(
        core.resources
            .iter()
            .any(|resource| resource.name == "pods/eviction")
    );
    let discovered = kube::discovery::Discovery::new(world.client.clone())
        .run()
        .await
        .unwrap();
    assert!(discovered.has_group("storage.k8s.io"));
    let aggregated = kube::discovery::Discovery::new(world.client.clone())
        .run_aggregated()
        .await
        .unwrap();
    let kinds = |discovery: &kube::discovery::Discovery| -> Vec<String> {
        let mut kinds: Vec<String> = discovery
            .groups()
            .flat_map(|group| group.recommended_resources())
            .map(|(resource, _)| format!("{}/{}", resource.api_version, resource.kind))
            .collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&discovered), kinds(&aggregated));
    assert_eq!(world.client.apiserver_version().await.unwrap().minor, "34");
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_not_there_and_a_method_that_is_not_allowed_say_so() {
    let world = world();
    let code = async |method: &str, path: &str| world.raw(method, path, Value::Null).await.unwrap_err().code;
    assert_eq!(code("GET", "/api/v1/wonders").await, 404);
    assert_eq!(code("GET", "/apis/nowhere/v1").await, 404);
    assert_eq!(code("GET", "/apis/apps/v2/deployments").await, 404);
    assert_eq!(code("GET", "/api/v1/namespaces/default/nodes").await, 404);
    assert_eq!(code("PUT", "/api/v1/namespaces/default/pods").await, 405);
    assert_eq!(code("DELETE", "/api/v1/namespaces").await, 405);
    assert_eq!(
        code("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").await,
        405
    );
    assert_eq!(code("GET", "/api/v1/namespaces/default/pods/x/wonder").await, 404);
}

#[tokio::test(start_paused = true)]
async fn tables_show_what_kubectl_prints() {
    let world = world();
    let node: Node = typed(
        json!({"metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.34.1", "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}}}),
    );
    world.all::<Node>().create(&params(), &node).await.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(90)).await;
    let request = http::Request::get("/api/v1/nodes")
        .header(
            "accept",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        )
        .body(Vec::new())
        .unwrap();
    let table: Value = world.client.request(request).await.unwrap();
    assert_eq!(table["kind"], "Table");
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(
        cells[..5],
        [
            json!("n1"),
            json!("Ready,SchedulingDisabled"),
            json!("worker"),
            json!("90s"),
            json!("v1.34.1")
        ]
    );
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "n1");
}

#[tokio::test(start_paused = true)]
async fn events_are_one_store_with_two_faces() {
    use k8s_openapi::api::{core::v1::Event, events::v1::Event as NewEvent};
    let world = world();
    let event: NewEvent = typed(
        json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"}, "note": "hello",
        "reason": "Started", "type": "Normal", "action": "x", "reportingController": "c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z"}),
    );
    world.here::<NewEvent>().create(&params(), &event).await.unwrap();
    let old = world
        .here::<Event>()
        .list(&ListParams::default().fields("involvedObject.name=p"))
        .await
        .unwrap();
    assert_eq!(old.items[0].message.as_deref(), Some("hello"));
    let new = world.here::<NewEvent>().get("e").await.unwrap();
    assert_eq!(new.regarding.unwrap().name.as_deref(), Some("p"));
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_can_be_read() {
    let world = world();
    let maps = world.here::<ConfigMap>();
    maps.create(&params(), &map("a")).await.unwrap();
    let listed = maps.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items[0].metadata.name.as_deref(), Some("a"));
    assert_eq!(
        maps.get_metadata("a").await.unwrap().metadata.name.as_deref(),
        Some("a")
    );
}
