//! A retained topic: the last value per key, one writer per key.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    fmt,
    ops::Bound::{Excluded, Included},
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use super::{
    Subscription, TopicStatistics,
    sequence::{ErasedChange, Order, Payload, Stamp},
    writer::{Claim, ClaimRefused, KeyWriter, Superseded},
};

/// Removals remembered per topic. A reader further behind than this starts over with the present values.
const TOMBSTONES_KEPT: usize = 4096;

/// Pairs read under one lock when all values are asked for.
const PAGE: usize = 512;

/// What can be a value of a retained topic.
pub trait Value: PartialEq + Serialize + Send + Sync + 'static {}
impl<V: PartialEq + Serialize + Send + Sync + 'static> Value for V {}

/// A topic that keeps the last value of each key. Cheap to clone: all clones are the same topic.
pub struct Retained<V> {
    topic: Arc<Topic<V>>,
}

/// A key's value, and when it came.
#[derive(Debug)]
pub struct Entry<V> {
    /// The key.
    pub key: Arc<str>,
    /// Its place in the order of everything published.
    pub sequence: u64,
    /// When it was published.
    pub at: Timestamp,
    /// The value.
    pub value: Arc<V>,
}

/// The newest change of a key.
pub(super) struct Change<V> {
    pub(super) key: Arc<str>,
    pub(super) stamp: Stamp,
    /// Absent when the key is gone.
    pub(super) value: Option<Arc<V>>,
}

/// Removals were forgotten that the reader has not seen: it has to start over.
#[derive(Debug)]
pub(super) struct Pruned;

/// Where a reader is in the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The last sequence number it has seen.
    pub(super) cursor: u64,
    /// Removals up to this one are of no interest: it started with the present values then.
    pub(super) mark: u64,
}

pub(super) struct Topic<V> {
    name: &'static str,
    order: Arc<Order>,
    state: Mutex<State<V>>,
    wake: watch::Sender<()>,
    tombstones_kept: usize,
}

struct State<V> {
    slots: BTreeMap<Arc<str>, Slot>,
    /// The newest change of each key, removals included, in the order of publishing.
    index: BTreeMap<u64, Change<V>>,
    tombstones: BTreeSet<u64>,
    /// The newest removal that was forgotten.
    pruned_through: u64,
    published: u64,
    unchanged: u64,
    refused: u64,
}

struct Slot {
    claim: Claim,
    /// Live writers of that claim.
    writers: usize,
    /// Where its newest change is in the index.
    newest: Option<u64>,
}

impl<V> Clone for Retained<V> {
    fn clone(&self) -> Self {
        Self {
            topic: Arc::clone(&self.topic),
        }
    }
}

impl<V: Value> Retained<V> {
    pub(super) fn new(name: &'static str, order: Arc<Order>) -> Self {
        Self::keeping(name, order, TOMBSTONES_KEPT)
    }

    pub(super) fn keeping(name: &'static str, order: Arc<Order>, tombstones_kept: usize) -> Self {
        Self {
            topic: Arc::new(Topic {
                name,
                state: Mutex::new(State {
                    slots: BTreeMap::new(),
                    index: BTreeMap::new(),
                    tombstones: BTreeSet::new(),
                    pruned_through: order.base(),
                    published: 0,
                    unchanged: 0,
                    refused: 0,
                }),
                order,
                wake: watch::Sender::new(()),
                tombstones_kept,
            }),
        }
    }

