//! Durable memory: ordered keys, atomic batches, nothing acknowledged before it is on disk.

use std::{fmt, sync::LazyLock};

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::sync::watch;

pub mod record;
pub mod requests;
pub mod retention;

/// A durable, ordered map of bytes. Batches are atomic and become durable in the order of the calls,
/// so that what survives a crash is always a prefix of what was asked.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Writes a batch; the future ends when it is durable. The order is fixed by the call itself,
    /// not by when the future is polled.
    fn commit(&self, batch: Batch) -> BoxFuture<'static, Result<(), StoreError>>;

    /// The value of one key, as of every commit called before.
    fn get(&self, key: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>>;

    /// Up to `limit` pairs whose keys start with `prefix` and come after `after`, in key order.
    fn scan(
        &self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> BoxFuture<'static, Result<Vec<Pair>, StoreError>>;

    /// How the store is, without waiting.
    fn health(&self) -> StoreHealth;

    /// Counts how often the store was reopened after a failed flush and everything that was never
    /// acknowledged was undone. Whoever keeps a picture of it in memory rebuilds when this changes.
    /// A store that cannot fail in this way never counts.
    fn rebuilds(&self) -> watch::Receiver<u64> {
        static NEVER: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));
        NEVER.subscribe()
    }
}

/// The longest key a store takes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The largest value a store takes.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Writes that become durable together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// Whether it may take space when the disk is almost full.
    pub effect: Effect,
    /// Who writes; a batch of an older generation than one seen before is refused.
    pub fence: Option<Fence>,
}

impl Batch {
    /// A batch of new promises.
    #[must_use]
    pub fn taking(writes: Vec<Write>) -> Self {
        Self {
            writes,
            ..Self::default()
        }
    }

    /// A batch that is accepted even when the disk is almost full.
    #[must_use]
    pub fn giving_back(writes: Vec<Write>) -> Self {
        Self {
            writes,
            effect: Effect::GivesBack,
            fence: None,
        }
    }

    /// Whether a store can take every write of this batch at all.
    pub fn check(&self) -> Result<(), StoreError> {
        self.writes.iter().try_for_each(Write::check)
    }
}

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put(Vec<u8>, Vec<u8>),
    /// Removes a key; removing what is not there is no error.
    Delete(Vec<u8>),
}

impl Write {
    /// The key it changes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        let rejected = |reason: String| StoreError::Rejected {
            key: printable(self.key()),
            reason,
        };
        match self.key() {
            [] => return Err(rejected("the key is empty".into())),
            // The store keeps its own records below a zero byte.
            [0, ..] => {
                return Err(rejected(
                    "keys that begin with a zero byte are the store's own".into(),
                ));
            }
            key if key.len() > MAX_KEY_BYTES => {
                return Err(rejected(format!("the key is longer than {MAX_KEY_BYTES} bytes")));
            }
            _ => {}
        }
        match self {
            Self::Put(_, value) if value.len() > MAX_VALUE_BYTES => Err(rejected(format!(
                "the value is larger than {MAX_VALUE_BYTES} bytes"
            ))),
            Self::Put(..) | Self::Delete(_) => Ok(()),
        }
    }
}

/// A key as people can read it: text as it is, other bytes escaped.
#[must_use]
pub fn printable(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

/// What a batch does to the space promised: below `store.min-free` only giving back is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// New promises, new records.
    #[default]
    Takes,
    /// Releases, clean-ups, closings.
    GivesBack,
}

/// The incarnation of an actor that writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The actor's path.
    pub path: String,
    /// Its generation; only the newest one seen may write.
    pub generation: u64,
}

/// How the store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Where it is.
    pub path: String,
    /// Bytes it takes on disk.
    pub bytes: u64,
    /// Bytes free on its disk, where that can be known.
    pub free_bytes: Option<u64>,
    /// False after a failed flush until it is reopened and verified.
    pub healthy: bool,
}

/// Why the store did not do as asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreError {
    /// The batch certainly had no effect: the disk is nearly full.
    #[error("less than {min_free} bytes are free on the store's disk ({free} left): free some space")]
    DiskLow {
        /// Bytes free.
        free: u64,
        /// `store.min-free`.
        min_free: u64,
    },
    /// The batch certainly had no effect: a newer incarnation of the writer exists.
    #[error("{path} generation {generation} is not the newest one ({newest})")]
    Fenced {
        /// The actor's path.
        path: String,
        /// Of the refused batch.
        generation: u64,
        /// The newest seen.
        newest: u64,
    },
    /// The batch certainly had no effect: no store can take it.
    #[error("record {key} cannot be stored: {reason}")]
    Rejected {
        /// The key, printable.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The batch may or may not be there after a restart; it is not acknowledged.
    #[error("the store could not make the batch durable: {reason}")]
    Flush {
        /// What the disk said.
        reason: String,
    },
    /// Nothing was done: the store is being reopened after a failed flush, has too much to do, or has
    /// stopped.
    #[error("the store is not available: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// A record could not be read back as it was written.
    #[error("record {key} is damaged: {reason}")]
    Damaged {
        /// The key, printable.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}
