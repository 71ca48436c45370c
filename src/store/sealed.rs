//! Secrets at rest: sealed with XChaCha20-Poly1305 under a key from a file, bound to the place where they stand, so
//! that a sealed value copied to another record does not open there.

use std::{
    fmt::{self, Write as _},
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use chacha20poly1305::{
    Key, KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Generate as _, Payload},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::{Zeroize as _, Zeroizing};

use super::directory::{partial_name, sync_directory};
use crate::domain::secret::Secret;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// A sealed secret, as it stands in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Which key sealed it.
    pub key_id: String,
    /// Nonce and ciphertext, base64.
    data: String,
}

/// Where a secret stands: the kind of its record and the record's key. Not secret, but bound to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Kind of the record.
    pub kind: &'a str,
    /// Key of the record.
    pub key: &'a [u8],
}

impl Place<'_> {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.kind.len() + self.key.len());
        bytes.extend_from_slice(&u64::try_from(self.kind.len()).unwrap_or(u64::MAX).to_be_bytes());
        bytes.extend_from_slice(self.kind.as_bytes());
        bytes.extend_from_slice(self.key);
        bytes
    }
}

/// Why the key cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// It is gone, and the store holds what only it opens.
    #[error(
        "the store is sealed with key {expected}, but {path} is missing: put the key file back; nothing was changed"
    )]
    Missing {
        /// Where it should be.
        path: PathBuf,
        /// The key the store was sealed with.
        expected: String,
    },
    /// It is another one.
    #[error(
        "the store is sealed with key {expected}, but {path} holds key {found}: put the right key file back; nothing was changed"
    )]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The key the store was sealed with.
        expected: String,
        /// The key in the file.
        found: String,
    },
    /// Others can read it.
    #[error("others can read the key file {path} (mode {mode:o}): chmod 600 {path}")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is no key.
    #[error("{path} holds no key ({reason}): put the right key file back")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The disk refused.
    #[error("could not {action} the key file {path}: make its directory usable, or set store.key-file")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the disk said.
        source: io::Error,
    },
}

/// Why a secret could not be sealed or opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SealError {
    /// It was sealed with another key.
    #[error("it is sealed with key {found}, this is key {known}")]
    OtherKey {
        /// The key it was sealed with.
        found: String,
        /// The key at hand.
        known: String,
    },
    /// It was changed, or belongs to another record.
    #[error("it was changed, or was sealed for another record")]
    Tampered,
    /// It could not be sealed.
    #[error("it could not be sealed: {reason}")]
    Unsealable {
        /// What is wrong.
        reason: String,
    },
}

/// Seals and opens secrets.
#[derive(Clone)]
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    key_id: String,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Sealer")
            .field("key_id", &self.key_id)
            .finish()
    }
}

impl Sealer {
    /// Reads the key file. It is made only when the store was never sealed (`expected` is none).
    pub fn open_or_create(path: &Path, expected: Option<&str>) -> Result<Self, KeyError> {
        let sealer = match read_key(path)? {
            Some(key) => Self::from_key(&key),
            None => match expected {
                Some(expected) => {
                    return Err(KeyError::Missing {
                        path: path.to_owned(),
                        expected: expected.to_owned(),
                    });
                }
                None => Self::from_key(&create_key(path)?),
            },
        };
        match expected {
            Some(expected) if expected != sealer.key_id => Err(KeyError::Wrong {
                path: path.to_owned(),
                expected: expected.to_owned(),
                found: sealer.key_id,
            }),
            _ => Ok(sealer),
        }
    }

    fn from_key(key: &Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"freehold key id");
        hasher.update(key.as_slice());
        let key_id = hex(hasher.finalize().get(..8).unwrap_or_default());
        Self {
            cipher: XChaCha20Poly1305::new(&Key::from(**key)),
            key_id,
        }
    }

    /// Names the key without telling it.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Seals a secret for one place.
    pub fn seal(&self, secret: &Secret, place: Place<'_>) -> Result<Sealed, SealError> {
        let nonce = XNonce::try_generate().map_err(|error| SealError::Unsealable {
            reason: error.to_string(),
        })?;
        let payload = Payload {
            msg: secret.expose().as_bytes(),
            aad: &place.bytes(),
        };
        let ciphertext = self
            .cipher
            .encrypt(&nonce, payload)
            .map_err(|error| SealError::Unsealable {
                reason: error.to_string(),
            })?;
        let mut data = nonce.to_vec();
        data.extend_from_slice(&ciphertext);
        Ok(Sealed {
            key_id: self.key_id.clone(),
            data: BASE64.encode(data),
        })
    }

    /// Opens a secret that was sealed for this place.
    pub fn unseal(&self, sealed: &Sealed, place: Place<'_>) -> Result<Secret, SealError> {
        if sealed.key_id != self.key_id {
            return Err(SealError::OtherKey {
                found: sealed.key_id.clone(),
                known: self.key_id.clone(),
            });
        }
        let data = BASE64.decode(&sealed.data).map_err(|_| SealError::Tampered)?;
        let (nonce, ciphertext) = data
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(SealError::Tampered)?;
        let payload = Payload {
            msg: ciphertext,
            aad: &place.bytes(),
        };
        let plain = self
            .cipher
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| SealError::Tampered)?;
        String::from_utf8(plain).map(Secret::new).map_err(|error| {
            error.into_bytes().zeroize();
            SealError::Tampered
        })
    }
}

