//! What the tests of the store share.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use freehold::{
    ports::{
        clock::SystemClock,
        store::{Batch, Store as _, Write},
    },
    store::{Options, SledStore},
};

/// `small` in every run, `large` once.
pub fn scale<T>(small: T, large: T) -> T {
    if std::env::var_os("FREEHOLD_SCALE").is_some_and(|scale| scale == "full") {
        large
    } else {
        small
    }
}

/// A directory in memory where there is one: a killed process and a flipped byte do not need a disk.
pub fn fast_directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory)
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub fn options(path: &Path) -> Options {
    let mut options = Options::at(path, Arc::new(SystemClock::start()));
    options.min_free = 0;
    options
}

pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Write {
    Write::Put(key.into(), value.into())
}

pub async fn commit(store: &SledStore, writes: impl IntoIterator<Item = Write>) {
    let batch = Batch::taking(writes.into_iter().collect());
    store.commit(batch).await.unwrap();
}

pub async fn contents(store: &SledStore) -> BTreeMap<Vec<u8>, Vec<u8>> {
    store
        .scan(vec![], None, usize::MAX)
        .await
        .unwrap()
        .into_iter()
        .collect()
}

/// Numbers that look random and are the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}
