//! The store's thread: the only one that touches the disk.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    acknowledged::Acknowledged,
    backend::{Backend, BackendError, Opener, read_state, take_census},
    directory::Lock,
    layout::{self, META_KEY, Meta, STATE_KEY, State},
    options::{FreeSpace, OnFlush},
    queue::{MetaChange, Reply, Request, Shared, unavailable},
    read::ReadError,
    snapshot::{self, Before, Cursors, Start},
};
use crate::ports::{
    clock::Clock,
    store::{Batch, Effect, StoreError, Write, printable, record},
};

/// At most this many calls, or bytes, become one commit.
const GROUP: usize = 4096;
const GROUP_BYTES: usize = 8 << 20;

/// How often the thread looks after itself when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// How often the acknowledged mark is made to survive a loss of power.
const MARK_EVERY: Duration = Duration::from_secs(5);

const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Everything the thread owns.
#[derive(Debug)]
pub(super) struct Writer {
    pub path: PathBuf,
    pub opener: Box<dyn Opener>,
    /// None while it is being reopened.
    pub backend: Option<Box<dyn Backend>>,
    pub acknowledged: Acknowledged,
    /// As of the last acknowledged commit.
    pub state: State,
    pub meta: Meta,
    pub clock: Arc<dyn Clock>,
    pub min_free: u64,
    pub free_space: FreeSpace,
    pub on_flush: OnFlush,
    pub shared: Arc<Shared>,
    pub upkeep: Upkeep,
    pub fences: BTreeMap<String, u64>,
    pub cursors: Cursors,
    pub broken: Option<Broken>,
    pub lock: Lock,
}

/// What is done now and then.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    looked_at: Option<Duration>,
    marked_at: Duration,
    free: Option<u64>,
}

/// A commit failed: nothing is acknowledged until this is mended.
#[derive(Debug)]
pub(super) struct Broken {
    pub reason: String,
    before: Before,
    retry_at: Duration,
    retry_after: Duration,
}

struct Waiting {
    work: Work,
    writes: Vec<Write>,
}

enum Work {
    Batch(Reply<()>),
    Meta(Meta, Reply<Meta>),
}

