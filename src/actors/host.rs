//! The mailbox around a state: the one actix actor there is. It counts messages, carries spans across,
//! rebuilds its state in place after a fault, and tells its guardian when it ends, by whatever cause.

use std::{
    cell::RefCell,
    fmt,
    panic::PanicHookInfo,
    sync::{Arc, Once},
};

use actix::{ActorContext as _, ActorFutureExt as _, AsyncContext as _, WrapFuture as _};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    behaviour::{Behaviour, Handles, Message, Scope},
    guardian::{Exit, Habitat, LostChild},
    reference::ActorRef,
    slot::{Slot, Ticket},
};
use crate::domain::{
    actor::{FaultClass, ProvokedFault},
    supervision::{LifeEvent, Verdict, policy},
};

/// An actor of ours.
pub struct Host<B: Behaviour> {
    behaviour: B,
    cradle: Cradle<B>,
}

/// What an incarnation gets from its guardian.
pub(super) struct Cradle<B: Behaviour> {
    pub(super) slot: Arc<Slot>,
    pub(super) reference: ActorRef<B>,
    pub(super) habitat: Habitat,
    pub(super) factory: Arc<dyn Fn() -> B + Send + Sync>,
    pub(super) generation: u64,
    /// Cancelled when this incarnation is no longer the one: its effects end, and it wakes to stop.
    pub(super) over: CancellationToken,
    /// Cancelled when the guardian has given this actor up, or asks it to stop.
    pub(super) revoked: CancellationToken,
    pub(super) lost_children: mpsc::UnboundedSender<LostChild>,
    /// Last, so that the guardian hears of the end when everything else is gone.
    pub(super) _exit: ExitGuard,
}

/// Tells the guardian that the actor is gone, whether it stopped or panicked.
pub(super) struct ExitGuard(pub(super) mpsc::UnboundedSender<Exit>);

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let panicked =
            std::thread::panicking().then(|| last_panic().unwrap_or_else(|| "it panicked".to_owned()));
        // Nobody listens any more when the guardian has already given this actor up.
        let _ = self.0.send(Exit { panicked });
    }
}

/// A message on its way, with where it came from.
pub(super) struct Mail<M: Message> {
    message: M,
    reply: Option<oneshot::Sender<M::Reply>>,
    span: tracing::Span,
    /// For what an incarnation sends itself: another one does not want it.
    only_for: Option<u64>,
    ticket: Ticket,
}

impl<M: Message> Mail<M> {
    pub(super) fn new(message: M, reply: Option<oneshot::Sender<M::Reply>>, slot: &Arc<Slot>) -> Self {
        Self {
            message,
            reply,
            span: tracing::Span::current(),
            only_for: None,
            ticket: slot.enter(),
        }
    }

    pub(super) fn internal(message: M, generation: u64, slot: &Arc<Slot>) -> Self {
        Self {
            only_for: Some(generation),
            ..Self::new(message, None, slot)
        }
    }
}

impl<M: Message> actix::Message for Mail<M> {
    type Result = ();
}

/// An effect of an incarnation panicked.
pub(super) struct EffectPanicked {
    pub(super) generation: u64,
    pub(super) message: String,
}

impl actix::Message for EffectPanicked {
    type Result = ();
}

/// A sign of life is asked for: handling it is the answer.
pub(super) struct Probe(pub(super) Ticket);

impl actix::Message for Probe {
    type Result = ();
}

/// A fault provoked for the sake of a test.
pub(super) struct Provoke(pub(super) ProvokedFault);

impl actix::Message for Provoke {
    type Result = ();
}

/// The guardian asks for an orderly end.
pub(super) struct End;

impl actix::Message for End {
    type Result = ();
}

impl<B: Behaviour> fmt::Debug for Host<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Host")
            .field(&self.cradle.slot.path())
            .finish()
    }
}

