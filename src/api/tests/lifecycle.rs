//! Starting, being healthy, stopping.

use std::{sync::atomic::Ordering, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::{io::DuplexStream, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::fakes::{World, channel, get, sample_status};
use crate::{
    api::{
        errors::ErrorDocument,
        proto::{
            private_v1::{
                BackupStoreRequest, ListActorsRequest, VerifyStoreRequest,
                debug_service_client::DebugServiceClient, store_service_client::StoreServiceClient,
            },
            v1::{
                GetInventoryRequest, GetStatusRequest, WatchEventsRequest, WatchStatusRequest,
                event_service_client::EventServiceClient, inventory_service_client::InventoryServiceClient,
                status_service_client::StatusServiceClient,
            },
        },
        server::{Options, Running, Server, StartError},
        wire,
    },
    domain::event::Change,
};

/// A channel over memory, so that the paused clock drives everything.
pub(super) async fn in_memory(server: &Running) -> Channel {
    let (sender, receiver) = mpsc::channel::<DuplexStream>(8);
    let incoming = ReceiverStream::new(receiver);
    server.serve_grpc_on(futures::StreamExt::map(incoming, Ok));
    Endpoint::from_static("http://in-memory")
        .connect_with_connector(tower::service_fn(move |_: http::Uri| {
            let sender = sender.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                sender.send(theirs).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(ours))
            }
        }))
        .await
        .unwrap()
}

pub(super) async fn prepared(world: &World, options: Options) -> Running {
    Server::prepare(options, world.parts()).await.unwrap().run()
}

#[tokio::test]
async fn the_services_answer_with_what_the_program_knows() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let channel = channel(server.grpc_address.unwrap()).await;
    let status = StatusServiceClient::new(channel.clone())
        .get(GetStatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        wire::status::parse(status.status.unwrap()),
        Ok(sample_status(true))
    );
    let inventory = InventoryServiceClient::new(channel.clone())
        .get(GetInventoryRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(inventory.inventory.unwrap().revision, 9);
    let mut events = EventServiceClient::new(channel.clone());
    let mut stream = events
        .watch(WatchEventsRequest {
            topics: vec![],
            after: Some(41),
        })
        .await
        .unwrap()
        .into_inner();
    let event = wire::event::parse(stream.message().await.unwrap().unwrap()).unwrap();
    assert_eq!((event.sequence, event.key.as_str()), (42, "n1"));
    assert!(matches!(event.change, Change::Value(_)));
    let mut store = StoreServiceClient::new(channel.clone());
    let mut chunks = store.backup(BackupStoreRequest {}).await.unwrap().into_inner();
    let mut copy = Vec::new();
    while let Some(chunk) = chunks.message().await.unwrap() {
        copy.extend(chunk.data);
    }
    assert_eq!(copy, b"onetwo");
    let refused = store.verify(VerifyStoreRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let actor = DebugServiceClient::new(channel)
        .list_actors(ListActorsRequest {
            path: "root/nobody".into(),
            depth: None,
        })
        .await
        .unwrap_err();
    assert_eq!(actor.code(), Code::NotFound);
}

#[tokio::test]
async fn a_handler_that_panics_fails_its_own_call_only() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let channel = channel(server.grpc_address.unwrap()).await;
    let mut statuses = StatusServiceClient::new(channel.clone())
        .watch(WatchStatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(statuses.message().await.unwrap().is_some());
    let broken = DebugServiceClient::new(channel.clone())
        .list_actors(ListActorsRequest {
            path: "panic".into(),
            depth: None,
        })
        .await
        .unwrap_err();
    assert_eq!(broken.code(), Code::Internal);
    assert!(
        !broken.message().contains("on request"),
        "what went wrong is ours to know"
    );
    world.provider.status.send_modify(|status| status.leases = 77);
    let next = statuses.message().await.unwrap().unwrap();
    assert_eq!(next.status.unwrap().leases, 77, "the stream beside it goes on");
}

#[tokio::test]
async fn an_unknown_topic_and_a_lost_sequence_are_told_apart() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let mut events = EventServiceClient::new(channel(server.grpc_address.unwrap()).await);
    let unknown = events
        .watch(WatchEventsRequest {
            topics: vec!["inventory.node".into()],
            after: None,
        })
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let hint = ErrorDocument::from_status(&unknown).error.hint;
    assert_eq!(hint.as_deref(), Some("did you mean inventory.nodes?"));
    let lost = events
        .watch(WatchEventsRequest {
            topics: vec![],
            after: Some(1000),
        })
        .await
        .unwrap_err();
    assert_eq!(lost.code(), Code::OutOfRange);
}

