//! An in-memory etcd with the semantics of an API server: every object of the embedded cluster, each
//! write with a revision of its own, and a bounded history that watches read from.
//!
//! Objects are JSON values behind `Arc`: a list of fifty thousand pods copies fifty thousand pointers.
//! One short lock guards everything and is never held across an await. The handle is cheap to clone.

mod history;
mod identity;
mod life;
mod refusal;
mod state;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ports::clock::Clock;

pub use self::{
    history::{Change, ChangeKind, Changes, Cursor, Gone},
    identity::{finalizers, is_deleting, metadata_text, micro_timestamp, timestamp},
    refusal::{Cause, Details, Refusal},
    state::{Keep, State},
};

/// What objects are stored under: an API group and a plural, whatever the version they are read in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The plural, such as `deployments`.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// A resource known at compile time.
    #[must_use]
    pub const fn new(group: &'static str, plural: &'static str) -> Self {
        Self {
            group: Cow::Borrowed(group),
            plural: Cow::Borrowed(plural),
        }
    }

    /// A resource known at run time.
    #[must_use]
    pub fn named(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self {
            group: Cow::Owned(group.into()),
            plural: Cow::Owned(plural.into()),
        }
    }

    /// True when this is the resource of that group and plural.
    #[must_use]
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// As Kubernetes names it in messages: `pods`, `deployments.apps`.
impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            formatter.write_str(&self.plural)
        } else {
            write!(formatter, "{}.{}", self.plural, self.group)
        }
    }
}

/// How the objects are kept.
#[derive(Clone, Debug)]
pub struct ObjectsOptions {
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// How many changes are remembered, per resource and over all.
    pub history: usize,
    /// UIDs and generated names derive from it.
    pub uid_seed: u64,
}

/// A list and the revision it is of.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Sorted by namespace and name.
    pub items: Vec<Arc<Value>>,
    /// Everything up to it is in the list.
    pub revision: u64,
}

/// How an object shall be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// How long a pod may take to end; its own grace period when not given.
    pub grace_seconds: Option<i64>,
    /// What shall become of the dependents; the finalizers present decide when not given.
    pub propagation: Option<Propagation>,
    /// Only if the object has this UID.
    pub uid: Option<String>,
    /// Only if the object is of this revision.
    pub resource_version: Option<String>,
}

impl Deletion {
    /// At once, without grace. Finalizers still hold.
    #[must_use]
    pub fn now() -> Self {
        Self {
            grace_seconds: Some(0),
            ..Self::default()
        }
    }
}

/// What shall become of an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// What a deletion came to.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is gone; this was its last state.
    Removed(Arc<Value>),
    /// Something holds it: a finalizer, or a grace period.
    Marked(Arc<Value>),
}

impl Deleted {
    /// The object, gone or going.
    #[must_use]
    pub fn object(&self) -> &Arc<Value> {
        match self {
            Self::Removed(object) | Self::Marked(object) => object,
        }
    }
}

/// Everything there is at one revision.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The revision.
    pub revision: u64,
    /// Every object and the resource it is stored under.
    pub objects: Vec<(Resource, Arc<Value>)>,
}

/// The objects of one cluster. A clone is another handle to the same ones.
#[derive(Clone, Debug)]
pub struct Objects {
    state: Arc<Mutex<State>>,
}

impl Objects {
    /// No objects at revision 1.
    #[must_use]
    pub fn new(options: ObjectsOptions) -> Self {
        Self {
            state: Arc::new(Mutex::new(State::new(options, 1))),
        }
    }

