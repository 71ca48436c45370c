//! StatefulSets: pods with numbers, one after the other, each with its claims.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    World,
    document::{Key, at, digest, integer, is_terminating, label, list, owned_by, set, set_entry, text},
    pods::{from_template, is_finished, is_ready},
    resources::{CLAIMS, PODS, STATEFUL_SETS},
    routes::Work,
};

const REVISION: &str = "controller-revision-hash";

/// Most replicas looked at: a set that asks for more gets these.
const MOST: i64 = 10_000;

pub(super) fn reconcile(world: &mut World, key: &Key) {
    let Some(set) = world.get(&STATEFUL_SETS, key) else {
        return;
    };
    if is_terminating(&set) {
        return;
    }
    let Some(template) = at(&set, "spec.template") else {
        return;
    };
    let revision = format!("{}-{}", key.name, digest(&[template.to_string().as_bytes()]));
    let wanted = integer(&set, "spec.replicas").unwrap_or(1).clamp(0, MOST);
    let first = integer(&set, "spec.ordinals.start").unwrap_or(0).max(0);
    let pods = world.pods_of(&set);
    step(world, &set, &revision, first..first.saturating_add(wanted), &pods);
    report(world, key, &set, &revision, wanted);
}

/// One step towards the wanted pods.
fn step(world: &World, owner: &Value, revision: &str, wanted: std::ops::Range<i64>, pods: &[Arc<Value>]) {
    let ordered = text(owner, "spec.podManagementPolicy") != "Parallel";
    let name = text(owner, "metadata.name");
    let find = |ordinal: i64| pods.iter().find(|pod| ordinal_of(pod, name) == Some(ordinal));
    for ordinal in wanted.clone() {
        match find(ordinal) {
            None => create(world, owner, revision, ordinal),
            Some(pod) if is_finished(pod) && !is_terminating(pod) => {
                world.delete_pod(pod);
            }
            Some(pod) if is_ready(pod) && !is_terminating(pod) => continue,
            Some(_) => {}
        }
        if ordered {
            return;
        }
    }
    let mut beyond: Vec<_> = pods
        .iter()
        .filter_map(|pod| Some((ordinal_of(pod, name)?, pod)))
        .collect();
    beyond.retain(|(ordinal, _)| !wanted.contains(ordinal));
    beyond.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
    for (_, pod) in beyond {
        if !is_terminating(pod) {
            world.delete_pod(pod);
        }
        if ordered {
            return;
        }
    }
    roll(world, owner, revision, wanted, pods);
}

/// Replaces pods of an older template, the highest number first, one at a time.
fn roll(world: &World, owner: &Value, revision: &str, wanted: std::ops::Range<i64>, pods: &[Arc<Value>]) {
    if text(owner, "spec.updateStrategy.type") == "OnDelete" {
        return;
    }
    let name = text(owner, "metadata.name");
    let partition = integer(owner, "spec.updateStrategy.rollingUpdate.partition").unwrap_or(0);
    for ordinal in wanted.rev().take_while(|ordinal| *ordinal >= partition) {
        let Some(pod) = pods.iter().find(|pod| ordinal_of(pod, name) == Some(ordinal)) else {
            return;
        };
        if is_terminating(pod) {
            return;
        }
        if label(pod, REVISION) != Some(revision) {
            world.delete_pod(pod);
            return;
        }
        if !is_ready(pod) {
            return;
        }
    }
}

fn ordinal_of(pod: &Value, set: &str) -> Option<i64> {
    text(pod, "metadata.name")
        .strip_prefix(set)?
        .strip_prefix('-')?
        .parse()
        .ok()
}

