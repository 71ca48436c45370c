//! How others hold an actor: not its address, which dies with it, but a watch of its present one.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use thiserror::Error;
use tokio::sync::oneshot;

use super::{
    behaviour::{Behaviour, Handles, Message},
    host::{Host, Mail},
    slot::Slot,
};
use crate::domain::actor::ActorState;

/// An actor, whichever incarnation of it lives now.
pub struct ActorRef<B: Behaviour> {
    address: Arc<ArcSwapOption<actix::Addr<Host<B>>>>,
    slot: Arc<Slot>,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// Its mailbox is full.
    #[error("the actor is busy: try again shortly")]
    Busy,
    /// It is down; it comes back, or is quarantined.
    #[error("the actor is not available: it is being started anew")]
    Unavailable,
    /// It did not answer in time. What was asked may still happen.
    #[error("the actor did not answer in time")]
    TimedOut,
}

impl<B: Behaviour> ActorRef<B> {
    /// A reference to an actor that has not started yet.
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self {
            address: Arc::new(ArcSwapOption::empty()),
            slot,
        }
    }

    pub(super) fn point_to(&self, address: Option<actix::Addr<Host<B>>>) {
        self.address.store(address.map(Arc::new));
    }

    pub(super) fn address(&self) -> Option<actix::Addr<Host<B>>> {
        self.address
            .load()
            .as_ref()
            .map(|address| actix::Addr::clone(address))
    }

    /// Where it is in the tree.
    #[must_use]
    pub fn path(&self) -> &str {
        self.slot.path()
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> ActorState {
        self.slot.state()
    }

    /// Sends a message without waiting for what becomes of it.
    pub fn tell<M>(&self, message: M) -> Result<(), Refused>
    where
        M: Message,
        B: Handles<M>,
    {
        self.post(message, None)
    }

    /// Sends a message and waits for the answer, at most so long.
    pub async fn ask<M>(&self, message: M, deadline: Duration) -> Result<M::Reply, Refused>
    where
        M: Message,
        B: Handles<M>,
    {
        let (reply, answer) = oneshot::channel();
        self.post(message, Some(reply))?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(Refused::Unavailable),
            Err(_) => Err(Refused::TimedOut),
        }
    }

    fn post<M>(&self, message: M, reply: Option<oneshot::Sender<M::Reply>>) -> Result<(), Refused>
    where
        M: Message,
        B: Handles<M>,
    {
        let address = self.address.load();
        let address = address.as_ref().ok_or(Refused::Unavailable)?;
        address
            .try_send(Mail::new(message, reply, &self.slot))
            .map_err(|error| match error {
                actix::dev::SendError::Full(_) => Refused::Busy,
                actix::dev::SendError::Closed(_) => Refused::Unavailable,
            })
    }
}

impl<B: Behaviour> Clone for ActorRef<B> {
    fn clone(&self) -> Self {
        Self {
            address: Arc::clone(&self.address),
            slot: Arc::clone(&self.slot),
        }
    }
}

impl<B: Behaviour> fmt::Debug for ActorRef<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("ActorRef")
            .field(&self.slot.path())
            .finish()
    }
}
