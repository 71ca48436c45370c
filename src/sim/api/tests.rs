//! The API server as `kube::Client` sees it, on a paused clock.

mod applying;
mod containers;
mod identity;
mod reading;
mod watching;
mod writing;

use futures::{StreamExt, future::BoxFuture, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::{
    Api as KubeApi, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    Api,
    containers::{ContainerRef, Containers, Exit, Log, LogLine, LogOf, Session},
    router,
};
use crate::{
    ports::clock::SimulatedClock,
    sim::{
        faults::Faults,
        objects::{Objects, ObjectsOptions, Refusal, Resource},
    },
};
use std::sync::Arc;

/// Containers that printed three lines an hour apart, and print a fourth when followed.
#[derive(Debug)]
struct Printers;

impl Containers for Printers {
    fn log(&self, container: &ContainerRef, which: LogOf, follow: bool) -> Result<Log, Refusal> {
        if which == LogOf::Previous {
            return Err(Refusal::bad_request("previous terminated container not found"));
        }
        let line = |hour: u32| LogLine {
            at: format!("2026-01-01T0{hour}:00:00Z").parse().unwrap(),
            text: format!("{} says {hour}", container.container),
        };
        let future = if follow {
            stream::iter(vec![line(4)]).boxed()
        } else {
            stream::empty().boxed()
        };
        Ok(Log {
            past: (1..=3).map(line).collect(),
            future,
        })
    }

    fn exec(&self, mut session: Session) -> BoxFuture<'static, Result<Exit, Refusal>> {
        Box::pin(async move {
            let command = session.command.unwrap_or_default();
            session
                .stdout
                .send(format!("ran {}", command.join(" ")).into())
                .await
                .unwrap();
            session.stderr.send("careful".into()).await.unwrap();
            while let Some(typed) = session.stdin.recv().await {
                session.stdout.send(typed).await.unwrap();
            }
            Ok(Exit { code: 3 })
        })
    }
}

struct World {
    api: Api,
    client: Client,
}

fn world() -> World {
    world_remembering(1000)
}

fn world_remembering(history: usize) -> World {
    let clock = Arc::new(SimulatedClock::starting_at(
        "2026-01-01T04:00:00Z".parse().unwrap(),
    ));
    let objects = Objects::new(ObjectsOptions {
        clock: clock.clone(),
        history,
        uid_seed: 1,
    });
    for name in ["default", "other"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "status": {"phase": "Active"}});
        objects
            .create(&Resource::new("", "namespaces"), namespace)
            .unwrap();
    }
    let api = Api {
        objects,
        faults: Faults::new(1),
        containers: Arc::new(Printers),
        clock,
        admit_anonymous: true,
        admin_token: None,
        token_key: [7; 32],
    };
    let client = Client::new(router(api.clone()), "default");
    World { api, client }
}

impl World {
    fn all<K>(&self) -> KubeApi<K>
    where
        K: kube::Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>,
    {
        KubeApi::all(self.client.clone())
    }

    fn here<K>(&self) -> KubeApi<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        KubeApi::namespaced(self.client.clone(), "default")
    }

    async fn raw(&self, method: &str, path: &str, body: Value) -> Result<Value, kube::core::Status> {
        self.raw_as(method, path, "application/json", body).await
    }

    async fn raw_as(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: Value,
    ) -> Result<Value, kube::core::Status> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        let answer: Result<Value, kube::Error> = self.client.request(request.body(body).unwrap()).await;
        answer.map_err(|error| match error {
            kube::Error::Api(status) => *status,
            other => panic!("{other}"),
        })
    }
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn map(name: &str) -> ConfigMap {
    typed(json!({"metadata": {"name": name}, "data": {"a": "1"}}))
}

fn pod(name: &str) -> Pod {
    typed(
        json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [{"name": "web", "image": "nginx:1"}]}}),
    )
}

fn deployment(name: &str, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "web", "image": image}]}}}})
}

fn status<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> kube::core::Status {
    match answer.unwrap_err() {
        kube::Error::Api(status) => *status,
        other => panic!("{other}"),
    }
}

fn params() -> PostParams {
    PostParams::default()
}