#[tokio::test(start_paused = true)]
async fn health_follows_readiness_for_the_whole_and_each_service() {
    let world = World::new();
    world.provider.status.send_replace(sample_status(false));
    let server = prepared(&world, Options::loopback()).await;
    let mut health = HealthClient::new(in_memory(&server).await);
    let mut seen = health
        .watch(HealthCheckRequest {
            service: String::new(),
        })
        .await
        .unwrap()
        .into_inner();
    let next = seen.message().await.unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::NotServing);
    world.provider.status.send_replace(sample_status(true));
    assert_eq!(
        seen.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    for service in crate::api::access::table::services() {
        // Services are told one after the other: wait for this one.
        let mut stream = health
            .watch(HealthCheckRequest {
                service: service.into(),
            })
            .await
            .unwrap()
            .into_inner();
        while stream.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
    }
    world.provider.status.send_replace(sample_status(false));
    assert_eq!(
        seen.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    let unknown = health
        .check(HealthCheckRequest {
            service: "nothing".into(),
        })
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_calls_finish_and_ends_streams_with_unavailable() {
    let world = World::new();
    world.provider.slow_verify.store(true, Ordering::SeqCst);
    let server = prepared(&world, Options::loopback()).await;
    let channel = in_memory(&server).await;
    let mut status = StatusServiceClient::new(channel.clone());
    let mut statuses = status.watch(WatchStatusRequest {}).await.unwrap().into_inner();
    let mut events = EventServiceClient::new(channel.clone())
        .watch(WatchEventsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert!(statuses.message().await.unwrap().is_some());
    assert!(events.message().await.unwrap().is_some());
    let mut store = StoreServiceClient::new(channel.clone());
    let verify = tokio::spawn(async move { store.verify(VerifyStoreRequest {}).await });
    tokio::time::sleep(Duration::from_secs(1)).await;

    let stopped = server.stop(Duration::from_secs(20)).await;
    assert_eq!(stopped.cut_off, 0);
    assert_eq!(statuses.message().await.unwrap_err().code(), Code::Unavailable);
    let ended = events.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable);
    assert_eq!(ErrorDocument::from_status(&ended).error.code, "stopping");
    assert_eq!(
        verify.await.unwrap().unwrap().into_inner().records,
        7,
        "it was in flight"
    );
    assert_eq!(
        status.get(GetStatusRequest {}).await.unwrap_err().code(),
        Code::Unavailable
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_longer_than_its_deadline() {
    let world = World::new();
    world.provider.slow_verify.store(true, Ordering::SeqCst);
    let server = prepared(&world, Options::loopback()).await;
    let mut store = StoreServiceClient::new(in_memory(&server).await);
    let verify = tokio::spawn(async move { store.verify(VerifyStoreRequest {}).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = tokio::time::Instant::now();
    let stopped = server.stop(Duration::from_millis(500)).await;
    assert_eq!(stopped.cut_off, 1);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(verify.await.unwrap().is_err());
}

#[tokio::test]
async fn a_stopped_server_gives_its_ports_back() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let (grpc, http) = (server.grpc_address.unwrap(), server.http_address.unwrap());
    assert_eq!(get(http, "/livez").await.status, 200);
    server.stop(Duration::from_secs(5)).await;
    let mut options = Options::loopback();
    (options.grpc, options.http) = (grpc, http);
    world.start(options).await;
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_key() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let mut options = Options::loopback();
    options.http = server.http_address.unwrap();
    let error = Server::start(options, world.parts()).await.unwrap_err();
    assert!(
        matches!(
            error,
            StartError::PortInUse {
                key: "api.http.listen",
                ..
            }
        ),
        "{error}"
    );
    assert!(!error.is_configuration());
    assert!(
        error
            .to_string()
            .contains("set api.http.listen to another address"),
        "{error}"
    );
}

#[tokio::test]
async fn listening_off_loopback_without_tls_is_refused() {
    let world = World::new();
    for address in ["0.0.0.0:0", "192.0.2.1:7070", "[::]:0", "[::ffff:192.0.2.1]:0"] {
        for http in [false, true] {
            let mut options = Options::loopback();
            options.require_identity = true;
            let place = if http {
                &mut options.http
            } else {
                &mut options.grpc
            };
            *place = address.parse().unwrap();
            let error = Server::start(options, world.parts()).await.unwrap_err();
            assert!(error.is_configuration(), "{error}");
            assert!(error.to_string().contains("api.tls.enabled"), "{error}");
        }
    }
    let mut options = Options::loopback();
    options.grpc = "[::ffff:127.0.0.1]:0".parse().unwrap();
    assert!(Server::prepare(options, world.parts()).await.is_ok());
}

#[tokio::test]
async fn wanting_credentials_that_nobody_has_is_refused() {
    let world = World::new();
    let mut options = Options::loopback();
    options.require_identity = true;
    let error = Server::start(options, world.parts()).await.unwrap_err();
    assert!(matches!(error, StartError::NoIdentities) && error.is_configuration());
}

#[tokio::test]
async fn reflection_lists_the_services() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let mut client = ServerReflectionClient::new(channel(server.grpc_address.unwrap()).await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = client
        .server_reflection_info(futures::stream::iter([request]))
        .await
        .unwrap()
        .into_inner();
    let answer = answers
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else {
        panic!("{answer:?}");
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for wanted in [
        "freehold.v1.StatusService",
        "freehold.private.v1.StoreService",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&wanted), "{names:?}");
    }
}
