//! KWOK nodes of any shape, and what a test can do to them.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus, NodeSystemInfo, Taint},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{control_plane::ControlPlane, waiting::eventually};

/// The annotations of `tests/testbed/stages.yaml`.
const SILENT: &str = "testbed.freehold.dev/silent";
const UNREADY: &str = "testbed.freehold.dev/unready";

/// What a node is to look like.
#[derive(Debug, Clone)]
pub struct NodeShape {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    capacity: BTreeMap<String, String>,
    /// Where it differs from the capacity.
    allocatable: BTreeMap<String, String>,
}

impl NodeShape {
    /// 32 cores, 128 GiB, 1 TiB of disk, 110 pods.
    pub fn new(name: &str) -> Self {
        let capacity = [
            ("cpu", "32"),
            ("memory", "128Gi"),
            ("ephemeral-storage", "1Ti"),
            ("pods", "110"),
        ];
        let labels = [
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ];
        Self {
            name: name.to_owned(),
            labels: owned(&labels),
            taints: Vec::new(),
            capacity: owned(&capacity),
            allocatable: BTreeMap::new(),
        }
    }

    /// Sets a resource: `cpu`, `memory`, `nvidia.com/gpu` …
    #[must_use]
    pub fn resource(mut self, name: &str, quantity: &str) -> Self {
        self.capacity.insert(name.to_owned(), quantity.to_owned());
        self
    }

    /// Less of a resource can be given out than there is.
    #[must_use]
    pub fn allocatable(mut self, name: &str, quantity: &str) -> Self {
        self.allocatable.insert(name.to_owned(), quantity.to_owned());
        self
    }

    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            effect: effect.to_owned(),
            ..Taint::default()
        });
        self
    }

    fn node(&self) -> Node {
        let capacity = quantities(&self.capacity);
        let mut allocatable = capacity.clone();
        allocatable.extend(quantities(&self.allocatable));
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                capacity: Some(capacity),
                allocatable: Some(allocatable),
                addresses: Some(vec![NodeAddress {
                    type_: "Hostname".to_owned(),
                    address: self.name.clone(),
                }]),
                node_info: Some(NodeSystemInfo {
                    architecture: "amd64".to_owned(),
                    operating_system: "linux".to_owned(),
                    kubelet_version: "v1.34.1".to_owned(),
                    container_runtime_version: "kwok://0.8.0".to_owned(),
                    ..NodeSystemInfo::default()
                }),
                ..NodeStatus::default()
            }),
        }
    }
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn quantities(resources: &BTreeMap<String, String>) -> BTreeMap<String, Quantity> {
    resources
        .iter()
        .map(|(name, quantity)| (name.clone(), Quantity(quantity.clone())))
        .collect()
}

/// Whether a node's Ready condition is True; nothing while there is no such condition.
pub fn ready(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(ready.status.clone())
}

impl ControlPlane {
    /// Makes a node and waits until it is Ready and can be scheduled on.
    pub async fn add_node(&self, shape: &NodeShape) -> Node {
        self.add_nodes(std::slice::from_ref(shape)).await;
        let nodes = Api::<Node>::all(self.client().await);
        eventually(
            "the node is ready and without taints of its own making",
            || async {
                let node = nodes.get(&shape.name).await.ok()?;
                let not_ready = node
                    .spec
                    .iter()
                    .flat_map(|spec| spec.taints.iter().flatten())
                    .any(|taint| taint.key.starts_with("node.kubernetes.io/"));
                (ready(&node)? == "True" && !not_ready).then_some(node)
            },
        )
        .await
    }

    /// Makes many nodes, without waiting for them.
    pub async fn add_nodes(&self, shapes: &[NodeShape]) {
        let nodes = Api::<Node>::all(self.client().await);
        futures::stream::iter(shapes.iter().map(NodeShape::node))
            .map(|node| {
                let nodes = nodes.clone();
                async move { nodes.create(&PostParams::default(), &node).await }
            })
            .buffer_unordered(16)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await
            .expect("nodes");
    }

    /// How many nodes are Ready.
    pub async fn ready_nodes(&self) -> usize {
        let nodes = Api::<Node>::all(self.client().await)
            .list(&kube::api::ListParams::default())
            .await
            .expect("nodes");
        nodes
            .iter()
            .filter(|node| ready(node).as_deref() == Some("True"))
            .count()
    }

    /// The node reports no more; the controller-manager finds it lost after four heartbeats.
    pub async fn silence_node(&self, name: &str) {
        self.annotate_node(name, SILENT, Some("yes")).await;
    }

    /// The node reports that it is not ready, and why.
    pub async fn make_node_unready(&self, name: &str, reason: &str) {
        self.annotate_node(name, UNREADY, Some(reason)).await;
    }

    /// The node is well again.
    pub async fn heal_node(&self, name: &str) {
        self.annotate_node(name, SILENT, None).await;
        self.annotate_node(name, UNREADY, None).await;
    }

    async fn annotate_node(&self, name: &str, key: &str, value: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        let node = Api::<Node>::all(self.client().await)
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("the node");
        assert_eq!(node.annotations().get(key).map(String::as_str), value);
    }
}
