//! Cluster addresses and node ports of Services: given out in order, never twice.

use std::{collections::BTreeSet, net::Ipv4Addr};

use serde_json::{Value, json};

use crate::sim::objects::{Cause, Refusal, Resource, State, metadata_text};

const SERVICES: Resource = Resource::new("", "services");

/// 10.96.0.0/12: the first address is the API server's own, low ones are left to those who ask for one.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 1, 0]);
const RANGE_START: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const RANGE_END: u32 = u32::from_be_bytes([10, 111, 255, 255]);
const FIRST_PORT: i64 = 30000;
const LAST_PORT: i64 = 32767;

/// Gives a Service what its type needs; `before` is the service as it was, null for a new one.
pub fn allocate(state: &State, before: &Value, service: &mut Value) -> Result<(), Refusal> {
    let kind = text(service, "/spec/type");
    let mut causes = Vec::new();
    let own = metadata_text(service, "uid").to_owned();
    let taken = Taken::by_others(state, &own);
    if kind == "ExternalName" {
        if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
            for field in [
                "clusterIP",
                "clusterIPs",
                "ipFamilies",
                "ipFamilyPolicy",
                "internalTrafficPolicy",
            ] {
                spec.remove(field);
            }
        }
    } else {
        give_address(before, service, &taken, &mut causes);
    }
    let wants_ports = kind == "NodePort"
        || (kind == "LoadBalancer"
            && service.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&json!(false)));
    give_ports(before, service, wants_ports, &taken, &mut causes);
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(
        "",
        "Service",
        metadata_text(service, "name"),
        causes,
    ))
}

fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// What the other Services have.
struct Taken {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<(String, i64)>,
}

impl Taken {
    fn by_others(state: &State, own_uid: &str) -> Self {
        let mut taken = Self {
            addresses: BTreeSet::new(),
            ports: BTreeSet::new(),
        };
        for other in state.each(&SERVICES, None) {
            if !own_uid.is_empty() && metadata_text(other, "uid") == own_uid {
                continue;
            }
            if let Ok(address) = text(other, "/spec/clusterIP").parse::<Ipv4Addr>() {
                taken.addresses.insert(u32::from(address));
            }
            for port in node_ports(other) {
                taken.ports.insert(port);
            }
        }
        taken
    }
}

fn node_ports(service: &Value) -> Vec<(String, i64)> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    ports
        .into_iter()
        .flatten()
        .filter_map(|port| {
            let number = port.get("nodePort")?.as_i64().filter(|number| *number > 0)?;
            let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
            Some((protocol.to_owned(), number))
        })
        .collect()
}

fn give_address(before: &Value, service: &mut Value, taken: &Taken, causes: &mut Vec<Cause>) {
    let earlier = text(before, "/spec/clusterIP");
    let asked = text(service, "/spec/clusterIP");
    let address = match (earlier.as_str(), asked.as_str()) {
        ("", "None") => "None".to_owned(),
        ("", "") => {
            let free = (FIRST_ADDRESS..=RANGE_END).find(|address| !taken.addresses.contains(address));
            match free {
                Some(address) => Ipv4Addr::from(address).to_string(),
                None => {
                    let why = "the range of cluster addresses is used up";
                    causes.push(Cause::invalid("spec.clusterIPs", &json!([""]), why));
                    return;
                }
            }
        }
        ("", asked) => match asked.parse::<Ipv4Addr>().map(u32::from) {
            Ok(address) if !(RANGE_START..=RANGE_END).contains(&address) => {
                let why = "failed to allocate IP: the provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/12";
                causes.push(Cause::invalid("spec.clusterIPs", &json!([asked]), why));
                return;
            }
            Ok(address) if taken.addresses.contains(&address) => {
                let why = "failed to allocate IP: provided IP is already allocated";
                causes.push(Cause::invalid("spec.clusterIPs", &json!([asked]), why));
                return;
            }
            Ok(_) => asked.to_owned(),
            Err(_) => {
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                causes.push(Cause::invalid("spec.clusterIPs[0]", &json!(asked), why));
                return;
            }
        },
        // An update that leaves it out keeps it.
        (earlier, "") => earlier.to_owned(),
        (earlier, asked) if earlier == asked => earlier.to_owned(),
        (_, asked) => {
            let why = "may not change once set";
            causes.push(Cause::invalid("spec.clusterIPs[0]", &json!(asked), why));
            return;
        }
    };
    service["spec"]["clusterIP"] = json!(address);
    service["spec"]["clusterIPs"] = json!([address]);
}

fn give_ports(before: &Value, service: &mut Value, wanted: bool, taken: &Taken, causes: &mut Vec<Cause>) {
    let mut used: BTreeSet<(String, i64)> = taken.ports.clone();
    let mut own: BTreeSet<(String, i64)> = node_ports(service).into_iter().collect();
    let earlier: Vec<Value> = before
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let Some(ports) = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut) else {
        return;
    };
    for (index, port) in ports.iter_mut().enumerate() {
        let protocol = port
            .get("protocol")
            .and_then(Value::as_str)
            .unwrap_or("TCP")
            .to_owned();
        let field = format!("spec.ports[{index}].nodePort");
        let asked = port.get("nodePort").and_then(Value::as_i64).unwrap_or(0);
        if !wanted {
            // A NodePort that becomes a ClusterIP gives its ports back.
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
            continue;
        }
        if asked > 0 {
            if !(FIRST_PORT..=LAST_PORT).contains(&asked) {
                let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                causes.push(Cause::invalid(field, &json!(asked), why));
            } else if !used.insert((protocol, asked)) {
                causes.push(Cause::invalid(
                    field,
                    &json!(asked),
                    "provided port is already allocated",
                ));
            }
            continue;
        }
        let same = earlier
            .iter()
            .find(|old| old.get("port") == port.get("port") && old.get("protocol") == port.get("protocol"));
        let kept = same
            .and_then(|old| old.get("nodePort")?.as_i64())
            .filter(|number| *number > 0 && !own.contains(&(protocol.clone(), *number)));
        let free = kept.or_else(|| {
            (FIRST_PORT..=LAST_PORT).find(|number| {
                let candidate = (protocol.clone(), *number);
                !used.contains(&candidate) && !own.contains(&candidate)
            })
        });
        match free {
            Some(number) => {
                used.insert((protocol.clone(), number));
                own.insert((protocol, number));
                port["nodePort"] = json!(number);
            }
            None => causes.push(Cause::invalid(
                field,
                &json!(0),
                "the range of node ports is used up",
            )),
        }
    }
}
