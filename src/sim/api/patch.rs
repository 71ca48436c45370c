//! Merge patch, JSON patch and strategic merge patch.

use serde_json::{Map, Value};

use super::shapes::merge_key;
use crate::sim::objects::Refusal;

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7396.
    Merge,
    /// RFC 6902.
    Json,
    /// Kubernetes' own: lists merge by their keys.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// Reads the content type of a patch; custom resources have no strategic merge.
    pub fn of(content_type: &str, custom: bool) -> Result<Self, Refusal> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/json-patch+json" => Ok(Self::Json),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => {
                let strategic = if custom {
                    ""
                } else {
                    "application/strategic-merge-patch+json, "
                };
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, {strategic}application/apply-patch+yaml"
                );
                Err(Refusal::new(415, "UnsupportedMediaType", message))
            }
        }
    }
}

/// Puts a patch on an object. Server-side apply is not done here.
pub fn patch(kind: PatchKind, object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    match kind {
        PatchKind::Merge => {
            if !patch.is_object() {
                return Err(Refusal::bad_request("a merge patch must be an object"));
            }
            json_patch::merge(object, patch);
            Ok(())
        }
        PatchKind::Json => {
            let operations: json_patch::Patch = serde_json::from_value(patch.clone())
                .map_err(|error| Refusal::bad_request(format!("the JSON patch cannot be read: {error}")))?;
            json_patch::patch(object, &operations).map_err(|error| {
                Refusal::new(
                    422,
                    "Invalid",
                    format!("the server rejected our request due to an error in our request: {error}"),
                )
            })
        }
        PatchKind::Strategic => {
            let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
                return Err(Refusal::bad_request("a strategic merge patch must be an object"));
            };
            merge_maps(object, patch, &mut Vec::new())
        }
        PatchKind::Apply => Err(Refusal::internal("an apply is not a patch of the stored object")),
    }
}

fn directive<'a>(patch: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    patch.get(name).and_then(Value::as_str)
}

fn merge_maps<'a>(
    target: &mut Map<String, Value>,
    patch: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
) -> Result<(), Refusal> {
    match directive(patch, "$patch") {
        None | Some("merge") => {}
        Some("replace") => {
            target.clear();
            target.extend(without_directives(patch));
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some(other) => {
            return Err(Refusal::bad_request(format!(
                "unknown $patch type found: {other}"
            )));
        }
    }
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        target.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(removed)) = (target.get_mut(field), value) {
                items.retain(|item| !removed.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        if value.is_null() {
            target.remove(key);
            continue;
        }
        path.push(key);
        let merged = merge_field(target, key, value, path);
        path.pop();
        merged?;
    }
    for (key, order) in patch {
        if let (Some(field), Value::Array(order)) = (key.strip_prefix("$setElementOrder/"), order) {
            path.push(field);
            reorder(target.get_mut(field), order, path);
            path.pop();
        }
    }
    Ok(())
}

fn merge_field<'a>(
    target: &mut Map<String, Value>,
    key: &str,
    value: &'a Value,
    path: &mut Vec<&'a str>,
) -> Result<(), Refusal> {
    match value {
        Value::Object(patch) => {
            let place = target.entry(key).or_insert(Value::Null);
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            let Value::Object(below) = place else {
                return Ok(());
            };
            merge_maps(below, patch, path)?;
            if directive(patch, "$patch") == Some("delete") {
                target.remove(key);
            }
            Ok(())
        }
        Value::Array(items) => {
            let Some(by) = merge_key(path) else {
                target.insert(key.to_owned(), Value::Array(plain_items(items)));
                return Ok(());
            };
            let place = target.entry(key).or_insert_with(|| Value::Array(Vec::new()));
            if !place.is_array() {
                *place = Value::Array(Vec::new());
            }
            let Value::Array(present) = place else {
                return Ok(());
            };
            merge_lists(present, items, by, path)
        }
        other => {
            target.insert(key.to_owned(), other.clone());
            Ok(())
        }
    }
}

