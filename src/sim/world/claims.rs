//! Persistent volume claims: provisioned and bound as their class says, grown, protected while used; and
//! the volumes left behind.

use serde_json::{Value, json};

use super::{
    World,
    document::{Key, annotation, at, is_terminating, list, set, set_entry, text},
    pods::is_finished,
    quantity::{Rounding, parse},
    resources::{CLAIMS, PODS, STORAGE_CLASSES, VOLUMES},
    scheduler::SELECTED_NODE,
};
use crate::sim::objects::Deletion;

const PROTECTION: &str = "kubernetes.io/pvc-protection";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub(super) fn reconcile(world: &mut World, key: &Key) {
    let Some(claim) = world.get(&CLAIMS, key) else {
        return;
    };
    if is_terminating(&claim) {
        return release(world, key, &claim);
    }
    if text(&claim, "status.phase") == "Bound" {
        return grow(world, key, &claim);
    }
    let Some(class_name) = class_name(world, key, &claim) else {
        return;
    };
    if let Some(volume) = existing(world, &claim, &class_name) {
        return bind(world, key, &claim, &volume);
    }
    if class_name.is_empty() {
        return pending(world, key);
    }
    let Some(class) = world.get(&STORAGE_CLASSES, &Key::new("", &class_name)) else {
        pending(world, key);
        let message = format!("storageclass.storage.k8s.io \"{class_name}\" not found");
        return world.event(
            &claim,
            "PersistentVolumeClaim",
            "Warning",
            "ProvisioningFailed",
            &message,
        );
    };
    let node = annotation(&claim, SELECTED_NODE);
    if text(&class, "volumeBindingMode") == "WaitForFirstConsumer" && node.is_none() {
        return pending(world, key);
    }
    let volume = provision(&claim, &class, node);
    let name = text(&volume, "metadata.name").to_owned();
    world.create(&VOLUMES, volume);
    let message = format!("Successfully provisioned volume {name}");
    world.event(
        &claim,
        "PersistentVolumeClaim",
        "Normal",
        "ProvisioningSucceeded",
        &message,
    );
    if let Some(volume) = world.get(&VOLUMES, &Key::new("", &name)) {
        bind(world, key, &claim, &volume);
    }
}

/// The claim's class: its own, or the default one, which is then written down. `None`: written, come again.
fn class_name(world: &World, key: &Key, claim: &Value) -> Option<String> {
    if let Some(class) = at(claim, "spec.storageClassName").and_then(Value::as_str) {
        return Some(class.to_owned());
    }
    let classes = world.objects.list(&STORAGE_CLASSES, None).items;
    let default = classes
        .iter()
        .find(|class| annotation(class, DEFAULT_CLASS) == Some("true"));
    let Some(default) = default else {
        return Some(String::new());
    };
    world.modify(&CLAIMS, key, |claim| {
        set(
            claim,
            "spec.storageClassName",
            json!(text(default, "metadata.name")),
        );
    });
    None
}

fn pending(world: &World, key: &Key) {
    world.modify(&CLAIMS, key, |claim| {
        if text(claim, "status.phase").is_empty() {
            set(claim, "status.phase", json!("Pending"));
        }
    });
}

fn asked(claim: &Value) -> Option<i64> {
    parse(text(claim, "spec.resources.requests.storage"), 1, Rounding::Up)
}

fn size(volume: &Value) -> Option<i64> {
    parse(text(volume, "spec.capacity.storage"), 1, Rounding::Down)
}

/// A volume that is there for this claim: the one it names or that names it, or a free one that is large enough.
fn existing(world: &World, claim: &Value, class: &str) -> Option<std::sync::Arc<Value>> {
    let named = text(claim, "spec.volumeName");
    if !named.is_empty() {
        return world.get(&VOLUMES, &Key::new("", named));
    }
    let key = Key::of(claim);
    let mine = |volume: &Value| {
        text(volume, "spec.claimRef.name") == key.name
            && text(volume, "spec.claimRef.namespace") == key.namespace
    };
    let free = |volume: &Value| {
        at(volume, "spec.claimRef").is_none_or(Value::is_null)
            && text(volume, "spec.storageClassName") == class
            && list(claim, "spec.accessModes")
                .iter()
                .all(|mode| list(volume, "spec.accessModes").contains(mode))
            && asked(claim)
                .zip(size(volume))
                .is_some_and(|(asked, size)| size >= asked)
    };
    let volumes = world.objects.list(&VOLUMES, None).items;
    let uid = text(claim, "metadata.uid");
    let stays = |volume: &Value| {
        matches!(text(volume, "spec.claimRef.uid"), "") || text(volume, "spec.claimRef.uid") == uid
    };
    let best = volumes
        .iter()
        .filter(|volume| !is_terminating(volume))
        .filter(|volume| (mine(volume) && stays(volume)) || free(volume));
    best.min_by_key(|volume| {
        (
            !mine(volume),
            size(volume),
            text(volume, "metadata.name").to_owned(),
        )
    })
    .cloned()
}

