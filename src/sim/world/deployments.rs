//! Deployments: a ReplicaSet per template, and the roll from one to the next.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    World,
    document::{
        Key, annotation, at, digest, find_condition, flag, integer, is_terminating, owned_by, remove, set,
        set_condition, set_entry, text,
    },
    resources::{DEPLOYMENTS, REPLICA_SETS},
    routes::Work,
};
use crate::sim::objects::Deletion;

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";
const LATE: &str = "ProgressDeadlineExceeded";

/// A ReplicaSet with the numbers a roll is decided by.
#[derive(Clone, Debug)]
struct Member {
    key: Key,
    object: Arc<Value>,
    wanted: i64,
    present: i64,
    ready: i64,
    available: i64,
}

impl Member {
    fn new(object: Arc<Value>) -> Self {
        let status = |field: &str| integer(&object, &format!("status.{field}")).unwrap_or(0);
        Self {
            key: Key::of(&object),
            wanted: integer(&object, "spec.replicas").unwrap_or(1),
            present: status("replicas"),
            ready: status("readyReplicas"),
            available: status("availableReplicas"),
            object,
        }
    }

    fn revision(&self) -> i64 {
        annotation(&self.object, REVISION)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }
}

pub(super) fn reconcile(world: &mut World, key: &Key) {
    let Some(deployment) = world.get(&DEPLOYMENTS, key) else {
        return;
    };
    if is_terminating(&deployment) {
        return;
    }
    let Some(template) = at(&deployment, "spec.template") else {
        return;
    };
    let mut members = members(world, &deployment);
    let current = members
        .iter()
        .position(|member| same_template(&member.object, template));
    let newest = members.iter().map(Member::revision).max().unwrap_or(0);
    let mut new = match current {
        Some(place) => Some(members.remove(place)),
        None if flag(&deployment, "spec.paused") => None,
        None => create(world, &deployment, template, newest + 1),
    };
    if let Some(member) = &mut new {
        // An older template that came back is the newest revision again.
        if member.revision() < newest {
            let revision = json!((newest + 1).to_string());
            world.modify(&REPLICA_SETS, &member.key, |object| {
                set_entry(object, "metadata.annotations", REVISION, revision);
            });
            if let Some(object) = world.get(&REPLICA_SETS, &member.key) {
                *member = Member::new(object);
            }
        }
        let revision = member.revision().to_string();
        if annotation(&deployment, REVISION) != Some(&revision) {
            world.modify(&DEPLOYMENTS, key, |object| {
                set_entry(object, "metadata.annotations", REVISION, json!(revision));
            });
        }
    }
    for (member, replicas) in scale(&deployment, new.as_ref(), &members) {
        world.modify(&REPLICA_SETS, &member, |object| {
            set(object, "spec.replicas", json!(replicas))
        });
    }
    tidy(world, &deployment, &members);
    report(world, key, &deployment, new.as_ref(), &members);
}

fn members(world: &World, deployment: &Value) -> Vec<Member> {
    let uid = text(deployment, "metadata.uid");
    let keys: Vec<Key> = world.index.owned(uid, &REPLICA_SETS).cloned().collect();
    let objects = keys.iter().filter_map(|key| world.get(&REPLICA_SETS, key));
    objects
        .filter(|object| !is_terminating(object))
        .map(Member::new)
        .collect()
}

/// Whether a ReplicaSet was made from this template: all but the hash that it adds is equal.
fn same_template(replica_set: &Value, template: &Value) -> bool {
    let Some(own) = at(replica_set, "spec.template") else {
        return false;
    };
    let mut own = own.clone();
    if let Some(labels) = own
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("labels"))
    {
        remove(labels, HASH);
    }
    let metadata = |template: &Value, field: &str| {
        at(template, "metadata")
            .and_then(|metadata| metadata.get(field))
            .cloned()
            .filter(|map| map != &json!({}))
    };
    at(&own, "spec") == at(template, "spec")
        && metadata(&own, "labels") == metadata(template, "labels")
        && metadata(&own, "annotations") == metadata(template, "annotations")
}

