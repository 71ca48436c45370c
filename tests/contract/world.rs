//! What a case of the contract gets: a client of an administrator, a namespace of its own, a way to log in.

use std::{fmt, sync::Arc, time::Duration};

use futures::{StreamExt as _, future::BoxFuture, stream::BoxStream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{ObjectMeta, PostParams, WatchEvent, WatchParams},
    core::Status,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Makes a client for a bearer token.
pub type Login = Arc<dyn Fn(String) -> BoxFuture<'static, kube::Client> + Send + Sync>;

/// One case's world.
#[derive(Clone)]
pub struct World {
    /// An administrator's.
    pub client: kube::Client,
    /// Made for this case.
    pub namespace: String,
    login: Login,
}

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "World({})", self.namespace)
    }
}

impl World {
    /// Makes the namespace.
    pub async fn new(client: kube::Client, login: Login) -> Self {
        let wanted = Namespace {
            metadata: ObjectMeta {
                generate_name: Some("contract-".to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let made = Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &wanted)
            .await
            .expect("a namespace");
        Self {
            client,
            namespace: made.metadata.name.expect("a generated name"),
            login,
        }
    }

    /// An API of this case's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A client under a token.
    pub async fn log_in(&self, token: &str) -> kube::Client {
        (self.login)(token.to_owned()).await
    }

    /// Makes a ConfigMap.
    pub async fn config_map(&self, name: &str, labels: Value) -> ConfigMap {
        let wanted = object(json!({"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}}));
        self.api()
            .create(&PostParams::default(), &wanted)
            .await
            .expect("a ConfigMap")
    }

    /// Sends a request as it is; the code and the body of the answer.
    pub async fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> (u16, Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(kube::client::Body::from(body.as_bytes().to_vec()))
            .expect("a request");
        let answer = self.client.send(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await.expect("a body");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (
            code,
            serde_json::from_slice(&bytes).unwrap_or(Value::String(text)),
        )
    }
}

/// An object from JSON.
pub fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// The Status of a refusal.
pub fn refusal<T: fmt::Debug>(answer: Result<T, kube::Error>) -> Status {
    match answer {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("neither done nor refused: {other:?}"),
    }
}

/// Asks until there is an answer; fails the case after a minute.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    for _ in 0..1200 {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not come to pass within a minute that {what}")
}

/// A watch whose next event comes within half a minute or the case fails.
pub struct Watch<K>(BoxStream<'static, Result<WatchEvent<K>, kube::Error>>);

impl<K> fmt::Debug for Watch<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Watch")
    }
}

impl<K: Clone + DeserializeOwned + fmt::Debug + Send + 'static> Watch<K> {
    /// Opens it.
    pub async fn open(api: &Api<K>, parameters: &WatchParams, version: &str) -> Self {
        let stream = api.watch(parameters, version).await.expect("a watch");
        Self(stream.boxed())
    }

    /// The next event, or nothing when the watch has ended.
    pub async fn next(&mut self) -> Option<WatchEvent<K>> {
        tokio::time::timeout(Duration::from_secs(30), self.0.next())
            .await
            .expect("an event within half a minute")
            .map(|event| event.expect("a readable event"))
    }
}

/// An event in words: `added NAME`, `bookmark`, `error 410`.
pub fn told<K: kube::Resource>(event: &WatchEvent<K>) -> String {
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    match event {
        WatchEvent::Added(object) => format!("added {}", name(object)),
        WatchEvent::Modified(object) => format!("modified {}", name(object)),
        WatchEvent::Deleted(object) => format!("deleted {}", name(object)),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}
