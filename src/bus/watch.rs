//! The bus for the outside: topics by name, values as documents, one order over all of them, resumable.

use std::{collections::VecDeque, sync::Arc};

use futures::{FutureExt as _, StreamExt as _, future::select_all, stream::BoxStream};
use thiserror::Error;
use tokio::sync::watch;

use super::{
    Bus, TopicStatistics,
    retained::{Place, Pruned, RetainedView},
    sequence::{ErasedChange, Order},
    stream::StreamView,
    topics::DECLARATIONS,
};
use crate::domain::event::{BusEvent, Change};

/// Changes read of one topic under one lock.
const PAGE: usize = 256;

/// Why a watch was not started.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WatchRefused {
    /// There is no such topic.
    #[error("there is no topic {name:?}; did you mean {nearest:?}?")]
    UnknownTopic {
        /// What was asked for.
        name: String,
        /// The topic with the most similar name.
        nearest: &'static str,
    },
    /// The sequence number is of another run, of the future, or older than what is remembered.
    #[error(
        "sequence {after} cannot be resumed (this run: {oldest} to {newest}): watch again without it, from the present values"
    )]
    OutOfRange {
        /// What was asked for.
        after: u64,
        /// The oldest sequence number these topics can be resumed after.
        oldest: u64,
        /// The newest one given out.
        newest: u64,
    },
}

/// A topic without its type.
#[derive(Clone)]
pub(super) enum AnyTopic {
    Retained(Arc<dyn RetainedView>),
    Stream(Arc<dyn StreamView>),
}

impl AnyTopic {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Retained(topic) => topic.name(),
            Self::Stream(topic) => topic.name(),
        }
    }

    pub(super) fn statistics(&self) -> TopicStatistics {
        match self {
            Self::Retained(topic) => topic.statistics(),
            Self::Stream(topic) => topic.statistics(),
        }
    }

    fn changed(&self) -> watch::Receiver<()> {
        match self {
            Self::Retained(topic) => topic.changed(),
            Self::Stream(topic) => topic.changed(),
        }
    }

    /// The newest sequence number of which something is no longer remembered.
    fn forgotten_through(&self) -> u64 {
        match self {
            Self::Retained(topic) => topic.pruned_through(),
            Self::Stream(topic) => topic.dropped_through(),
        }
    }
}

impl Bus {
    /// Follows topics by name; none means all. Present values of retained topics first, then changes, in the
    /// order of their sequence numbers over all topics asked for. With `after`, only what came later.
    ///
    /// A reader that falls far behind gets a `Reset` for each retained topic and starts over: after it the
    /// sequence numbers begin anew, so a reader resumes after the last one it got, not the highest.
    /// The stream never ends by itself.
    ///
    /// # Errors
    /// When a topic is not known, or `after` cannot be resumed.
    pub fn watch(
        &self,
        names: &[String],
        after: Option<u64>,
    ) -> Result<BoxStream<'static, BusEvent>, WatchRefused> {
        let topics = choose(self.topics(), names)?;
        let watcher = Watcher::start(Arc::clone(&self.order), topics, after)?;
        Ok(futures::stream::unfold(watcher, |mut watcher| async move {
            let event = watcher.next().await;
            Some((event, watcher))
        })
        .boxed())
    }
}

fn choose(topics: Vec<AnyTopic>, names: &[String]) -> Result<Vec<AnyTopic>, WatchRefused> {
    for name in names {
        if !topics.iter().any(|topic| topic.name() == name) {
            let nearest = DECLARATIONS
                .iter()
                .map(|declaration| declaration.name)
                .min_by_key(|known| strsim::damerau_levenshtein(known, name))
                .unwrap_or_default();
            return Err(WatchRefused::UnknownTopic {
                name: name.clone(),
                nearest,
            });
        }
    }
    Ok(topics
        .into_iter()
        .filter(|topic| names.is_empty() || names.iter().any(|name| name == topic.name()))
        .collect())
}

/// A reader's place in several topics.
pub(super) struct Watcher {
    order: Arc<Order>,
    retained: Vec<Arc<dyn RetainedView>>,
    /// Stream topics, and the number of the next event of each.
    streams: Vec<(Arc<dyn StreamView>, u64)>,
    wakes: Vec<watch::Receiver<()>>,
    place: Place,
    /// Changes read of one topic at a time.
    pub(super) page: usize,
    pending: VecDeque<Pending>,
}

/// An event that is read but not handed over; its document is made only then.
struct Pending {
    topic: &'static str,
    what: What,
}

enum What {
    Change(ErasedChange),
    Missed { sequence: u64, count: u64 },
    Reset,
}

impl Pending {
    /// A gap comes after whatever has the same number, so that resuming after it loses nothing.
    fn position(&self) -> (u64, bool) {
        match &self.what {
            What::Change(change) => (change.sequence, false),
            What::Missed { sequence, .. } => (*sequence, true),
            What::Reset => (0, false),
        }
    }
}

