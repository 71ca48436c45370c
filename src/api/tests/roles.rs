//! Every RPC and every route, for every role and for nobody. What is expected stands here a second
//! time on purpose: opening something to a role takes two hands.

use std::collections::BTreeSet;

use http::{HeaderValue, header};
use tonic::{Code, body::Body, transport::Channel};
use tower::ServiceExt as _;

use super::fakes::{World, call, channel, guarded};
use crate::{
    api::{
        access::table::{ROUTES, RPCS},
        server::Options,
    },
    domain::{access::Role, secret::Secret},
};

/// Who may: `*` is everybody, `o` operator, `m` marketplace, `t` tenant, `s` synchronizer, `n` node.
const EXPECTED_RPCS: &[(&str, &str)] = &[
    ("/freehold.v1.StatusService/Get", "om"),
    ("/freehold.v1.StatusService/Watch", "om"),
    ("/freehold.v1.InventoryService/Get", "om"),
    ("/freehold.v1.EventService/Watch", "o"),
    ("/freehold.private.v1.AccessService/CreateToken", "o"),
    ("/freehold.private.v1.AccessService/ListTokens", "o"),
    ("/freehold.private.v1.AccessService/RevokeToken", "o"),
    ("/freehold.private.v1.DebugService/ListActors", "o"),
    ("/freehold.private.v1.DebugService/RetryActor", "o"),
    ("/freehold.private.v1.DebugService/ProvokeFault", "o"),
    ("/freehold.private.v1.DebugService/ListFaults", "o"),
    ("/freehold.private.v1.DebugService/AddFault", "o"),
    ("/freehold.private.v1.DebugService/ClearFaults", "o"),
    ("/freehold.private.v1.StoreService/Info", "o"),
    ("/freehold.private.v1.StoreService/Verify", "o"),
    ("/freehold.private.v1.StoreService/Backup", "o"),
    ("/grpc.health.v1.Health/Check", "*"),
    ("/grpc.health.v1.Health/Watch", "*"),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "o"),
];

const EXPECTED_ROUTES: &[(&str, &str, &str)] = &[
    ("GET", "/livez", "*"),
    ("GET", "/readyz", "*"),
    ("GET", "/metrics", "o"),
    ("GET", "/", "o"),
    ("GET", "/api/v1/status", "om"),
    ("GET", "/api/v1/inventory", "om"),
    ("GET", "/debug/actors", "o"),
    ("POST", "/debug/actors/root/node-pool/n1/fault", "o"),
    ("GET", "/debug/faults", "o"),
    ("POST", "/debug/faults", "o"),
    ("DELETE", "/debug/faults", "o"),
];

fn letter(role: Role) -> char {
    match role {
        Role::Operator => 'o',
        Role::Marketplace => 'm',
        Role::Tenant => 't',
        Role::Synchronizer => 's',
        Role::Node => 'n',
    }
}

fn expected(allowed: &str, role: Option<Role>) -> Expected {
    match role {
        _ if allowed == "*" => Expected::Admitted,
        None => Expected::Unauthenticated,
        Some(role) if allowed.contains(letter(role)) => Expected::Admitted,
        Some(_) => Expected::Forbidden,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Admitted,
    Unauthenticated,
    Forbidden,
}

/// Calls a method with an empty message. A refusal is told in the headers; whatever else is said means
/// that the call came through.
async fn knock(channel: &Channel, path: &str, token: Option<&Secret>) -> Expected {
    let mut request = http::Request::builder()
        .method("POST")
        .uri(format!("http://localhost{path}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Body::new(http_body_util::Full::new(bytes::Bytes::from_static(
            &[0; 5],
        ))))
        .unwrap();
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    let response = channel.clone().oneshot(request).await.unwrap();
    let status = response.headers().get("grpc-status");
    match status.map(|status| Code::from_bytes(status.as_bytes())) {
        Some(Code::Unauthenticated) => Expected::Unauthenticated,
        Some(Code::PermissionDenied) => Expected::Forbidden,
        _ => Expected::Admitted,
    }
}

async fn everybody(world: &World) -> Vec<(Option<Role>, Option<Secret>)> {
    let mut callers = vec![(None, None)];
    for role in Role::ALL {
        callers.push((Some(role), Some(world.token(role, "someone").await)));
    }
    callers
}

#[tokio::test]
async fn every_rpc_admits_its_roles_and_nobody_else() {
    let listed: BTreeSet<&str> = RPCS.iter().map(|(path, _)| *path).collect();
    let tested: BTreeSet<&str> = EXPECTED_RPCS.iter().map(|(path, _)| *path).collect();
    assert_eq!(tested, listed, "say here who may call it");

    let world = World::new();
    let callers = everybody(&world).await;
    let server = world.start(guarded()).await;
    let channel = channel(server.grpc_address.unwrap()).await;
    for (path, allowed) in EXPECTED_RPCS {
        for (role, token) in &callers {
            assert_eq!(
                knock(&channel, path, token.as_ref()).await,
                expected(allowed, *role),
                "{path} as {role:?}"
            );
        }
    }
}

#[tokio::test]
async fn every_route_admits_its_roles_and_nobody_else() {
    assert_eq!(EXPECTED_ROUTES.len(), ROUTES.len(), "say here who may call it");
    let world = World::new();
    let callers = everybody(&world).await;
    let server = world.start(guarded()).await;
    for (method, path, allowed) in EXPECTED_ROUTES {
        for (role, token) in &callers {
            let answer = call(server.http_address.unwrap(), method, path, token.as_ref(), "").await;
            let found = match answer.status {
                401 => Expected::Unauthenticated,
                403 => Expected::Forbidden,
                0 => panic!("{method} {path}: no answer"),
                _ => Expected::Admitted,
            };
            assert_eq!(found, expected(allowed, *role), "{method} {path} as {role:?}");
        }
    }
}

#[tokio::test]
async fn on_loopback_without_configuration_the_caller_is_operator() {
    let world = World::new();
    let mut options = guarded();
    options.require_identity = false;
    let server = world.start(options).await;
    let channel = channel(server.grpc_address.unwrap()).await;
    for (path, _) in EXPECTED_RPCS {
        assert_eq!(knock(&channel, path, None).await, Expected::Admitted, "{path}");
    }
    let tenant = world.token(Role::Tenant, "alice").await;
    let server = world.start(Options::loopback()).await;
    let answer = call(
        server.http_address.unwrap(),
        "GET",
        "/api/v1/status",
        Some(&tenant),
        "",
    )
    .await;
    assert_eq!(answer.status, 403, "who says who they are is taken at their word");
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented() {
    let world = World::new();
    let token = world.token(Role::Operator, "root").await;
    let server = world.start(guarded()).await;
    let channel = channel(server.grpc_address.unwrap()).await;
    for path in [
        "/freehold.v1.StatusService/Explode",
        "/x",
        "/freehold.v1.StatusService/Get/",
    ] {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let mut request = tonic::Request::new(());
        let bearer = format!("Bearer {}", token.expose()).parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        let refused = grpc
            .unary(request, path.parse().unwrap(), codec)
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{path}");
    }
}
