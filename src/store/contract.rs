//! What every store promises, tried on the one on disk and on the one in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde_json::json;
use tempfile::TempDir;

use super::{
    faults::{At, Faults, open_faulty},
    memory::MemoryStore,
    options::{FreeSpace, Options},
};
use crate::ports::{
    clock::SystemClock,
    store::{
        Batch, Effect, Fence, MAX_KEY_BYTES, Pair, Store, StoreError, Write,
        requests::{self, Known, RequestKey},
        retention::{Keep, Retention, time_key, time_of},
    },
};

/// A store, and the means to break it.
struct Subject {
    store: Arc<dyn Store>,
    break_next_flush: Box<dyn Fn()>,
    set_free: Box<dyn Fn(u64)>,
    /// The store on disk measures free space once a second.
    _directory: Option<TempDir>,
}

const MIN_FREE: u64 = 1000;

fn on_disk() -> Subject {
    let directory = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(MIN_FREE));
    let measured = Arc::clone(&free);
    let faults = Arc::new(Faults::default());
    let mut options = Options::at(directory.path().join("store"), Arc::new(SystemClock::start()));
    options.min_free = MIN_FREE;
    options.free_space = FreeSpace::by(move |_| Ok(measured.load(Ordering::SeqCst)));
    let opened = open_faulty(options, &faults).unwrap();
    Subject {
        store: Arc::new(opened.store),
        break_next_flush: Box::new(move || faults.fail(At::Flush, 1, "Input/output error")),
        set_free: Box::new(move |bytes| free.store(bytes, Ordering::SeqCst)),
        _directory: Some(directory),
    }
}

fn in_memory() -> Subject {
    let store = Arc::new(MemoryStore::new());
    let (first, second) = (Arc::clone(&store), Arc::clone(&store));
    Subject {
        store,
        break_next_flush: Box::new(move || first.fail_next_flush("Input/output error")),
        set_free: Box::new(move |bytes| second.set_free(bytes, MIN_FREE)),
        _directory: None,
    }
}

fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Write {
    Write::Put(key.into(), value.into())
}

fn taking(writes: impl IntoIterator<Item = Write>) -> Batch {
    Batch::taking(writes.into_iter().collect())
}

fn keys(pairs: &[Pair]) -> Vec<String> {
    pairs
        .iter()
        .map(|(key, _)| String::from_utf8_lossy(key).into_owned())
        .collect()
}

async fn the_order_is_that_of_the_calls_whatever_is_awaited_first(subject: Subject) {
    let store = subject.store;
    let first = store.commit(taking([put("a", "1"), put("b", "1")]));
    let second = store.commit(taking([put("a", "2")]));
    let third = store.commit(taking([Write::Delete("b".into()), put("c", "3")]));
    let read = store.get(b"a".to_vec());
    assert_eq!(read.await.unwrap(), Some(b"2".to_vec()));
    third.await.unwrap();
    second.await.unwrap();
    first.await.unwrap();
    let pairs = store.scan(vec![], None, 10).await.unwrap();
    assert_eq!(
        pairs,
        [(b"a".to_vec(), b"2".to_vec()), (b"c".to_vec(), b"3".to_vec())]
    );
}

async fn writes_of_a_batch_count_in_order(subject: Subject) {
    let writes = [
        put("a", "1"),
        Write::Delete("a".into()),
        put("a", "2"),
        put("b", "1"),
        Write::Delete("b".into()),
        Write::Delete("never".into()),
    ];
    subject.store.commit(taking(writes)).await.unwrap();
    let pairs = subject.store.scan(vec![], None, 10).await.unwrap();
    assert_eq!(pairs, [(b"a".to_vec(), b"2".to_vec())]);
}

async fn a_dropped_answer_does_not_undo_the_commit(subject: Subject) {
    drop(subject.store.commit(taking([put("a", "1")])));
    assert_eq!(
        subject.store.get(b"a".to_vec()).await.unwrap(),
        Some(b"1".to_vec())
    );
}

async fn scans_are_ordered_by_prefix_and_paged(subject: Subject) {
    let store = subject.store;
    let mut writes: Vec<_> = (0..25).map(|n| put(format!("n/{n:02}"), vec![n])).collect();
    writes.extend([
        put("m/zz", "x"),
        put("n", "x"),
        put("n0", "x"),
        put(vec![0xff, 1], "x"),
    ]);
    store.commit(taking(writes)).await.unwrap();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store.scan(b"n/".to_vec(), after.clone(), 10).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        assert!(page.len() <= 10);
        seen.extend(keys(&page));
    }
    assert_eq!(seen, (0..25).map(|n| format!("n/{n:02}")).collect::<Vec<_>>());
    assert_eq!(store.scan(vec![0xff], None, 10).await.unwrap().len(), 1);
    assert_eq!(store.scan(vec![], None, 100).await.unwrap().len(), 29);
    let before_prefix = store.scan(b"n/".to_vec(), Some(b"a".to_vec()), 1).await.unwrap();
    assert_eq!(keys(&before_prefix), ["n/00"]);
    let past_prefix = store.scan(b"n/".to_vec(), Some(b"z".to_vec()), 1).await.unwrap();
    assert!(past_prefix.is_empty());
    assert!(store.scan(b"n/".to_vec(), None, 0).await.unwrap().is_empty());
}

