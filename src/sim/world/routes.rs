//! The wiring diagram: which change is whose work.
//!
//! A change is routed twice, against the index before and after it, so that what an object belonged to
//! and what it belongs to now both hear of it.

use serde_json::Value;

use super::{
    document::{Key, controller, is_terminating, list, text},
    index::{Index, Reference},
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
    Deployment(Key),
    ReplicaSet(Key),
    StatefulSet(Key),
    Job(Key),
    /// A persistent volume claim.
    Claim(Key),
    /// A persistent volume.
    Volume(String),
    /// Place the next pod that waits for a node.
    Schedule,
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
        if *resource == *PODS && text(previous, "metadata.labels") != text(object, "metadata.labels") {
            work.extend(services_of(previous, index));
        }
    }
    if change.kind == ChangeKind::Deleted {
        work.push(Work::Dependents(text(object, "metadata.uid").to_owned()));
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
        work.push(Work::Owner(Reference { resource: resource.clone(), key: key.clone() }));
    }
    if *resource == *PODS {
        work.extend(services_of(object, index));
        work.push(Work::Schedule);
        work.extend(claims_of(object));
        work.push(Work::Pod(key));
    } else if *resource == *NODES {
        work.push(Work::Schedule);
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
        work.push(Work::Schedule);
    } else if *resource == *VOLUMES {
        work.push(Work::Volume(key.name));
        work.push(Work::Schedule);
    } else if *resource == *SERVICES {
        work.push(Work::Endpoints(key));
        work.push(Work::Balancers);
    } else if *resource == *ADDRESS_POOLS {
        work.push(Work::Balancers);
    } else if *resource == *EVENTS {
        work.push(Work::TrimEvents);
    } else if *resource == *STORAGE_CLASSES {
        work.push(Work::Schedule);
    }
    work
}

/// The controller that manages objects with this owner.
fn owner_work(owner: &Value, namespace: &str, work: &mut Vec<Work>) {
    let key = Key::new(namespace, text(owner, "name"));
    let resource = match (text(owner, "apiVersion"), text(owner, "kind")) {
        ("apps/v1", "Deployment") => {
            work.push(Work::Deployment(key.clone()));
            DEPLOYMENTS.clone()
        }
        ("apps/v1", "ReplicaSet") => {
            work.push(Work::ReplicaSet(key.clone()));
            REPLICA_SETS.clone()
        }
        ("apps/v1", "StatefulSet") => {
            work.push(Work::StatefulSet(key.clone()));
            STATEFUL_SETS.clone()
        }
        ("batch/v1", "Job") => {
            work.push(Work::Job(key.clone()));
            JOBS.clone()
        }
        _ => return,
    };
    work.push(Work::Owner(Reference { resource, key }));
}

/// The Services of a pod's namespace; which of them select it, each finds out itself.
fn services_of(pod: &Value, index: &Index) -> Vec<Work> {
    let contents = index.services(text(pod, "metadata.namespace"));
    contents.map(|key| Work::Endpoints(key.clone())).collect()
}

/// The claims a pod uses.
fn claims_of(pod: &Value) -> Vec<Work> {
    let namespace = text(pod, "metadata.namespace");
    let names = list(pod, "spec.volumes").iter().map(|volume| text(volume, "persistentVolumeClaim.claimName"));
    names.filter(|name| !name.is_empty()).map(|name| Work::Claim(Key::new(namespace, name))).collect()
}

/// Whether the object is managed by a controller of this kind.
pub fn is_managed_by(object: &Value, kind: &str) -> bool {
    controller(object).is_some_and(|owner| text(owner, "kind") == kind)
}
