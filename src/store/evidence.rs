//! What was found before anything touched it. sled cuts and rewrites what it opens, so a damaged
//! log would lose its traces; a copy is taken first, and thrown away when all is well.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use super::directory::{bytes_below, copy_directory, sync_directory};

const DIRECTORY: &str = "evidence";
const PENDING: &str = "pending";

/// A copy of the data directory as it was before sled opened it.
#[derive(Debug)]
pub(super) struct Evidence {
    root: PathBuf,
    data: PathBuf,
    copied: bool,
}

impl Evidence {
    /// Copies the data directory, unless it is larger than `limit` or there is no room.
    pub fn take(store: &Path, data: &Path, limit: u64) -> Self {
        let root = store.join(DIRECTORY);
        let pending = root.join(PENDING);
        let _ = fs::remove_dir_all(&pending);
        let copied = data.is_dir()
            && bytes_below(data) <= limit
            && copy_directory(data, &pending)
                .inspect_err(|error| {
                    tracing::warn!(%error, "no copy of the store could be taken before opening it");
                    let _ = fs::remove_dir_all(&pending);
                })
                .is_ok();
        Self {
            root,
            data: data.to_path_buf(),
            copied,
        }
    }

    /// Puts the data directory back as it was found.
    pub fn put_back(&self) -> io::Result<()> {
        if self.copied {
            fs::remove_dir_all(&self.data)?;
            copy_directory(&self.root.join(PENDING), &self.data)?;
        }
        Ok(())
    }

    /// Moves sled's snapshots aside; the log alone holds everything.
    pub fn set_snapshots_aside(&self) -> io::Result<bool> {
        let mut moved = false;
        for entry in fs::read_dir(&self.data)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("snap.") {
                if !self.copied {
                    fs::create_dir_all(&self.root)?;
                    fs::copy(entry.path(), self.root.join(&name))?;
                }
                fs::remove_file(entry.path())?;
                moved = true;
            }
        }
        if moved {
            sync_directory(&self.data)?;
        }
        Ok(moved)
    }

    /// All is well: the copy is not needed.
    pub fn discard(self) {
        let _ = fs::remove_dir_all(self.root.join(PENDING));
        // Stays if it holds older evidence.
        let _ = fs::remove_dir(&self.root);
    }

    /// Something was wrong: keeps the copy under a name of its own and says where.
    pub fn keep(self) -> PathBuf {
        if !self.copied {
            return self.data;
        }
        for number in 1_u32.. {
            let kept = self.root.join(format!("found-{number}"));
            if kept.exists() {
                // A program that is started over and over must not fill the disk with the same copy.
                if equal(&kept, &self.root.join(PENDING)) {
                    let _ = fs::remove_dir_all(self.root.join(PENDING));
                    return kept;
                }
                continue;
            }
            return match fs::rename(self.root.join(PENDING), &kept) {
                Ok(()) => kept,
                Err(_) => self.root.join(PENDING),
            };
        }
        self.data
    }
}

/// Whether two directories hold the same files.
fn equal(left: &Path, right: &Path) -> bool {
    let names = |directory: &Path| -> Option<BTreeMap<OsString, bool>> {
        let entries = fs::read_dir(directory).ok()?;
        entries
            .map(|entry| {
                let entry = entry.ok()?;
                Some((entry.file_name(), entry.file_type().ok()?.is_dir()))
            })
            .collect()
    };
    let (Some(here), Some(there)) = (names(left), names(right)) else {
        return false;
    };
    here == there
        && here.iter().all(|(name, is_directory)| {
            let (left, right) = (left.join(name), right.join(name));
            if *is_directory {
                equal(&left, &right)
            } else {
                matches!((fs::read(&left), fs::read(&right)), (Ok(left), Ok(right)) if left == right)
            }
        })
}
