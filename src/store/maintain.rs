//! Looking at a store: what it holds, and whether all of it is good. Online through the store's
//! thread, offline on a copy, so that looking changes nothing.

use std::{collections::BTreeMap, path::Path};

use super::{
    acknowledged::{self, Mark},
    backend::{Backend, BackendError, read_state, take_census},
    directory::{FormatFile, Lock, LockError, copy_directory, read_format},
    layout::{BoundCluster, Census, FORMAT, META_KEY, Meta, unwrap},
    open_error::OpenError,
    recover::LOOKING,
    sled_backend::SledBackend,
    snapshot::SnapshotReader,
};
use crate::ports::store::{StoreError, StoreHealth, record};

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreInfo {
    /// Where it is.
    pub path: String,
    /// Its format.
    pub format: u32,
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes free on its disk, where known.
    pub free_bytes: Option<u64>,
    /// How many records.
    pub records: u64,
    /// How many of each kind; `index` are entries that only point at records.
    pub records_by_kind: BTreeMap<String, u64>,
    /// Whether it acknowledges commits.
    pub healthy: bool,
    /// The cluster it belongs to.
    pub cluster: Option<BoundCluster>,
    /// Raised at every start.
    pub epoch: u64,
    /// The number of the last commit.
    pub commit: u64,
    /// The release that wrote last.
    pub written_by: String,
}

/// What reading every record showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many were read.
    pub records: u64,
    /// What is wrong, a sentence each; none: all is good.
    pub problems: Vec<String>,
}

async fn census(mut reader: SnapshotReader) -> Result<(Census, Meta), StoreError> {
    let mut census = Census::default();
    while let Some(pairs) = reader.next().await? {
        for (key, raw) in pairs {
            census.take(&key, &raw);
        }
    }
    census.compare(&reader.state);
    Ok((census, reader.meta.clone()))
}

pub(super) async fn verify(reader: SnapshotReader) -> Result<VerifyReport, StoreError> {
    let (census, _) = census(reader).await?;
    Ok(VerifyReport {
        records: census.state.records,
        problems: census.problems,
    })
}

pub(super) async fn info(
    reader: SnapshotReader,
    format: u32,
    health: StoreHealth,
) -> Result<StoreInfo, StoreError> {
    let (census, meta) = census(reader).await?;
    Ok(describe(census, meta, format, health))
}

fn describe(census: Census, meta: Meta, format: u32, health: StoreHealth) -> StoreInfo {
    StoreInfo {
        path: health.path,
        format,
        bytes: health.bytes,
        free_bytes: health.free_bytes,
        records: census.state.records,
        records_by_kind: census.kinds,
        healthy: health.healthy,
        cluster: meta.cluster,
        epoch: meta.epoch,
        commit: census.state.commit,
        written_by: meta.written_by,
    }
}

/// Reads and checks every record of a store that no process uses. Changes nothing.
pub fn verify_directory(path: &Path) -> Result<VerifyReport, OpenError> {
    let (found, _) = look_into(path)?;
    Ok(match found {
        Ok((census, ..)) => VerifyReport {
            records: census.state.records,
            problems: census.problems,
        },
        Err(error) => VerifyReport {
            records: 0,
            problems: vec![error.to_string()],
        },
    })
}

/// What a store that no process uses holds. Changes nothing.
pub fn info_of(path: &Path) -> Result<StoreInfo, OpenError> {
    let (found, format) = look_into(path)?;
    let (census, meta, bytes) = found.map_err(|error| OpenError::Damaged {
        path: path.to_owned(),
        problem: error.to_string(),
        evidence: path.to_owned(),
    })?;
    let health = StoreHealth {
        path: path.display().to_string(),
        bytes,
        free_bytes: super::options::FreeSpace::of_disk().measure(path),
        healthy: census.problems.is_empty(),
    };
    Ok(describe(census, meta, format, health))
}

type Found = Result<(Census, Meta, u64), BackendError>;

fn look_into(path: &Path) -> Result<(Found, u32), OpenError> {
    let unusable = |error: std::io::Error| OpenError::Unusable {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let format = match read_format(path).map_err(unusable)? {
        FormatFile::Found(format) if format.format > FORMAT => {
            return Err(OpenError::NewerFormat {
                path: path.to_owned(),
                found: format.format,
                known: FORMAT,
                written_by: format.written_by,
            });
        }
        FormatFile::Found(format) => format,
        FormatFile::Damaged(reason) => {
            return Err(OpenError::BadFormatFile {
                path: path.to_owned(),
                reason,
            });
        }
        FormatFile::Missing => {
            return Err(OpenError::NoStore {
                path: path.to_owned(),
            });
        }
    };
    let _lock = Lock::take(path).map_err(|error| match error {
        LockError::Held { pid } => OpenError::Locked {
            path: path.to_owned(),
            pid,
        },
        LockError::Io(error) => unusable(error),
    })?;
    // sled writes to what it opens: it gets a copy.
    let copy = path.join(LOOKING);
    let _ = std::fs::remove_dir_all(&copy);
    let found = copy_directory(&path.join(&format.data), &copy)
        .map_err(|error| BackendError::Broken(format!("the data could not be copied: {error}")))
        .and_then(|()| read_copy(&copy, path));
    let _ = std::fs::remove_dir_all(&copy);
    Ok((found, format.format))
}

fn read_copy(copy: &Path, store: &Path) -> Found {
    let backend = Box::new(SledBackend::open(copy)?);
    let state = read_state(backend.as_ref())?;
    let mut census = take_census(backend.as_ref(), &state)?;
    match acknowledged::read(store) {
        Ok(Mark::Commit(commit)) if commit > state.commit => census.problem(format!(
            "commit {commit} was acknowledged, {} is the last one there",
            state.commit
        )),
        Ok(Mark::Commit(_)) => {}
        Ok(Mark::Missing | Mark::Damaged) => {
            census.problem("the note of the last acknowledged commit is gone".into());
        }
        Err(error) => census.problem(error.to_string()),
    }
    let meta = backend
        .get(META_KEY)?
        .ok_or_else(|| BackendError::Broken("the record about the store itself is gone".into()))?;
    let value = unwrap(META_KEY, &meta).map_err(BackendError::Broken)?;
    let meta: Meta =
        record::decode(META_KEY, value).map_err(|error| BackendError::Broken(error.to_string()))?;
    let bytes = backend.bytes();
    backend.close()?;
    Ok((census, meta, bytes))
}
