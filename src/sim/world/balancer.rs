//! The load balancer: gives LoadBalancer Services addresses from IPAddressPools, by MetalLB's rules.
//!
//! A Service keeps the addresses it has while they are still right. It may ask for a pool or for addresses
//! by annotation (`metallb.io/…`, or the older `metallb.universe.tf/…`). Services share an address when
//! they carry the same sharing key, their ports differ, and their traffic goes the same way. When nothing
//! fits, the Service stays pending and an Event says why.

mod allocation;
mod pools;

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::{Value, json};

use self::{
    allocation::{Allocation, Request},
    pools::Pool,
};
use super::{
    World,
    document::{Key, annotation, at, is_terminating, list, remove, set, set_entry, text},
    resources::{ADDRESS_POOLS, NAMESPACES, SERVICES},
};

const PREFIXES: [&str; 2] = ["metallb.io/", "metallb.universe.tf/"];
const FROM_POOL: &str = "metallb.io/ip-allocated-from-pool";

/// What the balancer remembers.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    /// Services that got addresses: one that stops being a LoadBalancer gives them back.
    served: BTreeSet<Key>,
}

pub(super) fn reconcile(world: &mut World) {
    let pools: Vec<Pool> = world
        .objects
        .list(&ADDRESS_POOLS, None)
        .items
        .iter()
        .map(|pool| Pool::parse(pool))
        .collect();
    let mut services = Vec::new();
    for key in world.index.balancers.clone() {
        let Some(service) = world.get(&SERVICES, &key) else {
            continue;
        };
        if is_terminating(&service) || !text(&service, "spec.loadBalancerClass").is_empty() {
            continue;
        }
        services.push((key, service));
    }
    // First come, first served; whoever has an address is before everybody who has none.
    services.sort_by_cached_key(|(key, service)| {
        (
            text(service, "metadata.creationTimestamp").to_owned(),
            key.clone(),
        )
    });
    let mut taken = Allocation::default();
    let mut waiting = Vec::new();
    for (key, service) in &services {
        let request = request(world, service);
        let held = addresses(service);
        let kept = !held.is_empty() && taken.keep(&request, key, &held, &pools);
        if !kept {
            waiting.push((key, service, request));
        }
    }
    for (key, service, request) in waiting {
        match taken.allocate(&request, key, &pools) {
            Ok((pool, given)) => assign(world, key, service, &pool, &given),
            Err(reason) => {
                withdraw(world, key, service);
                let message = format!(
                    "Failed to allocate IP for \"{}/{}\": {reason}",
                    key.namespace, key.name
                );
                tell_once(world, service, &message);
            }
        }
    }
    give_back(world, &services.iter().map(|(key, _)| key.clone()).collect());
    report(world, &pools, &taken);
}

/// What a Service asks for.
fn request(world: &World, service: &Value) -> Request {
    let asked = |name: &str| {
        PREFIXES
            .iter()
            .find_map(|prefix| annotation(service, &format!("{prefix}{name}")))
    };
    let wanted = asked("loadBalancerIPs").unwrap_or_else(|| text(service, "spec.loadBalancerIP"));
    let local = text(service, "spec.externalTrafficPolicy") == "Local";
    let backend = if local {
        at(service, "spec.selector")
            .map(Value::to_string)
            .unwrap_or_default()
    } else {
        String::new()
    };
    let ports = list(service, "spec.ports").iter().map(|port| {
        let protocol = match text(port, "protocol") {
            "" => "TCP",
            protocol => protocol,
        };
        (
            protocol.to_owned(),
            at(port, "port").and_then(Value::as_i64).unwrap_or(0),
        )
    });
    let mut families: Vec<bool> = list(service, "spec.ipFamilies")
        .iter()
        .map(|family| family == "IPv6")
        .collect();
    if families.is_empty() {
        families.push(text(service, "spec.clusterIP").contains(':'));
    }
    if text(service, "spec.ipFamilyPolicy") == "SingleStack" {
        families.truncate(1);
    }
    let namespace = text(service, "metadata.namespace");
    Request {
        pool: asked("address-pool")
            .filter(|pool| !pool.is_empty())
            .map(str::to_owned),
        wanted: wanted
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect(),
        sharing: asked("allow-shared-ip").unwrap_or_default().to_owned(),
        backend,
        ports: ports.collect(),
        families,
        optional_second: text(service, "spec.ipFamilyPolicy") == "PreferDualStack",
        namespace: namespace.to_owned(),
        namespace_object: world.get(&NAMESPACES, &Key::new("", namespace)),
        service: service.clone(),
    }
}

