//! Tables, as `kubectl get` prints them: columns of their own for nodes and pods, name and age for the rest.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::Kind;
use crate::sim::objects::{is_deleting, metadata_text};

/// A column: its name, type and priority (above 0 only with `-o wide`).
type Column = (&'static str, &'static str, u8);

const NODE_COLUMNS: &[Column] = &[
    ("Name", "string", 0),
    ("Status", "string", 0),
    ("Roles", "string", 0),
    ("Age", "string", 0),
    ("Version", "string", 0),
    ("Internal-IP", "string", 1),
    ("External-IP", "string", 1),
    ("OS-Image", "string", 1),
    ("Kernel-Version", "string", 1),
    ("Container-Runtime", "string", 1),
];

const POD_COLUMNS: &[Column] = &[
    ("Name", "string", 0),
    ("Ready", "string", 0),
    ("Status", "string", 0),
    ("Restarts", "string", 0),
    ("Age", "string", 0),
    ("IP", "string", 1),
    ("Node", "string", 1),
    ("Nominated Node", "string", 1),
    ("Readiness Gates", "string", 1),
];

/// What stands in the columns.
type Cells = fn(&Value, Timestamp) -> Value;

const PLAIN_COLUMNS: &[Column] = &[("Name", "string", 0), ("Age", "date", 0)];

/// The table of some objects.
pub fn render<'a>(
    kind: &Kind,
    now: Timestamp,
    objects: impl Iterator<Item = &'a Value>,
    metadata: &Value,
) -> Value {
    let (columns, cells): (&[Column], Cells) = match kind.plural.as_ref() {
        "nodes" if !kind.custom => (NODE_COLUMNS, node_cells),
        "pods" if !kind.custom => (POD_COLUMNS, pod_cells),
        _ => (PLAIN_COLUMNS, plain_cells),
    };
    let columns: Vec<Value> = columns
        .iter()
        .map(|(name, kind, priority)| {
            let format = if *name == "Name" { "name" } else { "" };
            json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
        })
        .collect();
    let rows: Vec<Value> = objects
        .map(|object| {
            json!({
                "cells": cells(object, now),
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": object.get("metadata"),
                },
            })
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn plain_cells(object: &Value, now: Timestamp) -> Value {
    json!([
        metadata_text(object, "name"),
        age(metadata_text(object, "creationTimestamp"), now)
    ])
}

fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn node_cells(node: &Value, now: Timestamp) -> Value {
    let ready = items(node, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Ready")
        .map(|condition| text(condition, "/status"));
    let mut status = match ready {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let address = |kind: &str| {
        let found = items(node, "/status/addresses")
            .iter()
            .find(|address| text(address, "/type") == kind);
        or_none(found.map_or("", |address| text(address, "/address"))).to_owned()
    };
    json!([
        metadata_text(node, "name"),
        status,
        or_none(&roles.join(",")),
        age(metadata_text(node, "creationTimestamp"), now),
        text(node, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        text(node, "/status/nodeInfo/osImage"),
        text(node, "/status/nodeInfo/kernelVersion"),
        text(node, "/status/nodeInfo/containerRuntimeVersion"),
    ])
}

fn pod_cells(pod: &Value, now: Timestamp) -> Value {
    let statuses = items(pod, "/status/containerStatuses");
    let ready = statuses
        .iter()
        .filter(|status| status.get("ready") == Some(&json!(true)))
        .count();
    let restarts: i64 = statuses
        .iter()
        .filter_map(|status| status.get("restartCount")?.as_i64())
        .sum();
    let mut status = match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    };
    if super::defaults::is_gated(pod.get("spec").unwrap_or(&Value::Null)) {
        "SchedulingGated".clone_into(&mut status);
    }
    for container in statuses {
        for state in ["/state/waiting/reason", "/state/terminated/reason"] {
            let reason = text(container, state);
            if !reason.is_empty() {
                reason.clone_into(&mut status);
            }
        }
    }
    if is_deleting(pod) {
        "Terminating".clone_into(&mut status);
    }
    json!([
        metadata_text(pod, "name"),
        format!("{ready}/{}", items(pod, "/spec/containers").len()),
        status,
        restarts.to_string(),
        age(metadata_text(pod, "creationTimestamp"), now),
        or_none(text(pod, "/status/podIP")),
        or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        "<none>",
    ])
}

/// How long ago something was, as kubectl says it: the two largest units that tell something.
#[must_use]
pub fn age(since: &str, now: Timestamp) -> String {
    let Ok(since) = since.parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    let seconds = now.duration_since(since).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let with = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => with(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => with(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (seconds, wanted) in [
            (5, "5s"),
            (119, "119s"),
            (125, "2m5s"),
            (660, "11m"),
            (11_100, "3h5m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            let now = start
                .saturating_add(jiff::SignedDuration::from_secs(seconds))
                .unwrap();
            assert_eq!(age("2026-01-01T00:00:00Z", now), wanted);
        }
    }
}
