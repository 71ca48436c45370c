//! The local bus: how the parts of the program learn of each other.
//!
//! Two kinds of topic, all declared in [`topics`]:
//! - [`Retained`]: the last value per key. A reader gets the present values, then changes, coalesced: it may
//!   miss values in between, never the last one. An equal value is not published.
//! - [`Stream`]: the last so many events. A reader that lags is told how many it missed.
//!
//! No reader has a queue on the writer's side. A topic keeps one index from sequence number to change, with only
//! the newest change of each key, and a reader keeps its place in it. So a writer never waits, a slow reader
//! costs nothing and holds up nobody, and memory is bounded by what exists.
//!
//! Each key has one writer ([`KeyWriter`]), named by its path and generation: an incarnation that was replaced
//! and wakes up later changes nothing. Everything accepted gets one [sequence number](sequence) of the whole
//! bus. [`Bus::watch`] is the view for the outside, [`Bus::tap`] the one for tests and debugging.

mod facts;
mod retained;
pub mod sequence;
mod stream;
mod subscription;
mod tap;
#[cfg(test)]
mod tests;
pub mod topics;
mod watch;
mod writer;

pub use facts::{ActorEvent, ActorEventKind, InventoryHandle};
pub use retained::{Entry, Retained};
pub use stream::{Stream, StreamEvent, StreamReader, StreamUpdate};
pub use subscription::{Subscription, Update};
pub use tap::{Tap, Tapped};
pub use topics::Bus;
pub use watch::WatchRefused;
pub use writer::{Claim, ClaimRefused, KeyWriter, Superseded};

/// How much goes over a topic; running totals, so that reading them costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicStatistics {
    /// The topic's name.
    pub name: &'static str,
    /// Keys with a value, or events kept.
    pub kept: u64,
    /// Removals still remembered, of a retained topic.
    pub tombstones: u64,
    /// Accepted since the start.
    pub published: u64,
    /// Not published because nothing had changed.
    pub unchanged: u64,
    /// Publishes and claims of an incarnation that is not the newest.
    pub refused: u64,
}
