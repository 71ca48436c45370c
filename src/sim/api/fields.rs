//! Sets of fields: who owns what of an object, and what differs between two, in the `FieldsV1` form.
//!
//! A path is a list of elements as `FieldsV1` writes them: `f:spec`, `k:{"name":"web"}`, `v:"x"`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::shapes::{Shape, key_default, shape};

/// The way to a field.
pub type Path = Vec<String>;

/// Fields of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(BTreeSet<Path>);

impl FieldSet {
    /// The fields in their stored form; what cannot be read is left out.
    #[must_use]
    pub fn parse(fields: &Value) -> Self {
        let mut set = BTreeSet::new();
        read(fields, &mut Vec::new(), &mut set);
        Self(set)
    }

    /// The stored form.
    #[must_use]
    pub fn render(&self) -> Value {
        let mut root = Map::new();
        for path in &self.0 {
            let mut place = &mut root;
            for (index, element) in path.iter().enumerate() {
                let last = index + 1 == path.len();
                let next = place.entry(element.clone()).or_insert_with(|| json!({}));
                let Value::Object(map) = next else { break };
                if last && self.has_below(path) {
                    map.insert(".".to_owned(), json!({}));
                }
                place = map;
            }
        }
        Value::Object(root)
    }

    /// True when a field strictly below the path is in the set.
    #[must_use]
    pub fn has_below(&self, path: &Path) -> bool {
        self.0
            .range((
                std::ops::Bound::Excluded(path.clone()),
                std::ops::Bound::Unbounded,
            ))
            .next()
            .is_some_and(|next| next.starts_with(path))
    }

    /// True when the field itself is in the set.
    #[must_use]
    pub fn has(&self, path: &Path) -> bool {
        self.0.contains(path)
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a field.
    pub fn insert(&mut self, path: Path) {
        self.0.insert(path);
    }

    /// Every field.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Path> {
        self.0.iter()
    }

    /// In either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).cloned().collect())
    }

    /// In both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).cloned().collect())
    }

    /// In this one only.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).cloned().collect())
    }

    /// Only the fields a manager can own at all.
    #[must_use]
    pub fn ownable(mut self, subresource: &str, has_status: bool) -> Self {
        self.0.retain(|path| ownable(path, subresource, has_status));
        self
    }
}

/// What belongs to the server, and what the endpoint does not write, has no owner.
fn ownable(path: &[String], subresource: &str, has_status: bool) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let by_server = matches!(
        path.as_slice(),
        ["f:apiVersion" | "f:kind", ..]
            | ["f:metadata"]
            | [
                "f:metadata",
                "f:name"
                    | "f:namespace"
                    | "f:uid"
                    | "f:resourceVersion"
                    | "f:creationTimestamp"
                    | "f:generation"
                    | "f:managedFields"
                    | "f:selfLink"
                    | "f:deletionTimestamp"
                    | "f:deletionGracePeriodSeconds",
                ..
            ]
    );
    let in_status = path.first() == Some(&"f:status");
    !by_server
        && match subresource {
            "status" => in_status,
            _ => !(in_status && has_status),
        }
}

fn read(fields: &Value, path: &mut Path, set: &mut BTreeSet<Path>) {
    for (element, below) in fields.as_object().into_iter().flatten() {
        if element == "." {
            set.insert(path.clone());
            continue;
        }
        path.push(element.clone());
        if below.as_object().is_none_or(Map::is_empty) {
            set.insert(path.clone());
        } else {
            read(below, path, set);
        }
        path.pop();
    }
}

/// The element of a field of a map.
#[must_use]
pub fn field_element(name: &str) -> String {
    format!("f:{name}")
}

/// The element of a list item, by its keys or its value; `None` when a key is missing.
#[must_use]
pub fn item_element(shape: Shape, item: &Value) -> Option<String> {
    match shape {
        Shape::Set => Some(format!("v:{item}")),
        Shape::Keyed(keys) => {
            let mut found = Map::new();
            for key in keys {
                let value = match item.get(key) {
                    Some(value) => value.clone(),
                    None => json!(key_default(key)?),
                };
                found.insert((*key).to_owned(), value);
            }
            Some(format!("k:{}", Value::Object(found)))
        }
        Shape::Atomic | Shape::Fields => None,
    }
}

