//! The one order of everything published: sequence numbers, and the taps that see all of it.
//!
//! A sequence number is the run's epoch and a counter, below 2^53 so that JSON readers keep it exact. A topic
//! takes its number while it holds its own lock. So whoever reads [`Order::newest`] first and locks a topic
//! afterwards finds every change of that topic up to that number: readers of several topics rely on it.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Weak},
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

use super::tap::{TapBuffer, Tapped, TappedChange};
use crate::ports::clock::Clock;

/// Bits of a sequence number that count; those above hold the epoch.
pub const COUNTER_BITS: u32 = 36;

/// Bits of a sequence number that hold the epoch. It wraps after 131,072 runs, which no reader sleeps through.
const EPOCH_BITS: u32 = 17;

/// The smallest sequence number of a run; nothing is published under it.
#[must_use]
pub fn base_of_epoch(epoch: u64) -> u64 {
    (epoch & ((1 << EPOCH_BITS) - 1)) << COUNTER_BITS
}

/// A published value that can be shown as a document, without its type.
pub(super) trait Payload: Send + Sync {
    /// The value as JSON.
    fn document(&self) -> serde_json::Value;
}

impl<T: Serialize + Send + Sync> Payload for T {
    fn document(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_else(|error| {
            tracing::error!(%error, "a value on the bus has no JSON form");
            serde_json::Value::Null
        })
    }
}

/// A change without its type.
#[derive(Clone)]
pub(super) struct ErasedChange {
    pub(super) key: Arc<str>,
    pub(super) sequence: u64,
    pub(super) at: Timestamp,
    /// Absent when the key is gone.
    pub(super) payload: Option<Arc<dyn Payload>>,
}

/// When something was published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) sequence: u64,
    pub(super) at: Timestamp,
}

/// Hands out sequence numbers to all topics of a bus.
pub(super) struct Order {
    base: u64,
    clock: Arc<dyn Clock>,
    state: Mutex<OrderState>,
}

struct OrderState {
    newest: u64,
    taps: Vec<Weak<Mutex<TapBuffer>>>,
}

impl Order {
    pub(super) fn new(epoch: u64, clock: Arc<dyn Clock>) -> Self {
        let base = base_of_epoch(epoch);
        Self {
            base,
            clock,
            state: Mutex::new(OrderState {
                newest: base,
                taps: Vec::new(),
            }),
        }
    }

    /// The next number. Called with the topic's lock held, and the change becomes readable before that lock is
    /// given back.
    pub(super) fn stamp(
        &self,
        topic: &'static str,
        key: &Arc<str>,
        payload: Option<Arc<dyn Payload>>,
    ) -> Stamp {
        let at = self.clock.wall();
        let mut state = self.state.lock();
        state.newest = state.newest.saturating_add(1);
        let sequence = state.newest;
        if !state.taps.is_empty() {
            let change = ErasedChange {
                key: Arc::clone(key),
                sequence,
                at,
                payload,
            };
            state.taps.retain(|tap| {
                tap.upgrade().is_some_and(|buffer| {
                    buffer.lock().push(TappedChange {
                        topic,
                        change: change.clone(),
                    });
                    true
                })
            });
        }
        Stamp { sequence, at }
    }

    /// The newest number given out.
    pub(super) fn newest(&self) -> u64 {
        self.state.lock().newest
    }

    /// The number before the first one of this run.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    pub(super) fn attach(&self, buffer: &Arc<Mutex<TapBuffer>>) {
        self.state.lock().taps.push(Arc::downgrade(buffer));
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Order")
            .field("base", &self.base)
            .field("newest", &self.newest())
            .finish_non_exhaustive()
    }
}

/// What a tap took, with its values made into documents outside every lock.
pub(super) fn render_tapped(taken: VecDeque<TappedChange>) -> Vec<Tapped> {
    taken
        .into_iter()
        .map(|TappedChange { topic, change }| Tapped {
            topic,
            key: change.key,
            sequence: change.sequence,
            at: change.at,
            value: change.payload.map(|payload| payload.document()),
        })
        .collect()
}
