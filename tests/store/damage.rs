//! Files that are cut, flipped, zeroed or gone: the start is refused with everything as it was found, or everything acknowledged
//! is there. Never something else, never a panic.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use freehold::store::{OpenError, SledStore};

use super::setting::{Dice, commit, contents, fast_directory, options, put, scale};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A store of a few hundred records over several segments of sled's log, some overwritten and removed,
/// after two processes.
async fn small_store(path: &Path) -> Contents {
    let store = SledStore::open(options(path)).unwrap().store;
    for number in 0..900_u32 {
        let value = vec![number.to_le_bytes()[0]; 50 + usize::try_from(number / 300).unwrap() * 900];
        commit(&store, [put(format!("a/{:04}", number % 400), value)]).await;
    }
    store.close().await.unwrap();
    let store = SledStore::open(options(path)).unwrap().store;
    for number in 0..60_u32 {
        let key = format!("a/{:04}", number * 5).into_bytes();
        let removed = freehold::ports::store::Write::Delete(key);
        commit(&store, [put(format!("b/{number}"), "new"), removed]).await;
    }
    let there = contents(&store).await;
    store.close().await.unwrap();
    there
}

fn files(path: &Path) -> Files {
    let mut found = Files::new();
    let mut directories = vec![path.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap().path();
            if entry.is_dir() {
                directories.push(entry);
            } else {
                let bytes = fs::read(&entry).unwrap();
                found.insert(entry.strip_prefix(path).unwrap().to_path_buf(), bytes);
            }
        }
    }
    found
}

fn write_files(path: &Path, files: &Files) {
    let _ = fs::remove_dir_all(path);
    fs::create_dir_all(path.join("sled-1/blobs")).unwrap();
    for (name, bytes) in files {
        fs::write(path.join(name), bytes).unwrap();
    }
}

/// Opens a damaged store and judges the outcome.
async fn judge(path: &Path, damaged: &Files, expected: &Contents, what: &str) -> bool {
    write_files(path, damaged);
    let mut options = options(path);
    options.key_file = None;
    let opened = match SledStore::open(options) {
        Ok(opened) => opened,
        Err(error) => {
            let kept = matches!(
                error,
                OpenError::Damaged { .. } | OpenError::Lost { .. } | OpenError::BadFormatFile { .. }
            );
            assert!(kept, "{what}: {error}");
            if let OpenError::Damaged { evidence, .. } | OpenError::Lost { evidence, .. } = &error {
                assert!(evidence.is_dir(), "{what}: no evidence at {}", evidence.display());
            }
            let after = files(path);
            for (name, bytes) in damaged {
                if name != Path::new("LOCK") {
                    assert!(
                        after.get(name) == Some(bytes),
                        "{what}: {} changed",
                        name.display()
                    );
                }
            }
            return false;
        }
    };
    let there = contents(&opened.store).await;
    assert!(there == *expected, "{what}: a wrong answer");
    // It must also be good for more.
    commit(&opened.store, [put("more", "1")]).await;
    opened.store.close().await.unwrap();
    true
}

async fn prepared() -> (tempfile::TempDir, PathBuf, Files, Contents) {
    let directory = fast_directory();
    let path = directory.path().join("store");
    let expected = small_store(&path).await;
    let good = files(&path);
    (directory, path, good, expected)
}

/// The file names that matter, and how many bytes of each are in use.
fn targets(good: &Files) -> Vec<(PathBuf, usize)> {
    good.iter()
        .filter(|(name, _)| *name != Path::new("LOCK"))
        .map(|(name, bytes)| {
            let used = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1);
            (name.clone(), used)
        })
        .collect()
}

#[tokio::test]
async fn a_flipped_byte_anywhere_is_noticed_or_harmless() {
    let (_directory, path, good, expected) = prepared().await;
    assert!(judge(&path, &good, &expected, "untouched").await);
    let mut dice = Dice(7);
    let mut refused = 0_u32;
    for (name, used) in targets(&good) {
        let every = used < scale(80, 100_000);
        let positions: Vec<usize> = if every {
            (0..used).collect()
        } else {
            let rolls = scale(120, 20_000);
            (0..rolls)
                .map(|_| usize::try_from(dice.roll(used as u64)).unwrap())
                .collect()
        };
        for position in positions {
            let mut damaged = good.clone();
            let bit = 1 << dice.roll(8);
            damaged.get_mut(&name).unwrap()[position] ^= bit;
            let what = format!("bit {bit:#x} of byte {position} of {} flipped", name.display());
            refused += u32::from(!judge(&path, &damaged, &expected, &what).await);
        }
    }
    assert!(refused > 0, "no flip was ever noticed");
}

