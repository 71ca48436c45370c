//! The memory of the embedded cluster: its objects survive restarts with their UIDs and revisions.
//!
//! A directory holds one `snapshot` and numbered journals (`journal.000001` …). Every change is appended
//! as an entry with a length and checksums; a kill loses nothing that was written, a torn last entry is
//! dropped. When the journals outgrow the snapshot a new journal is begun, a snapshot of everything is
//! written beside the old one, synced and renamed, and the older journals go. Whatever is read from a
//! journal at or below the snapshot's revision is already in it. Damage anywhere but at the very end stops
//! the start: nobody guesses what was there.
//!
//! A clean stop ends the journal with a mark. Without it the revision jumps ahead on the next start, so
//! that a revision somebody saw before a crash never means something else after it.

mod files;
mod frame;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use self::files::{Files, Writing};
use super::{
    objects::{Change, ChangeKind, Resource, Snapshot},
    world::document::Key,
};

/// How far the revision jumps after an unclean stop: more than can be unwritten.
const JUMP: u64 = 100_000;

/// Journals are compacted when they are larger than the snapshot, and than this.
const COMPACT_ABOVE: u64 = 16 << 20;

/// Every start begins a journal: so many are kept before they become a snapshot.
const MOST_JOURNALS: usize = 16;

/// Why the journal cannot be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("cannot {action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is damaged.
    #[error(
        "the embedded cluster's memory is damaged at byte {offset} of {path} ({what}); keep the file if you want to \
         look at it, and run `freehold embedded reset` to begin with a new cluster"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// How it shows.
        what: String,
    },
    /// Another process uses the directory.
    #[error("{path} is used by another process: stop it, or give this one a directory of its own")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
}

/// One entry, as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "t")]
enum Entry {
    /// The beginning of a snapshot.
    #[serde(rename = "snapshot")]
    Snapshot { revision: u64, objects: usize },
    /// An object as it is from this revision on.
    #[serde(rename = "put")]
    Put {
        revision: u64,
        resource: Resource,
        object: Arc<Value>,
    },
    /// An object that is gone from this revision on.
    #[serde(rename = "delete")]
    Delete {
        revision: u64,
        resource: Resource,
        namespace: String,
        name: String,
    },
    /// The process stopped in order at this revision.
    #[serde(rename = "closed")]
    Closed { revision: u64 },
}

/// What was remembered.
#[derive(Debug)]
pub struct Loaded {
    /// Everything, at the revision to go on from.
    pub snapshot: Snapshot,
    /// Whether the last process stopped in order.
    pub clean: bool,
    /// Bytes of a torn last entry that were dropped.
    pub dropped_bytes: u64,
}

/// The open journal.
#[derive(Debug)]
pub struct Journal {
    files: Files,
    writing: Writing,
    /// Bytes of all journals since the last snapshot.
    journalled: u64,
    snapshot_bytes: u64,
    /// Journals before the present one.
    older: usize,
    buffer: Vec<u8>,
    revision: u64,
}

/// A snapshot on its way to the disk; it can be written on another thread.
#[derive(Debug)]
pub struct Compaction {
    files: Files,
    snapshot: Snapshot,
    /// Journals below this number are in the snapshot.
    before: u64,
}

impl Journal {
    /// Opens a directory, making it if need be, and reads what it remembers.
    pub fn open(directory: &Path) -> Result<(Self, Option<Loaded>), JournalError> {
        let files = Files::open(directory)?;
        let mut memory = Memory::default();
        let snapshot_bytes = files.read_snapshot(&mut memory)?;
        let numbers = files.journals()?;
        let mut dropped_bytes = 0;
        let mut journalled = 0;
        for (place, number) in numbers.iter().enumerate() {
            let is_last = place + 1 == numbers.len();
            let (bytes, dropped) = files.read_journal(*number, is_last, &mut memory)?;
            journalled += bytes;
            dropped_bytes += dropped;
        }
        let empty = snapshot_bytes == 0 && memory.objects.is_empty();
        let number = numbers.last().copied().unwrap_or(0) + 1;
        let writing = files.begin_journal(number)?;
        let mut journal = Self {
            files,
            writing,
            journalled,
            snapshot_bytes,
            older: numbers.len(),
            buffer: Vec::new(),
            revision: memory.revision,
        };
        if empty {
            return Ok((journal, None));
        }
        let clean = memory.closed;
        let snapshot = memory.into_snapshot(clean);
        journal.revision = snapshot.revision;
        Ok((
            journal,
            Some(Loaded {
                snapshot,
                clean,
                dropped_bytes,
            }),
        ))
    }