/// A new volume as the class's provisioner would make it.
fn provision(claim: &Value, class: &Value, node: Option<&str>) -> Value {
    let provisioner = text(class, "provisioner");
    let name = format!("pvc-{}", text(claim, "metadata.uid"));
    let mut spec = json!({
        "capacity": {"storage": text(claim, "spec.resources.requests.storage")},
        "accessModes": list(claim, "spec.accessModes"),
        "persistentVolumeReclaimPolicy": match text(class, "reclaimPolicy") { "" => "Delete", policy => policy },
        "storageClassName": text(class, "metadata.name"),
        "volumeMode": match text(claim, "spec.volumeMode") { "" => "Filesystem", mode => mode },
    });
    if provisioner == "rancher.io/local-path" {
        let node = node.unwrap_or_default();
        set(
            &mut spec,
            "hostPath",
            json!({"path": format!("/var/lib/embedded/{name}"), "type": "DirectoryOrCreate"}),
        );
        set(
            &mut spec,
            "nodeAffinity",
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}),
        );
    } else {
        set(
            &mut spec,
            "csi",
            json!({"driver": provisioner, "volumeHandle": name, "fsType": "ext4"}),
        );
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": provisioner}},
        "spec": spec, "status": {"phase": "Available"}})
}

fn bind(world: &World, key: &Key, claim: &Value, volume: &Value) {
    let name = text(volume, "metadata.name");
    let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": key.name, "namespace": key.namespace,
        "uid": text(claim, "metadata.uid")});
    world.modify(&VOLUMES, &Key::new("", name), |volume| {
        set(volume, "spec.claimRef", reference);
        set(volume, "status.phase", json!("Bound"));
    });
    let provisioner = annotation(volume, "pv.kubernetes.io/provisioned-by").unwrap_or_default();
    world.modify(&CLAIMS, key, |claim| {
        set(claim, "spec.volumeName", json!(name));
        for (annotation, value) in [
            ("pv.kubernetes.io/bind-completed", "yes"),
            ("pv.kubernetes.io/bound-by-controller", "yes"),
            ("volume.kubernetes.io/storage-provisioner", provisioner),
        ] {
            if !value.is_empty() {
                set_entry(claim, "metadata.annotations", annotation, json!(value));
            }
        }
        set(
            claim,
            "status",
            json!({"phase": "Bound", "accessModes": list(volume, "spec.accessModes"),
            "capacity": at(volume, "spec.capacity")}),
        );
    });
}

/// A bound claim that asks for more gets it, when its class allows.
fn grow(world: &World, key: &Key, claim: &Value) {
    let has = parse(text(claim, "status.capacity.storage"), 1, Rounding::Down);
    if asked(claim).zip(has).is_none_or(|(asked, has)| asked <= has) {
        return;
    }
    let class = world.get(
        &STORAGE_CLASSES,
        &Key::new("", text(claim, "spec.storageClassName")),
    );
    if !class.is_some_and(|class| super::document::flag(&class, "allowVolumeExpansion")) {
        return;
    }
    let size = text(claim, "spec.resources.requests.storage").to_owned();
    world.modify(
        &VOLUMES,
        &Key::new("", text(claim, "spec.volumeName")),
        |volume| {
            set(volume, "spec.capacity.storage", json!(size));
        },
    );
    world.modify(&CLAIMS, key, |claim| {
        set(claim, "status.capacity.storage", json!(size))
    });
}

/// A claim that is deleted goes once no pod uses it.
fn release(world: &World, key: &Key, claim: &Value) {
    let finalizers = list(claim, "metadata.finalizers");
    if !finalizers.iter().any(|finalizer| finalizer == PROTECTION) {
        return;
    }
    let pods = world.objects.list(&PODS, Some(&key.namespace)).items;
    let used = pods.iter().filter(|pod| !is_finished(pod)).any(|pod| {
        list(pod, "spec.volumes")
            .iter()
            .any(|volume| text(volume, "persistentVolumeClaim.claimName") == key.name)
    });
    if used {
        return;
    }
    let kept: Vec<Value> = finalizers
        .iter()
        .filter(|finalizer| *finalizer != PROTECTION)
        .cloned()
        .collect();
    world.modify(&CLAIMS, key, |claim| {
        set(claim, "metadata.finalizers", Value::Array(kept))
    });
}

/// A volume whose claim is gone is deleted or released, as its policy says.
pub(super) fn reconcile_volume(world: &mut World, name: &str) {
    let key = Key::new("", name);
    let Some(volume) = world.get(&VOLUMES, &key) else {
        return;
    };
    let uid = text(&volume, "spec.claimRef.uid");
    if uid.is_empty() {
        if text(&volume, "status.phase").is_empty() {
            world.write_status(&VOLUMES, &key, vec![("phase", json!("Available"))]);
        }
        return;
    }
    let claim = Key::new(
        text(&volume, "spec.claimRef.namespace"),
        text(&volume, "spec.claimRef.name"),
    );
    if world
        .get(&CLAIMS, &claim)
        .is_some_and(|claim| text(&claim, "metadata.uid") == uid)
    {
        return;
    }
    if text(&volume, "spec.persistentVolumeReclaimPolicy") == "Delete" {
        world.delete(&VOLUMES, &key, Deletion::default());
    } else {
        world.write_status(&VOLUMES, &key, vec![("phase", json!("Released"))]);
    }
}
