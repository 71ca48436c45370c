//! A Kubernetes cluster behind the [`Cluster`] port: a real one from a kubeconfig or the in-cluster
//! account, or the embedded one, all through the same `kube::Client`.

mod client;
mod listwatch;
mod node;

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};
use k8s_openapi::api::core::v1::Namespace;

pub use client::{ConnectError, RequestCounter, connect, counted};

use crate::{
    domain::node::{NodeFacts, NodeName},
    ports::cluster::{Cluster, ClusterAddress, ClusterError, ErrorClass, Observation},
};

/// The longest a watch lasts before it is resumed.
const LONGEST_WATCH: Duration = Duration::from_secs(45);

/// How long the cluster may take to say who it is.
const IDENTITY_ANSWER: Duration = Duration::from_secs(10);

/// A Kubernetes cluster reached through a client.
#[derive(Clone)]
pub struct KubernetesCluster {
    client: kube::Client,
    address: ClusterAddress,
    heard_every: Duration,
}

impl KubernetesCluster {
    /// A cluster behind a client that is ready to use.
    #[must_use]
    pub fn new(client: kube::Client, address: ClusterAddress) -> Self {
        Self {
            client,
            address,
            heard_every: LONGEST_WATCH,
        }
    }

    /// Makes sure that the cluster is heard several times within `age`, also when nothing changes there.
    #[must_use]
    pub fn fresh_within(mut self, age: Duration) -> Self {
        self.heard_every = (age / 3).clamp(Duration::from_secs(1), LONGEST_WATCH);
        self
    }
}

impl std::fmt::Debug for KubernetesCluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("KubernetesCluster")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Cluster for KubernetesCluster {
    fn describe(&self) -> ClusterAddress {
        self.address.clone()
    }

    fn identity(&self) -> BoxFuture<'static, Result<String, ClusterError>> {
        let namespaces: kube::Api<Namespace> = kube::Api::all(self.client.clone());
        async move {
            let answer = tokio::time::timeout(IDENTITY_ANSWER, namespaces.get("kube-system")).await;
            let answer = answer.unwrap_or_else(|_| Err(no_answer(IDENTITY_ANSWER)));
            let namespace = answer.map_err(|error| classify(&error))?;
            namespace.metadata.uid.ok_or_else(|| ClusterError {
                class: ErrorClass::Retryable,
                message: "the namespace kube-system has no uid".to_owned(),
            })
        }
        .boxed()
    }

    fn watch_nodes(&self) -> BoxStream<'static, Observation<NodeName, NodeFacts>> {
        listwatch::observe(
            self.client.clone(),
            "/api/v1/nodes",
            self.heard_every,
            node::parse,
            node::name_of,
        )
        .boxed()
    }
}

/// A call that took too long.
fn no_answer(after: Duration) -> kube::Error {
    kube::Error::Service(format!("no answer for {} s", after.as_secs()).into())
}

/// What can be done about a failed call.
fn classify(error: &kube::Error) -> ClusterError {
    let class = match error {
        kube::Error::Api(status) => match status.code {
            408 | 410 | 429 | 500..=599 => ErrorClass::Retryable,
            _ => ErrorClass::Rejected,
        },
        kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => ErrorClass::Bug,
        _ => ErrorClass::Retryable,
    };
    let message = match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        error => chain(error),
    };
    ClusterError { class, message }
}

/// An error with its causes, on one line and bounded.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(500)
        .collect()
}
