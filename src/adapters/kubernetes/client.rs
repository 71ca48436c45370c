//! Makes clients: from a kubeconfig file, or from the account of the pod we run in.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use kube::config::{KubeConfigOptions, Kubeconfig};
use thiserror::Error;
use tower::Service;

/// Called for every answer of the API server with verb, resource and status code.
pub type RequestCounter = Arc<dyn Fn(&str, &str, u16) + Send + Sync>;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path:?}: {reason}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no kubeconfig, and this is no pod.
    #[error(
        "no cluster is found: set cluster.kubeconfig (as a pod: {in_pod}; by kubectl's own settings: {here})"
    )]
    Nothing {
        /// Why the pod's account does not do.
        in_pod: String,
        /// Why `$KUBECONFIG` and `~/.kube/config` do not.
        here: String,
    },
    /// The settings make no client.
    #[error("cannot make a Kubernetes client: {0}")]
    Client(String),
}

/// A client and the address of its API server. It does not connect yet: an API server that is away is
/// found out, and waited for, by whoever asks it something.
pub async fn connect(
    kubeconfig: Option<&Path>,
    counter: RequestCounter,
) -> Result<(kube::Client, String), ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let refused = |reason: String| ConnectError::Kubeconfig {
                path: path.to_owned(),
                reason,
            };
            let file = Kubeconfig::read_from(path).map_err(|error| refused(super::chain(&error)))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|error| refused(super::chain(&error)))?
        }
        None => match kube::Config::incluster() {
            Ok(config) => config,
            Err(in_pod) => kube::Config::from_kubeconfig(&KubeConfigOptions::default())
                .await
                .map_err(|here| ConnectError::Nothing {
                    in_pod: super::chain(&in_pod),
                    here: super::chain(&here),
                })?,
        },
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    // A watch is silent for as long as nothing happens: only what reads it knows how long is too long.
    config.read_timeout = None;
    let server = config.cluster_url.to_string();
    let builder = kube::client::ClientBuilder::try_from(config)
        .map_err(|error| ConnectError::Client(super::chain(&error)))?;
    let client = builder.with_layer(&CountLayer(counter)).build();
    Ok((client, server))
}

/// Counts the answers to a service's requests.
pub fn counted<S>(service: S, counter: RequestCounter) -> Counted<S> {
    Counted { service, counter }
}

struct CountLayer(RequestCounter);

impl<S> tower::Layer<S> for CountLayer {
    type Service = Counted<S>;

    fn layer(&self, service: S) -> Counted<S> {
        counted(service, Arc::clone(&self.0))
    }
}

/// A service whose answers are counted.
#[derive(Clone)]
pub struct Counted<S> {
    service: S,
    counter: RequestCounter,
}

impl<S> std::fmt::Debug for Counted<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Counted")
    }
}

impl<S, A, B> Service<http::Request<A>> for Counted<S>
where
    S: Service<http::Request<A>, Response = http::Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = futures::future::BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<A>) -> Self::Future {
        let (verb, resource) = what(request.method(), request.uri());
        let counter = Arc::clone(&self.counter);
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // No answer at all counts as code 0.
            counter(
                verb,
                &resource,
                answer.as_ref().map_or(0, |response| response.status().as_u16()),
            );
            answer
        })
    }
}

/// Verb and resource of a request: `/api/v1/namespaces/x/pods/y/log` is `get pods`.
fn what(method: &http::Method, uri: &http::Uri) -> (&'static str, String) {
    let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
    let rest: Vec<&str> = match parts.next() {
        Some("api") => parts.skip(1).collect(),
        Some("apis") => parts.skip(2).collect(),
        _ => Vec::new(),
    };
    let resource_at = if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        2
    } else {
        0
    };
    let resource = rest.get(resource_at).copied().unwrap_or("none");
    let named = rest.len() > resource_at + 1;
    let watching = uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=true")));
    let verb = match (method.as_str(), named) {
        ("GET", _) if watching => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "other",
    };
    (verb, resource.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_resources_are_told_from_paths() {
        for (method, uri, verb, resource) in [
            ("GET", "/api/v1/nodes?limit=500", "list", "nodes"),
            (
                "GET",
                "/api/v1/nodes?watch=true&timeoutSeconds=45",
                "watch",
                "nodes",
            ),
            ("GET", "/api/v1/namespaces/kube-system", "get", "namespaces"),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/x/deployments/y",
                "patch",
                "deployments",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/x/deployments",
                "deletecollection",
                "deployments",
            ),
            ("GET", "/version", "list", "none"),
        ] {
            let found = what(&method.parse().expect("a method"), &uri.parse().expect("a uri"));
            assert_eq!(found, (verb, resource.to_owned()), "{method} {uri}");
        }
    }
}
