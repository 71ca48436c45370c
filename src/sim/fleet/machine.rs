//! One machine of the fleet: how a fleet file describes it, and the Node object it becomes.
//!
//! A fleet file is a YAML or JSON list. Only `name` and `capacity` are needed:
//!
//! ```yaml
//! - name: gpu                  # with `count`, the machines are gpu-0000, gpu-0001 …
//!   count: 3                   # 1 to 100000
//!   capacity: {cpu: 64, memory: 256Gi, ephemeral-storage: 1788Gi, pods: 110, nvidia.com/gpu: 2}
//!   reserved: {cpu: 500m}      # what the kubelet keeps back; allocatable = capacity - reserved
//!   labels: {tier: gold}
//!   annotations: {}
//!   taints: [{key: dedicated, value: research, effect: NoSchedule}]
//!   unschedulable: false
//!   ready: true
//!   zone: zone-a               # topology.kubernetes.io/zone
//!   region: embedded
//!   instance-type: hgx-a100
//!   architecture: amd64
//!   cpu-vendor: AMD
//!   cpu-model: AMD EPYC 7763 64-Core Processor
//!   gpus: [{vendor: nvidia, product: Tesla-T4, device-id: 1eb8, family: turing, memory: 16Gi, interface: pcie, count: 2}]
//! ```
//!
//! `gpus` adds `nvidia.com/gpu` or `amd.com/gpu` to the capacity and the labels of the vendors' node labellers.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::FleetError;
use crate::sim::world::quantity::{self, Rounding};

/// Most machines one entry may stand for.
const MOST: usize = 100_000;

/// A machine, or several equal ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub(super) name: String,
    pub(super) count: Option<usize>,
    capacity: BTreeMap<String, String>,
    reserved: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    taints: Vec<Value>,
    unschedulable: bool,
    not_ready: bool,
    zone: Option<String>,
    region: Option<String>,
    instance_type: Option<String>,
    architecture: Option<String>,
    cpu_vendor: Option<String>,
    cpu_model: Option<String>,
    gpus: Vec<Gpu>,
}

/// Equal cards in a machine.
#[derive(Clone, Debug, Default, PartialEq)]
struct Gpu {
    vendor: String,
    product: String,
    device_id: String,
    family: String,
    memory: String,
    interface: String,
    count: i64,
}

impl Machine {
    /// Reads one entry of a fleet file; `path` is where it stands (`[3]`).
    pub(super) fn parse(path: &str, entry: &Value) -> Result<Self, FleetError> {
        let mut machine = Self::default();
        for (key, value) in object(path, entry)? {
            let at = format!("{path}.{key}");
            match key.as_str() {
                "name" => machine.name = read(&at, value)?,
                "count" => machine.count = Some(read(&at, value)?),
                "capacity" => machine.capacity = amounts(&at, value)?,
                "reserved" => machine.reserved = amounts(&at, value)?,
                "labels" => machine.labels = read(&at, value)?,
                "annotations" => machine.annotations = read(&at, value)?,
                "taints" => machine.taints = taints(&at, value)?,
                "unschedulable" => machine.unschedulable = read(&at, value)?,
                "ready" => machine.not_ready = !read::<bool>(&at, value)?,
                "zone" => machine.zone = Some(read(&at, value)?),
                "region" => machine.region = Some(read(&at, value)?),
                "instance-type" => machine.instance_type = Some(read(&at, value)?),
                "architecture" => machine.architecture = Some(read(&at, value)?),
                "cpu-vendor" => machine.cpu_vendor = Some(read(&at, value)?),
                "cpu-model" => machine.cpu_model = Some(read(&at, value)?),
                "gpus" => machine.gpus = gpus(&at, value)?,
                _ => return Err(unknown(&at, KEYS)),
            }
        }
        machine.check(path)?;
        Ok(machine)
    }

