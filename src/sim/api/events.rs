//! Events are one store with two faces: `v1` and `events.k8s.io/v1`. They are kept in the first form.

use serde_json::{Map, Value};

use super::kinds::Kind;

/// Field names: in `v1`, in `events.k8s.io/v1`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// True for the kind whose objects must be converted.
#[must_use]
pub fn is_new_form(kind: &Kind) -> bool {
    kind.group == "events.k8s.io"
}

fn renamed(object: &Value, name: impl Fn(&str) -> String) -> Value {
    let map = object.as_object().into_iter().flatten();
    let map: Map<String, Value> = map.map(|(key, value)| (name(key), value.clone())).collect();
    Value::Object(map)
}

/// From `v1` to `events.k8s.io/v1`.
#[must_use]
pub fn from_storage(object: &Value) -> Value {
    renamed(object, |key| {
        let known = NAMES.iter().find(|(old, _)| *old == key);
        known.map_or(key, |(_, new)| new).to_owned()
    })
}

/// From `events.k8s.io/v1` to `v1`.
#[must_use]
pub fn to_storage(object: &Value) -> Value {
    renamed(object, |key| {
        let known = NAMES.iter().find(|(_, new)| *new == key);
        known.map_or(key, |(old, _)| old).to_owned()
    })
}
