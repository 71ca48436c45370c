//! `freehold.v1.Inventory`.

use super::{WireError, parse_optional_time, render_time};
use crate::{
    api::proto::v1,
    domain::{inventory, node},
};

/// Domain → wire.
#[must_use]
pub fn render(inventory: inventory::Inventory) -> v1::Inventory {
    v1::Inventory {
        revision: inventory.revision,
        observed_at: inventory.observed_at.map(render_time),
        age_ms: inventory.age_ms,
        ready: inventory.ready,
        nodes: inventory.nodes.into_iter().map(render_node).collect(),
    }
}

fn render_node(node: inventory::NodeReport) -> v1::Node {
    v1::Node {
        name: node.name,
        uid: node.uid,
        sellable: node.sellable,
        reasons: node
            .reasons
            .into_iter()
            .map(|reason| v1::NodeReason {
                code: reason.code,
                message: reason.message,
            })
            .collect(),
        taints: node
            .taints
            .into_iter()
            .map(|taint| v1::Taint {
                key: taint.key,
                value: taint.value,
                effect: taint.effect,
            })
            .collect(),
        cpu: Some(render_quantity(node.cpu.quantity)),
        memory: Some(render_quantity(node.memory.quantity)),
        ephemeral_storage: Some(render_quantity(node.ephemeral_storage.quantity)),
        gpu_total: Some(render_quantity(node.gpu.quantity)),
        gpu: node
            .gpu
            .resources
            .into_iter()
            .map(|(name, quantity)| (name, render_quantity(quantity)))
            .collect(),
        labels: node.labels.into_iter().collect(),
        problems: node
            .problems
            .into_iter()
            .map(|problem| v1::NodeProblem {
                field: problem.field,
                message: problem.message,
            })
            .collect(),
    }
}

fn render_quantity(quantity: inventory::Quantity) -> v1::Quantity {
    v1::Quantity {
        allocatable: quantity.allocatable,
        allocated: quantity.allocated,
        reserved: quantity.reserved,
    }
}

/// Wire → domain.
///
/// # Errors
/// When a time makes no sense.
pub fn parse(inventory: v1::Inventory) -> Result<inventory::Inventory, WireError> {
    Ok(inventory::Inventory {
        revision: inventory.revision,
        observed_at: parse_optional_time("observed_at", inventory.observed_at)?,
        age_ms: inventory.age_ms,
        ready: inventory.ready,
        nodes: inventory.nodes.into_iter().map(parse_node).collect(),
    })
}

fn parse_node(node: v1::Node) -> inventory::NodeReport {
    // A resource that is not there is one of which nothing is known, which is what the default says.
    let amount = |quantity: Option<v1::Quantity>| inventory::Amount {
        quantity: quantity.map(parse_quantity).unwrap_or_default(),
    };
    inventory::NodeReport {
        name: node.name,
        uid: node.uid,
        sellable: node.sellable,
        reasons: node
            .reasons
            .into_iter()
            .map(|reason| inventory::NodeReason {
                code: reason.code,
                message: reason.message,
            })
            .collect(),
        taints: node
            .taints
            .into_iter()
            .map(|taint| node::Taint {
                key: taint.key,
                value: taint.value,
                effect: taint.effect,
            })
            .collect(),
        cpu: amount(node.cpu),
        memory: amount(node.memory),
        ephemeral_storage: amount(node.ephemeral_storage),
        gpu: inventory::Gpu {
            quantity: node.gpu_total.map(parse_quantity).unwrap_or_default(),
            resources: node
                .gpu
                .into_iter()
                .map(|(name, quantity)| (name, parse_quantity(quantity)))
                .collect(),
        },
        labels: node.labels.into_iter().collect(),
        problems: node
            .problems
            .into_iter()
            .map(|problem| node::NodeProblem {
                field: problem.field,
                message: problem.message,
            })
            .collect(),
    }
}

fn parse_quantity(quantity: v1::Quantity) -> inventory::Quantity {
    inventory::Quantity {
        allocatable: quantity.allocatable,
        allocated: quantity.allocated,
        reserved: quantity.reserved,
    }
}
