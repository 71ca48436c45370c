//! The statuses of containers: how they behave, by their image's name, and when their pod answers.

use serde_json::{Value, json};

use crate::sim::world::document::{at, condition, digest, list, set, set_condition, text};

/// How a container behaves, by its image's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    Runs,
    Crashes,
    CannotBePulled,
}

pub(super) fn behaviour(container: &Value) -> Behaviour {
    let image = text(container, "image");
    if image.contains("missing") || image.contains("notfound") {
        Behaviour::CannotBePulled
    } else if image.contains("crash") || image.starts_with("fail/") || image.contains("/fail/") {
        Behaviour::Crashes
    } else {
        Behaviour::Runs
    }
}

/// A container's status after its first start.
pub(super) fn first_run(pod: &Value, container: &Value, restarts: bool, now: &str) -> Value {
    let (name, image) = (text(container, "name"), text(container, "image"));
    let mut status = json!({"name": name, "image": image, "imageID": "", "ready": false, "started": false,
        "restartCount": 0, "lastState": {}});
    let id = format!(
        "containerd://{}",
        digest(&[text(pod, "metadata.uid").as_bytes(), name.as_bytes()])
    );
    match behaviour(container) {
        Behaviour::CannotBePulled => {
            let message = format!("Back-off pulling image \"{image}\"");
            set(
                &mut status,
                "state",
                json!({"waiting": {"reason": "ImagePullBackOff", "message": message}}),
            );
        }
        Behaviour::Crashes => {
            let died = json!({"terminated": {"exitCode": 1, "reason": "Error", "startedAt": now, "finishedAt": now, "containerID": id}});
            if restarts {
                set(&mut status, "lastState", died);
                set(&mut status, "restartCount", json!(1));
                set(&mut status, "state", crash_loop(pod, name));
            } else {
                set(&mut status, "state", died);
            }
        }
        Behaviour::Runs => {
            set(
                &mut status,
                "imageID",
                json!(format!(
                    "{image}@sha256:{:064x}",
                    crc32fast::hash(image.as_bytes())
                )),
            );
            set(&mut status, "containerID", json!(id));
            set(&mut status, "started", json!(true));
            set(&mut status, "state", json!({"running": {"startedAt": now}}));
        }
    }
    status
}

fn crash_loop(pod: &Value, container: &str) -> Value {
    let message = format!(
        "back-off restarting failed container={container} pod={}",
        text(pod, "metadata.name")
    );
    json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
}

/// An init container's status once the pod runs: done, or running beside it when it is a sidecar.
pub(super) fn initialized(pod: &Value, container: &Value, now: &str) -> Value {
    let sidecar = text(container, "restartPolicy") == "Always";
    let mut status = first_run(pod, container, true, now);
    set(&mut status, "ready", json!(true));
    if !sidecar {
        set(&mut status, "started", json!(false));
        set(
            &mut status,
            "state",
            json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}),
        );
    }
    status
}

/// The pod answers: every running container is ready.
pub(super) fn answer(pod: &mut Value, now: &str) {
    let statuses = pod
        .get_mut("status")
        .and_then(|status| status.get_mut("containerStatuses"));
    let mut all = true;
    for status in statuses.and_then(Value::as_array_mut).into_iter().flatten() {
        let running = at(status, "state.running").is_some();
        all &= running;
        set(status, "ready", json!(running));
    }
    for kind in ["Ready", "ContainersReady"] {
        if all {
            set_condition(pod, kind, "True", "", "", now);
        } else {
            let message = unready(pod);
            set_condition(pod, kind, "False", "ContainersNotReady", &message, now);
        }
    }
}

pub(super) fn unready(pod: &Value) -> String {
    let names: Vec<&str> = list(pod, "spec.containers")
        .iter()
        .map(|container| text(container, "name"))
        .collect();
    format!("containers with unready status: [{}]", names.join(" "))
}

/// Whether every readiness gate of the pod is met.
pub(super) fn gates_are_open(pod: &Value) -> bool {
    list(pod, "spec.readinessGates")
        .iter()
        .all(|gate| condition(pod, text(gate, "conditionType")) == "True")
}
