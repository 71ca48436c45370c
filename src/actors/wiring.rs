//! What actors are given at birth: the bus, the ports, and the settings they heed.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use crate::{
    bus::Bus,
    domain::status::Recovery,
    ports::{binding::ClusterBinding, clock::Clock, cluster::Cluster, store::Store, telemetry::Metrics},
};

/// What actors are given at birth.
#[derive(Clone, Debug)]
pub struct Wiring {
    /// How actors learn of each other.
    pub bus: Bus,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The cluster that is sold from.
    pub cluster: Arc<dyn Cluster>,
    /// Durable memory.
    pub store: Arc<dyn Store>,
    /// Which cluster the store belongs to.
    pub binding: Arc<dyn ClusterBinding>,
    /// What is counted.
    pub metrics: Metrics,
    /// What the configuration says.
    pub settings: Settings,
    /// When this run began.
    pub started_at: Timestamp,
    /// What this start found.
    pub recovery: Recovery,
}

/// The settings that actors heed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `inventory-resource-poll-period`.
    pub poll_period: Duration,
    /// `inventory-resource-debug-frequency`.
    pub debug_frequency: u64,
    /// `inventory.max-age`.
    pub max_age: Duration,
    /// `cluster.mode`.
    pub mode: String,
    /// `debug.enabled`.
    pub debug: bool,
}
