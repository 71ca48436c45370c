//! The machines and fixtures of the embedded cluster, as data: twelve samples, or a fleet file.
//!
//! A journal that is read again keeps its cluster as it is. Only when the size or the source of the fleet
//! changed are nodes added, and removed those that came from a fleet and are no longer in it; a node that
//! somebody made or deleted by hand stays made or deleted.

mod machine;

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use self::machine::Machine;
use super::{
    objects::{Deletion, Objects, Refusal, Resource, timestamp},
    world::{
        document::{annotation, text},
        resources::{ADDRESS_POOLS, CONFIG_MAPS, NAMESPACES, NODES, PODS, SERVICES, STORAGE_CLASSES},
    },
};
use crate::ports::clock::Clock;

/// The annotation that says that a node came from a fleet, and from which.
pub const ORIGIN: &str = "freehold.dev/embedded-fleet";

/// The ConfigMap in kube-system that says which fleet was installed.
const RECORD: &str = "freehold-embedded-fleet";

/// Fleets up to this size have a system pod on every node; larger ones are for load, and stay lean.
const WITH_SYSTEM_PODS: usize = 256;

/// Most nodes of the sample fleet.
pub const MOST_NODES: usize = 100_000;

const SAMPLES: &str = include_str!("fleet/sample.yaml");
const CLUSTER: &str = include_str!("fleet/cluster.yaml");

