//! What an actor of ours is: a state with handlers, and a scope through which it reaches the world.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use actix::AsyncContext as _;
use futures::{FutureExt as _, Stream, StreamExt as _};
use serde::Serialize;

use super::{
    guardian::{self, Child},
    host::{Cradle, EffectPanicked, Host, Mail},
    reference::ActorRef,
};
use crate::domain::{actor::FaultClass, supervision::Kind};

/// Something an actor can be sent.
pub trait Message: Send + 'static {
    /// What it answers.
    type Reply: Send + 'static;
}

/// The state of an actor. It is made by a factory, never resurrected: after a fault there is a new one.
pub trait Behaviour: Sized + Unpin + 'static {
    /// Its row in the supervision table.
    const KIND: Kind;

    /// What it shows of itself.
    type View: Serialize + Send + Sync + 'static;

    /// Called once for every new state, before any message: subscribe, load, observe.
    fn start(&mut self, scope: &mut Scope<'_, Self>);

    /// What it shows of itself, read after every message.
    fn view(&self) -> Self::View;
}

/// An actor that can be sent messages of a type.
pub trait Handles<M: Message>: Behaviour {
    /// Handles one. It never waits: what takes time is an effect.
    fn handle(&mut self, message: M, scope: &mut Scope<'_, Self>) -> M::Reply;
}

/// Through which a handler reaches timers, effects, children and its own supervision.
pub struct Scope<'a, B: Behaviour> {
    pub(super) context: &'a mut actix::Context<Host<B>>,
    pub(super) cradle: &'a Cradle<B>,
    pub(super) failure: Option<(FaultClass, String)>,
}

impl<B: Behaviour> fmt::Debug for Scope<'_, B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Scope")
            .field("path", &self.cradle.slot.path())
            .finish_non_exhaustive()
    }
}

impl<B: Behaviour> Scope<'_, B> {
    /// This actor, for others to send to.
    #[must_use]
    pub fn myself(&self) -> ActorRef<B> {
        self.cradle.reference.clone()
    }

    /// Where this actor is in the tree.
    #[must_use]
    pub fn path(&self) -> &str {
        self.cradle.slot.path()
    }

    /// Which incarnation this is. Bus, store and ports refuse an older one than they have seen.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.cradle.generation
    }

    /// A generation above that of any child, for speaking in the place of one that is gone.
    #[must_use]
    pub fn newer_generation(&self) -> u64 {
        self.cradle.habitat.next_generation()
    }

    /// Something is not as it must be, or an effect may or may not have happened: the state is dropped
    /// and rebuilt from the store and from observation. Messages that wait are kept.
    pub fn fail(&mut self, class: FaultClass, message: impl Into<String>) {
        self.failure.get_or_insert((class, message.into()));
    }

    /// Sends this actor a message later, unless it is another incarnation by then.
    pub fn after<M>(&mut self, delay: Duration, message: M)
    where
        M: Message<Reply = ()>,
        B: Handles<M>,
    {
        let generation = self.cradle.generation;
        self.context.run_later(delay, move |host, context| {
            if host.generation() == generation {
                host.dispatch(message, context);
            }
        });
    }

    /// Does something that takes time, on the I/O runtime; its outcome comes back as a message. A panic
    /// in it is a fault of this actor. It is dropped with this incarnation.
    pub fn effect<F, M>(&mut self, effect: F)
    where
        F: Future<Output = M> + Send + 'static,
        M: Message<Reply = ()>,
        B: Handles<M>,
    {
        self.follow(effect.into_stream());
    }

    /// Follows a stream on the I/O runtime: every item comes as a message, and the stream is read no
    /// faster than the messages are handled.
    pub fn follow<S, M>(&mut self, items: S)
    where
        S: Stream<Item = M> + Send + 'static,
        M: Message<Reply = ()>,
        B: Handles<M>,
    {
        let address = self.context.address();
        let generation = self.cradle.generation;
        let over = self.cradle.over.clone();
        let slot = Arc::clone(&self.cradle.slot);
        let reading = async move {
            let mut items = std::pin::pin!(items);
            loop {
                let next = std::panic::AssertUnwindSafe(items.next()).catch_unwind().await;
                let delivered = match next {
                    Ok(Some(message)) => address.send(Mail::internal(message, generation, &slot)).await,
                    Ok(None) => return,
                    Err(_panic) => {
                        let message =
                            super::host::last_panic().unwrap_or_else(|| "an effect panicked".to_owned());
                        let _ = address.send(EffectPanicked { generation, message }).await;
                        return;
                    }
                };
                if delivered.is_err() {
                    return;
                }
            }
        };
        self.cradle.habitat.runtimes.io().spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = reading => {}
            }
        });
    }

    /// Starts a supervised child. It ends when the returned handle is dropped.
    pub fn child<C, F>(&self, name: &str, factory: F) -> Child<C>
    where
        C: Behaviour,
        F: Fn() -> C + Send + Sync + 'static,
    {
        guardian::start_child(
            &self.cradle.habitat,
            self.cradle.slot.path(),
            name,
            &self.cradle.lost_children,
            factory,
        )
    }
}
