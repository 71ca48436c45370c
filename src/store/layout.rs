//! The store's own records, and the checksum around every value.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ports::store::{Write, printable, record};

/// The format this release writes. It changes when a release could not read what the one before wrote.
pub const FORMAT: u32 = 1;

/// Keys of callers begin above this.
pub(super) const FIRST_CALLER_KEY: &[u8] = &[1];
pub(super) const META_KEY: &[u8] = b"\0meta";
pub(super) const STATE_KEY: &[u8] = b"\0state";

const CHECKSUM_BYTES: usize = 4;

/// A write as it goes to the disk: checksummed, or a removal.
pub(super) type RawWrite = (Vec<u8>, Option<Vec<u8>>);

/// Puts the checksum before a value.
pub(super) fn wrap(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(CHECKSUM_BYTES + value.len());
    raw.extend_from_slice(&checksum(key, value).to_be_bytes());
    raw.extend_from_slice(value);
    raw
}

/// The value behind its checksum, or what is wrong with it.
pub(super) fn unwrap<'a>(key: &[u8], raw: &'a [u8]) -> Result<&'a [u8], String> {
    let (stored, value) = raw
        .split_first_chunk::<CHECKSUM_BYTES>()
        .ok_or_else(|| format!("{} bytes are too few for a record", raw.len()))?;
    let expected = u32::from_be_bytes(*stored);
    let found = checksum(key, value);
    if expected == found {
        Ok(value)
    } else {
        Err(format!(
            "its checksum is {found:08x} and should be {expected:08x}"
        ))
    }
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&u64::try_from(key.len()).unwrap_or(u64::MAX).to_be_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

pub(super) fn raw_write(write: &Write) -> RawWrite {
    match write {
        Write::Put(key, value) => (key.clone(), Some(wrap(key, value))),
        Write::Delete(key) => (key.clone(), None),
    }
}

/// Where the store stands: after how many commits, with how many records, and which ones.
///
/// The sum of the records' fingerprints can be kept up with each commit and compared with a full
/// read, so that a record that vanished is noticed whoever lost it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub commit: u64,
    pub records: u64,
    pub fingerprints: u128,
}

impl State {
    /// Counts a record in; `raw` as it is stored.
    pub fn add(&mut self, key: &[u8], raw: &[u8]) {
        self.records = self.records.saturating_add(1);
        self.fingerprints = self.fingerprints.wrapping_add(fingerprint(key, raw));
    }

    /// Counts a record out.
    pub fn remove(&mut self, key: &[u8], raw: &[u8]) {
        self.records = self.records.saturating_sub(1);
        self.fingerprints = self.fingerprints.wrapping_sub(fingerprint(key, raw));
    }

    /// As stored under `STATE_KEY`, which is itself not counted.
    pub fn to_raw(self) -> Vec<u8> {
        let mut value = Vec::with_capacity(32);
        value.extend_from_slice(&self.commit.to_be_bytes());
        value.extend_from_slice(&self.records.to_be_bytes());
        value.extend_from_slice(&self.fingerprints.to_be_bytes());
        wrap(STATE_KEY, &value)
    }

    pub fn from_raw(raw: &[u8]) -> Result<Self, String> {
        let value = unwrap(STATE_KEY, raw)?;
        let parts = value
            .split_first_chunk::<8>()
            .and_then(|(commit, rest)| Some((commit, rest.split_first_chunk::<8>()?)))
            .and_then(|(commit, (records, rest))| Some((commit, records, rest.try_into().ok()?)));
        let Some((commit, records, fingerprints)) = parts else {
            return Err(format!("{} bytes are no state", value.len()));
        };
        Ok(Self {
            commit: u64::from_be_bytes(*commit),
            records: u64::from_be_bytes(*records),
            fingerprints: u128::from_be_bytes(fingerprints),
        })
    }
}