    /// The topic's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.topic.name
    }

    /// Makes the caller the one writer of a key. A higher generation supersedes whoever had it; the same
    /// incarnation may claim again; anyone else is refused while the key is known.
    ///
    /// # Errors
    /// When the key belongs to an incarnation that is as new or newer.
    pub fn claim(&self, key: impl Into<Arc<str>>, claim: Claim) -> Result<KeyWriter<V>, ClaimRefused> {
        let key = key.into();
        let mut guard = self.topic.state.lock();
        let state = &mut *guard;
        match state.slots.entry(Arc::clone(&key)) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Slot {
                    claim: claim.clone(),
                    writers: 1,
                    newest: None,
                });
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let slot = occupied.get_mut();
                if slot.claim == claim {
                    slot.writers += 1;
                } else if claim.generation > slot.claim.generation {
                    slot.claim = claim.clone();
                    slot.writers = 1;
                } else {
                    state.refused += 1;
                    return Err(ClaimRefused {
                        topic: self.topic.name,
                        key,
                        claim,
                        holder: slot.claim.clone(),
                    });
                }
            }
        }
        drop(guard);
        Ok(KeyWriter::new(Arc::clone(&self.topic), key, claim))
    }

    /// The present value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<V>> {
        let state = self.topic.state.lock();
        let newest = state.slots.get(key)?.newest?;
        state.index.get(&newest)?.value.clone()
    }

    /// All present values by key. Read in pages, so that no writer waits for a large topic: each value is that
    /// of some moment during the call.
    #[must_use]
    pub fn values(&self) -> Vec<Entry<V>> {
        let mut entries = Vec::new();
        let mut after: Option<Arc<str>> = None;
        loop {
            let state = self.topic.state.lock();
            let from = after.take().map_or(std::ops::Bound::Unbounded, Excluded);
            let mut visited = 0;
            for (key, slot) in state.slots.range((from, std::ops::Bound::Unbounded)).take(PAGE) {
                visited += 1;
                after = Some(Arc::clone(key));
                let change = slot.newest.and_then(|newest| state.index.get(&newest));
                if let Some((change, value)) = change.and_then(|change| Some((change, change.value.clone()?)))
                {
                    entries.push(Entry {
                        key: Arc::clone(key),
                        sequence: change.stamp.sequence,
                        at: change.stamp.at,
                        value,
                    });
                }
            }
            if visited < PAGE {
                return entries;
            }
        }
    }

    /// How many keys have a value.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.topic.state.lock();
        state.index.len() - state.tombstones.len()
    }

    /// Whether no key has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Follows the topic: present values first, then changes.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<V> {
        Subscription::start(Arc::clone(&self.topic))
    }

    pub(super) fn erased(&self) -> Arc<dyn RetainedView> {
        Arc::clone(&self.topic) as Arc<dyn RetainedView>
    }
}

impl<V> Topic<V> {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn changed(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    /// The place of a reader that knows nothing yet.
    pub(super) fn beginning(&self) -> Place {
        let state = self.state.lock();
        let newest = state.index.last_key_value().map_or(0, |(sequence, _)| *sequence);
        Place {
            cursor: self.order.base(),
            mark: newest.max(state.pruned_through),
        }
    }

    /// Up to `limit` changes after the reader's place and not after `up_to`, made readable by `show`.
    pub(super) fn changes<T>(
        &self,
        place: Place,
        up_to: u64,
        limit: usize,
        show: impl Fn(&Change<V>) -> T,
    ) -> Result<Vec<T>, Pruned> {
        let state = self.state.lock();
        if state.pruned_through > place.cursor.max(place.mark) {
            return Err(Pruned);
        }
        if place.cursor >= up_to {
            return Ok(Vec::new());
        }
        Ok(state
            .index
            .range((Excluded(place.cursor), Included(up_to)))
            .filter(|(sequence, change)| change.value.is_some() || **sequence > place.mark)
            .take(limit)
            .map(|(_, change)| show(change))
            .collect())
    }
}

impl<V: Value> Topic<V> {
    /// Writes a key for its claimant: a value, or none to remove it.
    pub(super) fn write(
        &self,
        key: &Arc<str>,
        claim: &Claim,
        value: Option<Arc<V>>,
    ) -> Result<Option<u64>, Superseded> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(slot) = state.slots.get_mut(key).filter(|slot| slot.claim == *claim) else {
            state.refused += 1;
            return Err(Superseded {
                topic: self.name,
                key: Arc::clone(key),
                claim: claim.clone(),
            });
        };
        let present = slot
            .newest
            .and_then(|newest| state.index.get(&newest))
            .and_then(|change| change.value.as_deref());
        if present == value.as_deref() {
            state.unchanged += 1;
            return Ok(None);
        }
        let payload = value.clone().map(|value| value as Arc<dyn Payload>);
        let stamp = self.order.stamp(self.name, key, payload);
        let replaced = slot.newest.replace(stamp.sequence);
        let old = replaced.and_then(|sequence| {
            state.tombstones.remove(&sequence);
            state.index.remove(&sequence)
        });
        if value.is_none() {
            state.tombstones.insert(stamp.sequence);
        }
        let key = Arc::clone(key);
        state.index.insert(stamp.sequence, Change { key, stamp, value });
        state.published += 1;
        state.prune(self.tombstones_kept);
        drop(guard);
        // The old value may be the last one and large: it goes when nobody waits for the lock.
        drop(old);
        self.wake.send_replace(());
        Ok(Some(stamp.sequence))
    }