fn create(world: &World, owner: &Value, revision: &str, ordinal: i64) {
    let Some(template) = at(owner, "spec.template") else {
        return;
    };
    let (set_name, namespace) = (text(owner, "metadata.name"), text(owner, "metadata.namespace"));
    let name = format!("{set_name}-{ordinal}");
    let mut pod = from_template(owner, "apps/v1", "StatefulSet", template);
    set(&mut pod, "metadata.name", json!(name));
    for (key, value) in [
        ("statefulset.kubernetes.io/pod-name", name.clone()),
        ("apps.kubernetes.io/pod-index", ordinal.to_string()),
        (REVISION, revision.to_owned()),
    ] {
        set_entry(&mut pod, "metadata.labels", key, json!(value));
    }
    set(&mut pod, "spec.hostname", json!(name));
    set(&mut pod, "spec.subdomain", json!(text(owner, "spec.serviceName")));
    let mut volumes = list(&pod, "spec.volumes").to_vec();
    for claim in list(owner, "spec.volumeClaimTemplates") {
        let volume = text(claim, "metadata.name");
        let claim_name = format!("{volume}-{name}");
        volumes.retain(|other| text(other, "name") != volume);
        volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}}));
        if world.get(&CLAIMS, &Key::new(namespace, &claim_name)).is_none() {
            world.create(&CLAIMS, claim_of(owner, claim, &claim_name));
        }
    }
    if !volumes.is_empty() {
        set(&mut pod, "spec.volumes", Value::Array(volumes));
    }
    world.create(&PODS, pod);
}

fn claim_of(owner: &Value, template: &Value, name: &str) -> Value {
    let mut labels = at(owner, "spec.selector.matchLabels")
        .cloned()
        .unwrap_or_else(|| json!({}));
    for (key, value) in super::document::fields(template, "metadata.labels") {
        if let Some(map) = labels.as_object_mut() {
            map.insert(key.clone(), value.clone());
        }
    }
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": text(owner, "metadata.namespace"), "labels": labels,
            "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": at(template, "spec").cloned().unwrap_or_else(|| json!({})),
        "status": {"phase": "Pending"},
    });
    if let Some(annotations) = at(template, "metadata.annotations") {
        set(&mut claim, "metadata.annotations", annotations.clone());
    }
    if at(&claim, "spec.volumeMode").is_none() {
        set(&mut claim, "spec.volumeMode", json!("Filesystem"));
    }
    if text(owner, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted") == "Delete" {
        set(
            &mut claim,
            "metadata.ownerReferences",
            owned_by(owner, "apps/v1", "StatefulSet"),
        );
    }
    claim
}

fn report(world: &mut World, key: &Key, owner: &Value, revision: &str, wanted: i64) {
    let pods: Vec<_> = world
        .pods_of(owner)
        .into_iter()
        .filter(|pod| !is_finished(pod))
        .collect();
    let living: Vec<_> = pods.iter().filter(|pod| !is_terminating(pod)).collect();
    let updated = living
        .iter()
        .filter(|pod| label(pod, REVISION) == Some(revision))
        .count();
    let ready = living.iter().filter(|pod| is_ready(pod)).count();
    let min_ready = integer(owner, "spec.minReadySeconds").unwrap_or(0);
    let waits: Vec<_> = living
        .iter()
        .filter_map(|pod| world.until_available(pod, min_ready))
        .collect();
    let available = waits.iter().filter(|wait| wait.is_zero()).count();
    let soonest = waits.iter().filter(|wait| !wait.is_zero()).min().copied();
    let rolled = i64::try_from(updated).unwrap_or(0) == wanted && pods.len() == living.len();
    let before = text(owner, "status.currentRevision");
    let current = if rolled || before.is_empty() {
        revision
    } else {
        before
    };
    let on_current = living
        .iter()
        .filter(|pod| label(pod, REVISION) == Some(current))
        .count();
    world.write_status(
        &STATEFUL_SETS,
        key,
        vec![
            ("replicas", json!(pods.len())),
            ("readyReplicas", json!(ready)),
            ("availableReplicas", json!(available)),
            ("updatedReplicas", json!(updated)),
            ("currentReplicas", json!(on_current)),
            ("currentRevision", json!(current)),
            ("updateRevision", json!(revision)),
            ("collisionCount", json!(0)),
            (
                "observedGeneration",
                json!(integer(owner, "metadata.generation").unwrap_or(1)),
            ),
        ],
    );
    if let Some(wait) = soonest {
        world.later(wait, Work::StatefulSet(key.clone()));
    }
}
