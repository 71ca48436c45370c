//! Inventory owns the fold of what the nodes report.
//!
//! Owns: how many nodes there are, and the revision of the fleet.
//! Listens: `inventory.nodes`, `inventory.source`.
//! Publishes: `inventory.cluster`, a handle: the fleet itself is in `inventory.nodes` and nowhere else.
//! Persists: nothing.
//! Stops when: the root stops it.
//! After a restart: reads the present values of its topics again.

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt as _;
use serde::Serialize;

use super::{
    behaviour::{Behaviour, Handles, Message, Scope},
    wiring::Wiring,
};
use crate::{
    bus::{Claim, InventoryHandle, KeyWriter, Update},
    domain::{actor::FaultClass, inventory::NodeReport, supervision::Kind},
    ports::telemetry::StateLabels,
};

/// A node's report changed.
#[derive(Debug)]
pub struct NodeReported(Update<NodeReport>);

impl Message for NodeReported {
    type Reply = ();
}

/// Time to look at the age of the picture, and now and then to log it.
#[derive(Debug)]
pub struct PollDue;

impl Message for PollDue {
    type Reply = ();
}

/// The fold of what the nodes report.
#[derive(Debug)]
pub struct Inventory {
    wiring: Wiring,
    /// Each node, and whether it is sold.
    nodes: BTreeMap<Arc<str>, bool>,
    sold: usize,
    revision: u64,
    writer: Option<KeyWriter<InventoryHandle>>,
    polls: u64,
}

impl Inventory {
    /// A fold of nothing yet.
    #[must_use]
    pub fn new(wiring: Wiring) -> Self {
        Self {
            wiring,
            nodes: BTreeMap::new(),
            sold: 0,
            revision: 0,
            writer: None,
            polls: 0,
        }
    }

    fn set(&mut self, key: Arc<str>, sold: Option<bool>) {
        let before = match sold {
            Some(sold) => self.nodes.insert(key, sold),
            None => self.nodes.remove(&key),
        };
        self.sold -= usize::from(before == Some(true));
        self.sold += usize::from(sold == Some(true));
    }

    fn publish(&self) {
        for (state, count) in [("sold", self.sold), ("held", self.nodes.len() - self.sold)] {
            let level = self.wiring.metrics.inventory_nodes.get_or_create(&StateLabels {
                state: state.to_owned(),
            });
            level.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let handle = InventoryHandle {
            revision: self.revision,
            nodes: u64::try_from(self.nodes.len()).unwrap_or(u64::MAX),
            observed_at: self.wiring.clock.wall(),
        };
        if let Some(writer) = &self.writer
            && let Err(superseded) = writer.publish(handle)
        {
            tracing::debug!(%superseded, "inventory not published");
        }
    }
}

/// What the inventory shows.
#[derive(Debug, Serialize)]
pub struct View {
    revision: u64,
    nodes: usize,
    sold: usize,
    polls: u64,
}

impl Behaviour for Inventory {
    const KIND: Kind = Kind::Inventory;
    type View = View;

    fn start(&mut self, scope: &mut Scope<'_, Self>) {
        let claim = Claim {
            path: scope.path().to_owned(),
            generation: scope.generation(),
        };
        match self.wiring.bus.inventory_cluster.claim("", claim) {
            Ok(writer) => self.writer = Some(writer),
            Err(refused) => return scope.fail(FaultClass::Invariant, refused.to_string()),
        }
        scope.follow(
            self.wiring
                .bus
                .inventory_nodes
                .subscribe()
                .into_stream()
                .map(NodeReported),
        );
        scope.after(self.wiring.settings.poll_period, PollDue);
    }

    fn view(&self) -> View {
        View {
            revision: self.revision,
            nodes: self.nodes.len(),
            sold: self.sold,
            polls: self.polls,
        }
    }
}

impl Handles<NodeReported> for Inventory {
    fn handle(&mut self, reported: NodeReported, _: &mut Scope<'_, Self>) {
        match reported.0 {
            Update::Value(entry) => {
                self.revision = self.revision.max(entry.sequence);
                self.set(entry.key, Some(entry.value.sellable));
            }
            Update::Removed { key, sequence, .. } => {
                self.revision = self.revision.max(sequence);
                self.set(key, None);
            }
            Update::Reset => {
                self.nodes.clear();
                self.sold = 0;
                return;
            }
            // Before the first report nothing is known, which is not the same as a fleet of none.
            Update::Complete if self.revision == 0 => return,
            Update::Complete => {}
        }
        self.publish();
    }
}

impl Handles<PollDue> for Inventory {
    fn handle(&mut self, _: PollDue, scope: &mut Scope<'_, Self>) {
        self.polls = self.polls.saturating_add(1);
        let frequency = self.wiring.settings.debug_frequency;
        if frequency > 0 && self.polls.is_multiple_of(frequency) {
            for entry in self.wiring.bus.inventory_nodes.values() {
                tracing::debug!(node = %entry.key, report = ?entry.value, "inventory");
            }
            tracing::debug!(revision = self.revision, nodes = self.nodes.len(), "inventory");
        }
        scope.after(self.wiring.settings.poll_period, PollDue);
    }
}
