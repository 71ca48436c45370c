//! What grows without end is kept for a time and up to a number: history, decisions, request ids.
//!
//! Such records stand under time-ordered keys, `prefix` · milliseconds (16 hex digits) · `/` · suffix,
//! so that the oldest are found without a search and removed in small batches that give back space.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{Batch, Pair, Store, StoreError, Write};

/// How many records one step looks at: small enough that a step never holds the store up.
const STEP: usize = 256;

/// How long and how many records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Older ones go.
    pub age: Duration,
    /// Above this number the oldest go.
    pub count: u64,
}

/// A key that sorts by time.
#[must_use]
pub fn time_key(prefix: &str, at: Timestamp, suffix: &str) -> Vec<u8> {
    // Times before 1970 sort first; none are written.
    let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
    format!("{prefix}{millis:016x}/{suffix}").into_bytes()
}

/// The time in a key made by [`time_key`].
#[must_use]
pub fn time_of(prefix: &str, key: &[u8]) -> Option<Timestamp> {
    let digits = key.strip_prefix(prefix.as_bytes())?.get(..16)?;
    let millis = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok()
}

/// Keeps one prefix of time-ordered keys within its limits.
#[derive(Debug)]
pub struct Retention {
    store: Arc<dyn Store>,
    prefix: String,
    keep: Keep,
    /// Keys that go with an expired pair, such as what an index entry points at.
    also: fn(&Pair) -> Option<Vec<u8>>,
    /// How many there are: counted once, then kept up with.
    known: Option<u64>,
}

impl Retention {
    /// Watches over `prefix`. `also` names the record that goes together with an expired one.
    pub fn new(store: Arc<dyn Store>, prefix: &str, keep: Keep, also: fn(&Pair) -> Option<Vec<u8>>) -> Self {
        Self {
            store,
            prefix: prefix.to_owned(),
            keep,
            also,
            known: None,
        }
    }

    /// Tells that records were added since the last trim, so that they need not be counted again.
    pub fn added(&mut self, records: u64) {
        self.known = self.known.map(|known| known.saturating_add(records));
    }

    /// Removes what is too old or too much, in bounded steps; says how many records went.
    pub async fn trim(&mut self, now: Timestamp) -> Result<u64, StoreError> {
        let mut known = match self.known {
            Some(known) => known,
            None => self.count().await?,
        };
        // Unknown until every step is through: a failed step may or may not have removed records.
        self.known = None;
        let oldest_kept = now.saturating_sub(self.keep.age).unwrap_or(Timestamp::MIN);
        let mut removed = 0_u64;
        loop {
            let pairs = self
                .store
                .scan(self.prefix.clone().into_bytes(), None, STEP)
                .await?;
            let surplus = usize::try_from(known.saturating_sub(self.keep.count)).unwrap_or(usize::MAX);
            let expired: Vec<&Pair> = pairs
                .iter()
                .enumerate()
                .take_while(|(index, pair)| {
                    *index < surplus
                        || time_of(&self.prefix, &pair.0).is_some_and(|written| written < oldest_kept)
                })
                .map(|(_, pair)| pair)
                .collect();
            if expired.is_empty() {
                break;
            }
            let count = u64::try_from(expired.len()).unwrap_or(u64::MAX);
            let writes = expired
                .into_iter()
                .flat_map(|pair| [Some(pair.0.clone()), (self.also)(pair)])
                .flatten()
                .map(Write::Delete)
                .collect();
            self.store.commit(Batch::giving_back(writes)).await?;
            known = known.saturating_sub(count);
            removed = removed.saturating_add(count);
        }
        self.known = Some(known);
        Ok(removed)
    }

    async fn count(&self) -> Result<u64, StoreError> {
        let mut count = 0_u64;
        let mut after = None;
        loop {
            let page = self
                .store
                .scan(self.prefix.clone().into_bytes(), after, STEP)
                .await?;
            count = count.saturating_add(u64::try_from(page.len()).unwrap_or(u64::MAX));
            match page.last() {
                Some((key, _)) if page.len() == STEP => after = Some(key.clone()),
                _ => return Ok(count),
            }
        }
    }
}
