//! The HTTP routes as monitoring and operators see them.

use serde_json::{Value, json};

use super::fakes::{World, call, get, raw, sample_actor, sample_status};
use crate::{api::server::Options, domain::actor::ProvokedFault};

fn debugging() -> Options {
    let mut options = Options::loopback();
    options.debug = true;
    options
}

#[tokio::test]
async fn readiness_is_a_status_code_with_reasons() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let address = server.http_address.unwrap();
    let answer = get(address, "/readyz").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"ready": true})));
    world.provider.status.send_replace(sample_status(false));
    let answer = get(address, "/readyz").await;
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.json(),
        json!({"ready": false, "reasons": [{"part": "inventory", "code": "not_listed",
            "message": "no complete list yet", "since": "2026-11-15T12:00:00.5Z"}]})
    );
    assert_eq!(get(address, "/livez").await.status, 200);
}

#[tokio::test]
async fn status_and_inventory_are_the_documents_of_the_interface() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let status = get(server.http_address.unwrap(), "/api/v1/status").await;
    assert_eq!(status.json(), serde_json::to_value(sample_status(true)).unwrap());
    assert_eq!(
        status.json()["inventory"],
        json!({"revision": 9, "age_ms": 12, "nodes": null})
    );
    let inventory = get(server.http_address.unwrap(), "/api/v1/inventory").await;
    assert_eq!(
        inventory.json(),
        json!({"revision": 9, "observed_at": null, "age_ms": null, "ready": false, "nodes": []})
    );
}

#[tokio::test]
async fn metrics_are_served_and_calls_are_counted_by_route_not_by_path() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let address = server.http_address.unwrap();
    get(address, "/livez").await;
    get(address, "/secret-hostname.example").await;
    let page = get(address, "/metrics").await;
    assert!(
        page.head.contains("application/openmetrics-text"),
        "{}",
        page.head
    );
    for line in [
        r#"freehold_http_requests_total{method="/livez",code="200"} 1"#,
        r#"freehold_http_requests_total{method="unlisted",code="404"} 1"#,
    ] {
        assert!(page.body.contains(line), "no {line} in\n{}", page.body);
    }
    assert!(!page.body.contains("secret-hostname"));
}

#[tokio::test]
async fn the_actor_tree_is_shown_and_unknown_paths_are_not_found() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let address = server.http_address.unwrap();
    let tree = get(address, "/debug/actors").await;
    assert_eq!(tree.json(), serde_json::to_value(sample_actor()).unwrap());
    assert_eq!(get(address, "/debug/actors?path=root&depth=1").await.status, 200);
    let missing = get(address, "/debug/actors?path=root/nobody").await;
    assert_eq!((missing.status, missing.error_code()), (404, "not_found".into()));
    let bad = get(address, "/debug/actors?depth=-1").await;
    assert_eq!((bad.status, bad.error_code()), (400, "invalid".into()));
}

