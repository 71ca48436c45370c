//! Credentials that prove nothing: each is refused, on every surface, whatever is wrong with it.

use std::sync::Arc;

use tonic::{Code, metadata::MetadataValue};

use super::{
    fakes::{SteeredClock, World, call, channel, guarded, raw},
    lifecycle::{in_memory, prepared},
};
use crate::{
    api::{
        errors::ErrorDocument,
        proto::{
            private_v1::{
                CreateTokenRequest, ListTokensRequest, RevokeTokenRequest,
                access_service_client::AccessServiceClient,
            },
            v1::{GetStatusRequest, WatchStatusRequest, status_service_client::StatusServiceClient},
        },
    },
    domain::{access::Role, secret::Secret},
    ports::clock::SimulatedClock,
};

fn bearing<T>(token: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let value = MetadataValue::try_from(format!("Bearer {token}")).unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

#[tokio::test]
async fn no_tampered_token_gets_in() {
    let clock = SteeredClock::at("2026-01-01T00:00:00Z");
    let world = World::with_clock(clock.clone());
    let good = world.token(Role::Operator, "root").await;
    let other = world.token(Role::Operator, "other").await;
    let soon = "2026-01-01T01:00:00Z".parse().unwrap();
    let expired = world.token_until(Role::Operator, "late", Some(soon)).await;
    clock.set("2026-01-01T01:00:00Z");
    let server = world.start(guarded()).await;
    let mut client = StatusServiceClient::new(channel(server.grpc_address.unwrap()).await);
    let mut access = AccessServiceClient::new(channel(server.grpc_address.unwrap()).await);
    let revoked = access
        .create_token(bearing(
            good.expose(),
            CreateTokenRequest {
                name: "short".into(),
                role: "operator".into(),
                ..CreateTokenRequest::default()
            },
        ))
        .await
        .unwrap()
        .into_inner();
    client
        .get(bearing(&revoked.secret, GetStatusRequest {}))
        .await
        .unwrap();
    access
        .revoke_token(bearing(
            good.expose(),
            RevokeTokenRequest {
                id: revoked.token.unwrap().id,
                ..RevokeTokenRequest::default()
            },
        ))
        .await
        .unwrap();

    let text = good.expose();
    let (id, secret) = text.strip_prefix("fht_").unwrap().split_once('_').unwrap();
    let other_secret = other.expose().rsplit('_').next().unwrap();
    let flipped = if secret.ends_with('0') { "1" } else { "0" };
    let mut cut = text.to_owned();
    cut.pop();
    let tampered = [
        ("truncated", cut.clone()),
        ("one letter changed", format!("{cut}{flipped}")),
        ("another one's secret", format!("fht_{id}_{other_secret}")),
        ("upper case", format!("fht_{id}_{}", secret.to_uppercase())),
        ("without a secret", format!("fht_{id}_")),
        ("without an id", format!("fht__{secret}")),
        ("only the prefix", "fht_".into()),
        ("twice as long", format!("{text}{secret}")),
        ("garbage", "hello".into()),
        ("a JWT with alg none", "eyJhbGciOiJub25lIn0.e30.".into()),
        ("empty", String::new()),
        ("the hash itself", format!("fht_{id}_{}", "0".repeat(64))),
        ("expired", expired.expose().to_owned()),
        ("revoked", revoked.secret),
    ];
    for (what, token) in tampered {
        let refused = client
            .get(bearing(&token, GetStatusRequest {}))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{what}");
        assert_eq!(
            ErrorDocument::from_status(&refused).error.code,
            "unauthenticated",
            "{what}"
        );
        let token = Secret::new(token);
        let answer = call(
            server.http_address.unwrap(),
            "GET",
            "/api/v1/status",
            Some(&token),
            "",
        )
        .await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (401, "unauthenticated".into()),
            "{what}"
        );
        assert!(answer.head.contains("www-authenticate: bearer"), "{what}");
    }
    assert!(client.get(bearing(text, GetStatusRequest {})).await.is_ok());
}

#[tokio::test]
async fn an_authorization_header_of_another_kind_is_refused() {
    let world = World::new();
    let good = world.token(Role::Operator, "root").await;
    let server = world.start(guarded()).await;
    let address = server.http_address.unwrap();
    let bearer = format!("authorization: Bearer {}", good.expose());
    for lines in [
        "authorization: Basic cm9vdDpyb290".to_owned(),
        format!("authorization: {}", good.expose()),
        format!("authorization: Bearer\u{b} {}", good.expose()),
        format!("{bearer}\r\n{bearer}"),
    ] {
        let request =
            format!("GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n\r\n");
        let answer = raw(address, &request).await;
        assert!(matches!(answer.status, 400 | 401), "{lines:?}: {answer:?}");
    }
}

#[tokio::test]
async fn a_bad_token_is_refused_on_trusting_loopback_too() {
    let world = World::new();
    let mut options = guarded();
    options.require_identity = false;
    let server = world.start(options).await;
    let mut client = StatusServiceClient::new(channel(server.grpc_address.unwrap()).await);
    assert!(client.get(GetStatusRequest {}).await.is_ok());
    let refused = client
        .get(bearing("fht_x", GetStatusRequest {}))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn an_open_stream_ends_when_its_token_is_revoked() {
    let world = World::new();
    let root = world.token(Role::Operator, "root").await;
    let reader = world.token(Role::Marketplace, "").await;
    let server = world.start(guarded()).await;
    let channel = channel(server.grpc_address.unwrap()).await;
    let mut client = StatusServiceClient::new(channel.clone());
    let mut stream = client
        .watch(bearing(reader.expose(), WatchStatusRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert!(stream.message().await.unwrap().is_some());
    let mut access = AccessServiceClient::new(channel);
    let listed = access
        .list_tokens(bearing(root.expose(), ListTokensRequest {}))
        .await
        .unwrap()
        .into_inner();
    let id = listed
        .tokens
        .into_iter()
        .find(|token| token.role == "marketplace")
        .unwrap()
        .id;
    let revoke = RevokeTokenRequest {
        id,
        ..RevokeTokenRequest::default()
    };
    access.revoke_token(bearing(root.expose(), revoke)).await.unwrap();
    let ended = stream.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_ends_when_its_token_expires() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let world = World::with_clock(Arc::new(SimulatedClock::starting_at(start)));
    world.token(Role::Operator, "root").await;
    let end = "2026-01-01T06:00:00Z".parse().unwrap();
    let reader = world.token_until(Role::Marketplace, "", Some(end)).await;
    let server = prepared(&world, guarded()).await;
    let mut client = StatusServiceClient::new(in_memory(&server).await);
    let mut stream = client
        .watch(bearing(reader.expose(), WatchStatusRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(world.clock.wall().duration_until(end).as_secs(), 0);
}
