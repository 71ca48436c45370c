//! The store belongs to one cluster, and remembers which.

use std::fmt;

use futures::future::BoxFuture;
use thiserror::Error;

use super::store::StoreError;

/// Remembers which cluster the store belongs to.
pub trait ClusterBinding: fmt::Debug + Send + Sync + 'static {
    /// Binds the store to a cluster, or finds that it belongs to another one.
    fn bind(&self, uid: String) -> BoxFuture<'static, Result<(), BindError>>;
}

/// Why a store cannot be used with a cluster.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BindError {
    /// It belongs to another one.
    #[error(
        "the store belongs to the cluster {stored}, but this is {found}: set store.path to another directory, \
         or run `freehold store rebind --confirm` if the cluster was replaced"
    )]
    OtherCluster {
        /// Whose it is.
        stored: String,
        /// Which one is there.
        found: String,
    },
    /// It cannot be asked now.
    #[error(transparent)]
    Store(#[from] StoreError),
}
