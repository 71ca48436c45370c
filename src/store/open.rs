//! Opening a store: whose it is, which format it has, and whether everything acknowledged is there.
//! Either all of it is good, or the start is refused with the files as they were found.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use thiserror::Error;

use super::{
    acknowledged::{self, Acknowledged, Mark},
    backend::{Backend, BackendError, Opener, read_state, take_census},
    backup::{self, BackupError, BackupHeader},
    directory::{self, Format, FormatFile, Lock, LockError, data_directories, next_data_directory},
    evidence::Evidence,
    layout::{Census, META_KEY, Meta, STATE_KEY, State, unwrap},
    migrate::{self, FORMATS, Formats},
    options::Options,
    queue::{Inbox, Shared},
    sealed::{KeyError, Sealer},
    sled_backend::SledOpener,
    sled_store::SledStore,
    writer::{Upkeep, Writer},
};
use crate::ports::store::record;

/// The data directory of a restored store.
pub(super) const RESTORED: &str = "restored";

/// A log is written anew when it is this many times larger than what it holds.
const MOSTLY_EMPTY: u64 = 16;

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SledStore,
    /// Raised at every start; whatever outlives the process carries it.
    pub epoch: u64,
    /// Seals secrets, if a key file was given.
    pub sealer: Option<Sealer>,
    /// What was found.
    pub recovery: Recovery,
}

/// What opening a store found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The process before did not stop in order.
    pub unclean: bool,
    /// Records that are there.
    pub records: u64,
    /// Acknowledged records that are gone. Always 0: a store that lost one is not opened.
    pub dropped_records: u64,
    /// Commits that were durable but not yet acknowledged when the process ended; they are kept.
    pub unacknowledged_commits: u64,
    /// sled's snapshot was damaged; the log alone held everything. A copy is here.
    pub evidence: Option<PathBuf>,
    /// The note of the last acknowledged commit was gone: a cut log would not have been noticed.
    pub mark_missing: bool,
    /// The log was written anew.
    pub compacted: bool,
    /// The format it had before.
    pub migrated_from: Option<u32>,
    /// How long it took.
    pub took_ms: u64,
}

/// Why a store was not opened. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The directory cannot be used.
    #[error("the store directory {path} cannot be used ({reason}): make it writable or set store.path")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Another process has it.
    #[error("the store {path} is in use by process {pid}: stop it first, or set another store.path")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who has it.
        pid: String,
    },
    /// There is none.
    #[error("there is no store in {path}: check store.path")]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// A newer release wrote it.
    #[error(
        "the store {path} has format {found}, written by freehold {written_by}; this release knows up to {known}: run that release or a newer one"
    )]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest known here.
        known: u32,
        /// The release that wrote it.
        written_by: String,
    },
    /// A newer release wrote a record.
    #[error(
        "record {key} in {path} is {kind} version {found}, written by freehold {written_by}; this release knows up to {known}: run that release or a newer one"
    )]
    NewerRecord {
        /// The directory.
        path: PathBuf,
        /// Where it is.
        key: String,
        /// What it is.
        kind: String,
        /// Its version.
        found: u32,
        /// The newest known here.
        known: u32,
        /// The release that wrote last.
        written_by: String,
    },
    /// There is data but nothing that says what it is.
    #[error(
        "{path}/FORMAT cannot be read ({reason}): put it back, or move the directory away and `freehold store restore` a backup"
    )]
    BadFormatFile {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It is damaged.
    #[error(
        "the store {path} is damaged: {problem}; it is left as it was, with a copy in {evidence}: move it away and `freehold store restore` a backup"
    )]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// Where a copy is.
        evidence: PathBuf,
    },
    /// The end of it is gone.
    #[error(
        "the store {path} lost records: commit {acknowledged} was acknowledged, {found} is the last one there; it is left as it was, with a copy in {evidence}: move it away and `freehold store restore` a backup"
    )]
    Lost {
        /// The directory.
        path: PathBuf,
        /// The last commit that was acknowledged.
        acknowledged: u64,
        /// The last one there.
        found: u64,
        /// Where a copy is.
        evidence: PathBuf,
    },
    /// It could not be brought up to the present format.
    #[error("the store {path} could not be brought from format {from} to {to} ({reason}); it is unchanged")]
    Migration {
        /// The directory.
        path: PathBuf,
        /// Its format.
        from: u32,
        /// The present one.
        to: u32,
        /// What went wrong.
        reason: String,
    },
    /// The key is missing or wrong.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Makes the opener of a data directory; tests put faults in between.
