//! The testbed itself is tried: what tests rely on is true.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use futures::StreamExt as _;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Node, Pod},
    rbac::v1::PolicyRule,
};
use kube::{
    Api,
    api::{DynamicObject, ListParams, PostParams, WatchEvent, WatchParams},
    discovery::ApiResource,
};
use serde_json::json;

use super::{
    control_plane::{ControlPlane, client},
    nodes::{NodeShape, ready},
    options::Options,
    proxy::{Fault, Proxy},
    waiting::eventually,
};

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn config_map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}, "data": {"key": "value"}}))
}

/// The HTTP code of a refusal.
fn code<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> u16 {
    match answer {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("neither done nor refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_pod_gets_a_node_from_the_real_scheduler_and_runs_there() {
    let plane = ControlPlane::shared().await;
    let shape = NodeShape::new("fixture-gpu")
        .resource("nvidia.com/gpu", "8")
        .resource("cpu", "64")
        .allocatable("cpu", "63500m")
        .label("testbed/for", "fixture")
        .taint("testbed/for", "fixture", "NoSchedule");
    let node = plane.add_node(&shape).await;
    let status = node.status.unwrap();
    let capacity = status.capacity.unwrap();
    assert_eq!(capacity["nvidia.com/gpu"].0, "8");
    assert_eq!(capacity["cpu"].0, "64");
    assert_eq!(status.allocatable.unwrap()["cpu"].0, "63500m");

    let namespace = plane.namespace("fixture").await;
    let pods = Api::<Pod>::namespaced(plane.client().await, &namespace);
    let pod = |name: &str, gpus: &str| -> Pod {
        object(json!({
            "metadata": {"name": name},
            "spec": {
                "tolerations": [{"key": "testbed/for", "operator": "Exists"}],
                "nodeSelector": {"testbed/for": "fixture"},
                "containers": [{
                    "name": "main", "image": "example",
                    "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": "1", "memory": "1Gi"}},
                    "securityContext": {"privileged": true},
                }],
            },
        }))
    };
    pods.create(&PostParams::default(), &pod("fits", "6"))
        .await
        .unwrap();
    let running = eventually("the pod runs", || async {
        let pod = pods.get("fits").await.ok()?;
        (pod.status.as_ref()?.phase.as_deref()? == "Running").then_some(pod)
    })
    .await;
    assert_eq!(running.spec.unwrap().node_name.as_deref(), Some("fixture-gpu"));
    assert!(running.status.unwrap().pod_ip.is_some());

    pods.create(&PostParams::default(), &pod("does-not-fit", "3"))
        .await
        .unwrap();
    let reason = eventually("the scheduler says why not", || async {
        let conditions = pods.get("does-not-fit").await.ok()?.status?.conditions?;
        let scheduled = conditions
            .into_iter()
            .find(|condition| condition.type_ == "PodScheduled")?;
        scheduled.message
    })
    .await;
    assert!(reason.contains("Insufficient nvidia.com/gpu"), "{reason}");
}

#[tokio::test]
async fn an_account_may_do_what_it_was_allowed_and_the_audit_log_has_it() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("fixture").await;
    let account = plane.account(&namespace, "visitor").await;
    let visitor = account.client().await;
    let maps = Api::<ConfigMap>::namespaced(visitor.clone(), &namespace);

    let refused = maps.create(&PostParams::default(), &config_map("mine")).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("not refused: {refused:?}")
    };
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    assert!(status.message.contains(&account.user()), "{}", status.message);

    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["configmaps".to_owned()]),
        verbs: vec!["create".to_owned()],
        ..PolicyRule::default()
    };
    plane.allow(&account, vec![rule]).await;
    eventually("the role takes effect", || async {
        maps.create(&PostParams::default(), &config_map("mine"))
            .await
            .ok()
    })
    .await;
    assert_eq!(code(maps.get("mine").await), 403, "creating is not reading");
    assert_eq!(
        code(Api::<Node>::all(visitor).list(&ListParams::default()).await),
        403
    );

    let audited = plane.audited(&account);
    let has = |verb: &str, resource: &str, code: u64| {
        audited
            .iter()
            .any(|event| (event.verb.as_str(), event.resource.as_str(), event.code) == (verb, resource, code))
    };
    assert!(has("create", "configmaps", 403), "{audited:?}");
    assert!(has("create", "configmaps", 201), "{audited:?}");
    assert!(has("get", "configmaps", 403), "{audited:?}");
    assert!(has("list", "nodes", 403), "{audited:?}");
}

