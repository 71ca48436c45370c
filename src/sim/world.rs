//! What makes the embedded cluster live: small controllers over the objects, as in Kubernetes.
//!
//! One task runs them all. It reads every change into an index, turns changes into work (`routes.rs` is
//! the wiring diagram), and does one piece of work after the other; each looks at the present state and
//! takes one step towards the wanted one. Own writes come back as changes before the next piece of work,
//! so no controller ever acts on a picture older than its own last write. Waiting is a table of timers on
//! tokio's clock. With one task, ordered maps and hashes in place of randomness, the same seed gives the
//! same trace.

mod balancer;
mod claims;
pub mod containers;
mod deployments;
pub mod document;
mod endpoints;
mod events;
mod garbage;
mod index;
mod jobs;
mod kubelet;
mod namespaces;
mod nodes;
pub mod placement;
mod pods;
pub mod quantity;
mod replica_sets;
pub mod resources;
mod routes;
mod scheduler;
mod stateful_sets;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{document::Key, index::Index, routes::Work};
use super::objects::{Cursor, Objects, Refusal, Resource, timestamp};
use crate::ports::clock::Clock;

/// How fast simulated things happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace(f64);

impl Pace {
    /// A pace of 1 is life's own, 10 is ten times as fast, 0 is at once.
    #[must_use]
    pub fn new(speed: f64) -> Self {
        Self(if speed.is_finite() { speed.max(0.0) } else { 0.0 })
    }

    /// How long a span of simulated life takes.
    #[must_use]
    pub fn scaled(self, span: Duration) -> Duration {
        if self.0 == 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(span.as_secs_f64() / self.0).unwrap_or(Duration::MAX)
    }

    /// The same for what repeats for ever, which even `at once` must not do without a pause.
    #[must_use]
    pub fn repeated(self, span: Duration) -> Duration {
        if self.0 == 0.0 {
            span
        } else {
            self.scaled(span).max(Duration::from_millis(1))
        }
    }
}

/// What the world is made with.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The objects it works on.
    pub objects: Objects,
    /// Wall time for what is written into them.
    pub clock: Arc<dyn Clock>,
    /// How fast things happen.
    pub pace: Pace,
    /// What stands for chance.
    pub seed: u64,
    /// The CA certificate that is put into every namespace.
    pub root_ca: Arc<str>,
}

/// The controllers and what they remember.
#[derive(Debug)]
pub struct World {
    objects: Objects,
    clock: Arc<dyn Clock>,
    pace: Pace,
    seed: u64,
    index: Index,
    queue: VecDeque<Work>,
    queued: BTreeSet<Work>,
    timers: BTreeMap<(Instant, u64), Work>,
    timers_set: u64,
    scheduler: scheduler::Scheduler,
    kubelet: kubelet::Kubelet,
    evictions: nodes::Evictions,
    clearing: namespaces::Clearing,
    balancer: balancer::Balancer,
    root_ca: Arc<str>,
}

/// Work done before other tasks get their turn.
const TURN: usize = 32;

impl World {
    /// A world over the objects there are.
    #[must_use]
    pub fn new(options: WorldOptions) -> Self {
        Self {
            objects: options.objects,
            clock: options.clock,
            pace: options.pace,
            seed: options.seed,
            index: Index::default(),
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            timers: BTreeMap::new(),
            timers_set: 0,
            scheduler: scheduler::Scheduler::default(),
            kubelet: kubelet::Kubelet::default(),
            evictions: nodes::Evictions::default(),
            clearing: namespaces::Clearing::default(),
            balancer: balancer::Balancer::default(),
            root_ca: options.root_ca,
        }
    }