async fn an_older_generation_is_refused_and_a_newer_one_takes_over(subject: Subject) {
    let fenced = |generation, value: &str| Batch {
        writes: vec![put("a", value)],
        fence: Some(Fence {
            path: "root/reservations".into(),
            generation,
        }),
        ..Batch::default()
    };
    let store = subject.store;
    store.commit(fenced(1, "old")).await.unwrap();
    store.commit(fenced(2, "new")).await.unwrap();
    let error = store.commit(fenced(1, "frozen")).await.unwrap_err();
    assert_eq!(
        error,
        StoreError::Fenced {
            path: "root/reservations".into(),
            generation: 1,
            newest: 2
        }
    );
    assert_eq!(store.get(b"a".to_vec()).await.unwrap(), Some(b"new".to_vec()));
    store.commit(taking([put("a", "unfenced")])).await.unwrap();
}

async fn a_low_disk_refuses_what_takes_and_accepts_what_gives_back(subject: Subject) {
    let store = subject.store;
    store
        .commit(taking([put("a", "1"), put("b", "1")]))
        .await
        .unwrap();
    (subject.set_free)(MIN_FREE - 1);
    // The store on disk notices within a second or so.
    let refused = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Err(error) = store.commit(taking([put("a", "2")])).await {
                return error;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(
        refused,
        StoreError::DiskLow {
            free: MIN_FREE - 1,
            min_free: MIN_FREE
        }
    );
    store.commit(taking([put("c", "1")])).await.unwrap_err();
    let release = Batch {
        writes: vec![Write::Delete("b".into())],
        effect: Effect::GivesBack,
        fence: None,
    };
    store.commit(release).await.unwrap();
    let pairs = store.scan(vec![], None, 10).await.unwrap();
    assert_eq!(keys(&pairs), ["a"]);
}

async fn a_failed_flush_is_told_undone_and_got_over(subject: Subject) {
    let store = subject.store;
    let mut rebuilds = store.rebuilds();
    store.commit(taking([put("a", "1")])).await.unwrap();
    (subject.break_next_flush)();
    let error = store
        .commit(taking([put("a", "2"), put("b", "2")]))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Flush { .. }), "{error}");
    tokio::time::timeout(Duration::from_secs(20), rebuilds.wait_for(|count| *count == 1))
        .await
        .unwrap()
        .unwrap();
    let pairs = store.scan(vec![], None, 10).await.unwrap();
    assert_eq!(pairs, [(b"a".to_vec(), b"1".to_vec())]);
    assert!(store.health().healthy);
    store.commit(taking([put("a", "3")])).await.unwrap();
    assert_eq!(store.get(b"a".to_vec()).await.unwrap(), Some(b"3".to_vec()));
}

async fn what_no_store_can_take_is_refused_whole(subject: Subject) {
    let store = subject.store;
    for bad in [
        put("", "x"),
        put(vec![0, b'm', b'e', b't', b'a'], "x"),
        put(vec![b'k'; MAX_KEY_BYTES + 1], "x"),
    ] {
        let error = store.commit(taking([put("good", "x"), bad])).await.unwrap_err();
        assert!(matches!(error, StoreError::Rejected { .. }), "{error}");
    }
    assert!(store.scan(vec![], None, 10).await.unwrap().is_empty());
    assert_eq!(store.get(b"\0meta".to_vec()).await.unwrap(), None);
}

async fn large_values_come_back_whole(subject: Subject) {
    let store = subject.store;
    let large: Vec<u8> = (0..3_u32 << 20).map(|n| n.to_le_bytes()[1]).collect();
    for key in ["a", "b", "c"] {
        store.commit(taking([put(key, large.clone())])).await.unwrap();
    }
    store.commit(taking([put("b", "small")])).await.unwrap();
    assert!(store.get(b"c".to_vec()).await.unwrap().unwrap() == large);
    assert_eq!(store.get(b"b".to_vec()).await.unwrap().unwrap(), b"small");
}