    /// Writes changes down. When it returns they survive the process.
    pub fn append(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        self.buffer.clear();
        for change in changes {
            let (revision, resource) = (change.revision, change.resource.clone());
            let entry = match change.kind {
                ChangeKind::Added | ChangeKind::Modified => Entry::Put {
                    revision,
                    resource,
                    object: Arc::clone(&change.object),
                },
                ChangeKind::Deleted => {
                    let Key { namespace, name } = Key::of(&change.object);
                    Entry::Delete {
                        revision,
                        resource,
                        namespace,
                        name,
                    }
                }
            };
            frame::write(&mut self.buffer, &entry);
            self.revision = self.revision.max(revision);
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), JournalError> {
        self.writing.write(&self.buffer)?;
        self.journalled += self.buffer.len() as u64;
        Ok(())
    }

    /// Whether a snapshot is worth its while.
    #[must_use]
    pub fn wants_compaction(&self) -> bool {
        self.journalled > COMPACT_ABOVE.max(self.snapshot_bytes) || self.older > MOST_JOURNALS
    }

    /// Begins a new journal; the snapshot, which must hold everything appended so far, replaces the older ones.
    pub fn begin_compaction(&mut self, snapshot: Snapshot) -> Result<Compaction, JournalError> {
        let before = self.writing.number() + 1;
        self.writing = self.files.begin_journal(before)?;
        self.journalled = 0;
        self.older = 0;
        self.revision = self.revision.max(snapshot.revision);
        Ok(Compaction {
            files: self.files.clone(),
            snapshot,
            before,
        })
    }

    /// Takes note of a finished compaction.
    pub fn compacted(&mut self, snapshot_bytes: u64) {
        self.snapshot_bytes = snapshot_bytes;
    }

    /// Ends in order.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.buffer.clear();
        frame::write(
            &mut self.buffer,
            &Entry::Closed {
                revision: self.revision,
            },
        );
        self.flush()
    }
}

impl Compaction {
    /// Writes the snapshot and removes the journals it replaces; returns its size.
    pub fn write(self) -> Result<u64, JournalError> {
        let mut bytes = Vec::new();
        frame::write(
            &mut bytes,
            &Entry::Snapshot {
                revision: self.snapshot.revision,
                objects: self.snapshot.objects.len(),
            },
        );
        for (resource, object) in self.snapshot.objects {
            frame::write(
                &mut bytes,
                &Entry::Put {
                    revision: self.snapshot.revision,
                    resource,
                    object,
                },
            );
        }
        self.files.replace_snapshot(&bytes)?;
        self.files.remove_journals_below(self.before)?;
        Ok(bytes.len() as u64)
    }
}

/// Forgets an embedded cluster: removes its files, and the directory when nothing else is in it. Returns
/// whether there was anything.
pub fn reset(directory: &Path) -> Result<bool, JournalError> {
    files::reset(directory)
}

/// What has been read so far.
#[derive(Debug, Default)]
struct Memory {
    objects: BTreeMap<(Resource, Key), Arc<Value>>,
    revision: u64,
    /// At or below this revision everything came with the snapshot.
    snapshot_revision: u64,
    expected: usize,
    closed: bool,
}

impl Memory {
    fn take(&mut self, entry: Entry, in_snapshot: bool) -> Result<(), String> {
        match entry {
            Entry::Snapshot { revision, objects } if in_snapshot => {
                (self.revision, self.snapshot_revision, self.expected) = (revision, revision, objects);
            }
            Entry::Snapshot { .. } => return Err("a snapshot in a journal".into()),
            Entry::Put {
                revision,
                resource,
                object,
            } => {
                if in_snapshot || revision > self.snapshot_revision {
                    self.objects.insert((resource, Key::of(&object)), object);
                }
                self.saw(revision);
            }
            Entry::Delete {
                revision,
                resource,
                namespace,
                name,
            } => {
                if revision > self.snapshot_revision {
                    self.objects.remove(&(resource, Key { namespace, name }));
                }
                self.saw(revision);
            }
            Entry::Closed { revision } => {
                self.saw(revision);
                self.closed = true;
            }
        }
        Ok(())
    }

    fn saw(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
        self.closed = false;
    }

    fn into_snapshot(self, clean: bool) -> Snapshot {
        let objects = self
            .objects
            .into_iter()
            .map(|((resource, _), object)| (resource, object));
        let revision = if clean {
            self.revision
        } else {
            self.revision.saturating_add(JUMP)
        };
        Snapshot {
            revision,
            objects: objects.collect(),
        }
    }
}

#[cfg(test)]
mod tests;