pub(super) type MakeOpener = Box<dyn Fn(&Path) -> Box<dyn Opener> + Send>;

pub(super) fn open(options: Options) -> Result<Opened, OpenError> {
    let sled: MakeOpener = Box::new(|directory| {
        Box::new(SledOpener {
            directory: directory.to_owned(),
        })
    });
    open_with(options, sled, FORMATS)
}

/// Starts the store's thread, which opens the store and then serves it.
pub(super) fn open_with(
    options: Options,
    make_opener: MakeOpener,
    formats: Formats,
) -> Result<Opened, OpenError> {
    let path = options.path.clone();
    let (inbox, requests) = mpsc::sync_channel(options.queue);
    let (ready, opened) = mpsc::channel();
    let shared = Arc::new(Shared::new(Arc::clone(&options.clock)));
    let for_thread = Arc::clone(&shared);
    let unusable = |reason: String| OpenError::Unusable {
        path: path.clone(),
        reason,
    };
    thread::Builder::new()
        .name("store".into())
        .spawn(
            move || match prepare(options, for_thread, &make_opener, formats) {
                Ok((writer, sealer, recovery)) => {
                    let _ = ready.send(Ok((writer.meta.epoch, sealer, recovery)));
                    if let Some((reply, outcome)) = writer.run(&requests) {
                        let _ = reply.send(outcome);
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            },
        )
        .map_err(|error| unusable(error.to_string()))?;
    let (epoch, sealer, recovery) = opened
        .recv()
        .unwrap_or_else(|_| Err(unusable("its thread ended".into())))?;
    Ok(Opened {
        store: SledStore {
            inbox: Inbox(inbox),
            shared,
            format: formats.current,
        },
        epoch,
        sealer,
        recovery,
    })
}

type Prepared = (Writer, Option<Sealer>, Recovery);

fn prepare(
    options: Options,
    shared: Arc<Shared>,
    make_opener: &MakeOpener,
    formats: Formats,
) -> Result<Prepared, OpenError> {
    let started = options.clock.monotonic();
    let opening = Opening {
        path: &options.path,
        evidence_limit: options.evidence_limit,
        make_opener,
        formats,
    };
    let lock = opening.claim()?;
    let mut recovery = Recovery::default();
    let mut found = opening.find(&mut recovery)?;
    opening.check_versions(&found, &options.known_records)?;
    let sealer = match &options.key_file {
        Some(key_file) => {
            let expected = found.meta.as_ref().and_then(|meta| meta.key_id.as_deref());
            Some(Sealer::open_or_create(key_file, expected)?)
        }
        None => None,
    };
    if found.backend.bytes()
        > options
            .compact_above
            .max(found.live_bytes.saturating_mul(MOSTLY_EMPTY))
    {
        match opening.write_anew(&found) {
            Ok(data) => {
                found = opening.switch_to(found, &data)?;
                recovery.compacted = true;
            }
            // Good as it is, only large: no reason not to start.
            Err(error) => tracing::warn!(%error, "the store could not be written anew"),
        }
    }
    recovery.unclean = found.meta.as_ref().is_some_and(|meta| !meta.clean);
    let mut meta = found.meta.take().unwrap_or_else(|| Meta {
        written_by: String::new(),
        epoch: 0,
        clean: false,
        created_at: options.clock.wall(),
        cluster: None,
        key_id: None,
    });
    meta.written_by = crate::VERSION.to_owned();
    meta.epoch = meta.epoch.saturating_add(1);
    meta.clean = false;
    if let Some(sealer) = &sealer {
        meta.key_id = Some(sealer.key_id().to_owned());
    }
    let mut backend = found.backend;
    let state = note_start(backend.as_mut(), found.state, &meta).map_err(|error| opening.failed(&error))?;
    let acknowledged =
        Acknowledged::create(&options.path, state.commit).map_err(|error| opening.unusable(&error))?;
    recovery.records = found.state.records;
    let took = options.clock.monotonic().saturating_sub(started);
    recovery.took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);

    let writer = Writer {
        opener: make_opener(&options.path.join(&found.data)),
        backend: Some(backend),
        acknowledged,
        state,
        meta,
        clock: options.clock,
        min_free: options.min_free,
        free_space: options.free_space,
        on_flush: options.on_flush,
        shared,
        upkeep: Upkeep::default(),
        fences: BTreeMap::new(),
        cursors: super::snapshot::Cursors::default(),
        broken: None,
        lock,
        path: options.path,
    };
    Ok((writer, sealer, recovery))
}

/// The first commit of a process: its epoch, and that it has not stopped in order yet.
fn note_start(backend: &mut dyn Backend, mut state: State, meta: &Meta) -> Result<State, BackendError> {
    let raw = meta.to_raw().map_err(|error| BackendError(error.to_string()))?;
    if let Some(old) = backend.get(META_KEY)? {
        state.remove(META_KEY, &old);
    }
    state.add(META_KEY, &raw);
    state.commit = state.commit.saturating_add(1);
    backend.apply(&[
        (META_KEY.to_vec(), Some(raw)),
        (STATE_KEY.to_vec(), Some(state.to_raw())),
    ])?;
    backend.flush()?;
    backend.sync()?;
    Ok(state)
}

/// A data directory that was opened and found good.
struct Found {
    data: String,
    backend: Box<dyn Backend>,
    state: State,
    /// None in a new store.
    meta: Option<Meta>,
    live_bytes: u64,
    versions: BTreeMap<String, (u32, String)>,
}

enum Bad {
    Damaged(String),
    Lost { acknowledged: u64, found: u64 },
}

impl From<BackendError> for Bad {
    fn from(error: BackendError) -> Self {
        Self::Damaged(error.to_string())
    }
}

struct Opening<'a> {
    path: &'a Path,
    evidence_limit: u64,
    make_opener: &'a MakeOpener,
    formats: Formats,
}

