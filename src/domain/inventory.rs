//! The inventory document (INTERFACE §4), the same over gRPC, HTTP and the command line.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::node::{NodeProblem, Taint};

/// The hardware there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Goes up with every change.
    pub revision: u64,
    /// The newest observation; absent before the first complete list.
    pub observed_at: Option<Timestamp>,
    /// How old that is.
    pub age_ms: Option<u64>,
    /// Whether the picture is complete and fresh.
    pub ready: bool,
    /// The machines, by name.
    pub nodes: Vec<NodeReport>,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// The UID of its Kubernetes object.
    pub uid: String,
    /// Whether orders may be placed on it.
    pub sellable: bool,
    /// Why not.
    pub reasons: Vec<NodeReason>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Millicpu.
    pub cpu: Amount,
    /// Bytes.
    pub memory: Amount,
    /// Bytes.
    pub ephemeral_storage: Amount,
    /// Cards.
    pub gpu: Gpu,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What in its object made no sense.
    pub problems: Vec<NodeProblem>,
}

/// The cards of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// All of them.
    pub quantity: Quantity,
    /// By extended resource, for example `nvidia.com/gpu`.
    pub resources: BTreeMap<String, Quantity>,
}

impl Gpu {
    /// All cards of these resources. A sum that overflows, or of which a part is unknown, is unknown.
    #[must_use]
    pub fn of(resources: BTreeMap<String, Quantity>) -> Self {
        let sum = |part: fn(&Quantity) -> Option<i64>| {
            resources
                .values()
                .try_fold(0_i64, |sum, quantity| sum.checked_add(part(quantity)?))
        };
        // Without any such resource nothing can be taken of it either, but that is known elsewhere.
        let taken = |part: fn(&Quantity) -> Option<i64>| if resources.is_empty() { None } else { sum(part) };
        let quantity = Quantity {
            allocatable: sum(|quantity| quantity.allocatable),
            allocated: taken(|quantity| quantity.allocated),
            reserved: taken(|quantity| quantity.reserved),
        };
        Self { quantity, resources }
    }
}

/// Why a node is not sold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReason {
    /// For programs: `not_ready`, `cordoned`, `tainted`, `pressure`, `unreadable`, `stale` …
    pub code: String,
    /// For people.
    pub message: String,
}

/// A resource of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// How much.
    pub quantity: Quantity,
}

/// How much there is and how much is taken. Absent means unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantity {
    /// What pods may use.
    pub allocatable: Option<i64>,
    /// What pods use.
    pub allocated: Option<i64>,
    /// What is promised.
    pub reserved: Option<i64>,
}
