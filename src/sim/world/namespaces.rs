//! Namespaces: what every one has, and an end that takes everything in it along.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use super::{
    World,
    document::{Key, is_terminating, list, set, set_condition, set_entry, text},
    resources::{CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS},
    routes::Work,
};
use crate::sim::objects::{Deletion, Propagation};

/// The ConfigMap with the cluster's CA certificate.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Namespaces whose contents are being deleted.
#[derive(Debug, Default)]
pub(super) struct Clearing(BTreeSet<String>);

pub(super) fn reconcile(world: &mut World, name: &str) {
    let key = Key::new("", name);
    let Some(namespace) = world.get(&NAMESPACES, &key) else {
        world.clearing.0.remove(name);
        return;
    };
    if is_terminating(&namespace) {
        if world.index.is_empty(name) {
            finalize(world, &key);
        } else if world.clearing.0.insert(name.to_owned()) {
            clear(world, name);
        }
        return;
    }
    if text(&namespace, "status.phase") != "Active" || list(&namespace, "spec.finalizers").is_empty() {
        world.modify(&NAMESPACES, &key, |namespace| {
            set(namespace, "status.phase", json!("Active"));
            set(namespace, "spec.finalizers", json!(["kubernetes"]));
            set_entry(
                namespace,
                "metadata.labels",
                "kubernetes.io/metadata.name",
                json!(name),
            );
        });
    }
    if world.objects.get(&SERVICE_ACCOUNTS, name, "default").is_none() {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
        world.create(&SERVICE_ACCOUNTS, account);
    }
    if world.objects.get(&CONFIG_MAPS, name, ROOT_CA).is_none() {
        let note = "Contains a CA bundle that can be used to verify the kube-apiserver.";
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": ROOT_CA, "namespace": name, "annotations": {"kubernetes.io/description": note}},
            "data": {"ca.crt": world.root_ca.as_ref()}});
        world.create(&CONFIG_MAPS, map);
    }
}

/// Deletes what is in a namespace, and looks again while something is left: others may still write.
pub(super) fn clear(world: &mut World, name: &str) {
    let key = Key::new("", name);
    let Some(namespace) = world
        .get(&NAMESPACES, &key)
        .filter(|namespace| is_terminating(namespace))
    else {
        world.clearing.0.remove(name);
        return;
    };
    if world.index.is_empty(name) {
        return finalize(world, &key);
    }
    if text(&namespace, "status.phase") != "Terminating" {
        world.write_status(&NAMESPACES, &key, vec![("phase", json!("Terminating"))]);
    }
    let mut held = 0_usize;
    for reference in world.index.contents(name) {
        let Some(object) = world.get(&reference.resource, &reference.key) else {
            continue;
        };
        if is_terminating(&object) {
            held += usize::from(!list(&object, "metadata.finalizers").is_empty());
            continue;
        }
        let deletion = Deletion {
            propagation: Some(Propagation::Background),
            ..Deletion::default()
        };
        world.delete(&reference.resource, &reference.key, deletion);
    }
    if held > 0 {
        let now = world.now();
        let message = format!("Some content in the namespace has finalizers remaining: {held} objects");
        world.modify(&NAMESPACES, &key, |namespace| {
            set_condition(
                namespace,
                "NamespaceFinalizersRemaining",
                "True",
                "SomeFinalizersRemain",
                &message,
                &now,
            );
        });
    }
    let pause = world.pace.repeated(Duration::from_secs(1));
    world.later(pause, Work::ClearNamespace(name.to_owned()));
}

fn finalize(world: &mut World, key: &Key) {
    world.clearing.0.remove(&key.name);
    world.modify(&NAMESPACES, key, |namespace| {
        let mut left = list(namespace, "spec.finalizers").to_vec();
        left.retain(|finalizer| finalizer != "kubernetes");
        set(namespace, "spec.finalizers", Value::Array(left));
    });
}
