//! kill -9 at any moment: nothing acknowledged is missing, and what is there is a prefix.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use freehold::{
    ports::store::{Batch, Store as _},
    store::{OpenError, SledStore},
};

use super::setting::{Dice, contents, fast_directory, options, put, scale};

const DIRECTORY: &str = "FREEHOLD_TEST_STORE";
const FIRST: &str = "FREEHOLD_TEST_FIRST";

/// Not a test of its own: what the child process does. It commits without waiting for each answer, and tells
/// each acknowledged number.
#[tokio::test]
async fn a_child_that_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let first: u64 = std::env::var_os(FIRST)
        .and_then(|first| first.into_string().ok()?.parse().ok())
        .unwrap();
    tell("start");
    let store = SledStore::open(options(&PathBuf::from(directory))).unwrap().store;
    tell("open");
    let mut waiting = std::collections::VecDeque::new();
    for number in first.. {
        let value = vec![u8::try_from(number % 251).unwrap(); usize::try_from(number % 700).unwrap()];
        let mut writes = vec![
            put(format!("left/{number:010}"), value.clone()),
            put(format!("right/{number:010}"), value),
            put("counter", number.to_string()),
        ];
        if number % 97 == 0 {
            writes.push(put("large", vec![1; 300_000]));
        }
        waiting.push_back((number, store.commit(Batch::taking(writes))));
        // Sometimes one at a time, sometimes many in flight.
        let in_flight = [1, 7, 64][usize::try_from(number / 50 % 3).unwrap()];
        while waiting.len() >= in_flight {
            let (number, answer) = waiting.pop_front().unwrap();
            answer.await.unwrap();
            tell(&format!("ack {number}"));
        }
    }
}

fn tell(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "@{line}").unwrap();
    output.flush().unwrap();
}

fn start_child(directory: &Path, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::a_child_that_writes_until_it_is_killed"])
        .args(["--nocapture", "--test-threads=1"])
        .env(DIRECTORY, OsString::from(directory))
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// What the child tells, a line at a time; the harness prints on the same line now and then.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.split_once('@').map(|(_, told)| told.to_owned()))
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let directory = fast_directory();
    let path = directory.path().join("store");
    let mut dice = Dice(1);
    let mut last_there = 0;
    let mut last_epoch = 0;
    for round in 0..scale(30, 200) {
        let mut child = start_child(&path, last_there + 1);
        let mut told = lines(&mut child);
        // Now and then it is killed while it opens the store.
        let opening = round % 4 == 0;
        let awaited = if opening { 1 } else { 2 + dice.roll(400) };
        let mut acknowledged = 0;
        let mut take = |line: String| {
            if let Some(number) = line.strip_prefix("ack ") {
                acknowledged = number.parse().unwrap();
            }
        };
        told.by_ref()
            .take(usize::try_from(awaited).unwrap())
            .for_each(&mut take);
        if opening {
            (0..dice.roll(3_000)).for_each(|_| std::thread::yield_now());
        }
        child.kill().unwrap();
        told.for_each(&mut take);
        child.wait().unwrap();

        let opened = SledStore::open(options(&path)).unwrap();
        assert!(opened.epoch > last_epoch);
        last_epoch = opened.epoch;
        let there = contents(&opened.store).await;
        let counter = there
            .get(b"counter".as_slice())
            .map_or(0, |value| std::str::from_utf8(value).unwrap().parse().unwrap());
        assert!(
            counter >= acknowledged,
            "round {round}: {acknowledged} was acknowledged, {counter} is there"
        );
        for side in ["left/", "right/"] {
            let keys: Vec<_> = there
                .keys()
                .filter(|key| key.starts_with(side.as_bytes()))
                .cloned()
                .collect();
            let expected: Vec<_> = (1..=counter)
                .map(|number: u64| format!("{side}{number:010}").into_bytes())
                .collect();
            assert_eq!(keys, expected, "round {round}");
        }
        for number in last_there + 1..=counter {
            let value = &there[format!("left/{number:010}").as_bytes()];
            assert!(value.iter().all(|byte| u64::from(*byte) == number % 251));
            assert_eq!(value.len() as u64, number % 700);
        }
        last_there = counter;
        opened.store.close().await.unwrap();
        let report = freehold::store::verify_directory(&path).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }
    assert!(last_there > 0);
}

#[tokio::test]
async fn a_second_process_on_the_same_directory_is_refused_and_told_who_has_it() {
    let directory = fast_directory();
    let path = directory.path().join("store");
    let mut child = start_child(&path, 1);
    let mut told = lines(&mut child);
    assert_eq!(told.by_ref().nth(1).as_deref(), Some("open"));
    let error = SledStore::open(options(&path)).unwrap_err();
    match &error {
        OpenError::Locked { pid, .. } => assert_eq!(*pid, child.id().to_string()),
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains(path.to_str().unwrap()));
    // The child never noticed.
    assert!(told.next().is_some_and(|line| line.starts_with("ack")));
    child.kill().unwrap();
    child.wait().unwrap();
    let opened = SledStore::open(options(&path)).unwrap();
    assert!(opened.recovery.unclean);
}
