//! Opens what the program stands on: the store, the cluster, the clock.

use std::{path::PathBuf, sync::Arc, time::Duration};

use thiserror::Error;

use crate::{
    actors::{runtimes::Runtimes, wiring::Settings},
    adapters::kubernetes::{ConnectError, KubernetesCluster, RequestCounter, connect, counted},
    app::{Ingredients, keeper, upkeep::Binding},
    config::{ClusterKind, ClusterMode, Config},
    domain::status::Recovery,
    ports::{
        binding::{BindError, ClusterBinding as _},
        clock::{Clock, SystemClock},
        cluster::{Cluster, ClusterAddress},
        store::{Store, StoreError},
        telemetry::{KubeLabels, Metrics},
    },
    sim::embedded::{self, Embedded, EmbeddedError},
    store::{OnFlush, OpenError, Options as StoreOptions, SledStore, sealed::Sealer},
};

/// How long the first question to the cluster may take before the start goes on without an answer.
const FIRST_ANSWER: Duration = Duration::from_secs(3);

/// Why the store or the cluster cannot be used.
#[derive(Debug, Error)]
pub enum PortsError {
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The program is shutting down, or opening the store panicked in spite of all.
    #[error("the store could not be opened: {0}")]
    Cancelled(String),
    /// The store was opened without a key, which the program never asks for.
    #[error("the store has no sealing key: set store.key-file")]
    NoKey,
    /// The embedded cluster does not start.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// There is no client for the cluster.
    #[error(transparent)]
    Cluster(#[from] ConnectError),
    /// The store belongs to another cluster.
    #[error(transparent)]
    Binding(#[from] BindError),
}

/// What the program stands on.
#[derive(Debug)]
pub(super) struct Ports {
    clock: Arc<dyn Clock>,
    store: SledStore,
    sealer: Arc<Sealer>,
    epoch: u64,
    recovery: Recovery,
    embedded: Option<Embedded>,
    cluster: Arc<dyn Cluster>,
    binding: Binding,
    metrics: Metrics,
}

impl Ports {
    /// Opens everything, or nothing.
    pub(super) async fn open(config: &Config) -> Result<Self, PortsError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let metrics = Metrics::new(crate::VERSION, crate::REVISION);
        let options = store_options(config, &clock, &metrics);
        let began = clock.monotonic();
        let opened = tokio::task::spawn_blocking(move || SledStore::open(options));
        let opened = opened
            .await
            .map_err(|error| PortsError::Cancelled(error.to_string()))??;
        let took_ms = u64::try_from((clock.monotonic() - began).as_millis()).unwrap_or(u64::MAX);
        let recovery = Recovery {
            unclean: opened.recovery.unclean,
            dropped_records: opened.recovery.dropped_records,
            took_ms,
            ..Recovery::default()
        };
        let sealer = Arc::new(opened.sealer.ok_or(PortsError::NoKey)?);
        let (embedded, cluster) = open_cluster(config, &clock, &metrics).await?;
        let name = cluster.describe().server;
        let ports = Self {
            clock,
            binding: Binding {
                store: opened.store.clone(),
                name,
            },
            store: opened.store,
            sealer,
            epoch: opened.epoch,
            recovery,
            embedded,
            cluster,
            metrics,
        };
        ports.refuse_other_cluster().await?;
        Ok(ports)
    }

    /// A cluster that answers now and is not the store's own is refused now. One that does not answer yet
    /// is asked again by the node pool.
    async fn refuse_other_cluster(&self) -> Result<(), PortsError> {
        let Ok(Ok(uid)) = tokio::time::timeout(FIRST_ANSWER, self.cluster.identity()).await else {
            return Ok(());
        };
        match self.binding.bind(uid).await {
            Err(error @ BindError::OtherCluster { .. }) => Err(error.into()),
            Ok(()) | Err(BindError::Store(_)) => Ok(()),
        }
    }

    pub(super) fn ingredients(&self, config: &Config, runtimes: Runtimes) -> Ingredients {
        Ingredients {
            runtimes,
            clock: Arc::clone(&self.clock),
            store: self.store(),
            binding: Arc::new(self.binding.clone()),
            upkeep: Some(Arc::new(self.store.clone())),
            cluster: Arc::clone(&self.cluster),
            faults: self.embedded.as_ref().map(Embedded::faults),
            metrics: self.metrics.clone(),
            settings: settings(config),
            epoch: self.epoch,
            recovery: self.recovery,
            seed: config.embedded.seed,
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    pub(super) fn sealer(&self) -> Arc<Sealer> {
        Arc::clone(&self.sealer)
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(super) fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Closes the cluster, then the store.
    pub(super) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
        if let Err(error) = self.store.close().await {
            report_close(&error);
        }
    }
}

fn report_close(error: &StoreError) {
    tracing::error!(%error, "the store did not close cleanly; the next start checks it");
}

/// What the store is told.
fn store_options(config: &Config, clock: &Arc<dyn Clock>, metrics: &Metrics) -> StoreOptions {
    let flushes = metrics.store_flush_seconds.clone();
    StoreOptions {
        key_file: Some(config.store.key_file.clone()),
        min_free: config.store.min_free.bytes(),
        on_flush: OnFlush::tell(move |took| flushes.observe(took.as_secs_f64())),
        known_records: keeper::known_records(),
        ..StoreOptions::at(config.store.path.clone(), Arc::clone(clock))
    }
}

/// What the embedded cluster is told.
pub(crate) fn embedded_options(config: &Config, clock: &Arc<dyn Clock>) -> embedded::Options {
    let settings = &config.embedded;
    embedded::Options {
        nodes: usize::try_from(settings.nodes).unwrap_or(usize::MAX),
        fleet: settings.fleet.clone(),
        speed: settings.speed.as_f64(),
        seed: settings.seed,
        persist: settings.persist.then(|| embedded_directory(config)),
        faults: settings
            .faults
            .iter()
            .map(crate::app::faults::from_config)
            .collect(),
        clock: Arc::clone(clock),
    }
}

/// Where the embedded cluster keeps its objects.
pub(crate) fn embedded_directory(config: &Config) -> PathBuf {
    config.store.path.join("embedded")
}

async fn open_cluster(
    config: &Config,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<(Option<Embedded>, Arc<dyn Cluster>), PortsError> {
    let counter = counter(metrics);
    match config.cluster.kind {
        ClusterKind::Embedded => {
            let embedded = Embedded::start(embedded_options(config, clock)).await?;
            let server = match config.embedded.listen {
                Some(listen) => {
                    let bound = embedded.serve(listen, &config.embedded.kubeconfig).await?;
                    format!("https://{bound}")
                }
                None => "in this process".to_owned(),
            };
            let address = ClusterAddress {
                kind: "embedded".to_owned(),
                server,
            };
            let client = kube::Client::new(counted(embedded.transport(), counter), "default");
            let cluster =
                KubernetesCluster::new(client, address).fresh_within(config.inventory.max_age.get());
            Ok((Some(embedded), Arc::new(cluster)))
        }
        ClusterKind::Kubernetes => {
            let (client, server) = connect(config.cluster.kubeconfig.as_deref(), counter).await?;
            let address = ClusterAddress {
                kind: "kubernetes".to_owned(),
                server,
            };
            Ok((
                None,
                Arc::new(
                    KubernetesCluster::new(client, address).fresh_within(config.inventory.max_age.get()),
                ),
            ))
        }
    }
}

fn counter(metrics: &Metrics) -> RequestCounter {
    let requests = metrics.kube_requests.clone();
    Arc::new(move |verb: &str, resource: &str, code: u16| {
        let code = if code == 0 {
            "error".to_owned()
        } else {
            code.to_string()
        };
        let labels = KubeLabels {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            code,
        };
        requests.get_or_create(&labels).inc();
    })
}

fn settings(config: &Config) -> Settings {
    Settings {
        poll_period: config.inventory_resource_poll_period.get(),
        debug_frequency: u64::from(config.inventory_resource_debug_frequency),
        max_age: config.inventory.max_age.get(),
        mode: match config.cluster.mode {
            ClusterMode::Manage => "manage".to_owned(),
            ClusterMode::Observe => "observe".to_owned(),
        },
        debug: config.debug.enabled,
    }
}