impl Opening<'_> {
    /// Makes the directory if need be, and takes it. A newer store is not even locked.
    fn claim(&self) -> Result<Lock, OpenError> {
        fs::create_dir_all(self.path).map_err(|error| self.unusable(&error))?;
        self.format()?;
        Lock::take(self.path).map_err(|error| match error {
            LockError::Held { pid } => OpenError::Locked {
                path: self.path.to_owned(),
                pid,
            },
            LockError::Io(error) => self.unusable(&error),
        })
    }

    fn format(&self) -> Result<Option<Format>, OpenError> {
        match directory::read_format(self.path).map_err(|error| self.unusable(&error))? {
            FormatFile::Found(format) if format.format > self.formats.current => {
                Err(OpenError::NewerFormat {
                    path: self.path.to_owned(),
                    found: format.format,
                    known: self.formats.current,
                    written_by: format.written_by,
                })
            }
            FormatFile::Found(format) => Ok(Some(format)),
            FormatFile::Damaged(reason) => Err(OpenError::BadFormatFile {
                path: self.path.to_owned(),
                reason,
            }),
            FormatFile::Missing => Ok(None),
        }
    }

    /// Finds or makes the data directory, opens it, and brings it to the present format.
    fn find(&self, recovery: &mut Recovery) -> Result<Found, OpenError> {
        let format = match self.format()? {
            Some(format) => format,
            None => self.begin()?,
        };
        let found = self.open_verified(&format.data, recovery)?;
        let found = if format.format < self.formats.current {
            recovery.migrated_from = Some(format.format);
            self.migrate(found, format.format)?
        } else {
            found
        };
        self.remove_others(&found.data);
        Ok(found)
    }

    fn begin(&self) -> Result<Format, OpenError> {
        let mut there = data_directories(self.path).map_err(|error| self.unusable(&error))?;
        if self.path.join(RESTORED).exists() {
            there.push(RESTORED.to_owned());
        }
        let marked = acknowledged::read(self.path).map_err(|error| self.unusable(&error))?;
        if let Some(data) = there.first() {
            return Err(OpenError::BadFormatFile {
                path: self.path.to_owned(),
                reason: format!("it is missing, but {data} is there, perhaps from an unfinished restore"),
            });
        }
        if marked != Mark::Missing {
            return Err(OpenError::BadFormatFile {
                path: self.path.to_owned(),
                reason: "it is missing, and so is the data".into(),
            });
        }
        let format = self.format_file("sled-1");
        directory::write_format(self.path, &format).map_err(|error| self.unusable(&error))?;
        Ok(format)
    }

    fn format_file(&self, data: &str) -> Format {
        Format {
            format: self.formats.current,
            written_by: crate::VERSION.to_owned(),
            data: data.to_owned(),
        }
    }

    /// Opens a data directory and reads all of it; once more without sled's snapshot if need be.
    fn open_verified(&self, data: &str, recovery: &mut Recovery) -> Result<Found, OpenError> {
        let directory = self.path.join(data);
        let mark = acknowledged::read(self.path).map_err(|error| self.unusable(&error))?;
        let evidence = Evidence::take(self.path, &directory, self.evidence_limit);
        let first = match self.try_open(data, mark, recovery) {
            Ok(found) => {
                evidence.discard();
                return Ok(found);
            }
            Err(bad) => bad,
        };
        let again = evidence.put_back().and_then(|()| evidence.set_snapshots_aside());
        if matches!(again, Ok(true))
            && let Ok(found) = self.try_open(data, mark, recovery)
        {
            recovery.evidence = Some(evidence.keep());
            tracing::warn!(evidence = ?recovery.evidence, "a damaged snapshot of sled was set aside; the log held everything");
            return Ok(found);
        }
        if let Err(error) = evidence.put_back() {
            tracing::error!(%error, "the damaged store could not be put back as it was found");
        }
        let evidence = evidence.keep();
        let path = self.path.to_owned();
        Err(match first {
            Bad::Damaged(problem) => OpenError::Damaged {
                path,
                problem,
                evidence,
            },
            Bad::Lost { acknowledged, found } => OpenError::Lost {
                path,
                acknowledged,
                found,
                evidence,
            },
        })
    }

    fn try_open(&self, data: &str, mark: Mark, recovery: &mut Recovery) -> Result<Found, Bad> {
        let backend = (self.make_opener)(&self.path.join(data)).open()?;
        match verify(backend.as_ref(), mark) {
            Ok((state, meta, census)) => {
                recovery.mark_missing = meta.is_some() && !matches!(mark, Mark::Commit(_));
                if let Mark::Commit(acknowledged) = mark {
                    recovery.unacknowledged_commits = state.commit.saturating_sub(acknowledged);
                }
                Ok(Found {
                    data: data.to_owned(),
                    backend,
                    state,
                    meta,
                    live_bytes: census.live_bytes,
                    versions: census.versions,
                })
            }
            Err(bad) => {
                let _ = backend.close();
                Err(bad)
            }
        }
    }

    fn check_versions(&self, found: &Found, known_records: &[(&'static str, u32)]) -> Result<(), OpenError> {
        for (kind, known) in known_records {
            if let Some((version, key)) = found.versions.get(*kind)
                && version > known
            {
                return Err(OpenError::NewerRecord {
                    path: self.path.to_owned(),
                    key: key.clone(),
                    kind: (*kind).to_owned(),
                    found: *version,
                    known: *known,
                    written_by: found
                        .meta
                        .as_ref()
                        .map_or_else(|| "unknown".to_owned(), |meta| meta.written_by.clone()),
                });
            }
        }
        Ok(())
    }

    /// Backed up first; the old data stays in use until the new is complete.
    fn migrate(&self, found: Found, from: u32) -> Result<Found, OpenError> {
        let failed = |reason: String| OpenError::Migration {
            path: self.path.to_owned(),
            from,
            to: self.formats.current,
            reason,
        };
        let steps = self
            .formats
            .path_from(from)
            .map_err(|missing| failed(format!("no step leads from format {missing}")))?;
        back_up(self.path, &found, from).map_err(|error| failed(error.to_string()))?;
        let data = next_data_directory(self.path).map_err(|error| failed(error.to_string()))?;
        migrate::rewrite(
            found.backend.as_ref(),
            &self.path.join(&data),
            found.state.commit,
            &steps,
        )
        .map_err(|error| failed(error.to_string()))?;
        self.switch_to(found, &data)
    }

    /// Copies what is live into a new data directory.
    fn write_anew(&self, found: &Found) -> Result<String, BackendError> {
        let data = next_data_directory(self.path).map_err(|error| BackendError(error.to_string()))?;
        let to = self.path.join(&data);
        migrate::rewrite(found.backend.as_ref(), &to, found.state.commit, &[]).inspect_err(|_| {
            let _ = fs::remove_dir_all(&to);
        })?;
        Ok(data)
    }

    /// Verifies the new data directory, makes it the one in use, and removes the old one.
    fn switch_to(&self, found: Found, data: &str) -> Result<Found, OpenError> {
        let mark = Mark::Commit(found.state.commit);
        let new = self
            .try_open(data, mark, &mut Recovery::default())
            .map_err(|bad| match bad {
                Bad::Damaged(problem) => self.failed(&BackendError(problem)),
                Bad::Lost { acknowledged, found } => self.failed(&BackendError(format!(
                    "{found} of {acknowledged} commits arrived"
                ))),
            })?;
        directory::write_format(self.path, &self.format_file(data)).map_err(|error| self.unusable(&error))?;
        found.backend.close().map_err(|error| self.failed(&error))?;
        self.remove_others(data);
        Ok(new)
    }

    /// Removes what an interrupted compaction, or a finished one, left.
    fn remove_others(&self, data: &str) {
        let others = data_directories(self.path).unwrap_or_default();
        for other in others.iter().map(String::as_str).chain([RESTORED]) {
            if other != data {
                let _ = fs::remove_dir_all(self.path.join(other));
            }
        }
    }

    fn unusable(&self, error: &io::Error) -> OpenError {
        OpenError::Unusable {
            path: self.path.to_owned(),
            reason: error.to_string(),
        }
    }

    fn failed(&self, error: &BackendError) -> OpenError {
        OpenError::Unusable {
            path: self.path.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// Reads everything and compares it with what the store says of itself and with what was acknowledged.
fn verify(backend: &dyn Backend, mark: Mark) -> Result<(State, Option<Meta>, Census), Bad> {
    let is_empty = backend.range(&[], false, 1)?.is_empty();
    if is_empty {
        return match mark {
            Mark::Missing => Ok((State::default(), None, Census::default())),
            Mark::Damaged => Err(Bad::Damaged("it is empty, and it was not".into())),
            Mark::Commit(acknowledged) => Err(Bad::Lost {
                acknowledged,
                found: 0,
            }),
        };
    }
    let state = read_state(backend)?;
    let census = take_census(backend, &state)?;
    if let Some(problem) = census.problems.first() {
        let more = census.problems.len().saturating_sub(1);
        return Err(Bad::Damaged(if more == 0 {
            problem.clone()
        } else {
            format!("{problem} (and {more} more)")
        }));
    }
    if let Mark::Commit(acknowledged) = mark
        && acknowledged > state.commit
    {
        return Err(Bad::Lost {
            acknowledged,
            found: state.commit,
        });
    }
    let raw = backend
        .get(META_KEY)?
        .ok_or_else(|| Bad::Damaged("the record about the store itself is gone".into()))?;
    let value = unwrap(META_KEY, &raw).map_err(Bad::Damaged)?;
    let meta = record::decode(META_KEY, value).map_err(|error| Bad::Damaged(error.to_string()))?;
    Ok((state, Some(meta), census))
}

fn back_up(path: &Path, found: &Found, format: u32) -> Result<(), BackupError> {
    let commit = found.state.commit;
    let file = path.join(format!("format-{format}-at-{commit}.backup"));
    // A migration that failed made the same backup before.
    if file.exists() && backup::verify_backup(&file)?.commit == commit {
        return Ok(());
    }
    let header = BackupHeader {
        format,
        written_by: found
            .meta
            .as_ref()
            .map_or_else(String::new, |meta| meta.written_by.clone()),
        commit,
        records: found.state.records,
    };
    backup::write_file(&file, &header, found.backend.as_ref())
}
