//! The writing side of a retained topic: one writer per key, fenced by its generation.

use std::{fmt, sync::Arc};

use thiserror::Error;

use super::retained::{Topic, Value};

/// Who writes a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The actor's path.
    pub path: String,
    /// Its incarnation. Generations come from one counter of the process, so that a later incarnation always
    /// has the higher one.
    pub generation: u64,
}

/// Why a key could not be claimed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "key {key:?} of topic {topic} belongs to {} generation {}, and {} generation {} is not newer",
    .holder.path, .holder.generation, .claim.path, .claim.generation
)]
pub struct ClaimRefused {
    /// The topic's name.
    pub topic: &'static str,
    /// The key.
    pub key: Arc<str>,
    /// Who asked.
    pub claim: Claim,
    /// Who has it.
    pub holder: Claim,
}

/// A publish of a writer that has been replaced.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{} generation {} no longer writes key {key:?} of topic {topic}: a newer incarnation does",
    .claim.path, .claim.generation
)]
pub struct Superseded {
    /// The topic's name.
    pub topic: &'static str,
    /// The key.
    pub key: Arc<str>,
    /// Whose publish was refused.
    pub claim: Claim,
}

/// The one writer of a key. Dropping it leaves the last value where it is.
pub struct KeyWriter<V: Value> {
    topic: Arc<Topic<V>>,
    key: Arc<str>,
    claim: Claim,
}

impl<V: Value> KeyWriter<V> {
    pub(super) fn new(topic: Arc<Topic<V>>, key: Arc<str>, claim: Claim) -> Self {
        Self { topic, key, claim }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Publishes a value. Returns its sequence number, or none when it equals the present one.
    ///
    /// # Errors
    /// When a newer incarnation has claimed the key.
    pub fn publish(&self, value: impl Into<Arc<V>>) -> Result<Option<u64>, Superseded> {
        self.topic.write(&self.key, &self.claim, Some(value.into()))
    }

    /// Removes the key. Returns the removal's sequence number, or none when there was no value.
    ///
    /// # Errors
    /// When a newer incarnation has claimed the key.
    pub fn remove(&self) -> Result<Option<u64>, Superseded> {
        self.topic.write(&self.key, &self.claim, None)
    }
}

impl<V: Value> Drop for KeyWriter<V> {
    fn drop(&mut self) {
        self.topic.release(&self.key, &self.claim);
    }
}

impl<V: Value> fmt::Debug for KeyWriter<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KeyWriter")
            .field("topic", &self.topic.name())
            .field("key", &self.key)
            .field("claim", &self.claim)
            .finish()
    }
}
