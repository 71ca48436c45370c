//! A typed reader of a retained topic.

use std::{collections::VecDeque, fmt, sync::Arc};

use futures::{StreamExt as _, stream::BoxStream};
use tokio::sync::watch;

use super::retained::{Entry, Place, Pruned, Topic};
use jiff::Timestamp;

/// Changes read under one lock.
const PAGE: usize = 256;

/// What a reader of a retained topic learns.
#[derive(Clone, Debug)]
pub enum Update<V> {
    /// The key has this value.
    Value(Entry<V>),
    /// The key is gone. It may be one the reader never saw, when it came and went in between.
    Removed {
        /// The key.
        key: Arc<str>,
        /// The removal's place in the order.
        sequence: u64,
        /// When it was removed.
        at: Timestamp,
    },
    /// The present values, as of when the reader started or started over, have all been sent.
    Complete,
    /// The reader was away so long that removals were forgotten: what it knows no longer holds. Present
    /// values follow, then `Complete`.
    Reset,
}

/// A reader's place in a retained topic. It holds no queue that a writer could fill.
pub struct Subscription<V> {
    topic: Arc<Topic<V>>,
    changed: watch::Receiver<()>,
    place: Place,
    complete: bool,
    page: VecDeque<Update<V>>,
}

impl<V> Subscription<V> {
    pub(super) fn start(topic: Arc<Topic<V>>) -> Self {
        Self {
            changed: topic.changed(),
            place: topic.beginning(),
            topic,
            complete: false,
            page: VecDeque::new(),
        }
    }

    /// The next thing to know; waits until there is one. Safe to cancel: nothing is lost.
    pub async fn next(&mut self) -> Update<V> {
        loop {
            if let Some(update) = self.try_next() {
                return update;
            }
            if self.changed.changed().await.is_err() {
                // Cannot be: the subscription itself keeps the topic alive.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next thing to know, if there is one now.
    pub fn try_next(&mut self) -> Option<Update<V>> {
        if self.page.is_empty() {
            // Seen before it is read: a change that comes meanwhile wakes the next wait.
            self.changed.borrow_and_update();
            self.fill();
        }
        self.page.pop_front()
    }

    fn fill(&mut self) {
        let read = self.topic.changes(self.place, u64::MAX, PAGE, |change| {
            let (key, stamp) = (Arc::clone(&change.key), change.stamp);
            match &change.value {
                Some(value) => Update::Value(Entry {
                    key,
                    sequence: stamp.sequence,
                    at: stamp.at,
                    value: Arc::clone(value),
                }),
                None => Update::Removed {
                    key,
                    sequence: stamp.sequence,
                    at: stamp.at,
                },
            }
        });
        match read {
            Err(Pruned) => {
                let beginning = self.topic.beginning();
                let knows_nothing = self.place.cursor == beginning.cursor;
                self.place = beginning;
                if knows_nothing {
                    return self.fill();
                }
                self.complete = false;
                self.page.push_back(Update::Reset);
            }
            Ok(updates) => {
                for update in updates {
                    let sequence = update.sequence().unwrap_or(self.place.cursor);
                    self.complete_before(sequence);
                    self.place.cursor = sequence;
                    self.page.push_back(update);
                }
                if self.page.is_empty() {
                    self.complete_before(u64::MAX);
                }
            }
        }
    }

    /// Says that the present values are complete, once, ahead of the first change that came after them.
    fn complete_before(&mut self, sequence: u64) {
        if !self.complete && sequence > self.place.mark {
            self.complete = true;
            self.page.push_back(Update::Complete);
        }
    }

    /// The same as a stream, for `ctx.add_stream`. It never ends.
    #[must_use]
    pub fn into_stream(self) -> BoxStream<'static, Update<V>>
    where
        V: Send + Sync + 'static,
    {
        futures::stream::unfold(self, |mut subscription| async move {
            let update = subscription.next().await;
            Some((update, subscription))
        })
        .boxed()
    }
}

impl<V> Update<V> {
    fn sequence(&self) -> Option<u64> {
        match self {
            Self::Value(entry) => Some(entry.sequence),
            Self::Removed { sequence, .. } => Some(*sequence),
            Self::Complete | Self::Reset => None,
        }
    }
}

impl<V> fmt::Debug for Subscription<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Subscription")
            .field("topic", &self.topic)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
