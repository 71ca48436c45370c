//! The controllers together, over a paused clock: life as a client of the cluster sees it.

mod balancing;
mod determinism;
mod living;
mod nodes;
mod storage;
mod workloads;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Pace, World, WorldOptions,
    document::{Key, list, set, text},
    resources::*,
};
use crate::{
    ports::clock::{Clock, SimulatedClock},
    sim::{
        fleet::Fleet,
        objects::{Objects, ObjectsOptions, Resource},
    },
};

/// A small cluster whose time the test holds.
pub(super) struct Life {
    pub(super) objects: Objects,
    _stop: DropGuard,
}

impl Life {
    /// The sample fleet with this many nodes, living at life's own pace.
    pub(super) fn begin(nodes: usize) -> Self {
        Self::at_pace(nodes, 1.0)
    }

    pub(super) fn at_pace(nodes: usize, speed: f64) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::starting_at(start));
        let objects = Objects::new(ObjectsOptions {
            clock: Arc::clone(&clock),
            history: 10_000,
            uid_seed: 1,
        });
        Fleet::samples(nodes)
            .unwrap()
            .install(&objects, clock.as_ref())
            .unwrap();
        let world = World::new(WorldOptions {
            objects: objects.clone(),
            clock,
            pace: Pace::new(speed),
            seed: 1,
            root_ca: "".into(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(world.run(stop.clone()));
        Self {
            objects,
            _stop: stop.drop_guard(),
        }
    }

    /// Lets time pass.
    pub(super) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Waits for a condition for at most an hour of simulated time.
    pub(super) async fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        for _ in 0..36_000 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("an hour went by without: {what}");
    }

    pub(super) fn create(&self, resource: &Resource, object: Value) -> Arc<Value> {
        self.objects.create(resource, object).unwrap()
    }

    pub(super) fn get(&self, resource: &Resource, name: &str) -> Option<Arc<Value>> {
        self.objects.get(resource, "default", name)
    }

    pub(super) fn change(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) {
        let result = self.objects.modify(resource, namespace, name, |object| {
            change(object);
            Ok(())
        });
        result.unwrap();
    }

    /// The pods of the default namespace.
    pub(super) fn pods(&self) -> Vec<Arc<Value>> {
        self.objects.list(&PODS, Some("default")).items
    }

    pub(super) fn ready_pods(&self) -> usize {
        self.pods()
            .iter()
            .filter(|pod| super::pods::is_ready(pod) && !super::document::is_terminating(pod))
            .count()
    }

    /// Sets a node's Ready condition.
    pub(super) fn set_ready(&self, node: &str, status: &str) {
        self.change(&NODES, "", node, |object| {
            super::document::set_condition(object, "Ready", status, "Test", "", "2026-01-01T00:00:01Z");
        });
    }

    pub(super) fn events(&self, reason: &str) -> usize {
        let events = self.objects.list(&EVENTS, None).items;
        events
            .iter()
            .filter(|event| text(event, "reason") == reason)
            .count()
    }
}

/// A pod template labelled `app: NAME`.
pub(super) fn template(name: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [
        {"name": "main", "image": image, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}})
}

pub(super) fn deployment(name: &str, replicas: i64, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, image)}})
}

pub(super) fn pod(name: &str) -> Value {
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}});
    set(&mut pod, "spec", template(name, "web:1")["spec"].clone());
    set(&mut pod, "metadata.labels", json!({"app": name}));
    pod
}

pub(super) fn nodes_of(pods: &[Arc<Value>]) -> Vec<String> {
    pods.iter()
        .map(|pod| text(pod, "spec.nodeName").to_owned())
        .collect()
}

pub(super) fn key(object: &Value) -> Key {
    Key::of(object)
}

pub(super) fn count(object: &Value, path: &str) -> usize {
    list(object, path).len()
}
