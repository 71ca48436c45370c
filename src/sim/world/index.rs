//! What the controllers look up by something else than a name, kept up with every change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    document::{Key, list, text},
    placement::{Amounts, NodeState, holds_resources, requests},
    resources::{EVENTS, NODES, PODS, SERVICES},
};
use crate::sim::objects::{Change, ChangeKind, Resource};

/// An object by resource and key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub resource: Resource,
    pub key: Key,
}

/// The lookups.
#[derive(Debug, Default)]
pub struct Index {
    /// Every node, with what its pods take.
    pub nodes: BTreeMap<String, NodeState>,
    pods_by_node: BTreeMap<String, BTreeSet<Key>>,
    /// What each pod takes, and where: to take it off again.
    taken: BTreeMap<Key, (String, Amounts)>,
    /// Objects by the UID of each of their owners.
    dependents: BTreeMap<String, BTreeSet<Reference>>,
    uids: BTreeMap<String, Reference>,
    namespaces: BTreeMap<String, BTreeSet<Reference>>,
    services: BTreeMap<String, BTreeSet<Key>>,
    events: BTreeSet<Key>,
    /// Services of type LoadBalancer.
    pub balancers: BTreeSet<Key>,
}

impl Index {
    /// The pods of a node.
    pub fn pods_on(&self, node: &str) -> Vec<Key> {
        self.pods_by_node
            .get(node)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The objects that name an owner's UID.
    pub fn dependents(&self, uid: &str) -> Vec<Reference> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// The objects of one resource that name an owner's UID.
    pub fn owned<'a>(&'a self, uid: &str, resource: &'a Resource) -> impl Iterator<Item = &'a Key> {
        let all = self.dependents.get(uid).into_iter().flatten();
        all.filter(move |reference| reference.resource == *resource)
            .map(|reference| &reference.key)
    }

    /// Whether an object with this UID is there.
    pub fn is_alive(&self, uid: &str) -> bool {
        self.uids.contains_key(uid)
    }

    /// Everything in a namespace.
    pub fn contents(&self, namespace: &str) -> Vec<Reference> {
        self.namespaces
            .get(namespace)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The Services of a namespace.
    pub fn services(&self, namespace: &str) -> impl Iterator<Item = &Key> {
        self.services.get(namespace).into_iter().flatten()
    }

    /// The object with this UID.
    pub fn by_uid(&self, uid: &str) -> Option<&Reference> {
        self.uids.get(uid)
    }

    /// Whether nothing is in a namespace.
    pub fn is_empty(&self, namespace: &str) -> bool {
        !self.namespaces.contains_key(namespace)
    }

    /// How many Events there are.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Takes a change in.
    pub fn apply(&mut self, change: &Change) {
        if let Some(previous) = &change.previous {
            self.remove(&change.resource, previous);
        }
        match change.kind {
            ChangeKind::Added | ChangeKind::Modified => self.insert(&change.resource, &change.object),
            ChangeKind::Deleted => self.remove(&change.resource, &change.object),
        }
    }

    /// Takes an object in.
    pub fn insert(&mut self, resource: &Resource, object: &Value) {
        let key = Key::of(object);
        let reference = Reference {
            resource: resource.clone(),
            key: key.clone(),
        };
        self.uids
            .insert(text(object, "metadata.uid").to_owned(), reference.clone());
        for owner in list(object, "metadata.ownerReferences") {
            self.dependents
                .entry(text(owner, "uid").to_owned())
                .or_default()
                .insert(reference.clone());
        }
        if *resource == *NODES {
            self.insert_node(object);
        } else if *resource == *PODS {
            self.insert_pod(&key, object);
        } else if *resource == *SERVICES {
            self.services
                .entry(key.namespace.clone())
                .or_default()
                .insert(key.clone());
            if text(object, "spec.type") == "LoadBalancer" {
                self.balancers.insert(key.clone());
            }
        }
        if *resource == *EVENTS {
            self.events.insert(key.clone());
        }
        if !key.namespace.is_empty() {
            self.namespaces
                .entry(key.namespace.clone())
                .or_default()
                .insert(reference);
        }
    }

    fn remove(&mut self, resource: &Resource, object: &Value) {
        let key = Key::of(object);
        self.uids.remove(text(object, "metadata.uid"));
        let reference = Reference {
            resource: resource.clone(),
            key,
        };
        for owner in list(object, "metadata.ownerReferences") {
            forget(&mut self.dependents, text(owner, "uid"), &reference);
        }
        let key = &reference.key;
        if *resource == *NODES {
            self.nodes.remove(&key.name);
        } else if *resource == *PODS {
            forget(&mut self.pods_by_node, text(object, "spec.nodeName"), key);
            self.give_back(key);
        } else if *resource == *SERVICES {
            self.balancers.remove(key);
            forget(&mut self.services, &key.namespace, key);
        }
        if *resource == *EVENTS {
            self.events.remove(key);
        }
        if !key.namespace.is_empty() {
            forget(&mut self.namespaces, &key.namespace, &reference);
        }
    }

    fn insert_node(&mut self, node: &Value) {
        let name = text(node, "metadata.name");
        let mut state = NodeState::parse(node);
        for pod in self.pods_by_node.get(name).into_iter().flatten() {
            if let Some((_, amounts)) = self.taken.get(pod) {
                state.used.add(amounts);
            }
        }
        self.nodes.insert(name.to_owned(), state);
    }

    fn insert_pod(&mut self, key: &Key, pod: &Value) {
        let node = text(pod, "spec.nodeName");
        if node.is_empty() {
            return;
        }
        self.pods_by_node
            .entry(node.to_owned())
            .or_default()
            .insert(key.clone());
        self.give_back(key);
        if !holds_resources(pod) {
            return;
        }
        let amounts = requests(pod);
        if let Some(state) = self.nodes.get_mut(node) {
            state.used.add(&amounts);
        }
        self.taken.insert(key.clone(), (node.to_owned(), amounts));
    }

    fn give_back(&mut self, pod: &Key) {
        if let Some((node, amounts)) = self.taken.remove(pod)
            && let Some(state) = self.nodes.get_mut(&node)
        {
            state.used.subtract(&amounts);
        }
    }
}

fn forget<T: Ord>(sets: &mut BTreeMap<String, BTreeSet<T>>, key: &str, member: &T) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(member);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
