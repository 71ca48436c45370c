//! Bounds: sizes, rates, places, times.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::StreamExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::{
    fakes::{World, call, channel, raw},
    lifecycle::{in_memory, prepared},
};
use crate::api::{
    errors::ErrorDocument,
    proto::{
        private_v1::{VerifyStoreRequest, store_service_client::StoreServiceClient},
        v1::{
            GetStatusRequest, WatchEventsRequest, WatchStatusRequest,
            event_service_client::EventServiceClient, status_service_client::StatusServiceClient,
        },
    },
    server::Options,
};

#[tokio::test]
async fn a_message_that_is_too_long_is_refused() {
    let world = World::new();
    let mut options = Options::loopback();
    options.debug = true;
    options.limits.message_bytes = 1000;
    let server = world.start(options).await;
    let mut client = EventServiceClient::new(channel(server.grpc_address.unwrap()).await);
    let long = WatchEventsRequest {
        topics: vec!["x".repeat(2000)],
        after: None,
    };
    assert_eq!(client.watch(long).await.unwrap_err().code(), Code::OutOfRange);
    let body = format!(r#"{{"kind": "drop", "verb": "{}"}}"#, "x".repeat(2000));
    let answer = call(server.http_address.unwrap(), "POST", "/debug/faults", None, &body).await;
    assert_eq!((answer.status, answer.error_code()), (413, "too_large".into()));
}

#[tokio::test]
async fn headers_that_are_too_long_are_refused_and_the_server_lives_on() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let channel = channel(server.grpc_address.unwrap()).await;
    let mut client = StatusServiceClient::new(channel);
    let mut request = tonic::Request::new(GetStatusRequest {});
    let long = "x".repeat(64 * 1024).parse().unwrap();
    request.metadata_mut().insert("authorization", long);
    assert!(client.get(request).await.is_err());
    let request = format!(
        "GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\nconnection: close\r\n\r\n",
        "x".repeat(64 * 1024)
    );
    let answer = raw(server.http_address.unwrap(), &request).await;
    assert!(matches!(answer.status, 0 | 431), "{}", answer.status);
    let many: String = (0..200).map(|number| format!("x{number}: y\r\n")).collect();
    let request = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{many}connection: close\r\n\r\n");
    assert_ne!(raw(server.http_address.unwrap(), &request).await.status, 200);
    assert!(client.get(GetStatusRequest {}).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_asks_too_often_is_told_when_to_come_back() {
    let world = World::new();
    let mut options = Options::loopback();
    options.limits.calls_per_second = 2;
    options.limits.burst = 3;
    let server = prepared(&world, options).await;
    let mut client = StatusServiceClient::new(in_memory(&server).await);
    for _ in 0..3 {
        client.get(GetStatusRequest {}).await.unwrap();
    }
    let refused = client.get(GetStatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(ErrorDocument::from_status(&refused).error.code, "rate_limited");
    let wait: u64 = refused
        .metadata()
        .get("grpc-retry-pushback-ms")
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=500).contains(&wait), "{wait}");
    tokio::time::sleep(Duration::from_millis(wait)).await;
    assert!(client.get(GetStatusRequest {}).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn there_are_only_so_many_calls_and_streams_at_once() {
    let world = World::new();
    world.provider.slow_verify.store(true, Ordering::SeqCst);
    let mut options = Options::loopback();
    options.limits.calls = 1;
    options.limits.open_streams = 1;
    let server = prepared(&world, options).await;
    let channel = in_memory(&server).await;
    let mut status = StatusServiceClient::new(channel.clone());
    let mut store = StoreServiceClient::new(channel.clone());
    let verify = tokio::spawn(async move { store.verify(VerifyStoreRequest {}).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = status.get(GetStatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(verify.await.unwrap().is_ok());
    assert!(
        status.get(GetStatusRequest {}).await.is_ok(),
        "the place is free again"
    );

    let first = status.watch(WatchStatusRequest {}).await.unwrap();
    let refused = status.watch(WatchStatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(first);
    // The server learns of it by a frame; wait for that.
    while status.watch(WatchStatusRequest {}).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_the_deadline_of_its_client_or_ours() {
    let world = World::new();
    world.provider.slow_verify.store(true, Ordering::SeqCst);
    let mut options = Options::loopback();
    options.limits.call = Duration::from_secs(2);
    let server = prepared(&world, options).await;
    let channel = in_memory(&server).await;
    let mut store = StoreServiceClient::new(channel.clone());
    let begun = tokio::time::Instant::now();
    let late = store.verify(VerifyStoreRequest {}).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    let mut request = tonic::Request::new(WatchStatusRequest {});
    request
        .metadata_mut()
        .insert("grpc-timeout", "700m".parse().unwrap());
    let mut stream = StatusServiceClient::new(channel)
        .watch(request)
        .await
        .unwrap()
        .into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(stream.message().await.unwrap_err().code(), Code::DeadlineExceeded);
}

/// Connects in memory and says only `text`; how long until the server hangs up.
async fn loiter(grpc: bool, text: &str) -> Duration {
    let world = World::new();
    let mut options = Options::loopback();
    options.limits.handshake = Duration::from_secs(7);
    options.limits.idle = Duration::from_secs(60);
    let server = prepared(&world, options).await;
    let (sender, receiver) = mpsc::channel(1);
    let incoming = ReceiverStream::new(receiver).map(Ok);
    if grpc {
        server.serve_grpc_on(incoming);
    } else {
        server.serve_http_on(incoming);
    }
    let (mut ours, theirs) = tokio::io::duplex(1024);
    sender.send(theirs).await.unwrap();
    let begun = tokio::time::Instant::now();
    ours.write_all(text.as_bytes()).await.unwrap();
    let mut rest = Vec::new();
    let _ = ours.read_to_end(&mut rest).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed() {
    for grpc in [true, false] {
        assert!(loiter(grpc, "").await <= Duration::from_secs(10));
    }
    assert!(
        loiter(false, "GET /livez HTT").await <= Duration::from_secs(10),
        "half a request"
    );
    assert!(
        loiter(true, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await <= Duration::from_secs(10),
        "half a greeting"
    );
    let idle = loiter(false, "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(
        (Duration::from_secs(59)..Duration::from_secs(70)).contains(&idle),
        "{idle:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn connections_beyond_the_bound_wait_for_their_turn() {
    let world = World::new();
    let mut options = Options::loopback();
    options.limits.connections = 1;
    options.limits.idle = Duration::from_secs(60);
    let server = prepared(&world, options).await;
    let (sender, receiver) = mpsc::channel(4);
    server.serve_http_on(ReceiverStream::new(receiver).map(Ok));
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let (_first, theirs) = tokio::io::duplex(1024);
    sender.send(theirs).await.unwrap();
    let (mut second, theirs) = tokio::io::duplex(1024);
    sender.send(theirs).await.unwrap();
    second.write_all(request).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut answer = String::new();
    second.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "the first one had to go first"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_reading_holds_up_nobody_else() {
    let world = World::new();
    let server = prepared(&world, Options::loopback()).await;
    let mut slow = StatusServiceClient::new(in_memory(&server).await);
    let mut fast = StatusServiceClient::new(in_memory(&server).await);
    let mut stopped = slow.watch(WatchStatusRequest {}).await.unwrap().into_inner();
    let mut reading = fast.watch(WatchStatusRequest {}).await.unwrap().into_inner();
    let provider = Arc::clone(&world.provider);
    for round in 1..=2000_u64 {
        provider.status.send_modify(|status| status.leases = round);
        loop {
            let seen = reading.message().await.unwrap().unwrap().status.unwrap().leases;
            if seen == round {
                break;
            }
        }
    }
    // It gets what fitted into its window, then the newest.
    let mut last = 0;
    while last != 2000 {
        last = stopped.message().await.unwrap().unwrap().status.unwrap().leases;
    }
}
