//! What the application tells the store.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::ports::clock::Clock;

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its directory; made if it is not there.
    pub path: PathBuf,
    /// The key that seals secrets; made if it is not there. None: nothing can be sealed.
    pub key_file: Option<PathBuf>,
    /// Below this many free bytes only batches that give back are accepted.
    pub min_free: u64,
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// How much space is left on the disk.
    pub free_space: FreeSpace,
    /// Told how long each commit took.
    pub on_flush: OnFlush,
    /// How many calls may wait; more are refused.
    pub queue: usize,
    /// The newest version this release knows of each kind of record; a newer one stops the start.
    pub known_records: Vec<(&'static str, u32)>,
    /// A larger log that is mostly empty is written anew at the start.
    pub compact_above: u64,
    /// A larger log is not copied aside before it is opened.
    pub evidence_limit: u64,
}

impl Options {
    /// The usual settings for a directory; the key stands beside it.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let path = path.into();
        Self {
            key_file: Some(default_key_file(&path)),
            path,
            min_free: 512 << 20,
            clock,
            free_space: FreeSpace::of_disk(),
            on_flush: OnFlush::default(),
            queue: 16_384,
            known_records: Vec::new(),
            compact_above: 64 << 20,
            evidence_limit: 128 << 20,
        }
    }
}

/// `<store.path>.key`: outside the directory, so that a copy of the store does not hold its key.
#[must_use]
pub fn default_key_file(path: &Path) -> PathBuf {
    let mut name = path.components().as_path().as_os_str().to_owned();
    name.push(".key");
    PathBuf::from(name)
}

type Measure = dyn Fn(&Path) -> io::Result<u64> + Send + Sync;

/// Measures the free bytes of a disk.
#[derive(Clone)]
pub struct FreeSpace(Arc<Measure>);

impl FreeSpace {
    /// What the operating system says an ordinary user may still write.
    #[must_use]
    pub fn of_disk() -> Self {
        Self::by(|path| {
            let disk = rustix::fs::statvfs(path)?;
            Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
        })
    }

    /// Some other measure, for tests.
    #[must_use]
    pub fn by(measure: impl Fn(&Path) -> io::Result<u64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(measure))
    }

    /// None when it cannot be known: then nothing is refused for it.
    pub(super) fn measure(&self, path: &Path) -> Option<u64> {
        (self.0)(path).ok()
    }
}

impl fmt::Debug for FreeSpace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FreeSpace")
    }
}

type Observe = dyn Fn(Duration) + Send + Sync;

/// Called on the store's thread after each commit, with the time it took; must not block.
#[derive(Clone, Default)]
pub struct OnFlush(Option<Arc<Observe>>);

impl OnFlush {
    /// Tells `observe`.
    #[must_use]
    pub fn tell(observe: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    pub(super) fn call(&self, took: Duration) {
        if let Some(observe) = &self.0 {
            observe(took);
        }
    }
}

impl fmt::Debug for OnFlush {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OnFlush")
    }
}
