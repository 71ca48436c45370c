//! What becomes of an actor when something goes wrong: the supervision table of DESIGN §2, as one pure
//! state machine.
//!
//! | state    | started  | faulted / exited, budget left | …, budget spent            | due      | asked to retry | asked to stop |
//! |----------|----------|-------------------------------|----------------------------|----------|----------------|---------------|
//! | starting | running  | backoff                       | failed, or stopping (pool) | –        | –              | stopping      |
//! | running  | –        | backoff                       | failed, or stopping (pool) | –        | –              | stopping      |
//! | backoff  | running¹ | backoff                       | failed, or stopping (pool) | starting | starting       | stopping      |
//! | failed   | –        | –                             | –                          | starting | starting       | stopping      |
//! | stopping | –        | –                             | –                          | –        | –              | –             |
//!
//! ¹ an actor that rebuilds in place keeps its mailbox and comes back by itself.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use super::actor::{ActorState, FaultClass};

/// Restarts allowed within [`WINDOW`] before the budget is spent.
pub const BUDGET: usize = 5;
/// The time over which restarts are counted.
pub const WINDOW: Duration = Duration::from_secs(600);
/// How long a quarantined actor is left alone before it is tried again.
pub const QUARANTINE: Duration = Duration::from_secs(600);
/// The first wait before a restart; it doubles up to [`LONGEST_BACKOFF`].
pub const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The longest wait before a restart.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The kinds of actor there are. One row each in [`policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The parent of all.
    Root,
    /// Looks after the nodes.
    NodePool,
    /// One Kubernetes node.
    Node,
    /// Folds what is known of the hardware.
    Inventory,
    /// Says whether the provider is ready, and why not.
    Status,
    /// Looks after the store's health and size.
    Store,
}

impl Kind {
    /// As it is written in paths, metrics and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::NodePool => "node-pool",
            Self::Node => "node",
            Self::Inventory => "inventory",
            Self::Status => "status",
            Self::Store => "store",
        }
    }
}

/// How an actor of a kind is looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What happens when the budget is spent.
    pub when_spent: WhenSpent,
    /// Where it runs.
    pub place: Place,
    /// How often it is asked for a sign of life.
    pub heartbeat: Duration,
    /// Messages that may wait before senders are refused.
    pub mailbox: usize,
}

/// What happens when an actor's restart budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenSpent {
    /// It is parked, shown and counted, and tried again later: no tenant's object can stop the process.
    Quarantine,
    /// Its parent faults; at the root the process exits.
    Escalate,
}

/// Which thread an actor runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Shared by the root and the pools.
    Pools,
    /// Shared by the many actors of single objects.
    Objects,
    /// Inventory has a thread of its own.
    Inventory,
}

/// The supervision table.
#[must_use]
pub const fn policy(kind: Kind) -> Policy {
    let (when_spent, place, heartbeat, mailbox) = match kind {
        Kind::Root => (WhenSpent::Escalate, Place::Pools, 5, 64),
        Kind::NodePool => (WhenSpent::Escalate, Place::Pools, 5, 1024),
        Kind::Inventory => (WhenSpent::Escalate, Place::Inventory, 5, 1024),
        Kind::Status | Kind::Store => (WhenSpent::Escalate, Place::Pools, 5, 64),
        Kind::Node => (WhenSpent::Quarantine, Place::Objects, 10, 16),
    };
    Policy {
        when_spent,
        place,
        heartbeat: Duration::from_secs(heartbeat),
        mailbox,
    }
}

/// The life of one supervised actor.
#[derive(Clone, Debug)]
pub struct Life {
    when_spent: WhenSpent,
    state: ActorState,
    /// When the recent faults were, oldest first; never more than [`BUDGET`] + 1.
    recent: VecDeque<Duration>,
    restarts: u64,
}

/// What happened to an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeEvent {
    /// It began to serve.
    Started,
    /// It faulted, panicked, froze or ended without being asked to.
    Faulted(FaultClass),
    /// The wait after a fault, or the quarantine, is over.
    Due,
    /// Somebody asks to try again now.
    RetryAsked,
    /// It is to end.
    StopAsked,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Nothing,
    /// Make a new one now.
    Start,
    /// Make a new one after this long (before jitter).
    StartAfter(Duration),
    /// Park it, and try again after this long.
    Park(Duration),
    /// Tell the parent that this actor cannot be kept alive.
    Escalate,
    /// End it.
    Stop,
}

impl Life {
    /// A life that is about to begin.
    #[must_use]
    pub const fn new(when_spent: WhenSpent) -> Self {
        Self {
            when_spent,
            state: ActorState::Starting,
            recent: VecDeque::new(),
            restarts: 0,
        }
    }

    /// What the actor is doing.
    #[must_use]
    pub const fn state(&self) -> ActorState {
        self.state
    }

    /// How often it was started anew.
    #[must_use]
    pub const fn restarts(&self) -> u64 {
        self.restarts
    }

    /// One event, at a monotonic time.
    pub fn step(&mut self, event: LifeEvent, now: Duration) -> Verdict {
        use ActorState::{Backoff, Failed, Running, Starting, Stopping};
        match (self.state, event) {
            (Stopping, _) => Verdict::Nothing,
            (Starting | Running | Backoff | Failed, LifeEvent::StopAsked) => {
                self.state = Stopping;
                Verdict::Stop
            }
            (Starting | Backoff, LifeEvent::Started) => {
                self.state = Running;
                Verdict::Nothing
            }
            (Running | Failed, LifeEvent::Started) => Verdict::Nothing,
            (Starting | Running | Backoff, LifeEvent::Faulted(_)) => self.fault(now),
            (Failed, LifeEvent::Faulted(_)) => Verdict::Nothing,
            (Backoff | Failed, LifeEvent::Due | LifeEvent::RetryAsked) => {
                self.state = Starting;
                self.restarts = self.restarts.saturating_add(1);
                Verdict::Start
            }
            (Starting | Running, LifeEvent::Due | LifeEvent::RetryAsked) => Verdict::Nothing,
        }
    }

    fn fault(&mut self, now: Duration) -> Verdict {
        while self
            .recent
            .front()
            .is_some_and(|first| now.saturating_sub(*first) > WINDOW)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        if self.recent.len() <= BUDGET {
            self.state = ActorState::Backoff;
            return Verdict::StartAfter(backoff(self.recent.len()));
        }
        // One try after the quarantine: if it fails again within the window, it is parked again at once.
        self.recent.pop_front();
        match self.when_spent {
            WhenSpent::Quarantine => {
                self.state = ActorState::Failed;
                Verdict::Park(QUARANTINE)
            }
            WhenSpent::Escalate => {
                self.state = ActorState::Stopping;
                Verdict::Escalate
            }
        }
    }
}

/// The wait before the n-th restart in a row, before jitter.
#[must_use]
pub fn backoff(faults: usize) -> Duration {
    let doublings = u32::try_from(faults.saturating_sub(1))
        .unwrap_or(u32::MAX)
        .min(16);
    FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fault_once(life: &mut Life, seconds: u64) -> Verdict {
        life.step(LifeEvent::Faulted(FaultClass::Panic), at(seconds))
    }

    #[test]
    fn five_faults_are_restarted_with_growing_waits_and_the_sixth_is_quarantined() {
        let mut life = Life::new(WhenSpent::Quarantine);
        for n in 0..5 {
            assert_eq!(life.step(LifeEvent::Started, at(n)), Verdict::Nothing);
            assert_eq!(
                fault_once(&mut life, n),
                Verdict::StartAfter(FIRST_BACKOFF * (1 << u32::try_from(n).unwrap()))
            );
            assert_eq!(life.step(LifeEvent::Due, at(n)), Verdict::Start);
        }
        assert_eq!(fault_once(&mut life, 5), Verdict::Park(QUARANTINE));
        assert_eq!(life.state(), ActorState::Failed);
        assert_eq!(life.restarts(), 5);
    }

    #[test]
    fn a_quarantined_actor_is_tried_again_and_parked_again_at_once() {
        let mut life = Life::new(WhenSpent::Quarantine);
        for n in 0..6 {
            fault_once(&mut life, n);
            life.step(LifeEvent::Due, at(n));
        }
        assert_eq!(life.state(), ActorState::Starting);
        assert_eq!(fault_once(&mut life, 7), Verdict::Park(QUARANTINE));
        assert_eq!(life.step(LifeEvent::RetryAsked, at(8)), Verdict::Start);
    }

    #[test]
    fn faults_older_than_the_window_are_forgiven() {
        let mut life = Life::new(WhenSpent::Escalate);
        for n in 0..50 {
            let verdict = fault_once(&mut life, n * 200);
            assert!(
                matches!(verdict, Verdict::StartAfter(_)),
                "fault {n}: {verdict:?}"
            );
            life.step(LifeEvent::Due, at(n * 200));
        }
    }

    #[test]
    fn a_pool_escalates_and_then_does_nothing_more() {
        let mut life = Life::new(WhenSpent::Escalate);
        for n in 0..5 {
            fault_once(&mut life, n);
            life.step(LifeEvent::Due, at(n));
        }
        assert_eq!(fault_once(&mut life, 5), Verdict::Escalate);
        assert_eq!(life.step(LifeEvent::Due, at(900)), Verdict::Nothing);
        assert_eq!(life.step(LifeEvent::StopAsked, at(900)), Verdict::Nothing);
    }

    #[test]
    fn no_wait_is_longer_than_the_longest() {
        assert_eq!(backoff(usize::MAX), LONGEST_BACKOFF);
    }
}