    fn check(&self, path: &str) -> Result<(), FleetError> {
        let invalid = |field: &str, message: String| FleetError::Field {
            field: format!("{path}.{field}"),
            message,
        };
        let name_fits = !self.name.is_empty()
            && self.name.len() <= 200
            && self
                .name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
            && self.name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && self.name.ends_with(|c: char| c.is_ascii_alphanumeric());
        if !name_fits {
            return Err(invalid(
                "name",
                format!(
                    "`{}` is not a node name (lower case letters, digits, - and .)",
                    self.name
                ),
            ));
        }
        if self.count.is_some_and(|count| count == 0 || count > MOST) {
            return Err(invalid("count", format!("must be between 1 and {MOST}")));
        }
        for needed in ["cpu", "memory"] {
            if !self.capacity.contains_key(needed) {
                return Err(invalid("capacity", format!("`{needed}` is missing")));
            }
        }
        for name in self.reserved.keys() {
            if !self.capacity.contains_key(name) {
                return Err(invalid("reserved", format!("`{name}` is not in the capacity")));
            }
        }
        Ok(())
    }

    /// The Node object of the machine called `name`, the `number`th of its fleet, ready at `now`.
    pub(super) fn node(&self, name: &str, number: usize, origin: &str, now: &str) -> Value {
        let mut labels = self.own_labels(name);
        let mut capacity = self.capacity.clone();
        capacity.entry("pods".into()).or_insert_with(|| "110".into());
        for gpu in &self.gpus {
            gpu.describe(&mut labels, &mut capacity);
        }
        labels.extend(self.labels.clone());
        let mut annotations = self.annotations.clone();
        annotations.insert(super::ORIGIN.into(), origin.into());
        let allocatable = self.allocatable(&capacity);
        let mut spec = json!({"podCIDR": format!("10.{}.{}.0/24", 128 + (number / 256) % 64, number % 256),
            "providerID": format!("embedded://{name}")});
        if !self.taints.is_empty() {
            spec["taints"] = Value::Array(self.taints.clone());
        }
        if self.unschedulable {
            spec["unschedulable"] = Value::Bool(true);
        }
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": spec,
            "status": {
                "capacity": capacity,
                "allocatable": allocatable,
                "addresses": [
                    {"type": "InternalIP", "address": format!("192.0.2.{}", 1 + number % 254)},
                    {"type": "Hostname", "address": name},
                ],
                "conditions": conditions(!self.not_ready, now),
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "images": [{"names": ["registry.k8s.io/pause:3.10"], "sizeBytes": 320_000}],
                "nodeInfo": self.node_info(name),
            },
        })
    }

    fn own_labels(&self, name: &str) -> BTreeMap<String, String> {
        let architecture = self.architecture.as_deref().unwrap_or("amd64");
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), name.to_owned()),
            ("kubernetes.io/os".into(), "linux".into()),
            ("kubernetes.io/arch".into(), architecture.into()),
            ("beta.kubernetes.io/arch".into(), architecture.into()),
            ("beta.kubernetes.io/os".into(), "linux".into()),
            (
                "topology.kubernetes.io/region".into(),
                self.region.clone().unwrap_or_else(|| "embedded".into()),
            ),
            (
                "topology.kubernetes.io/zone".into(),
                self.zone.clone().unwrap_or_else(|| "zone-a".into()),
            ),
            ("akash.network".into(), "true".into()),
        ]);
        if let Some(kind) = &self.instance_type {
            labels.insert("node.kubernetes.io/instance-type".into(), kind.clone());
        }
        if let Some(vendor) = &self.cpu_vendor {
            labels.insert(
                "feature.node.kubernetes.io/cpu-model.vendor_id".into(),
                vendor.clone(),
            );
        }
        if let Some(model) = &self.cpu_model {
            labels.insert(
                "feature.node.kubernetes.io/cpu-model.name".into(),
                label_value(model),
            );
        }
        labels
    }

    fn allocatable(&self, capacity: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut allocatable = capacity.clone();
        for (resource, kept) in &self.reserved {
            let scale = if resource == "cpu" { 1000 } else { 1 };
            let whole = capacity
                .get(resource)
                .and_then(|text| quantity::parse(text, scale, Rounding::Down));
            let kept = quantity::parse(kept, scale, Rounding::Up);
            if let (Some(whole), Some(kept)) = (whole, kept) {
                let left = whole.saturating_sub(kept).max(0);
                let text = if resource == "cpu" {
                    format!("{left}m")
                } else {
                    left.to_string()
                };
                allocatable.insert(resource.clone(), text);
            }
        }
        allocatable
    }

    fn node_info(&self, name: &str) -> Value {
        let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_DNS, name.as_bytes());
        json!({
            "architecture": self.architecture.as_deref().unwrap_or("amd64"),
            "operatingSystem": "linux",
            "osImage": "Freehold embedded (simulated)",
            "kernelVersion": "6.8.0-embedded",
            "kubeletVersion": "v1.33.0",
            "kubeProxyVersion": "",
            "containerRuntimeVersion": "containerd://2.0.5",
            "machineID": id.simple().to_string(),
            "systemUUID": id.to_string(),
            "bootID": uuid::Uuid::new_v5(&id, b"boot").to_string(),
        })
    }
}

