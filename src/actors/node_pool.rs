//! NodePool owns the set of nodes: one watch of the cluster, one actor for each node.
//!
//! Owns: the Node actors and the cells their facts are in; how the node watch is.
//! Listens: the cluster's nodes, through the port.
//! Publishes: `inventory.source`; `inventory.nodes` in the place of a node that is gone or quarantined.
//! Persists: which cluster the store belongs to.
//! Stops when: the root stops it.
//! After a restart: lists again; what the list does not hold is removed then, and not before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use serde::Serialize;

use super::{
    behaviour::{Behaviour, Handles, Message, Scope},
    guardian::Child,
    node::{FactsChanged, Node},
    wiring::Wiring,
};
use crate::{
    bus::{Claim, KeyWriter},
    domain::{
        actor::{ActorState, FaultClass},
        inventory::{NodeReason, NodeReport},
        node::{NodeFacts, NodeName},
        status::{SourceState, Trouble},
        supervision::Kind,
    },
    ports::{
        binding::BindError,
        cluster::{ClusterError, Observation},
    },
};

/// The first wait after a failed question for the cluster's identity; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The cluster was asked who it is, and the store whether it belongs to it.
#[derive(Debug)]
pub struct IdentityFinished(Result<String, IdentityError>);

impl Message for IdentityFinished {
    type Reply = ();
}

#[derive(Debug)]
enum IdentityError {
    Cluster(ClusterError),
    Binding(BindError),
}

/// Time to ask the cluster again who it is.
#[derive(Debug)]
pub struct IdentityDue;

impl Message for IdentityDue {
    type Reply = ();
}

/// Something about the cluster's nodes.
#[derive(Debug)]
pub struct NodesObserved(Observation<NodeName, NodeFacts>);

impl Message for NodesObserved {
    type Reply = ();
}

/// Time to look for quarantined nodes.
#[derive(Debug)]
pub struct RoundDue;

impl Message for RoundDue {
    type Reply = ();
}

/// How often quarantined nodes are looked for: until then such a node is still on sale.
const ROUND: Duration = Duration::from_millis(500);

/// The set of nodes.
#[derive(Debug)]
pub struct NodePool {
    wiring: Wiring,
    nodes: BTreeMap<NodeName, Member>,
    /// The names heard so far of a list that is under way.
    listing: Option<BTreeSet<NodeName>>,
    source: SourceState,
    writer: Option<KeyWriter<SourceState>>,
    failures: u32,
}

#[derive(Debug)]
struct Member {
    facts: Arc<ArcSwap<NodeFacts>>,
    actor: Child<Node>,
}

impl NodePool {
    /// A pool that has not looked yet.
    #[must_use]
    pub fn new(wiring: Wiring) -> Self {
        let source = SourceState {
            cluster_uid: None,
            nodes: None,
            heard_at: None,
            heard: None,
            trouble: None,
        };
        Self {
            wiring,
            nodes: BTreeMap::new(),
            listing: None,
            source,
            writer: None,
            failures: 0,
        }
    }

    fn ask_identity(&self, scope: &mut Scope<'_, Self>) {
        let (cluster, binding) = (Arc::clone(&self.wiring.cluster), Arc::clone(&self.wiring.binding));
        scope.effect(async move {
            let identity = async {
                let uid = cluster.identity().await.map_err(IdentityError::Cluster)?;
                binding.bind(uid.clone()).await.map_err(IdentityError::Binding)?;
                Ok(uid)
            };
            IdentityFinished(identity.await)
        });
    }

    fn upsert(&mut self, name: NodeName, facts: NodeFacts, scope: &Scope<'_, Self>) {
        if let Some(member) = self.nodes.get(&name) {
            if **member.facts.load() != facts {
                member.facts.store(Arc::new(facts));
                // Busy: a nudge waits already. Unavailable: the next incarnation reads the cell.
                let _ = member.actor.reference().tell(FactsChanged);
            }
            return;
        }
        let facts = Arc::new(ArcSwap::from_pointee(facts));
        let (cell, wiring, node) = (Arc::clone(&facts), self.wiring.clone(), name.clone());
        let actor = scope.child(&name.0, move || {
            Node::new(node.clone(), Arc::clone(&cell), wiring.clone())
        });
        self.nodes.insert(name, Member { facts, actor });
    }

    fn remove(&mut self, name: &NodeName, scope: &Scope<'_, Self>) {
        self.nodes.remove(name);
        self.speak_for(name, None, scope);
    }

    /// Publishes or removes a node's report over its actor's head.
    fn speak_for(&self, name: &NodeName, report: Option<NodeReport>, scope: &Scope<'_, Self>) {
        let claim = Claim {
            path: scope.path().to_owned(),
            generation: scope.newer_generation(),
        };
        let spoken = self
            .wiring
            .bus
            .inventory_nodes
            .claim(Arc::clone(&name.0), claim)
            .map(|writer| match report {
                Some(report) => writer.publish(report),
                None => writer.remove(),
            });
        if let Err(refused) = spoken {
            tracing::error!(node = %name, %refused, "could not speak for a node");
        }
    }

    /// A complete list: what it did not hold is gone, also from what an earlier incarnation published.
    fn finish_list(&mut self, scope: &Scope<'_, Self>) {
        let Some(listed) = self.listing.take() else { return };
        let published = self
            .wiring
            .bus
            .inventory_nodes
            .values()
            .into_iter()
            .map(|entry| NodeName(entry.key));
        let known: BTreeSet<NodeName> = self.nodes.keys().cloned().chain(published).collect();
        for gone in known.difference(&listed) {
            self.remove(gone, scope);
        }
    }

