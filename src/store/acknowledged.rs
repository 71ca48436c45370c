//! The number of the last acknowledged commit, beside the log.
//!
//! Written after every commit without waiting for the disk, so that it is exact after a crash of the process;
//! synced every few seconds and at the end. It is never ahead of what is durable, so a log that ends before it has lost records.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

const NAME: &str = "ACKNOWLEDGED";

/// One slot: a number and its checksum. Two take turns, so that a torn write leaves the other.
const SLOT: usize = 12;

#[derive(Debug)]
pub(super) struct Acknowledged {
    file: File,
    written: u64,
    synced: u64,
}

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// There is no file.
    Missing,
    /// Neither slot can be read.
    Damaged,
    /// Up to this commit everything was acknowledged.
    Commit(u64),
}

/// Reads the mark without changing anything.
pub(super) fn read(directory: &Path) -> io::Result<Mark> {
    match std::fs::read(directory.join(NAME)) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Mark::Missing),
        Err(error) => Err(error),
    }
}

impl Acknowledged {
    /// Opens the file and sets the mark, durably.
    pub fn create(directory: &Path, commit: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join(NAME))?;
        // One slot at a time, so that there is a good one at any moment.
        for slot in [commit % 2, (commit + 1) % 2] {
            file.write_all_at(&encode(commit), slot * SLOT as u64)?;
            file.sync_data()?;
        }
        file.set_len(2 * SLOT as u64)?;
        file.sync_all()?;
        super::directory::sync_directory(directory)?;
        Ok(Self {
            file,
            written: commit,
            synced: commit,
        })
    }

    /// Everything up to this commit is about to be acknowledged.
    pub fn mark(&mut self, commit: u64) -> io::Result<()> {
        self.file
            .write_all_at(&encode(commit), (commit % 2) * SLOT as u64)?;
        self.written = commit;
        Ok(())
    }

    /// Makes the mark survive a loss of power.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.synced != self.written {
            self.file.sync_data()?;
            self.synced = self.written;
        }
        Ok(())
    }
}

fn encode(commit: u64) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    let number = commit.to_be_bytes();
    let (head, tail) = slot.split_at_mut(8);
    head.copy_from_slice(&number);
    tail.copy_from_slice(&crc32fast::hash(&number).to_be_bytes());
    slot
}

fn parse(bytes: &[u8]) -> Mark {
    bytes
        .chunks_exact(SLOT)
        .filter_map(|slot| {
            let (number, checksum) = slot.split_first_chunk::<8>()?;
            (crc32fast::hash(number).to_be_bytes() == checksum).then(|| u64::from_be_bytes(*number))
        })
        .max()
        .map_or(Mark::Damaged, Mark::Commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_readable_slot_counts() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()).unwrap(), Mark::Missing);
        let mut mark = Acknowledged::create(directory.path(), 6).unwrap();
        mark.mark(7).unwrap();
        mark.mark(8).unwrap();
        mark.sync().unwrap();
        assert_eq!(read(directory.path()).unwrap(), Mark::Commit(8));

        let path = directory.path().join(NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(directory.path()).unwrap(), Mark::Commit(7));
        bytes[14] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(directory.path()).unwrap(), Mark::Damaged);
    }
}
