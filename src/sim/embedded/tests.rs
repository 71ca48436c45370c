//! The whole cluster as its users have it: through a client in the process, over HTTPS, over restarts.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt};

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Node, Pod, ServiceAccount},
};
use kube::{
    Client, ResourceExt,
    api::{Api as Kube, AttachParams, DeleteParams, ListParams, LogParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::*;
use crate::{
    ports::clock::{SimulatedClock, SystemClock},
    sim::faults::FaultKind,
};

fn simulated(nodes: usize) -> Options {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    Options {
        nodes,
        ..Options::new(Arc::new(SimulatedClock::starting_at(start)))
    }
}

fn real(nodes: usize, speed: f64) -> Options {
    Options {
        nodes,
        speed,
        ..Options::new(Arc::new(SystemClock::start()))
    }
}

fn web() -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "nginx:1", "env": [{"name": "GREETING", "value": "hello"}]}]}}},
    }))
    .unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}})).unwrap()
}

/// Waits until two pods are ready; returns the first.
async fn running(client: &Client) -> Pod {
    let pods: Kube<Pod> = Kube::default_namespaced(client.clone());
    loop {
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        let ready = |pod: &&Pod| {
            let conditions = pod
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten());
            conditions
                .into_iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        if all.iter().filter(ready).count() == 2 {
            return all.into_iter().next().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a command in the pod prints, and how it ends.
async fn exec(client: &Client, pod: &str, command: &[&str]) -> (String, Option<String>) {
    let pods: Kube<Pod> = Kube::default_namespaced(client.clone());
    let mut session = pods
        .exec(
            pod,
            command.iter().copied(),
            &AttachParams::default().stderr(false),
        )
        .await
        .unwrap();
    let mut said = String::new();
    session.stdout().unwrap().read_to_string(&mut said).await.unwrap();
    let status = session.take_status().unwrap().await.unwrap();
    session.join().await.unwrap();
    let code = status
        .details
        .and_then(|details| details.causes?.into_iter().next()?.message);
    (said, code)
}

#[tokio::test(start_paused = true)]
async fn a_client_without_sockets_runs_a_deployment_reads_logs_and_runs_commands() {
    let embedded = Embedded::start(simulated(12)).await.unwrap();
    let client = embedded.client();
    let nodes: Kube<Node> = Kube::all(client.clone());
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 12);
    let deployments: Kube<Deployment> = Kube::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &web()).await.unwrap();
    let pod = running(&client).await.name_any();
    let pods: Kube<Pod> = Kube::default_namespaced(client.clone());
    let log = pods.logs(&pod, &LogParams::default()).await.unwrap();
    assert!(log.lines().count() >= 3 && log.contains("nginx:1"), "{log}");
    let mut followed = pods
        .log_stream(
            &pod,
            &LogParams {
                follow: true,
                ..LogParams::default()
            },
        )
        .await
        .unwrap()
        .lines();
    let mut lines = 0;
    while lines < 6 {
        assert!(followed.try_next().await.unwrap().is_some());
        lines += 1;
    }
    assert_eq!(
        exec(&client, &pod, &["echo", "a", "b"]).await,
        ("a b\n".into(), None)
    );
    let (environment, _) = exec(&client, &pod, &["env"]).await;
    assert!(environment.contains("GREETING=hello\n"), "{environment}");
    let script = "echo $GREETING && false || echo '$GREETING'; exit 7";
    assert_eq!(
        exec(&client, &pod, &["sh", "-c", script]).await,
        ("hello\n$GREETING\n".into(), Some("7".into()))
    );
    assert_eq!(
        exec(&client, &pod, &["rm", "-rf", "/"]).await.1,
        Some("127".into())
    );
    embedded.stop().await;
}

/// What a client's work in a cluster of this seed leaves behind.
async fn trace(seed: u64) -> Vec<String> {
    let embedded = Embedded::start(Options { seed, ..simulated(6) }).await.unwrap();
    let mut cursor = embedded.objects().cursor(None, None).unwrap();
    let deployments: Kube<Deployment> = Kube::default_namespaced(embedded.client());
    deployments.create(&PostParams::default(), &web()).await.unwrap();
    running(&embedded.client()).await;
    let mut larger = deployments.get("web").await.unwrap();
    larger.spec.as_mut().unwrap().replicas = Some(5);
    larger.metadata.resource_version = None;
    deployments
        .replace("web", &PostParams::default(), &larger)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    deployments
        .delete("web", &DeleteParams::foreground())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let mut said = Vec::new();
    loop {
        let changes = cursor.read().unwrap();
        if changes.is_empty() {
            return said;
        }
        said.extend(
            changes
                .iter()
                .map(|change| format!("{:?} {} {}", change.kind, change.resource, change.object)),
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_through_a_client_and_another_seed_another() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(trace(seed))
    };
    let (first, second, other) = (run(1), run(1), run(2));
    assert!(first.len() > 50);
    assert_eq!(first, second);
    assert_ne!(first, other);
}

#[tokio::test]
async fn objects_survive_a_stop_and_a_crash_with_their_uids() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        persist: Some(directory.path().join("embedded")),
        ..real(3, 0.0)
    };
    let embedded = Embedded::start(options()).await.unwrap();
    assert!(embedded.recovered().is_none());
    let deployments: Kube<Deployment> = Kube::default_namespaced(embedded.client());
    deployments.create(&PostParams::default(), &web()).await.unwrap();
    let before = running(&embedded.client()).await;
    embedded.stop().await;

    let embedded = Embedded::start(options()).await.unwrap();
    let recovered = embedded.recovered().unwrap().clone();
    assert!(recovered.clean && recovered.objects > 20, "{recovered:?}");
    let pods: Kube<Pod> = Kube::default_namespaced(embedded.client());
    let after = pods.get(&before.name_any()).await.unwrap();
    assert_eq!(
        (after.uid(), after.resource_version()),
        (before.uid(), before.resource_version())
    );
    // Killed: nothing is told to stop, everything just ends. What was answered is there.
    let maps: Kube<ConfigMap> = Kube::default_namespaced(embedded.client());
    let mut made = BTreeMap::new();
    for number in 0..50 {
        let map = maps
            .create(&PostParams::default(), &config_map(&format!("m{number}")))
            .await
            .unwrap();
        made.insert(map.name_any(), map.uid());
    }
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory.path().join("embedded")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let last = embedded.objects().revision();
    let crashed = Embedded::start(Options {
        persist: Some(copy.path().to_owned()),
        ..real(3, 0.0)
    })
    .await
    .unwrap();
    assert!(!crashed.recovered().unwrap().clean);
    assert!(
        crashed.objects().revision() > last,
        "no revision means two things"
    );
    let maps: Kube<ConfigMap> = Kube::default_namespaced(crashed.client());
    for (name, uid) in made {
        assert_eq!(maps.get(&name).await.unwrap().uid(), uid);
    }
    let pods: Kube<Pod> = Kube::default_namespaced(crashed.client());
    assert_eq!(pods.get(&before.name_any()).await.unwrap().uid(), before.uid());
    crashed.stop().await;
    embedded.stop().await;
    assert!(reset(copy.path()).unwrap());
    assert!(!reset(&copy.path().join("nothing")).unwrap());
}

