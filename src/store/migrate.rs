//! Data directories written anew: for a newer format, to take less space, or out of a backup.

use std::{fs, path::Path};

use super::{
    backend::{Backend, BackendError, From, Most},
    layout::{STATE_KEY, State, unwrap, wrap},
    sled_backend::SledBackend,
};
use crate::ports::store::{Pair, printable};

/// Records written at once.
const STEP: usize = 512;

/// Turns one record of a format into what stands for it in the next one; keys and values without
/// checksums.
pub(super) type FormatStep = fn(&[u8], &[u8]) -> Result<Vec<Pair>, String>;

/// The formats a release can read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Formats {
    /// The one it writes.
    pub current: u32,
    /// `(n, step)` leads from n to n + 1.
    pub steps: &'static [(u32, FormatStep)],
}

/// Format 1 is the first one.
pub(super) const FORMATS: Formats = Formats {
    current: super::layout::FORMAT,
    steps: &[],
};

impl Formats {
    /// The steps that lead from an older format to the present one.
    pub fn path_from(&self, format: u32) -> Result<Vec<FormatStep>, u32> {
        (format..self.current)
            .map(|from| {
                self.steps
                    .iter()
                    .find(|(step_from, _)| *step_from == from)
                    .map(|(_, step)| *step)
                    .ok_or(from)
            })
            .collect()
    }
}

/// A new data directory that is being filled.
#[derive(Debug)]
pub(super) struct NewData {
    backend: Box<SledBackend>,
    state: State,
    waiting: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl NewData {
    /// Begins one; what an attempt before left there is removed.
    pub fn begin(directory: &Path) -> Result<Self, BackendError> {
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(|error| BackendError::Broken(error.to_string()))?;
        }
        Ok(Self {
            backend: Box::new(SledBackend::open(directory)?),
            state: State::default(),
            waiting: Vec::with_capacity(STEP),
        })
    }

    /// Adds a record that is not there yet.
    pub fn add(&mut self, key: Vec<u8>, value: &[u8]) -> Result<(), BackendError> {
        let raw = wrap(&key, value);
        self.state.add(&key, &raw);
        self.waiting.push((key, Some(raw)));
        if self.waiting.len() >= STEP {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), BackendError> {
        let writes = std::mem::take(&mut self.waiting);
        self.backend.apply(&writes)
    }

    /// Makes it durable, as the store stood after `commit`.
    pub fn finish(mut self, commit: u64) -> Result<State, BackendError> {
        self.state.commit = commit;
        self.waiting.push((STATE_KEY.to_vec(), Some(self.state.to_raw())));
        self.write()?;
        self.backend.flush()?;
        self.backend.sync()?;
        self.backend.close()?;
        Ok(self.state)
    }
}

/// Every record of an open data directory, without checksums.
pub(super) fn for_each_record(
    backend: &dyn Backend,
    mut take: impl FnMut(Vec<u8>, &[u8]) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let mut after = Vec::new();
    loop {
        let page = backend.range(From::After(&after), Most::PAGE)?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        after.clone_from(last);
        for (key, raw) in page {
            if key == STATE_KEY {
                continue;
            }
            let value = unwrap(&key, &raw)
                .map_err(|reason| BackendError::Broken(format!("record {}: {reason}", printable(&key))))?;
            take(key, value)?;
        }
    }
}

/// Copies everything into a new data directory, each record through `steps`.
pub(super) fn rewrite(
    from: &dyn Backend,
    to: &Path,
    commit: u64,
    steps: &[FormatStep],
) -> Result<State, BackendError> {
    let mut data = NewData::begin(to)?;
    for_each_record(from, |key, value| {
        let mut records = vec![(key, value.to_vec())];
        for step in steps {
            let mut next = Vec::with_capacity(records.len());
            for (key, value) in &records {
                let migrated = step(key, value).map_err(|reason| {
                    BackendError::Broken(format!(
                        "record {} cannot be brought up: {reason}",
                        printable(key)
                    ))
                })?;
                next.extend(migrated);
            }
            records = next;
        }
        records
            .into_iter()
            .try_for_each(|(key, value)| data.add(key, &value))
    })?;
    data.finish(commit)
}
