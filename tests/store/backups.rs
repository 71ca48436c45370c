//! Backups: taken while the store works, checked, and restored.

use std::fs;

use bytes::Bytes;
use freehold::{
    ports::store::Write,
    store::{
        SledStore,
        backup::{BackupError, restore, verify_backup, write_backup},
        info_of, verify_directory,
    },
};
use futures::StreamExt as _;

use super::setting::{Dice, commit, contents, options, put, scale};

#[tokio::test]
async fn a_backup_shows_one_moment_while_commits_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = SledStore::open(options(&path)).unwrap().store;
    // Moving money between accounts: the sum is the same at every moment.
    let key = |account: u64| format!("account/{account:04}");
    let accounts = 2000_u64;
    commit(&store, (0..accounts).map(|account| put(key(account), "1000"))).await;

    let mut chunks = store.backup_stream();
    let mut received = vec![chunks.next().await.unwrap()];
    let before = contents(&store).await;
    let mut dice = Dice(3);
    let mut round = 0_u64;
    while let Some(chunk) = chunks.next().await {
        received.push(chunk);
        for _ in 0..20 {
            round += 1;
            let from = dice.roll(accounts);
            commit(
                &store,
                [
                    put(key(from), "0"),
                    Write::Delete(key(dice.roll(accounts)).into_bytes()),
                    put(format!("account/new-{round}"), "5"),
                    put(format!("Account/{round}"), "5"),
                ],
            )
            .await;
        }
    }
    assert!(round > 100, "nothing changed meanwhile");
    let file = directory.path().join("backup");
    let header = write_backup(futures::stream::iter(received), &file)
        .await
        .unwrap();
    assert_eq!(header.records, accounts + 1);

    let restored_path = directory.path().join("restored");
    restore(&file, &restored_path).unwrap();
    let mut restored_options = options(&restored_path);
    restored_options.key_file = options(&path).key_file;
    let restored = SledStore::open(restored_options).unwrap();
    assert!(contents(&restored.store).await == before);
    assert_eq!(restored.epoch, 2);
    assert!(store.verify().await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn a_backup_with_any_byte_changed_or_missing_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(options(&directory.path().join("store")))
        .unwrap()
        .store;
    commit(&store, (0..20).map(|n| put(format!("k{n}"), vec![7; 30]))).await;
    let file = directory.path().join("backup");
    write_backup(store.backup_stream(), &file).await.unwrap();
    let good = fs::read(&file).unwrap();
    verify_backup(&file).unwrap();
    let bad = directory.path().join("bad");
    let into = directory.path().join("into");
    for position in 0..good.len() {
        let mut flipped = good.clone();
        flipped[position] ^= 0x10;
        fs::write(&bad, &flipped).unwrap();
        verify_backup(&bad).unwrap_err();
        fs::write(&bad, &good[..position]).unwrap();
        verify_backup(&bad).unwrap_err();
    }
    fs::write(&bad, [good.as_slice(), b"x"].concat()).unwrap();
    restore(&bad, &into).unwrap_err();
    assert!(!into.join("FORMAT").exists());
    restore(&file, &into).unwrap();
}

#[tokio::test]
async fn a_backup_that_breaks_off_leaves_no_file_and_none_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(options(&directory.path().join("store")))
        .unwrap()
        .store;
    let file = directory.path().join("backup");
    let mut chunks: Vec<Result<Bytes, String>> = store
        .backup_stream()
        .map(|chunk| chunk.map_err(|error| error.to_string()))
        .collect()
        .await;
    chunks.pop();
    let cut = futures::stream::iter(chunks.clone());
    let error = write_backup(cut, &file).await.unwrap_err();
    assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
    chunks.push(Err("the connection was reset".into()));
    let error = write_backup(futures::stream::iter(chunks), &file)
        .await
        .unwrap_err();
    assert!(matches!(error, BackupError::BrokeOff { .. }), "{error}");
    let names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("backup"))
        .collect();
    assert_eq!(names, Vec::<String>::new());

    write_backup(store.backup_stream(), &file).await.unwrap();
    let error = write_backup(store.backup_stream(), &file).await.unwrap_err();
    assert!(matches!(error, BackupError::Exists { .. }), "{error}");
}

#[tokio::test]
async fn restore_refuses_a_directory_that_holds_something_and_finishes_what_was_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(options(&directory.path().join("store")))
        .unwrap()
        .store;
    commit(&store, [put("a", "1")]).await;
    let file = directory.path().join("backup");
    write_backup(store.backup_stream(), &file).await.unwrap();

    let into = directory.path().join("into");
    fs::create_dir(&into).unwrap();
    fs::write(into.join("precious"), "x").unwrap();
    let error = restore(&file, &into).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
    fs::remove_file(into.join("precious")).unwrap();

    // An interrupted restore is not taken for a store, and can be done again.
    fs::create_dir(into.join("restored")).unwrap();
    fs::write(into.join("restored/db"), "half").unwrap();
    let mut half = options(&into);
    half.key_file = None;
    let error = SledStore::open(half.clone()).unwrap_err();
    assert!(error.to_string().contains("unfinished restore"), "{error}");
    restore(&file, &into).unwrap();
    let opened = SledStore::open(half).unwrap();
    assert_eq!(contents(&opened.store).await.len(), 1);
    restore(&file, &into).unwrap_err();
}

#[tokio::test]
async fn verify_and_info_tell_the_same_online_and_offline_and_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = SledStore::open(options(&path)).unwrap().store;
    let record = b"FH\x05lease\0\0\0\x01{}".to_vec();
    let records = scale(700, 50_000);
    commit(
        &store,
        (0..records).map(|n| put(format!("lease/{n}"), record.clone())),
    )
    .await;
    store.bind_cluster("uid", "berlin").await.unwrap();
    let online = store.info().await.unwrap();
    assert_eq!(online.records, records + 1);
    assert_eq!(online.records_by_kind["lease"], records);
    assert_eq!(online.cluster.as_ref().unwrap().name, "berlin");
    assert_eq!((online.format, online.epoch, online.healthy), (1, 1, true));
    assert_eq!(store.verify().await.unwrap().records, records + 1);
    let error = verify_directory(&path).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    store.close().await.unwrap();

    let db = fs::read(path.join("sled-1/db")).unwrap();
    let offline = info_of(&path).unwrap();
    assert_eq!(offline.records_by_kind, online.records_by_kind);
    assert_eq!(offline.cluster, online.cluster);
    let report = verify_directory(&path).unwrap();
    assert_eq!(report.records, records + 1);
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(fs::read(path.join("sled-1/db")).unwrap() == db);

    // The end of the log cut off is a problem that is told, not one that is mended in silence.
    let log = fs::OpenOptions::new()
        .write(true)
        .open(path.join("sled-1/db"))
        .unwrap();
    log.set_len(db.len() as u64 / 3).unwrap();
    assert_ne!(verify_directory(&path).unwrap().problems, Vec::<String>::new());
    let missing = directory.path().join("missing");
    assert!(verify_directory(&missing).is_err());
    assert!(!missing.exists());
}
