//! What can be said of an actor from outside.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An actor and those below it, as `/debug/actors` shows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorReport {
    /// From the root, for example `root/node-pool/node-0003`.
    pub path: String,
    /// The kind, for example `node`.
    pub kind: String,
    /// What it is doing.
    pub state: ActorState,
    /// Since when.
    pub since: Timestamp,
    /// How often it was started anew.
    pub restarts: u64,
    /// Messages waiting.
    pub mailbox: u64,
    /// The last thing that went wrong.
    pub last_fault: Option<ActorFault>,
    /// What it shows of itself.
    pub view: serde_json::Value,
    /// The actors it looks after, by name.
    pub children: Vec<ActorReport>,
}

/// What an actor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorState {
    /// Made, not serving yet.
    Starting,
    /// Serving.
    Running,
    /// Down, and about to be made anew.
    Backoff,
    /// On its way out.
    Stopping,
    /// Its budget is spent: parked, tried again every now and then.
    Failed,
}

/// Something that went wrong in an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorFault {
    /// When.
    pub at: Timestamp,
    /// What kind of thing.
    pub class: FaultClass,
    /// In words.
    pub message: String,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultClass {
    /// Code panicked.
    Panic,
    /// Something that must hold did not.
    Invariant,
    /// An effect may or may not have happened.
    Effect,
    /// It did not answer.
    Heartbeat,
}

/// A fault that can be provoked when `debug.enabled` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProvokedFault {
    /// A panic in a handler.
    Panic,
    /// It stops handling messages.
    Freeze,
    /// It stops.
    Stop,
}
