//! `metadata.managedFields`: which manager owns which fields, how writes move ownership, and
//! server-side apply, which merges a manager's intent and refuses to take what others own.

use serde_json::{Map, Value, json};

use super::{
    fields::{FieldSet, compare, fields_of, item_element, readable, remove},
    kinds::Kind,
    shapes::{Shape, shape},
};
use crate::sim::objects::{Cause, Details, Refusal};

/// The manager of what was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, and through which endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The field manager.
    pub manager: String,
    /// The version written in.
    pub api_version: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The time, as Kubernetes writes it.
    pub now: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    manager: String,
    apply: bool,
    api_version: String,
    subresource: String,
    time: Value,
    fields: FieldSet,
}

fn parse(object: &Value) -> Vec<Entry> {
    let text = |entry: &Value, field: &str| {
        entry
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    entries
        .into_iter()
        .flatten()
        .map(|entry| Entry {
            manager: text(entry, "manager"),
            apply: entry.get("operation") == Some(&json!("Apply")),
            api_version: text(entry, "apiVersion"),
            subresource: text(entry, "subresource"),
            time: entry.get("time").cloned().unwrap_or(Value::Null),
            fields: entry.get("fieldsV1").map(FieldSet::parse).unwrap_or_default(),
        })
        .collect()
}

fn store(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    // Appliers first, then by age, then by name: the order of the real server.
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| {
            (
                !entry.apply,
                entry.time.as_str().unwrap_or_default().to_owned(),
                entry.manager.clone(),
            )
        };
        key(a).cmp(&key(b))
    });
    let rendered: Vec<Value> = entries
        .iter()
        .map(|entry| {
            let mut rendered = json!({
                "manager": entry.manager,
                "operation": if entry.apply { "Apply" } else { "Update" },
                "apiVersion": entry.api_version,
                "time": entry.time,
                "fieldsType": "FieldsV1",
                "fieldsV1": entry.fields.render(),
            });
            if !entry.subresource.is_empty() {
                rendered["subresource"] = json!(entry.subresource);
            }
            rendered
        })
        .collect();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if rendered.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(rendered));
    }
}

/// Records a create, an update or a patch: what was written belongs to the writer now.
/// `asked` is what the client sent as managedFields: one empty entry resets them.
pub fn record_update(kind: &Kind, before: &Value, after: &mut Value, asked: Option<&Value>, writer: &Writer) {
    if asked.is_some_and(|asked| *asked == json!([{}])) {
        store(after, Vec::new());
        return;
    }
    let mut entries = parse(before);
    let difference = compare(kind.custom, before, after);
    let written = difference.written.ownable(&writer.subresource, kind.status);
    let removed = difference.removed.ownable(&writer.subresource, kind.status);
    if !written.is_empty() || !removed.is_empty() {
        let taken = written.union(&removed);
        for entry in &mut entries {
            entry.fields = entry.fields.difference(&taken);
        }
        let own = |entry: &&mut Entry| {
            !entry.apply
                && entry.manager == writer.manager
                && entry.api_version == writer.api_version
                && entry.subresource == writer.subresource
        };
        if let Some(entry) = entries.iter_mut().find(own) {
            entry.fields = entry.fields.union(&written);
            entry.time = json!(writer.now);
        } else {
            entries.push(Entry {
                manager: writer.manager.clone(),
                apply: false,
                api_version: writer.api_version.clone(),
                subresource: writer.subresource.clone(),
                time: json!(writer.now),
                fields: written,
            });
        }
    }
    store(after, entries);
}

/// What an apply makes of the live object. `live` is null when there is none yet.
pub fn apply(
    kind: &Kind,
    live: &Value,
    intent: &Value,
    force: bool,
    writer: &Writer,
) -> Result<Value, Refusal> {
    let intent = within_endpoint(kind, intent, &writer.subresource);
    let applied = fields_of(kind.custom, &intent).ownable(&writer.subresource, kind.status);
    let mut entries = parse(live);
    if entries.is_empty() && !live.is_null() {
        entries.push(Entry {
            manager: BEFORE_FIRST_APPLY.to_owned(),
            apply: false,
            api_version: writer.api_version.clone(),
            subresource: String::new(),
            time: json!(writer.now),
            fields: fields_of(kind.custom, live).ownable(&writer.subresource, kind.status),
        });
    }
    let own = |entry: &Entry| {
        entry.apply && entry.manager == writer.manager && entry.subresource == writer.subresource
    };
    let (mine, mut others): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(own);
    let last = mine
        .iter()
        .fold(FieldSet::default(), |all, entry| all.union(&entry.fields));

    let base = if live.is_null() { json!({}) } else { live.clone() };
    let mut merged = base.clone();
    merge(kind.custom, &mut merged, &intent, &mut Vec::new());
    prune(kind, &mut merged, &last, &applied, &others);

    let difference = compare(kind.custom, &base, &merged);
    let conflicts: Vec<(usize, FieldSet)> = others
        .iter()
        .enumerate()
        .map(|(index, entry)| (index, entry.fields.intersection(&difference.written)))
        .filter(|(_, fields)| !fields.is_empty())
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(conflict(&others, &conflicts, &writer.subresource));
    }
    for entry in &mut others {
        entry.fields = entry
            .fields
            .difference(&difference.written)
            .difference(&difference.removed);
    }
    let unchanged = difference == super::fields::Difference::default() && last == applied;
    let time = match mine.first() {
        Some(entry) if unchanged => entry.time.clone(),
        _ => json!(writer.now),
    };
    others.push(Entry {
        manager: writer.manager.clone(),
        apply: true,
        api_version: writer.api_version.clone(),
        subresource: writer.subresource.clone(),
        time,
        fields: applied,
    });
    store(&mut merged, others);
    Ok(merged)
}

