//! The actor tree: supervised actors, each a mailbox around a pure state machine.
//!
//! ```text
//! root ─┬─ store              looks after the store's health and size
//!       ├─ inventory          folds node reports, publishes inventory.cluster
//!       ├─ status             ready or not, and why; publishes status
//!       └─ node-pool ── node* one per Kubernetes node: capacity, labels, conditions
//! ```
//!
//! An actor file reads top to bottom: what it owns, its messages, its state, its handlers in the order of
//! a life, its view. How actors are kept alive is in [`guardian`]; the table that says which kind is
//! treated how is [`crate::domain::supervision::policy`].

pub mod behaviour;
pub mod guardian;
pub mod host;
pub mod inventory;
pub mod node;
pub mod node_pool;
pub mod reference;
pub mod root;
pub mod runtimes;
pub mod slot;
pub mod status;
pub mod store;
pub mod tree;
pub mod wiring;
