//! A week of requests, history and changes: what is kept is bounded, and so is the space it takes.

use std::{sync::Arc, time::Duration};

use freehold::{
    ports::store::{
        Store, Write,
        requests::{self, RequestKey},
        retention::{Keep, Retention, time_key},
    },
    store::SledStore,
};
use jiff::Timestamp;

use super::setting::{commit, fast_directory, options, put, scale};

#[tokio::test]
async fn a_week_of_churn_takes_no_more_space_than_a_day() {
    let directory = fast_directory();
    let store = SledStore::open(options(&directory.path().join("store")))
        .unwrap()
        .store;
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    let day = Duration::from_secs(86_400);
    let mut answers = requests::retention(Arc::clone(&shared), requests::KEEP);
    let keep = Keep {
        age: 2 * day,
        count: 3_000,
    };
    let mut history = Retention::new(Arc::clone(&shared), "history/", keep, |_| None);
    let start: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let per_hour = scale(150_u64, 3_000);
    let mut sizes = Vec::new();
    let mut number = 0_u64;
    for hour in 0..7 * 24_u64 {
        for _ in 0..per_hour / 10 {
            let mut writes = Vec::new();
            for _ in 0..10 {
                number += 1;
                let at = start
                    .saturating_add(Duration::from_secs(hour * 3600 + number % 3600))
                    .unwrap();
                let key = RequestKey {
                    caller: "marketplace".into(),
                    id: number.to_string(),
                };
                let answer = serde_json::json!({"placement": "x".repeat(200)});
                writes.extend(requests::remember(&key, "hash", answer, at).unwrap());
                writes.push(put(time_key("history/", at, &number.to_string()), vec![7; 150]));
                writes.push(put(format!("reservation/{}", number % 200), vec![9; 400]));
                writes.push(Write::Delete(
                    format!("reservation/{}", number * 7 % 200).into_bytes(),
                ));
            }
            commit(&store, writes).await;
        }
        answers.added(per_hour);
        history.added(per_hour);
        let now = start
            .saturating_add(Duration::from_secs((hour + 1) * 3600))
            .unwrap();
        answers.trim(now).await.unwrap();
        history.trim(now).await.unwrap();
        if hour % 24 == 23 {
            let info = store.info().await.unwrap();
            sizes.push((info.records, directory_bytes(directory.path())));
        }
    }
    let (records, bytes) = sizes[1];
    let (last_records, last_bytes) = *sizes.last().unwrap();
    assert!(last_records <= records + records / 10, "{sizes:?}");
    // sled reuses its space by and by, so that the size swings; it must not grow with time.
    assert!(last_bytes <= bytes * 2 + (16 << 20), "{sizes:?}");
    assert!(store.verify().await.unwrap().problems.is_empty());
}

fn directory_bytes(path: &std::path::Path) -> u64 {
    std::fs::read_dir(path)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
                Ok(metadata) => metadata.len(),
                Err(_) => 0,
            }
        })
        .sum()
}
