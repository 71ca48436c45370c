//! Claims and volumes.

use serde_json::json;

use super::*;
use crate::sim::objects::Deletion;

fn claim(name: &str, class: Option<&str>) -> Value {
    let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}});
    if let Some(class) = class {
        claim["spec"]["storageClassName"] = json!(class);
    }
    claim
}

fn using(name: &str, claim: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    pod
}

#[tokio::test(start_paused = true)]
async fn an_immediate_claim_binds_by_itself_grows_and_is_reclaimed() {
    let life = Life::begin(1);
    life.create(&CLAIMS, claim("data", Some("beta1")));
    life.until("it to bind", |life| {
        text(&life.get(&CLAIMS, "data").unwrap(), "status.phase") == "Bound"
    })
    .await;
    let volumes = life.objects.list(&VOLUMES, None).items;
    assert_eq!(volumes[0]["spec"]["csi"]["driver"], "rook-ceph.rbd.csi.ceph.com");
    assert_eq!(volumes[0]["spec"]["claimRef"]["name"], "data");
    life.change(&CLAIMS, "default", "data", |claim| {
        claim["spec"]["resources"]["requests"]["storage"] = json!("9Gi")
    });
    life.until("it to grow", |life| {
        life.get(&CLAIMS, "data").unwrap()["status"]["capacity"]["storage"] == "9Gi"
    })
    .await;
    life.objects
        .delete(&CLAIMS, "default", "data", Deletion::default())
        .unwrap();
    life.until("its volume to go", |life| {
        life.objects.list(&VOLUMES, None).items.is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_claim_binds_with_its_first_pod_and_keeps_local_data_local() {
    let life = Life::begin(3);
    life.create(&CLAIMS, claim("data", None));
    life.pass(60).await;
    let waiting = life.get(&CLAIMS, "data").unwrap();
    assert_eq!(
        (
            text(&waiting, "status.phase"),
            text(&waiting, "spec.storageClassName")
        ),
        ("Pending", "local-path")
    );
    life.create(&PODS, using("first", "data"));
    life.until("it to run", |life| life.ready_pods() == 1).await;
    let home = nodes_of(&life.pods()).remove(0);
    life.objects
        .delete(&PODS, "default", "first", Deletion::now())
        .unwrap();
    // A busy home is still the only node that has the data.
    let mut busy = pod("busy");
    busy["spec"]["nodeName"] = json!(home);
    busy["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("40");
    life.create(&PODS, busy);
    life.create(&PODS, using("second", "data"));
    life.until("both to run", |life| life.ready_pods() == 2).await;
    assert_eq!(text(&life.get(&PODS, "second").unwrap(), "spec.nodeName"), home);
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_use_is_protected_until_its_pod_is_gone() {
    let life = Life::begin(1);
    life.create(&CLAIMS, claim("data", Some("beta3")));
    life.create(&PODS, using("user", "data"));
    life.until("it to run", |life| life.ready_pods() == 1).await;
    life.objects
        .delete(&CLAIMS, "default", "data", Deletion::default())
        .unwrap();
    life.pass(60).await;
    assert!(life.get(&CLAIMS, "data").is_some());
    life.objects
        .delete(&PODS, "default", "user", Deletion::default())
        .unwrap();
    life.until("the claim to go", |life| life.get(&CLAIMS, "data").is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_an_unknown_class_stays_pending_and_says_so() {
    let life = Life::begin(1);
    life.create(&CLAIMS, claim("data", Some("beta9")));
    life.create(&PODS, using("user", "data"));
    life.pass(60).await;
    assert_eq!(
        text(&life.get(&CLAIMS, "data").unwrap(), "status.phase"),
        "Pending"
    );
    assert_eq!(life.events("ProvisioningFailed"), 1);
    assert_eq!(text(&life.get(&PODS, "user").unwrap(), "status.phase"), "Pending");
}
