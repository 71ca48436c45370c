//! Where things run: one multi-thread runtime for I/O with a few actor threads beside it, or, in tests on
//! a paused clock, one current-thread runtime for everything.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_rt::{Arbiter, ArbiterHandle};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::domain::supervision::Place;

/// How often an actor thread is asked for a sign of life.
const THREAD_HEARTBEAT: Duration = Duration::from_secs(2);
/// How long it may take to answer.
const THREAD_DEADLINE: Duration = Duration::from_secs(8);

/// Where things run.
#[derive(Clone)]
pub struct Runtimes(Arc<Inner>);

struct Inner {
    io: Handle,
    /// Empty when everything runs on one runtime.
    threads: Mutex<BTreeMap<Place, Thread>>,
    /// The system's own thread, for places without one of their own.
    only: ArbiterHandle,
}

struct Thread {
    arbiter: Arbiter,
    /// Made beforehand, because only a thread of the system can make one.
    spare: Option<Arbiter>,
}

/// An actor thread did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadLost {
    /// Its actors start anew on another one.
    Replaced(Place),
    /// It happened before: the process is not to be trusted any more.
    Again(Place),
}

impl Runtimes {
    /// Everything on the current actix system and its runtime.
    #[must_use]
    pub fn one() -> Self {
        Self(Arc::new(Inner {
            io: Handle::current(),
            threads: Mutex::default(),
            only: Arbiter::current(),
        }))
    }

    /// I/O on `io`, actors on threads of their own. Call it inside an actix system.
    #[must_use]
    pub fn two(io: Handle) -> Self {
        let threads = [Place::Pools, Place::Objects, Place::Inventory]
            .into_iter()
            .map(|place| {
                (
                    place,
                    Thread {
                        arbiter: Arbiter::new(),
                        spare: Some(Arbiter::new()),
                    },
                )
            })
            .collect();
        Self(Arc::new(Inner {
            io,
            threads: Mutex::new(threads),
            only: Arbiter::current(),
        }))
    }

    /// The I/O runtime: clients, servers, effects.
    #[must_use]
    pub fn io(&self) -> &Handle {
        &self.0.io
    }

    /// The thread that actors of a place start on.
    #[must_use]
    pub fn arbiter(&self, place: Place) -> ArbiterHandle {
        let threads = self.0.threads.lock();
        threads
            .get(&place)
            .map_or_else(|| self.0.only.clone(), |thread| thread.arbiter.handle())
    }

    /// Asks every actor thread for a sign of life, for ever. A thread that does not answer cannot be
    /// killed: its place gets another one, once.
    pub async fn watch_threads(self, mut on_lost: impl FnMut(ThreadLost) + Send) {
        loop {
            tokio::time::sleep(THREAD_HEARTBEAT).await;
            let asked: Vec<(Place, Arc<AtomicBool>)> = {
                let threads = self.0.threads.lock();
                threads
                    .iter()
                    .map(|(place, thread)| (*place, ask(&thread.arbiter)))
                    .collect()
            };
            if asked.is_empty() {
                return;
            }
            let mut waited = Duration::ZERO;
            while waited < THREAD_DEADLINE
                && asked
                    .iter()
                    .any(|(_, answered)| !answered.load(Ordering::Acquire))
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
                waited += Duration::from_millis(50);
            }
            for (place, answered) in asked {
                if !answered.load(Ordering::Acquire) {
                    on_lost(self.replace(place));
                }
            }
        }
    }

    fn replace(&self, place: Place) -> ThreadLost {
        let mut threads = self.0.threads.lock();
        match threads.get_mut(&place).and_then(|thread| thread.spare.take()) {
            Some(spare) => {
                // The old one's handle is dropped; its thread is left to itself.
                threads.insert(
                    place,
                    Thread {
                        arbiter: spare,
                        spare: None,
                    },
                );
                ThreadLost::Replaced(place)
            }
            None => ThreadLost::Again(place),
        }
    }

    /// Ends the actor threads.
    pub fn stop(&self) {
        for thread in self.0.threads.lock().values() {
            for arbiter in [Some(&thread.arbiter), thread.spare.as_ref()]
                .into_iter()
                .flatten()
            {
                arbiter.stop();
            }
        }
    }
}

fn ask(arbiter: &Arbiter) -> Arc<AtomicBool> {
    let answered = Arc::new(AtomicBool::new(false));
    let answer = Arc::clone(&answered);
    arbiter.spawn_fn(move || answer.store(true, Ordering::Release));
    answered
}

impl fmt::Debug for Runtimes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Runtimes")
            .field("threads", &self.0.threads.lock().len())
            .finish_non_exhaustive()
    }
}
