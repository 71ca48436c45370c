//! The record of one actor that outlives its incarnations: what it is doing, what went wrong, what it shows.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

use crate::{
    domain::{
        actor::{ActorFault, ActorReport, ActorState, FaultClass},
        supervision::{Kind, Life, LifeEvent, Verdict, policy},
    },
    ports::clock::Clock,
};

/// The record of one actor.
pub struct Slot {
    path: String,
    kind: Kind,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    waiting: AtomicU64,
    handled: AtomicU64,
    generation: AtomicU64,
}

struct State {
    life: Life,
    since: Timestamp,
    last_fault: Option<ActorFault>,
    view: Arc<dyn View>,
}

/// What an actor shows, serialised only when somebody looks.
trait View: Send + Sync {
    fn json(&self) -> serde_json::Value;
}

impl<T: Serialize + Send + Sync> View for T {
    fn json(&self) -> serde_json::Value {
        serde_json::to_value(self)
            .unwrap_or_else(|error| serde_json::json!({ "unreadable": error.to_string() }))
    }
}

impl Slot {
    /// The record of an actor that is about to start.
    #[must_use]
    pub fn new(path: String, kind: Kind, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            life: Life::new(policy(kind).when_spent),
            since: clock.wall(),
            last_fault: None,
            view: Arc::new(()),
        };
        Self {
            path,
            kind,
            clock,
            state: Mutex::new(state),
            waiting: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        }
    }

    /// Where the actor is in the tree.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// A new incarnation begins.
    pub(super) fn born(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// The present incarnation, or the last one.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// How often it was started anew.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.state.lock().life.restarts()
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> ActorState {
        self.state.lock().life.state()
    }

    /// One step of its life.
    pub fn step(&self, event: LifeEvent) -> Verdict {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let before = state.life.state();
        let verdict = state.life.step(event, now);
        if state.life.state() != before {
            state.since = self.clock.wall();
        }
        verdict
    }

    /// Records a fault and says what is to be done about it.
    pub fn faulted(&self, class: FaultClass, message: String) -> Verdict {
        self.state.lock().last_fault = Some(ActorFault {
            at: self.clock.wall(),
            class,
            message,
        });
        self.step(LifeEvent::Faulted(class))
    }

    /// Records what the actor shows of itself.
    pub(super) fn show<V: Serialize + Send + Sync + 'static>(&self, view: V) {
        self.state.lock().view = Arc::new(view);
    }

    /// A message was put into the mailbox; it counts until the ticket is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Ticket {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ticket(Arc::clone(self))
    }

    /// A message was taken from the mailbox.
    pub(super) fn took_one(&self) {
        self.handled.fetch_add(1, Ordering::Relaxed);
    }

    /// How many messages were taken from the mailbox so far: a sign of life.
    pub(super) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// What can be said of the actor from outside, without its children.
    #[must_use]
    pub fn report(&self) -> ActorReport {
        let state = self.state.lock();
        ActorReport {
            path: self.path.clone(),
            kind: self.kind.name().to_owned(),
            state: state.life.state(),
            since: state.since,
            restarts: state.life.restarts(),
            mailbox: self.waiting.load(Ordering::Relaxed),
            last_fault: state.last_fault.clone(),
            view: state.view.json(),
            children: Vec::new(),
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Slot")
            .field("path", &self.path)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Counts a message as waiting for as long as it waits.
pub(super) struct Ticket(Arc<Slot>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
