//! The status document (INTERFACE §3), the same over gRPC, HTTP and the command line.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the provider is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The commit it was built from.
    pub revision: String,
    /// When this run began.
    pub started_at: Timestamp,
    /// Whether it answers for real.
    pub ready: bool,
    /// Why not.
    pub reasons: Vec<StatusReason>,
    /// `manage` or `observe`.
    pub mode: String,
    /// Whether new reservations are refused on the operator's word.
    pub maintenance: bool,
    /// The cluster it works on.
    pub cluster: ClusterIdentity,
    /// The hardware in one line.
    pub inventory: InventorySummary,
    /// Promises that stand.
    pub reservations: u64,
    /// Leases known.
    pub leases: u64,
    /// The store.
    pub store: StoreSummary,
    /// What this start found.
    pub recovered: Recovery,
}

/// One thing that keeps the provider from being ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReason {
    /// Which part: `cluster`, `inventory`, `store` …
    pub part: String,
    /// For programs.
    pub code: String,
    /// For people, with what to do.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

/// Which cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterIdentity {
    /// `embedded` or `kubernetes`.
    pub kind: String,
    /// The UID of its `kube-system` namespace; unknown until it has answered.
    pub uid: Option<String>,
    /// Its API server.
    pub server: String,
}

/// The hardware in one line. Unknown is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventorySummary {
    /// Goes up with every change.
    pub revision: u64,
    /// How old the picture is.
    pub age_ms: Option<u64>,
    /// How many nodes there are.
    pub nodes: Option<u64>,
}

/// The store in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSummary {
    /// Where it is.
    pub path: String,
    /// What it takes on disk.
    pub bytes: u64,
    /// Whether it can be written.
    pub healthy: bool,
}

/// What this start found of the run before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Whether the last run ended without a clean stop.
    pub unclean: bool,
    /// Promises read back.
    pub reservations: u64,
    /// Leases read back.
    pub leases: u64,
    /// Hostnames read back.
    pub hostnames: u64,
    /// Records that were never acknowledged and are gone.
    pub dropped_records: u64,
    /// How long it took.
    pub took_ms: u64,
}
