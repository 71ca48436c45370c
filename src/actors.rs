//! The actor tree: supervised actors, each a mailbox around a pure state machine.
//!
//! ```text
//! root ─┬─ inventory          folds node facts, publishes inventory.cluster
//!       └─ node-pool ── node* one per Kubernetes node: capacity, labels, conditions
//! ```
//!
//! An actor file reads top to bottom: what it owns, its messages, its state, its handlers in the order of
//! a life, its view. How actors are kept alive is in [`guardian`]; the table that says which kind is
//! treated how is [`crate::domain::supervision::policy`].

pub mod behaviour;
pub mod guardian;
pub mod host;
pub mod reference;
pub mod runtimes;
pub mod slot;
pub mod tree;
