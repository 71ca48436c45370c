//! Reading and writing Kubernetes objects as JSON documents.
//!
//! The controllers take what they need by path and leave the rest alone, so that a strange object is at
//! worst an object with nothing in it, never a parse error that stops a controller.

use serde_json::{Map, Value, json};

/// The namespace (empty for cluster-wide objects) and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// A key from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The key of an object.
    pub fn of(object: &Value) -> Self {
        Self::new(text(object, "metadata.namespace"), text(object, "metadata.name"))
    }
}

/// The value at a path of plain field names parted by dots.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, field| value.get(field))
}

/// The text at a path; empty when there is none.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a path.
pub fn integer(object: &Value, path: &str) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// Whether the path holds `true`.
pub fn flag(object: &Value, path: &str) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or(false)
}

/// The list at a path; empty when there is none.
pub fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The fields at a path.
pub fn fields<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(object, path).and_then(Value::as_object).into_iter().flatten()
}

/// A label's value.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, "metadata.labels")?.get(key)?.as_str()
}

/// An annotation's value.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, "metadata.annotations")?.get(key)?.as_str()
}

/// Whether deletion was asked for.
pub fn is_terminating(object: &Value) -> bool {
    at(object, "metadata.deletionTimestamp").is_some_and(|value| !value.is_null())
}

/// Sets the value at a path, making the objects on the way.
pub fn set(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for field in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Some(inner) = place.as_object_mut() else {
            return;
        };
        place = inner.entry(field).or_insert(Value::Null);
    }
    *place = value;
}

/// Removes the field at a path.
pub fn remove(object: &mut Value, path: &str) {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    let mut place = object;
    if !parent.is_empty() {
        for step in parent.split('.') {
            match place.get_mut(step) {
                Some(inner) => place = inner,
                None => return,
            }
        }
    }
    if let Some(map) = place.as_object_mut() {
        map.remove(field);
    }
}

/// Sets a key that may hold dots in the map at a path.
pub fn set_entry(object: &mut Value, path: &str, key: &str, value: Value) {
    if at(object, path).is_none_or(|map| !map.is_object()) {
        set(object, path, json!({}));
    }
    let mut place = object;
    for step in path.split('.') {
        match place.get_mut(step) {
            Some(inner) => place = inner,
            None => return,
        }
    }
    if let Some(map) = place.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

/// The owner reference that says who manages this object.
pub fn controller(object: &Value) -> Option<&Value> {
    list(object, "metadata.ownerReferences")
        .iter()
        .find(|owner| flag(owner, "controller"))
}

/// The owner reference that makes `owner` the manager of a new object.
pub fn owned_by(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": text(owner, "metadata.name"),
        "uid": text(owner, "metadata.uid"), "controller": true, "blockOwnerDeletion": true}])
}

/// The status of a condition: `True`, `False`, `Unknown`, or empty when it is not there.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    find_condition(object, kind).map_or("", |condition| text(condition, "status"))
}

/// A condition by its type.
pub fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "status.conditions")
        .iter()
        .find(|condition| text(condition, "type") == kind)
}

/// Sets a condition; its transition time moves only when its status does.
pub fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let before = find_condition(object, kind);
    let since = before
        .filter(|condition| text(condition, "status") == status)
        .map_or(now, |condition| text(condition, "lastTransitionTime"))
        .to_owned();
    let mut condition = before.cloned().unwrap_or_else(|| json!({}));
    for (field, value) in [
        ("type", kind),
        ("status", status),
        ("lastTransitionTime", since.as_str()),
    ] {
        set(&mut condition, field, json!(value));
    }
    for (field, value) in [("reason", reason), ("message", message)] {
        if value.is_empty() {
            remove(&mut condition, field);
        } else {
            set(&mut condition, field, json!(value));
        }
    }
    let mut conditions = list(object, "status.conditions").to_vec();
    match conditions.iter_mut().find(|other| text(other, "type") == kind) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
    set(object, "status.conditions", Value::Array(conditions));
}

