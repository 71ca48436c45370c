//! Reading through the store's thread: every value is checked before it is given out.

use super::{
    backend::{Backend, BackendError, From, Most},
    layout::{self, FIRST_CALLER_KEY},
    queue::unavailable,
    writer::Writer,
};
use crate::ports::store::{Pair, StoreError, printable};

/// Why a read failed.
#[derive(Debug)]
pub(super) enum ReadError {
    Refused(StoreError),
    Disk(BackendError),
}

impl std::convert::From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl std::convert::From<BackendError> for ReadError {
    fn from(error: BackendError) -> Self {
        Self::Disk(error)
    }
}

impl Writer {
    pub fn readable(&self) -> Result<&dyn Backend, StoreError> {
        match &self.backend {
            Some(backend) if self.broken.is_none() => Ok(backend.as_ref()),
            _ => Err(self.unreadable()),
        }
    }

    pub fn unreadable(&self) -> StoreError {
        let reason = self
            .broken
            .as_ref()
            .map_or("it is being reopened", |broken| &broken.reason);
        unavailable(reason)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        if key < FIRST_CALLER_KEY {
            return Ok(None);
        }
        match self.readable()?.get(key)? {
            None => Ok(None),
            Some(raw) => Ok(Some(checked(key, &raw)?)),
        }
    }

    pub fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Pair>, ReadError> {
        let backend = self.readable()?;
        let from = prefix.max(FIRST_CALLER_KEY);
        let from = match after {
            Some(after) if after >= from => From::After(after),
            _ => From::At(from),
        };
        let most = Most {
            pairs: limit,
            bytes: usize::MAX,
        };
        backend
            .range(from, most)?
            .into_iter()
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, raw)| {
                let value = checked(&key, &raw)?;
                Ok((key, value))
            })
            .collect()
    }
}

fn checked(key: &[u8], raw: &[u8]) -> Result<Vec<u8>, StoreError> {
    layout::unwrap(key, raw)
        .map(<[u8]>::to_vec)
        .map_err(|reason| StoreError::Damaged {
            key: printable(key),
            reason,
        })
}
