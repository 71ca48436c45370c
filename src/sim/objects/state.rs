//! The objects themselves, and every rule by which one may come, change and go. Used under the lock
//! of `Objects`; a caller that must look at one object before it writes another does both in one
//! `Objects::atomically`.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Change, ChangeKind, Deleted, Deletion, ObjectsOptions, Propagation, Refusal, Resource,
    history::Ring,
    identity::{Identities, finalizers, is_deleting, metadata_text, timestamp},
};

/// Whether a write is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is.
    Yes,
    /// Everything is checked and answered, nothing is stored: `dryRun=All`.
    DryRun,
}

/// The objects, as seen while the lock is held.
#[derive(Debug)]
pub struct State {
    options: ObjectsOptions,
    revision: u64,
    /// No change up to this revision is remembered: the store was restored there.
    restored_at: u64,
    tables: BTreeMap<Resource, Table>,
    everything: Ring,
    identities: Identities,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) objects: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
    pub(super) ring: Ring,
}

impl State {
    pub(super) fn new(options: ObjectsOptions, revision: u64) -> Self {
        Self {
            revision,
            restored_at: revision,
            tables: BTreeMap::new(),
            everything: Ring::new(options.history, revision),
            identities: Identities::new(options.uid_seed, revision > 1),
            options,
        }
    }

    pub(super) fn insert_restored(&mut self, resource: Resource, object: Arc<Value>) {
        let namespace = metadata_text(&object, "namespace").to_owned();
        let name = metadata_text(&object, "name").to_owned();
        let table = self.table(&resource);
        table.objects.entry(namespace).or_default().insert(name, object);
    }

    pub(super) fn table(&mut self, resource: &Resource) -> &mut Table {
        let (history, restored_at) = (self.options.history, self.restored_at);
        self.tables.entry(resource.clone()).or_insert_with(|| Table {
            objects: BTreeMap::new(),
            ring: Ring::new(history, restored_at),
        })
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = (&Resource, &Table)> {
        self.tables.iter()
    }

    pub(super) fn ring(&self, resource: &Resource) -> Option<&Ring> {
        self.tables.get(resource).map(|table| &table.ring)
    }

    pub(super) fn everything(&self) -> &Ring {
        &self.everything
    }

    /// The present revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.options.clock.wall()
    }