fn fingerprint(key: &[u8], raw: &[u8]) -> u128 {
    let mut hasher = Sha256::new();
    hasher.update(u64::try_from(key.len()).unwrap_or(u64::MAX).to_be_bytes());
    hasher.update(key);
    hasher.update(raw);
    hasher
        .finalize()
        .first_chunk::<16>()
        .map_or(0, |half| u128::from_be_bytes(*half))
}

/// The cluster a store belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundCluster {
    /// UID of its `kube-system` namespace.
    pub uid: String,
    /// What it was called when it was bound.
    pub name: String,
}

/// What the store knows about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// The release that wrote last.
    pub written_by: String,
    /// Raised at every start.
    pub epoch: u64,
    /// Whether the last process that used it stopped in order.
    pub clean: bool,
    pub created_at: Timestamp,
    #[serde(default)]
    pub cluster: Option<BoundCluster>,
    /// Which key seals its secrets.
    #[serde(default)]
    pub key_id: Option<String>,
}

impl record::Stored for Meta {
    const KIND: &'static str = "meta";
    const VERSION: u32 = 1;
}

impl Meta {
    pub fn to_raw(&self) -> Result<Vec<u8>, record::RecordError> {
        Ok(wrap(META_KEY, &record::encode(self)?))
    }
}

/// A full read of a store: what it holds, and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub state: State,
    pub live_bytes: u64,
    pub kinds: BTreeMap<String, u64>,
    /// Highest version seen of each kind, and where.
    pub versions: BTreeMap<String, (u32, String)>,
    pub problems: Vec<String>,
}

impl Census {
    /// More problems than these are counted as one.
    const MOST_PROBLEMS: usize = 20;

    pub fn take(&mut self, key: &[u8], raw: &[u8]) {
        if key == STATE_KEY {
            return;
        }
        self.state.add(key, raw);
        self.live_bytes = self
            .live_bytes
            .saturating_add(u64::try_from(key.len().saturating_add(raw.len())).unwrap_or(u64::MAX));
        match unwrap(key, raw) {
            Ok(value) => {
                let header = record::header(value);
                let kind = header
                    .as_ref()
                    .map_or_else(|| "index".to_owned(), |header| header.kind.clone());
                let count = self.kinds.entry(kind).or_default();
                *count = count.saturating_add(1);
                if let Some(header) = header {
                    let newest = self.versions.entry(header.kind).or_insert((0, String::new()));
                    if header.version > newest.0 {
                        *newest = (header.version, printable(key));
                    }
                }
            }
            Err(reason) => self.problem(format!("record {}: {reason}", printable(key))),
        }
    }

    /// Compares what was read with what the store says it holds.
    pub fn compare(&mut self, expected: &State) {
        self.state.commit = expected.commit;
        if self.state != *expected {
            let message = if self.state.records == expected.records {
                format!(
                    "{} records are there as they should be, but not the ones that were written",
                    expected.records
                )
            } else {
                format!(
                    "{} records are there, {} should be",
                    self.state.records, expected.records
                )
            };
            self.problem(message);
        }
    }

    pub fn problem(&mut self, problem: String) {
        if self.problems.len() < Self::MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_under_another_key_is_noticed() {
        let raw = wrap(b"a", b"value");
        assert_eq!(unwrap(b"a", &raw), Ok(&b"value"[..]));
        assert!(unwrap(b"b", &raw).is_err());
        assert!(unwrap(b"a", &raw[..3]).is_err());
    }

    #[test]
    fn the_state_after_adding_and_removing_is_the_state_before() {
        let mut state = State {
            commit: 7,
            ..State::default()
        };
        state.add(b"a", b"1");
        let before = state;
        state.add(b"b", b"2");
        assert_ne!(state, before);
        state.remove(b"b", b"2");
        assert_eq!(state, before);
        assert_eq!(State::from_raw(&state.to_raw()), Ok(before));
    }

    #[test]
    fn a_record_exchanged_for_another_is_noticed() {
        let mut written = State::default();
        written.add(b"a", &wrap(b"a", b"new"));
        let mut census = Census::default();
        census.take(b"a", &wrap(b"a", b"old"));
        census.compare(&written);
        assert_eq!(census.problems.len(), 1);
    }
}
