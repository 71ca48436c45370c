//! Keeps actors alive: makes them from a factory, hears of their end by a drop guard, waits, makes new
//! ones, and gives up as the supervision table says. There is one guardian for each actor, a task of the
//! I/O runtime, so that a thread that hangs does not take its guardians with it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actix::Actor as _;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    behaviour::Behaviour,
    host::{Cradle, End, ExitGuard, Host, Probe, Provoke},
    reference::{ActorRef, Refused},
    runtimes::Runtimes,
    slot::Slot,
    tree::{ActorTree, Entry},
};
use crate::{
    domain::{
        actor::{ActorState, FaultClass},
        supervision::{Kind, LifeEvent, QUARANTINE, Verdict, policy},
    },
    ports::clock::Clock,
};

/// How long an actor may take to give a sign of life.
const HEARTBEAT_DEADLINE: Duration = Duration::from_secs(5);
/// How long an actor may take to end when asked to.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// What all guardians share.
#[derive(Clone)]
pub struct Habitat {
    pub(super) runtimes: Runtimes,
    pub(super) tree: ActorTree,
    clock: Arc<dyn Clock>,
    generations: Arc<AtomicU64>,
    jitter: Arc<Mutex<u64>>,
    on_event: Arc<dyn Fn(SupervisionEvent) + Send + Sync>,
}

/// Something that supervision did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisionEvent {
    /// The actor.
    pub path: String,
    /// Its kind.
    pub kind: Kind,
    /// The incarnation it happened to.
    pub generation: u64,
    /// What happened.
    pub what: Happening,
}

/// What can happen to an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Something went wrong, and this comes of it.
    Faulted {
        /// What kind of thing.
        class: FaultClass,
        /// In words.
        message: String,
        /// `backoff`, `failed` (quarantined) or `stopping` (escalated).
        next: ActorState,
    },
    /// It serves again.
    Restarted,
}

/// The end of an incarnation.
pub(super) struct Exit {
    /// What the panic said, if it was one.
    pub(super) panicked: Option<String>,
}

/// A child that cannot be kept alive.
#[derive(Debug)]
pub struct LostChild {
    /// The child.
    pub path: String,
}

/// A supervised actor, held by its parent: it ends when this is dropped.
#[derive(Debug)]
pub struct Child<B: Behaviour> {
    reference: ActorRef<B>,
    done: watch::Receiver<bool>,
    stop: DropGuard,
}

impl<B: Behaviour> Child<B> {
    /// For sending to it.
    #[must_use]
    pub fn reference(&self) -> &ActorRef<B> {
        &self.reference
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> ActorState {
        self.reference.state()
    }

    /// Ends it and everything below it, in reverse order of start.
    pub async fn stop(self) {
        let Self { stop, mut done, .. } = self;
        drop(stop);
        let _ = done.wait_for(|done| *done).await;
    }
}

impl Habitat {
    /// A world for actors to live in. Generations count up from `first_generation`, which must be higher
    /// than any of an earlier run.
    pub fn new(
        runtimes: Runtimes,
        clock: Arc<dyn Clock>,
        first_generation: u64,
        seed: u64,
        on_event: impl Fn(SupervisionEvent) + Send + Sync + 'static,
    ) -> Self {
        Self {
            runtimes,
            tree: ActorTree::default(),
            clock,
            generations: Arc::new(AtomicU64::new(first_generation)),
            jitter: Arc::new(Mutex::new(seed | 1)),
            on_event: Arc::new(on_event),
        }
    }

    /// The register of all actors.
    #[must_use]
    pub fn tree(&self) -> &ActorTree {
        &self.tree
    }

    /// Starts the actor above all others. When it cannot be kept alive, the receiver hears of it.
    pub fn start_root<B, F>(&self, factory: F) -> (Child<B>, mpsc::UnboundedReceiver<LostChild>)
    where
        B: Behaviour,
        F: Fn() -> B + Send + Sync + 'static,
    {
        let (lost, lost_receiver) = mpsc::unbounded_channel();
        (
            start(self, B::KIND.name().to_owned(), &lost, factory),
            lost_receiver,
        )
    }