/// A walk through an object: where it is, by elements and by names.
struct Walk<'a> {
    custom: bool,
    elements: Path,
    names: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn new(custom: bool) -> Self {
        Self {
            custom,
            elements: Vec::new(),
            names: Vec::new(),
        }
    }

    fn shape(&self, value: &Value) -> Shape {
        match value {
            Value::Object(_) => shape(self.custom, &self.names, false),
            Value::Array(_) => shape(self.custom, &self.names, true),
            _ => Shape::Atomic,
        }
    }

    fn field(&mut self, name: &'a str, visit: impl FnOnce(&mut Self)) {
        self.elements.push(field_element(name));
        self.names.push(name);
        visit(self);
        self.names.pop();
        self.elements.pop();
    }

    fn item(&mut self, element: String, visit: impl FnOnce(&mut Self)) {
        self.elements.push(element);
        visit(self);
        self.elements.pop();
    }
}

/// Every field an object has, as an applier owns them: leaves and list items.
#[must_use]
pub fn fields_of(custom: bool, object: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(&mut Walk::new(custom), object, &mut set);
    set
}

fn collect<'a>(walk: &mut Walk<'a>, value: &'a Value, set: &mut FieldSet) {
    match (walk.shape(value), value) {
        (Shape::Fields, Value::Object(map)) if !map.is_empty() => {
            for (name, below) in map {
                walk.field(name, |walk| collect(walk, below, set));
            }
        }
        (by @ (Shape::Keyed(_) | Shape::Set), Value::Array(items)) if !items.is_empty() => {
            for item in items {
                let Some(element) = item_element(by, item) else {
                    continue;
                };
                walk.item(element, |walk| {
                    set.insert(walk.elements.clone());
                    if matches!(by, Shape::Keyed(_)) {
                        collect(walk, item, set);
                    }
                });
            }
        }
        _ => set.insert(walk.elements.clone()),
    }
}

/// What differs between two objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// There now, and other than before or not there before.
    pub written: FieldSet,
    /// There before only.
    pub removed: FieldSet,
}

/// Compares two states of an object.
#[must_use]
pub fn compare(custom: bool, before: &Value, after: &Value) -> Difference {
    let mut difference = Difference::default();
    differ(&mut Walk::new(custom), before, after, &mut difference);
    difference
}

fn differ<'a>(walk: &mut Walk<'a>, before: &'a Value, after: &'a Value, difference: &mut Difference) {
    if before == after {
        return;
    }
    match (walk.shape(after), before, after) {
        (Shape::Fields, Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                walk.field(name, |walk| match old.get(name) {
                    Some(earlier) => differ(walk, earlier, value, difference),
                    None => all_of(walk, value, &mut difference.written),
                });
            }
            for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
                walk.field(name, |walk| all_of(walk, value, &mut difference.removed));
            }
        }
        (by @ (Shape::Keyed(_) | Shape::Set), Value::Array(old), Value::Array(new)) => {
            differ_items(walk, by, old, new, difference);
        }
        _ => {
            if !before.is_null() {
                all_below(walk, before, &mut difference.removed);
            }
            all_of(walk, after, &mut difference.written);
        }
    }
}

fn differ_items<'a>(
    walk: &mut Walk<'a>,
    by: Shape,
    old: &'a [Value],
    new: &'a [Value],
    difference: &mut Difference,
) {
    let find = |items: &'a [Value], element: &str| {
        items
            .iter()
            .find(|item| item_element(by, item).as_deref() == Some(element))
    };
    for item in new {
        let Some(element) = item_element(by, item) else {
            continue;
        };
        let earlier = find(old, &element);
        walk.item(element, |walk| match earlier {
            Some(earlier) if matches!(by, Shape::Keyed(_)) => differ(walk, earlier, item, difference),
            Some(_) => {}
            None => {
                difference.written.insert(walk.elements.clone());
                if matches!(by, Shape::Keyed(_)) {
                    all_of(walk, item, &mut difference.written);
                }
            }
        });
    }
    for item in old {
        let Some(element) = item_element(by, item) else {
            continue;
        };
        if find(new, &element).is_none() {
            walk.item(element, |walk| {
                difference.removed.insert(walk.elements.clone());
                if matches!(by, Shape::Keyed(_)) {
                    all_of(walk, item, &mut difference.removed);
                }
            });
        }
    }
}

/// A value that came or went: all its leaves, and itself where it holds others.
fn all_of<'a>(walk: &mut Walk<'a>, value: &'a Value, set: &mut FieldSet) {
    let holds = matches!(value, Value::Object(map) if !map.is_empty());
    // `metadata`, `spec` and their like belong to nobody; deeper maps do.
    if holds && walk.elements.len() > 1 {
        set.insert(walk.elements.clone());
    }
    collect(walk, value, set);
}

