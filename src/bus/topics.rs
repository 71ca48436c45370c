//! The wiring diagram: every topic, who writes it and who reads it. `docs/topics.md` is made from this file.
//!
//! To add a topic, add an entry to `topics!` below; the bus, the outside view, the statistics and the document
//! follow. A topic stands here only when something writes it.

use std::{fmt::Write as _, sync::Arc};

use super::{
    ActorEvent, InventoryHandle, Retained, Stream, Tap, TopicStatistics, sequence::Order, watch::AnyTopic,
};
use crate::{
    domain::{
        inventory::NodeReport,
        status::{SourceState, Status},
    },
    ports::clock::Clock,
};

/// What is said of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The name the outside knows it by.
    pub name: &'static str,
    /// `retained` or `stream`.
    pub kind: &'static str,
    /// What a key is.
    pub key: &'static str,
    /// The type of its values.
    pub value: &'static str,
    /// Who writes it.
    pub writer: &'static str,
    /// Who reads it.
    pub readers: &'static str,
    /// What it tells.
    pub tells: &'static str,
}

macro_rules! topics {
    ($(
        $field:ident = $name:literal: $kind:ident<$value:ident> {
            key: $key:literal, writer: $writer:literal, readers: $readers:literal, tells: $tells:literal $(,)?
        }
    )+) => {
        /// All topics of the process. Cheap to clone: all clones are the same bus.
        #[derive(Clone, Debug)]
        pub struct Bus {
            $(#[doc = $tells] pub $field: $kind<$value>,)+
            pub(super) order: Arc<Order>,
        }

        /// Every topic, in the order of the file.
        pub const DECLARATIONS: &[Declaration] = &[$(Declaration {
            name: $name,
            kind: topics!(@kind $kind),
            key: $key,
            value: stringify!($value),
            writer: $writer,
            readers: $readers,
            tells: $tells,
        }),+];

        impl Bus {
            /// A bus without values. Its sequence numbers carry `epoch`, which is another one for each run.
            #[must_use]
            pub fn new(epoch: u64, clock: Arc<dyn Clock>) -> Self {
                let order = Arc::new(Order::new(epoch, clock));
                Self { $($field: $kind::new($name, Arc::clone(&order)),)+ order }
            }

            pub(super) fn topics(&self) -> Vec<AnyTopic> {
                vec![$(AnyTopic::$kind(self.$field.erased())),+]
            }
        }
    };
    (@kind Retained) => { "retained" };
    (@kind Stream) => { "stream" };
}

topics! {
    inventory_nodes = "inventory.nodes": Retained<NodeReport> {
        key: "node name",
        writer: "Node (one per node)",
        readers: "Inventory, InventoryService, EventService",
        tells: "What a node has, what is taken of it, and whether it is sold.",
    }
    inventory_cluster = "inventory.cluster": Retained<InventoryHandle> {
        key: "empty",
        writer: "Inventory",
        readers: "Status, EventService",
        tells: "The fleet as a handle: its revision, how many nodes it has, when it was seen. Equal by revision.",
    }
    inventory_source = "inventory.source": Retained<SourceState> {
        key: "empty",
        writer: "NodePool",
        readers: "Inventory, Status, EventService",
        tells: "How the node watch of the cluster is: how many nodes it holds, when it was heard, what is wrong.",
    }
    status = "status": Retained<Status> {
        key: "empty",
        writer: "Status",
        readers: "StatusService, health, HTTP, EventService",
        tells: "What the provider is doing, whether it is ready, and why not.",
    }
    actors = "actors": Stream<ActorEvent> {
        key: "actor path",
        writer: "every guardian",
        readers: "metrics, EventService",
        tells: "Faults, restarts, quarantines and escalations of actors. `/debug/actors` has the present tree.",
    }
}

impl Bus {
    /// Sees everything published from now on; keeps at most `capacity` that were not taken.
    #[must_use]
    pub fn tap(&self, capacity: usize) -> Tap {
        Tap::attach(&self.order, capacity)
    }

    /// The newest sequence number given out.
    #[must_use]
    pub fn newest_sequence(&self) -> u64 {
        self.order.newest()
    }

    /// How much goes over each topic.
    #[must_use]
    pub fn statistics(&self) -> Vec<TopicStatistics> {
        self.topics().iter().map(AnyTopic::statistics).collect()
    }
}

/// `docs/topics.md`.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(
        "# Topics\n\n\
         Made from `src/bus/topics.rs`: change it there, then run `FREEHOLD_WRITE_DOCS=1 cargo test --lib bus`.\n\n\
         A **retained** topic keeps the last value of each key: a reader gets the present values first, then \
         changes, coalesced; an equal value is not published; a removal is an event without a value. A **stream** \
         topic keeps the last 4096 events; a reader that lags is told how many it missed.\n\n\
         `freehold watch TOPIC… -o json` and `freehold.v1.EventService/Watch` follow them. Sequence numbers order \
         everything on the bus; a reader resumes after the last one it has seen (`--after`). One that is too old, \
         or of another run of the program, is OUT_OF_RANGE: ask again without it.\n\n\
         | topic | kind | key | value | written by | read by | what it tells |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for topic in DECLARATIONS {
        let Declaration {
            name,
            kind,
            key,
            value,
            writer,
            readers,
            tells,
        } = topic;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{name}` | {kind} | {key} | `{value}` | {writer} | {readers} | {tells} |"
        );
    }
    text
}
