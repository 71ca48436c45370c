//! Backups: one file that holds every record as of one commit, checked record by record and as a whole.
//!
//! ```text
//! freehold-backup 1\n
//! {"format", "written_by", "commit", …}\n
//! record*  key length (4) · value length (4) · key · value · CRC-32 of key and value (4)
//! trailer  ff ff ff ff · number of records (8) · SHA-256 of everything before (32)
//! ```
//! Secrets in it stay sealed: the key file is not part of a backup and must be kept as well.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream::BoxStream};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{
    acknowledged::Acknowledged,
    backend::{Backend, BackendError},
    directory::{self, Format, partial_name, sync_directory},
    layout::{self, FORMAT},
    migrate::{NewData, for_each_record},
    recover::RESTORED,
    snapshot::SnapshotReader,
};
use crate::ports::store::{MAX_KEY_BYTES, MAX_VALUE_BYTES, StoreError, printable};

const MAGIC: &str = "freehold-backup 1\n";
const END: u32 = u32::MAX;

/// A message on the wire stays well below the limits of gRPC.
const CHUNK: usize = 256 << 10;

/// What a backup says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHeader {
    /// Format of the store it was made from.
    pub format: u32,
    /// The release that made it.
    pub written_by: String,
    /// The commit it shows.
    pub commit: u64,
    /// How many records it holds.
    pub records: u64,
    /// The key that opens its secrets; it is not part of the backup.
    #[serde(default)]
    pub key_id: Option<String>,
}

/// Why a backup failed.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The store did not give its records.
    #[error("the store could not be read")]
    Store(#[from] StoreError),
    /// Whoever sends the backup broke off.
    #[error("the backup broke off: {reason}")]
    BrokeOff {
        /// What they said.
        reason: String,
    },
    /// There is a file already.
    #[error("{path} exists: choose another name")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The disk refused.
    #[error("could not {action} {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the disk said.
        source: io::Error,
    },
    /// It is no whole backup.
    #[error("{path} is no whole backup: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A newer release made it.
    #[error(
        "{path} is of store format {found} (written by {written_by}), this release knows up to {known}: restore it with that release"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
        /// The release that made it.
        written_by: String,
    },
    /// The directory is in use.
    #[error("{path} is not empty ({found} is there): restore into an empty directory")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// The records could not be written.
    #[error("could not write the restored records to {path}: {reason}")]
    Restore {
        /// The directory.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
}

/// Makes the bytes of a backup.
#[derive(Debug)]
pub(super) struct Encoder {
    hasher: Sha256,
    records: u64,
}

impl Encoder {
    /// Begins; the first bytes.
    pub fn begin(header: &BackupHeader) -> Result<(Self, Vec<u8>), serde_json::Error> {
        let mut bytes = MAGIC.as_bytes().to_vec();
        serde_json::to_writer(&mut bytes, header)?;
        bytes.push(b'\n');
        let mut hasher = Sha256::new();
        hasher.update(&bytes);
        Ok((Self { hasher, records: 0 }, bytes))
    }

    /// The bytes of one record.
    pub fn record(&mut self, key: &[u8], value: &[u8], into: &mut Vec<u8>) {
        let start = into.len();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(END).to_be_bytes();
        into.extend_from_slice(&length(key));
        into.extend_from_slice(&length(value));
        into.extend_from_slice(key);
        into.extend_from_slice(value);
        into.extend_from_slice(&checksum(key, value).to_be_bytes());
        self.hasher.update(into.get(start..).unwrap_or_default());
        self.records = self.records.saturating_add(1);
    }

    /// The last bytes.
    pub fn end(mut self) -> Vec<u8> {
        let mut bytes = END.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.records.to_be_bytes());
        self.hasher.update(&bytes);
        bytes.extend_from_slice(&self.hasher.finalize());
        bytes
    }
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

