//! Pods as controllers make, count and remove them.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    World,
    document::{Key, at, condition, find_condition, is_terminating, list, owned_by, set, text},
    resources::PODS,
};
use crate::sim::objects::{Deletion, Resource};

/// A pod of a template. What the API server would fill in is filled in.
pub fn from_template(owner: &Value, api_version: &str, kind: &str, template: &Value) -> Value {
    let mut spec = at(template, "spec").cloned().unwrap_or_else(|| json!({}));
    let defaults = [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("serviceAccountName", json!("default")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("enableServiceLinks", json!(true)),
        ("securityContext", json!({})),
        ("priority", json!(0)),
    ];
    for (field, value) in defaults {
        if at(&spec, field).is_none() {
            set(&mut spec, field, value);
        }
    }
    let mut tolerations = list(&spec, "tolerations").to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let taint = json!({"key": key, "effect": "NoExecute"});
        if super::placement::toleration(&json!({"spec": {"tolerations": tolerations}}), &taint).is_none() {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
    set(&mut spec, "tolerations", Value::Array(tolerations));
    let mut metadata = json!({
        "namespace": text(owner, "metadata.namespace"),
        "labels": at(template, "metadata.labels").cloned().unwrap_or_else(|| json!({})),
        "ownerReferences": owned_by(owner, api_version, kind),
    });
    if let Some(annotations) = at(template, "metadata.annotations") {
        set(&mut metadata, "annotations", annotations.clone());
    }
    let quality = quality(&spec);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
        "status": {"phase": "Pending", "qosClass": quality}})
}

/// The pod's quality of service.
fn quality(spec: &Value) -> &'static str {
    let containers = || {
        list(spec, "containers")
            .iter()
            .chain(list(spec, "initContainers"))
    };
    let amount = |container: &Value, side: &str, resource: &str| at(container, side)?.get(resource).cloned();
    let guaranteed = containers().all(|container| {
        ["cpu", "memory"].iter().all(|resource| {
            let limit = amount(container, "resources.limits", resource);
            let request = amount(container, "resources.requests", resource).or_else(|| limit.clone());
            limit.is_some() && limit == request
        })
    });
    let asks = containers().any(|container| {
        ["resources.limits", "resources.requests"].iter().any(|side| {
            at(container, side)
                .and_then(Value::as_object)
                .is_some_and(|map| !map.is_empty())
        })
    });
    match (guaranteed && asks, asks) {
        (true, _) => "Guaranteed",
        (false, true) => "Burstable",
        (false, false) => "BestEffort",
    }
}

/// Whether the pod has ended for good.
pub fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "status.phase"), "Succeeded" | "Failed")
}

/// Whether the pod counts towards its controller's replicas.
pub fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

/// Whether the pod is ready.
pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True"
}

impl World {
    /// The pods that name this owner.
    pub(super) fn pods_of(&self, owner: &Value) -> Vec<Arc<Value>> {
        let keys: Vec<Key> = self
            .index
            .owned(text(owner, "metadata.uid"), &PODS)
            .cloned()
            .collect();
        keys.iter().filter_map(|key| self.get(&PODS, key)).collect()
    }

    /// Asks a pod to end, only if it is still the same one.
    pub(super) fn delete_pod(&self, pod: &Value) {
        let deletion = Deletion {
            uid: Some(text(pod, "metadata.uid").to_owned()),
            ..Deletion::default()
        };
        self.delete(&PODS, &Key::of(pod), deletion);
    }

    /// How much longer a pod must stay ready to count as available; `None` when it is not ready.
    pub(super) fn until_available(&self, pod: &Value, min_ready_seconds: i64) -> Option<Duration> {
        if !is_ready(pod) || is_terminating(pod) {
            return None;
        }
        let wanted = self
            .pace
            .scaled(Duration::from_secs(min_ready_seconds.max(0).unsigned_abs()));
        if wanted.is_zero() {
            return Some(Duration::ZERO);
        }
        let since = find_condition(pod, "Ready").map_or("", |ready| text(ready, "lastTransitionTime"));
        Some(wanted.saturating_sub(self.elapsed_since(since)))
    }

    /// Wall time since a timestamp; none when it cannot be read or lies ahead.
    pub(super) fn elapsed_since(&self, timestamp: &str) -> Duration {
        timestamp
            .parse::<Timestamp>()
            .ok()
            .and_then(|then| Duration::try_from(self.clock.wall().duration_since(then)).ok())
            .unwrap_or_default()
    }

    /// Writes a status, keeping what the new one does not name.
    pub(super) fn write_status(&self, resource: &Resource, key: &Key, entries: Vec<(&str, Value)>) {
        self.modify(resource, key, |object| {
            for (field, value) in entries {
                set(object, &format!("status.{field}"), value);
            }
        });
    }
}
