//! Starting and stopping: what is refused, what is remembered.

use std::{fs, path::Path};

use freehold::{
    domain::secret::Secret,
    ports::store::{Batch, Store as _, StoreError},
    store::{OpenError, SledStore, WrongCluster, sealed::Place},
};

use super::setting::{commit, options, put};

#[tokio::test]
async fn each_start_raises_the_epoch_and_tells_how_the_one_before_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let first = SledStore::open(options(&path)).unwrap();
    assert_eq!((first.epoch, first.recovery.unclean), (1, false));
    commit(&first.store, [put("a", "1")]).await;
    first.store.close().await.unwrap();

    let second = SledStore::open(options(&path)).unwrap();
    assert_eq!((second.epoch, second.recovery.unclean), (2, false));
    assert_eq!(second.recovery.unacknowledged_commits, 0);
    // Dropped without a word: the thread ends and lets the directory go.
    drop(second);
    let third = loop {
        match SledStore::open(options(&path)) {
            Ok(opened) => break opened,
            Err(OpenError::Locked { .. }) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!((third.epoch, third.recovery.unclean), (3, true));
    assert_eq!(third.recovery.dropped_records, 0);
    assert_eq!(third.store.get(b"a".to_vec()).await.unwrap(), Some(b"1".to_vec()));
}

#[tokio::test]
async fn a_closed_store_answers_that_it_has_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(options(&directory.path().join("store")))
        .unwrap()
        .store;
    store.close().await.unwrap();
    for error in [
        store.commit(Batch::default()).await.unwrap_err(),
        store.get(b"a".to_vec()).await.unwrap_err(),
        store.close().await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_loses_nothing_it_took() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(&directory.path().join("store"));
    options.queue = 8;
    let store = SledStore::open(options).unwrap().store;
    let answers: Vec<_> = (0..2000)
        .map(|number| store.commit(Batch::taking(vec![put(format!("{number:04}"), "x")])))
        .collect();
    let mut taken = Vec::new();
    for (number, answer) in answers.into_iter().enumerate() {
        match answer.await {
            Ok(()) => taken.push(format!("{number:04}").into_bytes()),
            Err(StoreError::Unavailable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(taken.len() < 2000);
    let there: Vec<_> = super::setting::contents(&store).await.into_keys().collect();
    assert_eq!(there, taken);
}

#[test]
fn a_directory_that_cannot_be_used_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below"), "/proc/freehold-store".into()] {
        let error = SledStore::open(options(&path)).unwrap_err();
        assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(path.to_str().unwrap()) && text.contains("store.path"),
            "{text}"
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
}

#[tokio::test]
async fn another_cluster_is_refused_with_both_names_until_it_is_rebound() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = SledStore::open(options(&path)).unwrap().store;
    store.bind_cluster("uid-1", "berlin").await.unwrap();
    store.bind_cluster("uid-1", "berlin, renamed").await.unwrap();
    store.close().await.unwrap();

    let store = SledStore::open(options(&path)).unwrap().store;
    let error = store.bind_cluster("uid-2", "paris").await.unwrap_err();
    assert!(matches!(error, WrongCluster::Other { .. }));
    let text = error.to_string();
    for part in ["uid-1", "berlin", "uid-2", "paris", "rebind"] {
        assert!(text.contains(part), "{text}");
    }
    let previous = store.rebind_cluster("uid-2", "paris").await.unwrap();
    assert_eq!(previous.unwrap().uid, "uid-1");
    store.bind_cluster("uid-2", "paris").await.unwrap();
    store.bind_cluster("uid-1", "berlin").await.unwrap_err();
}

#[tokio::test]
async fn a_sealed_store_opens_only_with_its_key_and_nothing_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let key_file = directory.path().join("store.key");
    let place = Place {
        kind: "token",
        key: b"token/a",
    };
    let opened = SledStore::open(options(&path)).unwrap();
    let secret = Secret::new("hunter2".into());
    let sealed = opened.sealer.unwrap().seal(&secret, place).unwrap();
    opened.store.close().await.unwrap();
    let key = fs::read(&key_file).unwrap();
    assert!(!contains(&path, &key));

    fs::rename(&key_file, directory.path().join("elsewhere")).unwrap();
    let error = SledStore::open(options(&path)).unwrap_err();
    assert!(error.to_string().contains(key_file.to_str().unwrap()), "{error}");
    assert!(!key_file.exists(), "a new key was made for a sealed store");

    let mut other = options(&directory.path().join("other"));
    other.key_file = Some(key_file.clone());
    SledStore::open(other).unwrap();
    let error = SledStore::open(options(&path)).unwrap_err();
    assert!(matches!(error, OpenError::Key(_)), "{error}");

    fs::rename(directory.path().join("elsewhere"), &key_file).unwrap();
    let opened = SledStore::open(options(&path)).unwrap();
    assert_eq!(opened.sealer.unwrap().unseal(&sealed, place).unwrap(), secret);
}

fn contains(directory: &Path, needle: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let entry = entry.unwrap().path();
        if entry.is_dir() {
            contains(&entry, needle)
        } else {
            fs::read(&entry)
                .unwrap()
                .windows(needle.len())
                .any(|window| window == needle)
        }
    })
}
