//! Files that are cut, flipped, zeroed or gone: the start is refused with everything as it was found, or everything acknowledged
//! is there. Never something else, never a panic.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use freehold::store::{OpenError, SledStore};
use serde::{Deserialize, Serialize};

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

/// One way to damage a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Damage {
    Flip { file: PathBuf, position: usize, bit: u8 },
    Cut { file: PathBuf, length: usize },
    Zero { file: PathBuf, from: usize, to: usize },
}

impl Damage {
    fn done_to(&self, good: &Files) -> Files {
        let mut files = good.clone();
        match self {
            Self::Flip { file, position, bit } => files.get_mut(file).unwrap()[*position] ^= bit,
            Self::Cut { file, length } => files.get_mut(file).unwrap().truncate(*length),
            Self::Zero { file, from, to } => files.get_mut(file).unwrap()[*from..*to].fill(0),
        }
        files
    }
}

#[derive(Serialize, Deserialize)]
struct Verdict {
    refused: u32,
    /// Whether the untouched store still opened at the end.
    sound: bool,
}

const WORK: &str = "FREEHOLD_TEST_DAMAGE";

/// Not a test of its own: a process that judges some of the damage. A panic in one of sled's threads leaves sled
/// broken for the rest of a process, so that everything after it would be refused without being judged.
#[tokio::test]
async fn a_child_that_judges_damage() {
    let Some(work) = std::env::var_os(WORK).map(PathBuf::from) else {
        return;
    };
    let plan: Vec<Damage> = serde_json::from_slice(&fs::read(work.join("plan")).unwrap()).unwrap();
    let expected: Vec<(Vec<u8>, Vec<u8>)> =
        serde_json::from_slice(&fs::read(work.join("expected")).unwrap()).unwrap();
    let expected = expected.into_iter().collect();
    let good = files(&work.join("good"));
    let path = work.join("store");
    let mut refused = 0;
    for damage in plan {
        let damaged = damage.done_to(&good);
        refused += u32::from(!judge(&path, &damaged, &expected, &format!("{damage:?}")).await);
    }
    let sound = judge(&path, &good, &expected, "untouched").await;
    let verdict = serde_json::to_vec(&Verdict { refused, sound }).unwrap();
    fs::write(work.join("verdict"), verdict).unwrap();
}

/// Has all of it judged; says how often the start was refused.
fn judge_all(work: &Path, good: &Files, expected: &Contents, plan: &[Damage]) -> u32 {
    write_files(&work.join("good"), good);
    let pairs: Vec<_> = expected.iter().collect();
    fs::write(work.join("expected"), serde_json::to_vec(&pairs).unwrap()).unwrap();
    plan.chunks(50)
        .map(|chunk| {
            let verdict = run_child(work, chunk);
            if verdict.sound {
                return verdict.refused;
            }
            // One of them broke sled: each in a process of its own.
            chunk
                .iter()
                .map(|damage| run_child(work, std::slice::from_ref(damage)).refused)
                .sum()
        })
        .sum()
}

fn run_child(work: &Path, plan: &[Damage]) -> Verdict {
    fs::write(work.join("plan"), serde_json::to_vec(plan).unwrap()).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "damage::a_child_that_judges_damage"])
        .env(WORK, work)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let noise = String::from_utf8_lossy(&output.stderr);
    assert!(!noise.contains("panicked"), "a panic was printed: {noise}");
    serde_json::from_slice(&fs::read(work.join("verdict")).unwrap()).unwrap()
}

#[tokio::test]
async fn a_flipped_byte_anywhere_is_noticed_or_harmless() {
    let (directory, path, good, expected) = prepared().await;
    assert!(judge(&path, &good, &expected, "untouched").await);
    let mut dice = Dice(7);
    let mut plan = Vec::new();
    for (file, used) in targets(&good) {
        let every = used < scale(80, 4_000);
        let count = if every { used } else { scale(120, 10_000) };
        for number in 0..count {
            let rolled = usize::try_from(dice.roll(used as u64)).unwrap();
            plan.push(Damage::Flip {
                file: file.clone(),
                position: if every { number } else { rolled },
                bit: 1 << dice.roll(8),
            });
        }
    }
    let refused = judge_all(directory.path(), &good, &expected, &plan);
    assert!(refused > 0, "no flip was ever noticed");
}

#[tokio::test]
async fn a_file_cut_anywhere_is_noticed_or_harmless() {
    let (directory, _, good, expected) = prepared().await;
    let mut dice = Dice(11);
    let mut plan = Vec::new();
    for (file, used) in targets(&good) {
        let mut lengths = vec![0, used / 2, used.saturating_sub(1)];
        for _ in 0..scale(25, 2_000) {
            lengths.push(usize::try_from(dice.roll(used as u64)).unwrap());
        }
        plan.extend(lengths.into_iter().map(|length| Damage::Cut {
            file: file.clone(),
            length,
        }));
    }
    let refused = judge_all(directory.path(), &good, &expected, &plan);
    assert!(refused > 0, "no cut was ever noticed");
}

#[tokio::test]
async fn a_zeroed_page_anywhere_is_noticed_or_harmless() {
    const PAGE: usize = 4096;
    let (directory, _, good, expected) = prepared().await;
    let mut plan = Vec::new();
    for (file, used) in targets(&good) {
        let step = scale(used / 12 / PAGE, 1).max(1);
        for page in (0..used.div_ceil(PAGE)).step_by(step) {
            plan.push(Damage::Zero {
                file: file.clone(),
                from: page * PAGE,
                to: (page * PAGE + PAGE).min(good[&file].len()),
            });
        }
    }
    let refused = judge_all(directory.path(), &good, &expected, &plan);
    assert!(refused > 0, "no zeroed page was ever noticed");
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
    for _ in 0..3 {
        let error = SledStore::open(options(&path)).unwrap_err();
        assert!(matches!(error, OpenError::Lost { .. }), "{error}");
    }
    // Started over and over, it keeps one copy, not three.
    assert_eq!(fs::read_dir(path.join("evidence")).unwrap().count(), 1);
}
