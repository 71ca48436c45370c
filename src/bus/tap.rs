//! Everything published, in order and not coalesced: for tests and debugging.

use std::{collections::VecDeque, fmt, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::sequence::{ErasedChange, Order};

/// Sees everything published since it was made. Bounded: what is not taken in time is counted as missed.
pub struct Tap {
    buffer: Arc<Mutex<TapBuffer>>,
}

/// Something a tap saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Tapped {
    /// The topic's name.
    pub topic: &'static str,
    /// The key.
    pub key: Arc<str>,
    /// Its place in the order.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// The value as a document; absent when the key was removed.
    pub value: Option<serde_json::Value>,
}

pub(super) struct TappedChange {
    pub(super) topic: &'static str,
    pub(super) change: ErasedChange,
}

pub(super) struct TapBuffer {
    kept: VecDeque<TappedChange>,
    capacity: usize,
    missed: u64,
}

impl TapBuffer {
    pub(super) fn push(&mut self, change: TappedChange) {
        if self.kept.len() >= self.capacity {
            self.kept.pop_front();
            self.missed = self.missed.saturating_add(1);
        }
        self.kept.push_back(change);
    }
}

impl Tap {
    pub(super) fn attach(order: &Order, capacity: usize) -> Self {
        let buffer = Arc::new(Mutex::new(TapBuffer {
            kept: VecDeque::new(),
            capacity: capacity.max(1),
            missed: 0,
        }));
        order.attach(&buffer);
        Self { buffer }
    }

    /// What was published since the last call, and how much before it was missed.
    #[must_use]
    pub fn take(&self) -> (u64, Vec<Tapped>) {
        let (missed, taken) = {
            let mut buffer = self.buffer.lock();
            (
                std::mem::take(&mut buffer.missed),
                std::mem::take(&mut buffer.kept),
            )
        };
        (missed, super::sequence::render_tapped(taken))
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffer = self.buffer.lock();
        formatter
            .debug_struct("Tap")
            .field("kept", &buffer.kept.len())
            .field("missed", &buffer.missed)
            .finish_non_exhaustive()
    }
}