/// A running store's records as a stream of bytes, consistent as of the call.
pub(super) fn stream(
    reader: impl Future<Output = Result<SnapshotReader, StoreError>> + Send + 'static,
) -> BoxStream<'static, Result<Bytes, StoreError>> {
    enum Stage {
        Start,
        Records(Box<SnapshotReader>, Encoder),
        Done,
    }
    let mut reader = Some(Box::pin(reader));
    let steps = futures::stream::unfold(Stage::Start, move |stage| {
        let opening = reader.take();
        async move {
            let step: Result<(Vec<u8>, Stage), StoreError> = async {
                match (stage, opening) {
                    (Stage::Start, Some(opening)) => {
                        let reader = opening.await?;
                        let header = BackupHeader {
                            format: FORMAT,
                            written_by: crate::VERSION.to_owned(),
                            commit: reader.state.commit,
                            records: reader.state.records,
                            key_id: reader.meta.key_id.clone(),
                        };
                        let (encoder, bytes) =
                            Encoder::begin(&header).map_err(|error| StoreError::Unavailable {
                                reason: error.to_string(),
                            })?;
                        Ok((bytes, Stage::Records(Box::new(reader), encoder)))
                    }
                    (Stage::Records(mut reader, mut encoder), _) => match reader.next().await? {
                        Some(pairs) => {
                            let mut bytes = Vec::new();
                            for (key, raw) in pairs {
                                let value =
                                    layout::unwrap(&key, &raw).map_err(|reason| StoreError::Damaged {
                                        key: printable(&key),
                                        reason,
                                    })?;
                                encoder.record(&key, value, &mut bytes);
                            }
                            Ok((bytes, Stage::Records(reader, encoder)))
                        }
                        None => Ok((encoder.end(), Stage::Done)),
                    },
                    (Stage::Start | Stage::Done, _) => Ok((Vec::new(), Stage::Done)),
                }
            }
            .await;
            match step {
                Ok((bytes, Stage::Done)) if bytes.is_empty() => None,
                Ok((bytes, next)) => Some((Ok(Bytes::from(bytes)), next)),
                Err(error) => Some((Err(error), Stage::Done)),
            }
        }
    });
    steps.flat_map(|step| futures::stream::iter(split(step))).boxed()
}

fn split(step: Result<Bytes, StoreError>) -> Vec<Result<Bytes, StoreError>> {
    match step {
        Ok(mut bytes) => {
            let mut chunks = Vec::new();
            while !bytes.is_empty() {
                chunks.push(Ok(bytes.split_to(bytes.len().min(CHUNK))));
            }
            chunks
        }
        Err(error) => vec![Err(error)],
    }
}

/// Writes a backup that comes in chunks, checks it, and only then gives it its name.
pub async fn write_backup<E: std::fmt::Display>(
    chunks: impl Stream<Item = Result<Bytes, E>>,
    file: &Path,
) -> Result<BackupHeader, BackupError> {
    let partial = partial_name(file);
    let written = async {
        let mut output = begin_file(file)?;
        let mut chunks = std::pin::pin!(chunks);
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| BackupError::BrokeOff {
                reason: error.to_string(),
            })?;
            output.write_all(&chunk).map_err(failed(&partial, "write"))?;
        }
        finish_file(&output, file)
    }
    .await;
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

pub(super) fn begin_file(file: &Path) -> Result<File, BackupError> {
    if file.exists() {
        return Err(BackupError::Exists {
            path: file.to_owned(),
        });
    }
    let partial = partial_name(file);
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&partial)
        .map_err(failed(&partial, "write"))
}

pub(super) fn finish_file(output: &File, file: &Path) -> Result<BackupHeader, BackupError> {
    let partial = partial_name(file);
    output.sync_all().map_err(failed(&partial, "sync"))?;
    let header = verify_backup(&partial)?;
    fs::rename(&partial, file).map_err(failed(file, "name"))?;
    let parent = file.parent().unwrap_or(Path::new("."));
    sync_directory(parent).map_err(failed(parent, "sync"))?;
    Ok(header)
}

/// Reads a backup from end to end and checks every byte of it.
pub fn verify_backup(file: &Path) -> Result<BackupHeader, BackupError> {
    read(file, |_, _| Ok(()))
}

/// Makes a store out of a backup, in an empty directory. It is there when `FORMAT` is, which comes last.
pub fn restore(file: &Path, path: &Path) -> Result<BackupHeader, BackupError> {
    fs::create_dir_all(path).map_err(failed(path, "make"))?;
    for entry in fs::read_dir(path).map_err(failed(path, "read"))? {
        let name = entry.map_err(failed(path, "read"))?.file_name();
        // What an interrupted restore left, and what a file system keeps at its root.
        if name != RESTORED && name != "lost+found" && name != "LOCK" {
            return Err(BackupError::NotEmpty {
                path: path.to_owned(),
                found: name.to_string_lossy().into_owned(),
            });
        }
    }
    let not_written = |reason: String| BackupError::Restore {
        path: path.to_owned(),
        reason,
    };
    let _lock = directory::Lock::take(path).map_err(|_| not_written("another process uses it".into()))?;
    let header = verify_backup(file)?;
    if header.format > FORMAT {
        return Err(BackupError::Newer {
            path: file.to_owned(),
            found: header.format,
            known: FORMAT,
            written_by: header.written_by,
        });
    }
    let mut data = NewData::begin(&path.join(RESTORED)).map_err(|error| not_written(error.to_string()))?;
    read(file, |key, value| data.add(key, &value))?;
    let state = data
        .finish(header.commit)
        .map_err(|error| not_written(error.to_string()))?;
    Acknowledged::create(path, state.commit).map_err(failed(path, "write"))?;
    let format = Format {
        format: header.format,
        written_by: header.written_by.clone(),
        data: RESTORED.to_owned(),
    };
    directory::write_format(path, &format).map_err(failed(path, "write"))?;
    Ok(header)
}