async fn the_same_request_gets_the_same_answer_once(subject: Subject) {
    let store = subject.store;
    let key = |caller: &str, id: &str| RequestKey {
        caller: caller.into(),
        id: id.into(),
    };
    let request = requests::fingerprint(b"reserve 3 cards");
    let at: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let alice = key("alice", "1");
    assert_eq!(
        requests::find(store.as_ref(), &alice, &request).await.unwrap(),
        Known::New
    );
    let writes = requests::remember(&alice, &request, json!({"placed": "node-1"}), at).unwrap();
    store.commit(taking(writes)).await.unwrap();
    let find = |key: RequestKey, request: String| {
        let store = Arc::clone(&store);
        async move { requests::find(store.as_ref(), &key, &request).await.unwrap() }
    };
    assert_eq!(
        find(alice.clone(), request.clone()).await,
        Known::Answered(json!({"placed": "node-1"}))
    );
    let other = requests::fingerprint(b"reserve 4 cards");
    assert_eq!(find(alice, other).await, Known::Conflict);
    assert_eq!(find(key("bob", "1"), request.clone()).await, Known::New);
    assert_eq!(find(key("alic", "e1"), request).await, Known::New);
}

async fn old_and_surplus_requests_are_forgotten_with_their_answers(subject: Subject) {
    let store = subject.store;
    let start: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let at = |seconds: u64| start.saturating_add(Duration::from_secs(seconds)).unwrap();
    let key = |n: u64| RequestKey {
        caller: "alice".into(),
        id: n.to_string(),
    };
    let keep = Keep {
        age: Duration::from_secs(600),
        count: 400,
    };
    let mut retention = requests::retention(Arc::clone(&store), keep);
    for n in 0..1000 {
        let writes = requests::remember(&key(n), "hash", json!(n), at(n)).unwrap();
        store.commit(taking(writes)).await.unwrap();
    }
    // 1000 answers of 1000 seconds: 600 are too many, and 400 of those too old as well.
    assert_eq!(retention.trim(at(1000)).await.unwrap(), 600);
    assert_eq!(
        requests::find(store.as_ref(), &key(599), "hash").await.unwrap(),
        Known::New
    );
    assert_eq!(
        requests::find(store.as_ref(), &key(600), "hash").await.unwrap(),
        Known::Answered(json!(600))
    );
    assert_eq!(
        store.scan(b"request".to_vec(), None, 2000).await.unwrap().len(),
        800
    );

    let writes = requests::remember(&key(1001), "hash", json!(1), at(1001)).unwrap();
    store.commit(taking(writes)).await.unwrap();
    retention.added(1);
    assert_eq!(retention.trim(at(1001)).await.unwrap(), 1);
    assert_eq!(retention.trim(at(1500)).await.unwrap(), 299);
    assert_eq!(retention.trim(at(9999)).await.unwrap(), 101);
    assert!(store.scan(vec![], None, 10).await.unwrap().is_empty());
}

async fn history_is_trimmed_by_time_and_its_neighbours_stay(subject: Subject) {
    let store = subject.store;
    let at = |text: &str| -> Timestamp { text.parse().unwrap() };
    let day = |n: u32| at(&format!("2030-01-{n:02}T00:00:00Z"));
    let mut writes: Vec<_> = (1..=20)
        .map(|n| put(time_key("history/", day(n), "node"), "x"))
        .collect();
    writes.push(put("history0", "neighbour"));
    store.commit(taking(writes)).await.unwrap();
    let keep = Keep {
        age: Duration::from_secs(10 * 86_400),
        count: 100,
    };
    let mut retention = Retention::new(Arc::clone(&store), "history/", keep, |_| None);
    assert_eq!(retention.trim(day(20)).await.unwrap(), 9);
    let pairs = store.scan(vec![], None, 100).await.unwrap();
    assert_eq!(pairs.len(), 12);
    assert_eq!(time_of("history/", &pairs[0].0), Some(day(10)));
    // A clock that jumped back removes nothing.
    assert_eq!(retention.trim(at("1990-01-01T00:00:00Z")).await.unwrap(), 0);
}

macro_rules! contract {
    ($($promise:ident),* $(,)?) => {
        mod disk {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::on_disk()).await;
            })*
        }

        mod memory {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(super::in_memory()).await;
            })*
        }
    };
}

contract! {
    the_order_is_that_of_the_calls_whatever_is_awaited_first,
    writes_of_a_batch_count_in_order,
    a_dropped_answer_does_not_undo_the_commit,
    scans_are_ordered_by_prefix_and_paged,
    an_older_generation_is_refused_and_a_newer_one_takes_over,
    a_low_disk_refuses_what_takes_and_accepts_what_gives_back,
    a_failed_flush_is_told_undone_and_got_over,
    what_no_store_can_take_is_refused_whole,
    large_values_come_back_whole,
    the_same_request_gets_the_same_answer_once,
    old_and_surplus_requests_are_forgotten_with_their_answers,
    history_is_trimmed_by_time_and_its_neighbours_stay,
}
