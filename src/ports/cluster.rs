//! A Kubernetes cluster, as far as the actors see it. Made by a factory from a kubeconfig at run time.

use std::fmt;

use futures::stream::BoxStream;
use thiserror::Error;

use crate::domain::node::{NodeFacts, NodeName};

/// A Kubernetes cluster that can be observed and written to.
pub trait Cluster: fmt::Debug + Send + Sync + 'static {
    /// What this cluster is called in messages: its kind and the address of its API server.
    fn describe(&self) -> ClusterAddress;

    /// Who it is: the UID of the `kube-system` namespace.
    fn identity(&self) -> futures::future::BoxFuture<'static, Result<String, ClusterError>>;

    /// Everything about nodes from now on. Never ends by itself: after an error it goes on by itself,
    /// with backoff, and says so with `Observation::Broken`.
    fn watch_nodes(&self) -> BoxStream<'static, Observation<NodeName, NodeFacts>>;
}

/// Where a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAddress {
    /// `embedded` or `kubernetes`.
    pub kind: String,
    /// The API server.
    pub server: String,
}

/// A list-then-watch protocol in which a relist is part of the story: nothing is removed because a
/// source was silent, only because a complete list did not hold it.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation<K, V> {
    /// A list begins; what was known stays until `Listed`.
    ListStarted,
    /// An object of the list.
    ListItem(K, V),
    /// The list is complete: what it did not hold is gone.
    Listed,
    /// An object appeared or changed.
    Changed(K, V),
    /// An object is gone.
    Removed(K),
    /// The server was heard: nothing changed, and what is known is of now.
    Current,
    /// The source is broken; what is known stays, and ages.
    Broken(ClusterError),
}

/// Why a call to the cluster failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct ClusterError {
    /// What to do about it.
    pub class: ErrorClass,
    /// What the server or the network said.
    pub message: String,
}

/// What can be done about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// It did not happen and may work later.
    Retryable,
    /// It did not happen and will not, as asked.
    Rejected,
    /// It may or may not have happened.
    Ambiguous,
    /// We asked for something that makes no sense.
    Bug,
}
