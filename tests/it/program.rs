//! The whole program on one paused clock: embedded cluster, store in memory, actors, gRPC over a duplex.

use std::{sync::Arc, time::Duration};

use freehold::{
    actors::{runtimes::Runtimes, wiring::Settings},
    adapters::kubernetes::KubernetesCluster,
    api::{
        proto::v1::{GetStatusRequest, status_service_client::StatusServiceClient},
        provider::{Keeper, KeeperError, Provider},
        server::{Options as ApiOptions, Parts, Running, Server},
    },
    app::{Ingredients, Program},
    bus::Tap,
    domain::{actor::ActorState, api_fault::ApiFault, secret::Secret, status::Recovery},
    ports::{
        binding::{BindError, ClusterBinding},
        clock::Clock,
        cluster::ClusterAddress,
        telemetry::Metrics,
    },
    sim::embedded::{Embedded, Options as EmbeddedOptions},
    store::memory::MemoryStore,
};
use futures::{FutureExt as _, future::BoxFuture};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::world::{clock, eventually, paused};

#[derive(Debug)]
struct AnyCluster;

impl ClusterBinding for AnyCluster {
    fn bind(&self, _uid: String) -> BoxFuture<'static, Result<(), BindError>> {
        async { Ok(()) }.boxed()
    }
}

#[derive(Debug)]
struct NothingKept;

impl Keeper for NothingKept {
    fn load(&self, _: &'static str) -> BoxFuture<'static, Result<Option<Secret>, KeeperError>> {
        async { Ok(None) }.boxed()
    }

    fn save(&self, _: &'static str, _: Secret) -> BoxFuture<'static, Result<(), KeeperError>> {
        async { Ok(()) }.boxed()
    }
}

struct World {
    clock: Arc<dyn Clock>,
    embedded: Embedded,
    program: Program,
    api: Running,
    metrics: Metrics,
    tap: Tap,
}

impl World {
    async fn start(nodes: usize, seed: u64) -> Self {
        let clock = clock();
        let embedded = EmbeddedOptions {
            nodes,
            seed,
            ..EmbeddedOptions::new(Arc::clone(&clock))
        };
        let embedded = Embedded::start(embedded).await.unwrap();
        let store = Arc::new(MemoryStore::new());
        let metrics = Metrics::new("test", "test");
        let address = ClusterAddress {
            kind: "embedded".into(),
            server: "in this process".into(),
        };
        let program = Program::start(Ingredients {
            runtimes: Runtimes::one(),
            clock: Arc::clone(&clock),
            store: store.clone(),
            binding: Arc::new(AnyCluster),
            upkeep: None,
            cluster: Arc::new(KubernetesCluster::new(embedded.client(), address)),
            faults: Some(embedded.faults()),
            metrics: metrics.clone(),
            settings: Settings {
                poll_period: Duration::from_secs(5),
                debug_frequency: 10,
                max_age: Duration::from_secs(120),
                mode: "manage".into(),
                debug: true,
            },
            epoch: 1,
            recovery: Recovery::default(),
            seed,
        });
        let tap = program.face.bus().tap(100_000);
        let parts = Parts {
            provider: program.face.clone(),
            store,
            keeper: Arc::new(NothingKept),
            clock: Arc::clone(&clock),
            metrics: metrics.clone(),
            reviewer: None,
        };
        let api = Server::prepare(ApiOptions::loopback(), parts)
            .await
            .unwrap()
            .run();
        Self {
            clock,
            embedded,
            program,
            api,
            metrics,
            tap,
        }
    }

    async fn ready(nodes: usize, seed: u64) -> Self {
        let world = Self::start(nodes, seed).await;
        eventually("ready", || world.program.face.status().ready).await;
        world
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.embedded.client())
    }

    fn known(&self) -> Vec<String> {
        self.program
            .face
            .inventory()
            .nodes
            .into_iter()
            .map(|node| node.name)
            .collect()
    }

    fn reasons(&self, node: &str) -> Vec<String> {
        let inventory = self.program.face.inventory();
        let node = inventory
            .nodes
            .into_iter()
            .find(|known| known.name == node)
            .expect("known");
        node.reasons.into_iter().map(|reason| reason.code).collect()
    }

    async fn patch(&self, node: &str, patch: serde_json::Value) {
        self.nodes()
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    async fn patch_status(&self, node: &str, patch: serde_json::Value) {
        self.nodes()
            .patch_status(node, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    fn fault(&self, fault: serde_json::Value) {
        let fault: ApiFault = serde_json::from_value(fault).unwrap();
        self.program.face.add_fault(fault).unwrap();
    }

    async fn channel(&self) -> Channel {
        let (sender, receiver) = tokio::sync::mpsc::channel::<DuplexStream>(8);
        self.api
            .serve_grpc_on(futures::StreamExt::map(ReceiverStream::new(receiver), Ok));
        let connector = tower::service_fn(move |_: http::Uri| {
            let sender = sender.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                sender.send(theirs).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(ours))
            }
        });
        Endpoint::from_static("http://in-memory")
            .connect_with_connector(connector)
            .await
            .unwrap()
    }

    async fn stop(self) {
        self.api.stop(Duration::from_secs(1)).await;
        self.program.stop().await;
        self.embedded.stop().await;
    }
}

#[test]
fn it_becomes_ready_and_answers_over_grpc() {
    paused(async {
        let world = World::ready(12, 1).await;
        let mut client = StatusServiceClient::new(world.channel().await);
        let status = client
            .get(GetStatusRequest {})
            .await
            .unwrap()
            .into_inner()
            .status
            .unwrap();
        assert!(status.ready, "{:?}", status.reasons);
        assert_eq!(status.inventory.unwrap().nodes, Some(12));
        assert_eq!(world.known().len(), 12);
        world.stop().await;
    });
}

#[test]
fn nodes_that_come_change_and_go_are_followed() {
    paused(async {
        let world = World::ready(3, 1).await;
        world
            .patch("node-0001", json!({"spec": {"unschedulable": true}}))
            .await;
        eventually("cordoned", || {
            world.reasons("node-0001").contains(&"cordoned".to_owned())
        })
        .await;
        world
            .patch("node-0001", json!({"spec": {"unschedulable": null}}))
            .await;
        eventually("sold again", || world.reasons("node-0001").is_empty()).await;
        world
            .nodes()
            .delete("node-0002", &DeleteParams::default())
            .await
            .unwrap();
        eventually("gone", || world.known() == ["node-0000", "node-0001"]).await;
        eventually("its actor, too", || {
            world
                .program
                .face
                .actors(Some("node-pool/node-0002"), None)
                .is_none()
        })
        .await;
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "new"}, "status": {"allocatable": {"cpu": "4"}},
        }))
        .unwrap();
        world.nodes().create(&Default::default(), &node).await.unwrap();
        eventually("known", || world.known().contains(&"new".to_owned())).await;
        assert!(
            world.reasons("new").contains(&"unreadable".to_owned()),
            "{:?}",
            world.reasons("new")
        );
        world.stop().await;
    });
}