fn merge_lists<'a>(
    present: &mut Vec<Value>,
    items: &'a [Value],
    by: &str,
    path: &mut Vec<&'a str>,
) -> Result<(), Refusal> {
    if by.is_empty() {
        for item in items {
            if !present.contains(item) {
                present.push(item.clone());
            }
        }
        return Ok(());
    }
    let replaces = |item: &Value| {
        item.as_object()
            .is_some_and(|item| item.len() == 1 && directive(item, "$patch") == Some("replace"))
    };
    if items.iter().any(replaces) {
        *present = plain_items(items);
        return Ok(());
    }
    for item in items {
        let Value::Object(item) = item else {
            return Err(Refusal::bad_request(format!(
                "every item of the list {} must be an object",
                path.join(".")
            )));
        };
        let Some(key) = item.get(by) else {
            return Err(Refusal::bad_request(format!(
                "map: {} does not contain declared merge key: {by}",
                Value::Object(item.clone())
            )));
        };
        let index = present.iter().position(|other| other.get(by) == Some(key));
        match (directive(item, "$patch"), index) {
            (Some("delete"), Some(_)) => present.retain(|other| other.get(by) != Some(key)),
            (Some("delete"), None) => {}
            (_, Some(index)) => {
                if let Some(Value::Object(other)) = present.get_mut(index) {
                    merge_maps(other, item, path)?;
                }
            }
            (_, None) => {
                let mut added = Map::new();
                merge_maps(&mut added, item, path)?;
                present.push(Value::Object(added));
            }
        }
    }
    Ok(())
}

/// Puts the items named in the order first where they stand in it; the others keep their places after.
fn reorder(list: Option<&mut Value>, order: &[Value], path: &[&str]) {
    let (Some(Value::Array(items)), Some(by)) = (list, merge_key(path)) else {
        return;
    };
    let rank = |item: &Value| {
        order
            .iter()
            .position(|wanted| {
                if by.is_empty() {
                    wanted == item
                } else {
                    wanted.get(by) == item.get(by)
                }
            })
            .unwrap_or(usize::MAX)
    };
    items.sort_by_key(rank);
}

fn plain_items(items: &[Value]) -> Vec<Value> {
    items
        .iter()
        .filter_map(|item| match item {
            Value::Object(map) => {
                let plain: Map<String, Value> = without_directives(map).collect();
                (!plain.is_empty() || map.is_empty()).then_some(Value::Object(plain))
            }
            other => Some(other.clone()),
        })
        .collect()
}

fn without_directives(map: &Map<String, Value>) -> impl Iterator<Item = (String, Value)> {
    map.iter()
        .filter(|(key, value)| !key.starts_with('$') && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn strategic(mut object: Value, change: Value) -> Value {
        patch(PatchKind::Strategic, &mut object, &change).unwrap();
        object
    }

    #[test]
    fn lists_with_a_key_merge_item_by_item() {
        let before = json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}});
        let change = json!({"spec": {"containers": [{"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]},
            {"name": "b", "$patch": "delete"}, {"name": "c"}]}});
        let after = strategic(before, change);
        assert_eq!(
            after,
            json!({"spec": {"containers": [
                {"name": "a", "image": "2", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}, {"name": "c"}]}})
        );
    }

    #[test]
    fn lists_without_a_key_are_replaced_and_null_removes() {
        let before = json!({"spec": {"tolerations": [{"key": "a"}], "nodeName": "x", "m": {"a": 1, "b": 2}}});
        let change = json!({"spec": {"tolerations": [{"key": "b"}], "nodeName": null, "m": {"$patch": "replace", "c": 3}}});
        assert_eq!(
            strategic(before, change),
            json!({"spec": {"tolerations": [{"key": "b"}], "m": {"c": 3}}})
        );
    }

    #[test]
    fn directives_delete_from_sets_and_set_the_order() {
        let before = json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"volumes": [{"name": "x"}, {"name": "y"}]}});
        let change = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
            "spec": {"$setElementOrder/volumes": [{"name": "z"}, {"name": "x"}, {"name": "y"}], "volumes": [{"name": "z"}]}});
        assert_eq!(
            strategic(before, change),
            json!({"metadata": {"finalizers": ["b", "c"]}, "spec": {"volumes": [{"name": "z"}, {"name": "x"}, {"name": "y"}]}})
        );
    }

    #[test]
    fn an_item_without_its_merge_key_is_refused() {
        let mut object = json!({"spec": {"containers": []}});
        let change = json!({"spec": {"containers": [{"image": "x"}]}});
        assert_eq!(
            patch(PatchKind::Strategic, &mut object, &change)
                .unwrap_err()
                .code,
            400
        );
    }

    #[test]
    fn unknown_formats_are_refused_and_custom_resources_have_no_strategic_merge() {
        assert_eq!(PatchKind::of("text/plain", false).unwrap_err().code, 415);
        let strategic = "application/strategic-merge-patch+json";
        assert_eq!(PatchKind::of(strategic, true).unwrap_err().code, 415);
        assert_eq!(PatchKind::of(strategic, false).unwrap(), PatchKind::Strategic);
    }
}
