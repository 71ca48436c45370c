//! A consistent read of the whole store while it goes on working.
//!
//! sled has no snapshots. A cursor walks the keys in steps; of what is changed ahead of it, the value from
//! before is remembered until it has passed. So it sees exactly the commit it began with.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::{
    backend::{Backend, BackendError, From, Most},
    layout::{Meta, RawWrite, STATE_KEY, State},
    queue::{Inbox, Request},
};
use crate::ports::store::{Pair, StoreError};

/// What is read at once: the store's thread does nothing else meanwhile.
const STEP: Most = Most {
    pairs: 128,
    bytes: 1 << 20,
};

/// More than this is not remembered for a reader that does not keep up.
const MOST_REMEMBERED: usize = 64 << 20;

const MOST_CURSORS: usize = 4;

/// Values from before a commit, by key.
pub(super) type Before = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

#[derive(Debug, Default)]
pub(super) struct Cursors {
    open: BTreeMap<u64, Cursor>,
    last: u64,
}

#[derive(Debug, Default)]
struct Cursor {
    after: Vec<u8>,
    before: Before,
    remembered: usize,
    failed: Option<&'static str>,
}

/// The beginning of a snapshot.
#[derive(Debug)]
pub(super) struct Start {
    pub id: u64,
    pub state: State,
    pub meta: Meta,
}

/// One step: pairs as they are stored, and whether these were the last.
pub(super) type Step = (Vec<Pair>, bool);

impl Cursors {
    pub fn start(&mut self) -> Result<u64, StoreError> {
        self.open.retain(|_, cursor| cursor.failed.is_none());
        if self.open.len() >= MOST_CURSORS {
            return Err(StoreError::Unavailable {
                reason: format!("{MOST_CURSORS} backups or checks are under way: wait for one to end"),
            });
        }
        self.last = self.last.saturating_add(1);
        self.open.insert(self.last, Cursor::default());
        Ok(self.last)
    }

    pub fn end(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// The store was reopened: what the cursors saw may be undone.
    pub fn fail_all(&mut self) {
        for cursor in self.open.values_mut() {
            cursor.fail("the store was reopened meanwhile: start again");
        }
    }

    /// Remembers what a commit is about to hide.
    pub fn remember(&mut self, before: &Before) {
        for cursor in self.open.values_mut() {
            cursor.remember(before);
        }
    }

    pub fn step(&mut self, id: u64, backend: &dyn Backend) -> Result<Step, StoreError> {
        let cursor = self
            .open
            .get_mut(&id)
            .ok_or_else(|| unavailable("it has ended"))?;
        if let Some(reason) = cursor.failed {
            self.open.remove(&id);
            return Err(unavailable(reason));
        }
        let step = cursor
            .step(backend)
            .map_err(|error| unavailable(&error.to_string()))?;
        if step.1 {
            self.open.remove(&id);
        }
        Ok(step)
    }
}

fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable {
        reason: reason.to_owned(),
    }
}

impl Cursor {
    fn fail(&mut self, reason: &'static str) {
        self.failed = Some(reason);
        self.before.clear();
    }

    fn remember(&mut self, before: &Before) {
        if self.failed.is_some() {
            return;
        }
        for (key, value) in before {
            if *key > self.after && !self.before.contains_key(key) {
                let size = key.len() + value.as_ref().map_or(0, Vec::len);
                self.remembered = self.remembered.saturating_add(size);
                self.before.insert(key.clone(), value.clone());
            }
        }
        if self.remembered > MOST_REMEMBERED {
            self.fail("it was read too slowly while too much changed: start again");
        }
    }

    fn step(&mut self, backend: &dyn Backend) -> Result<Step, BackendError> {
        let pairs = backend.range(From::After(&self.after), STEP)?;
        let last = pairs.is_empty();
        let end = pairs.last().map(|(key, _)| key.clone());
        let mut seen: BTreeMap<Vec<u8>, Vec<u8>> = pairs.into_iter().collect();
        // What was remembered up to the end of this step stands in the place of what is there now.
        let passed = match &end {
            Some(end) => {
                let mut ahead = self.before.split_off(end);
                if let Some(at_end) = ahead.remove(end) {
                    self.before.insert(end.clone(), at_end);
                }
                std::mem::replace(&mut self.before, ahead)
            }
            None => std::mem::take(&mut self.before),
        };
        for (key, value) in passed {
            match value {
                Some(value) => seen.insert(key, value),
                None => seen.remove(&key),
            };
        }
        seen.remove(STATE_KEY);
        if let Some(end) = end {
            self.after = end;
        }
        Ok((seen.into_iter().collect(), last))
    }
}

/// Values from before, as writes that bring them back.
pub(super) fn undo(before: &Before) -> Vec<RawWrite> {
    before
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Reads one snapshot, step by step.
#[derive(Debug)]
pub(super) struct SnapshotReader {
    inbox: Inbox,
    id: u64,
    pub state: State,
    pub meta: Meta,
    done: bool,
}

impl SnapshotReader {
    pub async fn start(inbox: Inbox) -> Result<Self, StoreError> {
        let start = inbox.ask(|reply| Request::StartSnapshot { reply }).await?;
        Ok(Self {
            inbox,
            id: start.id,
            state: start.state,
            meta: start.meta,
            done: false,
        })
    }

    /// The next pairs as they are stored; nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Pair>>, StoreError> {
        if self.done {
            return Ok(None);
        }
        let id = self.id;
        let (pairs, done) = self
            .inbox
            .ask(|reply: oneshot::Sender<Result<Step, StoreError>>| Request::StepSnapshot { id, reply })
            .await?;
        self.done = done;
        Ok(Some(pairs))
    }
}

impl Drop for SnapshotReader {
    fn drop(&mut self) {
        if !self.done {
            self.inbox.tell(Request::EndSnapshot { id: self.id });
        }
    }
}