/// Whether labels match a selector (`matchLabels` and `matchExpressions`); an absent one matches nothing.
pub fn selects(selector: Option<&Value>, object: &Value) -> bool {
    let Some(selector) = selector.filter(|selector| selector.is_object()) else {
        return false;
    };
    let empty = Value::Null;
    let labels = at(object, "metadata.labels").unwrap_or(&empty);
    fields(selector, "matchLabels").all(|(key, wanted)| labels.get(key) == Some(wanted))
        && list(selector, "matchExpressions")
            .iter()
            .all(|expression| meets(expression, labels))
}

/// Whether labels meet one requirement of a selector or a node affinity.
pub fn meets(expression: &Value, labels: &Value) -> bool {
    let actual = labels.get(text(expression, "key")).and_then(Value::as_str);
    let listed = |value: &str| {
        list(expression, "values")
            .iter()
            .any(|other| other.as_str() == Some(value))
    };
    let number = || actual.and_then(|value| value.parse::<i64>().ok());
    let bound = || list(expression, "values").first()?.as_str()?.parse::<i64>().ok();
    match text(expression, "operator") {
        "In" => actual.is_some_and(listed),
        "NotIn" => !actual.is_some_and(listed),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => number().zip(bound()).is_some_and(|(value, bound)| value > bound),
        "Lt" => number().zip(bound()).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// Whether every label of a plain map (a Service's selector) is on the object; an empty map selects nothing.
pub fn selects_plainly(selector: Option<&Value>, object: &Value) -> bool {
    let Some(wanted) = selector.and_then(Value::as_object).filter(|map| !map.is_empty()) else {
        return false;
    };
    let labels = at(object, "metadata.labels");
    wanted
        .iter()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// A short name for a document's content, in the letters Kubernetes uses for generated names.
pub fn digest(parts: &[&[u8]]) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.iter().chain(&[0xff]) {
            state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    state ^= state >> 29;
    let base = LETTERS.len() as u64;
    (0..10)
        .map(|_| {
            let letter = usize::try_from(state % base)
                .ok()
                .and_then(|place| LETTERS.get(place));
            state = (state / base).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
            char::from(letter.copied().unwrap_or(b'b'))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_transition_time_until_its_status_changes() {
        let mut object = json!({});
        set_condition(&mut object, "Ready", "False", "Starting", "wait", "t1");
        set_condition(&mut object, "Ready", "False", "StillStarting", "wait", "t2");
        assert_eq!(
            text(find_condition(&object, "Ready").unwrap(), "lastTransitionTime"),
            "t1"
        );
        set_condition(&mut object, "Ready", "True", "", "", "t3");
        let ready = find_condition(&object, "Ready").unwrap();
        assert_eq!(text(ready, "lastTransitionTime"), "t3");
        assert!(ready.get("reason").is_none());
    }

    #[test]
    fn selectors_read_labels_and_expressions() {
        let object = json!({"metadata": {"labels": {"app": "web", "size": "5"}}});
        let matching = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web", "db"]},
            {"key": "gone", "operator": "DoesNotExist"},
            {"key": "size", "operator": "Gt", "values": ["4"]}]});
        assert!(selects(Some(&matching), &object));
        assert!(!selects(Some(&json!({"matchLabels": {"app": "db"}})), &object));
        assert!(!selects(None, &object));
        assert!(selects(Some(&json!({})), &object));
        assert!(!selects_plainly(Some(&json!({})), &object));
    }

    #[test]
    fn set_and_remove_reach_through_missing_and_wrong_parents() {
        let mut object = json!({"spec": "nonsense"});
        set(&mut object, "spec.deep.value", json!(1));
        assert_eq!(integer(&object, "spec.deep.value"), Some(1));
        remove(&mut object, "spec.deep.value");
        remove(&mut object, "not.there");
        assert_eq!(object, json!({"spec": {"deep": {}}}));
        set_entry(&mut object, "metadata.labels", "a.b/c", json!("d"));
        assert_eq!(label(&object, "a.b/c"), Some("d"));
    }
}
