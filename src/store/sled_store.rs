//! The store on disk, as the rest of the program holds it.

use std::sync::Arc;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use thiserror::Error;
use tokio::sync::watch;

use super::{
    backup,
    layout::BoundCluster,
    maintain::{self, StoreInfo, VerifyReport},
    open::{self, Opened},
    open_error::OpenError,
    options::Options,
    queue::{Inbox, Request, Shared},
    snapshot::SnapshotReader,
};
use crate::ports::store::{Batch, Pair, Store, StoreError, StoreHealth};

/// A handle on the store's thread; clones are the same store.
#[derive(Clone, Debug)]
pub struct SledStore {
    pub(super) inbox: Inbox,
    pub(super) shared: Arc<Shared>,
    pub(super) format: u32,
}

/// Why the store was not bound to a cluster.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WrongCluster {
    /// It belongs to another one.
    #[error(
        "the store belongs to cluster {} ({}), this is {} ({}): use the right kubeconfig or store, or `freehold store rebind --confirm`",
        stored.name, stored.uid, found.name, found.uid
    )]
    Other {
        /// The one it belongs to.
        stored: BoundCluster,
        /// The one that was found.
        found: BoundCluster,
    },
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SledStore {
    /// Opens a store, reading and checking all of it. Blocks; not for an async thread.
    pub fn open(options: Options) -> Result<Opened, OpenError> {
        open::open(options)
    }

    /// Binds the store to the cluster it is used with; a second one is refused.
    pub async fn bind_cluster(&self, uid: &str, name: &str) -> Result<(), WrongCluster> {
        let found = BoundCluster {
            uid: uid.to_owned(),
            name: name.to_owned(),
        };
        let wanted = found.clone();
        let meta = self
            .change_meta(move |meta| {
                meta.cluster.get_or_insert(wanted);
            })
            .await?;
        match meta.cluster {
            Some(stored) if stored.uid != found.uid => Err(WrongCluster::Other { stored, found }),
            _ => Ok(()),
        }
    }

    /// Binds the store to another cluster, whatever it belonged to; says to which.
    pub async fn rebind_cluster(&self, uid: &str, name: &str) -> Result<Option<BoundCluster>, StoreError> {
        let previous = self.cluster().await?;
        let cluster = BoundCluster {
            uid: uid.to_owned(),
            name: name.to_owned(),
        };
        self.change_meta(move |meta| meta.cluster = Some(cluster)).await?;
        Ok(previous)
    }

    /// Lets go of the cluster it belongs to: the next one it is bound to is taken. Says which it was.
    pub async fn unbind_cluster(&self) -> Result<Option<BoundCluster>, StoreError> {
        let previous = self.cluster().await?;
        self.change_meta(|meta| meta.cluster = None).await?;
        Ok(previous)
    }

    /// The cluster it belongs to.
    pub async fn cluster(&self) -> Result<Option<BoundCluster>, StoreError> {
        Ok(self.snapshot().await?.meta.cluster.clone())
    }

    /// A consistent copy of everything, in chunks, while the store goes on working.
    #[must_use]
    pub fn backup_stream(&self) -> BoxStream<'static, Result<Bytes, StoreError>> {
        backup::stream(SnapshotReader::start(self.inbox.clone()))
    }

    /// Reads and checks every record while the store goes on working.
    pub async fn verify(&self) -> Result<VerifyReport, StoreError> {
        maintain::verify(self.snapshot().await?).await
    }

    /// What the store holds.
    pub async fn info(&self) -> Result<StoreInfo, StoreError> {
        let health = self.health();
        maintain::info(self.snapshot().await?, self.format, health).await
    }

    /// The last flush: notes the clean stop and lets the directory go.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.inbox.ask(|reply| Request::Close { reply }).await
    }

    async fn snapshot(&self) -> Result<SnapshotReader, StoreError> {
        SnapshotReader::start(self.inbox.clone()).await
    }

    async fn change_meta(
        &self,
        change: impl FnOnce(&mut super::layout::Meta) + Send + 'static,
    ) -> Result<super::layout::Meta, StoreError> {
        let change = Box::new(change);
        self.inbox
            .ask(|reply| Request::ChangeMeta { change, reply })
            .await
    }
}

impl Store for SledStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'static, Result<(), StoreError>> {
        self.inbox.ask(|reply| Request::Commit { batch, reply })
    }

    fn get(&self, key: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        self.inbox.ask(|reply| Request::Get { key, reply })
    }

    fn scan(
        &self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> BoxFuture<'static, Result<Vec<Pair>, StoreError>> {
        self.inbox.ask(|reply| Request::Scan {
            prefix,
            after,
            limit,
            reply,
        })
    }

    fn health(&self) -> StoreHealth {
        self.shared.health()
    }

    fn rebuilds(&self) -> watch::Receiver<u64> {
        self.shared.rebuilds.subscribe()
    }
}