fn all_below<'a>(walk: &mut Walk<'a>, value: &'a Value, set: &mut FieldSet) {
    let mut below = FieldSet::default();
    collect(walk, value, &mut below);
    let here = walk.elements.clone();
    for path in below.iter().filter(|path| **path != here) {
        set.insert(path.clone());
    }
}

/// Removes the field at a path and the maps it leaves empty.
pub fn remove(custom: bool, object: &mut Value, path: &[String]) {
    remove_below(custom, object, path, &mut Vec::new());
}

fn remove_below(custom: bool, value: &mut Value, path: &[String], names: &mut Vec<String>) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if let (Some(name), Value::Object(map)) = (first.strip_prefix("f:"), &mut *value) {
        if rest.is_empty() {
            map.remove(name);
            return;
        }
        if let Some(below) = map.get_mut(name) {
            names.push(name.to_owned());
            remove_below(custom, below, rest, names);
            names.pop();
            let emptied = match below {
                Value::Object(map) => map.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            if emptied {
                map.remove(name);
            }
        }
        return;
    }
    let Value::Array(items) = value else { return };
    let names_here: Vec<&str> = names.iter().map(String::as_str).collect();
    let by = shape(custom, &names_here, true);
    let index = items
        .iter()
        .position(|item| item_element(by, item).as_ref() == Some(first));
    let Some(index) = index else { return };
    if rest.is_empty() {
        items.remove(index);
    } else if let Some(item) = items.get_mut(index) {
        remove_below(custom, item, rest, names);
    }
}

/// A path as people read it: `.spec.containers[name="web"].image`.
#[must_use]
pub fn readable(path: &[String]) -> String {
    let mut text = String::new();
    for element in path {
        if let Some(name) = element.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(keys) = element.strip_prefix("k:") {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            text.push_str(&format!("[{}]", keys.join(",")));
        } else if let Some(value) = element.strip_prefix("v:") {
            text.push_str(&format!("[={value}]"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(elements: &[&str]) -> Path {
        elements.iter().map(|element| (*element).to_owned()).collect()
    }

    #[test]
    fn fields_are_written_and_read_as_fields_v1() {
        let object = json!({"spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": "a"}]}}},
            "metadata": {"labels": {"app": "web"}, "finalizers": ["x/y"]}});
        let set = fields_of(false, &object);
        let rendered = set.render();
        let container = &rendered["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"web\"}"];
        assert_eq!(*container, json!({".": {}, "f:image": {}, "f:name": {}}));
        assert_eq!(rendered["f:metadata"]["f:finalizers"], json!({"v:\"x/y\"": {}}));
        assert_eq!(FieldSet::parse(&rendered), set);
    }

    #[test]
    fn differences_are_found_field_by_field_and_item_by_item() {
        let before = json!({"spec": {"a": 1, "b": {"c": 1}, "containers": [{"name": "x", "image": "1"}, {"name": "y"}]}});
        let after = json!({"spec": {"a": 2, "containers": [{"name": "x", "image": "2"}, {"name": "z"}]}});
        let difference = compare(false, &before, &after);
        assert!(difference.written.has(&path(&["f:spec", "f:a"])));
        assert!(difference.written.has(&path(&[
            "f:spec",
            "f:containers",
            "k:{\"name\":\"x\"}",
            "f:image"
        ])));
        assert!(
            !difference
                .written
                .has(&path(&["f:spec", "f:containers", "k:{\"name\":\"x\"}", "f:name"]))
        );
        assert!(
            difference
                .written
                .has(&path(&["f:spec", "f:containers", "k:{\"name\":\"z\"}"]))
        );
        assert!(difference.removed.has(&path(&["f:spec", "f:b", "f:c"])));
        assert!(
            difference
                .removed
                .has(&path(&["f:spec", "f:containers", "k:{\"name\":\"y\"}"]))
        );
    }

    #[test]
    fn lists_of_custom_resources_are_owned_as_a_whole() {
        let object = json!({"spec": {"containers": [{"name": "x"}]}});
        assert_eq!(
            fields_of(true, &object).render(),
            json!({"f:spec": {"f:containers": {}}})
        );
    }

    #[test]
    fn a_removed_field_takes_the_maps_it_empties_with_it() {
        let mut object = json!({"metadata": {"labels": {"a": "b"}, "name": "x"}});
        remove(false, &mut object, &path(&["f:metadata", "f:labels", "f:a"]));
        assert_eq!(object, json!({"metadata": {"name": "x"}}));
    }
}
