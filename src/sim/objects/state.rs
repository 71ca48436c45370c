//! The objects themselves, and every rule by which one may come, change and go. Used under the lock
//! of `Objects`; a caller that must look at one object before it writes another does both in one
//! `Objects::atomically`.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Change, ChangeKind, Deleted, Deletion, ObjectsOptions, Refusal, Resource,
    history::Ring,
    identity::{Identities, metadata_text, timestamp},
    life::{
        check_preconditions, grace_of, has_generation, holds_namespace, intent_differs, is_released,
        keep_system_fields, mark_deleting, metadata_of, propagate, raise_generation,
    },
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