    /// One object.
    #[must_use]
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.tables
            .get(resource)?
            .objects
            .get(namespace)?
            .get(name)
            .cloned()
    }

    /// The objects of one namespace or of all, by namespace and name.
    pub fn each<'a>(
        &'a self,
        resource: &Resource,
        namespace: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Value>> + 'a> {
        let Some(table) = self.tables.get(resource) else {
            return Box::new(std::iter::empty());
        };
        match namespace {
            None => Box::new(table.objects.values().flat_map(BTreeMap::values)),
            Some(namespace) => Box::new(
                table
                    .objects
                    .get(namespace)
                    .into_iter()
                    .flat_map(BTreeMap::values),
            ),
        }
    }

    /// Adds an object; see `Objects::create`.
    pub fn create(
        &mut self,
        resource: &Resource,
        mut object: Value,
        keep: Keep,
    ) -> Result<Arc<Value>, Refusal> {
        let revision = self.next_revision()?;
        let created_at = timestamp(self.now());
        let namespace = metadata_text(&object, "namespace").to_owned();
        let name = self.name_of_new(resource, &namespace, &object, revision)?;
        let metadata = metadata_of(&mut object)?;
        let version = metadata.get("resourceVersion").and_then(Value::as_str);
        if version.is_some_and(|version| !version.is_empty() && version != "0") {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::new(500, "", message));
        }
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(field);
        }
        metadata.insert("name".to_owned(), json!(name));
        metadata.insert(
            "uid".to_owned(),
            json!(self.identities.uid(resource, &namespace, &name, revision)),
        );
        metadata.insert("creationTimestamp".to_owned(), json!(created_at));
        metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
        if has_generation(resource) {
            metadata.insert("generation".to_owned(), json!(1));
        } else {
            metadata.remove("generation");
        }
        let object = Arc::new(object);
        if keep == Keep::Yes {
            self.put(resource, &namespace, &name, Arc::clone(&object), None, revision);
        }
        Ok(object)
    }

    fn name_of_new(
        &self,
        resource: &Resource,
        namespace: &str,
        object: &Value,
        revision: u64,
    ) -> Result<String, Refusal> {
        let name = metadata_text(object, "name");
        if !name.is_empty() {
            return match self.get(resource, namespace, name) {
                Some(_) => Err(Refusal::already_exists(resource, name)),
                None => Ok(name.to_owned()),
            };
        }
        let prefix = metadata_text(object, "generateName");
        if prefix.is_empty() {
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or("Object");
            let cause = super::Cause::required("metadata.name", "name or generateName is required");
            return Err(Refusal::invalid(&resource.group, kind, "", vec![cause]));
        }
        (0..8)
            .map(|attempt| self.identities.generated_name(prefix, revision, attempt))
            .find(|name| self.get(resource, namespace, name).is_none())
            .ok_or_else(|| Refusal::already_exists(resource, prefix))
    }

    /// Changes an object; see `Objects::modify`.
    pub fn modify(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        keep: Keep,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Arc<Value>, Refusal> {
        let before = self
            .get(resource, namespace, name)
            .ok_or_else(|| Refusal::not_found(resource, name))?;
        let mut after = Value::clone(&before);
        change(&mut after)?;
        keep_system_fields(&before, &mut after)?;
        self.write(resource, namespace, name, before, after, keep)
    }

    /// Stores what an object has become, if it has become anything else, and removes it when nothing
    /// holds a deleting object any more.
    fn write(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        before: Arc<Value>,
        mut after: Value,
        keep: Keep,
    ) -> Result<Arc<Value>, Refusal> {
        if after == *before {
            return Ok(before);
        }
        let revision = self.next_revision()?;
        let spec_changed = has_generation(resource) && intent_differs(&before, &after);
        let metadata = metadata_of(&mut after)?;
        metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
        if spec_changed {
            raise_generation(metadata);
        }
        let released = is_released(resource, &after);
        let after = Arc::new(after);
        if keep == Keep::DryRun {
            return Ok(after);
        }
        if released {
            self.remove(resource, namespace, name, Arc::clone(&after), revision);
        } else {
            self.put(
                resource,
                namespace,
                name,
                Arc::clone(&after),
                Some(before),
                revision,
            );
        }
        Ok(after)
    }

    /// Deletes an object, or marks it as deleting while something holds it; see `Objects::delete`.
    pub fn delete(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        deletion: &Deletion,
        keep: Keep,
    ) -> Result<Deleted, Refusal> {
        let before = self
            .get(resource, namespace, name)
            .ok_or_else(|| Refusal::not_found(resource, name))?;
        check_preconditions(resource, name, &before, deletion)?;
        let mut after = Value::clone(&before);
        let metadata = metadata_of(&mut after)?;
        propagate(metadata, deletion.propagation);
        let grace = grace_of(resource, &before, deletion);
        let held = grace > 0
            || !metadata
                .get("finalizers")
                .is_none_or(|list| list.as_array().is_none_or(Vec::is_empty))
            || holds_namespace(resource, &before);
        if !held {
            let revision = self.next_revision()?;
            metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
            let after = Arc::new(after);
            if keep == Keep::Yes {
                self.remove(resource, namespace, name, Arc::clone(&after), revision);
            }
            return Ok(Deleted::Removed(after));
        }
        mark_deleting(metadata, &before, self.now(), grace);
        if resource.is("", "namespaces") {
            after["status"]["phase"] = json!("Terminating");
        }
        let after = self.write(resource, namespace, name, before, after, keep)?;
        Ok(Deleted::Marked(after))
    }

    fn next_revision(&self) -> Result<u64, Refusal> {
        self.revision
            .checked_add(1)
            .ok_or_else(|| Refusal::internal("revisions are used up"))
    }

    fn put(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        object: Arc<Value>,
        previous: Option<Arc<Value>>,
        revision: u64,
    ) {
        let names = self
            .table(resource)
            .objects
            .entry(namespace.to_owned())
            .or_default();
        names.insert(name.to_owned(), Arc::clone(&object));
        let kind = if previous.is_none() {
            ChangeKind::Added
        } else {
            ChangeKind::Modified
        };
        self.record(resource, kind, object, previous, revision);
    }

    fn remove(&mut self, resource: &Resource, namespace: &str, name: &str, last: Arc<Value>, revision: u64) {
        let table = self.table(resource);
        let mut previous = None;
        if let Some(names) = table.objects.get_mut(namespace) {
            previous = names.remove(name);
            if names.is_empty() {
                table.objects.remove(namespace);
            }
        }
        self.identities.removed(resource, namespace, name);
        self.record(resource, ChangeKind::Deleted, last, previous, revision);
    }

    fn record(
        &mut self,
        resource: &Resource,
        kind: ChangeKind,
        object: Arc<Value>,
        previous: Option<Arc<Value>>,
        revision: u64,
    ) {
        self.revision = revision;
        let change = Change {
            kind,
            resource: resource.clone(),
            object,
            previous,
            revision,
        };
        self.everything.push(change.clone());
        self.table(resource).ring.push(change);
    }
}

fn metadata_of(object: &mut Value) -> Result<&mut Map<String, Value>, Refusal> {
    object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or_else(|| Refusal::bad_request("the object has no metadata"))
}

/// Kinds whose `metadata.generation` a real server keeps: the core group has it on pods only, and what
/// has no spec has none.
fn has_generation(resource: &Resource) -> bool {
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
fn intent_differs(before: &Value, after: &Value) -> bool {
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

fn raise_generation(metadata: &mut Map<String, Value>) {
    let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    metadata.insert("generation".to_owned(), json!(generation.saturating_add(1)));
}

/// What belongs to the server stays as it was, whatever a writer made of it.
fn keep_system_fields(before: &Value, after: &mut Value) -> Result<(), Refusal> {
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
fn is_released(resource: &Resource, object: &Value) -> bool {
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
fn holds_namespace(resource: &Resource, object: &Value) -> bool {
    resource.is("", "namespaces")
        && object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
}

fn check_preconditions(
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
fn propagate(metadata: &mut Map<String, Value>, propagation: Option<Propagation>) {
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
fn grace_of(resource: &Resource, object: &Value, deletion: &Deletion) -> i64 {
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
fn mark_deleting(metadata: &mut Map<String, Value>, before: &Value, now: Timestamp, grace: i64) {
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