#[tokio::test]
async fn another_number_of_nodes_on_an_old_journal_adds_and_removes_samples() {
    let directory = tempfile::tempdir().unwrap();
    let options = |nodes| Options {
        persist: Some(directory.path().to_owned()),
        ..real(nodes, 0.0)
    };
    let mut uid = None;
    for nodes in [3, 5, 2] {
        let embedded = Embedded::start(options(nodes)).await.unwrap();
        let api: Kube<Node> = Kube::all(embedded.client());
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), nodes);
        let first = api.get("node-0001").await.unwrap().uid();
        assert_eq!(*uid.get_or_insert(first.clone()), first);
        embedded.stop().await;
    }
}

#[tokio::test]
async fn a_damaged_memory_is_refused_and_can_be_reset() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        persist: Some(directory.path().to_owned()),
        ..real(2, 0.0)
    };
    Embedded::start(options()).await.unwrap().stop().await;
    let path = directory.path().join("snapshot");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = Embedded::start(options()).await.unwrap_err().to_string();
    assert!(error.contains("freehold embedded reset"), "{error}");
    assert!(reset(directory.path()).unwrap());
    Embedded::start(options()).await.unwrap().stop().await;
}

#[tokio::test]
async fn bad_options_are_refused() {
    for speed in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            Embedded::start(real(1, speed)).await,
            Err(EmbeddedError::Speed { .. })
        ));
    }
    let missing = Options {
        fleet: Some("/does/not/exist.yaml".into()),
        ..real(1, 1.0)
    };
    assert!(
        Embedded::start(missing)
            .await
            .unwrap_err()
            .to_string()
            .contains("/does/not/exist.yaml")
    );
    let mut fault = Fault::any(FaultKind::Error);
    fault.probability = Some(7.0);
    assert!(matches!(
        Embedded::start(Options {
            faults: vec![fault],
            ..real(1, 1.0)
        })
        .await,
        Err(EmbeddedError::Fault(_))
    ));
}