    /// A writer of a claim is gone. A value it leaves behind stays, and so does the claim that guards it.
    pub(super) fn release(&self, key: &Arc<str>, claim: &Claim) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get_mut(key).filter(|slot| slot.claim == *claim) else {
            return;
        };
        slot.writers = slot.writers.saturating_sub(1);
        if slot.writers == 0 && slot.newest.is_none() {
            state.slots.remove(key);
        }
    }
}

impl<V> State<V> {
    fn prune(&mut self, kept: usize) {
        while self.tombstones.len() > kept {
            let Some(sequence) = self.tombstones.pop_first() else {
                return;
            };
            self.pruned_through = sequence;
            let Some(change) = self.index.remove(&sequence) else {
                continue;
            };
            if let Some(slot) = self.slots.get_mut(&change.key) {
                slot.newest = None;
                if slot.writers == 0 {
                    self.slots.remove(&change.key);
                }
            }
        }
    }
}

/// A retained topic without its type.
pub(super) trait RetainedView: Send + Sync {
    fn name(&self) -> &'static str;
    fn changed(&self) -> watch::Receiver<()>;
    fn pruned_through(&self) -> u64;
    fn changes(&self, place: Place, up_to: u64, limit: usize) -> Result<Vec<ErasedChange>, Pruned>;
    fn statistics(&self) -> TopicStatistics;
}

impl<V: Value> RetainedView for Topic<V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn changed(&self) -> watch::Receiver<()> {
        Topic::changed(self)
    }

    fn pruned_through(&self) -> u64 {
        self.state.lock().pruned_through
    }

    fn changes(&self, place: Place, up_to: u64, limit: usize) -> Result<Vec<ErasedChange>, Pruned> {
        Topic::changes(self, place, up_to, limit, |change| ErasedChange {
            key: Arc::clone(&change.key),
            sequence: change.stamp.sequence,
            at: change.stamp.at,
            payload: change.value.clone().map(|value| value as Arc<dyn Payload>),
        })
    }

    fn statistics(&self) -> TopicStatistics {
        let state = self.state.lock();
        TopicStatistics {
            name: self.name,
            kept: (state.index.len() - state.tombstones.len()) as u64,
            tombstones: state.tombstones.len() as u64,
            published: state.published,
            unchanged: state.unchanged,
            refused: state.refused,
        }
    }
}

impl<V: Value> fmt::Debug for Retained<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Retained")
            .field("name", &self.topic.name)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for Topic<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Topic")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<V> Clone for Entry<V> {
    fn clone(&self) -> Self {
        Self {
            key: Arc::clone(&self.key),
            sequence: self.sequence,
            at: self.at,
            value: Arc::clone(&self.value),
        }
    }
}
