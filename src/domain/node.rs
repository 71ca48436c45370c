//! A machine of the cluster, as Kubernetes tells of it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// The name of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(pub Arc<str>);

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What is known of a node from its Kubernetes object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The object's UID: another one is another machine.
    pub uid: String,
    /// The object's labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Taints that keep tenants' pods away.
    pub taints: Vec<Taint>,
    /// Conditions by type, `Ready` and the pressures.
    pub conditions: BTreeMap<String, ConditionStatus>,
    /// What the machine has.
    pub capacity: Resources,
    /// What pods may use.
    pub allocatable: Resources,
    /// What in the object made no sense; the rest still counts.
    pub problems: Vec<NodeProblem>,
}

/// Amounts by Kubernetes resource name: millicpu for `cpu`, plain units for everything else. A name that
/// is not there is unknown.
pub type Resources = BTreeMap<String, i64>;

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

/// A part of a node object that made no sense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProblem {
    /// The field's path in the object.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}
