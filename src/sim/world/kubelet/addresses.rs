//! The addresses of pods: their node's when they share its network, else the first free one of its range.

use std::{collections::BTreeSet, net::Ipv4Addr};

use serde_json::Value;

use crate::sim::world::{
    World,
    document::{Key, flag, list, text},
    resources::{NODES, PODS},
};

pub(super) fn host_address(world: &World, node: &str) -> String {
    let node = world.get(&NODES, &Key::new("", node));
    let addresses = node
        .as_ref()
        .map_or(&[][..], |node| list(node, "status.addresses"));
    let internal = addresses
        .iter()
        .find(|address| text(address, "type") == "InternalIP");
    internal
        .map_or("192.0.2.1", |address| text(address, "address"))
        .to_owned()
}

/// The first free address of the node's range.
pub(super) fn pod_address(world: &World, key: &Key, pod: &Value) -> String {
    let name = text(pod, "spec.nodeName");
    if flag(pod, "spec.hostNetwork") {
        return host_address(world, name);
    }
    let own = text(pod, "status.podIP");
    if !own.is_empty() {
        return own.to_owned();
    }
    let node = world.get(&NODES, &Key::new("", name));
    let range = node.as_ref().map_or("", |node| text(node, "spec.podCIDR"));
    let base = range
        .split('/')
        .next()
        .and_then(|address| address.parse::<Ipv4Addr>().ok());
    // A node made by hand has no range: one is made of its name.
    let base = base.unwrap_or_else(|| {
        let [_, _, third, fourth] = crc32fast::hash(name.as_bytes()).to_be_bytes();
        Ipv4Addr::new(10, 192 + third % 32, fourth, 0)
    });
    let others = world.index.pods_on(name);
    let taken: BTreeSet<String> = others
        .iter()
        .filter(|other| *other != key)
        .filter_map(|other| world.get(&PODS, other))
        .map(|pod| text(&pod, "status.podIP").to_owned())
        .collect();
    let first = u32::from(base).saturating_add(2);
    let mut candidates = (0..1022).map(|offset| Ipv4Addr::from(first.saturating_add(offset)).to_string());
    candidates
        .find(|address| !taken.contains(address))
        .unwrap_or_else(|| base.to_string())
}
