//! The same seed gives the same trace, and nothing grows without end.

use serde_json::json;

use super::*;

/// Everything that happened in an eventful hour.
async fn trace() -> Vec<String> {
    let life = Life::begin(4);
    let mut cursor = life.objects.cursor(None, None).unwrap();
    life.create(&DEPLOYMENTS, deployment("web", 6, "web:1"));
    life.create(&DEPLOYMENTS, deployment("bad", 2, "crash:1"));
    life.create(
        &SERVICES,
        json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]}}),
    );
    life.pass(30).await;
    life.change(&DEPLOYMENTS, "default", "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    life.set_ready("node-0001", "Unknown");
    life.pass(3600).await;
    let mut said = Vec::new();
    loop {
        let changes = cursor.read().unwrap();
        if changes.is_empty() {
            return said;
        }
        said.extend(changes.iter().map(|change| {
            format!(
                "{} {:?} {} {}",
                change.revision, change.kind, change.resource, change.object
            )
        }));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(trace())
    };
    let (first, second) = (run(), run());
    assert!(first.len() > 100, "{} changes", first.len());
    for (one, other) in first.iter().zip(&second) {
        assert_eq!(one, other);
    }
    assert_eq!(first.len(), second.len());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_day_changes_nothing() {
    let life = Life::begin(12);
    life.create(&DEPLOYMENTS, deployment("web", 6, "web:1"));
    life.pass(60).await;
    let before = life.objects.revision();
    life.pass(24 * 3600).await;
    assert_eq!(life.objects.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn events_are_bounded() {
    let life = Life::begin(1);
    for number in 0..3000 {
        life.create(
            &EVENTS,
            json!({"metadata": {"name": format!("e{number:04}"), "namespace": "default"},
            "lastTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", number / 60, number % 60)}),
        );
        if number % 100 == 0 {
            life.pass(1).await;
        }
    }
    life.pass(1).await;
    let left = life.objects.list(&EVENTS, None).items;
    assert!(left.len() <= 2000, "{} left", left.len());
    assert!(
        left.iter().any(|event| key(event).name == "e2999"),
        "the newest stay"
    );
}
