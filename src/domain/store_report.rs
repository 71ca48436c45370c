//! What can be said of the store from outside.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The store, as `freehold store info` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Where it is.
    pub path: String,
    /// The version of its format.
    pub format: u32,
    /// Bytes it takes on disk.
    pub bytes: u64,
    /// Bytes free on its disk, where that can be known.
    pub free_bytes: Option<u64>,
    /// Records in it.
    pub records: u64,
    /// Records by kind.
    pub records_by_kind: BTreeMap<String, u64>,
    /// Whether it can be written.
    pub healthy: bool,
    /// The cluster it belongs to; absent until it has met one.
    pub cluster_uid: Option<String>,
    /// How many times it was opened.
    pub epoch: u64,
}

/// What `freehold store verify` found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreVerification {
    /// Records read and checked.
    pub records: u64,
    /// What is wrong; empty when all is well.
    pub problems: Vec<String>,
}
