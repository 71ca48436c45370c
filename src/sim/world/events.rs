//! Events: what the controllers tell people, counted when it is the same again, and bounded in number.

use serde_json::{Value, json};

use super::{
    World,
    document::{Key, digest, integer, set, text},
    resources::EVENTS,
};
use crate::sim::objects::Deletion;

/// Most Events kept; past it the oldest quarter goes.
const MOST: usize = 2000;

impl World {
    /// Tells of something that happened to an object.
    pub(super) fn event(&mut self, about: &Value, kind: &str, weight: &str, reason: &str, message: &str) {
        let (name, uid) = (text(about, "metadata.name"), text(about, "metadata.uid"));
        let namespace = match text(about, "metadata.namespace") {
            "" => "default",
            namespace => namespace,
        };
        let suffix = digest(&[uid.as_bytes(), reason.as_bytes(), message.as_bytes()]);
        let key = Key::new(
            namespace,
            &format!("{}.{suffix}", name.get(..200).unwrap_or(name)),
        );
        let now = self.now();
        if self.get(&EVENTS, &key).is_some() {
            self.modify(&EVENTS, &key, |event| {
                let count = integer(event, "count").unwrap_or(1).saturating_add(1);
                set(event, "count", json!(count));
                set(event, "lastTimestamp", json!(now));
            });
            return;
        }
        let api_version = match text(about, "apiVersion") {
            "" => "v1",
            version => version,
        };
        self.create(
            &EVENTS,
            json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": {"name": key.name, "namespace": key.namespace},
                "involvedObject": {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
                    "namespace": text(about, "metadata.namespace")},
                "type": weight, "reason": reason, "message": message, "count": 1,
                "firstTimestamp": now, "lastTimestamp": now, "eventTime": null,
                "source": {"component": "freehold-embedded"},
                "reportingComponent": "freehold-embedded", "reportingInstance": "",
            }),
        );
    }
}

/// Removes the oldest Events when there are too many.
pub(super) fn trim(world: &mut World) {
    if world.index.events() <= MOST {
        return;
    }
    let mut events = world.objects.list(&EVENTS, None).items;
    let surplus = events.len().saturating_sub(MOST - MOST / 4);
    events.sort_by_cached_key(|event| (text(event, "lastTimestamp").to_owned(), Key::of(event)));
    for event in events.iter().take(surplus) {
        world.delete(&EVENTS, &Key::of(event), Deletion::default());
    }
}
