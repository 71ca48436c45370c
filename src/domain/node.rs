//! A machine of the cluster, as Kubernetes tells of it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::inventory::{Amount, Gpu, NodeReason, NodeReport, Quantity};

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

/// Extended resources that stand for GPUs.
const GPU_RESOURCES: [&str; 4] = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
];

/// Conditions that keep tenants away while they hold.
const PRESSURES: [&str; 4] = [
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "NetworkUnavailable",
];

impl NodeFacts {
    /// Why nothing is sold on this node; empty when it is sold.
    #[must_use]
    pub fn reasons_against(&self) -> Vec<NodeReason> {
        let mut reasons = Vec::new();
        let unready = self.conditions.get("Ready") != Some(&ConditionStatus::True);
        let mut against = |code: &str, message: String| {
            reasons.push(NodeReason {
                code: code.to_owned(),
                message,
            })
        };
        match self.conditions.get("Ready") {
            Some(ConditionStatus::True) => {}
            Some(ConditionStatus::False) => {
                against("not_ready", "the kubelet says that it is not ready".to_owned())
            }
            Some(ConditionStatus::Unknown) => {
                against("not_ready", "the kubelet has not been heard of".to_owned())
            }
            None => against("not_ready", "the node has no Ready condition".to_owned()),
        }
        if self.unschedulable {
            against(
                "cordoned",
                "spec.unschedulable is set (kubectl uncordon releases it)".to_owned(),
            );
        }
        // What Kubernetes adds itself for a state that is already named says nothing new.
        let named = |taint: &Taint| match taint.key.as_str() {
            "node.kubernetes.io/unschedulable" => self.unschedulable,
            "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable" => unready,
            _ => false,
        };
        for taint in self
            .taints
            .iter()
            .filter(|taint| taint.effect != "PreferNoSchedule" && !named(taint))
        {
            let value = if taint.value.is_empty() {
                String::new()
            } else {
                format!("={}", taint.value)
            };
            against(
                "tainted",
                format!(
                    "taint {}{value}:{} keeps tenants' pods away",
                    taint.key, taint.effect
                ),
            );
        }
        for pressure in PRESSURES {
            if self.conditions.get(pressure) == Some(&ConditionStatus::True) {
                against("pressure", format!("condition {pressure} holds"));
            }
        }
        for resource in ["cpu", "memory", "ephemeral-storage", "pods"] {
            if !self.allocatable.contains_key(resource) {
                against(
                    "unreadable",
                    format!("status.allocatable.{resource} is missing or makes no sense"),
                );
            }
        }
        reasons
    }

    /// The node as the inventory shows it. What pods and promises take is not known here.
    #[must_use]
    pub fn report(&self, name: &NodeName) -> NodeReport {
        let quantity = |resource: &str| Quantity {
            allocatable: self.allocatable.get(resource).copied(),
            allocated: None,
            reserved: None,
        };
        let amount = |resource: &str| Amount {
            quantity: quantity(resource),
        };
        // A resource that cannot be read has an unknown number of cards, and so has a node without any list.
        let unreadable = |resource: &str| {
            let field = format!("status.allocatable.{resource}");
            self.problems.iter().any(|problem| problem.field == field)
        };
        let cards: BTreeMap<String, Quantity> = GPU_RESOURCES
            .into_iter()
            .filter(|resource| self.allocatable.contains_key(*resource) || unreadable(resource))
            .map(|resource| (resource.to_owned(), quantity(resource)))
            .collect();
        let gpu = if self.allocatable.is_empty() {
            Gpu::default()
        } else {
            Gpu::of(cards)
        };
        let reasons = self.reasons_against();
        NodeReport {
            name: name.to_string(),
            uid: self.uid.clone(),
            sellable: reasons.is_empty(),
            reasons,
            taints: self.taints.clone(),
            cpu: amount("cpu"),
            memory: amount("memory"),
            ephemeral_storage: amount("ephemeral-storage"),
            gpu,
            labels: self.labels.clone(),
            problems: self.problems.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sold() -> NodeFacts {
        NodeFacts {
            conditions: BTreeMap::from([("Ready".into(), ConditionStatus::True)]),
            allocatable: [
                ("cpu", 4000),
                ("memory", 1 << 30),
                ("ephemeral-storage", 1 << 30),
                ("pods", 110),
            ]
            .map(|(name, amount)| (name.to_owned(), amount))
            .into(),
            ..NodeFacts::default()
        }
    }

    fn codes(facts: &NodeFacts) -> Vec<String> {
        facts
            .reasons_against()
            .into_iter()
            .map(|reason| reason.code)
            .collect()
    }

    #[test]
    fn an_ordinary_node_is_sold() {
        let report = sold().report(&"a".into());
        assert!(report.sellable && report.reasons.is_empty());
        assert_eq!(report.cpu.quantity.allocatable, Some(4000));
        assert_eq!(report.cpu.quantity.allocated, None, "unknown is not zero");
        assert_eq!(
            report.gpu.quantity.allocatable,
            Some(0),
            "a node without the resource has no cards"
        );
    }

    #[test]
    fn every_reason_not_to_sell_is_named() {
        let mut facts = sold();
        facts.unschedulable = true;
        facts
            .conditions
            .insert("DiskPressure".into(), ConditionStatus::True);
        facts.conditions.insert("Ready".into(), ConditionStatus::Unknown);
        let taint = |effect: &str| Taint {
            key: "k".into(),
            value: "v".into(),
            effect: effect.into(),
        };
        facts.taints = vec![taint("NoSchedule"), taint("PreferNoSchedule")];
        facts.allocatable.remove("memory");
        assert_eq!(
            codes(&facts),
            ["not_ready", "cordoned", "tainted", "pressure", "unreadable"]
        );
        assert_eq!(facts.report(&"a".into()).memory.quantity.allocatable, None);
        assert_eq!(codes(&NodeFacts::default())[0], "not_ready");
    }

    #[test]
    fn a_state_that_kubernetes_also_taints_is_named_once() {
        let mut facts = sold();
        facts.unschedulable = true;
        let (key, effect) = ("node.kubernetes.io/unschedulable".into(), "NoSchedule".into());
        facts.taints = vec![Taint {
            key,
            value: String::new(),
            effect,
        }];
        assert_eq!(codes(&facts), ["cordoned"]);
        facts.unschedulable = false;
        assert_eq!(codes(&facts), ["tainted"]);
    }

    #[test]
    fn cards_of_several_vendors_add_up() {
        let mut facts = sold();
        facts.allocatable.insert("nvidia.com/gpu".into(), 4);
        facts.allocatable.insert("amd.com/gpu".into(), 2);
        let gpu = facts.report(&"a".into()).gpu;
        assert_eq!(gpu.quantity.allocatable, Some(6));
        assert_eq!(gpu.resources.len(), 2);
        facts.problems = vec![NodeProblem {
            field: "status.allocatable.gpu.intel.com/xe".into(),
            message: "banana".into(),
        }];
        assert_eq!(
            facts.report(&"a".into()).gpu.quantity.allocatable,
            None,
            "a part is unknown"
        );
        assert_eq!(
            NodeFacts::default().report(&"a".into()).gpu.quantity.allocatable,
            None
        );
        facts.problems.clear();
        facts.allocatable.insert("nvidia.com/gpu".into(), i64::MAX);
        assert_eq!(
            facts.report(&"a".into()).gpu.quantity.allocatable,
            None,
            "a sum that overflows is unknown"
        );
    }
}