/// Why there is no fleet.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The fleet file cannot be read.
    #[error("cannot read the fleet file {file}")]
    Read {
        /// Which file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The fleet file is not YAML.
    #[error("{file} is neither YAML nor JSON: {message}")]
    Syntax {
        /// Which file.
        file: String,
        /// What is wrong, and where.
        message: String,
    },
    /// A field makes no sense.
    #[error("{field}: {message}")]
    Field {
        /// Where in the list.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// Something in a fleet file makes no sense.
    #[error("{file}: {problem}")]
    InFile {
        /// Which file.
        file: String,
        /// What.
        problem: Box<FleetError>,
    },
    /// More nodes than the embedded cluster is made for.
    #[error("{asked} nodes are too many: at most {MOST_NODES}")]
    TooMany {
        /// How many were asked for.
        asked: usize,
    },
    /// The objects refused something.
    #[error("the embedded cluster refused part of its own fleet")]
    Refused(#[from] Refusal),
}

/// The machines of a cluster, each with its name.
#[derive(Debug)]
pub struct Fleet {
    machines: Vec<(String, Machine)>,
    origin: &'static str,
    /// What tells this fleet from another.
    fingerprint: String,
}

impl Fleet {
    /// The sample fleet; above twelve nodes the samples repeat.
    pub fn samples(nodes: usize) -> Result<Self, FleetError> {
        if nodes > MOST_NODES {
            return Err(FleetError::TooMany { asked: nodes });
        }
        let samples = parse("the sample fleet", SAMPLES)?;
        let machines = samples.iter().cycle().take(nodes).enumerate();
        Ok(Self {
            machines: machines
                .map(|(number, machine)| (format!("node-{number:04}"), machine.clone()))
                .collect(),
            origin: "sample",
            fingerprint: format!("samples {nodes}"),
        })
    }

    /// The fleet of a file.
    pub fn from_file(file: &std::path::Path) -> Result<Self, FleetError> {
        let content = std::fs::read_to_string(file).map_err(|source| FleetError::Read {
            file: file.to_owned(),
            source,
        })?;
        let name = file.display().to_string();
        let mut machines = Vec::new();
        let mut seen = BTreeMap::new();
        for (position, machine) in parse(&name, &content)?.into_iter().enumerate() {
            let names: Vec<String> = match machine.count {
                None => vec![machine.name.clone()],
                Some(count) => (0..count)
                    .map(|number| format!("{}-{number:04}", machine.name))
                    .collect(),
            };
            for node in names {
                if let Some(other) = seen.insert(node.clone(), position) {
                    return Err(in_file(
                        &name,
                        FleetError::Field {
                            field: format!("[{position}].name"),
                            message: format!("`{node}` is already a machine of [{other}]"),
                        },
                    ));
                }
                machines.push((node, machine.clone()));
            }
            if machines.len() > MOST_NODES {
                return Err(in_file(
                    &name,
                    FleetError::TooMany {
                        asked: machines.len(),
                    },
                ));
            }
        }
        let fingerprint = format!("file {:08x}", crc32fast::hash(content.as_bytes()));
        Ok(Self {
            machines,
            origin: "file",
            fingerprint,
        })
    }

    /// How many machines.
    #[must_use]
    pub fn size(&self) -> usize {
        self.machines.len()
    }

    /// Brings the objects to this fleet: everything on a new cluster, the difference on an old one.
    pub fn install(&self, objects: &Objects, clock: &dyn Clock) -> Result<(), FleetError> {
        let record = objects.get(&CONFIG_MAPS, "kube-system", RECORD);
        if record
            .as_ref()
            .is_some_and(|record| text(record, "data.fleet") == self.fingerprint)
        {
            return Ok(());
        }
        if record.is_none() {
            fixtures(objects)?;
        }
        let now = timestamp(clock.wall());
        let wanted: BTreeMap<&str, ()> = self
            .machines
            .iter()
            .map(|(name, _)| (name.as_str(), ()))
            .collect();
        for node in objects.list(&NODES, None).items {
            let name = text(&node, "metadata.name");
            if annotation(&node, ORIGIN).is_some() && !wanted.contains_key(name) {
                objects.delete(&NODES, "", name, Deletion::now())?;
            }
        }
        for (number, (name, machine)) in self.machines.iter().enumerate() {
            if objects.get(&NODES, "", name).is_some() {
                continue;
            }
            let node = objects.create(&NODES, machine.node(name, number, self.origin, &now))?;
            if self.size() <= WITH_SYSTEM_PODS {
                system_pod(objects, &node, &now)?;
            }
        }
        self.write_record(objects)
    }

    fn write_record(&self, objects: &Objects) -> Result<(), FleetError> {
        let record = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": RECORD, "namespace": "kube-system"}, "data": {"fleet": self.fingerprint}});
        if objects.get(&CONFIG_MAPS, "kube-system", RECORD).is_none() {
            objects.create(&CONFIG_MAPS, record)?;
            return Ok(());
        }
        objects.modify(&CONFIG_MAPS, "kube-system", RECORD, |object| {
            object["data"] = record["data"].clone();
            Ok(())
        })?;
        Ok(())
    }
}

fn in_file(file: &str, problem: FleetError) -> FleetError {
    FleetError::InFile {
        file: file.to_owned(),
        problem: Box::new(problem),
    }
}

fn parse(file: &str, content: &str) -> Result<Vec<Machine>, FleetError> {
    let entries: Vec<Value> = serde_saphyr::from_str(content).map_err(|error| FleetError::Syntax {
        file: file.to_owned(),
        message: error.to_string(),
    })?;
    let machines = entries
        .iter()
        .enumerate()
        .map(|(position, entry)| Machine::parse(&format!("[{position}]"), entry));
    machines
        .collect::<Result<_, _>>()
        .map_err(|problem| in_file(file, problem))
}

/// Namespaces, storage classes, pools and the like.
fn fixtures(objects: &Objects) -> Result<(), FleetError> {
    let entries: Vec<Value> = serde_saphyr::from_str(CLUSTER).map_err(|error| FleetError::Syntax {
        file: "the cluster's fixtures".into(),
        message: error.to_string(),
    })?;
    for mut entry in entries {
        let resource = match text(&entry, "kind") {
            "Namespace" => {
                let name = text(&entry, "metadata.name").to_owned();
                super::world::document::set_entry(
                    &mut entry,
                    "metadata.labels",
                    "kubernetes.io/metadata.name",
                    json!(name),
                );
                entry["spec"] = json!({"finalizers": ["kubernetes"]});
                entry["status"] = json!({"phase": "Active"});
                NAMESPACES.clone()
            }
            "Service" => SERVICES.clone(),
            "StorageClass" => STORAGE_CLASSES.clone(),
            "IngressClass" => Resource::new("networking.k8s.io", "ingressclasses"),
            "IPAddressPool" => ADDRESS_POOLS.clone(),
            "L2Advertisement" => Resource::new("metallb.io", "l2advertisements"),
            "CustomResourceDefinition" => {
                entry["status"] = established(&entry);
                Resource::new("apiextensions.k8s.io", "customresourcedefinitions")
            }
            kind => {
                let message = format!("the kind {kind} is not known");
                return Err(FleetError::Field {
                    field: "kind".into(),
                    message,
                });
            }
        };
        match objects.create(&resource, entry) {
            Ok(_) | Err(Refusal { code: 409, .. }) => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    Ok(())
}

/// The status a real API server gives a definition it serves.
fn established(definition: &Value) -> Value {
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2025-01-01T00:00:00Z"});
    json!({
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": ["v1beta1"],
        "conditions": [condition("NamesAccepted", "NoConflicts"), condition("Established", "InitialNamesAccepted")],
    })
}

/// The network proxy every node runs, as the static pod of its kubelet.
fn system_pod(objects: &Objects, node: &Value, now: &str) -> Result<(), FleetError> {
    let name = text(node, "metadata.name");
    let address = node["status"]["addresses"][0]["address"].clone();
    let image = "registry.k8s.io/kube-proxy:v1.33.0";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let kinds = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    let created = objects.create(
        &PODS,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("kube-proxy-{name}"), "namespace": "kube-system",
                "labels": {"k8s-app": "kube-proxy", "tier": "node"},
                "annotations": {"kubernetes.io/config.source": "file"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": text(node, "metadata.uid"), "controller": true}]},
            "spec": {"nodeName": name, "hostNetwork": true, "restartPolicy": "Always", "priorityClassName": "system-node-critical",
                "priority": 2_000_001_000, "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
                "terminationGracePeriodSeconds": 30, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "kube-proxy", "image": image, "imagePullPolicy": "IfNotPresent",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]},
            "status": {"phase": "Running", "qosClass": "Burstable", "startTime": now, "hostIP": address, "podIP": address,
                "podIPs": [{"ip": address}], "conditions": kinds.map(condition),
                "containerStatuses": [{"name": "kube-proxy", "image": image, "imageID": image, "ready": true, "started": true,
                    "restartCount": 0, "lastState": {}, "state": {"running": {"startedAt": now}}}]},
        }),
    );
    match created {
        // One of an earlier node of this name is still on its way out.
        Ok(_) | Err(Refusal { code: 409, .. }) => Ok(()),
        Err(refusal) => Err(refusal.into()),
    }
}

#[cfg(test)]
mod tests;