impl Gpu {
    /// Adds what a vendor's device plugin and node labeller would report.
    fn describe(&self, labels: &mut BTreeMap<String, String>, capacity: &mut BTreeMap<String, String>) {
        let resource = format!("{}.com/gpu", self.vendor);
        let before = capacity
            .get(&resource)
            .and_then(|text| text.parse::<i64>().ok())
            .unwrap_or(0);
        capacity.insert(resource, before.saturating_add(self.count).to_string());
        let bytes = quantity::parse(&self.memory, 1, Rounding::Down).unwrap_or(0);
        let mut label = |key: &str, value: String| labels.insert(key.to_owned(), value);
        if self.vendor == "nvidia" {
            label("nvidia.com/gpu.present", "true".into());
            label("nvidia.com/gpu.product", self.product.clone());
            label("nvidia.com/gpu.family", self.family.clone());
            label("nvidia.com/gpu.count", self.count.to_string());
            label("nvidia.com/gpu.memory", (bytes / (1 << 20)).to_string());
            label("nvidia.com/cuda.driver-version.full", "570.124.06".into());
            label("nvidia.com/cuda.runtime-version.full", "12.8".into());
            label("feature.node.kubernetes.io/pci-10de.present", "true".into());
        } else {
            label("amd.com/gpu.product-name", self.product.clone());
            label("amd.com/gpu.family", self.family.clone());
            label("amd.com/gpu.device-id", self.device_id.clone());
            label("amd.com/gpu.vram", format!("{}G", bytes / (1 << 30)));
            label("feature.node.kubernetes.io/pci-1002.present", "true".into());
        }
        if !self.device_id.is_empty() {
            let key = format!("freehold.dev/sample-gpu.{}.{}", self.vendor, self.device_id);
            label(&key, self.interface.clone());
        }
    }
}

/// The conditions a kubelet reports.
fn conditions(ready: bool, now: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let ready = if ready {
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    } else {
        condition(
            "Ready",
            "False",
            "KubeletNotReady",
            "the fleet file says that this machine is not ready",
        )
    };
    json!([
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available"
        ),
        condition(
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure"
        ),
        condition(
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available"
        ),
        ready,
    ])
}

const KEYS: &str = "name, count, capacity, reserved, labels, annotations, taints, unschedulable, ready, zone, region, \
instance-type, architecture, cpu-vendor, cpu-model, gpus";

fn unknown(at: &str, known: &str) -> FleetError {
    FleetError::Field {
        field: at.to_owned(),
        message: format!("is not known here; known are {known}"),
    }
}

fn object<'a>(at: &str, value: &'a Value) -> Result<&'a Map<String, Value>, FleetError> {
    value.as_object().ok_or_else(|| FleetError::Field {
        field: at.to_owned(),
        message: "must be a mapping".into(),
    })
}

