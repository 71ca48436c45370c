//! The same request twice gives the same answer, once. A request that changes something carries an
//! id that belongs to its caller; the answer is written in the same batch as the change.
//!
//! Keys: `request/` · hash of caller and id → the answer, and `request-time/` · time · hash → the key
//! of the first, so that old ones are found. Kept 24 h, at most 1M.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{
    Store, StoreError, Write,
    record::{self, RecordError, Stored},
    retention::{Keep, Retention, time_key},
};

const ANSWERS: &str = "request/";
const BY_TIME: &str = "request-time/";

/// How long and how many answers are kept.
pub const KEEP: Keep = Keep {
    age: Duration::from_secs(24 * 60 * 60),
    count: 1_000_000,
};

/// A request, as its caller named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Who asks: the same id of another caller is another request.
    pub caller: String,
    /// The id the caller chose.
    pub id: String,
}

impl RequestKey {
    fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        // The length keeps ("ab", "c") apart from ("a", "bc").
        hasher.update(u64::try_from(self.caller.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(&self.caller);
        hasher.update(&self.id);
        hex(&hasher.finalize())
    }

    fn answer_key(&self) -> Vec<u8> {
        format!("{ANSWERS}{}", self.hash()).into_bytes()
    }
}

/// The hash by which a repeated request is known to ask for the same.
#[must_use]
pub fn fingerprint(request: &[u8]) -> String {
    hex(&Sha256::digest(request))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What was answered to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    caller: String,
    id: String,
    request: String,
    /// The answer, as it was given.
    pub answer: serde_json::Value,
    /// When.
    pub at: Timestamp,
}

impl Stored for Answered {
    const KIND: &'static str = "request";
    const VERSION: u32 = 1;
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was not seen within the time answers are kept.
    New,
    /// It was answered: give the same answer.
    Answered(serde_json::Value),
    /// The caller used the id for something else.
    Conflict,
}

/// Why a request could not be looked up.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it holds cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Looks a request up before it is done; `request` is the [`fingerprint`] of what is asked.
pub async fn find(store: &dyn Store, key: &RequestKey, request: &str) -> Result<Known, RequestError> {
    let stored_at = key.answer_key();
    let Some(value) = store.get(stored_at.clone()).await? else {
        return Ok(Known::New);
    };
    let answered: Answered = record::decode(&stored_at, &value)?;
    if answered.request == request {
        Ok(Known::Answered(answered.answer))
    } else {
        Ok(Known::Conflict)
    }
}

/// The writes that remember an answer; they belong into the batch of the change itself.
pub fn remember(
    key: &RequestKey,
    request: &str,
    answer: serde_json::Value,
    at: Timestamp,
) -> Result<[Write; 2], RecordError> {
    let stored_at = key.answer_key();
    let record = record::encode(&Answered {
        caller: key.caller.clone(),
        id: key.id.clone(),
        request: request.to_owned(),
        answer,
        at,
    })?;
    Ok([
        Write::Put(time_key(BY_TIME, at, &key.hash()), stored_at.clone()),
        Write::Put(stored_at, record),
    ])
}

/// Keeps the answers within their limits; `trim` it now and then.
#[must_use]
pub fn retention(store: Arc<dyn Store>, keep: Keep) -> Retention {
    Retention::new(store, BY_TIME, keep, |(_, answer_key)| Some(answer_key.clone()))
}