    /// The objects of a snapshot, with their UIDs and revisions. What happened before is gone.
    #[must_use]
    pub fn restore(options: ObjectsOptions, snapshot: Snapshot) -> Self {
        let mut state = State::new(options, snapshot.revision.max(1));
        for (resource, object) in snapshot.objects {
            state.insert_restored(resource, object);
        }
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// All objects with their revision.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        let objects = state.tables().flat_map(|(resource, table)| {
            let all = table
                .objects
                .values()
                .flat_map(std::collections::BTreeMap::values);
            all.map(move |object| (resource.clone(), Arc::clone(object)))
        });
        Snapshot {
            revision: state.revision(),
            objects: objects.collect(),
        }
    }

    /// Looks and writes under one lock. Keep it short: everybody else waits.
    pub fn atomically<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        action(&mut self.state.lock())
    }

    /// One object; `namespace` is empty for cluster-scoped ones.
    #[must_use]
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.state.lock().get(resource, namespace, name)
    }

    /// The objects of a namespace, or of all.
    #[must_use]
    pub fn list(&self, resource: &Resource, namespace: Option<&str>) -> Listed {
        let state = self.state.lock();
        Listed {
            items: state.each(resource, namespace).cloned().collect(),
            revision: state.revision(),
        }
    }

    /// The objects as they were at a revision that is still remembered.
    pub fn list_at(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Listed, Gone> {
        let mut state = self.state.lock();
        state.table(resource);
        let state = &*state;
        let Some(ring) = state.ring(resource) else {
            return Ok(Listed {
                items: Vec::new(),
                revision,
            });
        };
        let undone = ring.undo(revision)?;
        let mut items: Vec<Arc<Value>> = state
            .each(resource, namespace)
            .filter(|object| {
                !undone.contains_key(&(metadata_text(object, "namespace"), metadata_text(object, "name")))
            })
            .cloned()
            .collect();
        if !undone.is_empty() {
            let wanted = |key: &(&str, &str)| namespace.is_none_or(|namespace| namespace == key.0);
            let earlier = undone
                .iter()
                .filter(|(key, _)| wanted(key))
                .filter_map(|(_, object)| *object);
            items.extend(earlier.cloned());
            items.sort_by(|a, b| {
                let key = |object: &Value| {
                    (
                        metadata_text(object, "namespace").to_owned(),
                        metadata_text(object, "name").to_owned(),
                    )
                };
                key(a).cmp(&key(b))
            });
        }
        Ok(Listed { items, revision })
    }

    /// Adds an object and fills in what belongs to the server: name from `generateName`, UID, time of
    /// creation, resource version, generation.
    pub fn create(&self, resource: &Resource, object: Value) -> Result<Arc<Value>, Refusal> {
        self.state.lock().create(resource, object, Keep::Yes)
    }

    /// Reads, changes and writes in one step. Nothing changed = no new revision; a changed spec raises
    /// the generation; a deleting object without anything that holds it is removed.
    pub fn modify(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Arc<Value>, Refusal> {
        self.state
            .lock()
            .modify(resource, namespace, name, Keep::Yes, change)
    }

    /// Removes an object, or marks it as deleting while finalizers or a grace period hold it. A pod on a
    /// node stays until it is deleted again with a grace of 0, which the kubelet does.
    pub fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        deletion: Deletion,
    ) -> Result<Deleted, Refusal> {
        self.state
            .lock()
            .delete(resource, namespace, name, &deletion, Keep::Yes)
    }

    /// The changes of one resource after a revision, or from now on.
    pub fn subscribe(&self, resource: &Resource, after: Option<u64>) -> Result<Changes, Gone> {
        self.cursor(Some(resource), after).map(Changes::from)
    }

    /// The changes of every resource after a revision, or from now on.
    pub fn subscribe_all(&self, after: Option<u64>) -> Result<Changes, Gone> {
        self.cursor(None, after).map(Changes::from)
    }

    /// A list and the place in history right after it.
    pub fn list_and_follow(&self, resource: &Resource, namespace: Option<&str>) -> (Listed, Cursor) {
        let mut state = self.state.lock();
        let listed = Listed {
            items: state.each(resource, namespace).cloned().collect(),
            revision: state.revision(),
        };
        let wake = state.table(resource).ring.wake();
        let cursor = Cursor::new(self.clone(), Some(resource.clone()), listed.revision, wake);
        (listed, cursor)
    }

    /// A place in the history of one resource or of all.
    pub fn cursor(&self, resource: Option<&Resource>, after: Option<u64>) -> Result<Cursor, Gone> {
        let mut state = self.state.lock();
        let after = after.unwrap_or(state.revision());
        let ring = match resource {
            None => state.everything(),
            Some(resource) => &state.table(resource).ring,
        };
        ring.check(after)?;
        let wake = ring.wake();
        drop(state);
        Ok(Cursor::new(self.clone(), resource.cloned(), after, wake))
    }

    /// The present revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.state.lock().revision()
    }

    fn with_ring<T>(&self, resource: Option<&Resource>, read: impl FnOnce(&history::Ring, u64) -> T) -> T {
        let mut state = self.state.lock();
        let present = state.revision();
        match resource {
            None => read(state.everything(), present),
            Some(resource) => read(&state.table(resource).ring, present),
        }
    }
}
