//! A disk that fails when told to, between the store's thread and sled.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;

use super::{
    backend::{Backend, BackendError, From, Most, Opener},
    layout::RawWrite,
    migrate::FORMATS,
    open::{MakeOpener, Opened, open_with},
    open_error::OpenError,
    options::Options,
    sled_backend::SledOpener,
};
use crate::ports::store::Pair;

/// Where the disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Before anything is applied.
    Apply,
    /// Applied, but not handed on.
    Flush,
    /// Handed on, but not durable.
    Sync,
    /// On reading.
    Get,
}

/// Which faults are to come, shared between a test and the disk.
#[derive(Debug, Default)]
pub(super) struct Faults {
    next: Mutex<Option<(At, u32, &'static str)>>,
    refuse_open: Mutex<u32>,
    log: Mutex<Vec<&'static str>>,
}

impl Faults {
    pub fn fail(&self, at: At, times: u32, message: &'static str) {
        *self.next.lock() = Some((at, times, message));
    }

    pub fn refuse_open(&self, times: u32) {
        *self.refuse_open.lock() = times;
    }

    /// What the disk was asked, in order.
    pub fn log(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.log.lock())
    }

    fn hit(&self, at: At) -> Result<(), BackendError> {
        let mut next = self.next.lock();
        match next.as_mut() {
            Some((when, times, message)) if *when == at => {
                let error = BackendError::Broken((*message).to_owned());
                *times -= 1;
                if *times == 0 {
                    *next = None;
                }
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn note(&self, what: &'static str) {
        self.log.lock().push(what);
    }
}

/// Opens a store on a disk with faults.
pub(super) fn open_faulty(options: Options, faults: &Arc<Faults>) -> Result<Opened, OpenError> {
    let faults = Arc::clone(faults);
    let make: MakeOpener = Box::new(move |directory: &Path| {
        Box::new(FaultyOpener {
            inner: SledOpener {
                directory: directory.to_owned(),
            },
            faults: Arc::clone(&faults),
        })
    });
    open_with(options, make, FORMATS)
}

#[derive(Debug)]
struct FaultyOpener {
    inner: SledOpener,
    faults: Arc<Faults>,
}

impl Opener for FaultyOpener {
    fn open(&mut self) -> Result<Box<dyn Backend>, BackendError> {
        let mut refuse = self.faults.refuse_open.lock();
        if *refuse > 0 {
            *refuse -= 1;
            return Err(BackendError::Refused("No space left on device".into()));
        }
        self.faults.note("open");
        Ok(Box::new(FaultyBackend {
            inner: self.inner.open()?,
            faults: Arc::clone(&self.faults),
        }))
    }
}

#[derive(Debug)]
struct FaultyBackend {
    inner: Box<dyn Backend>,
    faults: Arc<Faults>,
}

impl Backend for FaultyBackend {
    fn apply(&mut self, writes: &[RawWrite]) -> Result<(), BackendError> {
        self.faults.note("apply");
        self.faults.hit(At::Apply)?;
        self.inner.apply(writes)
    }

    fn flush(&mut self) -> Result<(), BackendError> {
        self.faults.note("flush");
        self.faults.hit(At::Flush)?;
        self.inner.flush()
    }

    fn sync(&mut self) -> Result<(), BackendError> {
        self.faults.note("sync");
        self.faults.hit(At::Sync)?;
        self.inner.sync()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BackendError> {
        self.faults.hit(At::Get)?;
        self.inner.get(key)
    }

    fn range(&self, from: From<'_>, most: Most) -> Result<Vec<Pair>, BackendError> {
        self.inner.range(from, most)
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn close(self: Box<Self>) -> Result<(), BackendError> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::ports::{
        clock::SystemClock,
        store::{Batch, Store as _, StoreError, Write},
    };

    fn options(directory: &TempDir) -> Options {
        let mut options = Options::at(directory.path().join("store"), Arc::new(SystemClock::start()));
        options.min_free = 0;
        options
    }

    fn put(key: &str, value: &str) -> Batch {
        Batch::taking(vec![Write::Put(key.into(), value.into())])
    }

    async fn until_rebuilt(store: &super::super::SledStore, count: u64) {
        let mut rebuilds = store.rebuilds();
        tokio::time::timeout(Duration::from_secs(20), rebuilds.wait_for(|seen| *seen >= count))
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn a_failure_at_any_step_of_a_commit_leaves_exactly_what_was_acknowledged() {
        for (at, message) in [
            (At::Apply, "No space left on device"),
            (At::Flush, "Input/output error"),
            (At::Sync, "Input/output error"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let faults = Arc::new(Faults::default());
            let store = open_faulty(options(&directory), &faults).unwrap().store;
            store.commit(put("a", "1")).await.unwrap();
            store.commit(put("b", "1")).await.unwrap();

            faults.fail(at, 1, message);
            let failed = Batch::taking(vec![
                Write::Put("a".into(), "2".into()),
                Write::Delete("b".into()),
                Write::Put("c".into(), "2".into()),
            ]);
            let error = store.commit(failed).await.unwrap_err();
            assert_eq!(
                error,
                StoreError::Flush {
                    reason: message.into()
                }
            );
            until_rebuilt(&store, 1).await;
            assert!(store.health().healthy);
            let pairs = store.scan(vec![], None, 10).await.unwrap();
            assert_eq!(
                pairs,
                [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"1".to_vec())],
                "after a failure at {at:?}"
            );

            store.commit(put("d", "3")).await.unwrap();
            store.close().await.unwrap();
            let store = open_faulty(options(&directory), &faults).unwrap().store;
            let keys: Vec<_> = store
                .scan(vec![], None, 10)
                .await
                .unwrap()
                .into_iter()
                .map(|(key, _)| key)
                .collect();
            assert_eq!(keys, [b"a".to_vec(), b"b".to_vec(), b"d".to_vec()]);
        }
    }

    #[tokio::test]
    async fn a_record_that_vanished_or_is_an_old_one_is_noticed_though_sled_is_content() {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let data = directory.path().join("store/sled-1");
        let store = open_faulty(options(&directory), &faults).unwrap().store;
        store.commit(put("a", "1")).await.unwrap();
        store.commit(put("b", "1")).await.unwrap();
        store.close().await.unwrap();
        let old = super::super::layout::wrap(b"a", b"0");
        for behind_its_back in [(b"b".to_vec(), None), (b"a".to_vec(), Some(old))] {
            let copy = tempfile::tempdir().unwrap();
            super::super::directory::copy_directory(&data, copy.path()).unwrap();
            let mut backend = SledOpener {
                directory: data.clone(),
            }
            .open()
            .unwrap();
            backend.apply(&[behind_its_back]).unwrap();
            backend.flush().unwrap();
            backend.close().unwrap();
            let error = open_faulty(options(&directory), &faults).unwrap_err();
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
            std::fs::remove_dir_all(&data).unwrap();
            super::super::directory::copy_directory(copy.path(), &data).unwrap();
        }
        open_faulty(options(&directory), &faults).unwrap();
    }

    #[tokio::test]
    async fn a_full_disk_at_the_start_is_not_called_damage() {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let store = open_faulty(options(&directory), &faults).unwrap().store;
        store.close().await.unwrap();
        faults.refuse_open(1);
        let error = open_faulty(options(&directory), &faults).unwrap_err();
        assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
        open_faulty(options(&directory), &faults).unwrap();
    }

    #[tokio::test]
    async fn a_full_disk_is_waited_out_without_a_restart_and_nothing_is_acknowledged_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let store = open_faulty(options(&directory), &faults).unwrap().store;
        store.commit(put("a", "1")).await.unwrap();
        faults.refuse_open(4);
        faults.fail(At::Sync, 1, "No space left on device");
        store.commit(put("a", "2")).await.unwrap_err();
        let mut refused = 0;
        while !store.health().healthy {
            match store.commit(put("x", "1")).await {
                Err(StoreError::Unavailable { .. }) => refused += 1,
                Ok(()) => assert_eq!(*store.rebuilds().borrow(), 1),
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused > 0);
        until_rebuilt(&store, 1).await;
        assert_eq!(store.get(b"a".to_vec()).await.unwrap(), Some(b"1".to_vec()));
        store.commit(put("a", "3")).await.unwrap();
    }

    #[tokio::test]
    async fn a_read_that_fails_has_everything_checked_again() {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let store = open_faulty(options(&directory), &faults).unwrap().store;
        store.commit(put("a", "1")).await.unwrap();
        faults.fail(At::Get, 1, "Input/output error");
        let error = store.get(b"a".to_vec()).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        until_rebuilt(&store, 1).await;
        assert_eq!(store.get(b"a".to_vec()).await.unwrap(), Some(b"1".to_vec()));
    }

    #[tokio::test]
    async fn everything_that_waits_is_made_durable_by_one_flush_before_anyone_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let store = open_faulty(options(&directory), &faults).unwrap().store;
        faults.log();
        let answers: Vec<_> = (0..500)
            .map(|number| store.commit(put(&format!("k{number}"), "1")))
            .collect();
        futures::future::try_join_all(answers).await.unwrap();
        let log = faults.log();
        let count = |what| log.iter().filter(|seen| **seen == what).count();
        assert!(count("sync") < 250, "{} syncs for 500 commits", count("sync"));
        assert_eq!(count("apply"), count("sync"));
        for step in log.chunks(3) {
            assert_eq!(step, ["apply", "flush", "sync"]);
        }
    }

    #[tokio::test]
    async fn a_backup_under_way_when_a_commit_fails_ends_with_an_error() {
        use futures::StreamExt as _;

        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let store = open_faulty(options(&directory), &faults).unwrap().store;
        let writes = (0..1000).map(|n| Write::Put(format!("k{n}").into(), vec![7; 100]));
        store.commit(Batch::taking(writes.collect())).await.unwrap();
        let mut backup = store.backup_stream();
        backup.next().await.unwrap().unwrap();
        backup.next().await.unwrap().unwrap();
        faults.fail(At::Sync, 1, "Input/output error");
        store.commit(put("a", "2")).await.unwrap_err();
        until_rebuilt(&store, 1).await;
        let rest: Vec<_> = backup.collect().await;
        assert!(rest.last().unwrap().is_err());
    }
}
