//! Whose a store is, which format it has, and whether everything acknowledged is there.
//! Either all of it is good, or the start is refused with the files as they were found.

use std::{collections::BTreeMap, fs, io, os::unix::fs::DirBuilderExt as _, path::Path};

use super::{
    acknowledged::{self, Mark},
    backend::{Backend, BackendError, From, Most, read_state, take_census},
    backup::{self, BackupError, BackupHeader},
    directory::{self, Format, FormatFile, Lock, LockError, data_directories, next_data_directory},
    evidence::Evidence,
    layout::{Census, META_KEY, Meta, State, unwrap},
    migrate::{self, Formats},
    open::{MakeOpener, Recovery},
    open_error::OpenError,
};
use crate::ports::store::record;

/// The data directory of a restored store.
pub(super) const RESTORED: &str = "restored";

/// A copy that is only looked at.
pub(super) const LOOKING: &str = "looking";

/// A data directory that was opened and found good.
pub(super) struct Found {
    pub data: String,
    pub backend: Box<dyn Backend>,
    pub state: State,
    /// None in a new store.
    pub meta: Option<Meta>,
    pub live_bytes: u64,
    versions: BTreeMap<String, (u32, String)>,
}

enum Bad {
    Damaged(String),
    /// Nothing is known to be wrong with it.
    Refused(String),
    Lost {
        acknowledged: u64,
        found: u64,
    },
}

impl std::convert::From<BackendError> for Bad {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Broken(problem) => Self::Damaged(problem),
            BackendError::Refused(reason) => Self::Refused(reason),
        }
    }
}

/// A store that is being opened.
pub(super) struct Opening<'a> {
    pub path: &'a Path,
    pub evidence_limit: u64,
    pub make_opener: &'a MakeOpener,
    pub formats: Formats,
}

impl Opening<'_> {
    /// Makes the directory if need be, and takes it. A newer store is not even locked.
    pub fn claim(&self) -> Result<Lock, OpenError> {
        self.make().map_err(|error| self.unusable(&error))?;
        self.format()?;
        Lock::take(self.path).map_err(|error| match error {
            LockError::Held { pid } => OpenError::Locked {
                path: self.path.to_owned(),
                pid,
            },
            LockError::Io(error) => self.unusable(&error),
        })
    }

    fn make(&self) -> io::Result<()> {
        if self.path.is_dir() {
            return Ok(());
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.path)?;
        self.path.parent().map_or(Ok(()), directory::sync_directory)
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
    pub fn find(&self, recovery: &mut Recovery) -> Result<Found, OpenError> {
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
        if let Bad::Refused(reason) = first {
            evidence.discard();
            return Err(OpenError::Unusable {
                path: self.path.to_owned(),
                reason,
            });
        }
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
            Bad::Damaged(problem) | Bad::Refused(problem) => OpenError::Damaged {
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

    pub fn check_versions(
        &self,
        found: &Found,
        known_records: &[(&'static str, u32)],
    ) -> Result<(), OpenError> {
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
    pub fn write_anew(&self, found: &Found) -> Result<String, BackendError> {
        let data = next_data_directory(self.path).map_err(|error| BackendError::Broken(error.to_string()))?;
        let to = self.path.join(&data);
        migrate::rewrite(found.backend.as_ref(), &to, found.state.commit, &[]).inspect_err(|_| {
            let _ = fs::remove_dir_all(&to);
        })?;
        Ok(data)
    }

    /// Verifies the new data directory, makes it the one in use, and removes the old one.
    pub fn switch_to(&self, found: Found, data: &str) -> Result<Found, OpenError> {
        let mark = Mark::Commit(found.state.commit);
        let new = self
            .try_open(data, mark, &mut Recovery::default())
            .map_err(|bad| match bad {
                Bad::Damaged(problem) | Bad::Refused(problem) => self.failed(&BackendError::Broken(problem)),
                Bad::Lost { acknowledged, found } => self.failed(&BackendError::Broken(format!(
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
        for other in others.iter().map(String::as_str).chain([RESTORED, LOOKING]) {
            if other != data {
                let _ = fs::remove_dir_all(self.path.join(other));
            }
        }
    }

    pub fn unusable(&self, error: &io::Error) -> OpenError {
        OpenError::Unusable {
            path: self.path.to_owned(),
            reason: error.to_string(),
        }
    }

    pub fn failed(&self, error: &BackendError) -> OpenError {
        OpenError::Unusable {
            path: self.path.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// Reads everything and compares it with what the store says of itself and with what was acknowledged.
fn verify(backend: &dyn Backend, mark: Mark) -> Result<(State, Option<Meta>, Census), Bad> {
    let is_empty = backend.range(From::At(&[]), Most::PAGE)?.is_empty();
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
        key_id: found.meta.as_ref().and_then(|meta| meta.key_id.clone()),
    };
    backup::write_file(&file, &header, found.backend.as_ref())
}