#[tokio::test]
async fn definitions_are_loaded_from_yaml_and_served() {
    let plane = ControlPlane::shared().await;
    let names = plane
        .load_definitions(
            "
kind: Namespace
metadata: {name: left-out}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.fixture.freehold.dev}
spec:
  group: fixture.freehold.dev
  scope: Cluster
  names: {kind: Widget, plural: widgets, singular: widget}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://127.0.0.1:1/'}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer, minimum: 1}}}}
---
",
        )
        .await;
    assert_eq!(names, ["widgets.fixture.freehold.dev"]);
    let resource = ApiResource {
        group: "fixture.freehold.dev".to_owned(),
        version: "v1".to_owned(),
        api_version: "fixture.freehold.dev/v1".to_owned(),
        kind: "Widget".to_owned(),
        plural: "widgets".to_owned(),
    };
    let widgets = Api::<DynamicObject>::all_with(plane.client().await, &resource);
    let widget =
        |name: &str, size: i64| DynamicObject::new(name, &resource).data(json!({"spec": {"size": size}}));
    widgets
        .create(&PostParams::default(), &widget("good", 1))
        .await
        .unwrap();
    assert_eq!(
        code(widgets.create(&PostParams::default(), &widget("bad", 0)).await),
        422
    );
}

#[tokio::test]
async fn a_silent_node_is_found_lost_and_an_unready_one_says_so() {
    let options = Options {
        scheduler: false,
        node_heartbeat: Duration::from_secs(1),
        ..Options::full()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    for name in ["well", "silent", "unready"] {
        plane.add_node(&NodeShape::new(name)).await;
    }
    plane.silence_node("silent").await;
    plane.make_node_unready("unready", "KubeletNotReady").await;
    let nodes = Api::<Node>::all(plane.client().await);
    let becomes = async |name: &'static str, wanted: &'static str| {
        eventually("the node's state is known", || async {
            let node = nodes.get(name).await.ok()?;
            (ready(&node)? == wanted).then_some(node)
        })
        .await
    };
    becomes("unready", "False").await;
    becomes("silent", "Unknown").await;
    becomes("well", "True").await;
    eventually("pods are kept off the lost node", || async {
        let taints = nodes.get("silent").await.ok()?.spec?.taints?;
        taints
            .iter()
            .any(|taint| taint.key == "node.kubernetes.io/unreachable")
            .then_some(())
    })
    .await;
    plane.heal_node("silent").await;
    plane.heal_node("unready").await;
    becomes("silent", "True").await;
    becomes("unready", "True").await;
    assert_eq!(plane.ready_nodes().await, 3);
}

#[tokio::test]
async fn the_api_server_comes_back_at_the_same_address_with_everything() {
    let mut plane = ControlPlane::start(Options::api_only()).await.unwrap();
    let address = plane.address();
    let maps = Api::<ConfigMap>::namespaced(plane.client().await, "default");
    maps.create(&PostParams::default(), &config_map("kept"))
        .await
        .unwrap();

    plane.kill_api_server().await;
    let refused = std::net::TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(maps.get("kept").await.is_err());

    plane.start_api_server().await.unwrap();
    assert_eq!(plane.address(), address);
    maps.get("kept").await.unwrap();

    plane.stop_api_server().await;
    plane.start_api_server().await.unwrap();
    maps.get("kept").await.unwrap();

    // Without etcd it waits rather than answers.
    plane.kill("etcd").await;
    let lost = config_map("lost");
    let post = PostParams::default();
    let write = tokio::time::timeout(Duration::from_secs(1), maps.create(&post, &lost)).await;
    assert!(!matches!(write, Ok(Ok(_))));
    plane.start_etcd().unwrap();
    eventually("the API server finds etcd again", || async {
        maps.get("kept").await.ok()
    })
    .await;
}

#[tokio::test]
async fn kubectl_speaks_to_it() {
    let plane = ControlPlane::shared().await;
    let kubectl = tokio::process::Command::new(plane.program("kubectl"))
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .args(["version", "--output=json"])
        .output()
        .await
        .unwrap();
    let versions: serde_json::Value = serde_json::from_slice(&kubectl.stdout).unwrap();
    assert_eq!(versions["serverVersion"]["gitVersion"], "v1.34.1");
    assert_eq!(versions["clientVersion"]["gitVersion"], "v1.34.1");
}

#[tokio::test]
async fn history_expires_for_watches_and_for_pages() {
    let mut plane = ControlPlane::start(Options::api_only()).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(plane.client().await, "default");
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let version = page.metadata.resource_version.unwrap();
    let next = ListParams::default()
        .limit(1)
        .continue_token(&page.metadata.continue_.unwrap());
    maps.list(&next).await.expect("still good before");
    maps.delete("c", &Default::default()).await.unwrap();

    plane.expire_history().await.unwrap();

    assert_eq!(code(maps.list(&next).await), 410);
    let mut watch = maps
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    match watch.next().await {
        Some(Ok(WatchEvent::Error(status))) => assert_eq!(status.code, 410),
        other => panic!("not expired: {other:?}"),
    }
}

#[tokio::test]
async fn the_server_streams_its_lists() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("fixture").await;
    let maps = Api::<ConfigMap>::namespaced(plane.client().await, &namespace);
    maps.create(&PostParams::default(), &config_map("first"))
        .await
        .unwrap();
    let parameters = WatchParams::default().initial_events();
    let mut watch = maps.watch(&parameters, "0").await.unwrap().boxed();
    let complete = async {
        while let Some(event) = watch.next().await {
            if let WatchEvent::Bookmark(bookmark) = event.unwrap()
                && bookmark
                    .metadata
                    .annotations
                    .contains_key("k8s.io/initial-events-end")
            {
                return true;
            }
        }
        false
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(30), complete)
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn the_proxy_does_nothing_but_what_it_is_told() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("fixture").await;
    let account = plane.account(&namespace, "through-proxy").await;
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["configmaps".to_owned()]),
        verbs: ["create", "get", "list", "watch"].map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    };
    plane.allow(&account, vec![rule]).await;
    let proxy = Proxy::start(plane).await.unwrap();
    let kubeconfig = proxy.kubeconfig(plane, "visitor", &account.token).unwrap();
    let maps = Api::<ConfigMap>::namespaced(client(&kubeconfig).await, &namespace);
    let post = PostParams::default();
    eventually("the role takes effect", || async {
        maps.create(&post, &config_map("plain")).await.ok()
    })
    .await;

    // Refused, with a body that clients read.
    let internal = Fault::Answer {
        code: 500,
        retry_after: None,
    };
    proxy.inject(1, internal.clone(), |request| {
        request.method == http::Method::POST
    });
    assert_eq!(code(maps.create(&post, &config_map("refused")).await), 500);
    assert_eq!(code(maps.get("refused").await), 404, "it was not passed on");
    // kube itself asks again after 429, 503 and 504, and waits as long as told.
    let too_many = Fault::Answer {
        code: 429,
        retry_after: Some(1),
    };
    proxy.inject(1, too_many, |_| true);
    let (asked, before) = (tokio::time::Instant::now(), proxy.seen().len());
    maps.get("plain").await.expect("refused only once");
    assert_eq!(proxy.seen().len(), before + 2);
    assert!(asked.elapsed() >= Duration::from_secs(1));

    // Cut before and after the deed.
    proxy.inject(1, Fault::Cut, |request| request.method == http::Method::POST);
    assert!(maps.create(&post, &config_map("never-done")).await.is_err());
    assert_eq!(code(maps.get("never-done").await), 404);
    proxy.inject(1, Fault::CutAfterward, |request| {
        request.method == http::Method::POST
    });
    assert!(maps.create(&post, &config_map("done-unknown")).await.is_err());
    maps.get("done-unknown").await.expect("it was done");
    proxy.inject(1, Fault::CutBodyAfter(40), |request| {
        request.method == http::Method::GET
    });
    assert!(maps.list(&ListParams::default()).await.is_err());

    // Late, and never.
    proxy.inject(1, Fault::Delay(Duration::from_millis(300)), |_| true);
    let asked = tokio::time::Instant::now();
    maps.get("plain").await.unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(300));
    proxy.inject(1, Fault::Hang, |_| true);
    let waited = tokio::time::timeout(Duration::from_millis(300), maps.get("plain")).await;
    assert!(waited.is_err());

    // A watch in the middle of its life.
    let mut watch = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(_)))));
    proxy.cut_connections();
    let rest: Vec<_> = tokio::time::timeout(Duration::from_secs(10), watch.collect())
        .await
        .unwrap();
    assert!(rest.len() < 10, "the watch ends: {rest:?}");
    maps.get("plain").await.expect("new connections are welcome");

    let watches = proxy.seen();
    assert!(watches.iter().any(|request| {
        request
            .uri
            .query()
            .is_some_and(|query| query.contains("watch=true"))
    }));
    proxy.inject(usize::MAX, internal, |_| true);
    assert_eq!(code(maps.get("plain").await), 500);
    assert_eq!(code(maps.get("plain").await), 500);
    proxy.behave();
    maps.get("plain").await.unwrap();
}