#[test]
fn an_absurd_node_is_shown_with_its_problems_and_the_others_stay_right() {
    paused(async {
        let world = World::ready(3, 1).await;
        let absurd = json!({"status": {"allocatable": {"cpu": "-7", "memory": "1e999", "pods": "many"}}});
        world.patch_status("node-0001", absurd).await;
        eventually("noticed", || {
            world.reasons("node-0001").contains(&"unreadable".to_owned())
        })
        .await;
        let inventory = world.program.face.inventory();
        let node = &inventory.nodes[1];
        assert_eq!(node.cpu.quantity.allocatable, None, "unknown is not zero");
        assert!(!node.problems.is_empty());
        assert!(inventory.nodes[0].sellable && inventory.nodes[2].sellable && inventory.ready);
        world.stop().await;
    });
}

#[test]
fn a_node_whose_actor_fails_every_time_is_quarantined_and_everything_else_lives_on() {
    paused(async {
        let world = World::ready(3, 1).await;
        world
            .patch(
                "node-0001",
                json!({"metadata": {"labels": {"freehold.dev/provoke": "panic"}}}),
            )
            .await;
        let state = || {
            world
                .program
                .face
                .actors(Some("node-pool/node-0001"), None)
                .map(|actor| actor.state)
        };
        eventually("quarantined", || state() == Some(ActorState::Failed)).await;
        eventually("not sold", || {
            world.reasons("node-0001").contains(&"quarantined".to_owned())
        })
        .await;
        let inventory = world.program.face.inventory();
        assert!(inventory.ready && inventory.nodes[0].sellable && inventory.nodes[2].sellable);
        assert!(
            world.program.face.status().ready,
            "one broken node is no reason not to sell the others"
        );
        let text = world.program.face.metrics_text();
        assert!(
            text.contains(r#"freehold_actor_restarts_total{kind="node",cause="panic"} 5"#),
            "{text}"
        );
        world
            .patch(
                "node-0001",
                json!({"metadata": {"labels": {"freehold.dev/provoke": null}}}),
            )
            .await;
        tokio::time::sleep(Duration::from_secs(620)).await;
        assert_eq!(
            state(),
            Some(ActorState::Running),
            "tried again after ten minutes"
        );
        eventually("sold again", || world.reasons("node-0001").is_empty()).await;
        world.stop().await;
    });
}

#[test]
fn a_broken_watch_keeps_the_last_picture_until_it_is_too_old() {
    paused(async {
        let world = World::ready(3, 1).await;
        world.fault(json!({"resource": "nodes", "kind": "error", "status": 503}));
        world.fault(json!({"resource": "nodes", "verb": "watch", "kind": "cut"}));
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(
            world.program.face.status().ready,
            "the picture is old, but not too old"
        );
        tokio::time::sleep(Duration::from_secs(120)).await;
        let status = world.program.face.status();
        let codes: Vec<_> = status.reasons.iter().map(|reason| reason.code.as_str()).collect();
        assert_eq!(codes, ["unreachable", "stale"]);
        assert_eq!(
            world.known().len(),
            3,
            "nothing is gone because a source was silent"
        );
        world.program.face.clear_faults().unwrap();
        eventually("ready again", || world.program.face.status().ready).await;
        world.stop().await;
    });
}

#[test]
fn watches_that_expire_or_are_cut_never_flap_through_empty() {
    paused(async {
        let world = World::ready(5, 1).await;
        let mut least = usize::MAX;
        for round in 0..20 {
            let kind = if round % 2 == 0 { "gone" } else { "cut" };
            world.fault(json!({"resource": "nodes", "verb": "watch", "kind": kind, "count": 1}));
            let node = format!("node-000{}", round % 5);
            world
                .patch(
                    &node,
                    json!({"metadata": {"labels": {"round": round.to_string()}}}),
                )
                .await;
            for _ in 0..200 {
                tokio::time::sleep(Duration::from_millis(300)).await;
                least = least.min(world.known().len());
            }
            let inventory = world.program.face.inventory();
            let seen = inventory.nodes.iter().find(|known| known.name == node).unwrap();
            assert_eq!(
                seen.labels.get("round"),
                Some(&round.to_string()),
                "nothing is missed"
            );
        }
        assert_eq!(least, 5);
        world.stop().await;
    });
}

/// What a day looks like from the bus.
fn day(seed: u64) -> Vec<String> {
    let trace = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&trace);
    paused(async move {
        let world = World::ready(12, seed).await;
        for hour in 0..24_u64 {
            let node = format!("node-{:04}", hour % 12);
            let cordoned = hour.is_multiple_of(2);
            world
                .patch(&node, json!({"spec": {"unschedulable": cordoned}}))
                .await;
            if hour.is_multiple_of(5) {
                world.fault(json!({"resource": "nodes", "verb": "watch", "kind": "gone", "count": 1}));
            }
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        assert!(world.program.face.status().ready);
        assert!(world.clock.monotonic() >= Duration::from_secs(24 * 3600));
        let (missed, tapped) = world.tap.take();
        assert_eq!(missed, 0);
        let lines = tapped
            .iter()
            .map(|event| format!("{} {} {} {}", event.sequence, event.at, event.topic, event.key));
        kept.lock().unwrap().extend(lines);
        assert!(world.metrics.text().contains("freehold_"));
        world.stop().await;
    });
    Arc::try_unwrap(trace).unwrap().into_inner().unwrap()
}

#[test]
fn a_day_takes_seconds_and_the_same_seed_gives_the_same_trace() {
    let first = day(7);
    assert!(first.len() > 1000, "{} events", first.len());
    let second = day(7);
    for (one, other) in first.iter().zip(&second) {
        assert_eq!(one, other);
    }
    assert_eq!(first.len(), second.len());
}
