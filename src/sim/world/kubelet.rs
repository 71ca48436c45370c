//! The kubelets of all nodes: pods start, become ready, end, fail as their image's name says, and go.
//!
//! An image whose name holds `crash` or starts with `fail/` runs and dies, over and over; one that holds
//! `missing` or `notfound` cannot be pulled. Pods that are not restarted run a few seconds and succeed.
//! A node that is not ready has a silent kubelet: nothing happens to its pods until it is back.

mod addresses;
mod statuses;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    addresses::{host_address, pod_address},
    statuses::{Behaviour, answer, behaviour, first_run, gates_are_open, initialized, unready},
};
use super::{
    World,
    document::{Key, at, condition, integer, is_terminating, list, set, set_condition, text},
    pods::{is_finished, is_ready},
    resources::{CLAIMS, PODS},
    routes::Work,
};
use crate::sim::objects::Deletion;

/// What comes next in a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its node does not exist.
    Lost,
    /// The images are there.
    Start,
    /// It answers.
    Ready,
    /// Its work is done.
    Finish,
    /// A container that died is tried again.
    Restart,
    /// It has ended.
    Stop,
}

/// What the kubelets wait for.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    due: BTreeMap<Key, Due>,
    /// Pods that wait for their node to come back.
    silent: BTreeMap<String, BTreeSet<Key>>,
}

#[derive(Debug)]
struct Due {
    uid: String,
    stage: Stage,
    at: Instant,
}

pub(super) fn reconcile(world: &mut World, key: &Key) {
    let Some(pod) = world.get(&PODS, key) else {
        world.kubelet.due.remove(key);
        return;
    };
    let node = text(&pod, "spec.nodeName");
    if node.is_empty() {
        return;
    }
    let Some(ready) = world.index.nodes.get(node).map(|state| state.ready) else {
        // A pod that was told to go has nobody left to end it.
        if is_terminating(&pod) || reached(world, key, &pod, Stage::Lost, Duration::from_secs(40)) {
            world.delete(
                &PODS,
                key,
                Deletion {
                    uid: Some(text(&pod, "metadata.uid").into()),
                    ..Deletion::now()
                },
            );
        }
        return;
    };
    if is_finished(&pod) && !is_terminating(&pod) {
        return;
    }
    if !ready {
        world
            .kubelet
            .silent
            .entry(node.to_owned())
            .or_default()
            .insert(key.clone());
        return;
    }
    let Some((stage, delay)) = next_stage(world, &pod) else {
        world.kubelet.due.remove(key);
        return;
    };
    if reached(world, key, &pod, stage, delay) {
        advance(world, key, &pod, stage);
    }
}

/// The node is back: its kubelet sees to the pods it left.
pub(super) fn wake(world: &mut World, node: &str) {
    for key in world.kubelet.silent.remove(node).into_iter().flatten() {
        world.enqueue(Work::Pod(key));
    }
}

/// What comes next for a pod on a node that is ready, and how long it takes.
fn next_stage(world: &World, pod: &Value) -> Option<(Stage, Duration)> {
    let uid = text(pod, "metadata.uid");
    if is_terminating(pod) {
        // A container that is told to end takes a moment; one without grace takes none.
        let grace = integer(pod, "metadata.deletionGracePeriodSeconds")
            .unwrap_or(0)
            .clamp(0, 2);
        return Some((Stage::Stop, Duration::from_secs(grace.unsigned_abs())));
    }
    let waits_for = |reason: &str| {
        let statuses = list(pod, "status.containerStatuses").iter();
        statuses
            .filter(|status| text(status, "state.waiting.reason") == reason)
            .count()
            > 0
    };
    if list(pod, "status.containerStatuses").is_empty() || waits_for("ContainerCreating") {
        return Some((
            Stage::Start,
            Duration::from_millis(1000 + world.chance(&[uid, "pull"], 2000)),
        ));
    }
    if waits_for("CrashLoopBackOff") {
        let restarts = list(pod, "status.containerStatuses")
            .iter()
            .filter_map(|status| integer(status, "restartCount"))
            .max();
        let doublings = u32::try_from(restarts.unwrap_or(1).clamp(1, 6) - 1).unwrap_or(0);
        let seconds = 10_u64.saturating_mul(1 << doublings).min(300);
        return Some((Stage::Restart, Duration::from_secs(seconds)));
    }
    if text(pod, "status.phase") != "Running" {
        return None;
    }
    if !matches!(text(pod, "spec.restartPolicy"), "" | "Always") {
        return Some((
            Stage::Finish,
            Duration::from_millis(3000 + world.chance(&[uid, "work"], 4000)),
        ));
    }
    if !is_ready(pod) && gates_are_open(pod) {
        let probes = list(pod, "spec.containers").iter();
        let slowest = probes
            .filter_map(|container| integer(container, "readinessProbe.initialDelaySeconds"))
            .max();
        return Some((
            Stage::Ready,
            Duration::from_secs(slowest.unwrap_or(0).clamp(0, 3600).unsigned_abs()),
        ));
    }
    None
}

