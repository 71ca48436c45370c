//! Reading through the store's thread: every value is checked before it is given out.

use super::{
    backend::{Backend, BackendError, Begin, Most},
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

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<BackendError> for ReadError {
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
        let first = prefix.max(FIRST_CALLER_KEY);
        let mut pairs: Vec<Pair> = Vec::new();
        // In pages, so that a large limit on a small prefix does not read what lies behind it.
        while pairs.len() < limit {
            let begin = match (pairs.last(), after) {
                (Some((last, _)), _) => Begin::After(last),
                (None, Some(after)) if after >= first => Begin::After(after),
                (None, _) => Begin::At(first),
            };
            let most = Most {
                pairs: (limit - pairs.len()).min(Most::PAGE.pairs),
                ..Most::PAGE
            };
            let page = backend.range(begin, most)?;
            let read = page.len();
            let within = page.into_iter().take_while(|(key, _)| key.starts_with(prefix));
            let before = pairs.len();
            for (key, raw) in within {
                let value = checked(&key, &raw)?;
                pairs.push((key, value));
            }
            if read == 0 || pairs.len() - before < read {
                break;
            }
        }
        Ok(pairs)
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
