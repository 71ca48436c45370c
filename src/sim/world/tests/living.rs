//! Pods, Services and namespaces.

use serde_json::json;

use super::*;
use crate::sim::{
    objects::Deletion,
    world::document::{condition, find_condition},
};

#[tokio::test(start_paused = true)]
async fn a_pod_takes_a_while_to_run_and_a_while_to_go() {
    let life = Life::begin(1);
    life.create(&PODS, pod("one"));
    life.pass(0).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let starting = life.get(&PODS, "one").unwrap();
    assert_eq!(text(&starting, "status.phase"), "Pending");
    assert_eq!(
        starting["status"]["containerStatuses"][0]["state"]["waiting"]["reason"],
        "ContainerCreating"
    );
    assert_eq!(condition(&starting, "PodScheduled"), "True");
    life.until("it to run", |life| life.ready_pods() == 1).await;
    assert_eq!(life.events("Scheduled"), 1);
    life.objects
        .delete(&PODS, "default", "one", Deletion::default())
        .unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(life.get(&PODS, "one").is_some(), "it is given its grace");
    life.until("it to go", |life| life.get(&PODS, "one").is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn at_once_means_at_once() {
    let life = Life::at_pace(2, 0.0);
    let before = tokio::time::Instant::now();
    life.create(&DEPLOYMENTS, deployment("web", 3, "web:1"));
    while life.ready_pods() < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_gate_waits_and_is_placed_where_its_affinity_says_once_it_is_open() {
    let life = Life::begin(3);
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "freehold.dev/placement"}]);
    life.create(&PODS, gated);
    life.pass(60).await;
    let waiting = life.get(&PODS, "gated").unwrap();
    assert_eq!(
        text(find_condition(&waiting, "PodScheduled").unwrap(), "reason"),
        "SchedulingGated"
    );
    life.change(&PODS, "default", "gated", |pod| {
        pod["spec"]["schedulingGates"] = json!([]);
        pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0002"]}]}]}}});
    });
    life.until("it to run", |life| life.ready_pods() == 1).await;
    assert_eq!(nodes_of(&life.pods()), ["node-0002"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_says_why_and_runs_when_there_is_room() {
    let life = Life::begin(1);
    let mut big = pod("big");
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("60");
    let mut other = big.clone();
    other["metadata"]["name"] = json!("other");
    life.create(&PODS, big);
    life.until("the first to run", |life| life.ready_pods() == 1)
        .await;
    life.create(&PODS, other);
    life.pass(5).await;
    let waiting = life.get(&PODS, "other").unwrap();
    let said = find_condition(&waiting, "PodScheduled").unwrap();
    assert_eq!(
        text(said, "message"),
        "0/1 nodes are available: 1 Insufficient cpu."
    );
    assert_eq!(life.events("FailedScheduling"), 1);
    life.objects
        .delete(&PODS, "default", "big", Deletion::default())
        .unwrap();
    life.until("the other to run", |life| life.ready_pods() == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_missing_is_never_pulled() {
    let life = Life::begin(1);
    let mut lost = pod("lost");
    lost["spec"]["containers"][0]["image"] = json!("example.com/missing:1");
    life.create(&PODS, lost);
    life.pass(600).await;
    let lost = life.get(&PODS, "lost").unwrap();
    assert_eq!(text(&lost, "status.phase"), "Pending");
    assert_eq!(
        lost["status"]["containerStatuses"][0]["state"]["waiting"]["reason"],
        "ImagePullBackOff"
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_knows_the_ready_pods_it_selects() {
    let life = Life::begin(2);
    life.create(
        &SERVICES,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
    );
    life.create(&DEPLOYMENTS, deployment("web", 2, "web:1"));
    life.create(&DEPLOYMENTS, deployment("other", 1, "web:1"));
    life.until("three ready pods", |life| life.ready_pods() == 3)
        .await;
    life.pass(1).await;
    let endpoints = life.get(&ENDPOINTS, "web").unwrap();
    assert_eq!(count(&endpoints["subsets"][0], "addresses"), 2);
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], 8080);
    let slices = life.objects.list(&ENDPOINT_SLICES, Some("default")).items;
    let slice = slices
        .iter()
        .find(|slice| key(slice).name.starts_with("web-"))
        .unwrap();
    assert_eq!(count(slice, "endpoints"), 2);
    assert!(
        list(slice, "endpoints")
            .iter()
            .all(|endpoint| endpoint["conditions"]["ready"] == true)
    );
    life.change(&DEPLOYMENTS, "default", "web", |web| {
        web["spec"]["replicas"] = json!(0)
    });
    life.until("no endpoints", |life| {
        count(&life.get(&ENDPOINTS, "web").unwrap(), "subsets") == 0
    })
    .await;
    life.objects
        .delete(&SERVICES, "default", "web", Deletion::default())
        .unwrap();
    life.until("the service's objects to go", |life| {
        life.get(&ENDPOINTS, "web").is_none()
            && life
                .objects
                .list(&ENDPOINT_SLICES, Some("default"))
                .items
                .is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_its_account_and_takes_everything_along_when_it_goes() {
    let life = Life::begin(2);
    life.create(
        &NAMESPACES,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}}),
    );
    life.until("its account", |life| {
        life.objects.get(&SERVICE_ACCOUNTS, "tenant", "default").is_some()
    })
    .await;
    assert!(
        life.objects
            .get(&CONFIG_MAPS, "tenant", "kube-root-ca.crt")
            .is_some()
    );
    let mut web = deployment("web", 2, "web:1");
    web["metadata"]["namespace"] = json!("tenant");
    life.create(&DEPLOYMENTS, web);
    life.create(
        &CONFIG_MAPS,
        json!({"metadata": {"name": "held", "namespace": "tenant", "finalizers": ["example.com/hold"]}}),
    );
    life.until("its pods", |life| {
        life.objects.list(&PODS, Some("tenant")).items.len() == 2
    })
    .await;
    life.objects
        .delete(&NAMESPACES, "", "tenant", Deletion::default())
        .unwrap();
    life.pass(120).await;
    let namespace = life
        .objects
        .get(&NAMESPACES, "", "tenant")
        .expect("a finalizer holds it");
    assert_eq!(text(&namespace, "status.phase"), "Terminating");
    assert_eq!(condition(&namespace, "NamespaceFinalizersRemaining"), "True");
    assert!(life.objects.list(&PODS, Some("tenant")).items.is_empty());
    life.change(&CONFIG_MAPS, "tenant", "held", |map| {
        map["metadata"]["finalizers"] = json!([])
    });
    life.until("it to go", |life| {
        life.objects.get(&NAMESPACES, "", "tenant").is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hostile_objects_stop_nobody() {
    let life = Life::begin(1);
    let hostile = [
        (
            &*PODS,
            json!({"metadata": {"name": "h1", "namespace": "default"}, "spec": {"containers": "none", "nodeName": 7}}),
        ),
        (
            &*PODS,
            json!({"metadata": {"name": "h2", "namespace": "default", "ownerReferences": "x"}, "spec": {"nodeName": "nowhere"}}),
        ),
        (
            &*NODES,
            json!({"metadata": {"name": "h3"}, "status": {"allocatable": {"cpu": "1e400", "memory": -5, "pods": {}}}}),
        ),
        (
            &*DEPLOYMENTS,
            json!({"metadata": {"name": "h4", "namespace": "default"}, "spec": {"replicas": -9, "template": 5}}),
        ),
        (
            &*STATEFUL_SETS,
            json!({"metadata": {"name": "h5", "namespace": "default"}, "spec": {"replicas": i64::MAX, "template": {}, "ordinals": {"start": i64::MAX}}}),
        ),
        (
            &*JOBS,
            json!({"metadata": {"name": "h6", "namespace": "default"}, "spec": {"parallelism": -1, "completions": "x", "template": {}}}),
        ),
        (
            &*SERVICES,
            json!({"metadata": {"name": "h7", "namespace": "default"}, "spec": {"type": "LoadBalancer", "ports": 1, "selector": 3}}),
        ),
        (
            &*CLAIMS,
            json!({"metadata": {"name": "h8", "namespace": "default"}, "spec": {"storageClassName": 4}}),
        ),
        (
            &*ADDRESS_POOLS,
            json!({"metadata": {"name": "h9", "namespace": "default"}, "spec": {"addresses": ["::/0", "x", 5, "1.2.3.4/99"]}}),
        ),
    ];
    for (resource, object) in hostile {
        life.create(resource, object);
    }
    life.create(&PODS, pod("fine"));
    life.until("an honest pod to run", |life| {
        life.get(&PODS, "fine")
            .is_some_and(|pod| super::super::pods::is_ready(&pod))
    })
    .await;
    life.pass(600).await;
}
