//! Store looks after the store's health and size; the writes themselves go to its own thread.
//!
//! Owns: nothing but its view.
//! Listens: nothing.
//! Publishes: nothing; the status reads the store's health itself.
//! Persists: nothing.
//! Stops when: the root stops it, last of all.
//! After a restart: looks again.

use serde::Serialize;

use super::{
    behaviour::{Behaviour, Handles, Message, Scope},
    wiring::Wiring,
};
use crate::{domain::supervision::Kind, ports::store::StoreHealth};

/// Time to look.
#[derive(Debug)]
pub struct PollDue;

impl Message for PollDue {
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
