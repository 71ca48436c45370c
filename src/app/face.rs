//! The program, as its API sees it.

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};

use super::{faults, upkeep::StoreUpkeep};
use crate::{
    actors::{status::assess, tree, tree::ActorTree, wiring::Wiring},
    api::provider::{AddFaultError, NotEmbedded, Provider, ProvokeError, StoreUnavailable, WatchError},
    bus::{Bus, Update, WatchRefused},
    domain::{
        actor::{ActorReport, ProvokedFault},
        api_fault::ApiFault,
        event::BusEvent,
        inventory::Inventory,
        status::Status,
        store_report::{StoreReport, StoreVerification},
    },
    sim::faults::Faults,
};

/// The program, as its API sees it.
#[derive(Debug)]
pub struct Face {
    wiring: Wiring,
    tree: ActorTree,
    upkeep: Option<Arc<dyn StoreUpkeep>>,
    faults: Option<Faults>,
}

impl Face {
    pub(super) fn new(
        wiring: Wiring,
        tree: ActorTree,
        upkeep: Option<Arc<dyn StoreUpkeep>>,
        faults: Option<Faults>,
    ) -> Self {
        Self {
            wiring,
            tree,
            upkeep,
            faults,
        }
    }

    /// How actors learn of each other.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.wiring.bus
    }

    fn upkeep(&self) -> Result<Arc<dyn StoreUpkeep>, StoreUnavailable> {
        let reason = "it is kept in memory only".to_owned();
        self.upkeep.clone().ok_or(StoreUnavailable { reason })
    }

    fn faults_of_cluster(&self) -> Result<&Faults, NotEmbedded> {
        self.faults.as_ref().ok_or(NotEmbedded)
    }
}

impl Provider for Face {
    fn status(&self) -> Status {
        let last = self.wiring.bus.status.get("");
        assess(
            &self.wiring,
            last.as_deref().map_or(&[], |status| &status.reasons),
        )
    }

    fn watch_status(&self) -> BoxStream<'static, Status> {
        let updates = self.wiring.bus.status.subscribe().into_stream();
        updates
            .filter_map(|update| {
                std::future::ready(match update {
                    Update::Value(entry) => Some(Status::clone(&entry.value)),
                    Update::Removed { .. } | Update::Complete | Update::Reset => None,
                })
            })
            .boxed()
    }

    fn inventory(&self) -> Inventory {
        let status = self.status();
        let source = self.wiring.bus.inventory_source.get("");
        let reports = self.wiring.bus.inventory_nodes.values();
        let mut nodes: Vec<_> = reports.into_iter().map(|entry| (*entry.value).clone()).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let part_of_it = |part: &str| part == "inventory" || part == "cluster";
        Inventory {
            revision: status.inventory.revision,
            observed_at: source.and_then(|source| source.heard_at),
            age_ms: status.inventory.age_ms,
            ready: !status.reasons.iter().any(|reason| part_of_it(&reason.part)),
            nodes,
        }
    }

    fn actors(&self, path: Option<&str>, depth: Option<u32>) -> Option<ActorReport> {
        self.tree.describe(path, depth)
    }

    fn retry(&self, path: &str) -> Result<(), ProvokeError> {
        self.tree.retry(path).map_err(|_| ProvokeError::UnknownActor {
            path: path.to_owned(),
        })
    }

    fn provoke(&self, path: &str, fault: ProvokedFault) -> Result<(), ProvokeError> {
        self.tree.provoke(path, fault).map_err(|error| match error {
            tree::ProvokeError::NotFound { path } => ProvokeError::UnknownActor { path },
            tree::ProvokeError::Refused(refused) => ProvokeError::Unreachable {
                path: path.to_owned(),
                reason: refused.to_string(),
            },
        })
    }

    fn events(
        &self,
        topics: Vec<String>,
        after: Option<u64>,
    ) -> Result<BoxStream<'static, BusEvent>, WatchError> {
        self.wiring
            .bus
            .watch(&topics, after)
            .map_err(|refused| match refused {
                WatchRefused::UnknownTopic { name, nearest } => WatchError::UnknownTopic {
                    name,
                    nearest: Some(nearest.to_owned()),
                },
                WatchRefused::OutOfRange { after, .. } => WatchError::OutOfRange { after },
            })
    }

    fn metrics_text(&self) -> String {
        let metrics = &self.wiring.metrics;
        let status = self.status();
        let level = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        metrics.ready.set(i64::from(status.ready));
        metrics.store_bytes.set(level(status.store.bytes));
        metrics.store_healthy.set(i64::from(status.store.healthy));
        if let Some(age) = status.inventory.age_ms {
            metrics
                .inventory_age_seconds
                .set(std::time::Duration::from_millis(age).as_secs_f64());
        }
        metrics.text()
    }

    fn store_report(&self) -> BoxFuture<'static, Result<StoreReport, StoreUnavailable>> {
        match self.upkeep() {
            Ok(upkeep) => upkeep.report(),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn verify_store(&self) -> BoxFuture<'static, Result<StoreVerification, StoreUnavailable>> {
        match self.upkeep() {
            Ok(upkeep) => upkeep.verify(),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn back_up_store(
        &self,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<Bytes, StoreUnavailable>>, StoreUnavailable>>
    {
        let upkeep = self.upkeep();
        async move { upkeep.map(|upkeep| upkeep.back_up()) }.boxed()
    }

    fn faults(&self) -> Result<Vec<ApiFault>, NotEmbedded> {
        Ok(self
            .faults_of_cluster()?
            .list()
            .into_iter()
            .map(faults::to_api)
            .collect())
    }

    fn add_fault(&self, fault: ApiFault) -> Result<(), AddFaultError> {
        let added = self.faults_of_cluster()?.add(faults::from_api(fault));
        added.map_err(|refused| AddFaultError::Refused {
            reason: refused.to_string(),
        })
    }

    fn clear_faults(&self) -> Result<(), NotEmbedded> {
        self.faults_of_cluster()?.clear();
        Ok(())
    }
}
