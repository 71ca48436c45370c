//! The contract, put to the embedded cluster. The same cases are put to a real API server in `tests/live`;
//! where the two differ, the embedded one is wrong.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails panics")]

use std::sync::Arc;

use contract_suite::{
    for_each_case, watches,
    world::{Login, World},
};
use freehold::{
    ports::clock::SystemClock,
    sim::embedded::{Embedded, Options},
};
use kube::config::{KubeConfigOptions, Kubeconfig};

#[path = "contract/suite.rs"]
mod contract_suite;

/// A cluster of its own for each case, served over HTTPS as kubectl would use it.
struct Cluster {
    embedded: Embedded,
    kubeconfig: Kubeconfig,
    _directory: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        // An error means that another case has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            nodes: 2,
            speed: 0.0,
            ..Options::new(Arc::new(SystemClock::start()))
        };
        let embedded = Embedded::start(options).await.unwrap();
        let file = directory.path().join("kubeconfig");
        embedded
            .serve("127.0.0.1:0".parse().unwrap(), &file)
            .await
            .unwrap();
        Self {
            embedded,
            kubeconfig: Kubeconfig::read_from(&file).unwrap(),
            _directory: directory,
        }
    }

    async fn world(&self) -> World {
        let admin = client(self.kubeconfig.clone()).await;
        let kubeconfig = self.kubeconfig.clone();
        let login: Login = Arc::new(move |token| {
            let mut kubeconfig = kubeconfig.clone();
            let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
            user.token = Some(token.into());
            Box::pin(client(kubeconfig))
        });
        World::new(admin, login).await
    }
}

async fn client(kubeconfig: Kubeconfig) -> kube::Client {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}

macro_rules! embedded_case {
    ($module:ident::$case:ident) => {
        #[tokio::test]
        async fn $case() {
            let cluster = Cluster::start().await;
            contract_suite::$module::$case(&cluster.world().await).await;
            cluster.embedded.stop().await;
        }
    };
}
for_each_case!(embedded_case);

#[tokio::test]
async fn history_that_is_gone_answers_410() {
    let cluster = Cluster::start().await;
    let world = cluster.world().await;
    let churn: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(cluster.embedded.client(), "default");
    watches::history_that_is_gone_answers_410(&world, async || {
        // More changes than the history holds.
        churn.create(&Default::default(), &named("churn")).await.unwrap();
        for round in 0..9000 {
            let patch = serde_json::json!({"data": {"round": round.to_string()}});
            churn
                .patch("churn", &Default::default(), &kube::api::Patch::Merge(patch))
                .await
                .unwrap();
        }
    })
    .await;
}

fn named(name: &str) -> k8s_openapi::api::core::v1::ConfigMap {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
}