    fn heard(&mut self) {
        self.source.heard = Some(self.wiring.clock.monotonic());
        self.source.heard_at = Some(self.wiring.clock.wall());
        self.source.trouble = None;
        if self.listing.is_none() {
            self.source.nodes = u64::try_from(self.nodes.len()).ok();
        }
    }

    fn publish_source(&self) {
        if let Some(writer) = &self.writer
            && let Err(superseded) = writer.publish(self.source.clone())
        {
            tracing::debug!(%superseded, "source not published");
        }
    }
}

/// What the pool shows.
#[derive(Debug, Serialize)]
pub struct View {
    nodes: usize,
    listing: bool,
    source: SourceState,
}

impl Behaviour for NodePool {
    const KIND: Kind = Kind::NodePool;
    type View = View;

    fn start(&mut self, scope: &mut Scope<'_, Self>) {
        let claim = Claim {
            path: scope.path().to_owned(),
            generation: scope.generation(),
        };
        match self.wiring.bus.inventory_source.claim("", claim) {
            Ok(writer) => self.writer = Some(writer),
            Err(refused) => return scope.fail(FaultClass::Invariant, refused.to_string()),
        }
        self.ask_identity(scope);
        scope.after(ROUND, RoundDue);
    }

    fn view(&self) -> View {
        View {
            nodes: self.nodes.len(),
            listing: self.listing.is_some(),
            source: self.source.clone(),
        }
    }
}

impl Handles<IdentityFinished> for NodePool {
    fn handle(&mut self, finished: IdentityFinished, scope: &mut Scope<'_, Self>) {
        let (code, message) = match finished.0 {
            Ok(uid) => {
                self.failures = 0;
                self.source.cluster_uid = Some(uid);
                self.source.trouble = None;
                self.publish_source();
                return scope.follow(self.wiring.cluster.watch_nodes().map(NodesObserved));
            }
            Err(IdentityError::Binding(error @ BindError::OtherCluster { .. })) => {
                ("wrong_cluster", error.to_string())
            }
            Err(IdentityError::Binding(error @ BindError::Store(_))) => ("store", error.to_string()),
            Err(IdentityError::Cluster(error)) => {
                let server = self.wiring.cluster.describe().server;
                (
                    "unreachable",
                    format!("the cluster {server} does not answer: {error}; trying again"),
                )
            }
        };
        if self.source.trouble.is_none() {
            tracing::warn!(code, reason = message, "the cluster cannot be used yet");
        }
        self.source.trouble = Some(Trouble {
            code: code.to_owned(),
            message,
        });
        self.publish_source();
        self.failures = self.failures.saturating_add(1);
        let wait = FIRST_WAIT
            .saturating_mul(1 << self.failures.min(10))
            .min(LONGEST_WAIT);
        scope.after(wait, IdentityDue);
    }
}

impl Handles<IdentityDue> for NodePool {
    fn handle(&mut self, _: IdentityDue, scope: &mut Scope<'_, Self>) {
        self.ask_identity(scope);
    }
}

impl Handles<NodesObserved> for NodePool {
    fn handle(&mut self, observed: NodesObserved, scope: &mut Scope<'_, Self>) {
        match observed.0 {
            Observation::ListStarted => self.listing = Some(BTreeSet::new()),
            Observation::ListItem(name, facts) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(name.clone());
                }
                return self.upsert(name, facts, scope);
            }
            Observation::Listed => {
                self.finish_list(scope);
                self.heard();
            }
            Observation::Changed(name, facts) => {
                self.upsert(name, facts, scope);
                self.heard();
            }
            Observation::Removed(name) => {
                self.remove(&name, scope);
                self.heard();
            }
            Observation::Current => self.heard(),
            Observation::Broken(error) => {
                let server = self.wiring.cluster.describe().server;
                let message = format!("the node watch of {server} is broken: {error}; trying again");
                if self.source.trouble.is_none() {
                    tracing::warn!(reason = message, "the last picture stays, and ages");
                }
                self.source.trouble = Some(Trouble {
                    code: "unreachable".to_owned(),
                    message,
                });
            }
        }
        self.publish_source();
    }
}

impl Handles<RoundDue> for NodePool {
    fn handle(&mut self, _: RoundDue, scope: &mut Scope<'_, Self>) {
        let failed = self
            .nodes
            .iter()
            .filter(|(_, member)| member.actor.state() == ActorState::Failed);
        let quarantined: Vec<_> = failed
            .map(|(name, member)| (name.clone(), member.facts.load_full()))
            .collect();
        for (name, facts) in quarantined {
            let last = self.wiring.bus.inventory_nodes.get(&name.0);
            let told = |report: &NodeReport| report.reasons.iter().any(|reason| reason.code == QUARANTINED);
            if !last.as_deref().is_some_and(told) {
                tracing::error!(node = %name, "the node's actor is quarantined: the node is not sold");
                self.speak_for(
                    &name,
                    Some(quarantined_report(&name, &facts, last.as_deref())),
                    scope,
                );
            }
        }
        scope.after(ROUND, RoundDue);
    }
}

const QUARANTINED: &str = "quarantined";

/// The last report of a node, marked stale and not for sale; without one, only its name.
fn quarantined_report(name: &NodeName, facts: &NodeFacts, last: Option<&NodeReport>) -> NodeReport {
    let mut report = last.cloned().unwrap_or_else(|| NodeReport {
        name: name.to_string(),
        uid: facts.uid.clone(),
        ..NodeReport::default()
    });
    report.sellable = false;
    report.reasons.insert(
        0,
        NodeReason {
            code: QUARANTINED.to_owned(),
            message: "its actor failed again and again; `freehold actors` shows why; tried every 10 minutes"
                .to_owned(),
        },
    );
    report
}
