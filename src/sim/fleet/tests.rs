//! The sample fleet, fleet files good and bad, and what a changed size does to an old cluster.

use std::{io::Write, sync::Arc};

use super::*;
use crate::{
    ports::clock::SystemClock,
    sim::{objects::ObjectsOptions, world::document::list},
};

fn objects() -> (Objects, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    (
        Objects::new(ObjectsOptions {
            clock: Arc::clone(&clock),
            history: 16,
            uid_seed: 1,
        }),
        clock,
    )
}

fn names(objects: &Objects) -> Vec<String> {
    let nodes = objects.list(&NODES, None).items;
    nodes
        .iter()
        .map(|node| text(node, "metadata.name").to_owned())
        .collect()
}

fn file(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

#[tokio::test]
async fn the_sample_fleet_has_plain_nvidia_amd_and_mixed_machines() {
    let (objects, clock) = objects();
    Fleet::samples(12)
        .unwrap()
        .install(&objects, clock.as_ref())
        .unwrap();
    let nodes = objects.list(&NODES, None).items;
    let cards = |node: &Value, maker: &str| {
        node["status"]["allocatable"]
            .get(format!("{maker}.com/gpu"))
            .is_some()
    };
    let count = |nvidia: bool, amd: bool| {
        nodes
            .iter()
            .filter(|node| cards(node, "nvidia") == nvidia && cards(node, "amd") == amd)
            .count()
    };
    assert_eq!(nodes.len(), 12);
    assert!(count(false, false) >= 3 && count(true, false) >= 3);
    assert_eq!((count(false, true), count(true, true)), (1, 1));
    let first = &nodes[0];
    assert_eq!(text(first, "metadata.name"), "node-0000");
    assert_eq!(first["status"]["capacity"]["cpu"], "64");
    assert_eq!(first["status"]["allocatable"]["cpu"], "63500m");
    assert_eq!(objects.list(&PODS, Some("kube-system")).items.len(), 12);
    let classes = objects.list(&STORAGE_CLASSES, None).items;
    let classes: Vec<&str> = classes.iter().map(|class| text(class, "metadata.name")).collect();
    assert_eq!(classes, ["beta1", "beta2", "beta3", "local-path"]);
    assert_eq!(
        list(&objects.list(&ADDRESS_POOLS, None).items[0], "spec.addresses").len(),
        2
    );
}

#[tokio::test]
async fn another_size_adds_and_removes_samples_and_leaves_what_was_made_by_hand() {
    let (objects, clock) = objects();
    Fleet::samples(3)
        .unwrap()
        .install(&objects, clock.as_ref())
        .unwrap();
    objects
        .create(&NODES, json!({"metadata": {"name": "by-hand"}}))
        .unwrap();
    objects.delete(&NODES, "", "node-0001", Deletion::now()).unwrap();
    Fleet::samples(3)
        .unwrap()
        .install(&objects, clock.as_ref())
        .unwrap();
    assert_eq!(
        names(&objects),
        ["by-hand", "node-0000", "node-0002"],
        "a node deleted by hand stays deleted"
    );
    Fleet::samples(2)
        .unwrap()
        .install(&objects, clock.as_ref())
        .unwrap();
    assert_eq!(names(&objects), ["by-hand", "node-0000", "node-0001"]);
}

#[tokio::test]
async fn a_fleet_file_makes_its_machines() {
    let file = file(
        "- {name: gpu, count: 2, capacity: {cpu: 8, memory: 32Gi}, reserved: {cpu: 1}, labels: {tier: gold},\n   \
         taints: [{key: k, effect: NoSchedule}], gpus: [{vendor: amd, product: MI 210, memory: 64Gi, count: 4}]}\n\
         - {name: sick, ready: false, unschedulable: true, capacity: {cpu: 1500m, memory: 1Gi, example.com/thing: 3}}\n",
    );
    let (objects, clock) = objects();
    Fleet::from_file(file.path())
        .unwrap()
        .install(&objects, clock.as_ref())
        .unwrap();
    assert_eq!(names(&objects), ["gpu-0000", "gpu-0001", "sick"]);
    let gpu = objects.get(&NODES, "", "gpu-0001").unwrap();
    assert_eq!(gpu["status"]["allocatable"]["cpu"], "7000m");
    assert_eq!(gpu["status"]["allocatable"]["amd.com/gpu"], "4");
    assert_eq!(gpu["metadata"]["labels"]["amd.com/gpu.product-name"], "MI-210");
    assert_eq!(gpu["metadata"]["labels"]["tier"], "gold");
    let sick = objects.get(&NODES, "", "sick").unwrap();
    assert_eq!(crate::sim::world::document::condition(&sick, "Ready"), "False");
    assert_eq!(sick["spec"]["unschedulable"], true);
}

#[test]
fn a_bad_fleet_file_is_refused_by_field_and_file() {
    let cases = [
        (
            "- {name: a, capacity: {cpu: lots, memory: 1Gi}}",
            "[0].capacity.cpu",
        ),
        ("- {name: a, capacity: {memory: 1Gi}}", "`cpu` is missing"),
        (
            "- {name: a, capacity: {cpu: -1, memory: 1Gi}}",
            "[0].capacity.cpu",
        ),
        (
            "- {name: A B, capacity: {cpu: 1, memory: 1Gi}}",
            "not a node name",
        ),
        (
            "- {name: a, colour: red, capacity: {cpu: 1, memory: 1Gi}}",
            "[0].colour",
        ),
        (
            "- {name: a, count: 0, capacity: {cpu: 1, memory: 1Gi}}",
            "between 1 and",
        ),
        (
            "- {name: a, count: -3, capacity: {cpu: 1, memory: 1Gi}}",
            "[0].count",
        ),
        (
            "- {name: a, capacity: {cpu: 1, memory: 1Gi}, taints: [{key: k, effect: Never}]}",
            "[0].taints[0].effect",
        ),
        (
            "- {name: a, capacity: {cpu: 1, memory: 1Gi}, gpus: [{vendor: intel}]}",
            "[0].gpus[0].vendor",
        ),
        (
            "- {name: a, capacity: {cpu: 1, memory: 1Gi}}\n- {name: a, capacity: {cpu: 1, memory: 1Gi}}",
            "already a machine of [0]",
        ),
        ("[1]", "must be a mapping"),
        ("{: :", "neither YAML nor JSON"),
    ];
    for (content, expected) in cases {
        let file = file(content);
        let said = Fleet::from_file(file.path()).unwrap_err().to_string();
        assert!(said.contains(expected), "{content}: {said}");
        assert!(said.contains(file.path().to_str().unwrap()), "{said}");
    }
    assert!(Fleet::samples(usize::MAX).is_err());
}
