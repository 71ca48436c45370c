//! What the store needs of a disk: the seam at which tests break it.

use std::{fmt, io};

use thiserror::Error;

use super::layout::{Census, RawWrite, STATE_KEY, State};
use crate::ports::store::Pair;

/// Why the disk or sled did not do as asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum BackendError {
    /// What is there is not as it should be.
    #[error("{0}")]
    Broken(String),
    /// What is there may be good, but the system does not let us at it: no space, no permission.
    #[error("{0}")]
    Refused(String),
}

impl BackendError {
    /// Judges what the system said.
    pub fn of_disk(what: &str, error: &io::Error) -> Self {
        use io::ErrorKind;

        let message = format!("could not {what}: {error}");
        match error.kind() {
            ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::OutOfMemory => Self::Refused(message),
            _ => Self::Broken(message),
        }
    }
}

/// Where a range begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum From<'a> {
    /// At this key.
    At(&'a [u8]),
    /// Behind this key.
    After(&'a [u8]),
}

/// Where a range ends at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub pairs: usize,
    /// The pair that goes beyond this is the last one.
    pub bytes: usize,
}

impl Most {
    /// A page of a walk through everything: small enough to hold, large enough to be fast.
    pub const PAGE: Self = Self {
        pairs: 512,
        bytes: 4 << 20,
    };
}

/// An open ordered map on a disk. Only the store's thread uses it.
pub(super) trait Backend: fmt::Debug + Send {
    /// Applies the writes atomically; not durable yet.
    fn apply(&mut self, writes: &[RawWrite]) -> Result<(), BackendError>;

    /// Hands what was applied to the operating system.
    fn flush(&mut self) -> Result<(), BackendError>;

    /// Makes what was flushed survive a loss of power.
    fn sync(&mut self) -> Result<(), BackendError>;

    /// The stored bytes of one key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BackendError>;

    /// Pairs from `from` on, in key order; none: there are no more.
    fn range(&self, from: From<'_>, most: Most) -> Result<Vec<Pair>, BackendError>;

    /// Bytes on disk.
    fn bytes(&self) -> u64;

    /// Gives the files back, so that they can be opened again.
    fn close(self: Box<Self>) -> Result<(), BackendError>;
}

/// Opens the same map again.
pub(super) trait Opener: fmt::Debug + Send {
    fn open(&mut self) -> Result<Box<dyn Backend>, BackendError>;
}

pub(super) fn read_state(backend: &dyn Backend) -> Result<State, BackendError> {
    let raw = backend
        .get(STATE_KEY)?
        .ok_or_else(|| BackendError::Broken("the record of its own state is gone".into()))?;
    State::from_raw(&raw)
        .map_err(|reason| BackendError::Broken(format!("the record of its own state: {reason}")))
}

/// Reads and checks every record.
pub(super) fn take_census(backend: &dyn Backend, expected: &State) -> Result<Census, BackendError> {
    let mut census = Census::default();
    let mut after = Vec::new();
    loop {
        let page = backend.range(From::After(&after), Most::PAGE)?;
        for (key, raw) in &page {
            census.take(key, raw);
        }
        match page.into_iter().next_back() {
            Some((key, _)) => after = key,
            None => break,
        }
    }
    census.compare(expected);
    Ok(census)
}
