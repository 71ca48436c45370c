//! The wiring diagram: which change is whose work.
//!
//! Both what an object belonged to before a change and what it belongs to now hear of it.

use serde_json::Value;

use super::{
    document::{Key, is_terminating, list, text},
    index::{Index, Reference},
    placement::holds_resources,
    resources::{
        ADDRESS_POOLS, CLAIMS, DEPLOYMENTS, EVENTS, JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS, SERVICES,
        STATEFUL_SETS, STORAGE_CLASSES, VOLUMES,
    },
};
use crate::sim::objects::{Change, ChangeKind, Resource};

/// A piece of work: look at this and take a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A namespace: what every one has, and its end.
    Namespace(String),
    /// A namespace that is being emptied.
    ClearNamespace(String),
    Deployment(Key),
    ReplicaSet(Key),
    StatefulSet(Key),
    Job(Key),
    /// A persistent volume claim.
    Claim(Key),
    /// A persistent volume.
    Volume(String),
    /// A pod that waits for a node.
    Place(Key),
    /// Something changed for the pods that found no node.
    Unpark,
    /// A pod, as its node's kubelet sees it.
    Pod(Key),
    /// A node's taints, and the pods it lost.
    Node(String),
    /// A pod whose time on a tainted node may be over.
    Evict(Key),
    /// The endpoints of a Service.
    Endpoints(Key),
    /// The addresses of all LoadBalancer Services.
    Balancers,
    /// Objects whose owner with this UID is gone.
    Dependents(String),
    /// An owner that waits for its dependents.
    Owner(Reference),
    /// Too many Events.
    TrimEvents,
}

/// What a change means.
pub fn of_change(change: &Change, index: &Index) -> Vec<Work> {
    let mut work = of_object(&change.resource, &change.object, index);
    let object = &change.object;
    let resource = &change.resource;
    if let Some(previous) = &change.previous {
        for owner in list(previous, "metadata.ownerReferences") {
            owner_work(owner, text(previous, "metadata.namespace"), &mut work);
        }
        if *resource == *PODS && holds_resources(previous) && !holds_resources(object) {
            work.push(Work::Unpark);
        }
    }
    if change.kind == ChangeKind::Deleted {
        work.push(Work::Dependents(text(object, "metadata.uid").to_owned()));
        for owner in list(object, "metadata.ownerReferences") {
            work.extend(index.by_uid(text(owner, "uid")).cloned().map(Work::Owner));
        }
        if *resource == *PODS {
            work.push(Work::Unpark);
            work.extend(claims_of(object));
        }
        if *resource == *CLAIMS {
            work.push(Work::Volume(text(object, "spec.volumeName").to_owned()));
        }
        if *resource == *NODES {
            let pods = index.pods_on(text(object, "metadata.name"));
            work.extend(pods.into_iter().map(Work::Pod));
        }
        let namespace = text(object, "metadata.namespace");
        if !namespace.is_empty() {
            work.push(Work::Namespace(namespace.to_owned()));
        }
    }
    work
}

/// What the presence of an object means.
pub fn of_object(resource: &Resource, object: &Value, index: &Index) -> Vec<Work> {
    let key = Key::of(object);
    let mut work = Vec::new();
    for owner in list(object, "metadata.ownerReferences") {
        owner_work(owner, &key.namespace, &mut work);
        let uid = text(owner, "uid");
        if !index.is_alive(uid) {
            work.push(Work::Dependents(uid.to_owned()));
        }
    }
    if is_terminating(object) {
        work.push(Work::Owner(Reference {
            resource: resource.clone(),
            key: key.clone(),
        }));
    }
    if *resource == *PODS {
        work.extend(services_of(object, index));
        if text(object, "spec.nodeName").is_empty() {
            work.push(Work::Place(key));
        } else {
            work.push(Work::Evict(key.clone()));
            work.push(Work::Pod(key));
        }
    } else if *resource == *NODES {
        work.push(Work::Unpark);
        work.push(Work::Node(key.name));
    } else if *resource == *NAMESPACES {
        work.push(Work::Namespace(key.name));
    } else if *resource == *DEPLOYMENTS {
        work.push(Work::Deployment(key));
    } else if *resource == *REPLICA_SETS {
        work.push(Work::ReplicaSet(key));
    } else if *resource == *STATEFUL_SETS {
        work.push(Work::StatefulSet(key));
    } else if *resource == *JOBS {
        work.push(Work::Job(key));
    } else if *resource == *CLAIMS {
        work.push(Work::Claim(key));
        work.push(Work::Unpark);
    } else if *resource == *VOLUMES {
        work.push(Work::Volume(key.name));
        work.push(Work::Unpark);
    } else if *resource == *SERVICES {
        work.push(Work::Endpoints(key));
        work.push(Work::Balancers);
    } else if *resource == *ADDRESS_POOLS {
        work.push(Work::Balancers);
    } else if *resource == *EVENTS {
        work.push(Work::TrimEvents);
    } else if *resource == *STORAGE_CLASSES {
        work.push(Work::Unpark);
    }
    work
}

/// The controller that manages objects with this owner.
fn owner_work(owner: &Value, namespace: &str, work: &mut Vec<Work>) {
    let key = Key::new(namespace, text(owner, "name"));
    match (text(owner, "apiVersion"), text(owner, "kind")) {
        ("apps/v1", "Deployment") => work.push(Work::Deployment(key)),
        ("apps/v1", "ReplicaSet") => work.push(Work::ReplicaSet(key)),
        ("apps/v1", "StatefulSet") => work.push(Work::StatefulSet(key)),
        ("batch/v1", "Job") => work.push(Work::Job(key)),
        _ => {}
    }
}

/// The Services of a pod's namespace; which of them select it, each finds out itself.
fn services_of(pod: &Value, index: &Index) -> Vec<Work> {
    let services = index.services(text(pod, "metadata.namespace"));
    services.map(|key| Work::Endpoints(key.clone())).collect()
}

/// The claims a pod used: one that is being deleted may go now.
fn claims_of(pod: &Value) -> Vec<Work> {
    let namespace = text(pod, "metadata.namespace");
    let volumes = list(pod, "spec.volumes").iter();
    let names = volumes.map(|volume| text(volume, "persistentVolumeClaim.claimName"));
    names
        .filter(|name| !name.is_empty())
        .map(|name| Work::Claim(Key::new(namespace, name)))
        .collect()
}
