//! CustomResourceDefinitions: what the server says about them once it serves what they define.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::sim::objects::timestamp;

/// Sets defaults and the status of a definition that is served. What was established stays so.
pub fn establish(definition: &mut Value, now: Timestamp) {
    if !definition["spec"].is_object() {
        return;
    }
    let kind = definition
        .pointer("/spec/names/kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if definition["spec"]["names"].is_object() {
        for (field, value) in [
            ("singular", kind.to_lowercase()),
            ("listKind", format!("{kind}List")),
        ] {
            if definition["spec"]["names"]
                .get(field)
                .is_none_or(|present| present == "")
            {
                definition["spec"]["names"][field] = json!(value);
            }
        }
    }
    if definition["spec"].get("conversion").is_none() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let stored: Vec<String> = versions
        .into_iter()
        .flatten()
        .filter(|version| version.get("storage") == Some(&json!(true)))
        .filter_map(|version| version.get("name")?.as_str())
        .map(str::to_owned)
        .collect();
    let earlier = definition.pointer("/status/conditions").cloned();
    let conditions = earlier.filter(Value::is_array).unwrap_or_else(|| {
        let at = timestamp(now);
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at})
        };
        json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ])
    });
    let mut all_stored: Vec<String> = definition
        .pointer("/status/storedVersions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    for version in stored {
        if !all_stored.contains(&version) {
            all_stored.push(version);
        }
    }
    definition["status"] = json!({
        "acceptedNames": definition["spec"]["names"],
        "conditions": conditions,
        "storedVersions": all_stored,
    });
}
