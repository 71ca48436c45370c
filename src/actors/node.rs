//! Node owns what is known of one Kubernetes node.
//!
//! Owns: its report.
//! Listens: the facts that the pool leaves in its cell, and the nudge that they changed.
//! Publishes: `inventory.nodes`, its own key.
//! Persists: nothing.
//! Stops when: the pool drops it, because the node is gone.
//! After a restart: reads the cell again.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;

use super::{
    behaviour::{Behaviour, Handles, Message, Scope},
    wiring::Wiring,
};
use crate::{
    bus::{Claim, KeyWriter},
    domain::{
        actor::FaultClass,
        inventory::NodeReport,
        node::{NodeFacts, NodeName},
        supervision::Kind,
    },
};

/// With `debug.enabled`, a node with this label and the value `panic` makes its actor fail at every start.
pub const PROVOKE_LABEL: &str = "freehold.dev/provoke";

/// The pool has left newer facts in the cell. A nudge that finds the mailbox full is not needed: one that
/// waits there reads the same cell.
#[derive(Debug)]
pub struct FactsChanged;

impl Message for FactsChanged {
    type Reply = ();
}

/// One Kubernetes node.
#[derive(Debug)]
pub struct Node {
    name: NodeName,
    facts: Arc<ArcSwap<NodeFacts>>,
    wiring: Wiring,
    writer: Option<KeyWriter<NodeReport>>,
    report: Option<Arc<NodeReport>>,
}

impl Node {
    /// An actor for a node whose facts are kept in a cell.
    #[must_use]
    pub fn new(name: NodeName, facts: Arc<ArcSwap<NodeFacts>>, wiring: Wiring) -> Self {
        Self {
            name,
            facts,
            wiring,
            writer: None,
            report: None,
        }
    }

    #[expect(clippy::panic, reason = "an operator with debug.enabled asked for it")]
    fn observe(&mut self) {
        let facts = self.facts.load();
        if self.wiring.settings.debug
            && facts
                .labels
                .get(PROVOKE_LABEL)
                .is_some_and(|value| value == "panic")
        {
            panic!("provoked by the label {PROVOKE_LABEL} of {}", self.name);
        }
        let report = Arc::new(facts.report(&self.name));
        if let Some(writer) = &self.writer {
            // Superseded means that the pool or a newer incarnation speaks for this node now.
            if let Err(superseded) = writer.publish(Arc::clone(&report)) {
                tracing::debug!(node = %self.name, %superseded, "report not published");
            }
        }
        self.report = Some(report);
    }
}

/// What a node actor shows.
#[derive(Debug, Serialize)]
pub struct View {
    uid: Option<String>,
    sellable: bool,
    reasons: Vec<String>,
    problems: usize,
}

impl Behaviour for Node {
    const KIND: Kind = Kind::Node;
    type View = View;

    fn start(&mut self, scope: &mut Scope<'_, Self>) {
        let claim = Claim {
            path: scope.path().to_owned(),
            generation: scope.generation(),
        };
        match self
            .wiring
            .bus
            .inventory_nodes
            .claim(Arc::clone(&self.name.0), claim)
        {
            Ok(writer) => self.writer = Some(writer),
            Err(refused) => return scope.fail(FaultClass::Invariant, refused.to_string()),
        }
        self.observe();
    }

    fn view(&self) -> View {
        let report = self.report.as_deref();
        View {
            uid: report.map(|report| report.uid.clone()),
            sellable: report.is_some_and(|report| report.sellable),
            reasons: report
                .into_iter()
                .flat_map(|r| &r.reasons)
                .map(|reason| reason.code.clone())
                .collect(),
            problems: report.map_or(0, |report| report.problems.len()),
        }
    }
}

impl Handles<FactsChanged> for Node {
    fn handle(&mut self, _: FactsChanged, _: &mut Scope<'_, Self>) {
        self.observe();
    }
}
