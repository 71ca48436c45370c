//! The metrics of INTERFACE §3, typed: whoever knows a fact sets it here, `/metrics` prints it.
//!
//! No label ever holds an owner, a lease or a hostname: labels are fixed names or small closed sets.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Registry, Unit},
};

pub mod process;

/// Whole numbers that go up and down.
pub type Level = Gauge<i64>;
/// Measurements; not a number until the first one, because unknown is not zero.
pub type Measure = Gauge<f64, AtomicU64>;

/// Every metric there is. Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct Metrics {
    /// 1 when ready.
    pub ready: Level,
    /// Actors started anew.
    pub actor_restarts: Family<RestartLabels, Counter>,
    /// Nodes by state.
    pub inventory_nodes: Family<StateLabels, Level>,
    /// How old the picture of the fleet is.
    pub inventory_age_seconds: Measure,
    /// How long a flush takes.
    pub store_flush_seconds: Histogram,
    /// What the store takes on disk.
    pub store_bytes: Level,
    /// 1 when the store can be written.
    pub store_healthy: Level,
    /// Calls to Kubernetes.
    pub kube_requests: Family<KubeLabels, Counter>,
    /// Calls answered over gRPC, by method and code.
    pub grpc_requests: Family<RequestLabels, Counter>,
    /// Calls answered over HTTP, by route and status.
    pub http_requests: Family<RequestLabels, Counter>,
    /// Open connections by listener.
    pub connections: Family<ListenerLabels, Level>,
    registry: Arc<Registry>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Whose restart, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RestartLabels {
    /// The actor's kind.
    pub kind: String,
    /// The class of the fault.
    pub cause: String,
}

/// A state out of a small set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabels {
    /// The state.
    pub state: String,
}

/// A call to Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KubeLabels {
    /// `get`, `list`, `watch` …
    pub verb: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The HTTP status, or `error` when there was none.
    pub code: String,
}

/// A call answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// The method or route of the access table, never a path as sent.
    pub method: &'static str,
    /// What was answered.
    pub code: &'static str,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ListenerLabels {
    /// `grpc`, `http` or `health`.
    pub listener: &'static str,
}

impl Metrics {
    /// All metrics, at nothing counted yet.
    #[must_use]
    pub fn new(version: &str, revision: &str) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process::ProcessCollector));
        let ours = registry.sub_registry_with_prefix("freehold");
        let build = vec![
            ("version".to_owned(), version.to_owned()),
            ("revision".to_owned(), revision.to_owned()),
        ];
        ours.register("build", "What runs", Info::new(build));

        let ready = Level::default();
        ours.register("ready", "1 when the provider answers for real", ready.clone());
        let actor_restarts = Family::default();
        ours.register("actor_restarts", "Actors started anew", actor_restarts.clone());
        let inventory_nodes = Family::default();
        ours.register("inventory_nodes", "Nodes by state", inventory_nodes.clone());
        let inventory_age_seconds = unknown();
        ours.register_with_unit(
            "inventory_age",
            "Age of the picture of the fleet; NaN before the first complete list",
            Unit::Seconds,
            inventory_age_seconds.clone(),
        );
        let store_flush_seconds = Histogram::new(exponential_buckets(0.0001, 2.0, 16));
        ours.register_with_unit(
            "store_flush",
            "How long it took to make a batch durable",
            Unit::Seconds,
            store_flush_seconds.clone(),
        );
        let store_bytes = Level::default();
        ours.register_with_unit(
            "store",
            "What the store takes on disk",
            Unit::Bytes,
            store_bytes.clone(),
        );
        let store_healthy = Level::default();
        ours.register(
            "store_healthy",
            "1 when the store can be written",
            store_healthy.clone(),
        );
        let kube_requests = Family::default();
        ours.register("kube_requests", "Calls to Kubernetes", kube_requests.clone());
        let grpc_requests = Family::default();
        ours.register("grpc_requests", "Calls answered over gRPC", grpc_requests.clone());
        let http_requests = Family::default();
        ours.register("http_requests", "Calls answered over HTTP", http_requests.clone());
        let connections = Family::default();
        ours.register("connections", "Open connections", connections.clone());

        Self {
            ready,
            actor_restarts,
            inventory_nodes,
            inventory_age_seconds,
            store_flush_seconds,
            store_bytes,
            store_healthy,
            kube_requests,
            grpc_requests,
            http_requests,
            connections,
            registry: Arc::new(registry),
        }
    }

    /// Everything in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut page = String::new();
        // Writing to a String cannot fail; a collector that could not read /proc leaves its lines out.
        match text::encode(&mut page, &self.registry) {
            Ok(()) => page,
            Err(fmt::Error) => String::from("# EOF\n"),
        }
    }
}

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn unknown() -> Measure {
    let measure = Measure::default();
    measure.set(f64::NAN);
    measure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_names_of_the_interface() {
        let metrics = Metrics::new("1.2.3", "abc");
        metrics.ready.set(1);
        metrics
            .actor_restarts
            .get_or_create(&RestartLabels {
                kind: "node".into(),
                cause: "panic".into(),
            })
            .inc();
        metrics
            .inventory_nodes
            .get_or_create(&StateLabels {
                state: "sellable".into(),
            })
            .set(12);
        metrics
            .kube_requests
            .get_or_create(&KubeLabels {
                verb: "list".into(),
                resource: "nodes".into(),
                code: "200".into(),
            })
            .inc();
        metrics.store_flush_seconds.observe(0.002);
        metrics.store_bytes.set(4096);
        let page = metrics.text();
        for line in [
            r#"freehold_build_info{version="1.2.3",revision="abc"} 1"#,
            "freehold_ready 1",
            r#"freehold_actor_restarts_total{kind="node",cause="panic"} 1"#,
            r#"freehold_inventory_nodes{state="sellable"} 12"#,
            "freehold_inventory_age_seconds NaN",
            "freehold_store_flush_seconds_count 1",
            "freehold_store_bytes 4096",
            "freehold_store_healthy 0",
            r#"freehold_kube_requests_total{verb="list",resource="nodes",code="200"} 1"#,
            "# EOF",
        ] {
            assert!(
                page.lines().any(|found| found == line),
                "no line {line:?} in\n{page}"
            );
        }
        for start in [
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_cpu_seconds_total ",
        ] {
            assert!(
                page.lines().any(|found| found.starts_with(start)),
                "no {start} in\n{page}"
            );
        }
    }
}
