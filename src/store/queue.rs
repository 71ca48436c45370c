//! The queue before the store's thread, and what can be seen without it.

use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{SyncSender, TrySendError},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::{
    layout::Meta,
    snapshot::{Start, Step},
};
use crate::ports::{
    clock::Clock,
    store::{Batch, Pair, StoreError, StoreHealth},
};

/// A commit that takes longer than this shows in `health`.
const STUCK_AFTER: Duration = Duration::from_secs(30);

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Changes what the store knows about itself.
pub(super) type MetaChange = Box<dyn FnOnce(&mut Meta) + Send>;

/// What the thread is asked to do.
pub(super) enum Request {
    Commit {
        batch: Batch,
        reply: Reply<()>,
    },
    ChangeMeta {
        change: MetaChange,
        reply: Reply<Meta>,
    },
    Get {
        key: Vec<u8>,
        reply: Reply<Option<Vec<u8>>>,
    },
    Scan {
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
        reply: Reply<Vec<Pair>>,
    },
    StartSnapshot {
        reply: Reply<Start>,
    },
    StepSnapshot {
        id: u64,
        reply: Reply<Step>,
    },
    EndSnapshot {
        id: u64,
    },
    Close {
        reply: Reply<()>,
    },
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Request")
    }
}

/// The thread's queue, from outside.
#[derive(Clone, Debug)]
pub(super) struct Inbox(pub SyncSender<Request>);

impl Inbox {
    /// Puts a request into the queue now; the future is its answer.
    pub fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let refused = match self.0.try_send(request(reply)) {
            Ok(()) => None,
            Err(TrySendError::Full(_)) => Some("it has too much to do, try again"),
            Err(TrySendError::Disconnected(_)) => Some("it has stopped"),
        };
        Box::pin(async move {
            if let Some(reason) = refused {
                return Err(unavailable(reason));
            }
            answer
                .await
                .unwrap_or_else(|_| Err(unavailable("it has stopped")))
        })
    }

    /// Puts a request into the queue if there is room.
    pub fn tell(&self, request: Request) {
        let _ = self.0.try_send(request);
    }
}

/// What can be seen without asking the thread.
#[derive(Debug)]
pub(super) struct Shared {
    pub health: Mutex<StoreHealth>,
    pub rebuilds: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
    pub busy_since: Mutex<Option<Duration>>,
}

impl Shared {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            health: Mutex::default(),
            rebuilds: watch::Sender::new(0),
            clock,
            busy_since: Mutex::default(),
        }
    }

    pub fn health(&self) -> StoreHealth {
        let mut health = self.health.lock().clone();
        let stuck = self
            .busy_since
            .lock()
            .is_some_and(|since| self.clock.monotonic().saturating_sub(since) > STUCK_AFTER);
        health.healthy &= !stuck;
        health
    }
}

pub(super) fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable {
        reason: reason.to_owned(),
    }
}
