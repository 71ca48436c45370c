use kube::api::{AttachParams, LogParams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

async fn prepare(world: &World) -> KubeApi<Pod> {
    let pods = world.here::<Pod>();
    pods.create(&params(), &pod("p")).await.unwrap();
    let mut two = serde_json::to_value(pod("two")).unwrap();
    two["spec"]["containers"] = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
    pods.create(&params(), &typed(two)).await.unwrap();
    pods
}

#[tokio::test(start_paused = true)]
async fn logs_are_selected_by_container_time_and_number() {
    let world = world();
    let pods = prepare(&world).await;
    let logs = async |name: &str, params: LogParams| pods.logs(name, &params).await;
    assert_eq!(
        logs("p", LogParams::default()).await.unwrap(),
        "web says 1\nweb says 2\nweb says 3\n"
    );
    let tail = LogParams {
        tail_lines: Some(1),
        timestamps: true,
        ..Default::default()
    };
    assert_eq!(
        logs("p", tail).await.unwrap(),
        "2026-01-01T03:00:00.000000000Z web says 3\n"
    );
    let since = LogParams {
        since_seconds: Some(7200),
        ..Default::default()
    };
    assert_eq!(logs("p", since).await.unwrap(), "web says 2\nweb says 3\n");
    let cut = LogParams {
        limit_bytes: Some(14),
        ..Default::default()
    };
    assert_eq!(logs("p", cut).await.unwrap(), "web says 1\nweb");
    let follow = LogParams {
        follow: true,
        tail_lines: Some(0),
        ..Default::default()
    };
    assert_eq!(logs("p", follow).await.unwrap(), "web says 4\n");
    let named = LogParams {
        container: Some("b".into()),
        tail_lines: Some(1),
        ..Default::default()
    };
    assert_eq!(logs("two", named).await.unwrap(), "b says 3\n");
    let which = status(logs("two", LogParams::default()).await);
    assert!(
        which.code == 400 && which.message.contains("choose one of: [a b]"),
        "{}",
        which.message
    );
    let unknown = LogParams {
        container: Some("c".into()),
        ..Default::default()
    };
    assert_eq!(status(logs("two", unknown).await).code, 400);
    let previous = LogParams {
        previous: true,
        ..Default::default()
    };
    assert_eq!(status(logs("p", previous).await).code, 400);
}

/// A client over one real HTTP connection in memory, because an upgrade needs a connection.
async fn connected(world: &World) -> Client {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let service = hyper_util::service::TowerToHyperService::new(router(world.api.clone()));
    tokio::spawn(
        hyper::server::conn::http1::Builder::new()
            .serve_connection(hyper_util::rt::TokioIo::new(theirs), service)
            .with_upgrades(),
    );
    let (sender, connection) = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(ours))
        .await
        .unwrap();
    tokio::spawn(connection.with_upgrades());
    let sender = Arc::new(tokio::sync::Mutex::new(sender));
    let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        let sender = Arc::clone(&sender);
        async move {
            request.headers_mut().insert("host", "embedded".parse().unwrap());
            let mut sender = sender.lock().await;
            sender.ready().await?;
            sender.send_request(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_command_runs_over_a_websocket_and_its_exit_code_comes_back() {
    let world = world();
    prepare(&world).await;
    let pods: KubeApi<Pod> = KubeApi::namespaced(connected(&world).await, "default");
    let asked = AttachParams::default().stdin(true);
    let mut process = pods.exec("p", ["echo", "hi"], &asked).await.unwrap();
    let mut stdin = process.stdin().unwrap();
    stdin.write_all(b", typed").await.unwrap();
    stdin.shutdown().await.unwrap();
    drop(stdin);
    let (mut stdout, mut stderr) = (process.stdout().unwrap(), process.stderr().unwrap());
    let ended = process.take_status().unwrap();
    let (mut said, mut complained) = (String::new(), String::new());
    stdout.read_to_string(&mut said).await.unwrap();
    stderr.read_to_string(&mut complained).await.unwrap();
    assert_eq!(
        (said.as_str(), complained.as_str()),
        ("ran echo hi, typed", "careful")
    );
    let ended = ended.await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("NonZeroExitCode"));
    assert_eq!(
        ended.details.unwrap().causes.unwrap()[0].message.as_deref(),
        Some("3")
    );
    process.join().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_a_command_is_refused_with_the_reason() {
    let world = world();
    let pods = prepare(&world).await;
    assert!(pods.exec("p", ["true"], &AttachParams::default()).await.is_err());
    let path = "/api/v1/namespaces/default/pods/p/exec?command=true";
    let refused = world.raw("POST", path, Value::Null).await.unwrap_err();
    assert!(
        refused.code == 400 && refused.message.contains("need a WebSocket upgrade"),
        "{}",
        refused.message
    );
}
