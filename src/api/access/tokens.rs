//! Bearer tokens: `fht_<id>_<secret>`. The secret is 256 random bits and shown once; the store keeps
//! its SHA-256 under `access/token/<id>`. All tokens are in memory too, so that a call never waits for
//! the disk and revoking works at once: first in memory, then in the store.
//!
//! A revoked or expired token stays readable for a day, so that a repeated request finds its answer.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::Caller;
use crate::{
    domain::{
        access::{Identity, IdentityError, Role, TokenReport},
        secret::Secret,
    },
    ports::{
        clock::Clock,
        store::{
            Batch, Effect, Store, StoreError, Write,
            record::{self, Stored},
        },
    },
};

/// What every token of ours begins with.
pub const TOKEN_PREFIX: &str = "fht_";
/// Where tokens stand in the store.
pub const STORE_PREFIX: &[u8] = b"access/token/";
/// Most tokens kept.
const MAX_TOKENS: usize = 10_000;
const KEEP_ENDED: SignedDuration = SignedDuration::from_hours(24);
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

/// A token as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    id: String,
    name: String,
    role: Role,
    subject: String,
    /// SHA-256 of the secret, in hexadecimal.
    digest: String,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    /// Who made it, with which request: the same request again gets the same token.
    created_by: String,
    request_id: String,
}

impl Stored for TokenRecord {
    const KIND: &'static str = "token";
    const VERSION: u32 = 1;
}

impl TokenRecord {
    fn report(&self) -> TokenReport {
        TokenReport {
            id: self.id.clone(),
            name: self.name.clone(),
            role: self.role,
            subject: self.subject.clone(),
            created_at: self.created_at,
            expires_at: self.expires_at,
        }
    }

    fn ended_at(&self) -> Option<Timestamp> {
        match (self.revoked_at, self.expires_at) {
            (Some(revoked), Some(expires)) => Some(revoked.min(expires)),
            (revoked, expires) => revoked.or(expires),
        }
    }

    fn usable(&self, now: Timestamp) -> bool {
        self.ended_at().is_none_or(|end| now < end)
    }
}

#[derive(Debug)]
struct Entry {
    record: TokenRecord,
    revoked: CancellationToken,
}

/// A token to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Makes the request repeatable; may be empty.
    pub request_id: String,
    /// What people call it.
    pub name: String,
    /// What it lets its bearer be.
    pub role: Role,
    /// For whom.
    pub subject: String,
    /// Until when.
    pub expires_at: Option<Timestamp>,
}

/// A token that was made, or had been made by the same request.
#[derive(Clone, Debug)]
pub struct MadeToken {
    /// Everything but the secret.
    pub report: TokenReport,
    /// The token itself; absent for a repeated request.
    pub secret: Option<Secret>,
}

/// Why a token proves nothing.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum VerifyError {
    /// Not of our form.
    #[error("the token is malformed")]
    Malformed,
    /// No such token, or another secret: a stranger cannot tell which.
    #[error("the token is not known")]
    Unknown,
    /// Taken back.
    #[error("the token has been revoked")]
    Revoked,
    /// Over.
    #[error("the token has expired")]
    Expired,
}