/// Whether the time for a stage has come; if not, it is waited for.
fn reached(world: &mut World, key: &Key, pod: &Value, stage: Stage, delay: Duration) -> bool {
    let now = Instant::now();
    let uid = text(pod, "metadata.uid");
    let same = |due: &&Due| due.uid == uid && due.stage == stage;
    if let Some(due) = world.kubelet.due.get(key).filter(same) {
        if due.at <= now {
            world.kubelet.due.remove(key);
            return true;
        }
        return false;
    }
    let delay = if stage == Stage::Restart {
        world.pace.repeated(delay)
    } else {
        world.pace.scaled(delay)
    };
    // Seen for the first time: say that it is being made, and come back even if it takes no time.
    if stage == Stage::Start && list(pod, "status.containerStatuses").is_empty() {
        announce(world, key, pod);
    }
    let at = now.checked_add(delay).unwrap_or(now);
    world.kubelet.due.insert(
        key.clone(),
        Due {
            uid: uid.to_owned(),
            stage,
            at,
        },
    );
    if delay.is_zero() {
        world.enqueue(Work::Pod(key.clone()));
    } else {
        world.later(delay, Work::Pod(key.clone()));
    }
    false
}

fn advance(world: &mut World, key: &Key, pod: &Value, stage: Stage) {
    match stage {
        Stage::Lost => {}
        Stage::Start => start(world, key, pod),
        Stage::Restart => restart(world, key),
        Stage::Finish => finish(world, key, pod),
        Stage::Ready => {
            let now = world.now();
            world.modify(&PODS, key, |pod| answer(pod, &now));
        }
        Stage::Stop => {
            let deletion = Deletion {
                uid: Some(text(pod, "metadata.uid").into()),
                ..Deletion::now()
            };
            world.delete(&PODS, key, deletion);
        }
    }
}

/// The pod was accepted; its containers are being made.
fn announce(world: &World, key: &Key, pod: &Value) {
    let now = world.now();
    let host = host_address(world, text(pod, "spec.nodeName"));
    world.modify(&PODS, key, |pod| {
        let waiting = |container: &Value| {
            json!({"name": text(container, "name"), "image": text(container, "image"), "imageID": "", "ready": false,
                "started": false, "restartCount": 0, "lastState": {}, "state": {"waiting": {"reason": "ContainerCreating"}}})
        };
        let containers: Vec<Value> = list(pod, "spec.containers").iter().map(waiting).collect();
        set(pod, "status.containerStatuses", Value::Array(containers));
        set(pod, "status.phase", json!("Pending"));
        set(pod, "status.startTime", json!(now));
        set(pod, "status.hostIP", json!(host));
        set(pod, "status.hostIPs", json!([{"ip": host}]));
        set_condition(pod, "PodReadyToStartContainers", "False", "", "", &now);
        set_condition(pod, "Initialized", "True", "", "", &now);
        for kind in ["Ready", "ContainersReady"] {
            set_condition(pod, kind, "False", "ContainersNotReady", &unready(pod), &now);
        }
        if condition(pod, "PodScheduled") != "True" {
            set_condition(pod, "PodScheduled", "True", "", "", &now);
        }
    });
}