impl Watcher {
    pub(super) fn start(
        order: Arc<Order>,
        topics: Vec<AnyTopic>,
        after: Option<u64>,
    ) -> Result<Self, WatchRefused> {
        let wakes = topics.iter().map(AnyTopic::changed).collect();
        let newest = order.newest();
        let place = match after {
            None => Place {
                cursor: order.base(),
                mark: newest,
            },
            Some(after) => {
                let forgotten = topics.iter().map(AnyTopic::forgotten_through).max();
                let oldest = forgotten.unwrap_or_default().max(order.base());
                if after < oldest || after > newest {
                    return Err(WatchRefused::OutOfRange {
                        after,
                        oldest,
                        newest,
                    });
                }
                Place {
                    cursor: after,
                    mark: order.base(),
                }
            }
        };
        let mut retained = Vec::new();
        let mut streams = Vec::new();
        for topic in topics {
            match topic {
                AnyTopic::Retained(topic) => retained.push(topic),
                AnyTopic::Stream(topic) => {
                    let next = topic.number_after(after.unwrap_or(newest));
                    streams.push((topic, next));
                }
            }
        }
        Ok(Self {
            order,
            retained,
            streams,
            wakes,
            place,
            page: PAGE,
            pending: VecDeque::new(),
        })
    }

    pub(super) async fn next(&mut self) -> BusEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            if self.wakes.is_empty() {
                std::future::pending::<()>().await;
            }
            let any = select_all(self.wakes.iter_mut().map(|wake| wake.changed().boxed()));
            if any.await.0.is_err() {
                // Cannot be: the watcher itself keeps its topics alive.
                std::future::pending::<()>().await;
            }
        }
    }

    pub(super) fn try_next(&mut self) -> Option<BusEvent> {
        if self.pending.is_empty() {
            for wake in &mut self.wakes {
                wake.borrow_and_update();
            }
            while let Err(Pruned) = self.fill() {
                if self.start_over() {
                    break;
                }
            }
        }
        self.pending.pop_front().map(|pending| self.render(pending))
    }

    /// Reads what is complete: everything up to the newest sequence number, or up to where the first page ended.
    fn fill(&mut self) -> Result<(), Pruned> {
        // First the number, then the topics: so each of them holds all its changes up to that number.
        let newest = self.order.newest();
        let mut horizon = newest;
        let mut read: Vec<Pending> = Vec::new();
        for topic in &self.retained {
            let changes = topic.changes(self.place, newest, self.page)?;
            if changes.len() == self.page {
                horizon = changes.last().map_or(horizon, |last| horizon.min(last.sequence));
            }
            read.extend(changes.into_iter().map(|change| Pending {
                topic: topic.name(),
                what: What::Change(change),
            }));
        }
        let mut pages = Vec::new();
        for (topic, next) in &self.streams {
            let page = topic.events(*next, newest, self.page);
            if page.events.len() == self.page {
                horizon = page
                    .events
                    .last()
                    .map_or(horizon, |last| horizon.min(last.sequence));
            }
            pages.push(page);
        }
        for ((topic, next), page) in self.streams.iter_mut().zip(pages) {
            let ready = page
                .events
                .iter()
                .take_while(|event| event.sequence <= horizon)
                .count();
            let Some(first) = page.events.first().filter(|_| ready > 0) else {
                continue;
            };
            if page.missed > 0 {
                read.push(Pending {
                    topic: topic.name(),
                    what: What::Missed {
                        sequence: first.sequence.saturating_sub(1),
                        count: page.missed,
                    },
                });
            }
            *next = next.saturating_add(page.missed).saturating_add(ready as u64);
            read.extend(page.events.into_iter().take(ready).map(|event| Pending {
                topic: topic.name(),
                what: What::Change(event),
            }));
        }
        read.retain(|pending| pending.position().0 <= horizon);
        read.sort_by_key(Pending::position);
        self.place.cursor = self.place.cursor.max(horizon);
        self.pending.extend(read);
        Ok(())
    }

    /// Begins anew with the present values. Returns whether the reader has to be told: not if it knows nothing yet.
    fn start_over(&mut self) -> bool {
        let knows_something = self.place.cursor > self.order.base();
        self.place = Place {
            cursor: self.order.base(),
            mark: self.order.newest(),
        };
        let resets = self
            .retained
            .iter()
            .filter(|_| knows_something)
            .map(|topic| Pending {
                topic: topic.name(),
                what: What::Reset,
            });
        self.pending.extend(resets);
        knows_something
    }

    fn render(&self, pending: Pending) -> BusEvent {
        let topic = pending.topic.to_owned();
        match pending.what {
            What::Change(change) => BusEvent {
                topic,
                key: change.key.to_string(),
                sequence: change.sequence,
                at: change.at,
                change: change
                    .payload
                    .map_or(Change::Deleted, |payload| Change::Value(payload.document())),
            },
            What::Missed { sequence, count } => BusEvent {
                topic,
                key: String::new(),
                sequence,
                at: self.order.now(),
                change: Change::Missed(count),
            },
            What::Reset => BusEvent {
                topic,
                key: String::new(),
                sequence: self.order.base(),
                at: self.order.now(),
                change: Change::Reset,
            },
        }
    }
}
