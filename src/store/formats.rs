//! Formats and versions: older stores are brought up, newer ones are left alone.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use super::{
    OpenError, Opened, Options, SledStore, backup,
    directory::{Format, FormatFile, bytes_below, read_format, write_format},
    migrate::{FORMATS, Formats},
    open::{MakeOpener, open_with},
    sled_backend::SledOpener,
};
use crate::ports::{
    clock::SystemClock,
    store::{Batch, Pair, Store as _, Write},
};

/// A later release: format 2 puts a year before every caller's key, format 3 drops what is empty.
const LATER: Formats = Formats {
    current: 3,
    steps: &[(1, year_first), (2, nothing_empty)],
};

fn year_first(key: &[u8], value: &[u8]) -> Result<Vec<Pair>, String> {
    if key.starts_with(b"\0") {
        return Ok(vec![(key.to_vec(), value.to_vec())]);
    }
    Ok(vec![([b"2030/", key].concat(), value.to_vec())])
}

fn nothing_empty(key: &[u8], value: &[u8]) -> Result<Vec<Pair>, String> {
    match value {
        b"" => Ok(vec![]),
        b"broken" => Err("it cannot be understood".into()),
        _ => Ok(vec![(key.to_vec(), value.to_vec())]),
    }
}

fn options(path: &Path) -> Options {
    let mut options = Options::at(path, Arc::new(SystemClock::start()));
    options.min_free = 0;
    options.key_file = None;
    options
}

fn open_as(path: &Path, formats: Formats) -> Result<Opened, OpenError> {
    let make: MakeOpener = Box::new(|directory| {
        Box::new(SledOpener {
            directory: directory.to_owned(),
        })
    });
    open_with(options(path), make, formats)
}

async fn fill(store: &SledStore, pairs: &[(&str, &str)]) {
    let writes = pairs
        .iter()
        .map(|(key, value)| Write::Put((*key).into(), (*value).into()));
    store.commit(Batch::taking(writes.collect())).await.unwrap();
}

async fn contents(store: &SledStore) -> BTreeMap<String, String> {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let pairs = store.scan(vec![], None, 10_000).await.unwrap();
    pairs
        .into_iter()
        .map(|(key, value)| (text(key), text(value)))
        .collect()
}

fn listing(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            for (below, bytes) in listing(&entry.path()) {
                files.insert(format!("{name}/{below}"), bytes);
            }
        } else {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    files
}

#[tokio::test]
async fn an_older_store_is_backed_up_and_brought_up_through_every_format() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let opened = open_as(&path, FORMATS).unwrap();
    fill(
        &opened.store,
        &[("lease/a", "1"), ("lease/b", ""), ("node/c", "3")],
    )
    .await;
    opened.store.close().await.unwrap();

    let opened = open_as(&path, LATER).unwrap();
    assert_eq!(opened.recovery.migrated_from, Some(1));
    assert_eq!(opened.epoch, 2);
    let expected: BTreeMap<_, _> = [("2030/lease/a", "1"), ("2030/node/c", "3")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    assert_eq!(contents(&opened.store).await, expected);
    opened.store.close().await.unwrap();
    assert!(!path.join("sled-1").exists());

    let again = open_as(&path, LATER).unwrap();
    assert_eq!(again.recovery.migrated_from, None);
    assert_eq!(contents(&again.store).await, expected);
    again.store.close().await.unwrap();

    // The backup of before is a store of format 1 again.
    let file = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "backup"))
        .unwrap();
    let restored = directory.path().join("restored");
    assert_eq!(backup::restore(&file, &restored).unwrap().format, 1);
    let opened = open_as(&restored, FORMATS).unwrap();
    assert_eq!(contents(&opened.store).await.len(), 3);
}