#[tokio::test]
async fn a_file_cut_anywhere_is_noticed_or_harmless() {
    let (_directory, path, good, expected) = prepared().await;
    let mut dice = Dice(11);
    let mut refused = 0_u32;
    for (name, used) in targets(&good) {
        let mut lengths = vec![0, used / 2, used.saturating_sub(1)];
        for _ in 0..scale(25, 5_000) {
            lengths.push(usize::try_from(dice.roll(used as u64)).unwrap());
        }
        for length in lengths {
            let mut damaged = good.clone();
            damaged.get_mut(&name).unwrap().truncate(length);
            let what = format!("{} cut to {length} bytes", name.display());
            refused += u32::from(!judge(&path, &damaged, &expected, &what).await);
        }
    }
    assert!(refused > 0, "no cut was ever noticed");
}

#[tokio::test]
async fn a_zeroed_page_anywhere_is_noticed_or_harmless() {
    const PAGE: usize = 4096;
    let (_directory, path, good, expected) = prepared().await;
    for (name, used) in targets(&good) {
        let step = scale(used / 12 / PAGE, 1).max(1);
        for page in (0..used.div_ceil(PAGE)).step_by(step) {
            let mut damaged = good.clone();
            let bytes = damaged.get_mut(&name).unwrap();
            let end = (page * PAGE + PAGE).min(bytes.len());
            bytes[page * PAGE..end].fill(0);
            let what = format!("page {page} of {} zeroed", name.display());
            judge(&path, &damaged, &expected, &what).await;
        }
    }
}

#[tokio::test]
async fn a_file_that_is_gone_is_noticed_or_harmless() {
    let (_directory, path, good, expected) = prepared().await;
    for (name, _) in targets(&good) {
        let mut damaged = good.clone();
        damaged.remove(&name);
        let opened = judge(&path, &damaged, &expected, &format!("{} gone", name.display())).await;
        if name == Path::new("FORMAT") || name.ends_with("db") {
            assert!(!opened, "{} is gone and it was opened", name.display());
        }
    }
    let mut without_data = good.clone();
    without_data.retain(|name, _| !name.starts_with("sled-1"));
    write_files(&path, &without_data);
    fs::remove_dir_all(path.join("sled-1")).unwrap();
    let error = SledStore::open(options(&path)).unwrap_err();
    assert!(matches!(error, OpenError::Lost { found: 0, .. }), "{error}");
}

#[tokio::test]
async fn an_empty_snapshot_is_set_aside_and_the_log_holds_everything() {
    let (_directory, path, mut good, expected) = prepared().await;
    let snapshot = good
        .keys()
        .find(|name| name.to_string_lossy().contains("snap."))
        .cloned()
        .unwrap();
    good.insert(snapshot, Vec::new());
    write_files(&path, &good);
    let opened = SledStore::open(options(&path)).unwrap();
    let evidence = opened.recovery.evidence.unwrap();
    assert!(evidence.is_dir());
    assert!(contents(&opened.store).await == expected);
}

#[tokio::test]
async fn an_older_copy_of_the_log_is_not_taken_for_the_present_one() {
    let directory = fast_directory();
    let path = directory.path().join("store");
    let store = SledStore::open(options(&path)).unwrap().store;
    commit(&store, [put("a", "1")]).await;
    store.close().await.unwrap();
    let old = files(&path);
    let store = SledStore::open(options(&path)).unwrap().store;
    commit(&store, [put("a", "2")]).await;
    store.close().await.unwrap();
    let mut mixed = files(&path);
    for (name, bytes) in &old {
        if name.starts_with("sled-1") {
            mixed.insert(name.clone(), bytes.clone());
        }
    }
    mixed.retain(|name, _| !name.starts_with("sled-1") || old.contains_key(name));
    write_files(&path, &mixed);
    let error = SledStore::open(options(&path)).unwrap_err();
    assert!(matches!(error, OpenError::Lost { .. }), "{error}");
}
