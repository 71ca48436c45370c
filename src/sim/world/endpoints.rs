//! Services: the Endpoints and the EndpointSlice of the pods they select.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    World,
    document::{Key, at, digest, flag, is_terminating, list, owned_by, selects_plainly, set, text},
    pods::{is_finished, is_ready},
    resources::{ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES},
};
use crate::sim::objects::{Deletion, Resource};

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Most endpoints written down, as in Kubernetes' own Endpoints.
const MOST: usize = 1000;

pub(super) fn reconcile(world: &mut World, key: &Key) {
    let Some(service) = world.get(&SERVICES, key) else {
        let ours = world.get(&ENDPOINTS, key).is_some_and(|endpoints| {
            at(&endpoints, "metadata.labels").is_some_and(|labels| labels.get(MANAGED_BY).is_some())
        });
        if ours {
            world.delete(&ENDPOINTS, key, Deletion::default());
        }
        return;
    };
    let selector = at(&service, "spec.selector").and_then(Value::as_object);
    if selector.is_none_or(serde_json::Map::is_empty)
        || is_terminating(&service)
        || text(&service, "spec.type") == "ExternalName"
    {
        return;
    }
    let listed = world.objects.list(&PODS, Some(&key.namespace));
    let mut pods: Vec<Arc<Value>> = listed.items;
    pods.retain(|pod| {
        selects_plainly(at(&service, "spec.selector"), pod)
            && !is_finished(pod)
            && !text(pod, "status.podIP").is_empty()
    });
    pods.truncate(MOST);
    write(world, &ENDPOINTS, key, endpoints(&service, &pods), &["subsets"]);
    let name = format!(
        "{}-{}",
        key.name,
        digest(&[text(&service, "metadata.uid").as_bytes()])
            .get(..5)
            .unwrap_or("xxxxx")
    );
    let slice_key = Key::new(&key.namespace, &name);
    write(
        world,
        &ENDPOINT_SLICES,
        &slice_key,
        slice(&service, &name, &pods),
        &["endpoints", "ports"],
    );
}

/// Creates the object, or brings the named fields of the one there up to date.
fn write(world: &World, resource: &Resource, key: &Key, wanted: Value, parts: &[&str]) {
    if world.get(resource, key).is_none() {
        world.create(resource, wanted);
        return;
    }
    world.modify(resource, key, |object| {
        for part in parts {
            set(object, part, wanted.get(*part).cloned().unwrap_or(Value::Null));
        }
    });
}

fn metadata(service: &Value, name: &str, owned: bool) -> Value {
    let mut labels = at(service, "metadata.labels")
        .cloned()
        .unwrap_or_else(|| json!({}));
    if let Some(map) = labels.as_object_mut() {
        map.insert(
            "kubernetes.io/service-name".into(),
            json!(text(service, "metadata.name")),
        );
        map.insert(MANAGED_BY.into(), json!("endpointslice-controller.k8s.io"));
    }
    let mut metadata =
        json!({"name": name, "namespace": text(service, "metadata.namespace"), "labels": labels});
    if owned {
        set(
            &mut metadata,
            "ownerReferences",
            owned_by(service, "v1", "Service"),
        );
    }
    metadata
}

fn target(pod: &Value) -> Value {
    json!({"kind": "Pod", "name": text(pod, "metadata.name"), "namespace": text(pod, "metadata.namespace"),
        "uid": text(pod, "metadata.uid")})
}

/// The Service's ports as they are on the pods.
fn ports(service: &Value, pods: &[Arc<Value>]) -> Vec<Value> {
    let resolve = |port: &Value| match at(port, "targetPort") {
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(name)) => pods.iter().find_map(|pod| {
            let containers = list(pod, "spec.containers").iter();
            let mut open = containers.flat_map(|container| list(container, "ports"));
            open.find(|open| text(open, "name") == name)
                .and_then(|open| open.get("containerPort")?.as_i64())
        }),
        _ => at(port, "port").and_then(Value::as_i64),
    };
    list(service, "spec.ports")
        .iter()
        .filter_map(|port| {
            let protocol = match text(port, "protocol") {
                "" => "TCP",
                other => other,
            };
            let mut entry = json!({"port": resolve(port)?, "protocol": protocol});
            if !text(port, "name").is_empty() {
                set(&mut entry, "name", json!(text(port, "name")));
            }
            Some(entry)
        })
        .collect()
}

fn endpoints(service: &Value, pods: &[Arc<Value>]) -> Value {
    let address = |pod: &&Arc<Value>| json!({"ip": text(pod, "status.podIP"), "nodeName": text(pod, "spec.nodeName"), "targetRef": target(pod)});
    let publish_all = flag(service, "spec.publishNotReadyAddresses");
    let counts = |pod: &&Arc<Value>| publish_all || (is_ready(pod) && !is_terminating(pod));
    let ready: Vec<Value> = pods.iter().filter(counts).map(|pod| address(&pod)).collect();
    let not_ready: Vec<Value> = pods
        .iter()
        .filter(|pod| !counts(pod) && !is_terminating(pod))
        .map(|pod| address(&pod))
        .collect();
    let mut subset = json!({"ports": ports(service, pods)});
    for (field, addresses) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
        if !addresses.is_empty() {
            set(&mut subset, field, Value::Array(addresses));
        }
    }
    let empty = subset.as_object().is_some_and(|fields| fields.len() == 1);
    json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": metadata(service, text(service, "metadata.name"), false),
        "subsets": if empty { json!([]) } else { json!([subset]) }})
}

fn slice(service: &Value, name: &str, pods: &[Arc<Value>]) -> Value {
    let publish_all = flag(service, "spec.publishNotReadyAddresses");
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|pod| {
            let (serving, terminating) = (is_ready(pod), is_terminating(pod));
            json!({"addresses": [text(pod, "status.podIP")], "nodeName": text(pod, "spec.nodeName"), "targetRef": target(pod),
                "conditions": {"ready": publish_all || (serving && !terminating), "serving": serving, "terminating": terminating}})
        })
        .collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata(service, name, true),
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports(service, pods)})
}
