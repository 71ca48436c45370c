//! The life of nodes: taints from conditions, and pods that must leave a tainted node after a while.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    World,
    document::{Key, condition, flag, integer, is_terminating, list, set, set_condition, text},
    kubelet,
    placement::toleration,
    pods::{is_finished, is_ready},
    resources::{NODES, PODS},
    routes::Work,
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// How long a pod that says nothing stays on a node that is not ready.
const DEFAULT_STAY: i64 = 300;

/// When which pod must leave its node.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    due: BTreeMap<Key, (String, Instant)>,
}

pub(super) fn reconcile(world: &mut World, name: &str) {
    let key = Key::new("", name);
    let Some(node) = world.get(&NODES, &key) else {
        return;
    };
    let wanted = wanted_taints(&node, &world.now());
    if wanted != list(&node, "spec.taints") {
        world.modify(&NODES, &key, |node| {
            if wanted.is_empty() {
                super::document::remove(node, "spec.taints");
            } else {
                set(node, "spec.taints", Value::Array(wanted.clone()));
            }
        });
        let status = condition(&node, "Ready");
        let reason = if status == "True" {
            "NodeReady"
        } else {
            "NodeNotReady"
        };
        world.event(
            &node,
            "Node",
            "Normal",
            reason,
            &format!("Node {name} status is now: {reason}"),
        );
    }
    if condition(&node, "Ready") == "True" {
        kubelet::wake(world, name);
    } else {
        lose_pods(world, name);
    }
    if wanted.iter().any(|taint| text(taint, "effect") == "NoExecute") {
        for pod in world.index.pods_on(name) {
            world.enqueue(Work::Evict(pod));
        }
    }
}

/// The node's taints as they should be: those of others, and ours by its conditions.
fn wanted_taints(node: &Value, now: &str) -> Vec<Value> {
    let present = list(node, "spec.taints");
    let is_ours = |taint: &&Value| matches!(text(taint, "key"), NOT_READY | UNREACHABLE | CORDONED);
    let mut wanted: Vec<Value> = present.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    let mut ours = Vec::new();
    match condition(node, "Ready") {
        "True" => {}
        "False" => ours.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        _ => ours.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
    }
    if flag(node, "spec.unschedulable") {
        ours.push((CORDONED, "NoSchedule"));
    }
    for (key, effect) in ours {
        let before = present
            .iter()
            .find(|taint| text(taint, "key") == key && text(taint, "effect") == effect);
        wanted.push(
            before
                .cloned()
                .unwrap_or_else(|| json!({"key": key, "effect": effect, "timeAdded": now})),
        );
    }
    // Nothing to say but another order is nothing to say.
    let same = wanted.len() == present.len() && wanted.iter().all(|taint| present.contains(taint));
    if same { present.to_vec() } else { wanted }
}

/// The pods of a node that is not ready are not ready either.
fn lose_pods(world: &World, name: &str) {
    let now = world.now();
    for key in world.index.pods_on(name) {
        if world.get(&PODS, &key).is_some_and(|pod| is_ready(&pod)) {
            world.modify(&PODS, &key, |pod| {
                set_condition(pod, "Ready", "False", "NodeNotReady", "", &now);
            });
        }
    }
}

/// Evicts a pod whose toleration of its node's taints has run out, or waits until it has.
pub(super) fn evict_when_due(world: &mut World, key: &Key) {
    let Some(pod) = world.get(&PODS, key) else {
        world.evictions.due.remove(key);
        return;
    };
    let uid = text(&pod, "metadata.uid");
    let taints = world
        .index
        .nodes
        .get(text(&pod, "spec.nodeName"))
        .map_or(&[][..], |node| &node.taints);
    let stay = taints
        .iter()
        .filter(|taint| text(taint, "effect") == "NoExecute")
        .filter_map(|taint| stay(&pod, taint))
        .min();
    let Some(stay) = stay.filter(|_| !is_terminating(&pod) && !is_finished(&pod)) else {
        world.evictions.due.remove(key);
        return;
    };
    let now = Instant::now();
    match world.evictions.due.get(key).filter(|(of, _)| of == uid) {
        Some((_, at)) if *at <= now => {
            world.evictions.due.remove(key);
            let message = format!("Marking for deletion Pod {}/{}", key.namespace, key.name);
            world.event(&pod, "Pod", "Normal", "TaintManagerEviction", &message);
            world.delete_pod(&pod);
        }
        Some(_) => {}
        None => {
            let wait = world.pace.scaled(Duration::from_secs(stay));
            let at = now.checked_add(wait).unwrap_or(now);
            world.evictions.due.insert(key.clone(), (uid.to_owned(), at));
            if wait.is_zero() {
                world.enqueue(Work::Evict(key.clone()));
            } else {
                world.later(wait, Work::Evict(key.clone()));
            }
        }
    }
}

/// For how many seconds a pod may stay under a taint; `None` is for ever.
fn stay(pod: &Value, taint: &Value) -> Option<u64> {
    match toleration(pod, taint) {
        Some(toleration) => {
            integer(toleration, "tolerationSeconds").map(|seconds| seconds.max(0).unsigned_abs())
        }
        // The API server gives every pod this toleration; one written past it gets it here.
        None if matches!(text(taint, "key"), NOT_READY | UNREACHABLE) => Some(DEFAULT_STAY.unsigned_abs()),
        None => Some(0),
    }
}