    pub(super) fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::Relaxed)
    }

    /// Records a fault, tells of it, and says what is to be done.
    pub(super) fn fault(&self, slot: &Slot, class: FaultClass, message: String) -> Verdict {
        let verdict = slot.faulted(class, message.clone());
        let next = slot.state();
        self.tell(slot, Happening::Faulted { class, message, next });
        verdict
    }

    /// A state begins to serve.
    pub(super) fn began(&self, slot: &Slot) {
        slot.step(LifeEvent::Started);
        if slot.restarts() > 0 {
            self.tell(slot, Happening::Restarted);
        }
    }

    fn tell(&self, slot: &Slot, what: Happening) {
        let (path, kind, generation) = (slot.path().to_owned(), slot.kind(), slot.generation());
        (self.on_event)(SupervisionEvent {
            path,
            kind,
            generation,
            what,
        });
    }

    /// A wait with up to a fifth more or less, so that many do not come back at once. Seeded.
    pub(super) fn jittered(&self, wait: Duration) -> Duration {
        let mut state = self.jitter.lock();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let permille = u32::try_from(*state % 401).unwrap_or(200);
        wait.saturating_mul(800 + permille) / 1000
    }
}

impl fmt::Debug for Habitat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Habitat")
            .field("runtimes", &self.runtimes)
            .finish_non_exhaustive()
    }
}

pub(super) fn start_child<B, F>(
    habitat: &Habitat,
    parent: &str,
    name: &str,
    lost: &mpsc::UnboundedSender<LostChild>,
    factory: F,
) -> Child<B>
where
    B: Behaviour,
    F: Fn() -> B + Send + Sync + 'static,
{
    start(habitat, format!("{parent}/{name}"), lost, factory)
}

fn start<B, F>(
    habitat: &Habitat,
    path: String,
    lost: &mpsc::UnboundedSender<LostChild>,
    factory: F,
) -> Child<B>
where
    B: Behaviour,
    F: Fn() -> B + Send + Sync + 'static,
{
    let slot = Arc::new(Slot::new(path, B::KIND, Arc::clone(&habitat.clock)));
    let reference = ActorRef::new(Arc::clone(&slot));
    let stop = CancellationToken::new();
    let retry = Arc::new(Notify::new());
    let (done_sender, done) = watch::channel(false);
    let provoked = reference.clone();
    habitat.tree.enter(Entry {
        slot: Arc::clone(&slot),
        stop: stop.clone(),
        done: done.clone(),
        retry: Arc::clone(&retry),
        provoke: Arc::new(move |fault| {
            let address = provoked.address().ok_or(Refused::Unavailable)?;
            address.try_send(Provoke(fault)).map_err(|_| Refused::Busy)
        }),
        order: habitat.next_generation(),
    });
    let guardian = Guardian {
        habitat: habitat.clone(),
        slot,
        reference: reference.clone(),
        factory: Arc::new(factory),
        stop: stop.clone(),
        retry,
        lost: lost.clone(),
    };
    // The first incarnation starts at once, so that messages sent from now on reach it.
    let first = guardian.bear();
    habitat.runtimes.io().spawn(async move {
        guardian.guard(first).await;
        done_sender.send_replace(true);
    });
    Child {
        reference,
        done,
        stop: stop.drop_guard(),
    }
}

struct Guardian<B: Behaviour> {
    habitat: Habitat,
    slot: Arc<Slot>,
    reference: ActorRef<B>,
    factory: Arc<dyn Fn() -> B + Send + Sync>,
    stop: CancellationToken,
    retry: Arc<Notify>,
    lost: mpsc::UnboundedSender<LostChild>,
}

/// An incarnation, as its guardian sees it.
struct Incarnation<B: Behaviour> {
    address: actix::Addr<Host<B>>,
    exits: mpsc::UnboundedReceiver<Exit>,
    lost_children: mpsc::UnboundedReceiver<LostChild>,
    revoked: CancellationToken,
}

/// Why a guardian stops looking at an incarnation.
enum Ended {
    /// It is gone or given up; this is to be done.
    Down(Verdict),
    /// The parent wants it to end.
    StopAsked,
}

impl<B: Behaviour> Guardian<B> {
    async fn guard(self, first: Incarnation<B>) {
        let mut incarnation = first;
        loop {
            let ended = self.watch(&mut incarnation).await;
            let verdict = match ended {
                Ended::StopAsked => return self.end(Some(incarnation)).await,
                Ended::Down(verdict) => verdict,
            };
            self.reference.point_to(None);
            incarnation.revoked.cancel();
            drop(incarnation);
            let wait = match verdict {
                Verdict::StartAfter(wait) => self.habitat.jittered(wait),
                Verdict::Park(wait) => wait,
                Verdict::Escalate => {
                    // Nobody hears it only when the whole tree is going down.
                    let _ = self.lost.send(LostChild {
                        path: self.slot.path().to_owned(),
                    });
                    return self.end(None).await;
                }
                Verdict::Nothing | Verdict::Start => Duration::ZERO,
                Verdict::Stop => return self.end(None).await,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => { self.slot.step(LifeEvent::Due); }
                () = self.retry.notified() => { self.slot.step(LifeEvent::RetryAsked); }
                () = self.stop.cancelled() => return self.end(None).await,
            }
            incarnation = self.bear();
        }
    }