fn create(world: &World, deployment: &Value, template: &Value, revision: i64) -> Option<Member> {
    let name = text(deployment, "metadata.name");
    let hash = digest(&[template.to_string().as_bytes()]);
    let mut template = template.clone();
    set_entry(&mut template, "metadata.labels", HASH, json!(hash));
    let mut selector = at(deployment, "spec.selector")
        .cloned()
        .unwrap_or_else(|| json!({}));
    set_entry(&mut selector, "matchLabels", HASH, json!(hash));
    let mut labels = at(&template, "metadata.labels")
        .cloned()
        .unwrap_or_else(|| json!({}));
    set(&mut labels, HASH, json!(hash));
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{name}-{hash}"),
            "namespace": text(deployment, "metadata.namespace"),
            "labels": labels,
            "annotations": {REVISION: revision.to_string()},
            "ownerReferences": owned_by(deployment, "apps/v1", "Deployment"),
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
        "status": {"replicas": 0},
    });
    if let Some(seconds) = at(deployment, "spec.minReadySeconds") {
        set(&mut object, "spec.minReadySeconds", seconds.clone());
    }
    world.create(&REPLICA_SETS, object).map(Member::new)
}

/// The next step of the roll: which ReplicaSet shall have how many pods.
fn scale(deployment: &Value, new: Option<&Member>, old: &[Member]) -> Vec<(Key, i64)> {
    let wanted = integer(deployment, "spec.replicas").unwrap_or(1).max(0);
    let recreate = text(deployment, "spec.strategy.type") == "Recreate";
    let total = |of: fn(&Member) -> i64| old.iter().chain(new).map(of).sum::<i64>();
    let old_left = old.iter().any(|member| member.wanted > 0 || member.present > 0);
    let mut steps = Vec::new();
    if recreate {
        steps.extend(
            old.iter()
                .filter(|member| member.wanted > 0)
                .map(|member| (member.key.clone(), 0)),
        );
        if let Some(new) = new.filter(|_| !old_left) {
            steps.push((new.key.clone(), wanted));
        }
    } else {
        let (surge, unavailable) = allowances(deployment, wanted);
        if let Some(new) = new {
            let room = wanted + surge - total(|member| member.wanted);
            let grown = if new.wanted > wanted {
                wanted
            } else {
                new.wanted + room.clamp(0, wanted - new.wanted)
            };
            steps.push((new.key.clone(), grown));
        }
        let least = wanted - unavailable;
        let not_yet = new.map_or(0, |new| (new.wanted - new.available).max(0));
        let mut may_go = total(|member| member.wanted) - least - not_yet;
        let mut spare = total(|member| member.available) - least;
        if new.is_none() {
            // Paused before its first roll: only the size follows.
            may_go = total(|member| member.wanted) - wanted;
            spare = may_go;
        }
        let mut oldest_first: Vec<&Member> = old.iter().filter(|member| member.wanted > 0).collect();
        oldest_first.sort_by_key(|member| member.revision());
        for member in oldest_first {
            let broken = (member.wanted - member.available).clamp(0, may_go.max(0));
            let healthy = (member.wanted - broken)
                .min(spare.max(0))
                .clamp(0, (may_go - broken).max(0));
            if broken + healthy > 0 {
                steps.push((member.key.clone(), member.wanted - broken - healthy));
            }
            may_go -= broken + healthy;
            spare -= healthy;
        }
    }
    let changes = |(key, replicas): &(Key, i64)| {
        old.iter()
            .chain(new)
            .any(|member| member.key == *key && member.wanted != *replicas)
    };
    steps.into_iter().filter(changes).collect()
}

