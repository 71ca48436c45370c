//! The program on a real cluster, under the rights of `deploy/` and no others.

use std::{path::Path, process::Command};

use super::{
    accounts::{Account, Audited},
    control_plane::ControlPlane,
    nodes::NodeShape,
    options::Options,
    process::{Serving, scaled, wait_for},
    waiting::eventually,
};

/// What of `deploy/` an API server takes without an image to run.
const DEPLOYED: [&str; 3] = ["namespace.yaml", "rbac.yaml", "validating-admission-policy.yaml"];

fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> String {
    let output = Command::new(plane.program("kubectl"))
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Applies `deploy/` as it is, and logs in as its ServiceAccount.
fn deploy(plane: &ControlPlane) -> Account {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    for file in DEPLOYED {
        kubectl(
            plane,
            &[
                "apply",
                "--server-side",
                "-f",
                deploy.join(file).to_str().unwrap(),
            ],
        );
    }
    let token = kubectl(plane, &["create", "token", "freehold", "-n", "freehold"])
        .trim()
        .to_owned();
    let kubeconfig = plane.write_kubeconfig("freehold", &token, None).unwrap();
    Account {
        namespace: "freehold".to_owned(),
        name: "freehold".to_owned(),
        token,
        kubeconfig,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_knows_every_node_under_the_shipped_role_and_an_api_server_that_restarts_makes_nothing_flap() {
    let mut plane = ControlPlane::start(Options::full()).await.unwrap();
    let nodes = scaled(100, 1000);
    let shapes: Vec<NodeShape> = (0..nodes)
        .map(|node| {
            NodeShape::new(&format!("n{node:04}"))
                .resource("nvidia.com/gpu", "8")
                .resource("cpu", "64")
        })
        .collect();
    plane.add_nodes(&shapes).await;
    let account = deploy(&plane);
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = format!("cluster.kubeconfig={}", account.kubeconfig.display());
    let serving = Serving::start(
        directory.path(),
        &["--set", "cluster.kind=kubernetes", "--set", &kubeconfig],
    );
    let sold = || {
        let inventory = serving.document(&["inventory", "nodes"]);
        let nodes = inventory["nodes"].as_array().unwrap().clone();
        (
            nodes.len(),
            nodes.iter().filter(|node| node["sellable"] == true).count(),
        )
    };
    wait_for("every node is known and sold", || sold() == (nodes, nodes));
    assert!(!serving.banner.contains("SIMULATED"), "{}", serving.banner);
    assert_eq!(
        serving.http("GET", "/readyz", ""),
        (200, r#"{"ready":true}"#.to_owned())
    );
    let status = serving.document(&["status"]);
    assert_eq!(status["ready"], true, "{status}");
    assert_eq!(status["cluster"]["kind"], "kubernetes");
    let node = serving.document(&["inventory", "nodes"])["nodes"][0].clone();
    assert_eq!(node["gpu"]["quantity"]["allocatable"], 8, "{node}");
    assert_eq!(node["cpu"]["quantity"]["allocatable"], 64_000, "{node}");

    plane.kill_api_server().await;
    assert_eq!(sold().0, nodes, "nothing is gone because the source is silent");
    plane.start_api_server().await.unwrap();
    plane.add_node(&NodeShape::new("late")).await;
    wait_for("the late node is known", || {
        let (known, _) = sold();
        assert!(known >= nodes, "it flapped: {known}");
        known == nodes + 1
    });
    assert_eq!(serving.document(&["status"])["ready"], true);
    assert_eq!(serving.terminate(), 0);

    let used = eventually("the audit log has it all", || async {
        let used = plane.audited(&account);
        let watched = used
            .iter()
            .any(|call| call.verb == "watch" && call.resource == "nodes");
        watched.then_some(used)
    })
    .await;
    // A server that has just started refuses for a moment what it allows later; what is never allowed is missing
    // from the role we ship.
    let allowed = |wanted: &Audited| {
        used.iter()
            .any(|call| call.verb == wanted.verb && call.resource == wanted.resource && call.code < 400)
    };
    for call in &used {
        assert!(allowed(call), "refused by the role we ship: {call:?}");
    }
}

#[tokio::test]
async fn the_fence_behind_the_role_keeps_our_account_out_of_other_namespaces() {
    let plane = ControlPlane::start(Options::api_only()).await.unwrap();
    let account = deploy(&plane);
    // Somebody was too generous.
    kubectl(
        &plane,
        &[
            "create",
            "clusterrole",
            "generous",
            "--verb=create,delete",
            "--resource=configmaps",
        ],
    );
    let subject = "--serviceaccount=freehold:freehold";
    kubectl(
        &plane,
        &[
            "create",
            "clusterrolebinding",
            "generous",
            "--clusterrole=generous",
            subject,
        ],
    );
    kubectl(&plane, &["create", "namespace", "lease-x"]);
    let create = |namespace: &str| {
        let output = Command::new(plane.program("kubectl"))
            .args([
                "--kubeconfig",
                account.kubeconfig.to_str().unwrap(),
                "-n",
                namespace,
            ])
            .args(["create", "configmap", "try", "--from-literal=a=b"])
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    // A policy takes effect a little after it is made.
    wait_for("the fence stands", || {
        let (done, said) = create("default");
        if done {
            kubectl(&plane, &["-n", "default", "delete", "configmap", "try"]);
        }
        said.contains("freehold may write to the namespaces")
    });
    assert!(create("lease-x").0, "{}", create("lease-x").1);
}