/// Removes what the manager applied before, applies no longer, and nobody else owns.
fn prune(kind: &Kind, merged: &mut Value, last: &FieldSet, applied: &FieldSet, others: &[Entry]) {
    let abandoned = last.difference(applied);
    let mut gone: Vec<&[String]> = Vec::new();
    // Outermost first: an item that goes takes everything in it along, defaults included.
    for path in abandoned.iter() {
        if gone.iter().any(|outer| path.starts_with(outer)) {
            continue;
        }
        let still_owned = applied.has_below(path)
            || others
                .iter()
                .any(|entry| entry.fields.has(path) || entry.fields.has_below(path));
        if !still_owned && !is_key_of_kept_item(path, applied, others) {
            remove(kind.custom, merged, path);
            gone.push(path);
        }
    }
}

/// The keys of a list item stay as long as the item does.
fn is_key_of_kept_item(path: &[String], applied: &FieldSet, others: &[Entry]) -> bool {
    let Some((field, item)) = path.split_last() else {
        return false;
    };
    let Some(keys) = item.last().and_then(|element| element.strip_prefix("k:")) else {
        return false;
    };
    let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
    let is_key = field
        .strip_prefix("f:")
        .is_some_and(|name| keys.contains_key(name));
    let item = item.to_vec();
    let kept = |set: &FieldSet| set.has(&item) || set.has_below(&item);
    is_key && (kept(applied) || others.iter().any(|entry| kept(&entry.fields)))
}

/// Puts an intent over an object: maps field by field, keyed lists item by item, the rest as a whole.
fn merge<'a>(custom: bool, target: &mut Value, intent: &'a Value, names: &mut Vec<&'a str>) {
    match (intent, &mut *target) {
        (Value::Object(wanted), Value::Object(present)) if shape(custom, names, false) == Shape::Fields => {
            for (name, value) in wanted {
                names.push(name);
                match present.get_mut(name) {
                    Some(below) => merge(custom, below, value, names),
                    None => {
                        present.insert(name.clone(), value.clone());
                    }
                }
                names.pop();
            }
        }
        (Value::Array(wanted), Value::Array(present)) => {
            let by = shape(custom, names, true);
            if by == Shape::Atomic || by == Shape::Fields {
                present.clone_from(wanted);
                return;
            }
            for item in wanted {
                let element = item_element(by, item);
                let same = present
                    .iter_mut()
                    .find(|other| element.is_some() && item_element(by, other) == element);
                match same {
                    Some(other) => merge(custom, other, item, names),
                    None => present.push(item.clone()),
                }
            }
        }
        _ => target.clone_from(intent),
    }
}

/// The part of an intent that this endpoint writes at all.
fn within_endpoint(kind: &Kind, intent: &Value, subresource: &str) -> Value {
    let mut intent = intent.clone();
    drop_nulls(&mut intent);
    if let Some(map) = intent.as_object_mut() {
        if subresource == "status" {
            map.retain(|field, _| field == "status");
        } else if kind.status {
            map.remove("status");
        }
    }
    intent
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn conflict(others: &[Entry], conflicts: &[(usize, FieldSet)], subresource: &str) -> Refusal {
    let mut causes = Vec::new();
    let mut said = Vec::new();
    for (index, fields) in conflicts {
        let Some(entry) = others.get(*index) else { continue };
        let mut who = format!("\"{}\"", entry.manager);
        if !entry.subresource.is_empty() && entry.subresource != subresource {
            who.push_str(&format!(" with subresource \"{}\"", entry.subresource));
        }
        if !entry.apply {
            who.push_str(&format!(" using {}", entry.api_version));
            if let Some(time) = entry.time.as_str() {
                who.push_str(&format!(" at {time}"));
            }
        }
        let paths: Vec<String> = fields.iter().map(|path| readable(path)).collect();
        said.push(match paths.as_slice() {
            [one] => format!("conflict with {who}: {one}"),
            many => format!("conflicts with {who}:\n- {}", many.join("\n- ")),
        });
        causes.extend(
            paths
                .into_iter()
                .map(|path| Cause::of("FieldManagerConflict", path, format!("conflict with {who}"))),
        );
    }
    let count = causes.len();
    let plural = if count == 1 { "" } else { "s" };
    Refusal {
        code: 409,
        reason: "Conflict",
        message: format!("Apply failed with {count} conflict{plural}: {}", said.join("\n")),
        details: Some(Box::new(Details {
            causes,
            ..Details::default()
        })),
        next: None,
    }
}
