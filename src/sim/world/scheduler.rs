//! The scheduler: gives each waiting pod a node, and says why when there is none.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    World,
    document::{
        Key, annotation, at, controller, find_condition, is_terminating, list, set, set_condition, set_entry,
        text,
    },
    placement::Wanted,
    pods::is_finished,
    resources::{CLAIMS, PODS, STORAGE_CLASSES, VOLUMES},
    routes::Work,
};

/// Where a claim shall be made, said to its provisioner.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// How long pods without a node wait at least between two tries.
const RETRY: Duration = Duration::from_millis(500);

/// Most pods of one owner that are looked at for spreading.
const MOST_SIBLINGS: usize = 200;

/// The pods that found no node.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    parked: BTreeSet<Key>,
    /// When they may be tried again, so that a thousand events are one try.
    rested_at: Option<tokio::time::Instant>,
    retry_set: bool,
}

/// Why a pod cannot be placed now.
enum Hindrance {
    /// Said in the pod's condition.
    Unschedulable(String),
    /// A claim is being made where the pod shall go.
    Provisioning,
}

/// Tries to place one pod.
pub(super) fn place(world: &mut World, key: &Key) {
    world.scheduler.parked.remove(key);
    let Some(pod) = world.get(&PODS, key) else { return };
    let other_scheduler = !matches!(text(&pod, "spec.schedulerName"), "" | "default-scheduler");
    if !text(&pod, "spec.nodeName").is_empty() || is_terminating(&pod) || is_finished(&pod) || other_scheduler
    {
        return;
    }
    if !list(&pod, "spec.schedulingGates").is_empty() {
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        return hold(world, key, &pod, "SchedulingGated", message);
    }
    let outcome = volumes(world, &pod).and_then(|(reachable, waiting)| {
        let node = Wanted::new(&pod, reachable, siblings(world, &pod))
            .place(&world.index.nodes)
            .map_err(Hindrance::Unschedulable)?;
        if waiting.is_empty() {
            return Ok(node);
        }
        for claim in waiting {
            world.modify(&CLAIMS, &claim, |claim| {
                set_entry(claim, "metadata.annotations", SELECTED_NODE, json!(node));
            });
        }
        Err(Hindrance::Provisioning)
    });
    match outcome {
        Ok(node) => bind(world, key, &pod, &node),
        Err(Hindrance::Provisioning) => {
            world.scheduler.parked.insert(key.clone());
        }
        Err(Hindrance::Unschedulable(message)) => {
            world.scheduler.parked.insert(key.clone());
            hold(world, key, &pod, "Unschedulable", &message);
        }
    }
}

/// Tries the pods without a node again, not too often.
pub(super) fn unpark(world: &mut World) {
    if world.scheduler.parked.is_empty() {
        return;
    }
    let now = tokio::time::Instant::now();
    if let Some(rested_at) = world.scheduler.rested_at.filter(|at| *at > now) {
        if !world.scheduler.retry_set {
            world.scheduler.retry_set = true;
            world.later(rested_at - now, Work::Unpark);
        }
        return;
    }
    world.scheduler.retry_set = false;
    world.scheduler.rested_at = Some(now + world.pace.scaled(RETRY));
    for key in std::mem::take(&mut world.scheduler.parked) {
        world.enqueue(Work::Place(key));
    }
}

/// Where the pod's bound volumes can be reached, and its claims that wait for a node.
fn volumes(world: &World, pod: &Value) -> Result<(Vec<Value>, Vec<Key>), Hindrance> {
    let (mut reachable, mut waiting) = (Vec::new(), Vec::new());
    let namespace = text(pod, "metadata.namespace");
    for volume in list(pod, "spec.volumes") {
        let name = text(volume, "persistentVolumeClaim.claimName");
        if name.is_empty() {
            continue;
        }
        let key = Key::new(namespace, name);
        let Some(claim) = world.get(&CLAIMS, &key) else {
            return Err(Hindrance::Unschedulable(format!(
                "persistentvolumeclaim \"{name}\" not found"
            )));
        };
        if is_terminating(&claim) {
            return Err(Hindrance::Unschedulable(format!(
                "persistentvolumeclaim \"{name}\" is being deleted"
            )));
        }
        if text(&claim, "status.phase") == "Bound" {
            let volume = world.get(&VOLUMES, &Key::new("", text(&claim, "spec.volumeName")));
            let terms = volume
                .as_ref()
                .and_then(|volume| at(volume, "spec.nodeAffinity.required.nodeSelectorTerms"));
            reachable.extend(terms.cloned());
            continue;
        }
        let class = world.get(
            &STORAGE_CLASSES,
            &Key::new("", text(&claim, "spec.storageClassName")),
        );
        if class.is_none_or(|class| text(&class, "volumeBindingMode") != "WaitForFirstConsumer") {
            let message = "pod has unbound immediate PersistentVolumeClaims";
            return Err(Hindrance::Unschedulable(message.to_owned()));
        }
        match annotation(&claim, SELECTED_NODE) {
            // Already on its way to a node: the pod must follow.
            Some(node) if world.index.nodes.contains_key(node) => {
                let term =
                    json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
                reachable.push(term);
            }
            _ => {}
        }
        waiting.push(key);
    }
    Ok((reachable, waiting))
}

/// How many pods of the same owner each node has; an owner of very many need not spread so carefully.
fn siblings(world: &World, pod: &Value) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    let Some(owner) = controller(pod) else {
        return counts;
    };
    for key in world.index.owned(text(owner, "uid"), &PODS).take(MOST_SIBLINGS) {
        if let Some(other) = world.get(&PODS, key)
            && !is_terminating(&other)
        {
            *counts
                .entry(text(&other, "spec.nodeName").to_owned())
                .or_default() += 1;
        }
    }
    counts
}

fn bind(world: &mut World, key: &Key, pod: &Value, node: &str) {
    let now = world.now();
    world.modify(&PODS, key, |pod| {
        set(pod, "spec.nodeName", json!(node));
        set_condition(pod, "PodScheduled", "True", "", "", &now);
    });
    let message = format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
    world.event(pod, "Pod", "Normal", "Scheduled", &message);
}

fn hold(world: &mut World, key: &Key, pod: &Value, reason: &str, message: &str) {
    let said = find_condition(pod, "PodScheduled").map(|said| (text(said, "reason"), text(said, "message")));
    if said == Some((reason, message)) {
        return;
    }
    let now = world.now();
    world.modify(&PODS, key, |pod| {
        if text(pod, "status.phase").is_empty() {
            set(pod, "status.phase", json!("Pending"));
        }
        set_condition(pod, "PodScheduled", "False", reason, message, &now);
    });
    if reason == "Unschedulable" {
        world.event(pod, "Pod", "Warning", "FailedScheduling", message);
    }
}