fn read<T: DeserializeOwned>(at: &str, value: &Value) -> Result<T, FleetError> {
    serde_json::from_value(value.clone()).map_err(|error| FleetError::Field {
        field: at.to_owned(),
        message: error.to_string(),
    })
}

/// Resource amounts, as text, each of them one that can be read.
fn amounts(at: &str, value: &Value) -> Result<BTreeMap<String, String>, FleetError> {
    let mut amounts = BTreeMap::new();
    for (resource, value) in object(at, value)? {
        if quantity::amount(resource, value, Rounding::Down).is_none() {
            return Err(FleetError::Field {
                field: format!("{at}.{resource}"),
                message: format!("`{value}` is not an amount (such as 64, 500m or 256Gi)"),
            });
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        amounts.insert(resource.clone(), text);
    }
    Ok(amounts)
}

fn taints(at: &str, value: &Value) -> Result<Vec<Value>, FleetError> {
    let list: Vec<Value> = read(at, value)?;
    for (position, taint) in list.iter().enumerate() {
        let at = format!("{at}[{position}]");
        for (key, value) in object(&at, taint)? {
            let text: String = read(&format!("{at}.{key}"), value)?;
            match (key.as_str(), text.as_str()) {
                ("key" | "value", _) | ("effect", "NoSchedule" | "PreferNoSchedule" | "NoExecute") => {}
                ("effect", other) => {
                    return Err(FleetError::Field {
                        field: format!("{at}.effect"),
                        message: format!("`{other}` is not NoSchedule, PreferNoSchedule or NoExecute"),
                    });
                }
                _ => return Err(unknown(&format!("{at}.{key}"), "key, value, effect")),
            }
        }
        if taint.get("key").is_none() || taint.get("effect").is_none() {
            return Err(FleetError::Field {
                field: at,
                message: "needs `key` and `effect`".into(),
            });
        }
    }
    Ok(list)
}

fn gpus(at: &str, value: &Value) -> Result<Vec<Gpu>, FleetError> {
    let list: Vec<Value> = read(at, value)?;
    let mut gpus = Vec::new();
    for (position, entry) in list.iter().enumerate() {
        let at = format!("{at}[{position}]");
        let mut gpu = Gpu {
            count: 1,
            ..Gpu::default()
        };
        for (key, value) in object(&at, entry)? {
            let at = format!("{at}.{key}");
            match key.as_str() {
                "vendor" => gpu.vendor = read(&at, value)?,
                "product" => gpu.product = label_value(&read::<String>(&at, value)?),
                "device-id" => gpu.device_id = read(&at, value)?,
                "family" => gpu.family = read(&at, value)?,
                "interface" => gpu.interface = read(&at, value)?,
                "memory" => {
                    gpu.memory = amounts(&at, &json!({"memory": value}))?
                        .remove("memory")
                        .unwrap_or_default()
                }
                "count" => gpu.count = read(&at, value)?,
                _ => {
                    return Err(unknown(
                        &at,
                        "vendor, product, device-id, family, memory, interface, count",
                    ));
                }
            }
        }
        if !matches!(gpu.vendor.as_str(), "nvidia" | "amd") {
            return Err(FleetError::Field {
                field: format!("{at}.vendor"),
                message: "must be nvidia or amd".into(),
            });
        }
        if !(1..=64).contains(&gpu.count) {
            return Err(FleetError::Field {
                field: format!("{at}.count"),
                message: "must be between 1 and 64".into(),
            });
        }
        gpus.push(gpu);
    }
    Ok(gpus)
}

/// Text made fit for a label's value: at most 63 characters, other signs become `-`.
fn label_value(text: &str) -> String {
    let cleaned: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
                c
            } else {
                '-'
            }
        })
        .take(63)
        .collect();
    cleaned
        .trim_matches(|c: char| !c.is_ascii_alphanumeric())
        .to_owned()
}