    /// Lives until it is told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut cursor = self.resync();
        let mut done = 0_usize;
        loop {
            self.absorb(&mut cursor);
            while let Some(work) = self.next() {
                self.perform(work);
                self.absorb(&mut cursor);
                done += 1;
                if done.is_multiple_of(TURN) {
                    tokio::task::yield_now().await;
                }
                if stop.is_cancelled() {
                    return;
                }
            }
            let due = self.timers.keys().next().map(|(at, _)| *at);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = cursor.changed() => {}
                () = sleep_until(due) => self.ring(),
            }
        }
    }

    /// Reads everything anew; from here on the cursor tells of every change.
    fn resync(&mut self) -> Cursor {
        loop {
            let snapshot = self.objects.snapshot();
            self.index = Index::default();
            for (resource, object) in &snapshot.objects {
                self.index.insert(resource, object);
            }
            for (resource, object) in &snapshot.objects {
                for work in routes::of_object(resource, object, &self.index) {
                    self.enqueue(work);
                }
            }
            // Gone only when the history is shorter than what happened meanwhile: try again.
            if let Ok(cursor) = self.objects.cursor(None, Some(snapshot.revision)) {
                return cursor;
            }
        }
    }

    /// Takes in what changed, own writes included.
    fn absorb(&mut self, cursor: &mut Cursor) {
        loop {
            match cursor.read() {
                Ok(changes) if changes.is_empty() => return,
                Ok(changes) => {
                    for change in changes {
                        self.index.apply(&change);
                        for work in routes::of_change(&change, &self.index) {
                            self.enqueue(work);
                        }
                    }
                }
                Err(gone) => {
                    tracing::debug!(%gone, "the embedded cluster's controllers read everything anew");
                    *cursor = self.resync();
                }
            }
        }
    }

    fn enqueue(&mut self, work: Work) {
        if self.queued.insert(work.clone()) {
            self.queue.push_back(work);
        }
    }

    fn next(&mut self) -> Option<Work> {
        let work = self.queue.pop_front()?;
        self.queued.remove(&work);
        Some(work)
    }

    /// Does `work` again after a while, scaled by the caller.
    fn later(&mut self, after: Duration, work: Work) {
        let at = Instant::now().checked_add(after);
        if let Some(at) = at {
            self.timers_set = self.timers_set.wrapping_add(1);
            self.timers.insert((at, self.timers_set), work);
        }
    }

    /// Moves what is due from the timers to the queue.
    fn ring(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let work = entry.remove();
            self.enqueue(work);
        }
    }

    fn perform(&mut self, work: Work) {
        match work {
            Work::Namespace(name) => namespaces::reconcile(self, &name),
            Work::ClearNamespace(name) => namespaces::clear(self, &name),
            Work::Deployment(key) => deployments::reconcile(self, &key),
            Work::ReplicaSet(key) => replica_sets::reconcile(self, &key),
            Work::StatefulSet(key) => stateful_sets::reconcile(self, &key),
            Work::Job(key) => jobs::reconcile(self, &key),
            Work::Claim(key) => claims::reconcile(self, &key),
            Work::Volume(name) => claims::reconcile_volume(self, &name),
            Work::Place(key) => scheduler::place(self, &key),
            Work::Unpark => scheduler::unpark(self),
            Work::Pod(key) => kubelet::reconcile(self, &key),
            Work::Node(name) => nodes::reconcile(self, &name),
            Work::Evict(key) => nodes::evict_when_due(self, &key),
            Work::Endpoints(key) => endpoints::reconcile(self, &key),
            Work::Balancers => balancer::reconcile(self),
            Work::Dependents(uid) => garbage::collect_dependents(self, &uid),
            Work::Owner(reference) => garbage::finish_owner(self, &reference),
            Work::TrimEvents => events::trim(self),
        }
    }

    fn now(&self) -> String {
        timestamp(self.clock.wall())
    }

    fn get(&self, resource: &Resource, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(resource, &key.namespace, &key.name)
    }

    /// Changes an object. That it is gone meanwhile is no trouble: its deletion brings its own work.
    fn modify(&self, resource: &Resource, key: &Key, change: impl FnOnce(&mut Value)) {
        let result = self
            .objects
            .modify(resource, &key.namespace, &key.name, |object| {
                change(object);
                Ok(())
            });
        if let Err(refusal) = result
            && refusal.code != 404
        {
            tracing::warn!(%resource, namespace = key.namespace, name = key.name, %refusal, "an embedded controller could not write");
        }
    }

    /// Creates an object, or says why not. That it is already there is no trouble.
    fn create(&self, resource: &Resource, object: Value) -> Option<Arc<Value>> {
        match self.objects.create(resource, object) {
            Ok(created) => Some(created),
            Err(Refusal { code: 409, .. }) => None,
            Err(refusal) => {
                tracing::warn!(%resource, %refusal, "an embedded controller could not create");
                None
            }
        }
    }

    fn delete(&self, resource: &Resource, key: &Key, deletion: super::objects::Deletion) {
        if let Err(refusal) = self.objects.delete(resource, &key.namespace, &key.name, deletion)
            && refusal.code != 404
        {
            tracing::warn!(%resource, namespace = key.namespace, name = key.name, %refusal, "an embedded controller could not delete");
        }
    }

    /// A number that stands for chance: the same for the same seed and words.
    fn chance(&self, words: &[&str], sides: u64) -> u64 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.seed.to_le_bytes());
        for word in words {
            hasher.update(word.as_bytes());
            hasher.update(&[0]);
        }
        u64::from(hasher.finalize()) % sides.max(1)
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