impl Writer {
    /// Works until it is closed; gives back whom to tell once everything is let go.
    pub fn run(mut self, inbox: &Receiver<Request>) -> Option<(Reply<()>, Result<(), StoreError>)> {
        self.look_after(true);
        loop {
            let wait = if self.broken.is_some() { FIRST_RETRY } else { TICK };
            let first = match inbox.recv_timeout(wait) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    // Everything acknowledged is durable; the next start sees that it was not closed.
                    if let Some(backend) = self.backend.take() {
                        let _ = backend.close();
                    }
                    return None;
                }
            };
            if self.broken.is_some() {
                self.mend();
            }
            if let Some(first) = first
                && let Some(reply) = self.serve(first, inbox)
            {
                let outcome = self.close();
                return Some((reply, outcome));
            }
            self.look_after(false);
        }
    }

    /// Commits first, as one; then the reads, which see every commit called before them.
    fn serve(&mut self, first: Request, inbox: &Receiver<Request>) -> Option<Reply<()>> {
        let mut commits = Vec::new();
        let mut others = Vec::new();
        let mut bytes = 0_usize;
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                Request::Commit { batch, reply } => {
                    bytes = bytes.saturating_add(size(&batch));
                    commits.push((batch, reply));
                }
                other => {
                    let order_matters = matches!(other, Request::Close { .. } | Request::ChangeMeta { .. });
                    others.push(other);
                    if order_matters {
                        break;
                    }
                }
            }
            let full = commits.len() + others.len() >= GROUP || bytes >= GROUP_BYTES;
            next = if full { None } else { inbox.try_recv().ok() };
        }
        self.commit(commits);
        others.into_iter().find_map(|request| self.answer(request))
    }

    fn commit(&mut self, commits: Vec<(Batch, Reply<()>)>) {
        let mut accepted = Vec::with_capacity(commits.len());
        for (batch, reply) in commits {
            match self.admit(&batch) {
                Ok(()) => accepted.push(Waiting {
                    work: Work::Batch(reply),
                    writes: batch.writes,
                }),
                Err(error) => drop(reply.send(Err(error))),
            }
        }
        if !accepted.is_empty() {
            self.write(accepted);
        }
    }

    /// Whether a batch may be written at all; if not, it certainly had no effect.
    fn admit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if let Some(broken) = &self.broken {
            return Err(unavailable(&broken.reason));
        }
        batch.check()?;
        if let Some(fence) = &batch.fence {
            let newest = self.fences.entry(fence.path.clone()).or_default();
            if fence.generation < *newest {
                return Err(StoreError::Fenced {
                    path: fence.path.clone(),
                    generation: fence.generation,
                    newest: *newest,
                });
            }
            *newest = fence.generation;
        }
        match self.upkeep.free {
            Some(free) if free < self.min_free && batch.effect == Effect::Takes => Err(StoreError::DiskLow {
                free,
                min_free: self.min_free,
            }),
            _ => Ok(()),
        }
    }

    /// One group: applied, flushed, synced, marked, acknowledged.
    fn write(&mut self, group: Vec<Waiting>) {
        let started = self.clock.monotonic();
        *self.shared.busy_since.lock() = Some(started);
        let mut before = Before::new();
        let written = self.make_durable(&group, &mut before);
        *self.shared.busy_since.lock() = None;
        match written {
            Ok(state) => {
                self.on_flush.call(self.clock.monotonic().saturating_sub(started));
                self.state = state;
                if let Err(error) = self.acknowledged.mark(state.commit) {
                    // The commit is durable all the same; only the notice of a later loss is less exact.
                    tracing::warn!(%error, "the acknowledged commit could not be noted");
                }
                self.cursors.remember(&before);
                for waiting in group {
                    match waiting.work {
                        Work::Batch(reply) => drop(reply.send(Ok(()))),
                        Work::Meta(meta, reply) => {
                            self.meta = meta.clone();
                            let _ = reply.send(Ok(meta));
                        }
                    }
                }
            }
            Err(error) => {
                self.break_with(&error.to_string(), before);
                for waiting in group {
                    let failed = StoreError::Flush {
                        reason: error.to_string(),
                    };
                    match waiting.work {
                        Work::Batch(reply) => drop(reply.send(Err(failed))),
                        Work::Meta(_, reply) => drop(reply.send(Err(failed))),
                    }
                }
            }
        }
    }

    fn make_durable(&mut self, group: &[Waiting], before: &mut Before) -> Result<State, BackendError> {
        let backend = self
            .backend
            .as_mut()
            .ok_or_else(|| BackendError::Broken("it is being reopened".into()))?;
        let mut after = Before::new();
        for write in group.iter().flat_map(|waiting| &waiting.writes) {
            let (key, raw) = layout::raw_write(write);
            if !before.contains_key(&key) {
                before.insert(key.clone(), backend.get(&key)?);
            }
            after.insert(key, raw);
        }
        let mut state = self.state;
        state.commit = state.commit.saturating_add(1);
        for (key, raw) in &after {
            if let Some(Some(old)) = before.get(key) {
                state.remove(key, old);
            }
            if let Some(new) = raw {
                state.add(key, new);
            }
        }
        let mut writes: Vec<_> = after.into_iter().collect();
        writes.push((STATE_KEY.to_vec(), Some(state.to_raw())));
        backend.apply(&writes)?;
        backend.flush()?;
        backend.sync()?;
        Ok(state)
    }

    fn answer(&mut self, request: Request) -> Option<Reply<()>> {
        match request {
            Request::Get { key, reply } => {
                let value = self.get(&key);
                let _ = reply.send(self.broken_by(value));
            }
            Request::Scan {
                prefix,
                after,
                limit,
                reply,
            } => {
                let pairs = self.scan(&prefix, after.as_deref(), limit);
                let _ = reply.send(self.broken_by(pairs));
            }
            Request::ChangeMeta { change, reply } => self.change_meta(change, reply),
            Request::StartSnapshot { reply } => {
                let started = self.readable().map(|_| ()).and_then(|()| self.cursors.start());
                let _ = reply.send(started.map(|id| Start {
                    id,
                    state: self.state,
                    meta: self.meta.clone(),
                }));
            }
            Request::StepSnapshot { id, reply } => {
                let step = match &self.backend {
                    Some(backend) if self.broken.is_none() => self.cursors.step(id, backend.as_ref()),
                    _ => Err(self.unreadable()),
                };
                let _ = reply.send(step);
            }
            Request::EndSnapshot { id } => self.cursors.end(id),
            // Commits are taken out before; a late one is answered all the same.
            Request::Commit { batch, reply } => self.commit(vec![(batch, reply)]),
            Request::Close { reply } => return Some(reply),
        }
        None
    }

    fn change_meta(&mut self, change: MetaChange, reply: Reply<Meta>) {
        if self.broken.is_some() {
            let _ = reply.send(Err(self.unreadable()));
            return;
        }
        let mut meta = self.meta.clone();
        change(&mut meta);
        match record::encode(&meta) {
            Ok(value) => self.write(vec![Waiting {
                work: Work::Meta(meta, reply),
                writes: vec![Write::Put(META_KEY.to_vec(), value)],
            }]),
            Err(error) => drop(reply.send(Err(StoreError::Rejected {
                key: printable(META_KEY),
                reason: error.to_string(),
            }))),
        }
    }

    /// A read that failed may mean that more is wrong: everything is opened and checked again.
    fn broken_by<T>(&mut self, outcome: Result<T, ReadError>) -> Result<T, StoreError> {
        outcome.map_err(|error| match error {
            ReadError::Refused(error) => error,
            ReadError::Disk(error) => {
                self.break_with(&error.to_string(), Before::new());
                unavailable(&format!("it could not be read: {error}"))
            }
        })
    }

    fn break_with(&mut self, reason: &str, before: Before) {
        tracing::error!(
            reason,
            "a commit failed: the store is reopened, nothing in flight is acknowledged"
        );
        self.cursors.fail_all();
        self.shared.health.lock().healthy = false;
        self.broken = Some(Broken {
            reason: format!("a commit failed and it is being reopened: {reason}"),
            before,
            retry_at: self.clock.monotonic(),
            retry_after: FIRST_RETRY,
        });
    }

    /// Reopens after a failed commit, when it is time to try again.
    fn mend(&mut self) {
        let now = self.clock.monotonic();
        let Some(mut broken) = self.broken.take_if(|broken| now >= broken.retry_at) else {
            return;
        };
        match self.reopen(&broken.before) {
            Ok(()) => {
                tracing::info!("the store is open again; what was never acknowledged is undone");
                self.shared.health.lock().healthy = true;
                self.shared
                    .rebuilds
                    .send_modify(|count| *count = count.wrapping_add(1));
            }
            Err(error) => {
                tracing::warn!(%error, "the store could not be reopened");
                broken.reason = format!("it could not be reopened after a failed commit: {error}");
                broken.retry_at = now.saturating_add(broken.retry_after);
                broken.retry_after = broken.retry_after.saturating_mul(2).min(LAST_RETRY);
                self.broken = Some(broken);
            }
        }
    }

    /// Opens again, undoes what was never acknowledged, and reads everything back.
    fn reopen(&mut self, before: &Before) -> Result<(), BackendError> {
        if let Some(backend) = self.backend.take() {
            backend.close()?;
        }
        let mut backend = self.opener.open()?;
        let found = read_state(backend.as_ref())?;
        if found.commit == self.state.commit.saturating_add(1) {
            let mut writes = snapshot::undo(before);
            writes.push((STATE_KEY.to_vec(), Some(self.state.to_raw())));
            backend.apply(&writes)?;
            backend.flush()?;
            backend.sync()?;
        } else if found != self.state {
            return Err(BackendError::Broken(format!(
                "commit {} was acknowledged, {} is the last one there",
                self.state.commit, found.commit
            )));
        }
        let census = take_census(backend.as_ref(), &self.state)?;
        if let Some(problem) = census.problems.first() {
            return Err(BackendError::Broken(problem.clone()));
        }
        self.backend = Some(backend);
        Ok(())
    }

    fn look_after(&mut self, now_or_never: bool) {
        let now = self.clock.monotonic();
        let due = self
            .upkeep
            .looked_at
            .is_none_or(|at| now.saturating_sub(at) >= TICK);
        if !due && !now_or_never {
            return;
        }
        self.upkeep.looked_at = Some(now);
        self.upkeep.free = self.free_space.measure(&self.path);
        let mut health = self.shared.health.lock();
        health.path = self.path.display().to_string();
        health.free_bytes = self.upkeep.free;
        health.healthy = self.broken.is_none();
        if let Some(backend) = &self.backend {
            health.bytes = backend.bytes();
        }
        drop(health);
        if now.saturating_sub(self.upkeep.marked_at) >= MARK_EVERY {
            self.upkeep.marked_at = now;
            if let Err(error) = self.acknowledged.sync() {
                tracing::warn!(%error, "the acknowledged commit could not be synced");
            }
        }
    }

    /// Notes the clean stop and lets the files go.
    fn close(mut self) -> Result<(), StoreError> {
        let (reply, mut answer) = oneshot::channel();
        self.change_meta(Box::new(|meta| meta.clean = true), reply);
        let noted = answer
            .try_recv()
            .unwrap_or_else(|_| Err(unavailable("it has stopped")));
        let flush = |reason: String| StoreError::Flush { reason };
        let marked = self.acknowledged.sync().map_err(|error| flush(error.to_string()));
        let closed = match self.backend.take() {
            Some(backend) => backend.close().map_err(|error| flush(error.to_string())),
            None => Ok(()),
        };
        drop(self.lock);
        noted.map(|_| ()).and(marked).and(closed)
    }
}

fn size(batch: &Batch) -> usize {
    batch
        .writes
        .iter()
        .map(|write| match write {
            Write::Put(key, value) => key.len() + value.len(),
            Write::Delete(key) => key.len(),
        })
        .sum()
}
