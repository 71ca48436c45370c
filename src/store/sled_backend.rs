//! sled 0.34.7, with what it lacks: fsync, and errors instead of panics.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io,
    ops::Bound,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use super::{
    backend::{Backend, BackendError, From, Most, Opener},
    directory::{bytes_below, sync_directory},
    layout::RawWrite,
    quiet,
};
use crate::ports::store::Pair;

/// Pages sled keeps in memory.
const CACHE_BYTES: u64 = 64 << 20;

/// How often sled's own thread cleans up its log; durability does not hang on it.
const CLEAN_EVERY_MS: u64 = 500;

/// How long the old handle may take to let its files go.
const CLOSE_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct SledOpener {
    pub directory: PathBuf,
}

impl Opener for SledOpener {
    fn open(&mut self) -> Result<Box<dyn Backend>, BackendError> {
        Ok(Box::new(SledBackend::open(&self.directory)?))
    }
}

#[derive(Debug)]
pub(super) struct SledBackend {
    directory: PathBuf,
    log: File,
    /// Large pages are files of their own, which sled does not sync either.
    synced_blobs: BTreeSet<OsString>,
    db: sled::Db,
}

impl SledBackend {
    pub fn open(directory: &Path) -> Result<Self, BackendError> {
        let db = guarded(|| {
            sled::Config::new()
                .path(directory)
                .cache_capacity(CACHE_BYTES)
                .flush_every_ms(Some(CLEAN_EVERY_MS))
                .open()
        })?;
        let log = File::open(directory.join("db"))
            .map_err(|error| BackendError::of_disk("open the log", &error))?;
        let mut backend = Self {
            directory: directory.to_path_buf(),
            log,
            synced_blobs: BTreeSet::new(),
            db,
        };
        backend.sync()?;
        // The names of the files sled made must last as well.
        sync_directory(directory)
            .and_then(|()| directory.parent().map_or(Ok(()), sync_directory))
            .map_err(|error| BackendError::of_disk("sync the directory", &error))?;
        Ok(backend)
    }

    fn sync_blobs(&mut self) -> io::Result<()> {
        let directory = self.directory.join("blobs");
        let present: BTreeSet<OsString> = fs::read_dir(&directory)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<_>>()?;
        let mut added = false;
        for name in present.difference(&self.synced_blobs) {
            match File::open(directory.join(name)) {
                Ok(blob) => {
                    blob.sync_data()?;
                    added = true;
                }
                // sled removes what nothing points at any more.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if added {
            sync_directory(&directory)?;
        }
        self.synced_blobs = present;
        Ok(())
    }
}

impl Backend for SledBackend {
    fn apply(&mut self, writes: &[RawWrite]) -> Result<(), BackendError> {
        let mut batch = sled::Batch::default();
        for (key, value) in writes {
            match value {
                Some(value) => batch.insert(key.as_slice(), value.as_slice()),
                None => batch.remove(key.as_slice()),
            }
        }
        guarded(|| self.db.apply_batch(batch))
    }

    fn flush(&mut self) -> Result<(), BackendError> {
        guarded(|| self.db.flush()).map(|_| ())
    }

    fn sync(&mut self) -> Result<(), BackendError> {
        self.sync_blobs()
            .map_err(|error| BackendError::of_disk("sync the blobs", &error))?;
        self.log
            .sync_data()
            .map_err(|error| BackendError::of_disk("sync the log", &error))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BackendError> {
        guarded(|| self.db.get(key)).map(|value| value.map(|value| value.to_vec()))
    }

    fn range(&self, from: From<'_>, most: Most) -> Result<Vec<Pair>, BackendError> {
        let start = match from {
            From::At(key) => Bound::Included(key),
            From::After(key) => Bound::Excluded(key),
        };
        guarded(|| {
            let mut pairs: Vec<Pair> = Vec::new();
            let mut bytes = 0_usize;
            let mut stored = self.db.range::<&[u8], _>((start, Bound::Unbounded));
            while pairs.len() < most.pairs && bytes <= most.bytes {
                let Some(pair) = stored.next() else { break };
                let (key, value) = pair?;
                bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
                pairs.push((key.to_vec(), value.to_vec()));
            }
            Ok(pairs)
        })
    }

    fn bytes(&self) -> u64 {
        bytes_below(&self.directory)
    }

    /// Dropping sled flushes, and can wait for ever on a thread of its own that panicked: so it is
    /// dropped elsewhere, and waited for.
    fn close(self: Box<Self>) -> Result<(), BackendError> {
        let (done, closed) = mpsc::channel();
        let db = self.db;
        thread::Builder::new()
            .name("store-close".into())
            .spawn(move || {
                let outcome = quiet::catching(move || drop(db));
                let _ = done.send(outcome);
            })
            .map_err(|error| BackendError::of_disk("start a thread", &error))?;
        match closed.recv_timeout(CLOSE_WITHIN) {
            Ok(outcome) => outcome.map_err(BackendError::Broken),
            Err(_) => Err(BackendError::Broken(
                "sled does not let its files go: the process must be started again".into(),
            )),
        }
    }
}

fn guarded<T>(operation: impl FnOnce() -> sled::Result<T>) -> Result<T, BackendError> {
    match quiet::catching(operation) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(error))) => Err(BackendError::of_disk("read or write the log", &error)),
        Ok(Err(error)) => Err(BackendError::Broken(error.to_string())),
        Err(panic) => Err(BackendError::Broken(format!("sled panicked: {panic}"))),
    }
}