#[tokio::test]
async fn faults_are_provoked_only_when_debugging_is_on() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let path = "/debug/actors/root/node-pool/n1/fault";
    for (method, path) in [
        ("POST", path),
        ("GET", "/debug/faults"),
        ("POST", "/debug/faults"),
        ("DELETE", "/debug/faults"),
    ] {
        let answer = call(
            server.http_address.unwrap(),
            method,
            path,
            None,
            r#"{"kind": "panic"}"#,
        )
        .await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (404, "debug_disabled".into()),
            "{method} {path}"
        );
        let hint = answer.json()["error"]["hint"].clone();
        assert!(hint.as_str().unwrap().contains("debug.enabled"), "{hint}");
    }
    assert!(world.provider.provoked.lock().is_empty());

    let server = world.start(debugging()).await;
    let address = server.http_address.unwrap();
    let answer = call(address, "POST", path, None, r#"{"kind": "freeze"}"#).await;
    assert_eq!(answer.status, 202);
    assert_eq!(
        *world.provider.provoked.lock(),
        [("root/node-pool/n1".to_owned(), ProvokedFault::Freeze)]
    );
    let unknown = call(
        address,
        "POST",
        "/debug/actors/root/x/fault",
        None,
        r#"{"kind": "stop"}"#,
    )
    .await;
    assert_eq!(unknown.status, 404);
    for body in [
        "",
        "{}",
        r#"{"kind": "explode"}"#,
        "[",
        r#"{"kind": "stop", "now": 1}"#,
    ] {
        let answer = call(address, "POST", path, None, body).await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (400, "invalid".into()),
            "{body}"
        );
    }
    assert_eq!(
        call(address, "POST", "/debug/actors/root", None, "{}")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn faults_of_the_embedded_cluster_are_listed_added_and_cleared() {
    let world = World::new();
    let server = world.start(debugging()).await;
    let address = server.http_address.unwrap();
    let fault = r#"{"verb": "list", "resource": "nodes", "kind": "error", "status": 503, "retry_after": "2s", "count": 3}"#;
    assert_eq!(
        call(address, "POST", "/debug/faults", None, fault).await.status,
        201
    );
    let listed = get(address, "/debug/faults").await.json();
    assert_eq!(listed[0]["status"], 503);
    assert_eq!(listed[0]["retry_after"], "2s");
    let bad = call(
        address,
        "POST",
        "/debug/faults",
        None,
        r#"{"kind": "drop", "probability": 7}"#,
    )
    .await;
    assert_eq!(
        (bad.status, bad.json()["error"]["field"].clone()),
        (400, json!("probability"))
    );
    assert_eq!(
        call(address, "DELETE", "/debug/faults", None, "").await.status,
        200
    );
    assert_eq!(get(address, "/debug/faults").await.json(), json!([]));
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_on_loopback() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let address = server.http_address.unwrap();
    for lines in [
        "host: evil.example",
        "host: localhost\r\norigin: http://evil.example",
        "host: 127.0.0.1\r\norigin: null",
        "host: localhost\r\nhost: evil.example",
        "x: y",
    ] {
        let request = format!("GET /api/v1/status HTTP/1.1\r\n{lines}\r\nconnection: close\r\n\r\n");
        let answer = raw(address, &request).await;
        assert!(matches!(answer.status, 400 | 403), "{lines}: {answer:?}");
        assert!(!answer.body.contains("revision"), "{lines}");
    }
    // An absolute form is judged by what it names.
    let request =
        "GET http://evil.example/api/v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(raw(address, request).await.status, 403);
    let fine = "GET /api/v1/status HTTP/1.1\r\nhost: localhost:1\r\norigin: http://localhost:1\r\nconnection: close\r\n\r\n";
    assert_eq!(raw(address, fine).await.status, 200);
}

#[tokio::test]
async fn errors_are_json_whatever_was_asked() {
    let world = World::new();
    let server = world.start(Options::loopback()).await;
    let address = server.http_address.unwrap();
    for (method, path, status, code) in [
        ("GET", "/nothing", 404, "no_such_method"),
        ("GET", "/livez/../api/v1/status", 404, "no_such_method"),
        ("POST", "/api/v1/status", 405, "method_not_allowed"),
        ("BREW", "/livez", 405, "method_not_allowed"),
    ] {
        let answer = call(address, method, path, None, "").await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (status, code.to_owned()),
            "{method} {path}"
        );
        let error: Value = answer.json()["error"].clone();
        for field in ["code", "message", "field", "hint"] {
            assert!(error.get(field).is_some(), "{field}");
        }
    }
}

#[tokio::test]
async fn the_plain_health_listener_has_health_and_metrics_and_nothing_else() {
    let world = World::new();
    let mut options = Options::loopback();
    options.health = Some(([0, 0, 0, 0], 0).into());
    let server = world.start(options).await;
    let port = server.health_address.unwrap().port();
    let address = ([127, 0, 0, 1], port).into();
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(address, path).await.status, 200, "{path}");
    }
    for path in [
        "/",
        "/api/v1/status",
        "/api/v1/inventory",
        "/debug/actors",
        "/debug/faults",
    ] {
        assert_eq!(get(address, path).await.status, 404, "{path}");
    }
    let probe = "GET /readyz HTTP/1.1\r\nhost: 10.1.2.3:9000\r\nconnection: close\r\n\r\n";
    assert_eq!(
        raw(address, probe).await.status,
        200,
        "probes come by the pod's address"
    );
}

#[tokio::test]
async fn the_dashboard_shows_hostile_names_as_text() {
    let world = World::new();
    let mut status = sample_status(false);
    status.reasons[0].message = "<script>alert(1)</script>".into();
    world.provider.status.send_replace(status);
    let server = world.start(Options::loopback()).await;
    let page = get(server.http_address.unwrap(), "/").await;
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-security-policy: default-src 'none'"));
    assert!(page.body.contains("&lt;script&gt;alert(1)") && !page.body.contains("<script>"));
}