#[tokio::test]
async fn several_clusters_live_side_by_side_and_faults_are_their_own() {
    let broken = Options {
        faults: vec![Fault::any(FaultKind::Error)],
        ..real(1, 0.0)
    };
    let (broken, sound) = (
        Embedded::start(broken).await.unwrap(),
        Embedded::start(real(2, 0.0)).await.unwrap(),
    );
    let nodes = |embedded: &Embedded| -> Kube<Node> { Kube::all(embedded.client()) };
    assert!(nodes(&broken).list(&ListParams::default()).await.is_err());
    assert_eq!(
        nodes(&sound)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    broken.faults().clear();
    assert_eq!(
        nodes(&broken)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_start_and_carry_pods() {
    let embedded = Embedded::start(simulated(1000)).await.unwrap();
    let nodes: Kube<Node> = Kube::all(embedded.client());
    let list = nodes.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(list.len(), 1000);
    assert_eq!(list[999].name_any(), "node-0999");
    let deployments: Kube<Deployment> = Kube::default_namespaced(embedded.client());
    deployments.create(&PostParams::default(), &web()).await.unwrap();
    running(&embedded.client()).await;
}

#[tokio::test]
async fn five_thousand_nodes_start_are_remembered_and_start_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        persist: Some(directory.path().to_owned()),
        ..real(5000, 0.0)
    };
    for clean in [None, Some(true)] {
        let embedded = Embedded::start(options()).await.unwrap();
        assert_eq!(embedded.recovered().map(|recovered| recovered.clean), clean);
        let nodes: Kube<Node> = Kube::all(embedded.client());
        let page = nodes.list(&ListParams::default().limit(10)).await.unwrap();
        assert_eq!(page.metadata.remaining_item_count, Some(4990));
        embedded.stop().await;
    }
}

/// A client from a kubeconfig, as kubectl would read it.
async fn from_file(path: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

fn install_crypto() {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[tokio::test]
async fn it_is_served_over_https_to_whoever_has_the_kubeconfig() {
    install_crypto();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("deep/embedded.kubeconfig");
    let options = || Options {
        persist: Some(directory.path().join("memory")),
        ..real(3, 0.0)
    };
    let embedded = Embedded::start(options()).await.unwrap();
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let address = embedded.serve(anywhere, &kubeconfig).await.unwrap();
    assert_eq!(
        std::fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let client = from_file(&kubeconfig).await;
    let deployments: Kube<Deployment> = Kube::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &web()).await.unwrap();
    let pod = running(&client).await.name_any();
    assert_eq!(
        exec(&client, &pod, &["echo", "over", "tls"]).await,
        ("over tls\n".into(), None)
    );

    // Without the token, or with another one, nothing is answered.
    let mut stranger = Kubeconfig::read_from(&kubeconfig).unwrap();
    let auth = stranger.auth_infos[0].auth_info.as_mut().unwrap();
    for token in [None, Some("guessed")] {
        auth.token = token.map(|token| token.to_owned().into());
        let config = kube::Config::from_custom_kubeconfig(
            Kubeconfig {
                auth_infos: vec![kube::config::NamedAuthInfo {
                    name: "embedded-admin".into(),
                    auth_info: Some(auth.clone()),
                    ..Default::default()
                }],
                ..Kubeconfig::read_from(&kubeconfig).unwrap()
            },
            &KubeConfigOptions::default(),
        )
        .await
        .unwrap();
        let nodes: Kube<Node> = Kube::all(Client::try_from(config).unwrap());
        let error = nodes.list(&ListParams::default()).await.unwrap_err();
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 401),
            "{error}"
        );
    }

    // A service account's token is known, but is not the administrator's.
    let accounts: Kube<ServiceAccount> = Kube::default_namespaced(client.clone());
    let request = TokenRequest {
        spec: TokenRequestSpec::default(),
        ..TokenRequest::default()
    };
    let token = accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await
        .unwrap();
    auth.token = Some(token.status.unwrap().token.into());
    let mut theirs = Kubeconfig::read_from(&kubeconfig).unwrap();
    theirs.auth_infos[0].auth_info = Some(auth.clone());
    let config = kube::Config::from_custom_kubeconfig(theirs, &KubeConfigOptions::default())
        .await
        .unwrap();
    let theirs = Client::try_from(config).unwrap();
    let answer = Kube::<Node>::all(theirs).list(&ListParams::default()).await;
    assert!(
        !matches!(&answer, Err(kube::Error::Api(status)) if status.code == 401),
        "{answer:?}"
    );

    let taken = embedded.serve(address, &kubeconfig).await.unwrap_err();
    assert!(
        matches!(taken, EmbeddedError::Serve(ServeError::InUse { listen }) if listen == address),
        "{taken}"
    );

    // After a restart on the same address the old kubeconfig is still good.
    embedded.stop().await;
    let embedded = Embedded::start(options()).await.unwrap();
    let again = directory.path().join("again");
    embedded.serve(address, &again).await.unwrap();
    assert_eq!(
        std::fs::read(&kubeconfig).unwrap(),
        std::fs::read(&again).unwrap()
    );
    let nodes: Kube<Node> = Kube::all(from_file(&kubeconfig).await);
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 3);
    embedded.stop().await;
}

#[tokio::test]
async fn a_dropped_cluster_stops_serving() {
    install_crypto();
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::start(real(1, 0.0)).await.unwrap();
    let address = embedded
        .serve("127.0.0.1:0".parse().unwrap(), &directory.path().join("k"))
        .await
        .unwrap();
    drop(embedded);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "still listening");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
