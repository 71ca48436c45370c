//! What cannot work is refused with a clear error and the right exit status; nothing panics.

use std::{net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path};

use crate::process::{Serving, freehold, wait_for};

fn refused(directory: &Path, arguments: &[&str]) -> (i32, String) {
    match Serving::try_start(directory, arguments) {
        Ok(serving) => panic!("{arguments:?} started:\n{}", serving.banner),
        Err((status, text)) => {
            assert!(!text.contains("panicked"), "{text}");
            (status, text)
        }
    }
}

#[test]
fn a_port_in_use_is_named_with_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for key in ["api.grpc.listen", "api.http.listen", "embedded.listen"] {
        let (status, text) = refused(directory.path(), &["--set", &format!("{key}={address}")]);
        assert_eq!(status, 1, "{text}");
        assert!(
            text.contains(key) && text.contains(&address.to_string()),
            "{text}"
        );
    }
}

#[test]
fn a_second_program_on_the_same_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = Serving::start(directory.path(), &[]);
    let (status, text) = refused(directory.path(), &[]);
    assert_eq!(status, 5, "a conflict: {text}");
    assert!(
        text.contains(&first.process.id().to_string()),
        "it names the process: {text}"
    );
    assert_eq!(first.terminate(), 0);
}

#[test]
fn listening_elsewhere_without_tls_is_refused_as_bad_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let (status, text) = refused(directory.path(), &["--set", "api.grpc.listen=0.0.0.0:0"]);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("api.tls.enabled"), "it says what to set: {text}");
}

#[test]
fn a_store_that_cannot_be_used_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "x").unwrap();
    let (status, text) = refused(directory.path(), &["--set", "store.path=file"]);
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("store.path"), "{text}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Serving::start(directory.path(), &[]).terminate(), 0);
    let key = directory.path().join("data.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (_, text) = refused(directory.path(), &[]);
    assert!(text.contains("data.key"), "{text}");
}

#[test]
fn simulated_hardware_is_not_sold_from_a_pod_by_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let output = freehold(directory.path(), &["serve"])
        .env("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cluster.kind"));
}

#[test]
fn a_malformed_kubeconfig_is_bad_configuration() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("kubeconfig"), "clusters: 7").unwrap();
    let arguments = [
        "--set",
        "cluster.kind=kubernetes",
        "--set",
        "cluster.kubeconfig=kubeconfig",
    ];
    let (status, text) = refused(directory.path(), &arguments);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("kubeconfig"), "{text}");
}

#[test]
fn an_api_server_that_is_away_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]
users: [{name: u, user: {}}]
";
    std::fs::write(directory.path().join("kubeconfig"), kubeconfig).unwrap();
    let arguments = [
        "--set",
        "cluster.kind=kubernetes",
        "--set",
        "cluster.kubeconfig=kubeconfig",
    ];
    let serving = Serving::start(directory.path(), &arguments);
    assert!(serving.banner.contains("not ready"), "{}", serving.banner);
    let (status, body) = serving.http("GET", "/readyz", "");
    assert_eq!(status, 503);
    assert!(
        body.contains("unreachable") && body.contains("127.0.0.1:9"),
        "{body}"
    );
    assert_eq!(serving.http("GET", "/livez", "").0, 200);
    let output = serving.client(&["status"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn another_cluster_is_refused_until_the_store_is_rebound() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Serving::start(directory.path(), &[]).terminate(), 0);
    let other = ["--set", "embedded.seed=99", "--set", "embedded.persist=false"];
    let (status, text) = refused(directory.path(), &other);
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("freehold store rebind --confirm"), "{text}");
    let rebound = freehold(directory.path(), &["store", "rebind", "--confirm"])
        .output()
        .unwrap();
    assert!(
        rebound.status.success(),
        "{}",
        String::from_utf8_lossy(&rebound.stderr)
    );
    let serving = Serving::start(directory.path(), &other);
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn the_embedded_cluster_alone_outlives_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let mut alone = freehold(directory.path(), &["embedded", "--listen", "127.0.0.1:0"])
        .args(["--set", "store.path=world", "--set", "embedded.nodes=3"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let kubeconfig = directory.path().join("world/embedded.kubeconfig");
    wait_for("a kubeconfig", || kubeconfig.exists());
    let setting = format!("cluster.kubeconfig={}", kubeconfig.display());
    for _ in 0..2 {
        let serving = Serving::start(
            directory.path(),
            &["--set", "cluster.kind=kubernetes", "--set", &setting],
        );
        wait_for("ready", || serving.document(&["status"])["ready"] == true);
        assert_eq!(serving.document(&["status"])["inventory"]["nodes"], 3);
        assert_eq!(serving.terminate(), 0);
    }
    alone.kill().unwrap();
    alone.wait().unwrap();
}

#[test]
fn a_store_that_is_not_there_is_not_found_even_when_some_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &[]);
    let listen = format!("api.grpc.listen={}", serving.grpc);
    for action in [&["verify"][..], &["info"], &["backup", "copy"]] {
        let arguments = [
            &["store"],
            action,
            &["--set", "store.path=elsewhere", "--set", &listen],
        ]
        .concat();
        let output = freehold(directory.path(), &arguments).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(4),
            "{action:?}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        let arguments = [&["store"], action, &["--set", &listen]].concat();
        let output = freehold(directory.path(), &arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{action:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn sigterm_while_it_starts_is_an_orderly_stop() {
    for _ in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let mut process = freehold(directory.path(), &["--set", "embedded.nodes=2000"])
            .args([
                "--set",
                "api.grpc.listen=127.0.0.1:0",
                "--set",
                "api.http.listen=127.0.0.1:0",
            ])
            .args(["--set", "embedded.listen=", "--set", "embedded.persist=false"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // From then on somebody listens to signals, and most of the start is still to come.
        let lock = directory.path().join("data/LOCK");
        wait_for("it has begun", || lock.exists());
        crate::process::signal(process.id(), "TERM");
        assert_eq!(process.wait().unwrap().code(), Some(0));
    }
}