    /// Makes a new incarnation.
    fn bear(&self) -> Incarnation<B> {
        let (exit, exits) = mpsc::unbounded_channel();
        let (lost_sender, lost_children) = mpsc::unbounded_channel();
        let revoked = CancellationToken::new();
        let generation = self.habitat.next_generation();
        self.slot.born(generation);
        let cradle = Cradle {
            slot: Arc::clone(&self.slot),
            reference: self.reference.clone(),
            habitat: self.habitat.clone(),
            factory: Arc::clone(&self.factory),
            generation,
            over: CancellationToken::new(),
            revoked: revoked.clone(),
            lost_children: lost_sender,
            _exit: ExitGuard(exit),
        };
        let arbiter = self.habitat.runtimes.arbiter(policy(B::KIND).place);
        let address = Host::start_in_arbiter(&arbiter, move |_context| Host::new(cradle));
        self.reference.point_to(Some(address.clone()));
        Incarnation {
            address,
            exits,
            lost_children,
            revoked,
        }
    }

    /// Looks after an incarnation until it is gone, must be given up, or is to end.
    async fn watch(&self, incarnation: &mut Incarnation<B>) -> Ended {
        let period = policy(B::KIND).heartbeat;
        let mut asked: Option<u64> = None;
        loop {
            let wait = if asked.is_some() {
                HEARTBEAT_DEADLINE
            } else {
                self.habitat.jittered(period)
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ended::StopAsked,
                exit = incarnation.exits.recv() => return Ended::Down(self.judge(exit.and_then(|exit| exit.panicked))),
                Some(lost) = incarnation.lost_children.recv() => {
                    let message = format!("{} cannot be kept alive", lost.path);
                    return Ended::Down(self.habitat.fault(&self.slot, FaultClass::Invariant, message));
                }
                () = tokio::time::sleep(wait) => {
                    let handled = self.slot.handled();
                    // One that waits to rebuild is silent on purpose. One that is still starting may never
                    // get to it, when the thread it was put on hangs.
                    if asked == Some(handled) && self.slot.state() != ActorState::Backoff {
                        let message = format!("no sign of life for {} s", HEARTBEAT_DEADLINE.as_secs());
                        return Ended::Down(self.habitat.fault(&self.slot, FaultClass::Heartbeat, message));
                    }
                    asked = match asked {
                        Some(_) => None,
                        // A mailbox that is full is as good as asked: its messages are to be handled.
                        None => {
                            let _ = incarnation.address.try_send(Probe(self.slot.enter()));
                            Some(handled)
                        }
                    };
                }
            }
        }
    }

    /// An incarnation is gone that nobody asked to go.
    fn judge(&self, panicked: Option<String>) -> Verdict {
        match (panicked, self.slot.state()) {
            (Some(message), _) => self.habitat.fault(&self.slot, FaultClass::Panic, message),
            // It gave itself up after a fault that is already on record.
            (None, ActorState::Failed) => Verdict::Park(QUARANTINE),
            (None, ActorState::Stopping) => Verdict::Escalate,
            (None, ActorState::Starting | ActorState::Running | ActorState::Backoff) => self.habitat.fault(
                &self.slot,
                FaultClass::Invariant,
                "it stopped without being asked to".to_owned(),
            ),
        }
    }

    /// Ends what is below, then the actor itself.
    async fn end(&self, incarnation: Option<Incarnation<B>>) {
        self.slot.step(LifeEvent::StopAsked);
        self.habitat.tree.stop_below(self.slot.path()).await;
        if let Some(mut incarnation) = incarnation {
            // One that is frozen, or waits to rebuild, wakes to this and stops.
            incarnation.revoked.cancel();
            let ending = async {
                // An error means that it is gone already.
                let _ = incarnation.address.send(End).await;
                incarnation.exits.recv().await;
            };
            if tokio::time::timeout(STOP_DEADLINE, ending).await.is_err() {
                tracing::warn!(
                    actor = self.slot.path(),
                    "did not stop in time; it is left behind"
                );
            }
        }
        self.reference.point_to(None);
        self.habitat.tree.leave(&self.slot);
    }
}