fn read_key(path: &Path) -> Result<Option<Zeroizing<[u8; KEY_BYTES]>>, KeyError> {
    let failed = |source| KeyError::Io {
        path: path.to_owned(),
        action: "read",
        source,
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    let text = Zeroizing::new(fs::read(path).map_err(failed)?);
    let unreadable = |reason: &str| KeyError::Unreadable {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let digits = text.trim_ascii();
    if digits.len() != 2 * KEY_BYTES {
        return Err(unreadable("it is not 64 hex digits"));
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .ok_or_else(|| unreadable("it is not 64 hex digits"))?;
    }
    Ok(Some(key))
}

/// Written under another name first, so that a crash leaves no half key, and never over a file.
fn create_key(path: &Path) -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyError> {
    let failed = |source| KeyError::Io {
        path: path.to_owned(),
        action: "write",
        source,
    };
    let mut generated = Key::try_generate().map_err(|error| failed(io::Error::other(error.to_string())))?;
    let key = Zeroizing::new(<[u8; KEY_BYTES]>::from(generated));
    generated.zeroize();
    let text = Zeroizing::new(format!("{}\n", hex(key.as_slice())));
    let partial = partial_name(path);
    let _ = fs::remove_file(&partial);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::hard_link(&partial, path));
    let _ = fs::remove_file(&partial);
    written
        .and_then(|()| path.parent().map_or(Ok(()), sync_directory))
        .map_err(failed)?;
    Ok(key)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'_> = Place {
        kind: "host",
        key: b"host/a",
    };

    #[test]
    fn a_sealed_secret_opens_only_in_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let sealer = Sealer::open_or_create(&directory.path().join("key"), None).unwrap();
        let secret = Secret::new("hunter2".into());
        let sealed = sealer.seal(&secret, PLACE).unwrap();
        assert!(!serde_json::to_string(&sealed).unwrap().contains("hunter2"));
        assert_eq!(sealer.unseal(&sealed, PLACE).unwrap(), secret);
        let elsewhere = Place {
            kind: "host",
            key: b"host/b",
        };
        assert_eq!(sealer.unseal(&sealed, elsewhere), Err(SealError::Tampered));
        assert_ne!(
            sealed,
            sealer.seal(&secret, PLACE).unwrap(),
            "a nonce was used twice"
        );
    }

    #[test]
    fn every_changed_byte_of_a_sealed_secret_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let sealer = Sealer::open_or_create(&directory.path().join("key"), None).unwrap();
        let sealed = sealer.seal(&Secret::new("hunter2".into()), PLACE).unwrap();
        let data = BASE64.decode(&sealed.data).unwrap();
        for position in 0..data.len() {
            let mut data = data.clone();
            data[position] ^= 1;
            let tampered = Sealed {
                key_id: sealed.key_id.clone(),
                data: BASE64.encode(data),
            };
            assert_eq!(sealer.unseal(&tampered, PLACE), Err(SealError::Tampered));
        }
    }

    #[test]
    fn the_key_file_is_private_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let first = Sealer::open_or_create(&path, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = Sealer::open_or_create(&path, Some(first.key_id())).unwrap();
        assert_eq!(first.key_id(), second.key_id());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_wrong_exposed_or_broken_key_is_refused_and_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let missing = Sealer::open_or_create(&path, Some("0011223344556677")).unwrap_err();
        assert!(matches!(missing, KeyError::Missing { .. }));
        assert!(!path.exists());

        Sealer::open_or_create(&path, None).unwrap();
        let wrong = Sealer::open_or_create(&path, Some("0011223344556677")).unwrap_err();
        assert!(matches!(wrong, KeyError::Wrong { .. }));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let exposed = Sealer::open_or_create(&path, None).unwrap_err();
        assert!(matches!(exposed, KeyError::Exposed { mode: 0o640, .. }));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short").unwrap();
        let broken = Sealer::open_or_create(&path, None).unwrap_err();
        assert!(matches!(broken, KeyError::Unreadable { .. }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
    }
}
