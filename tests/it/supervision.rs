//! Actors are killed, frozen, flooded and made to fail; the table of DESIGN §2 must hold.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freehold::{
    actors::{
        behaviour::{Behaviour, Handles, Message, Scope},
        guardian::{Child, Habitat, Happening, SupervisionEvent},
        host::capture_panics,
        reference::{ActorRef, Refused},
        runtimes::Runtimes,
    },
    domain::{
        actor::{ActorState, FaultClass, ProvokedFault},
        supervision::{BUDGET, Kind},
    },
};

use crate::world::{clock, eventually, paused};

const SOON: Duration = Duration::from_secs(1);

/// A parent of two object actors.
struct Parent {
    first: Option<Child<Counter>>,
    second: Option<Child<Counter>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    births: AtomicU64,
    stopped: Mutex<Vec<&'static str>>,
    /// The first child fails at every start.
    cursed: std::sync::atomic::AtomicBool,
}

struct Counter {
    name: &'static str,
    count: u64,
    shared: Arc<Shared>,
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.shared.stopped.lock().unwrap().push(self.name);
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.shared.stopped.lock().unwrap().push("parent");
    }
}

impl Behaviour for Parent {
    const KIND: Kind = Kind::Root;
    type View = u64;

    fn start(&mut self, scope: &mut Scope<'_, Self>) {
        self.first = Some(scope.child("first", counter("first", &self.shared)));
        self.second = Some(scope.child("second", counter("second", &self.shared)));
    }

    fn view(&self) -> u64 {
        2
    }
}

