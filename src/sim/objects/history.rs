//! What happened lately: a bounded ring of changes per resource and one over all, and readers of it.
//!
//! A reader holds nothing but the revision it has come to. It reads from the ring under a short lock, so
//! a slow reader never holds up a writer; one that falls off the end is told that the past is gone.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use futures::{Stream, StreamExt, stream::BoxStream};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::watch;

use super::{Objects, Resource, metadata_text};

/// Objects by namespace and name, as they were.
pub(super) type Undone<'a> = BTreeMap<(&'a str, &'a str), Option<&'a Arc<Value>>>;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone; the change holds its last state.
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// To which resource.
    pub resource: Resource,
    /// The object after it.
    pub object: Arc<Value>,
    /// The object before it.
    pub previous: Option<Arc<Value>>,
    /// The revision it made.
    pub revision: u64,
}

/// Changes after the revision asked for are no longer remembered: list again.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("changes after revision {after} are forgotten, the oldest kept is {oldest}: list again")]
pub struct Gone {
    /// Where the reader was.
    pub after: u64,
    /// The revision from which changes are kept.
    pub oldest: u64,
}

/// About how many bytes of objects one ring keeps: a few large ones must not fill the memory.
const MOST_BYTES: usize = 32 << 20;

/// About how many bytes an object takes.
fn weight(value: &Value) -> usize {
    const EACH: usize = 32;
    EACH + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| EACH + key.len() + weight(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// The last changes of one resource, or of all.
#[derive(Debug)]
pub(super) struct Ring {
    changes: VecDeque<Change>,
    /// What each of the changes weighs, and all together.
    weights: VecDeque<usize>,
    weight: usize,
    capacity: usize,
    /// Changes up to this revision are forgotten.
    forgotten: u64,
    wake: watch::Sender<u64>,
}

impl Ring {
    pub(super) fn new(capacity: usize, forgotten: u64) -> Self {
        Self {
            changes: VecDeque::new(),
            weights: VecDeque::new(),
            weight: 0,
            capacity: capacity.max(1),
            forgotten,
            wake: watch::Sender::new(forgotten),
        }
    }

    pub(super) fn push(&mut self, change: Change) {
        let weight = weight(&change.object);
        while self.changes.len() >= self.capacity || self.weight.saturating_add(weight) > MOST_BYTES {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.weight -= self.weights.pop_front().unwrap_or_default();
            self.forgotten = oldest.revision;
        }
        let revision = change.revision;
        self.changes.push_back(change);
        self.weights.push_back(weight);
        self.weight += weight;
        self.wake.send_replace(revision);
    }

    pub(super) fn check(&self, after: u64) -> Result<(), Gone> {
        if after < self.forgotten {
            return Err(Gone {
                after,
                oldest: self.forgotten,
            });
        }
        Ok(())
    }

    pub(super) fn wake(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    /// Every object that changed after a revision, as it was then; `None` for those that were not there.
    pub(super) fn undo(&self, revision: u64) -> Result<Undone<'_>, Gone> {
        self.check(revision)?;
        let start = self.changes.partition_point(|change| change.revision <= revision);
        let mut undone = BTreeMap::new();
        for change in self.changes.iter().skip(start) {
            let key = (
                metadata_text(&change.object, "namespace"),
                metadata_text(&change.object, "name"),
            );
            undone.entry(key).or_insert(change.previous.as_ref());
        }
        Ok(undone)
    }

    fn read(&self, after: u64, limit: usize) -> Result<Vec<Change>, Gone> {
        self.check(after)?;
        let start = self.changes.partition_point(|change| change.revision <= after);
        Ok(self.changes.iter().skip(start).take(limit).cloned().collect())
    }
}

/// A place in the history that can be read on from.
pub struct Cursor {
    objects: Objects,
    resource: Option<Resource>,
    after: u64,
    wake: watch::Receiver<u64>,
}

impl fmt::Debug for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cursor")
            .field("resource", &self.resource)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

/// How many changes are read under one lock.
const BATCH: usize = 256;

impl Cursor {
    pub(super) fn new(
        objects: Objects,
        resource: Option<Resource>,
        after: u64,
        wake: watch::Receiver<u64>,
    ) -> Self {
        Self {
            objects,
            resource,
            after,
            wake,
        }
    }

    /// The changes that are there by now, possibly none, and moves past them. When all are read,
    /// `revision()` is the present one: everything up to it has been seen.
    pub fn read(&mut self) -> Result<Vec<Change>, Gone> {
        self.wake.borrow_and_update();
        let after = self.after;
        let (changes, present) = self.objects.with_ring(self.resource.as_ref(), |ring, present| {
            (ring.read(after, BATCH), present)
        });
        let changes = changes?;
        self.after = match changes.last() {
            Some(last) if changes.len() == BATCH => last.revision,
            _ => present,
        };
        if changes.len() == BATCH {
            // There may be more: the next wait must not sleep over it.
            self.wake.mark_changed();
        }
        Ok(changes)
    }

    /// The revision up to which everything was read.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.after
    }

    /// Waits until there may be something to read.
    pub async fn changed(&mut self) {
        if self.wake.changed().await.is_err() {
            // The ring lives as long as the objects, and this cursor holds them.
            futures::future::pending::<()>().await;
        }
    }
}

/// A stream of changes; it ends after the one error it can give.
pub struct Changes(BoxStream<'static, Result<Change, Gone>>);

impl fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Changes")
    }
}

impl From<Cursor> for Changes {
    fn from(cursor: Cursor) -> Self {
        let batches = futures::stream::unfold(Some(cursor), |cursor| async move {
            let mut cursor = cursor?;
            loop {
                match cursor.read() {
                    Err(gone) => return Some((vec![Err(gone)], None)),
                    Ok(changes) if changes.is_empty() => cursor.changed().await,
                    Ok(changes) => return Some((changes.into_iter().map(Ok).collect(), Some(cursor))),
                }
            }
        });
        Self(batches.flat_map(futures::stream::iter).boxed())
    }
}

impl Stream for Changes {
    type Item = Result<Change, Gone>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}
