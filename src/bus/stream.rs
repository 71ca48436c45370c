//! A stream topic: the last so many events; a reader that lags is told how many it missed.

use std::{collections::VecDeque, fmt, sync::Arc};

use futures::{StreamExt as _, stream::BoxStream};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use super::{
    TopicStatistics,
    sequence::{ErasedChange, Order, Payload},
};

/// Events kept per topic.
const EVENTS_KEPT: usize = 4096;

/// A topic that keeps the last events. Anyone who holds it may publish. Cheap to clone.
pub struct Stream<T> {
    topic: Arc<StreamTopic<T>>,
}

/// An event of a stream topic.
#[derive(Debug)]
pub struct StreamEvent<T> {
    /// What it is about.
    pub key: Arc<str>,
    /// Its place in the order of everything published.
    pub sequence: u64,
    /// When it was published.
    pub at: Timestamp,
    /// The event.
    pub value: Arc<T>,
}

/// What a reader of a stream topic learns.
#[derive(Clone, Debug)]
pub enum StreamUpdate<T> {
    /// An event.
    Event(StreamEvent<T>),
    /// So many events are gone that the reader has not seen; it goes on with the next one.
    Missed(u64),
}

/// A reader's place in a stream topic.
pub struct StreamReader<T> {
    topic: Arc<StreamTopic<T>>,
    changed: watch::Receiver<()>,
    next: u64,
}

struct StreamTopic<T> {
    name: &'static str,
    order: Arc<Order>,
    ring: Mutex<Ring<T>>,
    wake: watch::Sender<()>,
    capacity: usize,
}

struct Ring<T> {
    events: VecDeque<StreamEvent<T>>,
    /// How many were dropped, which is also the number of the first one kept.
    dropped: u64,
    /// The sequence number of the last one dropped.
    dropped_through: u64,
}

impl<T> Ring<T> {
    /// The number the next event will have.
    fn next(&self) -> u64 {
        self.dropped.saturating_add(self.events.len() as u64)
    }

    /// How many events from number `from` on are gone, and the rest.
    fn from(&self, from: u64) -> (u64, impl Iterator<Item = &StreamEvent<T>>) {
        let missed = self.dropped.saturating_sub(from);
        let skip = usize::try_from(from.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        (missed, self.events.iter().skip(skip))
    }
}

impl<T: Serialize + Send + Sync + 'static> Stream<T> {
    pub(super) fn new(name: &'static str, order: Arc<Order>) -> Self {
        Self::keeping(name, order, EVENTS_KEPT)
    }

    pub(super) fn keeping(name: &'static str, order: Arc<Order>, capacity: usize) -> Self {
        Self {
            topic: Arc::new(StreamTopic {
                name,
                ring: Mutex::new(Ring {
                    events: VecDeque::new(),
                    dropped: 0,
                    dropped_through: order.base(),
                }),
                order,
                wake: watch::Sender::new(()),
                capacity: capacity.max(1),
            }),
        }
    }

    /// The topic's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.topic.name
    }

    /// Publishes an event and returns its sequence number. Never waits.
    pub fn publish(&self, key: impl Into<Arc<str>>, value: T) -> u64 {
        let (key, value) = (key.into(), Arc::new(value));
        let topic = &*self.topic;
        let mut ring = topic.ring.lock();
        let payload = Arc::clone(&value) as Arc<dyn Payload>;
        let stamp = topic.order.stamp(topic.name, &key, Some(payload));
        let oldest = (ring.events.len() >= topic.capacity)
            .then(|| ring.events.pop_front())
            .flatten();
        if let Some(oldest) = &oldest {
            ring.dropped = ring.dropped.saturating_add(1);
            ring.dropped_through = oldest.sequence;
        }
        ring.events.push_back(StreamEvent {
            key,
            sequence: stamp.sequence,
            at: stamp.at,
            value,
        });
        drop(ring);
        drop(oldest);
        topic.wake.send_replace(());
        stamp.sequence
    }

    /// Follows the topic from now on.
    #[must_use]
    pub fn subscribe(&self) -> StreamReader<T> {
        StreamReader {
            changed: self.topic.wake.subscribe(),
            next: self.topic.ring.lock().next(),
            topic: Arc::clone(&self.topic),
        }
    }

    pub(super) fn erased(&self) -> Arc<dyn StreamView> {
        Arc::clone(&self.topic) as Arc<dyn StreamView>
    }
}

