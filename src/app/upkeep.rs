//! What can be done with the store from outside while the program runs.

use std::fmt;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};

use crate::{
    api::provider::StoreUnavailable,
    domain::store_report::{StoreReport, StoreVerification},
    ports::{
        binding::{BindError, ClusterBinding},
        store::StoreError,
    },
    store::{SledStore, StoreInfo, WrongCluster},
};

/// Looking at a store, and copying it.
pub trait StoreUpkeep: fmt::Debug + Send + Sync + 'static {
    /// What can be said of it.
    fn report(&self) -> BoxFuture<'static, Result<StoreReport, StoreUnavailable>>;
    /// Reads and checks every record.
    fn verify(&self) -> BoxFuture<'static, Result<StoreVerification, StoreUnavailable>>;
    /// A consistent copy, in chunks.
    fn back_up(&self) -> BoxStream<'static, Result<Bytes, StoreUnavailable>>;
}

fn unavailable(error: &StoreError) -> StoreUnavailable {
    StoreUnavailable {
        reason: error.to_string(),
    }
}

/// What is said of a store, online and offline alike.
#[must_use]
pub fn report_of(info: StoreInfo) -> StoreReport {
    StoreReport {
        path: info.path,
        format: info.format,
        bytes: info.bytes,
        free_bytes: info.free_bytes,
        records: info.records,
        records_by_kind: info.records_by_kind,
        healthy: info.healthy,
        cluster_uid: info.cluster.map(|cluster| cluster.uid),
        epoch: info.epoch,
    }
}

impl StoreUpkeep for SledStore {
    fn report(&self) -> BoxFuture<'static, Result<StoreReport, StoreUnavailable>> {
        let store = self.clone();
        async move {
            store
                .info()
                .await
                .map(report_of)
                .map_err(|error| unavailable(&error))
        }
        .boxed()
    }

    fn verify(&self) -> BoxFuture<'static, Result<StoreVerification, StoreUnavailable>> {
        let store = self.clone();
        async move {
            let report = Self::verify(&store).await.map_err(|error| unavailable(&error))?;
            Ok(StoreVerification {
                records: report.records,
                problems: report.problems,
            })
        }
        .boxed()
    }

    fn back_up(&self) -> BoxStream<'static, Result<Bytes, StoreUnavailable>> {
        self.backup_stream()
            .map(|chunk| chunk.map_err(|error| unavailable(&error)))
            .boxed()
    }
}

/// The store, bound to the cluster that is called so.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) store: SledStore,
    pub(super) name: String,
}

impl ClusterBinding for Binding {
    fn bind(&self, uid: String) -> BoxFuture<'static, Result<(), BindError>> {
        let Self { store, name } = self.clone();
        async move {
            store
                .bind_cluster(&uid, &name)
                .await
                .map_err(|error| match error {
                    WrongCluster::Other { stored, found } => BindError::OtherCluster {
                        stored: format!("{} ({})", stored.name, stored.uid),
                        found: format!("{} ({})", found.name, found.uid),
                    },
                    WrongCluster::Store(error) => BindError::Store(error),
                })
        }
        .boxed()
    }
}
