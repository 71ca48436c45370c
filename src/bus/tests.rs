//! The bus against a naive model, and the promises its readers and writers rely on.

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::{
    retained::Retained,
    sequence::{Order, base_of_epoch},
    stream::Stream,
    watch::{AnyTopic, Watcher},
    *,
};
use crate::{
    domain::event::{BusEvent, Change},
    ports::clock::Clock,
};

#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

const EPOCH: u64 = 7;

fn order() -> Arc<Order> {
    Arc::new(Order::new(EPOCH, Arc::new(StoppedClock)))
}

fn bus() -> Bus {
    Bus::new(EPOCH, Arc::new(StoppedClock))
}

fn topic(tombstones: usize) -> Retained<u64> {
    Retained::keeping("numbers", order(), tombstones)
}

fn claim(generation: u64) -> Claim {
    Claim {
        path: "root/test".into(),
        generation,
    }
}

fn writer(topic: &Retained<u64>, key: &str) -> KeyWriter<u64> {
    topic.claim(key, claim(1)).unwrap()
}

/// What a typed reader knows after applying updates.
#[derive(Default, Debug)]
struct Known {
    values: BTreeMap<String, u64>,
    last: u64,
    resets: usize,
    complete: bool,
    seen: usize,
}

impl Known {
    fn apply(&mut self, update: Update<u64>) {
        self.seen += 1;
        let sequence = match update {
            Update::Value(entry) => {
                self.values.insert(entry.key.to_string(), *entry.value);
                entry.sequence
            }
            Update::Removed { key, sequence, .. } => {
                self.values.remove(&*key);
                sequence
            }
            Update::Complete => {
                assert!(!self.complete, "each start says once when it is complete");
                self.complete = true;
                return;
            }
            Update::Reset => {
                assert!(
                    self.last > 0,
                    "a reader that knows nothing has nothing to start over"
                );
                self.resets += 1;
                self.complete = false;
                self.values.clear();
                self.last = 0;
                return;
            }
        };
        assert!(sequence > self.last, "updates come in the order of publishing");
        self.last = sequence;
    }

