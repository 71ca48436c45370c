//! Nodes that fail, come back, and go.

use serde_json::json;

use super::*;
use crate::sim::{
    objects::Deletion,
    world::document::{condition, is_terminating},
};

fn on(life: &Life, node: &str) -> usize {
    let pods = life.pods();
    pods.iter()
        .filter(|pod| text(pod, "spec.nodeName") == node && !is_terminating(pod))
        .count()
}

#[tokio::test(start_paused = true)]
async fn pods_leave_a_node_that_is_not_ready_after_five_minutes() {
    let life = Life::begin(2);
    life.create(&DEPLOYMENTS, deployment("web", 4, "web:1"));
    life.until("four ready pods", |life| life.ready_pods() == 4).await;
    life.set_ready("node-0000", "Unknown");
    life.pass(10).await;
    let node = life.objects.get(&NODES, "", "node-0000").unwrap();
    let keys: Vec<&str> = list(&node, "spec.taints")
        .iter()
        .map(|taint| text(taint, "key"))
        .collect();
    assert_eq!(keys, ["node.kubernetes.io/unreachable"; 2]);
    assert_eq!(life.ready_pods(), 2, "its pods are not ready");
    assert_eq!(on(&life, "node-0000"), 2, "but still there");
    life.pass(280).await;
    assert_eq!(on(&life, "node-0000"), 2);
    life.until("replacements", |life| life.ready_pods() == 4).await;
    assert_eq!((on(&life, "node-0000"), on(&life, "node-0001")), (0, 4));
    let terminating = life.pods().iter().filter(|pod| is_terminating(pod)).count();
    assert_eq!(terminating, 2, "the silent kubelet cannot end them");
    life.set_ready("node-0000", "True");
    life.until("the old ones to go", |life| life.pods().len() == 4)
        .await;
    assert_eq!(
        count(&life.objects.get(&NODES, "", "node-0000").unwrap(), "spec.taints"),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_in_time_keeps_its_pods() {
    let life = Life::begin(1);
    life.create(&PODS, pod("one"));
    life.until("it to run", |life| life.ready_pods() == 1).await;
    let uid = life.get(&PODS, "one").unwrap()["metadata"]["uid"].clone();
    life.set_ready("node-0000", "False");
    life.pass(200).await;
    life.set_ready("node-0000", "True");
    life.pass(600).await;
    let pod = life.get(&PODS, "one").unwrap();
    assert_eq!(pod["metadata"]["uid"], uid);
    assert_eq!(condition(&pod, "Ready"), "True");
}

#[tokio::test(start_paused = true)]
async fn a_removed_node_takes_its_pods_along() {
    let life = Life::begin(2);
    life.create(&DEPLOYMENTS, deployment("web", 4, "web:1"));
    life.until("four ready pods", |life| life.ready_pods() == 4).await;
    life.objects
        .delete(&NODES, "", "node-0000", Deletion::now())
        .unwrap();
    life.until("all on the other", |life| {
        life.ready_pods() == 4 && on(life, "node-0001") == 4 && life.pods().len() == 4
    })
    .await;
    assert!(
        life.objects
            .get(&PODS, "kube-system", "kube-proxy-node-0000")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_taint_of_somebody_else_evicts_at_once_those_that_do_not_tolerate_it() {
    let life = Life::begin(2);
    let mut tough = pod("tough");
    tough["spec"]["tolerations"] = json!([{"key": "maintenance", "operator": "Exists"}]);
    for mut pod in [pod("weak"), tough] {
        pod["spec"]["nodeName"] = json!("node-0000");
        life.create(&PODS, pod);
    }
    life.until("both to run", |life| life.ready_pods() == 2).await;
    life.change(&NODES, "", "node-0000", |node| {
        node["spec"]["taints"] = json!([{"key": "maintenance", "value": "now", "effect": "NoExecute"}]);
    });
    life.until("the weak one to go", |life| life.get(&PODS, "weak").is_none())
        .await;
    life.pass(600).await;
    assert!(life.get(&PODS, "tough").is_some());
    assert!(
        life.objects
            .get(&PODS, "kube-system", "kube-proxy-node-0000")
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_gets_its_taint_and_no_new_pods() {
    let life = Life::begin(2);
    life.change(&NODES, "", "node-0000", |node| {
        node["spec"]["unschedulable"] = json!(true)
    });
    life.create(&DEPLOYMENTS, deployment("web", 4, "web:1"));
    life.until("four ready pods", |life| life.ready_pods() == 4).await;
    assert_eq!(on(&life, "node-0000"), 0);
    let node = life.objects.get(&NODES, "", "node-0000").unwrap();
    assert_eq!(
        node["spec"]["taints"][0]["key"],
        "node.kubernetes.io/unschedulable"
    );
}