fn start(world: &mut World, key: &Key, pod: &Value) {
    let unbound = list(pod, "spec.volumes").iter().find(|volume| {
        let claim = text(volume, "persistentVolumeClaim.claimName");
        !claim.is_empty()
            && world
                .get(&CLAIMS, &Key::new(&key.namespace, claim))
                .is_none_or(|claim| text(&claim, "status.phase") != "Bound")
    });
    if unbound.is_some() {
        world.later(
            world.pace.repeated(Duration::from_secs(1)),
            Work::Pod(key.clone()),
        );
        return;
    }
    let now = world.now();
    let address = pod_address(world, key, pod);
    let no_readiness_delay = list(pod, "spec.containers")
        .iter()
        .all(|container| integer(container, "readinessProbe.initialDelaySeconds").unwrap_or(0) == 0);
    let restarts = matches!(text(pod, "spec.restartPolicy"), "" | "Always" | "OnFailure");
    world.modify(&PODS, key, |pod| {
        set(pod, "status.podIP", json!(address));
        set(pod, "status.podIPs", json!([{"ip": address}]));
        set_condition(pod, "PodReadyToStartContainers", "True", "", "", &now);
        let started: Vec<Value> = list(pod, "spec.containers")
            .iter()
            .map(|container| first_run(pod, container, restarts, &now))
            .collect();
        let init: Vec<Value> = list(pod, "spec.initContainers")
            .iter()
            .map(|container| initialized(pod, container, &now))
            .collect();
        if !init.is_empty() {
            set(pod, "status.initContainerStatuses", Value::Array(init));
        }
        let pulled = started
            .iter()
            .all(|status| text(status, "state.waiting.reason") != "ImagePullBackOff");
        let failed = started
            .iter()
            .any(|status| at(status, "state.terminated").is_some());
        set(pod, "status.containerStatuses", Value::Array(started));
        set(
            pod,
            "status.phase",
            json!(if failed {
                "Failed"
            } else if pulled {
                "Running"
            } else {
                "Pending"
            }),
        );
        if pulled && !failed && no_readiness_delay && gates_are_open(pod) {
            answer(pod, &now);
        } else {
            for kind in ["Ready", "ContainersReady"] {
                set_condition(pod, kind, "False", "ContainersNotReady", &unready(pod), &now);
            }
        }
    });
    tell_of_failures(world, pod);
}

fn tell_of_failures(world: &mut World, pod: &Value) {
    for container in list(pod, "spec.containers") {
        let (name, image) = (text(container, "name"), text(container, "image"));
        match behaviour(container) {
            Behaviour::Runs => {}
            Behaviour::Crashes => {
                let message = format!("Back-off restarting failed container {name}");
                world.event(pod, "Pod", "Warning", "BackOff", &message);
            }
            Behaviour::CannotBePulled => {
                world.event(
                    pod,
                    "Pod",
                    "Warning",
                    "Failed",
                    &format!("Failed to pull image \"{image}\": not found"),
                );
            }
        }
    }
}

/// A container that keeps dying died once more.
fn restart(world: &mut World, key: &Key) {
    let now = world.now();
    world.modify(&PODS, key, |pod| {
        let statuses = pod
            .get_mut("status")
            .and_then(|status| status.get_mut("containerStatuses"));
        for status in statuses.and_then(Value::as_array_mut).into_iter().flatten() {
            if text(status, "state.waiting.reason") == "CrashLoopBackOff" {
                let restarts = integer(status, "restartCount").unwrap_or(0);
                set(status, "restartCount", json!(restarts.saturating_add(1)));
                set(status, "lastState.terminated.startedAt", json!(now));
                set(status, "lastState.terminated.finishedAt", json!(now));
            }
        }
    });
}

/// A pod that is not restarted has done its work.
fn finish(world: &mut World, key: &Key, pod: &Value) {
    let now = world.now();
    let crashed = list(pod, "spec.containers")
        .iter()
        .any(|container| behaviour(container) == Behaviour::Crashes);
    world.modify(&PODS, key, |pod| {
        let statuses = pod
            .get_mut("status")
            .and_then(|status| status.get_mut("containerStatuses"));
        for status in statuses.and_then(Value::as_array_mut).into_iter().flatten() {
            let started = text(status, "state.running.startedAt").to_owned();
            let code = i32::from(crashed);
            set(
                status,
                "state",
                json!({"terminated": {"exitCode": code, "reason": if crashed { "Error" } else { "Completed" },
                "startedAt": started, "finishedAt": now}}),
            );
            set(status, "ready", json!(false));
            set(status, "started", json!(false));
        }
        set(
            pod,
            "status.phase",
            json!(if crashed { "Failed" } else { "Succeeded" }),
        );
        for kind in ["Ready", "ContainersReady"] {
            set_condition(pod, kind, "False", "PodCompleted", "", &now);
        }
    });
}
