//! The rules of an object's life: generations, what belongs to the server, what holds a deleted object.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Deletion, Propagation, Refusal, Resource,
    identity::{finalizers, is_deleting, metadata_text, timestamp},
};

pub(super) fn metadata_of(object: &mut Value) -> Result<&mut Map<String, Value>, Refusal> {
    object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or_else(|| Refusal::bad_request("the object has no metadata"))
}

/// Kinds whose `metadata.generation` a real server keeps: the core group has it on pods only, and what
/// has no spec has none.
pub(super) fn has_generation(resource: &Resource) -> bool {
    match (resource.group.as_ref(), resource.plural.as_ref()) {
        ("", plural) => plural == "pods",
        ("rbac.authorization.k8s.io" | "coordination.k8s.io" | "discovery.k8s.io", _) => false,
        ("storage.k8s.io" | "scheduling.k8s.io" | "node.k8s.io", _) => false,
        ("networking.k8s.io", plural) => {
            matches!(plural, "ingresses" | "ingressclasses" | "networkpolicies")
        }
        _ => true,
    }
}

/// True when what is wanted changed: everything but metadata and status.
pub(super) fn intent_differs(before: &Value, after: &Value) -> bool {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return before != after;
    };
    let relevant = |key: &&String| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind");
    before
        .keys()
        .chain(after.keys())
        .filter(relevant)
        .any(|key| before.get(key) != after.get(key))
}

pub(super) fn raise_generation(metadata: &mut Map<String, Value>) {
    let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    metadata.insert("generation".to_owned(), json!(generation.saturating_add(1)));
}

/// What belongs to the server stays as it was, whatever a writer made of it.
pub(super) fn keep_system_fields(before: &Value, after: &mut Value) -> Result<(), Refusal> {
    let metadata = metadata_of(after)?;
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "generateName",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        match before.get("metadata").and_then(|metadata| metadata.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    Ok(())
}

/// True when a deleting object has nothing left that holds it.
pub(super) fn is_released(resource: &Resource, object: &Value) -> bool {
    is_deleting(object)
        && finalizers(object).is_empty()
        && object
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(0)
            == 0
        && !holds_namespace(resource, object)
}

/// A namespace stays until its own finalizers in `spec` are gone.
pub(super) fn holds_namespace(resource: &Resource, object: &Value) -> bool {
    resource.is("", "namespaces")
        && object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
}

pub(super) fn check_preconditions(
    resource: &Resource,
    name: &str,
    object: &Value,
    deletion: &Deletion,
) -> Result<(), Refusal> {
    for (wanted, field, label) in [
        (&deletion.uid, "uid", "UID"),
        (&deletion.resource_version, "resourceVersion", "ResourceVersion"),
    ] {
        let present = metadata_text(object, field);
        if let Some(wanted) = wanted
            && wanted != present
        {
            let why = format!(
                "the {label} in the precondition ({wanted}) does not match the {label} in record ({present}). \
                 The object might have been deleted and then recreated"
            );
            return Err(Refusal::conflict(resource, name, &why));
        }
    }
    Ok(())
}

/// The finalizers that stand for what shall become of the dependents.
pub(super) fn propagate(metadata: &mut Map<String, Value>, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let mut list: Vec<Value> = metadata
        .get("finalizers")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    list.retain(|finalizer| finalizer != "orphan" && finalizer != "foregroundDeletion");
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => list.push(json!("foregroundDeletion")),
        Propagation::Orphan => list.push(json!("orphan")),
    }
    if list.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), Value::Array(list));
    }
}

/// How long a pod may take to end; everything else, and a pod that runs nowhere, ends at once.
pub(super) fn grace_of(resource: &Resource, object: &Value, deletion: &Deletion) -> i64 {
    if !resource.is("", "pods") {
        return 0;
    }
    let bound = object
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .is_some_and(|node| !node.is_empty());
    let phase = object.pointer("/status/phase").and_then(Value::as_str);
    if !bound || matches!(phase, Some("Succeeded" | "Failed")) {
        return 0;
    }
    let own = object
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    deletion.grace_seconds.or(own).unwrap_or(30).max(0)
}

/// Sets the deletion's time and grace. A second deletion can only make it sooner.
pub(super) fn mark_deleting(metadata: &mut Map<String, Value>, before: &Value, now: Timestamp, grace: i64) {
    let earlier = before
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    let marked = is_deleting(before);
    if marked && earlier.is_some_and(|earlier| earlier <= grace) {
        return;
    }
    let base = if marked {
        let until: Option<Timestamp> = metadata_text(before, "deletionTimestamp").parse().ok();
        until
            .and_then(|until| {
                until
                    .checked_sub(jiff::SignedDuration::from_secs(earlier.unwrap_or(0)))
                    .ok()
            })
            .unwrap_or(now)
    } else {
        if metadata.contains_key("generation") {
            raise_generation(metadata);
        }
        now
    };
    let until = base
        .checked_add(jiff::SignedDuration::from_secs(grace))
        .unwrap_or(now);
    metadata.insert("deletionTimestamp".to_owned(), json!(timestamp(until)));
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}