/// How many pods there may be too many, and too few, during a roll.
fn allowances(deployment: &Value, wanted: i64) -> (i64, i64) {
    let read = |field: &str, up: bool| {
        let value = at(deployment, &format!("spec.strategy.rollingUpdate.{field}"));
        match value {
            Some(Value::Number(number)) => number.as_i64().unwrap_or(0).max(0),
            other => {
                let percent: i64 = other
                    .and_then(Value::as_str)
                    .and_then(|text| text.strip_suffix('%'))
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(25)
                    .clamp(0, 1_000_000);
                let parts = wanted.saturating_mul(percent);
                if up {
                    parts.saturating_add(99) / 100
                } else {
                    parts / 100
                }
            }
        }
    };
    let (surge, unavailable) = (read("maxSurge", true), read("maxUnavailable", false).min(wanted));
    // Both zero could never move.
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

/// Removes emptied ReplicaSets beyond the history's limit, oldest first.
fn tidy(world: &World, deployment: &Value, old: &[Member]) {
    let limit = usize::try_from(integer(deployment, "spec.revisionHistoryLimit").unwrap_or(10)).unwrap_or(0);
    let mut empty: Vec<&Member> = old
        .iter()
        .filter(|member| member.wanted == 0 && member.present == 0)
        .collect();
    empty.sort_by_key(|member| member.revision());
    let surplus = empty.len().saturating_sub(limit);
    for member in empty.into_iter().take(surplus) {
        world.delete(&REPLICA_SETS, &member.key, Deletion::default());
    }
}

fn report(world: &mut World, key: &Key, deployment: &Value, new: Option<&Member>, old: &[Member]) {
    let wanted = integer(deployment, "spec.replicas").unwrap_or(1).max(0);
    let total = |of: fn(&Member) -> i64| old.iter().chain(new).map(of).sum::<i64>();
    let (present, ready, available) = (
        total(|member| member.present),
        total(|member| member.ready),
        total(|member| member.available),
    );
    let updated = new.map_or(0, |new| new.present);
    let complete = updated == wanted && available == wanted && present == wanted;
    let now = world.now();
    let (_, unavailable_allowed) = allowances(deployment, wanted);
    let minimum = available >= wanted - unavailable_allowed;
    let name = new.map_or(String::new(), |new| new.key.name.clone());
    let generation = integer(deployment, "metadata.generation").unwrap_or(1);
    let before = deployment.get("status").cloned().unwrap_or_default();
    let numbers = [
        ("replicas", present),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", (present.max(wanted) - available).max(0)),
        ("observedGeneration", generation),
    ];
    let moved = numbers
        .iter()
        .any(|(field, number)| integer(&before, field).unwrap_or(0) != *number);
    let deadline = integer(deployment, "spec.progressDeadlineSeconds")
        .unwrap_or(600)
        .max(1)
        .unsigned_abs();
    let deadline = world.pace.repeated(Duration::from_secs(deadline));
    let waited = find_condition(deployment, "Progressing").map_or(Duration::ZERO, |condition| {
        world.elapsed_since(text(condition, "lastUpdateTime"))
    });
    let already_late =
        find_condition(deployment, "Progressing").is_some_and(|condition| text(condition, "reason") == LATE);
    let late = !complete && !moved && (already_late || waited >= deadline);
    world.modify(&DEPLOYMENTS, key, |object| {
        for (field, number) in numbers {
            if number == 0 && field != "observedGeneration" {
                remove(object, &format!("status.{field}"));
            } else {
                set(object, &format!("status.{field}"), json!(number));
            }
        }
        if minimum {
            set_condition(
                object,
                "Available",
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
                &now,
            );
        } else {
            set_condition(
                object,
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
                &now,
            );
        }
        let (status, reason, message) = if complete {
            (
                "True",
                "NewReplicaSetAvailable",
                format!("ReplicaSet \"{name}\" has successfully progressed."),
            )
        } else if late {
            (
                "False",
                LATE,
                format!("ReplicaSet \"{name}\" has timed out progressing."),
            )
        } else {
            (
                "True",
                "ReplicaSetUpdated",
                format!("ReplicaSet \"{name}\" is progressing."),
            )
        };
        let keep = find_condition(object, "Progressing")
            .filter(|condition| !moved && text(condition, "reason") == reason)
            .map(|condition| text(condition, "lastUpdateTime").to_owned());
        set_condition(object, "Progressing", status, reason, &message, &now);
        stamp(object, "Progressing", keep.as_deref().unwrap_or(&now));
        let available_since =
            find_condition(object, "Available").map(|c| text(c, "lastTransitionTime").to_owned());
        stamp(object, "Available", available_since.as_deref().unwrap_or(&now));
    });
    if !complete && !late {
        world.later(
            deadline.saturating_sub(waited).max(Duration::from_millis(10)),
            Work::Deployment(key.clone()),
        );
    }
}

/// Sets a condition's time of last update.
fn stamp(object: &mut Value, kind: &str, time: &str) {
    let conditions = object
        .get_mut("status")
        .and_then(|status| status.get_mut("conditions"));
    for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
        if text(condition, "type") == kind {
            set(condition, "lastUpdateTime", json!(time));
        }
    }
}
