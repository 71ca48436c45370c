use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, future::BoxFuture};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api as KubeApi, Client,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;

use super::*;
use crate::{
    ports::clock::SimulatedClock,
    sim::{
        api::{
            Api,
            containers::{ContainerRef, Containers, Exit, Log, LogOf, Session},
            router,
        },
        objects::{Objects, ObjectsOptions, Refusal, Resource},
    },
};

#[derive(Debug)]
struct Nothing;

impl Containers for Nothing {
    fn log(&self, _: &ContainerRef, _: LogOf, _: bool) -> Result<Log, Refusal> {
        Err(Refusal::no_such_path())
    }

    fn exec(&self, _: Session) -> BoxFuture<'static, Result<Exit, Refusal>> {
        Box::pin(futures::future::ready(Err(Refusal::no_such_path())))
    }
}

fn world() -> (Faults, KubeApi<ConfigMap>) {
    let clock = Arc::new(SimulatedClock::starting_at(
        "2026-01-01T00:00:00Z".parse().unwrap(),
    ));
    let objects = Objects::new(ObjectsOptions {
        clock: clock.clone(),
        history: 100,
        uid_seed: 1,
    });
    objects
        .create(
            &Resource::new("", "namespaces"),
            json!({"metadata": {"name": "default"}}),
        )
        .unwrap();
    let faults = Faults::new(42);
    let api = Api {
        objects,
        faults: faults.clone(),
        containers: Arc::new(Nothing),
        clock,
        admit_anonymous: true,
        admin_token: None,
        token_key: [0; 32],
    };
    (
        faults,
        KubeApi::namespaced(Client::new(router(api), "default"), "default"),
    )
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn fault(value: serde_json::Value) -> Fault {
    serde_json::from_value(value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_error_answers_its_status_and_wait_as_often_as_counted_and_only_what_it_selects() {
    let (faults, maps) = world();
    let spec = json!({"verb": "create", "resource": "configmaps", "kind": "error", "status": 429, "retry-after": 3, "count": 2});
    faults.add(fault(spec)).unwrap();
    maps.list(&ListParams::default()).await.unwrap();
    for _ in 0..2 {
        let Err(kube::Error::Api(status)) = maps.create(&PostParams::default(), &map("a")).await else {
            panic!()
        };
        assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
    }
    assert!(faults.list().is_empty());
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn latency_takes_its_time() {
    let (faults, maps) = world();
    faults
        .add(fault(json!({"kind": "latency", "delay": "1500ms"})))
        .unwrap();
    let start = tokio::time::Instant::now();
    maps.list(&ListParams::default()).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(1500));
    assert_eq!(faults.clear(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_write_had_no_effect_and_a_cut_one_had() {
    let (faults, maps) = world();
    for (kind, happened) in [("drop", false), ("cut", true)] {
        faults
            .add(fault(json!({"verb": "create", "kind": kind, "count": 1})))
            .unwrap();
        let answer = maps.create(&PostParams::default(), &map(kind)).await;
        assert!(
            answer.is_err() && !matches!(answer, Err(kube::Error::Api(_))),
            "{answer:?}"
        );
        assert_eq!(maps.get_opt(kind).await.unwrap().is_some(), happened, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_be_cut_doubled_and_told_that_the_past_is_gone() {
    let (faults, maps) = world();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let watch = async || {
        maps.watch(&WatchParams::default().timeout(200).disable_bookmarks(), "0")
            .await
            .unwrap()
            .boxed()
    };
    faults
        .add(fault(json!({"kind": "duplicate", "count": 1})))
        .unwrap();
    let events: Vec<WatchEvent<ConfigMap>> = watch().await.try_collect().await.unwrap();
    assert!(
        matches!(events.as_slice(), [WatchEvent::Added(_), WatchEvent::Added(_)]),
        "{events:?}"
    );
    faults
        .add(fault(json!({"verb": "watch", "kind": "gone", "count": 1})))
        .unwrap();
    let Some(Ok(WatchEvent::Error(status))) = watch().await.next().await else {
        panic!()
    };
    assert_eq!(status.code, 410);
    faults
        .add(fault(
            json!({"verb": "watch", "kind": "cut", "delay": "5s", "count": 1}),
        ))
        .unwrap();
    let start = tokio::time::Instant::now();
    let mut events = watch().await;
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));
    assert!(events.next().await.unwrap().is_err());
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn which_requests_are_hit_by_chance_is_the_same_for_the_same_seed() {
    let run = async || {
        let (faults, maps) = world();
        faults
            .add(fault(json!({"kind": "error", "probability": 0.5})))
            .unwrap();
        let mut hits = Vec::new();
        for _ in 0..40 {
            hits.push(maps.list(&ListParams::default()).await.is_err());
        }
        hits
    };
    let first = run().await;
    assert_eq!(first, run().await);
    let count = first.iter().filter(|hit| **hit).count();
    assert!((8..32).contains(&count), "{count}");
}

#[test]
fn a_fault_that_makes_no_sense_is_refused_with_what_to_do() {
    let faults = Faults::new(1);
    for (spec, said) in [
        (json!({"kind": "error", "verb": "fetch"}), "use one of get, list"),
        (json!({"kind": "error", "status": 200}), "use 400 to 599"),
        (
            json!({"kind": "error", "probability": 1.5}),
            "not between 0 and 1",
        ),
        (json!({"kind": "latency"}), "needs a delay"),
        (json!({"kind": "latency", "delay": "soon"}), "write it as"),
        (json!({"kind": "latency", "delay": "-1s"}), "write it as"),
        (json!({"kind": "drop", "status": 500}), "no meaning"),
        (json!({"kind": "gone", "delay": "1s"}), "no meaning"),
        (json!({"kind": "drop", "count": 0}), "leave it out"),
    ] {
        let error = faults.add(fault(spec)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(serde_json::from_value::<Fault>(json!({"kind": "error", "sttus": 1})).is_err());
    assert!(faults.list().is_empty());
}