/// Why no token was made or revoked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TokenError {
    /// A subject that does not fit.
    #[error(transparent)]
    Subject(#[from] IdentityError),
    /// A name that cannot be shown.
    #[error("a name has 1 to 128 characters and no control characters")]
    Name,
    /// An id that is too long.
    #[error("a request_id has at most 128 characters")]
    RequestId,
    /// An end that has passed.
    #[error("expires_at has passed already")]
    Expired,
    /// The same request id for another token.
    #[error("this request_id made another token before ({id})")]
    RequestReused {
        /// That token.
        id: String,
    },
    /// Too many.
    #[error("there are {MAX_TOKENS} tokens already: revoke some")]
    TooMany,
    /// No such token.
    #[error("there is no token {id}")]
    NotFound {
        /// As asked, cut.
        id: String,
    },
    /// The store did not take it.
    #[error("the token could not be kept: {0}")]
    Store(#[from] StoreError),
    /// No randomness, or nothing serialises.
    #[error("no token could be made: {0}")]
    Broken(&'static str),
}

/// Why the tokens could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    /// The store did not answer.
    #[error("the tokens could not be read: {0}")]
    Store(#[from] StoreError),
    /// A record makes no sense.
    #[error("the token record {key} cannot be read: {reason}")]
    Unreadable {
        /// Its key.
        key: String,
        /// Why.
        reason: String,
    },
}

/// All tokens.
#[derive(Debug)]
pub struct TokenBook {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entries: RwLock<BTreeMap<String, Entry>>,
    /// One change at a time, so that checks and writes belong together.
    changing: Mutex<()>,
}

impl TokenBook {
    /// Reads all tokens.
    ///
    /// # Errors
    /// When the store or a record cannot be read: then nobody gets in, rather than the wrong ones.
    pub async fn load(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Self, LoadError> {
        const PAGE: usize = 512;
        let mut entries = BTreeMap::new();
        let mut after = None;
        loop {
            let pairs = store.scan(STORE_PREFIX.to_vec(), after.take(), PAGE).await?;
            let complete = pairs.len() < PAGE;
            for (key, value) in pairs {
                let record = parse_record(&key, &value)?;
                let revoked = CancellationToken::new();
                if record.revoked_at.is_some() {
                    revoked.cancel();
                }
                entries.insert(record.id.clone(), Entry { record, revoked });
                after = Some(key);
            }
            if complete {
                break;
            }
        }
        Ok(Self {
            store,
            clock,
            entries: RwLock::new(entries),
            changing: Mutex::default(),
        })
    }

    /// Whether anybody with that role could come in by a token.
    #[must_use]
    pub fn any_usable(&self, role: Role) -> bool {
        let now = self.clock.wall();
        let entries = self.entries.read();
        entries
            .values()
            .any(|entry| entry.record.role == role && entry.record.usable(now))
    }

    /// Who bears this token.
    ///
    /// # Errors
    /// When it proves nothing.
    pub fn verify(&self, token: &str) -> Result<Caller, VerifyError> {
        let (id, secret) = token
            .strip_prefix(TOKEN_PREFIX)
            .and_then(|rest| rest.split_once('_'))
            .filter(|(id, secret)| id.len() == ID_BYTES * 2 && secret.len() == SECRET_BYTES * 2)
            .ok_or(VerifyError::Malformed)?;
        let digest = hexadecimal(&Sha256::digest(secret.as_bytes()));
        let entries = self.entries.read();
        let entry = entries.get(id).ok_or(VerifyError::Unknown)?;
        if !equal_in_constant_time(digest.as_bytes(), entry.record.digest.as_bytes()) {
            return Err(VerifyError::Unknown);
        }
        if entry.revoked.is_cancelled() || entry.record.revoked_at.is_some() {
            return Err(VerifyError::Revoked);
        }
        if !entry.record.usable(self.clock.wall()) {
            return Err(VerifyError::Expired);
        }
        let identity =
            Identity::new(entry.record.role, &entry.record.subject).map_err(|_| VerifyError::Unknown)?;
        Ok(Caller {
            identity,
            expires_at: entry.record.expires_at,
            revoked: Some(entry.revoked.clone()),
        })
    }

    /// Makes a token. The future ends when it is durable; only then does the token work.
    ///
    /// # Errors
    /// When it cannot be made as asked.
    pub async fn create(&self, new: NewToken, by: &Identity) -> Result<MadeToken, TokenError> {
        let secret = new_secret()?;
        self.create_with(new, by, secret).await
    }

    /// The same with a secret from [`new_secret`], for whoever must write it down first.
    ///
    /// # Errors
    /// When it cannot be made as asked.
    pub async fn create_with(
        &self,
        new: NewToken,
        by: &Identity,
        secret: NewSecret,
    ) -> Result<MadeToken, TokenError> {
        let now = self.clock.wall();
        check(&new, now)?;
        let _one_at_a_time = self.changing.lock().await;
        if let Some(made) = self.made_before(&new, by)? {
            return Ok(made);
        }
        let record = TokenRecord {
            id: secret.id.clone(),
            name: new.name,
            role: new.role,
            subject: new.subject,
            digest: secret.digest,
            created_at: now,
            expires_at: new.expires_at,
            revoked_at: None,
            created_by: by.to_string(),
            request_id: new.request_id,
        };
        let ended = self.ended_long_ago(now);
        if self.entries.read().len().saturating_sub(ended.len()) >= MAX_TOKENS {
            return Err(TokenError::TooMany);
        }
        let mut writes: Vec<Write> = ended.iter().map(|id| Write::Delete(key(id))).collect();
        writes.push(put(&record)?);
        let batch = Batch {
            writes,
            effect: Effect::Takes,
            fence: None,
        };
        self.store.commit(batch).await?;
        let report = record.report();
        let mut entries = self.entries.write();
        for id in ended {
            entries.remove(&id);
        }
        let revoked = CancellationToken::new();
        entries.insert(record.id.clone(), Entry { record, revoked });
        Ok(MadeToken {
            report,
            secret: Some(secret.token),
        })
    }

    /// Tokens that work, by id.
    #[must_use]
    pub fn list(&self) -> Vec<TokenReport> {
        let now = self.clock.wall();
        let entries = self.entries.read();
        entries
            .values()
            .filter(|entry| entry.record.usable(now))
            .map(|entry| entry.record.report())
            .collect()
    }

    /// Takes a token back, at once and for open streams too. Doing it twice is no error. When the store
    /// fails the token stays revoked for this run, and the error says that it must be done again.
    ///
    /// # Errors
    /// When there is no such token, or that it is revoked is not durable.
    pub async fn revoke(&self, id: &str) -> Result<(), TokenError> {
        let _one_at_a_time = self.changing.lock().await;
        let record = {
            let entries = self.entries.read();
            let entry = entries.get(id).ok_or_else(|| TokenError::NotFound {
                id: id.chars().take(64).collect(),
            })?;
            entry.revoked.cancel();
            entry.record.clone()
        };
        if record.revoked_at.is_some() {
            return Ok(());
        }
        let revoked = TokenRecord {
            revoked_at: Some(self.clock.wall()),
            ..record
        };
        let batch = Batch {
            writes: vec![put(&revoked)?],
            effect: Effect::GivesBack,
            fence: None,
        };
        self.store.commit(batch).await?;
        if let Some(entry) = self.entries.write().get_mut(id) {
            entry.record = revoked;
        }
        Ok(())
    }

    fn made_before(&self, new: &NewToken, by: &Identity) -> Result<Option<MadeToken>, TokenError> {
        if new.request_id.is_empty() {
            return Ok(None);
        }
        let by = by.to_string();
        let entries = self.entries.read();
        let Some(entry) = entries
            .values()
            .find(|entry| entry.record.request_id == new.request_id && entry.record.created_by == by)
        else {
            return Ok(None);
        };
        let record = &entry.record;
        let same = record.name == new.name
            && record.role == new.role
            && record.subject == new.subject
            && record.expires_at == new.expires_at;
        if !same {
            return Err(TokenError::RequestReused {
                id: record.id.clone(),
            });
        }
        Ok(Some(MadeToken {
            report: record.report(),
            secret: None,
        }))
    }

    fn ended_long_ago(&self, now: Timestamp) -> Vec<String> {
        let entries = self.entries.read();
        entries
            .values()
            .filter(|entry| {
                let end = entry.record.ended_at();
                end.is_some_and(|end| now.duration_since(end) > KEEP_ENDED)
            })
            .map(|entry| entry.record.id.clone())
            .collect()
    }
}

fn check(new: &NewToken, now: Timestamp) -> Result<(), TokenError> {
    Identity::new(new.role, &new.subject)?;
    let letters = new.name.chars().count();
    if letters == 0 || letters > 128 || new.name.chars().any(char::is_control) {
        return Err(TokenError::Name);
    }
    if new.request_id.len() > 128 {
        return Err(TokenError::RequestId);
    }
    if new.expires_at.is_some_and(|end| end <= now) {
        return Err(TokenError::Expired);
    }
    Ok(())
}

/// A token's secret before the token exists.
#[derive(Clone, Debug)]
pub struct NewSecret {
    id: String,
    digest: String,
    /// The token as its bearer sends it.
    pub token: Secret,
}

/// Random bits for one more token.
///
/// # Errors
/// When the system has no randomness to give.
pub fn new_secret() -> Result<NewSecret, TokenError> {
    let mut bits = [0_u8; ID_BYTES + SECRET_BYTES];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bits)
        .map_err(|_| TokenError::Broken("the system gives no random numbers"))?;
    let (id, secret) = bits.split_at(ID_BYTES);
    let (id, secret) = (hexadecimal(id), hexadecimal(secret));
    Ok(NewSecret {
        digest: hexadecimal(&Sha256::digest(secret.as_bytes())),
        token: Secret::new(format!("{TOKEN_PREFIX}{id}_{secret}")),
        id,
    })
}

fn key(id: &str) -> Vec<u8> {
    [STORE_PREFIX, id.as_bytes()].concat()
}

fn put(record: &TokenRecord) -> Result<Write, TokenError> {
    let value = record::encode(record).map_err(|_| TokenError::Broken("its record cannot be written"))?;
    Ok(Write::Put(key(&record.id), value))
}

fn parse_record(key: &[u8], value: &[u8]) -> Result<TokenRecord, LoadError> {
    record::decode(key, value).map_err(|error| LoadError::Unreadable {
        key: String::from_utf8_lossy(key).into_owned(),
        reason: error.to_string(),
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Takes as long for a near miss as for a wild guess.
fn equal_in_constant_time(left: &[u8], right: &[u8]) -> bool {
    let difference = left.iter().zip(right).fold(0_u8, |difference, (left, right)| {
        std::hint::black_box(difference | (left ^ right))
    });
    left.len() == right.len() && difference == 0
}
