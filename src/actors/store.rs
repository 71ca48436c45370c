//! Store looks after the store's health and size, and removes what is kept no longer; the writes themselves
//! go to its own thread.
//!
//! Owns: nothing but its view.
//! Listens: nothing.
//! Publishes: nothing; the status reads the store's health itself.
//! Persists: nothing; it only removes.
//! Stops when: the root stops it, last of all.
//! After a restart: looks again.

use std::{sync::Arc, time::Duration};

use serde::Serialize;

use super::{
    behaviour::{Behaviour, Handles, Message, Scope},
    wiring::Wiring,
};
use crate::{
    domain::supervision::Kind,
    ports::store::{StoreError, StoreHealth, requests},
};

/// How often what is kept no longer is removed.
const TRIM_PERIOD: Duration = Duration::from_secs(600);

/// Time to look.
#[derive(Debug)]
pub struct PollDue;

impl Message for PollDue {
    type Reply = ();
}

/// Time to remove what is kept no longer.
#[derive(Debug)]
pub struct TrimDue;

impl Message for TrimDue {
    type Reply = ();
}

/// What is kept no longer was removed, or not.
#[derive(Debug)]
pub struct TrimFinished(Result<u64, StoreError>);

impl Message for TrimFinished {
    type Reply = ();
}

/// The keeper of the store.
#[derive(Debug)]
pub struct StoreKeeper {
    wiring: Wiring,
    health: StoreHealth,
}

impl StoreKeeper {
    /// A keeper that has not looked yet.
    #[must_use]
    pub fn new(wiring: Wiring) -> Self {
        Self {
            wiring,
            health: StoreHealth::default(),
        }
    }

    fn look(&mut self) {
        let health = self.wiring.store.health();
        if health.healthy != self.health.healthy && self.health != StoreHealth::default() {
            tracing::warn!(
                healthy = health.healthy,
                path = health.path,
                "the store's health changed"
            );
        }
        self.health = health;
    }
}

/// What the keeper shows.
#[derive(Debug, Serialize)]
pub struct View {
    path: String,
    bytes: u64,
    free_bytes: Option<u64>,
    healthy: bool,
}

impl Behaviour for StoreKeeper {
    const KIND: Kind = Kind::Store;
    type View = View;

    fn start(&mut self, scope: &mut Scope<'_, Self>) {
        self.look();
        scope.after(self.wiring.settings.poll_period, PollDue);
        scope.after(TRIM_PERIOD, TrimDue);
    }

    fn view(&self) -> View {
        let StoreHealth {
            path,
            bytes,
            free_bytes,
            healthy,
        } = self.health.clone();
        View {
            path,
            bytes,
            free_bytes,
            healthy,
        }
    }
}

impl Handles<PollDue> for StoreKeeper {
    fn handle(&mut self, _: PollDue, scope: &mut Scope<'_, Self>) {
        self.look();
        scope.after(self.wiring.settings.poll_period, PollDue);
    }
}

impl Handles<TrimDue> for StoreKeeper {
    fn handle(&mut self, _: TrimDue, scope: &mut Scope<'_, Self>) {
        let mut answers = requests::retention(Arc::clone(&self.wiring.store), requests::KEEP);
        let now = self.wiring.clock.wall();
        scope.effect(async move { TrimFinished(answers.trim(now).await) });
        scope.after(TRIM_PERIOD, TrimDue);
    }
}

impl Handles<TrimFinished> for StoreKeeper {
    fn handle(&mut self, finished: TrimFinished, _: &mut Scope<'_, Self>) {
        match finished.0 {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "old answers to requests are gone"),
            // The next round tries again; meanwhile a little more is kept.
            Err(error) => tracing::warn!(%error, "old answers to requests could not be removed"),
        }
    }
}
