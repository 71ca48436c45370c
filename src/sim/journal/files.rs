//! The files of a journal's directory: which there are, and how they are replaced without a moment in
//! which neither the old nor the new is whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use std::os::unix::fs::DirBuilderExt;

use rustix::fs::{FlockOperation, flock};

use super::{
    Entry, JournalError, Memory,
    frame::{self, Read},
};

const MAGIC: &[u8; 8] = b"FHEMBED1";
const SNAPSHOT: &str = "snapshot";
const UNFINISHED: &str = "snapshot.new";
const LOCK: &str = "lock";

/// The directory, held by this process.
#[derive(Clone, Debug)]
pub(super) struct Files {
    directory: PathBuf,
    /// Locked as long as any clone lives.
    _lock: Arc<File>,
}

/// The journal that is appended to.
#[derive(Debug)]
pub(super) struct Writing {
    file: File,
    path: PathBuf,
    number: u64,
}

impl Files {
    pub(super) fn open(directory: &Path) -> Result<Self, JournalError> {
        let mut builder = fs::DirBuilder::new();
        // Tenants' secrets are among the objects.
        builder
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed("make", directory))?;
        let path = directory.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(JournalError::Locked {
                    path: directory.to_owned(),
                });
            }
            Err(errno) => return Err(failed("lock", &path)(errno.into())),
        }
        Ok(Self {
            directory: directory.to_owned(),
            _lock: Arc::new(lock),
        })
    }

    fn journal(&self, number: u64) -> PathBuf {
        self.directory.join(format!("journal.{number:06}"))
    }

    /// The journals there are, oldest first.
    pub(super) fn journals(&self) -> Result<Vec<u64>, JournalError> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed("read", &self.directory))? {
            let entry = entry.map_err(failed("read", &self.directory))?;
            let name = entry.file_name();
            numbers.extend(
                name.to_str()
                    .and_then(|name| name.strip_prefix("journal.")?.parse::<u64>().ok()),
            );
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads the snapshot; returns its size, 0 when there is none.
    pub(super) fn read_snapshot(&self, memory: &mut Memory) -> Result<u64, JournalError> {
        let path = self.directory.join(SNAPSHOT);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed("read", &path)(error)),
        };
        let (good, end) = entries(&path, &bytes, memory, true)?;
        let whole = matches!(end, Read::End) && good > 0 && memory.objects.len() == memory.expected;
        if !whole {
            return Err(damaged(&path, good, "the snapshot is cut short"));
        }
        Ok(bytes.len() as u64)
    }

    /// Reads a journal; returns its size and how much of a torn end was dropped, which only the last may have.
    pub(super) fn read_journal(
        &self,
        number: u64,
        is_last: bool,
        memory: &mut Memory,
    ) -> Result<(u64, u64), JournalError> {
        let path = self.journal(number);
        let bytes = fs::read(&path).map_err(failed("read", &path))?;
        let (good, end) = entries(&path, &bytes, memory, false)?;
        if matches!(end, Read::Torn) {
            if !is_last {
                return Err(damaged(&path, good, "an earlier journal is cut short"));
            }
            memory.closed = false;
            if good == 0 {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
                return Ok((0, bytes.len() as u64));
            }
            let file = OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(failed("open", &path))?;
            file.set_len(good as u64).map_err(failed("shorten", &path))?;
        }
        Ok((good as u64, (bytes.len() - good) as u64))
    }

    pub(super) fn begin_journal(&self, number: u64) -> Result<Writing, JournalError> {
        let path = self.journal(number);
        let mut file = File::create(&path).map_err(failed("make", &path))?;
        file.write_all(MAGIC).map_err(failed("write", &path))?;
        Ok(Writing { file, path, number })
    }

    pub(super) fn replace_snapshot(&self, entries: &[u8]) -> Result<(), JournalError> {
        let (unfinished, path) = (self.directory.join(UNFINISHED), self.directory.join(SNAPSHOT));
        let mut file = File::create(&unfinished).map_err(failed("make", &unfinished))?;
        file.write_all(MAGIC)
            .and_then(|()| file.write_all(entries))
            .map_err(failed("write", &unfinished))?;
        file.sync_all().map_err(failed("sync", &unfinished))?;
        fs::rename(&unfinished, &path).map_err(failed("replace", &path))?;
        let directory = File::open(&self.directory).map_err(failed("open", &self.directory))?;
        directory.sync_all().map_err(failed("sync", &self.directory))
    }

    pub(super) fn remove_journals_below(&self, number: u64) -> Result<(), JournalError> {
        for old in self.journals()?.into_iter().filter(|old| *old < number) {
            let path = self.journal(old);
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
        Ok(())
    }
}

impl Writing {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        self.file.write_all(bytes).map_err(failed("write", &self.path))
    }
}

/// Takes in the entries of a file; returns where the good part ends, and how.
fn entries<'a>(
    path: &Path,
    bytes: &'a [u8],
    memory: &mut Memory,
    in_snapshot: bool,
) -> Result<(usize, Read<'a>), JournalError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        // A journal that was just begun may hold less than its first bytes.
        let torn = MAGIC.starts_with(bytes) && !in_snapshot;
        return if torn {
            Ok((0, Read::Torn))
        } else {
            Err(damaged(path, 0, "it is not a journal of this format"))
        };
    };
    let mut offset = 0;
    loop {
        match frame::read(rest, offset) {
            Read::Entry(content, next) => {
                let entry: Entry = serde_json::from_slice(content).map_err(|error| {
                    damaged(
                        path,
                        MAGIC.len() + offset,
                        &format!("an entry cannot be read: {error}"),
                    )
                })?;
                memory
                    .take(entry, in_snapshot)
                    .map_err(|what| damaged(path, MAGIC.len() + offset, &what))?;
                offset = next;
            }
            Read::Damaged(what) => return Err(damaged(path, MAGIC.len() + offset, what)),
            end @ (Read::End | Read::Torn) => return Ok((MAGIC.len() + offset, end)),
        }
    }
}

fn damaged(path: &Path, offset: usize, what: &str) -> JournalError {
    JournalError::Damaged {
        path: path.to_owned(),
        offset: offset as u64,
        what: what.to_owned(),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { action, path, source }
}

/// Removes what a journal's directory holds of ours.
pub(super) fn reset(directory: &Path) -> Result<bool, JournalError> {
    if !directory.is_dir() {
        return Ok(false);
    }
    let files = Files::open(directory)?;
    let mut found = false;
    let journals = files.journals()?.into_iter().map(|number| files.journal(number));
    let fixed = [SNAPSHOT, UNFINISHED].map(|name| directory.join(name));
    for path in journals.chain(fixed) {
        match fs::remove_file(&path) {
            Ok(()) => found = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &path)(error)),
        }
    }
    Ok(found)
}