impl<T> StreamReader<T> {
    /// The next event, or how many were missed; waits until there is one. Safe to cancel: nothing is lost.
    pub async fn next(&mut self) -> StreamUpdate<T> {
        loop {
            self.changed.borrow_and_update();
            if let Some(update) = self.try_next() {
                return update;
            }
            if self.changed.changed().await.is_err() {
                // Cannot be: the reader itself keeps the topic alive.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next event, or how many were missed, if there is something now.
    pub fn try_next(&mut self) -> Option<StreamUpdate<T>> {
        let ring = self.topic.ring.lock();
        let (missed, mut events) = ring.from(self.next);
        if missed > 0 {
            self.next = ring.dropped;
            return Some(StreamUpdate::Missed(missed));
        }
        let event = events.next()?.clone();
        self.next = self.next.saturating_add(1);
        Some(StreamUpdate::Event(event))
    }

    /// The same as a stream, for `ctx.add_stream`. It never ends.
    #[must_use]
    pub fn into_stream(self) -> BoxStream<'static, StreamUpdate<T>>
    where
        T: Send + Sync + 'static,
    {
        futures::stream::unfold(self, |mut reader| async move {
            let update = reader.next().await;
            Some((update, reader))
        })
        .boxed()
    }
}

/// Events of a stream topic without their type.
pub(super) struct ErasedPage {
    /// How many are gone before the first of `events`.
    pub(super) missed: u64,
    pub(super) events: Vec<ErasedChange>,
}

/// A stream topic without its type.
pub(super) trait StreamView: Send + Sync {
    fn name(&self) -> &'static str;
    fn changed(&self) -> watch::Receiver<()>;
    /// The sequence number of the last event that is gone.
    fn dropped_through(&self) -> u64;
    /// The number of the first event after a sequence number.
    fn number_after(&self, sequence: u64) -> u64;
    /// Up to `limit` events from number `from` on, none after `up_to`.
    fn events(&self, from: u64, up_to: u64, limit: usize) -> ErasedPage;
    fn statistics(&self) -> TopicStatistics;
}

impl<T: Serialize + Send + Sync + 'static> StreamView for StreamTopic<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn changed(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    fn dropped_through(&self) -> u64 {
        self.ring.lock().dropped_through
    }

    fn number_after(&self, sequence: u64) -> u64 {
        let ring = self.ring.lock();
        let before = ring.events.partition_point(|event| event.sequence <= sequence);
        ring.dropped.saturating_add(before as u64)
    }

    fn events(&self, from: u64, up_to: u64, limit: usize) -> ErasedPage {
        let ring = self.ring.lock();
        let (missed, events) = ring.from(from);
        let events = events
            .take_while(|event| event.sequence <= up_to)
            .take(limit)
            .map(|event| ErasedChange {
                key: Arc::clone(&event.key),
                sequence: event.sequence,
                at: event.at,
                payload: Some(Arc::clone(&event.value) as Arc<dyn Payload>),
            })
            .collect();
        ErasedPage { missed, events }
    }

    fn statistics(&self) -> TopicStatistics {
        let ring = self.ring.lock();
        TopicStatistics {
            name: self.name,
            kept: ring.events.len() as u64,
            tombstones: 0,
            published: ring.next(),
            unchanged: 0,
            refused: 0,
        }
    }
}

impl<T> Clone for Stream<T> {
    fn clone(&self) -> Self {
        Self {
            topic: Arc::clone(&self.topic),
        }
    }
}

impl<T> Clone for StreamEvent<T> {
    fn clone(&self) -> Self {
        Self {
            key: Arc::clone(&self.key),
            sequence: self.sequence,
            at: self.at,
            value: Arc::clone(&self.value),
        }
    }
}

impl<T> fmt::Debug for Stream<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Stream")
            .field("name", &self.topic.name)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for StreamReader<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StreamReader")
            .field("name", &self.topic.name)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
