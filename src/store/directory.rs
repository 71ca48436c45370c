//! The files of a store's directory: its lock, its format, and writes that last.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

const LOCK: &str = "LOCK";
const FORMAT: &str = "FORMAT";

/// What `FORMAT` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Format {
    pub format: u32,
    /// The release that wrote this file.
    pub written_by: String,
    /// The data directory in use.
    pub data: String,
}

/// The state of the `FORMAT` file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormatFile {
    Missing,
    Damaged(String),
    Found(Format),
}

/// Holds the store's directory for this process.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Why the directory is not ours.
#[derive(Debug)]
pub(super) enum LockError {
    Held { pid: String },
    Io(io::Error),
}

impl Lock {
    pub fn take(directory: &Path) -> Result<Self, LockError> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(directory.join(LOCK))
            .map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = (&file).take(32).read_to_string(&mut pid);
                return Err(LockError::Held {
                    pid: pid.trim().to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        // A full disk must not keep the store from being opened: the lock holds without the pid.
        if let Err(error) = written {
            tracing::warn!(%error, "the pid could not be written to the lock file");
        }
        Ok(Self { _file: file })
    }
}

/// Reads `FORMAT` without touching anything.
pub(super) fn read_format(directory: &Path) -> io::Result<FormatFile> {
    let text = match fs::read(directory.join(FORMAT)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FormatFile::Missing),
        Err(error) => return Err(error),
    };
    let mut lines = text.lines();
    let (first, second) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    // Only a format that is known to use this checksum is judged by it.
    let parsed: Result<Format, _> = serde_json::from_str(first);
    Ok(match parsed {
        Ok(_) if second != line_checksum(first) => {
            FormatFile::Damaged("its checksum does not match".to_owned())
        }
        Ok(format) => FormatFile::Found(format),
        Err(error) => FormatFile::Damaged(error.to_string()),
    })
}

/// Replaces `FORMAT` atomically.
pub(super) fn write_format(directory: &Path, format: &Format) -> io::Result<()> {
    let line = serde_json::to_string(format)?;
    let text = format!("{line}\n{}\n", line_checksum(&line));
    write_atomically(&directory.join(FORMAT), text.as_bytes())
}

fn line_checksum(line: &str) -> String {
    format!("{:08x}", crc32fast::hash(line.as_bytes()))
}

/// Writes a file so that it is there whole or not at all, also after a loss of power.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = partial_name(path);
    let mut file = File::create(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Where a file is written before it gets its name.
pub(super) fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// Makes the names in a directory last.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    File::open(directory)?.sync_all()
}

/// Copies the files of a directory and of those below it.
pub(super) fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Bytes of all files below a directory; what cannot be read counts nothing.
pub(super) fn bytes_below(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .fold(0, u64::saturating_add)
}

/// The data directories that are there, whether in use or not.
pub(super) fn data_directories(directory: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && name.starts_with("sled-") {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// A name for the next data directory.
pub(super) fn next_data_directory(directory: &Path) -> io::Result<String> {
    let highest = data_directories(directory)?
        .iter()
        .filter_map(|name| name.strip_prefix("sled-")?.parse::<u64>().ok())
        .max()
        .unwrap_or(0);
    Ok(format!("sled-{}", highest.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_the_pid_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let first = Lock::take(directory.path()).unwrap();
        match Lock::take(directory.path()) {
            Err(LockError::Held { pid }) => assert_eq!(pid, std::process::id().to_string()),
            other => panic!("{other:?}"),
        }
        drop(first);
        Lock::take(directory.path()).unwrap();
    }

    #[test]
    fn a_changed_byte_in_the_format_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let format = Format {
            format: 1,
            written_by: "0.1.0".into(),
            data: "sled-1".into(),
        };
        write_format(directory.path(), &format).unwrap();
        assert_eq!(
            read_format(directory.path()).unwrap(),
            FormatFile::Found(format.clone())
        );
        let path = directory.path().join(FORMAT);
        let good = fs::read(&path).unwrap();
        for position in 0..good.len() {
            let mut bad = good.clone();
            bad[position] ^= 1;
            fs::write(&path, &bad).unwrap();
            // A changed last newline changes nothing.
            match read_format(directory.path()).unwrap() {
                FormatFile::Damaged(_) => {}
                FormatFile::Found(found) => assert_eq!(found, format),
                FormatFile::Missing => panic!("the file is there"),
            }
        }
    }
}