/// Processes that were started for this directory.
fn processes_of(directory: &Path) -> Vec<String> {
    let directory = directory.display().to_string();
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    all.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| line.contains(&directory))
        .map(|line| line.replace('\0', " "))
        .collect()
}

#[tokio::test]
async fn two_live_side_by_side_and_when_dropped_leave_nothing() {
    let (one, other) = tokio::join!(
        ControlPlane::start(Options::full()),
        ControlPlane::start(Options::api_only()),
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_ne!(one.address(), other.address());
    let directories = [one.directory().to_owned(), other.directory().to_owned()];
    // Each program has two: its leash (a shell and its watcher share a line) and itself.
    assert!(processes_of(&directories[0]).len() >= 10);
    Api::<ConfigMap>::namespaced(one.client().await, "default")
        .create(&PostParams::default(), &config_map("only-here"))
        .await
        .unwrap();
    let missing = Api::<ConfigMap>::namespaced(other.client().await, "default")
        .get("only-here")
        .await;
    assert_eq!(code(missing), 404);
    drop((one, other));
    for directory in &directories {
        assert_eq!(processes_of(directory), Vec::<String>::new());
        assert!(!directory.exists());
    }
}

/// Set in the process that is to be killed.
const VICTIM: &str = "FREEHOLD_TESTBED_VICTIM";

#[tokio::test]
async fn an_owner_that_is_killed_leaves_nothing() {
    if std::env::var_os(VICTIM).is_some() {
        let plane = ControlPlane::start(Options::full()).await.unwrap();
        println!("\nvictim {}", plane.directory().display());
        std::future::pending::<()>().await;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "fixture::an_owner_that_is_killed_leaves_nothing",
        ])
        .env(VICTIM, "yes")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    let told = tokio::task::spawn_blocking(move || {
        output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("victim ").map(PathBuf::from))
    });
    let directory = told.await.unwrap().expect("the victim says where it lives");
    assert!(directory.exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually("nothing is left", || async {
        (!directory.exists() && processes_of(&directory).is_empty()).then_some(())
    })
    .await;
}