impl<B: Behaviour> Host<B> {
    pub(super) fn new(cradle: Cradle<B>) -> Self {
        Self {
            behaviour: (cradle.factory)(),
            cradle,
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.cradle.generation
    }

    /// Hands a message to the state and deals with what it decided.
    pub(super) fn dispatch<M: Message>(
        &mut self,
        message: M,
        context: &mut actix::Context<Self>,
    ) -> Option<M::Reply>
    where
        B: Handles<M>,
    {
        if self.cradle.revoked.is_cancelled() {
            context.stop();
            return None;
        }
        self.with_scope(context, |behaviour, scope| behaviour.handle(message, scope))
    }

    /// Runs a piece of the state's life; its answer counts only if it did not fail.
    fn with_scope<R>(
        &mut self,
        context: &mut actix::Context<Self>,
        run: impl FnOnce(&mut B, &mut Scope<'_, B>) -> R,
    ) -> Option<R> {
        let mut scope = Scope {
            context,
            cradle: &self.cradle,
            failure: None,
        };
        let reply = run(&mut self.behaviour, &mut scope);
        match scope.failure {
            None => {
                self.cradle.slot.show(self.behaviour.view());
                Some(reply)
            }
            Some((class, message)) => {
                self.fail(class, message, context);
                None
            }
        }
    }

    /// Drops the state. Within the budget a new one is made in place after a wait, and what waits in the
    /// mailbox stays there; beyond it the actor ends.
    fn fail(&mut self, class: FaultClass, message: String, context: &mut actix::Context<Self>) {
        let verdict = self.cradle.habitat.fault(&self.cradle.slot, class, message);
        self.cradle.over.cancel();
        let Verdict::StartAfter(wait) = verdict else {
            context.stop();
            return;
        };
        let wait = self.cradle.habitat.jittered(wait);
        let revoked = self.cradle.revoked.clone();
        let waiting = async move {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = revoked.cancelled() => {}
            }
        };
        context.wait(
            waiting
                .into_actor(self)
                .map(|(), host, context| host.rebuild(context)),
        );
    }

    fn rebuild(&mut self, context: &mut actix::Context<Self>) {
        if self.cradle.revoked.is_cancelled() {
            context.stop();
            return;
        }
        self.cradle.slot.step(LifeEvent::Due);
        self.cradle.generation = self.cradle.habitat.next_generation();
        self.cradle.slot.born(self.cradle.generation);
        self.cradle.over = CancellationToken::new();
        self.behaviour = (self.cradle.factory)();
        self.begin(context);
    }

    fn begin(&mut self, context: &mut actix::Context<Self>) {
        let started = self.with_scope(context, |behaviour, scope| behaviour.start(scope));
        if started.is_some() {
            self.cradle.habitat.began(&self.cradle.slot);
        }
    }
}

impl<B: Behaviour> actix::Actor for Host<B> {
    type Context = actix::Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(policy(B::KIND).mailbox);
        self.begin(context);
    }
}

impl<B, M> actix::Handler<Mail<M>> for Host<B>
where
    B: Handles<M>,
    M: Message,
{
    type Result = ();

    fn handle(&mut self, mail: Mail<M>, context: &mut Self::Context) {
        let Mail {
            message,
            reply,
            span,
            only_for,
            ticket,
        } = mail;
        drop(ticket);
        self.cradle.slot.took_one();
        if only_for.is_some_and(|generation| generation != self.cradle.generation) {
            return;
        }
        let _entered = span.enter();
        if let (Some(answer), Some(reply)) = (self.dispatch(message, context), reply) {
            // The asker may have gone; what was done stays done.
            let _ = reply.send(answer);
        }
    }
}

impl<B: Behaviour> actix::Handler<EffectPanicked> for Host<B> {
    type Result = ();

    fn handle(&mut self, panicked: EffectPanicked, context: &mut Self::Context) {
        if panicked.generation == self.cradle.generation {
            self.fail(FaultClass::Panic, panicked.message, context);
        }
    }
}

impl<B: Behaviour> actix::Handler<Probe> for Host<B> {
    type Result = ();

    fn handle(&mut self, probe: Probe, _context: &mut Self::Context) {
        drop(probe.0);
        self.cradle.slot.took_one();
    }
}

impl<B: Behaviour> actix::Handler<Provoke> for Host<B> {
    type Result = ();

    #[expect(clippy::panic, reason = "that is what was asked for")]
    fn handle(&mut self, provoke: Provoke, context: &mut Self::Context) {
        match provoke.0 {
            ProvokedFault::Panic => panic!("provoked by an operator"),
            ProvokedFault::Stop => context.stop(),
            ProvokedFault::Freeze => {
                // Nothing is handled until the guardian gives this actor up; then it finds itself revoked.
                let given_up = self.cradle.revoked.clone();
                context.wait(
                    async move { given_up.cancelled().await }
                        .into_actor(self)
                        .map(|(), _, context| context.stop()),
                );
            }
        }
    }
}

impl<B: Behaviour> actix::Handler<End> for Host<B> {
    type Result = ();

    fn handle(&mut self, _end: End, context: &mut Self::Context) {
        context.stop();
    }
}

impl<B: Behaviour> Drop for Cradle<B> {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What the last panic on this thread said, once.
pub(super) fn last_panic() -> Option<String> {
    LAST_PANIC.with_borrow_mut(Option::take)
}

/// Makes panics end up in the log and in the actor's record instead of on the terminal.
pub fn capture_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            let text = info
                .payload_as_str()
                .unwrap_or("a value that is no text")
                .to_owned();
            let place = info
                .location()
                .map_or_else(String::new, |l| format!(" at {}:{}", l.file(), l.line()));
            if tracing::dispatcher::has_been_set() {
                tracing::error!(
                    thread = std::thread::current().name().unwrap_or("?"),
                    "panic: {text}{place}"
                );
            } else {
                before(info);
            }
            LAST_PANIC.set(Some(format!("{text}{place}")));
        }));
    });
}
