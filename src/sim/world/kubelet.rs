//! The kubelets of all nodes: pods start, become ready, end, fail as their image's name says, and go.
//!
//! An image whose name holds `crash` or starts with `fail/` runs and dies, over and over; one that holds
//! `missing` or `notfound` cannot be pulled. Pods that are not restarted run a few seconds and succeed.
//! A node that is not ready has a silent kubelet: nothing happens to its pods until it is back.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    World,
    document::{Key, at, condition, digest, flag, integer, is_terminating, list, set, set_condition, text},
    pods::{is_finished, is_ready},
    resources::{CLAIMS, NODES, PODS},
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

/// How a container behaves, by its image's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Runs,
    Crashes,
    CannotBePulled,
}

fn behaviour(container: &Value) -> Behaviour {
    let image = text(container, "image");
    if image.contains("missing") || image.contains("notfound") {
        Behaviour::CannotBePulled
    } else if image.contains("crash") || image.starts_with("fail/") || image.contains("/fail/") {
        Behaviour::Crashes
    } else {
        Behaviour::Runs
    }
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

/// A container's status after its first start.
fn first_run(pod: &Value, container: &Value, restarts: bool, now: &str) -> Value {
    let (name, image) = (text(container, "name"), text(container, "image"));
    let mut status = json!({"name": name, "image": image, "imageID": "", "ready": false, "started": false,
        "restartCount": 0, "lastState": {}});
    let id = format!(
        "containerd://{}",
        digest(&[text(pod, "metadata.uid").as_bytes(), name.as_bytes()])
    );
    match behaviour(container) {
        Behaviour::CannotBePulled => {
            let message = format!("Back-off pulling image \"{image}\"");
            set(
                &mut status,
                "state",
                json!({"waiting": {"reason": "ImagePullBackOff", "message": message}}),
            );
        }
        Behaviour::Crashes => {
            let died = json!({"terminated": {"exitCode": 1, "reason": "Error", "startedAt": now, "finishedAt": now, "containerID": id}});
            if restarts {
                set(&mut status, "lastState", died);
                set(&mut status, "restartCount", json!(1));
                set(&mut status, "state", crash_loop(pod, name));
            } else {
                set(&mut status, "state", died);
            }
        }
        Behaviour::Runs => {
            set(
                &mut status,
                "imageID",
                json!(format!(
                    "{image}@sha256:{:064x}",
                    crc32fast::hash(image.as_bytes())
                )),
            );
            set(&mut status, "containerID", json!(id));
            set(&mut status, "started", json!(true));
            set(&mut status, "state", json!({"running": {"startedAt": now}}));
        }
    }
    status
}

fn crash_loop(pod: &Value, container: &str) -> Value {
    let message = format!(
        "back-off restarting failed container={container} pod={}",
        text(pod, "metadata.name")
    );
    json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
}

/// An init container's status once the pod runs: done, or running beside it when it is a sidecar.
fn initialized(pod: &Value, container: &Value, now: &str) -> Value {
    let sidecar = text(container, "restartPolicy") == "Always";
    let mut status = first_run(pod, container, true, now);
    set(&mut status, "ready", json!(true));
    if !sidecar {
        set(&mut status, "started", json!(false));
        set(
            &mut status,
            "state",
            json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}),
        );
    }
    status
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

/// The pod answers: every running container is ready.
fn answer(pod: &mut Value, now: &str) {
    let statuses = pod
        .get_mut("status")
        .and_then(|status| status.get_mut("containerStatuses"));
    let mut all = true;
    for status in statuses.and_then(Value::as_array_mut).into_iter().flatten() {
        let running = at(status, "state.running").is_some();
        all &= running;
        set(status, "ready", json!(running));
    }
    for kind in ["Ready", "ContainersReady"] {
        if all {
            set_condition(pod, kind, "True", "", "", now);
        } else {
            let message = unready(pod);
            set_condition(pod, kind, "False", "ContainersNotReady", &message, now);
        }
    }
}

fn unready(pod: &Value) -> String {
    let names: Vec<&str> = list(pod, "spec.containers")
        .iter()
        .map(|container| text(container, "name"))
        .collect();
    format!("containers with unready status: [{}]", names.join(" "))
}

/// Whether every readiness gate of the pod is met.
fn gates_are_open(pod: &Value) -> bool {
    list(pod, "spec.readinessGates")
        .iter()
        .all(|gate| condition(pod, text(gate, "conditionType")) == "True")
}

fn host_address(world: &World, node: &str) -> String {
    let node = world.get(&NODES, &Key::new("", node));
    let addresses = node
        .as_ref()
        .map_or(&[][..], |node| list(node, "status.addresses"));
    let internal = addresses
        .iter()
        .find(|address| text(address, "type") == "InternalIP");
    internal
        .map_or("192.0.2.1", |address| text(address, "address"))
        .to_owned()
}

/// The first free address of the node's range.
fn pod_address(world: &World, key: &Key, pod: &Value) -> String {
    let name = text(pod, "spec.nodeName");
    if flag(pod, "spec.hostNetwork") {
        return host_address(world, name);
    }
    let own = text(pod, "status.podIP");
    if !own.is_empty() {
        return own.to_owned();
    }
    let node = world.get(&NODES, &Key::new("", name));
    let range = node.as_ref().map_or("", |node| text(node, "spec.podCIDR"));
    let base = range
        .split('/')
        .next()
        .and_then(|address| address.parse::<Ipv4Addr>().ok());
    // A node made by hand has no range: one is made of its name.
    let base = base.unwrap_or_else(|| {
        let [_, _, third, fourth] = crc32fast::hash(name.as_bytes()).to_be_bytes();
        Ipv4Addr::new(10, 192 + third % 32, fourth, 0)
    });
    let others = world.index.pods_on(name);
    let taken: BTreeSet<String> = others
        .iter()
        .filter(|other| *other != key)
        .filter_map(|other| world.get(&PODS, other))
        .map(|pod| text(&pod, "status.podIP").to_owned())
        .collect();
    let first = u32::from(base).saturating_add(2);
    let mut candidates = (0..1022).map(|offset| Ipv4Addr::from(first.saturating_add(offset)).to_string());
    candidates
        .find(|address| !taken.contains(address))
        .unwrap_or_else(|| base.to_string())
}