#[tokio::test]
async fn a_failed_migration_leaves_the_store_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let opened = open_as(&path, FORMATS).unwrap();
    fill(&opened.store, &[("lease/a", "1"), ("lease/b", "broken")]).await;
    opened.store.close().await.unwrap();
    for _ in 0..2 {
        let error = open_as(&path, LATER).unwrap_err();
        assert!(
            matches!(error, OpenError::Migration { from: 1, to: 3, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("lease/b"), "{error}");
    }
    let opened = open_as(&path, FORMATS).unwrap();
    assert_eq!(contents(&opened.store).await.len(), 2);
}

#[tokio::test]
async fn a_newer_store_is_refused_and_no_byte_of_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let opened = open_as(&path, FORMATS).unwrap();
    fill(&opened.store, &[("lease/a", "1")]).await;
    opened.store.close().await.unwrap();
    let FormatFile::Found(format) = read_format(&path).unwrap() else {
        panic!("no format");
    };
    let newer = Format {
        format: 2,
        written_by: "9.8.7".into(),
        ..format
    };
    write_format(&path, &newer).unwrap();
    let before = listing(&path);
    let error = SledStore::open(options(&path)).unwrap_err();
    assert!(matches!(
        error,
        OpenError::NewerFormat {
            found: 2,
            known: 1,
            ..
        }
    ));
    assert!(error.to_string().contains("9.8.7"), "{error}");
    assert!(listing(&path) == before);
}

#[tokio::test]
async fn a_newer_record_stops_the_start_and_names_the_release_that_wrote_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let opened = open_as(&path, FORMATS).unwrap();
    let record = b"FH\x05lease\0\0\0\x07{}".to_vec();
    let write = Write::Put(b"lease/a".to_vec(), record);
    opened.store.commit(Batch::taking(vec![write])).await.unwrap();
    opened.store.close().await.unwrap();
    let mut older = options(&path);
    older.known_records = vec![("lease", 6)];
    let error = SledStore::open(older).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::NewerRecord {
                found: 7,
                known: 6,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains(crate::VERSION), "{error}");
    let mut same = options(&path);
    same.known_records = vec![("lease", 7)];
    SledStore::open(same).unwrap();
}

#[tokio::test]
async fn the_present_format_has_a_fixture() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store");
    let directory = tempfile::tempdir().unwrap();
    let opened = open_as(directory.path(), FORMATS).unwrap();
    fill(
        &opened.store,
        &[("fixture/a", "1"), ("fixture/b", "2"), ("fixture/c", "3")],
    )
    .await;
    let uid = "11111111-2222-3333-4444-555555555555";
    opened.store.bind_cluster(uid, "embedded").await.unwrap();
    let file = fixtures.join(format!("format-{}.backup", FORMATS.current));
    if std::env::var_os("FREEHOLD_WRITE_FIXTURES").is_some() {
        backup::write_backup(opened.store.backup_stream(), &file)
            .await
            .unwrap();
    }
    backup::verify_backup(&file)
        .expect("run FREEHOLD_WRITE_FIXTURES=1 cargo test --lib formats, once, when a format is new");
}

/// Each format this program ever wrote is a file here; every release must read them all.
#[tokio::test]
async fn a_store_of_each_earlier_format_can_be_read() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store");
    for format in 1..=FORMATS.current {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let header = backup::restore(&fixtures.join(format!("format-{format}.backup")), &path).unwrap();
        assert_eq!(header.format, format);
        let opened = SledStore::open(options(&path)).unwrap();
        let known = opened.store.scan(b"fixture/".to_vec(), None, 10).await.unwrap();
        assert_eq!(known.len(), 3, "format {format}");
        let cluster = opened.store.cluster().await.unwrap().unwrap();
        assert_eq!(cluster.uid, "11111111-2222-3333-4444-555555555555");
    }
}

#[tokio::test]
async fn a_log_that_is_mostly_empty_is_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let opened = open_as(&path, FORMATS).unwrap();
    for round in 0..40 {
        let writes = (0..100).map(|n| Write::Put(format!("k{n}").into(), vec![round; 1000]));
        opened
            .store
            .commit(Batch::taking(writes.collect()))
            .await
            .unwrap();
    }
    let deletes = (1..100).map(|n| Write::Delete(format!("k{n}").into()));
    let deletes = Batch::giving_back(deletes.collect());
    opened.store.commit(deletes).await.unwrap();
    opened.store.close().await.unwrap();
    let large = bytes_below(&path);

    let mut small = options(&path);
    small.compact_above = 100_000;
    let opened = SledStore::open(small).unwrap();
    assert!(opened.recovery.compacted);
    assert_eq!(
        opened.store.get(b"k0".to_vec()).await.unwrap(),
        Some(vec![39; 1000])
    );
    assert_eq!(contents(&opened.store).await.len(), 1);
    opened.store.close().await.unwrap();
    assert!(
        bytes_below(&path) < large / 2,
        "{} of {large}",
        bytes_below(&path)
    );
    let opened = SledStore::open(options(&path)).unwrap();
    assert_eq!(opened.epoch, 3);
}
