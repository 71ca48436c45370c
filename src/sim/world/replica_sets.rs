//! ReplicaSets: as many pods as wanted.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    World,
    document::{Key, at, integer, is_terminating, set, text},
    pods::{from_template, is_active, is_ready},
    resources::{PODS, REPLICA_SETS},
    routes::Work,
};

/// Most pods made or removed in one step, so that one set never holds up the others.
const STEP: usize = 100;

pub(super) fn reconcile(world: &mut World, key: &Key) {
    let Some(set) = world.get(&REPLICA_SETS, key) else {
        return;
    };
    if is_terminating(&set) {
        return;
    }
    let mut pods = world.pods_of(&set);
    pods.retain(|pod| is_active(pod));
    let wanted = usize::try_from(integer(&set, "spec.replicas").unwrap_or(1)).unwrap_or(0);
    if pods.len() < wanted {
        let missing = (wanted - pods.len()).min(STEP);
        for _ in 0..missing {
            let made = create_pod(world, &set);
            pods.extend(made);
        }
    } else if pods.len() > wanted {
        rank(&mut pods);
        let surplus = pods.len() - wanted;
        for pod in pods.drain(..surplus.min(STEP)) {
            world.delete_pod(&pod);
        }
    }
    if pods.len() != wanted {
        world.enqueue(Work::ReplicaSet(key.clone()));
    }
    report(world, key, &set, &pods);
}

fn create_pod(world: &World, owner: &Value) -> Option<Arc<Value>> {
    let template = at(owner, "spec.template")?;
    let mut pod = from_template(owner, "apps/v1", "ReplicaSet", template);
    set(
        &mut pod,
        "metadata.generateName",
        json!(format!("{}-", text(owner, "metadata.name"))),
    );
    world.create(&PODS, pod)
}

/// Those to go first come first: without a node, not ready, youngest.
fn rank(pods: &mut [Arc<Value>]) {
    pods.sort_by_cached_key(|pod| {
        let placed = !text(pod, "spec.nodeName").is_empty();
        let age = std::cmp::Reverse(text(pod, "metadata.creationTimestamp").to_owned());
        (placed, is_ready(pod), age, text(pod, "metadata.name").to_owned())
    });
}

fn report(world: &mut World, key: &Key, set: &Value, pods: &[Arc<Value>]) {
    let min_ready = integer(set, "spec.minReadySeconds").unwrap_or(0);
    let waits: Vec<_> = pods
        .iter()
        .filter_map(|pod| world.until_available(pod, min_ready))
        .collect();
    let available = waits.iter().filter(|wait| wait.is_zero()).count();
    if let Some(soonest) = waits.iter().filter(|wait| !wait.is_zero()).min() {
        world.later(*soonest, Work::ReplicaSet(key.clone()));
    }
    let count = |number: usize| json!(number);
    world.write_status(
        &REPLICA_SETS,
        key,
        vec![
            ("replicas", count(pods.len())),
            ("fullyLabeledReplicas", count(pods.len())),
            (
                "readyReplicas",
                count(pods.iter().filter(|pod| is_ready(pod)).count()),
            ),
            ("availableReplicas", count(available)),
            (
                "observedGeneration",
                json!(integer(set, "metadata.generation").unwrap_or(1)),
            ),
        ],
    );
}
