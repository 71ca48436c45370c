//! Owner references: dependents follow their owners, in the background, before them, or not at all.

use serde_json::{Value, json};

use super::{
    World,
    document::{flag, is_terminating, list, remove, set, text},
    index::Reference,
};
use crate::sim::objects::{Deletion, Propagation};

/// Objects that named an owner which is gone: those without another go too.
pub(super) fn collect_dependents(world: &mut World, uid: &str) {
    if uid.is_empty() || world.index.is_alive(uid) {
        return;
    }
    for reference in world.index.dependents(uid) {
        let Some(object) = world.get(&reference.resource, &reference.key) else {
            continue;
        };
        let owners = list(&object, "metadata.ownerReferences");
        let (alive, gone): (Vec<&Value>, Vec<&Value>) = owners
            .iter()
            .partition(|owner| world.index.is_alive(text(owner, "uid")));
        if gone.is_empty() || is_terminating(&object) {
            continue;
        }
        if alive.is_empty() {
            let deletion = Deletion {
                uid: Some(text(&object, "metadata.uid").to_owned()),
                propagation: Some(Propagation::Background),
                ..Deletion::default()
            };
            world.delete(&reference.resource, &reference.key, deletion);
        } else {
            let alive: Vec<Value> = alive.into_iter().cloned().collect();
            world.modify(&reference.resource, &reference.key, |object| {
                set(object, "metadata.ownerReferences", json!(alive));
            });
        }
    }
}

/// An owner that is deleted in the foreground waits for its dependents; one that orphans them lets them go.
pub(super) fn finish_owner(world: &mut World, reference: &Reference) {
    let Some(owner) = world
        .get(&reference.resource, &reference.key)
        .filter(|owner| is_terminating(owner))
    else {
        return;
    };
    let uid = text(&owner, "metadata.uid");
    let has = |wanted: &str| {
        list(&owner, "metadata.finalizers")
            .iter()
            .any(|finalizer| finalizer == wanted)
    };
    if has("orphan") {
        for dependent in world.index.dependents(uid) {
            world.modify(&dependent.resource, &dependent.key, |object| {
                let mut owners = list(object, "metadata.ownerReferences").to_vec();
                owners.retain(|owner| text(owner, "uid") != uid);
                if owners.is_empty() {
                    remove(object, "metadata.ownerReferences");
                } else {
                    set(object, "metadata.ownerReferences", Value::Array(owners));
                }
            });
        }
        drop_finalizer(world, reference, "orphan");
    } else if has("foregroundDeletion") && !waits(world, uid) {
        drop_finalizer(world, reference, "foregroundDeletion");
    }
}

/// Deletes the dependents; true while one that blocks its owner is left.
fn waits(world: &World, uid: &str) -> bool {
    let mut blocked = false;
    for dependent in world.index.dependents(uid) {
        let Some(object) = world.get(&dependent.resource, &dependent.key) else {
            continue;
        };
        let owners = list(&object, "metadata.ownerReferences");
        let blocks = owners
            .iter()
            .any(|owner| text(owner, "uid") == uid && flag(owner, "blockOwnerDeletion"));
        blocked |= blocks;
        if !is_terminating(&object) {
            let propagation = if blocks {
                Propagation::Foreground
            } else {
                Propagation::Background
            };
            let deletion = Deletion {
                uid: Some(text(&object, "metadata.uid").to_owned()),
                propagation: Some(propagation),
                ..Deletion::default()
            };
            world.delete(&dependent.resource, &dependent.key, deletion);
        }
    }
    blocked
}

fn drop_finalizer(world: &World, reference: &Reference, finalizer: &str) {
    world.modify(&reference.resource, &reference.key, |object| {
        let mut left = list(object, "metadata.finalizers").to_vec();
        left.retain(|other| other != finalizer);
        if left.is_empty() {
            remove(object, "metadata.finalizers");
        } else {
            set(object, "metadata.finalizers", Value::Array(left));
        }
    });
}
