//! Nothing written is lost, nothing torn is believed, nothing damaged is guessed.

use std::{fs, path::PathBuf};

use serde_json::json;

use super::*;
use crate::{
    ports::clock::SystemClock,
    sim::objects::{Deletion, Objects, ObjectsOptions},
};

const THINGS: Resource = Resource::new("", "configmaps");

fn options() -> ObjectsOptions {
    ObjectsOptions {
        clock: Arc::new(SystemClock::start()),
        history: 1000,
        uid_seed: 1,
    }
}

fn thing(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "data": {"name": name}})
}

/// Writes the changes of `action` into the directory.
fn record(journal: &mut Journal, objects: &Objects, action: impl FnOnce(&Objects)) {
    let mut cursor = objects.cursor(None, None).unwrap();
    action(objects);
    journal.append(&cursor.read().unwrap()).unwrap();
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot
        .objects
        .iter()
        .map(|(_, object)| Key::of(object).name)
        .collect()
}

fn journal_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.to_str().unwrap().contains("journal."))
        .collect();
    files.sort();
    files
}

/// A directory with five things made, one of them changed and one deleted.
fn sample(directory: &Path, close: bool) -> Objects {
    let (mut journal, loaded) = Journal::open(directory).unwrap();
    assert!(loaded.is_none());
    let objects = Objects::new(options());
    record(&mut journal, &objects, |objects| {
        for number in 0..5 {
            objects.create(&THINGS, thing(&format!("t{number}"))).unwrap();
        }
        objects
            .modify(&THINGS, "default", "t3", |object| {
                object["data"]["more"] = json!("yes");
                Ok(())
            })
            .unwrap();
        objects.delete(&THINGS, "default", "t4", Deletion::now()).unwrap();
    });
    if close {
        journal.close().unwrap();
    }
    objects
}

#[tokio::test]
async fn objects_come_back_with_their_uids_and_revisions() {
    let directory = tempfile::tempdir().unwrap();
    let before = sample(directory.path(), true).snapshot();
    let (_, loaded) = Journal::open(directory.path()).unwrap();
    let loaded = loaded.unwrap();
    assert!(loaded.clean);
    assert_eq!(loaded.snapshot.revision, before.revision);
    assert_eq!(json!(loaded.snapshot.objects), json!(before.objects));
}

#[tokio::test]
async fn after_a_crash_no_revision_is_used_twice() {
    let directory = tempfile::tempdir().unwrap();
    let before = sample(directory.path(), false).revision();
    let (_, loaded) = Journal::open(directory.path()).unwrap();
    let loaded = loaded.unwrap();
    assert!(!loaded.clean);
    assert!(loaded.snapshot.revision > before + 1000);
}

#[tokio::test]
async fn a_journal_cut_at_any_byte_gives_a_prefix_of_what_was_written() {
    let source = tempfile::tempdir().unwrap();
    sample(source.path(), false);
    let bytes = fs::read(&journal_files(source.path())[0]).unwrap();
    let mut seen = 0;
    for length in 0..=bytes.len() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("journal.000001"), &bytes[..length]).unwrap();
        let (mut journal, loaded) =
            Journal::open(directory.path()).unwrap_or_else(|error| panic!("cut at {length}: {error}"));
        let count = loaded.map_or(0, |loaded| {
            let names = names(&loaded.snapshot);
            let expected: Vec<String> = (0..names.len()).map(|number| format!("t{number}")).collect();
            assert_eq!(names, expected, "cut at {length}");
            names.len()
        });
        assert!(
            count >= seen || length == bytes.len(),
            "cut at {length} forgets what a shorter cut knew"
        );
        seen = count;
        // What comes after the cut is kept.
        let objects = Objects::new(options());
        record(&mut journal, &objects, |objects| {
            objects.create(&THINGS, thing("after")).unwrap();
        });
        drop(journal);
        let (_, again) = Journal::open(directory.path()).unwrap();
        assert!(
            names(&again.unwrap().snapshot).contains(&"after".to_owned()),
            "cut at {length}"
        );
    }
    assert_eq!(seen, 4);
}

#[tokio::test]
async fn a_flipped_byte_in_the_middle_is_refused_and_names_the_way_out() {
    let source = tempfile::tempdir().unwrap();
    sample(source.path(), true);
    let bytes = fs::read(&journal_files(source.path())[0]).unwrap();
    for place in (0..bytes.len() - 400).step_by(7) {
        let directory = tempfile::tempdir().unwrap();
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x41;
        fs::write(directory.path().join("journal.000001"), &damaged).unwrap();
        let error = Journal::open(directory.path()).unwrap_err();
        assert!(
            matches!(error, JournalError::Damaged { .. }),
            "byte {place}: {error}"
        );
        assert!(error.to_string().contains("freehold embedded reset"));
        assert_eq!(
            fs::read(directory.path().join("journal.000001")).unwrap(),
            damaged,
            "the evidence is kept"
        );
    }
}

#[tokio::test]
async fn a_snapshot_replaces_the_journals_before_it_and_a_crash_in_between_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(directory.path()).unwrap();
    let objects = Objects::new(options());
    record(&mut journal, &objects, |objects| {
        objects.create(&THINGS, thing("old")).unwrap();
        objects.create(&THINGS, thing("going")).unwrap();
    });
    let compaction = journal.begin_compaction(objects.snapshot()).unwrap();
    record(&mut journal, &objects, |objects| {
        objects.create(&THINGS, thing("during")).unwrap();
        objects
            .delete(&THINGS, "default", "going", Deletion::now())
            .unwrap();
    });
    // Before the snapshot is there, the journals hold everything.
    let copy = tempfile::tempdir().unwrap();
    for file in journal_files(directory.path()) {
        fs::copy(&file, copy.path().join(file.file_name().unwrap())).unwrap();
    }
    let (_, loaded) = Journal::open(copy.path()).unwrap();
    assert_eq!(names(&loaded.unwrap().snapshot), ["during", "old"]);
    let size = compaction.write().unwrap();
    journal.compacted(size);
    assert_eq!(journal_files(directory.path()).len(), 1);
    journal.close().unwrap();
    let (journal, loaded) = Journal::open(directory.path()).unwrap();
    let loaded = loaded.unwrap();
    assert!(loaded.clean);
    assert_eq!(names(&loaded.snapshot), ["during", "old"]);
    assert_eq!(loaded.snapshot.revision, objects.revision());
    drop(journal);
    // A snapshot cut short is damage, whatever the journals say.
    let path = directory.path().join("snapshot");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    assert!(matches!(
        Journal::open(directory.path()),
        Err(JournalError::Damaged { .. })
    ));
    assert!(reset(directory.path()).unwrap());
    assert!(Journal::open(directory.path()).unwrap().1.is_none());
}

#[tokio::test]
async fn a_directory_has_one_user() {
    let directory = tempfile::tempdir().unwrap();
    let (_journal, _) = Journal::open(directory.path()).unwrap();
    assert!(matches!(
        Journal::open(directory.path()),
        Err(JournalError::Locked { .. })
    ));
    assert!(matches!(
        reset(directory.path()),
        Err(JournalError::Locked { .. })
    ));
}
