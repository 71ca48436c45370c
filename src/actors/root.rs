//! Root owns the actors that there is one of, and the pools.
//!
//! Owns: the whole tree.
//! Listens: nothing.
//! Publishes: nothing.
//! Persists: nothing.
//! Stops when: the process stops; it starts its children in dependency order, and they stop in reverse.
//! After a restart: all children are made anew.

use serde::Serialize;

use super::{
    behaviour::{Behaviour, Scope},
    guardian::Child,
    inventory::Inventory,
    node_pool::NodePool,
    status::StatusKeeper,
    store::StoreKeeper,
    wiring::Wiring,
};
use crate::domain::supervision::Kind;

/// The parent of all.
#[derive(Debug)]
pub struct Root {
    wiring: Wiring,
    children: Option<Children>,
}

#[expect(dead_code, reason = "held so that they live")]
#[derive(Debug)]
struct Children {
    store: Child<StoreKeeper>,
    inventory: Child<Inventory>,
    status: Child<StatusKeeper>,
    nodes: Child<NodePool>,
}

impl Root {
    /// A root that has started nothing yet.
    #[must_use]
    pub fn new(wiring: Wiring) -> Self {
        Self {
            wiring,
            children: None,
        }
    }
}

/// Root shows nothing of itself but its children.
#[derive(Debug, Serialize)]
pub struct View {}

impl Behaviour for Root {
    const KIND: Kind = Kind::Root;
    type View = View;

    fn start(&mut self, scope: &mut Scope<'_, Self>) {
        let wiring = || self.wiring.clone();
        let (for_store, for_inventory, for_status, for_nodes) = (wiring(), wiring(), wiring(), wiring());
        self.children = Some(Children {
            store: scope.child("store", move || StoreKeeper::new(for_store.clone())),
            inventory: scope.child("inventory", move || Inventory::new(for_inventory.clone())),
            status: scope.child("status", move || StatusKeeper::new(for_status.clone())),
            nodes: scope.child("node-pool", move || NodePool::new(for_nodes.clone())),
        });
    }

    fn view(&self) -> View {
        View {}
    }
}
