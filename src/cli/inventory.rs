//! `freehold inventory`.

use super::{
    Console,
    amounts::{age_ms, cores, count, free_of, size, yes_no},
    arguments::{Format, InventoryPart},
    connection::{Connection, LARGEST_ANSWER},
    failure::{Exit, Failure},
    follow::show_changes,
    table::Table,
};
use crate::{
    api::{
        proto::v1::{self, inventory_service_client::InventoryServiceClient},
        wire::{self, WireError},
    },
    domain::inventory::{Inventory, NodeReport, Quantity},
};

pub async fn run(
    connection: &Connection,
    part: Option<InventoryPart>,
    watch: bool,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let table = move |inventory: &Inventory| match part {
        None => summary(inventory),
        Some(InventoryPart::Nodes) => nodes(inventory),
    };
    if watch {
        let fetch = async || fetch(connection).await;
        return show_changes(connection, "inventory.cluster", format, console, fetch, table).await;
    }
    let inventory = fetch(connection).await?;
    console.show(format, &inventory, table)?;
    if !inventory.ready && format == Format::Table {
        console.say("this is not all, or too old: the provider is not ready; `freehold status` says why");
    }
    Ok(Exit::Done)
}

async fn fetch(connection: &Connection) -> Result<Inventory, Failure> {
    let mut client =
        InventoryServiceClient::new(connection.wire().await?).max_decoding_message_size(LARGEST_ANSWER);
    let call = client.get(connection.request(v1::GetInventoryRequest {}));
    let inventory = connection.answer(call).await?.inventory;
    let inventory = inventory.ok_or(WireError::Missing { field: "inventory" })?;
    Ok(wire::inventory::parse(inventory)?)
}

/// The fleet in a few lines.
fn summary(inventory: &Inventory) -> String {
    let sellable = inventory.nodes.iter().filter(|node| node.sellable).count();
    let mut facts = Table::facts();
    facts.fact("ready", yes_no(inventory.ready));
    facts.fact("revision", inventory.revision.to_string());
    facts.fact("age", age_ms(inventory.age_ms));
    facts.fact("nodes", format!("{} ({sellable} sold)", inventory.nodes.len()));
    let total = |of: fn(&NodeReport) -> Quantity| sum(inventory.nodes.iter().map(of));
    facts.fact(
        "cpu",
        format!("{} cores free", free_of(&total(|node| node.cpu.quantity), cores)),
    );
    facts.fact(
        "memory",
        format!("{} free", free_of(&total(|node| node.memory.quantity), size)),
    );
    let disk = total(|node| node.ephemeral_storage.quantity);
    facts.fact("ephemeral storage", format!("{} free", free_of(&disk, size)));
    let mut resources: Vec<&String> = inventory
        .nodes
        .iter()
        .flat_map(|node| node.gpu.resources.keys())
        .collect();
    resources.sort();
    resources.dedup();
    for resource in resources {
        let cards = sum(inventory
            .nodes
            .iter()
            .filter_map(|node| node.gpu.resources.get(resource).copied()));
        facts.fact(resource, format!("{} cards free", free_of(&cards, count)));
    }
    facts.render()
}

fn nodes(inventory: &Inventory) -> String {
    let mut table = Table::new([
        "NAME",
        "SOLD",
        "CPU FREE",
        "MEMORY FREE",
        "DISK FREE",
        "GPU FREE",
        "WHY NOT",
    ]);
    for node in &inventory.nodes {
        let gpus: Vec<_> = node
            .gpu
            .resources
            .iter()
            .map(|(resource, cards)| {
                let vendor = resource.split('.').next().unwrap_or(resource);
                format!("{} {vendor}", free_of(cards, count))
            })
            .collect();
        let reasons: Vec<_> = node.reasons.iter().map(|reason| reason.code.as_str()).collect();
        table.row([
            node.name.clone(),
            yes_no(node.sellable),
            free_of(&node.cpu.quantity, cores),
            free_of(&node.memory.quantity, size),
            free_of(&node.ephemeral_storage.quantity, size),
            if gpus.is_empty() {
                "-".to_owned()
            } else {
                gpus.join(", ")
            },
            reasons.join(", "),
        ]);
    }
    table.render()
}

/// The sum of what is known; unknown as soon as one part is.
fn sum(quantities: impl Iterator<Item = Quantity>) -> Quantity {
    let add = |left: Option<i64>, right: Option<i64>| left?.checked_add(right?);
    let none = Quantity {
        allocatable: Some(0),
        allocated: Some(0),
        reserved: Some(0),
    };
    quantities.fold(none, |total, quantity| Quantity {
        allocatable: add(total.allocatable, quantity.allocatable),
        allocated: add(total.allocated, quantity.allocated),
        reserved: add(total.reserved, quantity.reserved),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::inventory::{Amount, NodeReason};

    fn node(name: &str, allocated: Option<i64>) -> NodeReport {
        let amount = |allocatable, allocated| Amount {
            quantity: Quantity {
                allocatable: Some(allocatable),
                allocated,
                reserved: Some(0),
            },
        };
        NodeReport {
            name: name.into(),
            sellable: allocated.is_some(),
            reasons: if allocated.is_some() {
                vec![]
            } else {
                vec![NodeReason {
                    code: "stale".into(),
                    message: "not seen".into(),
                }]
            },
            cpu: amount(64_000, allocated),
            memory: amount(256 << 30, Some(0)),
            ephemeral_storage: amount(1 << 40, Some(0)),
            gpu: crate::domain::inventory::Gpu::of(
                [("nvidia.com/gpu".to_owned(), amount(8, Some(2)).quantity)].into(),
            ),
            ..NodeReport::default()
        }
    }

    #[test]
    fn nodes_read_as_a_table_with_what_is_free() {
        let inventory = Inventory {
            nodes: vec![node("node-0001", Some(1500)), node("node-0002", None)],
            ..Inventory::default()
        };
        assert_eq!(
            nodes(&inventory),
            "NAME       SOLD  CPU FREE  MEMORY FREE  DISK FREE  GPU FREE    WHY NOT\n\
             node-0001  yes   62.5/64   256Gi/256Gi  1Ti/1Ti    6/8 nvidia\n\
             node-0002  no    ?/64      256Gi/256Gi  1Ti/1Ti    6/8 nvidia  stale\n"
        );
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let inventory = Inventory {
            nodes: vec![node("a", Some(0)), node("b", None)],
            ..Inventory::default()
        };
        let text = summary(&inventory);
        assert!(text.contains("cpu                ?/128 cores free"), "{text}");
        assert!(text.contains("nvidia.com/gpu     12/16 cards free"), "{text}");
        assert!(text.contains("nodes              2 (1 sold)"), "{text}");
    }
}
