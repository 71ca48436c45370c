//! Values of topics that are no document of their own elsewhere.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The fleet, as a handle: equal by revision, so that comparing two never costs more than two integers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct InventoryHandle {
    /// Goes up with every change.
    pub revision: u64,
    /// How many nodes there are.
    pub nodes: u64,
    /// The newest observation in it.
    pub observed_at: Timestamp,
}

impl PartialEq for InventoryHandle {
    fn eq(&self, other: &Self) -> bool {
        self.revision == other.revision
    }
}

impl Eq for InventoryHandle {}

/// Something that happened to an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorEvent {
    /// From the root, for example `root/node-pool/node-0003`.
    pub path: String,
    /// The actor's kind, for example `node`.
    pub kind: String,
    /// The incarnation it happened to.
    pub generation: u64,
    /// What happened.
    pub event: ActorEventKind,
    /// In words; empty where there is nothing to add.
    pub message: String,
}

/// What can happen to an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorEventKind {
    /// Something went wrong; a new incarnation follows, or it is parked.
    Faulted,
    /// A new incarnation serves.
    Restarted,
    /// Its budget is spent: parked, tried again every now and then.
    Quarantined,
    /// Its budget is spent, and its parent has to deal with it.
    Escalated,
}