    fn drain(&mut self, subscription: &mut Subscription<u64>) {
        while let Some(update) = subscription.try_next() {
            self.apply(update);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Publish(u8, u64),
    Remove(u8),
    Subscribe,
    Read(prop::sample::Index, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8u8, 0..4u64).prop_map(|(key, value)| Step::Publish(key, value)),
        3 => (0..8u8).prop_map(Step::Remove),
        1 => Just(Step::Subscribe),
        3 => (any::<prop::sample::Index>(), 1..5usize).prop_map(|(reader, count)| Step::Read(reader, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_reader_ends_with_the_last_values_however_it_read(steps in prop::collection::vec(step(), 0..80), tombstones in 0..6usize) {
        let topic = topic(tombstones);
        let writers: Vec<_> = (0..8).map(|key| writer(&topic, &key.to_string())).collect();
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        let mut readers = vec![(topic.subscribe(), Known::default())];
        for step in steps {
            match step {
                Step::Publish(key, value) => {
                    let accepted = writers[usize::from(key)].publish(value).unwrap().is_some();
                    let changed = model.insert(key.to_string(), value) != Some(value);
                    prop_assert_eq!(accepted, changed, "an equal value is not published, any other is");
                }
                Step::Remove(key) => {
                    let accepted = writers[usize::from(key)].remove().unwrap().is_some();
                    prop_assert_eq!(accepted, model.remove(&key.to_string()).is_some());
                }
                Step::Subscribe => readers.push((topic.subscribe(), Known::default())),
                Step::Read(reader, count) => {
                    let chosen = reader.index(readers.len());
                    let (subscription, known) = &mut readers[chosen];
                    for _ in 0..count {
                        if let Some(update) = subscription.try_next() {
                            known.apply(update);
                        }
                    }
                }
            }
            prop_assert_eq!(topic.len(), model.len());
        }
        for (mut subscription, mut known) in readers {
            known.drain(&mut subscription);
            prop_assert_eq!(&known.values, &model);
            prop_assert!(known.complete);
        }
        let values: BTreeMap<_, _> = topic.values().into_iter().map(|entry| (entry.key.to_string(), *entry.value)).collect();
        prop_assert_eq!(values, model);
    }

    #[test]
    fn a_watch_resumed_after_any_sequence_ends_with_the_same_values(
        steps in prop::collection::vec((0..2usize, step()), 0..60), tombstones in 0..6usize, kept in 1..8usize, page in 1..5usize,
    ) {
        let order = order();
        let topics = [Retained::keeping("a", Arc::clone(&order), tombstones), Retained::keeping("b", Arc::clone(&order), tombstones)];
        let stream = Stream::keeping("s", Arc::clone(&order), kept);
        let all = || vec![AnyTopic::Retained(topics[0].erased()), AnyTopic::Stream(stream.erased()), AnyTopic::Retained(topics[1].erased())];
        let writers: Vec<Vec<_>> = topics.iter().map(|topic| (0..8).map(|key| writer(topic, &key.to_string())).collect()).collect();
        let tap = Tap::attach(&order, 10_000);
        for (which, step) in steps {
            match step {
                Step::Publish(key, value) => { writers[which][usize::from(key)].publish(value).unwrap(); }
                Step::Remove(key) => { writers[which][usize::from(key)].remove().unwrap(); }
                Step::Subscribe | Step::Read(..) => { stream.publish("event", order.newest()); }
            }
        }
        let (missed, log) = tap.take();
        prop_assert_eq!(missed, 0);
        let numbers: Vec<_> = log.iter().map(|tapped| tapped.sequence).collect();
        prop_assert_eq!(numbers, (order.base() + 1..=order.newest()).collect::<Vec<_>>(), "the tap sees everything, in order");

        let mut end = Picture::default();
        log.iter().for_each(|tapped| end.replay(tapped));
        for after in order.base()..=order.newest() {
            match Watcher::start(Arc::clone(&order), all(), Some(after)) {
                Ok(mut watcher) => {
                    watcher.page = page;
                    let mut picture = Picture::default();
                    log.iter().filter(|tapped| tapped.sequence <= after).for_each(|tapped| picture.replay(tapped));
                    picture.last = after;
                    while let Some(event) = watcher.try_next() {
                        picture.apply(&event);
                    }
                    prop_assert_eq!(&picture.values, &end.values);
                    prop_assert_eq!(picture.events, end.events, "no event of the stream is lost or doubled");
                    prop_assert_eq!(picture.missed, 0);
                }
                Err(WatchRefused::OutOfRange { oldest, .. }) => prop_assert!(oldest > after),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
        prop_assert!(Watcher::start(Arc::clone(&order), all(), Some(order.newest())).is_ok());

        // A reader that is cut off after any event of a fresh watch and comes back.
        let mut fresh = Watcher::start(Arc::clone(&order), all(), None).unwrap();
        fresh.page = page;
        let mut picture = Picture::default();
        while let Some(event) = fresh.try_next() {
            picture.apply(&event);
            if let Ok(mut resumed) = Watcher::start(Arc::clone(&order), all(), Some(event.sequence)) {
                let mut cut = picture.clone();
                while let Some(event) = resumed.try_next() {
                    cut.apply(&event);
                }
                prop_assert_eq!(cut.values, end.values.clone());
            }
        }
        prop_assert_eq!(picture.values, end.values);
    }

    #[test]
    fn a_watcher_that_reads_now_and_then_ends_with_the_last_values(
        steps in prop::collection::vec((0..2usize, step()), 0..80), tombstones in 0..4usize, kept in 1..4usize, page in 1..5usize,
    ) {
        let order = order();
        let topics = [Retained::keeping("a", Arc::clone(&order), tombstones), Retained::keeping("b", Arc::clone(&order), tombstones)];
        let stream = Stream::keeping("s", Arc::clone(&order), kept);
        let writers: Vec<Vec<_>> = topics.iter().map(|topic| (0..8).map(|key| writer(topic, &key.to_string())).collect()).collect();
        let tap = Tap::attach(&order, 10_000);
        let all = vec![AnyTopic::Retained(topics[0].erased()), AnyTopic::Stream(stream.erased()), AnyTopic::Retained(topics[1].erased())];
        let mut watcher = Watcher::start(Arc::clone(&order), all, None).unwrap();
        watcher.page = page;
        let mut picture = Picture::default();
        for (which, step) in steps {
            match step {
                Step::Publish(key, value) => { writers[which][usize::from(key)].publish(value).unwrap(); }
                Step::Remove(key) => { writers[which][usize::from(key)].remove().unwrap(); }
                Step::Subscribe => { stream.publish("event", 1); }
                Step::Read(_, count) => (0..count).filter_map(|_| watcher.try_next()).for_each(|event| picture.apply(&event)),
            }
        }
        while let Some(event) = watcher.try_next() {
            picture.apply(&event);
        }
        let mut end = Picture::default();
        tap.take().1.iter().for_each(|tapped| end.replay(tapped));
        prop_assert_eq!(picture.values, end.values);
        prop_assert_eq!(picture.events + picture.missed, end.events, "every event was delivered or counted as missed");
    }
}

/// What an outside reader knows.
#[derive(Clone, Default, Debug)]
struct Picture {
    values: BTreeMap<(String, String), serde_json::Value>,
    events: u64,
    missed: u64,
    last: u64,
}

impl Picture {
    fn replay(&mut self, tapped: &Tapped) {
        let key = (tapped.topic.to_owned(), tapped.key.to_string());
        match &tapped.value {
            Some(_) if tapped.topic == "s" => self.events += 1,
            Some(value) => {
                self.values.insert(key, value.clone());
            }
            None => {
                self.values.remove(&key);
            }
        }
    }

    fn apply(&mut self, event: &BusEvent) {
        let key = (event.topic.clone(), event.key.clone());
        match &event.change {
            Change::Reset => {
                self.values.retain(|(topic, _), _| *topic != event.topic);
                self.last = 0;
                return;
            }
            Change::Missed(count) => {
                self.missed += count;
                assert!(event.sequence >= self.last);
                self.last = event.sequence;
                return;
            }
            Change::Value(_) if event.topic == "s" => self.events += 1,
            Change::Value(value) => {
                self.values.insert(key, value.clone());
            }
            Change::Deleted => {
                self.values.remove(&key);
            }
        }
        assert!(event.sequence > self.last, "{event:?} after {}", self.last);
        self.last = event.sequence;
    }
}

#[test]
fn a_new_reader_gets_present_values_in_order_and_no_old_removals() {
    let topic = topic(10);
    let (a, b, c) = (writer(&topic, "a"), writer(&topic, "b"), writer(&topic, "c"));
    a.publish(1).unwrap();
    b.publish(2).unwrap();
    c.publish(3).unwrap();
    b.remove().unwrap();
    a.publish(4).unwrap();

    let mut reader = topic.subscribe();
    let shown: Vec<_> = std::iter::from_fn(|| reader.try_next())
        .map(|update| match update {
            Update::Value(entry) => format!("{}={}", entry.key, entry.value),
            Update::Removed { key, .. } => format!("{key} removed"),
            Update::Complete => "complete".to_owned(),
            Update::Reset => "reset".to_owned(),
        })
        .collect();
    assert_eq!(shown, ["c=3", "a=4", "complete"]);
}

#[test]
fn an_empty_topic_is_complete_at_once() {
    let topic = topic(10);
    let mut reader = topic.subscribe();
    assert!(matches!(reader.try_next(), Some(Update::Complete)));
    assert!(reader.try_next().is_none());
}

#[test]
fn an_equal_value_is_not_published_and_wakes_nobody() {
    let topic = topic(10);
    let writer = writer(&topic, "a");
    assert!(writer.publish(1).unwrap().is_some());
    let mut reader = topic.subscribe();
    Known::default().drain(&mut reader);
    assert_eq!(writer.publish(1).unwrap(), None);
    assert!(reader.next().now_or_never().is_none());
    assert_eq!(topic.erased().statistics().unchanged, 1);
    assert_eq!(writer.remove().unwrap().map(|_| ()), Some(()));
    assert_eq!(
        writer.remove().unwrap(),
        None,
        "what is gone is not removed again"
    );
}

#[test]
fn a_superseded_writer_is_refused_and_changes_nothing() {
    let topic = topic(10);
    let old = topic.claim("a", claim(3)).unwrap();
    old.publish(1).unwrap();
    let new = topic.claim("a", claim(4)).unwrap();
    assert_eq!(
        topic.get("a").as_deref(),
        Some(&1),
        "a claim alone changes no value"
    );

    let refused = old.publish(2).unwrap_err();
    assert_eq!(refused.claim.generation, 3);
    assert!(old.remove().is_err());
    assert_eq!(topic.get("a").as_deref(), Some(&1));
    assert_eq!(topic.erased().statistics().refused, 2);
    drop(old);
    new.publish(5).unwrap();
    assert_eq!(topic.get("a").as_deref(), Some(&5));
}

#[test]
fn a_claim_that_is_not_newer_is_refused_unless_it_is_the_same_incarnation() {
    let topic = topic(10);
    let held = topic.claim("a", claim(3)).unwrap();
    let other = Claim {
        path: "root/other".into(),
        generation: 3,
    };
    let refused = topic.claim("a", other).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "key \"a\" of topic numbers belongs to root/test generation 3, and root/other generation 3 is not newer"
    );
    assert!(topic.claim("a", claim(2)).is_err());

    let again = topic.claim("a", claim(3)).unwrap();
    drop(again);
    assert!(
        held.publish(1).is_ok(),
        "dropping one of two equal writers leaves the other in place"
    );
}

#[test]
fn a_dropped_writer_leaves_its_value_and_its_fence() {
    let topic = topic(10);
    let first = topic.claim("a", claim(3)).unwrap();
    first.publish(1).unwrap();
    drop(first);
    assert_eq!(topic.get("a").as_deref(), Some(&1));
    assert!(
        topic.claim("a", claim(2)).is_err(),
        "an older incarnation cannot come back"
    );
    assert!(topic.claim("a", claim(4)).unwrap().publish(2).unwrap().is_some());
}

#[test]
fn a_claim_that_never_published_leaves_nothing_behind() {
    let topic = topic(10);
    drop(topic.claim("a", claim(3)).unwrap());
    assert!(topic.claim("a", claim(1)).is_ok());
}

#[test]
fn a_writer_goes_on_after_its_removal_was_forgotten() {
    let topic = topic(1);
    let (a, b) = (writer(&topic, "a"), writer(&topic, "b"));
    for writer in [&a, &b] {
        writer.publish(1).unwrap();
        writer.remove().unwrap();
    }
    assert_eq!(topic.erased().statistics().tombstones, 1);
    a.publish(2).unwrap();
    assert_eq!(topic.get("a").as_deref(), Some(&2));
}

#[test]
fn churn_of_keys_does_not_grow_the_topic() {
    let topic = topic(100);
    for number in 0..10_000u64 {
        let writer = topic.claim(format!("key-{number}"), claim(number)).unwrap();
        writer.publish(number).unwrap();
        writer.remove().unwrap();
    }
    let statistics = topic.erased().statistics();
    assert_eq!((statistics.kept, statistics.tombstones), (0, 100));
    assert_eq!(topic.values().len(), 0);
}

#[test]
fn a_reader_that_was_away_for_long_starts_over_and_ends_with_equal_values() {
    let topic = topic(16);
    let mut away = (topic.subscribe(), Known::default());
    let stays = writer(&topic, "stays");
    stays.publish(0).unwrap();
    let doomed = writer(&topic, "doomed");
    doomed.publish(1).unwrap();
    away.1.drain(&mut away.0);
    assert_eq!(away.1.values.len(), 2);

    doomed.remove().unwrap();
    for number in 0..1000u64 {
        stays.publish(number).unwrap();
        let passing = writer(&topic, &format!("passing-{number}"));
        passing.publish(number).unwrap();
        passing.remove().unwrap();
    }
    let before = away.1.seen;
    away.1.drain(&mut away.0);
    assert_eq!(away.1.values, BTreeMap::from([("stays".to_owned(), 999)]));
    assert_eq!(away.1.resets, 1);
    assert!(away.1.seen - before < 30, "3,000 changes come coalesced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_reader_never_holds_up_a_fast_one() {
    let topic = topic(8);
    let mut stopped = (topic.subscribe(), Known::default());
    let fast = topic.subscribe();
    let follow = tokio::spawn(async move {
        let (mut fast, mut known) = (fast, Known::default());
        while known.values.get("last") != Some(&1) {
            known.apply(fast.next().await);
        }
        known
    });
    let publishing = {
        let topic = topic.clone();
        tokio::task::spawn_blocking(move || {
            let writers: Vec<_> = (0..50).map(|key| writer(&topic, &key.to_string())).collect();
            for round in 0..400u64 {
                for (number, writer) in writers.iter().enumerate() {
                    if (round + number as u64).is_multiple_of(7) {
                        writer.remove().unwrap();
                    } else {
                        writer.publish(round).unwrap();
                    }
                }
            }
            writer(&topic, "last").publish(1).unwrap();
        })
    };
    publishing.await.unwrap();
    let known = follow.await.unwrap();
    stopped.1.drain(&mut stopped.0);
    let present: BTreeMap<_, _> = topic
        .values()
        .into_iter()
        .map(|entry| (entry.key.to_string(), *entry.value))
        .collect();
    assert_eq!(known.values, present);
    assert_eq!(stopped.1.values, present);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_sees_one_order_while_several_threads_publish() {
    let order = order();
    let topics: Vec<_> = ["a", "b", "c"]
        .map(|name| Retained::keeping(name, Arc::clone(&order), 8))
        .into();
    let stream = Stream::keeping("s", Arc::clone(&order), 100);
    let mut all: Vec<_> = topics
        .iter()
        .map(|topic| AnyTopic::Retained(topic.erased()))
        .collect();
    all.push(AnyTopic::Stream(stream.erased()));
    let mut watcher = Watcher::start(Arc::clone(&order), all, None).unwrap();

    let publishing: Vec<_> = topics
        .iter()
        .cloned()
        .map(|topic| {
            let stream = stream.clone();
            tokio::task::spawn_blocking(move || {
                let writers: Vec<_> = (0..20).map(|key| writer(&topic, &key.to_string())).collect();
                for round in 0..300u64 {
                    for (number, writer) in writers.iter().enumerate() {
                        if (round + number as u64).is_multiple_of(5) {
                            writer.remove().unwrap();
                        } else {
                            writer.publish(round).unwrap();
                        }
                    }
                    stream.publish("round", round);
                }
                writer(&topic, "done").publish(1).unwrap();
            })
        })
        .collect();

    // `apply` checks that sequence numbers only ever go up, except after a reset.
    let mut picture = Picture::default();
    while !["a", "b", "c"].iter().all(|topic| {
        picture
            .values
            .contains_key(&((*topic).to_owned(), "done".to_owned()))
    }) {
        picture.apply(&watcher.next().await);
    }
    for thread in publishing {
        thread.await.unwrap();
    }
    while let Some(event) = watcher.try_next() {
        picture.apply(&event);
    }
    let present: BTreeMap<_, _> = topics
        .iter()
        .flat_map(|topic| {
            let name = topic.name().to_owned();
            topic
                .values()
                .into_iter()
                .map(move |entry| ((name.clone(), entry.key.to_string()), json!(*entry.value)))
        })
        .collect();
    assert_eq!(picture.values, present);
    assert_eq!(picture.events + picture.missed, 900);
}

#[test]
fn a_hundred_thousand_keys_cost_what_changes_and_not_what_exists() {
    let topic = topic(4096);
    let writers: Vec<_> = (0..100_000)
        .map(|key| writer(&topic, &format!("node-{key:06}")))
        .collect();
    for (number, writer) in writers.iter().enumerate() {
        writer.publish(number as u64).unwrap();
    }
    let (mut reader, mut known) = (topic.subscribe(), Known::default());
    known.drain(&mut reader);
    assert_eq!(known.values.len(), 100_000);
    let seen = known.seen;
    for round in 0..20_000u64 {
        writers[usize::try_from(round % 3).unwrap()]
            .publish(1_000_000 + round)
            .unwrap();
    }
    known.drain(&mut reader);
    assert_eq!(
        known.seen - seen,
        3,
        "only the last value of each changed key is read"
    );
    assert_eq!(topic.erased().statistics().kept, 100_000);
}

#[test]
fn a_lagging_reader_of_a_stream_is_told_how_much_it_missed() {
    let stream = Stream::keeping("s", order(), 3);
    stream.publish("before", 0u64);
    let mut reader = stream.subscribe();
    for number in 1..=5u64 {
        stream.publish("k", number);
    }
    let shown: Vec<_> = std::iter::from_fn(|| reader.try_next())
        .map(|update| match update {
            StreamUpdate::Event(event) => event.value.to_string(),
            StreamUpdate::Missed(count) => format!("missed {count}"),
        })
        .collect();
    assert_eq!(shown, ["missed 2", "3", "4", "5"]);
}

#[tokio::test]
async fn watching_by_name_gives_present_values_then_changes_over_all_topics() {
    let bus = bus();
    let handle = |revision| InventoryHandle {
        revision,
        nodes: 1,
        observed_at: Timestamp::UNIX_EPOCH,
    };
    let cluster = bus.inventory_cluster.claim("", claim(1)).unwrap();
    let node = bus.inventory_nodes.claim("n1", claim(1)).unwrap();
    cluster.publish(handle(1)).unwrap();
    node.publish(crate::domain::inventory::NodeReport::default())
        .unwrap();
    assert_eq!(
        cluster
            .publish(InventoryHandle {
                nodes: 9,
                ..handle(1)
            })
            .unwrap(),
        None,
        "a handle is equal by revision"
    );

    let names = ["inventory.nodes".to_owned(), "inventory.cluster".to_owned()];
    let mut events = bus.watch(&names, None).unwrap();
    let first = events.next().await.unwrap();
    assert_eq!(
        (first.topic.as_str(), first.key.as_str()),
        ("inventory.cluster", "")
    );
    assert_eq!(first.sequence, base_of_epoch(EPOCH) + 1);
    assert_eq!(
        first.change,
        Change::Value(json!({"revision": 1, "nodes": 1, "observed_at": "1970-01-01T00:00:00Z"}))
    );
    let second = events.next().await.unwrap();
    assert_eq!(
        (second.topic.as_str(), second.key.as_str()),
        ("inventory.nodes", "n1")
    );
    assert!(events.next().now_or_never().is_none());

    bus.actors.publish(
        "root",
        ActorEvent {
            path: "root".into(),
            kind: "root".into(),
            generation: 1,
            event: ActorEventKind::Restarted,
            message: String::new(),
        },
    );
    assert!(
        events.next().now_or_never().is_none(),
        "a topic that was not asked for"
    );
    node.remove().unwrap();
    let third = events.next().await.unwrap();
    assert_eq!((third.key.as_str(), third.change), ("n1", Change::Deleted));
}

#[test]
fn a_watch_of_what_cannot_be_is_refused_with_what_to_do() {
    let bus = bus();
    let refused = |names: &[&str], after| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        bus.watch(&names, after).err()
    };
    assert_eq!(
        refused(&["inventory.node"], None).unwrap().to_string(),
        "there is no topic \"inventory.node\"; did you mean \"inventory.nodes\"?"
    );
    let base = base_of_epoch(EPOCH);
    assert_eq!(
        refused(&[], Some(base)),
        None,
        "the beginning of this run can be resumed"
    );
    for after in [0, base - 1, base + 1, base_of_epoch(EPOCH + 1), u64::MAX] {
        let expected = WatchRefused::OutOfRange {
            after,
            oldest: base,
            newest: base,
        };
        assert_eq!(refused(&["status"], Some(after)), Some(expected));
    }
}

#[test]
fn sequence_numbers_stay_exact_in_json_whatever_the_epoch() {
    for epoch in [0, 1, 131_071, 131_072, u64::MAX] {
        assert!(base_of_epoch(epoch) < 1 << 53);
    }
    assert!(base_of_epoch(2) > base_of_epoch(1) + ((1 << sequence::COUNTER_BITS) - 1));
}

#[test]
fn a_tap_is_bounded_and_says_what_it_missed() {
    let bus = bus();
    let tap = bus.tap(2);
    let cluster = bus.inventory_cluster.claim("", claim(1)).unwrap();
    for revision in 1..=5 {
        let handle = InventoryHandle {
            revision,
            nodes: 0,
            observed_at: Timestamp::UNIX_EPOCH,
        };
        cluster.publish(handle).unwrap();
    }
    let (missed, seen) = tap.take();
    assert_eq!(missed, 3);
    let revisions: Vec<_> = seen
        .iter()
        .map(|tapped| tapped.value.as_ref().unwrap()["revision"].clone())
        .collect();
    assert_eq!(revisions, [json!(4), json!(5)]);
    assert_eq!(tap.take(), (0, Vec::new()));
}

#[test]
fn the_document_of_topics_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/topics.md");
    if std::env::var_os("FREEHOLD_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/docs")).unwrap();
        std::fs::write(path, topics::document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        written,
        topics::document(),
        "run FREEHOLD_WRITE_DOCS=1 cargo test --lib bus"
    );
}