fn counter(name: &'static str, shared: &Arc<Shared>) -> impl Fn() -> Counter + Send + Sync + 'static {
    let shared = Arc::clone(shared);
    move || {
        shared.births.fetch_add(1, Ordering::SeqCst);
        Counter {
            name,
            count: 0,
            shared: Arc::clone(&shared),
        }
    }
}

impl Behaviour for Counter {
    const KIND: Kind = Kind::Node;
    type View = u64;

    fn start(&mut self, _scope: &mut Scope<'_, Self>) {
        assert!(
            self.name != "first" || !self.shared.cursed.load(Ordering::SeqCst),
            "cursed"
        );
    }

    fn view(&self) -> u64 {
        self.count
    }
}

struct Increment;
impl Message for Increment {
    type Reply = u64;
}
impl Handles<Increment> for Counter {
    fn handle(&mut self, _: Increment, _: &mut Scope<'_, Self>) -> u64 {
        self.count += 1;
        self.count
    }
}

struct Break;
impl Message for Break {
    type Reply = ();
}
impl Handles<Break> for Counter {
    fn handle(&mut self, _: Break, scope: &mut Scope<'_, Self>) {
        scope.fail(FaultClass::Invariant, "two and two is five");
    }
}

struct EffectThatPanics;
impl Message for EffectThatPanics {
    type Reply = ();
}
struct EffectFinished;
impl Message for EffectFinished {
    type Reply = ();
}
impl Handles<EffectThatPanics> for Counter {
    fn handle(&mut self, _: EffectThatPanics, scope: &mut Scope<'_, Self>) {
        scope.effect(async {
            tokio::task::yield_now().await;
            panic!("the effect broke");
            #[expect(unreachable_code, reason = "it gives the future its type")]
            EffectFinished
        });
    }
}
impl Handles<EffectFinished> for Counter {
    fn handle(&mut self, _: EffectFinished, _: &mut Scope<'_, Self>) {}
}

struct Children;
impl Message for Children {
    type Reply = (ActorRef<Counter>, ActorRef<Counter>);
}
impl Handles<Children> for Parent {
    fn handle(&mut self, _: Children, _: &mut Scope<'_, Self>) -> (ActorRef<Counter>, ActorRef<Counter>) {
        let of = |child: &Option<Child<Counter>>| child.as_ref().expect("started").reference().clone();
        (of(&self.first), of(&self.second))
    }
}

struct Family {
    habitat: Habitat,
    parent: Child<Parent>,
    lost: tokio::sync::mpsc::UnboundedReceiver<freehold::actors::guardian::LostChild>,
    shared: Arc<Shared>,
    events: Arc<Mutex<Vec<SupervisionEvent>>>,
    first: ActorRef<Counter>,
    second: ActorRef<Counter>,
}

async fn family() -> Family {
    family_on(Runtimes::one()).await
}

async fn family_on(runtimes: Runtimes) -> Family {
    capture_panics();
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let habitat = Habitat::new(runtimes, clock(), 1, 7, move |event| {
        heard.lock().unwrap().push(event)
    });
    let shared = Arc::new(Shared::default());
    let for_parent = Arc::clone(&shared);
    let (parent, lost) = habitat.start_root(move || Parent {
        first: None,
        second: None,
        shared: Arc::clone(&for_parent),
    });
    let (first, second) = parent.reference().ask(Children, SOON).await.expect("children");
    Family {
        habitat,
        parent,
        lost,
        shared,
        events,
        first,
        second,
    }
}

impl Family {
    fn state(&self, path: &str) -> ActorState {
        self.habitat
            .tree()
            .describe(Some(path), Some(0))
            .expect("registered")
            .state
    }

    fn restarts(&self, path: &str) -> u64 {
        self.habitat
            .tree()
            .describe(Some(path), Some(0))
            .expect("registered")
            .restarts
    }
}

const FIRST: &str = "root/first";

#[test]
fn a_panic_gives_a_fresh_state_and_the_sibling_never_notices() {
    paused(async {
        let family = family().await;
        assert_eq!(family.first.ask(Increment, SOON).await, Ok(1));
        assert_eq!(family.second.ask(Increment, SOON).await, Ok(1));
        family
            .habitat
            .tree()
            .provoke(FIRST, ProvokedFault::Panic)
            .expect("provoked");
        eventually("restart", || family.restarts(FIRST) == 1).await;
        assert_eq!(
            family.first.ask(Increment, SOON).await,
            Ok(1),
            "a new state counts from the start"
        );
        assert_eq!(
            family.second.ask(Increment, SOON).await,
            Ok(2),
            "the sibling goes on"
        );
        let report = family.habitat.tree().describe(Some(FIRST), None).expect("there");
        let fault = report.last_fault.expect("recorded");
        assert_eq!(fault.class, FaultClass::Panic);
        assert!(
            fault.message.contains("provoked by an operator"),
            "{}",
            fault.message
        );
        let told: Vec<Happening> = family
            .events
            .lock()
            .unwrap()
            .iter()
            .map(|event| event.what.clone())
            .collect();
        assert!(
            matches!(
                &told[..],
                [
                    Happening::Faulted {
                        next: ActorState::Backoff,
                        ..
                    },
                    Happening::Restarted
                ]
            ),
            "{told:?}"
        );
    });
}

#[test]
fn an_actor_that_fails_every_time_is_quarantined_and_tried_again_later_and_on_request() {
    paused(async {
        let family = family().await;
        family.shared.cursed.store(true, Ordering::SeqCst);
        family
            .habitat
            .tree()
            .provoke(FIRST, ProvokedFault::Panic)
            .expect("provoked");
        eventually("quarantine", || family.state(FIRST) == ActorState::Failed).await;
        assert_eq!(family.restarts(FIRST), BUDGET as u64);
        assert_eq!(family.first.ask(Increment, SOON).await, Err(Refused::Unavailable));
        assert_eq!(family.second.ask(Increment, SOON).await, Ok(1));
        assert_eq!(family.state("root"), ActorState::Running, "it never escalates");

        family.habitat.tree().retry(FIRST).expect("known");
        eventually("a try on request", || family.restarts(FIRST) == BUDGET as u64 + 1).await;
        eventually("parked again at once", || {
            family.state(FIRST) == ActorState::Failed
        })
        .await;

        family.shared.cursed.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(601)).await;
        assert_eq!(family.state(FIRST), ActorState::Running);
        assert_eq!(family.first.ask(Increment, SOON).await, Ok(1));
    });
}

#[test]
fn a_frozen_actor_is_given_up_and_another_takes_its_place() {
    paused(async {
        let family = family().await;
        assert_eq!(family.first.ask(Increment, SOON).await, Ok(1));
        family
            .habitat
            .tree()
            .provoke(FIRST, ProvokedFault::Freeze)
            .expect("provoked");
        assert_eq!(family.first.ask(Increment, SOON).await, Err(Refused::TimedOut));
        eventually("restart", || family.restarts(FIRST) == 1).await;
        assert_eq!(family.first.ask(Increment, SOON).await, Ok(1));
        assert_eq!(family.second.ask(Increment, SOON).await, Ok(1));
        let report = family.habitat.tree().describe(Some(FIRST), None).expect("there");
        assert_eq!(report.last_fault.expect("recorded").class, FaultClass::Heartbeat);
        eventually("the frozen one is gone", || {
            family
                .shared
                .stopped
                .lock()
                .unwrap()
                .iter()
                .filter(|name| **name == "first")
                .count()
                == 1
        })
        .await;
    });
}

#[test]
fn a_fault_rebuilds_the_state_and_keeps_what_waits_in_the_mailbox() {
    paused(async {
        let family = family().await;
        assert_eq!(family.first.ask(Increment, SOON).await, Ok(1));
        family.first.tell(Break).expect("taken");
        let waiting = family.first.ask(Increment, Duration::from_secs(60));
        assert_eq!(waiting.await, Ok(1), "handled by the new state, after the wait");
        assert_eq!(family.restarts(FIRST), 1);
        assert_eq!(family.shared.births.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn faults_beyond_the_budget_quarantine_too() {
    paused(async {
        let family = family().await;
        for _ in 0..=BUDGET {
            assert_eq!(
                family.first.ask(Break, Duration::from_secs(60)).await,
                Err(Refused::Unavailable)
            );
        }
        eventually("quarantine", || family.state(FIRST) == ActorState::Failed).await;
        assert_eq!(family.second.ask(Increment, SOON).await, Ok(1));
    });
}

#[test]
fn a_panic_in_an_effect_is_a_fault_of_its_actor() {
    paused(async {
        let family = family().await;
        family.first.ask(EffectThatPanics, SOON).await.expect("started");
        eventually("restart", || family.restarts(FIRST) == 1).await;
        let report = family.habitat.tree().describe(Some(FIRST), None).expect("there");
        assert!(
            report
                .last_fault
                .expect("recorded")
                .message
                .contains("the effect broke")
        );
    });
}

#[test]
fn a_flood_is_refused_once_the_mailbox_is_full_and_shown_while_it_waits() {
    paused(async {
        let family = family().await;
        let taken = (0..10_000)
            .filter(|_| family.first.tell(Increment).is_ok())
            .count();
        assert!((1..100).contains(&taken), "{taken} were taken");
        assert_eq!(family.first.tell(Increment), Err(Refused::Busy));
        let report = family.habitat.tree().describe(Some(FIRST), None).expect("there");
        assert_eq!(report.mailbox, taken as u64);
        eventually("all handled", || {
            family
                .habitat
                .tree()
                .describe(Some(FIRST), None)
                .is_some_and(|report| report.mailbox == 0)
        })
        .await;
        assert_eq!(family.first.ask(Increment, SOON).await, Ok(taken as u64 + 1));
    });
}

#[test]
fn a_pool_that_cannot_be_kept_alive_escalates_to_the_process() {
    paused(async {
        let mut family = family().await;
        for _ in 0..=BUDGET {
            eventually("running", || {
                family
                    .habitat
                    .tree()
                    .describe(Some("root"), Some(0))
                    .is_some_and(|r| r.state == ActorState::Running)
            })
            .await;
            family
                .habitat
                .tree()
                .provoke("root", ProvokedFault::Panic)
                .expect("provoked");
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        assert_eq!(family.lost.recv().await.expect("escalated").path, "root");
    });
}

#[test]
fn a_pool_that_starts_anew_brings_up_new_children() {
    paused(async {
        let family = family().await;
        assert_eq!(family.first.ask(Increment, SOON).await, Ok(1));
        family
            .habitat
            .tree()
            .provoke("root", ProvokedFault::Stop)
            .expect("provoked");
        eventually("new children", || {
            family.shared.births.load(Ordering::SeqCst) == 4
        })
        .await;
        let (first, _) = family
            .parent
            .reference()
            .ask(Children, SOON)
            .await
            .expect("children");
        assert_eq!(first.ask(Increment, SOON).await, Ok(1));
        assert_eq!(
            family.first.ask(Increment, SOON).await,
            Err(Refused::Unavailable),
            "the old one is gone"
        );
    });
}

#[test]
fn children_stop_before_their_parent() {
    paused(async {
        let family = family().await;
        family.parent.stop().await;
        let order = family.shared.stopped.lock().unwrap().clone();
        assert_eq!(order.last(), Some(&"parent"), "{order:?}");
        assert_eq!(order.len(), 3, "{order:?}");
        assert!(family.habitat.tree().describe(None, None).is_none());
    });
}

#[test]
fn a_thread_that_hangs_is_replaced_and_its_actors_live_on_elsewhere() {
    struct Hang(std::sync::mpsc::Receiver<()>);
    impl Message for Hang {
        type Reply = ();
    }
    impl Handles<Hang> for Counter {
        fn handle(&mut self, hang: Hang, _: &mut Scope<'_, Self>) {
            let _ = hang.0.recv();
        }
    }
    let io = tokio::runtime::Runtime::new().expect("a runtime");
    actix_rt::System::new().block_on(async {
        let runtimes = Runtimes::two(io.handle().clone());
        let family = family_on(runtimes.clone()).await;
        io.spawn(runtimes.clone().watch_threads(|_| {}));
        let (release, hang) = std::sync::mpsc::channel();
        family.first.tell(Hang(hang)).expect("taken");
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while family.second.ask(Increment, SOON).await.is_err()
            || family.first.ask(Increment, SOON).await.is_err()
        {
            assert!(tokio::time::Instant::now() < deadline, "never came back");
        }
        drop(release);
        family.parent.stop().await;
        runtimes.stop();
    });
}
