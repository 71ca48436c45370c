//! Reads Node objects. Hostile ones too: what makes no sense becomes a problem of that node, by field.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::domain::{
    node::{ConditionStatus, NodeFacts, NodeName, NodeProblem, Resources, Taint},
    quantity::{Rounding, parse_milli, parse_units},
};

/// More than any honest node has; beyond it the rest is left out and said.
const MOST_ENTRIES: usize = 256;
/// Label values are at most this long in Kubernetes.
const LONGEST_TEXT: usize = 512;

/// The name of a node object.
pub(super) fn name_of(object: &Value) -> Option<NodeName> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str)?;
    (!name.is_empty()).then(|| NodeName::from(name))
}

/// What a node object says. Only one without a name says nothing.
pub(super) fn parse(object: &Value) -> Option<(NodeName, NodeFacts)> {
    let name = name_of(object)?;
    let mut problems = Vec::new();
    let facts = NodeFacts {
        uid: text_at(object, "/metadata/uid"),
        labels: labels(object, &mut problems),
        unschedulable: object
            .pointer("/spec/unschedulable")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        taints: taints(object, &mut problems),
        conditions: conditions(object),
        capacity: resources(object, "capacity", &mut problems),
        allocatable: resources(object, "allocatable", &mut problems),
        problems: Vec::new(),
    };
    problems.truncate(MOST_ENTRIES);
    Some((name, NodeFacts { problems, ..facts }))
}

fn problem(field: impl Into<String>, message: impl Into<String>) -> NodeProblem {
    NodeProblem {
        field: shortened(&field.into()),
        message: shortened(&message.into()),
    }
}

fn shortened(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(LONGEST_TEXT)
        .collect()
}

fn text_at(object: &Value, pointer: &str) -> String {
    shortened(
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default(),
    )
}

fn labels(object: &Value, problems: &mut Vec<NodeProblem>) -> BTreeMap<String, String> {
    let Some(labels) = object.pointer("/metadata/labels").and_then(Value::as_object) else {
        return BTreeMap::new();
    };
    if labels.len() > MOST_ENTRIES {
        problems.push(problem(
            "metadata.labels",
            format!("{} labels; the rest is left out", labels.len()),
        ));
    }
    let texts = labels
        .iter()
        .filter_map(|(key, value)| Some((shortened(key), shortened(value.as_str()?))));
    texts.take(MOST_ENTRIES).collect()
}

fn taints(object: &Value, problems: &mut Vec<NodeProblem>) -> Vec<Taint> {
    let Some(taints) = object.pointer("/spec/taints").and_then(Value::as_array) else {
        return Vec::new();
    };
    if taints.len() > MOST_ENTRIES {
        problems.push(problem(
            "spec.taints",
            format!("{} taints; the rest is left out", taints.len()),
        ));
    }
    let read = |taint: &Value| Taint {
        key: text_at(taint, "/key"),
        value: text_at(taint, "/value"),
        effect: text_at(taint, "/effect"),
    };
    taints.iter().take(MOST_ENTRIES).map(read).collect()
}

fn conditions(object: &Value) -> BTreeMap<String, ConditionStatus> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .take(MOST_ENTRIES)
        .map(|condition| {
            let status = match condition.get("status").and_then(Value::as_str) {
                Some("True") => ConditionStatus::True,
                Some("False") => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            };
            (text_at(condition, "/type"), status)
        })
        .collect()
}

fn resources(object: &Value, list: &str, problems: &mut Vec<NodeProblem>) -> Resources {
    let Some(quantities) = object
        .pointer(&format!("/status/{list}"))
        .and_then(Value::as_object)
    else {
        problems.push(problem(format!("status.{list}"), "missing"));
        return Resources::new();
    };
    let mut resources = Resources::new();
    for (name, quantity) in quantities.iter().take(MOST_ENTRIES) {
        let parsed = match quantity {
            Value::String(text) => parse_capacity(name, text),
            Value::Number(number) => parse_capacity(name, &number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                Err("not a quantity".to_owned())
            }
        };
        match parsed {
            Ok(amount) => drop(resources.insert(shortened(name), amount)),
            // What cannot be read is left out: unknown, not zero.
            Err(message) => problems.push(problem(format!("status.{list}.{name}"), message)),
        }
    }
    resources
}

fn parse_capacity(name: &str, text: &str) -> Result<i64, String> {
    let parse = if name == "cpu" { parse_milli } else { parse_units };
    parse(text, Rounding::Down).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ordinary_node_is_read() {
        let object = json!({
            "metadata": {"name": "node-1", "uid": "u1", "labels": {"zone": "a"}},
            "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "64", "memory": "256Gi"},
                "allocatable": {"cpu": "63500m", "memory": "250Gi", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "?"}],
            },
        });
        let (name, facts) = parse(&object).expect("readable");
        assert_eq!(name, NodeName::from("node-1"));
        assert_eq!(facts.allocatable["cpu"], 63_500);
        assert_eq!(facts.allocatable["memory"], 250 << 30);
        assert_eq!(facts.allocatable["nvidia.com/gpu"], 8);
        assert_eq!(facts.conditions["DiskPressure"], ConditionStatus::Unknown);
        assert!(facts.unschedulable && facts.problems.is_empty());
        assert_eq!(facts.taints[0].value, "");
    }

    #[test]
    fn a_hostile_node_loses_only_what_makes_no_sense() {
        let object = json!({
            "metadata": {"name": "evil", "labels": {"a": 5, "b": "x\ny"}, "annotations": {"big": "x".repeat(1 << 20)}},
            "spec": {"taints": "none"},
            "status": {
                "allocatable": {"cpu": "-4", "memory": "1e400", "pods": {}, "ephemeral-storage": "10Gi", "x": 3},
                "conditions": [7, {"type": "Ready"}],
            },
        });
        let (_, facts) = parse(&object).expect("it has a name");
        assert_eq!(
            facts.allocatable,
            Resources::from([("ephemeral-storage".into(), 10 << 30), ("x".into(), 3)])
        );
        let fields: Vec<&str> = facts
            .problems
            .iter()
            .map(|problem| problem.field.as_str())
            .collect();
        assert_eq!(
            fields,
            [
                "status.capacity",
                "status.allocatable.cpu",
                "status.allocatable.memory",
                "status.allocatable.pods"
            ]
        );
        assert_eq!(facts.labels, BTreeMap::from([("b".into(), "x y".into())]));
        assert_eq!(facts.conditions["Ready"], ConditionStatus::Unknown);
        assert!(parse(&json!({"metadata": {}})).is_none());
        assert!(parse(&json!("not an object")).is_none());
    }
}
