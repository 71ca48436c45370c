//! What makes an object itself: UIDs and generated names, derived so that the same run gives the same ones.

use std::collections::{BTreeSet, VecDeque};

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::Resource;

/// How many names of removed objects are remembered exactly.
const REMEMBERED: usize = 4096;

/// The alphabet of generated names, as the real API server has it: no vowels, no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Remembers which names were used before, so that a second object of a name gets another UID.
#[derive(Debug)]
pub(super) struct Identities {
    seed: Uuid,
    removed: BTreeSet<String>,
    order: VecDeque<String>,
    /// True once a removed name was forgotten: from then on any name may have been used before.
    forgot: bool,
}

impl Identities {
    pub(super) fn new(seed: u64, forgot: bool) -> Self {
        Self {
            seed: Uuid::new_v5(
                &Uuid::NAMESPACE_URL,
                format!("freehold:embedded:{seed}").as_bytes(),
            ),
            removed: BTreeSet::new(),
            order: VecDeque::new(),
            forgot,
        }
    }

    /// The UID of a new object: from its name alone the first time, with the revision after that.
    pub(super) fn uid(&self, resource: &Resource, namespace: &str, name: &str, revision: u64) -> String {
        let path = path(resource, namespace, name);
        let used_before = self.forgot || self.removed.contains(&path);
        let text = if used_before {
            format!("{path}@{revision}")
        } else {
            path
        };
        Uuid::new_v5(&self.seed, text.as_bytes()).to_string()
    }

    pub(super) fn removed(&mut self, resource: &Resource, namespace: &str, name: &str) {
        let path = path(resource, namespace, name);
        if self.forgot || !self.removed.insert(path.clone()) {
            return;
        }
        self.order.push_back(path);
        if self.order.len() > REMEMBERED {
            self.forgot = true;
            self.removed.clear();
            self.order.clear();
        }
    }

    /// A name that starts with `prefix`, other for every revision and attempt.
    pub(super) fn generated_name(&self, prefix: &str, revision: u64, attempt: u32) -> String {
        let text = format!("name:{prefix}:{revision}:{attempt}");
        let digest = Uuid::new_v5(&self.seed, text.as_bytes());
        let suffix = digest.as_bytes().iter().take(5).filter_map(|byte| {
            ALPHABET
                .get(usize::from(*byte) % ALPHABET.len())
                .copied()
                .map(char::from)
        });
        // 63 characters all in all: a longer prefix is cut, as the real server does.
        let mut name: String = prefix.chars().take(58).collect();
        name.extend(suffix);
        name
    }
}

fn path(resource: &Resource, namespace: &str, name: &str) -> String {
    format!("{}/{}/{namespace}/{name}", resource.group, resource.plural)
}

/// A time as Kubernetes writes it: UTC, whole seconds.
#[must_use]
pub fn timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time with microseconds, as Leases and Events have it.
#[must_use]
pub fn micro_timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// A text field of an object's metadata, empty when it is missing.
#[must_use]
pub fn metadata_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// True when a deletion of the object was asked for.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    !metadata_text(object, "deletionTimestamp").is_empty()
}

/// The object's finalizers.
#[must_use]
pub fn finalizers(object: &Value) -> &[Value] {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