/// Reads a backup; `take` gets every record before the whole is known to be good.
fn read(
    file: &Path,
    mut take: impl FnMut(Vec<u8>, Vec<u8>) -> Result<(), BackendError>,
) -> Result<BackupHeader, BackupError> {
    let damaged = |reason: String| BackupError::Damaged {
        path: file.to_owned(),
        reason,
    };
    let opened = File::open(file).map_err(failed(file, "open"))?;
    let mut input = Hashing {
        input: BufReader::new(opened),
        hasher: Sha256::new(),
    };
    let header = read_header(&mut input).map_err(&damaged)?;
    let cut = |error: io::Error| damaged(format!("it ends too early ({error})"));
    let mut records = 0_u64;
    loop {
        let key_length = input.u32().map_err(cut)?;
        if key_length == END {
            break;
        }
        let value_length = input.u32().map_err(cut)?;
        let key = input.take(key_length, MAX_KEY_BYTES).map_err(cut)?;
        let value = input.take(value_length, MAX_VALUE_BYTES + 1024).map_err(cut)?;
        let expected = input.u32().map_err(cut)?;
        if checksum(&key, &value) != expected {
            return Err(damaged(format!("record {} is changed", printable(&key))));
        }
        take(key, value).map_err(|error| damaged(error.to_string()))?;
        records = records.saturating_add(1);
    }
    let count = input.array::<8>().map(u64::from_be_bytes).map_err(cut)?;
    let found = input.hasher.clone().finalize();
    let expected = input.array::<32>().map_err(cut)?;
    if count != records || header.records != records {
        return Err(damaged(format!(
            "it holds {records} records and should hold {}",
            header.records
        )));
    }
    if found.as_slice() != expected.as_slice() {
        return Err(damaged("its hash does not match".into()));
    }
    let mut rest = [0];
    match input.input.read(&mut rest) {
        Ok(0) => Ok(header),
        Ok(_) => Err(damaged("something follows its end".into())),
        Err(error) => Err(damaged(error.to_string())),
    }
}

fn read_header<R: Read>(input: &mut Hashing<R>) -> Result<BackupHeader, String> {
    const LONGEST: usize = 64 << 10;
    let magic = input
        .take(u32::try_from(MAGIC.len()).unwrap_or(0), MAGIC.len())
        .map_err(|error| format!("it ends too early ({error})"))?;
    if magic != MAGIC.as_bytes() {
        return Err("it does not begin as a backup does".into());
    }
    let mut line = Vec::new();
    while line.len() < LONGEST {
        match input.array::<1>() {
            Ok([b'\n']) => return serde_json::from_slice(&line).map_err(|error| error.to_string()),
            Ok([byte]) => line.push(byte),
            Err(error) => return Err(format!("it ends too early ({error})")),
        }
    }
    Err("its header does not end".into())
}

struct Hashing<R> {
    input: R,
    hasher: Sha256,
}

impl<R: Read> Hashing<R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.hasher.update(bytes);
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn take(&mut self, length: u32, most: usize) -> io::Result<Vec<u8>> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > most {
            return Err(io::Error::other(format!("{length} bytes are too many")));
        }
        let mut bytes = vec![0; length];
        self.input.read_exact(&mut bytes)?;
        self.hasher.update(&bytes);
        Ok(bytes)
    }
}

fn failed<'a>(path: &'a Path, action: &'static str) -> impl Fn(io::Error) -> BackupError + use<'a> {
    move |source| BackupError::Io {
        path: path.to_owned(),
        action,
        source,
    }
}

/// Writes a backup of a data directory that nobody else uses.
pub(super) fn write_file(file: &Path, header: &BackupHeader, from: &dyn Backend) -> Result<(), BackupError> {
    let damaged = |reason: String| BackupError::Damaged {
        path: file.to_owned(),
        reason,
    };
    let mut output = BufWriter::new(begin_file(file)?);
    let (mut encoder, head) = Encoder::begin(header).map_err(|error| damaged(error.to_string()))?;
    output.write_all(&head).map_err(failed(file, "write"))?;
    for_each_record(from, |key, value| {
        let mut bytes = Vec::with_capacity(key.len() + value.len() + 12);
        encoder.record(&key, value, &mut bytes);
        output
            .write_all(&bytes)
            .map_err(|error| BackendError::Broken(error.to_string()))
    })
    .map_err(|error| damaged(error.to_string()))?;
    output.write_all(&encoder.end()).map_err(failed(file, "write"))?;
    let output = output.into_inner().map_err(|error| damaged(error.to_string()))?;
    finish_file(&output, file).map(|_| ())
}
