//! What a value in the store looks like: which kind of record it is, which version of it, and its
//! payload as JSON. The checksum over key and value is the store's own, so that nothing can go
//! without it; the version is here, because only the owner of a record knows how to read older ones.
//!
//! ```text
//! "FH" · length of kind (1 byte) · kind · version (4 bytes, big endian) · payload (JSON)
//! ```

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use thiserror::Error;

use super::printable;

const MAGIC: &[u8; 2] = b"FH";

/// A type that is kept in the store.
pub trait Stored: Serialize + DeserializeOwned {
    /// What it is called in the store; never changes.
    const KIND: &'static str;

    /// The version written now; the first one is 1.
    const VERSION: u32;

    /// One pure step: the payload of `version` becomes that of `version + 1`.
    fn migrate(version: u32, payload: Value) -> Result<Value, String> {
        let _ = payload;
        Err(format!("no step leads from version {version}"))
    }
}

/// The kind and version at the head of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Header {
    /// Which record it is.
    pub kind: String,
    /// Which version of it.
    pub version: u32,
}

/// Why a value is not the record it should be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes are no record of this kind.
    #[error("record {key} cannot be read as {kind}: {reason}")]
    Unreadable {
        /// Where it is, printable.
        key: String,
        /// What it should be.
        kind: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A newer release wrote it.
    #[error(
        "record {key} is {kind} version {found}, this release knows up to {known}: run the release that wrote it"
    )]
    Newer {
        /// Where it is, printable.
        key: String,
        /// What it is.
        kind: &'static str,
        /// The version found.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// A value cannot be written as JSON.
    #[error("a {kind} cannot be written: {reason}")]
    Unwritable {
        /// What it is.
        kind: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// The bytes of a record, to be put under a key.
pub fn encode<T: Stored>(record: &T) -> Result<Vec<u8>, RecordError> {
    let unwritable = |reason: String| RecordError::Unwritable {
        kind: T::KIND,
        reason,
    };
    let length = u8::try_from(T::KIND.len()).map_err(|error| unwritable(error.to_string()))?;
    let mut bytes = Vec::with_capacity(128);
    bytes.extend_from_slice(MAGIC);
    bytes.push(length);
    bytes.extend_from_slice(T::KIND.as_bytes());
    bytes.extend_from_slice(&T::VERSION.to_be_bytes());
    serde_json::to_writer(&mut bytes, record).map_err(|error| unwritable(error.to_string()))?;
    Ok(bytes)
}

/// The record that stands under `key`, brought to the present version step by step.
pub fn decode<T: Stored>(key: &[u8], value: &[u8]) -> Result<T, RecordError> {
    let unreadable = |reason: String| RecordError::Unreadable {
        key: printable(key),
        kind: T::KIND,
        reason,
    };
    let (header, payload) =
        split(value).ok_or_else(|| unreadable("it does not begin as a record does".into()))?;
    if header.kind != T::KIND {
        return Err(unreadable(format!("it is of kind {:?}", header.kind)));
    }
    if header.version > T::VERSION {
        return Err(RecordError::Newer {
            key: printable(key),
            kind: T::KIND,
            found: header.version,
            known: T::VERSION,
        });
    }
    if header.version == T::VERSION {
        return serde_json::from_slice(payload).map_err(|error| unreadable(error.to_string()));
    }
    let mut payload: Value =
        serde_json::from_slice(payload).map_err(|error| unreadable(error.to_string()))?;
    for version in header.version..T::VERSION {
        payload = T::migrate(version, payload)
            .map_err(|reason| unreadable(format!("version {version} cannot be brought up: {reason}")))?;
    }
    serde_json::from_value(payload).map_err(|error| unreadable(error.to_string()))
}

/// What kind of record a value is; nothing for bytes that are none.
#[must_use]
pub fn header(value: &[u8]) -> Option<Header> {
    split(value).map(|(header, _)| header)
}

fn split(value: &[u8]) -> Option<(Header, &[u8])> {
    let rest = value.strip_prefix(MAGIC)?;
    let (&length, rest) = rest.split_first()?;
    let (kind, rest) = rest.split_at_checked(usize::from(length))?;
    let (version, payload) = rest.split_first_chunk::<4>()?;
    let header = Header {
        kind: String::from_utf8(kind.to_vec()).ok()?,
        version: u32::from_be_bytes(*version),
    };
    Some((header, payload))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct FirstLease {
        name: String,
    }

    impl Stored for FirstLease {
        const KIND: &'static str = "lease";
        const VERSION: u32 = 1;
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct ThirdLease {
        title: String,
        cards: u32,
    }

    impl Stored for ThirdLease {
        const KIND: &'static str = "lease";
        const VERSION: u32 = 3;

        fn migrate(version: u32, mut payload: Value) -> Result<Value, String> {
            let fields = payload.as_object_mut().ok_or("not an object")?;
            match version {
                1 => {
                    let name = fields.remove("name").ok_or("no name")?;
                    fields.insert("title".into(), name);
                }
                2 => {
                    fields.insert("cards".into(), 0.into());
                }
                other => return Err(format!("no step leads from version {other}")),
            }
            Ok(payload)
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Other {}

    impl Stored for Other {
        const KIND: &'static str = "other";
        const VERSION: u32 = 1;
    }

    #[test]
    fn an_old_record_is_brought_up_step_by_step() {
        let bytes = encode(&FirstLease { name: "a".into() }).unwrap();
        let lease: ThirdLease = decode(b"lease/a", &bytes).unwrap();
        assert_eq!(
            lease,
            ThirdLease {
                title: "a".into(),
                cards: 0
            }
        );
    }

    #[test]
    fn a_newer_record_is_refused_with_both_versions() {
        let bytes = encode(&ThirdLease {
            title: "a".into(),
            cards: 1,
        })
        .unwrap();
        let error = decode::<FirstLease>(b"lease/a", &bytes).unwrap_err();
        assert_eq!(
            error,
            RecordError::Newer {
                key: "lease/a".into(),
                kind: "lease",
                found: 3,
                known: 1
            }
        );
    }

    #[test]
    fn a_record_of_another_kind_is_refused() {
        let bytes = encode(&Other {}).unwrap();
        assert!(matches!(
            decode::<FirstLease>(b"lease/a", &bytes),
            Err(RecordError::Unreadable { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode::<ThirdLease>(b"key", &bytes);
            let mut bytes = bytes;
            bytes.splice(0..0, *b"FH\x05lease\0\0\0");
            let _ = decode::<ThirdLease>(b"key", &bytes);
        }
    }
}