/// The addresses a Service has.
fn addresses(service: &Value) -> Vec<IpAddr> {
    let ingress = list(service, "status.loadBalancer.ingress");
    ingress
        .iter()
        .filter_map(|entry| text(entry, "ip").parse().ok())
        .collect()
}

fn assign(world: &mut World, key: &Key, service: &Value, pool: &str, given: &[IpAddr]) {
    let ingress: Vec<Value> = given
        .iter()
        .map(|ip| json!({"ip": ip.to_string(), "ipMode": "VIP"}))
        .collect();
    let said: Vec<String> = given.iter().map(IpAddr::to_string).collect();
    world.modify(&SERVICES, key, |service| {
        set(service, "status.loadBalancer.ingress", Value::Array(ingress));
        set_entry(service, "metadata.annotations", FROM_POOL, json!(pool));
    });
    world.balancer.served.insert(key.clone());
    world.event(
        service,
        "Service",
        "Normal",
        "IPAllocated",
        &format!("Assigned IP [{}]", said.join(" ")),
    );
}

/// Takes back what a Service may no longer have.
fn withdraw(world: &mut World, key: &Key, service: &Value) {
    world.balancer.served.remove(key);
    if addresses(service).is_empty() && annotation(service, FROM_POOL).is_none() {
        return;
    }
    world.modify(&SERVICES, key, |service| {
        set(service, "status.loadBalancer", json!({}));
        if let Some(annotations) = service
            .get_mut("metadata")
            .and_then(|metadata| metadata.get_mut("annotations"))
            && let Some(map) = annotations.as_object_mut()
        {
            map.remove(FROM_POOL);
        }
        if at(service, "metadata.annotations")
            .and_then(Value::as_object)
            .is_some_and(serde_json::Map::is_empty)
        {
            remove(service, "metadata.annotations");
        }
    });
}

/// Services that are no longer ours to serve.
fn give_back(world: &mut World, present: &BTreeSet<Key>) {
    let gone: Vec<Key> = world.balancer.served.difference(present).cloned().collect();
    for key in gone {
        world.balancer.served.remove(&key);
        if let Some(service) = world.get(&SERVICES, &key) {
            withdraw(world, &key, &service);
        }
    }
}

/// A refusal is an Event; the same one again is not another.
fn tell_once(world: &mut World, service: &Value, message: &str) {
    let suffix = super::document::digest(&[
        text(service, "metadata.uid").as_bytes(),
        b"AllocationFailed",
        message.as_bytes(),
    ]);
    let name = format!("{}.{suffix}", text(service, "metadata.name"));
    if world
        .objects
        .get(
            &super::resources::EVENTS,
            text(service, "metadata.namespace"),
            &name,
        )
        .is_none()
    {
        world.event(service, "Service", "Warning", "AllocationFailed", message);
    }
}

/// How much of each pool is in use, in its status.
fn report(world: &World, pools: &[Pool], taken: &Allocation) {
    for pool in pools {
        let used = |v6: bool| {
            taken
                .addresses()
                .filter(|ip| ip.is_ipv6() == v6 && pool.holds(**ip))
                .count()
        };
        let (used_v4, used_v6) = (used(false), used(true));
        let free = |v6: bool, used: usize| {
            pool.size(v6)
                .saturating_sub(i64::try_from(used).unwrap_or(i64::MAX))
        };
        world.write_status(
            &ADDRESS_POOLS,
            &pool.key,
            vec![
                ("assignedIPv4", json!(used_v4)),
                ("assignedIPv6", json!(used_v6)),
                ("availableIPv4", json!(free(false, used_v4))),
                ("availableIPv6", json!(free(true, used_v6))),
            ],
        );
    }
}
