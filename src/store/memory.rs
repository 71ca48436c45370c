//! The store's twin in memory: the same contract, inline, for tests on a paused clock.

use std::collections::BTreeMap;

use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ports::store::{Batch, Effect, Pair, Store, StoreError, StoreHealth, Write};

/// A store that is gone with the process. Faults can be provoked.
#[derive(Debug)]
pub struct MemoryStore {
    inside: Mutex<Inside>,
    rebuilds: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inside {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    fences: BTreeMap<String, u64>,
    min_free: u64,
    free: Option<u64>,
    failing: Option<String>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            inside: Mutex::default(),
            rebuilds: watch::Sender::new(0),
        }
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As if this many bytes were free on its disk.
    pub fn set_free(&self, free: u64, min_free: u64) {
        let mut inside = self.inside.lock();
        inside.free = Some(free);
        inside.min_free = min_free;
    }

    /// The next commit fails as a failed flush does: it is not acknowledged, is undone, and everyone is told to rebuild.
    pub fn fail_next_flush(&self, reason: &str) {
        self.inside.lock().failing = Some(reason.to_owned());
    }

    /// Everything it holds, for comparison.
    #[must_use]
    pub fn contents(&self) -> Vec<Pair> {
        let inside = self.inside.lock();
        inside
            .pairs
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    fn write(&self, batch: Batch) -> Result<(), StoreError> {
        let mut inside = self.inside.lock();
        inside.admit(&batch)?;
        if let Some(reason) = inside.failing.take() {
            drop(inside);
            self.rebuilds.send_modify(|count| *count = count.wrapping_add(1));
            return Err(StoreError::Flush { reason });
        }
        for write in batch.writes {
            match write {
                Write::Put(key, value) => inside.pairs.insert(key, value),
                Write::Delete(key) => inside.pairs.remove(&key),
            };
        }
        Ok(())
    }
}

impl Inside {
    fn admit(&mut self, batch: &Batch) -> Result<(), StoreError> {
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
        match self.free {
            Some(free) if free < self.min_free && batch.effect == Effect::Takes => Err(StoreError::DiskLow {
                free,
                min_free: self.min_free,
            }),
            _ => Ok(()),
        }
    }
}

impl Store for MemoryStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(ready(self.write(batch)))
    }

    fn get(&self, key: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        Box::pin(ready(Ok(self.inside.lock().pairs.get(&key).cloned())))
    }

    fn scan(
        &self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> BoxFuture<'static, Result<Vec<Pair>, StoreError>> {
        let inside = self.inside.lock();
        let pairs = inside
            .pairs
            .range(prefix.clone()..)
            .skip_while(|(key, _)| after.as_ref().is_some_and(|after| *key <= after))
            .take_while(|(key, _)| key.starts_with(&prefix))
            .take(limit)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Box::pin(ready(Ok(pairs)))
    }

    fn health(&self) -> StoreHealth {
        let inside = self.inside.lock();
        let bytes = inside
            .pairs
            .iter()
            .map(|(key, value)| u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX))
            .fold(0, u64::saturating_add);
        StoreHealth {
            path: "memory".into(),
            bytes,
            free_bytes: inside.free,
            healthy: true,
        }
    }

    fn rebuilds(&self) -> watch::Receiver<u64> {
        self.rebuilds.subscribe()
    }
}
