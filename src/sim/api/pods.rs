//! The rules for pods that no other kind has: what may change while they run, and while they are gated.

use serde_json::{Value, json};

use super::defaults::is_gated;
use crate::sim::objects::Cause;

/// Checks a change of a pod's spec: images, a few numbers, more tolerations; scheduling gates only go;
/// and while gated, placement may only become narrower.
pub fn check_update(before: &Value, after: &Value, causes: &mut Vec<Cause>) {
    let (old, new) = (spec(before), spec(after));
    let gates = |spec: &Value| -> Vec<Value> {
        spec.get("schedulingGates")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    if gates(new).iter().any(|gate| !gates(old).contains(gate)) {
        let why = "only deletion is allowed, but found new scheduling gate";
        causes.push(Cause::forbidden("spec.schedulingGates", why));
    }
    if removes_tolerations(old, new) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", why));
    }
    let mut old = fixed(old);
    let mut new = fixed(new);
    if is_gated(spec(before)) {
        if !narrows_selector(&old, &new) {
            let why = "only additions are allowed to spec.nodeSelector";
            causes.push(Cause::invalid("spec.nodeSelector", &new["nodeSelector"], why));
        }
        if !narrows_affinity(&old, &new) {
            let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
            let why = "only additions are allowed to the terms of nodeAffinity of a gated pod";
            causes.push(Cause::invalid(
                field,
                &required_affinity(&new).cloned().unwrap_or_default(),
                why,
            ));
        }
        for spec in [&mut old, &mut new] {
            forget_node_placement(spec);
        }
    }
    if old != new {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        causes.push(Cause::forbidden("spec", why));
    }
}

fn spec(pod: &Value) -> &Value {
    pod.get("spec").unwrap_or(&Value::Null)
}

/// The spec without what may change at any time.
fn fixed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(map) = spec.as_object_mut() {
        for field in ["schedulingGates", "tolerations", "activeDeadlineSeconds"] {
            map.remove(field);
        }
        for list in ["containers", "initContainers"] {
            let containers = map.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                container.remove("image");
            }
        }
    }
    spec
}

fn removes_tolerations(old: &Value, new: &Value) -> bool {
    let list = |spec: &Value| -> Vec<Value> {
        let tolerations = spec.get("tolerations").and_then(Value::as_array).cloned();
        let mut tolerations = tolerations.unwrap_or_default();
        for toleration in tolerations.iter_mut().filter_map(Value::as_object_mut) {
            toleration.remove("tolerationSeconds");
        }
        tolerations
    };
    let new = list(new);
    list(old).iter().any(|toleration| !new.contains(toleration))
}

fn forget_node_placement(spec: &mut Value) {
    if let Some(map) = spec.as_object_mut() {
        map.remove("nodeSelector");
        // Preferences may change freely, requirements were checked.
        let emptied = map
            .get_mut("affinity")
            .and_then(Value::as_object_mut)
            .is_some_and(|affinity| {
                affinity.remove("nodeAffinity");
                affinity.is_empty()
            });
        if emptied {
            map.remove("affinity");
        }
    }
}

fn narrows_selector(old: &Value, new: &Value) -> bool {
    let selector = |spec: &Value| {
        spec.get("nodeSelector")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let new = selector(new);
    selector(old)
        .iter()
        .all(|(key, value)| new.get(key) == Some(value))
}

fn required_affinity(spec: &Value) -> Option<&Value> {
    spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution")
}

/// Terms are alternatives: there may be no new one, and each may only get more conditions.
fn narrows_affinity(old: &Value, new: &Value) -> bool {
    let terms = |spec: &Value| -> Vec<Value> {
        required_affinity(spec)
            .and_then(|affinity| affinity.get("nodeSelectorTerms"))
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let (old, new) = (terms(old), terms(new));
    if old.is_empty() {
        return true;
    }
    old.len() == new.len()
        && old.iter().zip(&new).all(|(old, new)| {
            ["matchExpressions", "matchFields"].iter().all(|field| {
                let list = |term: &Value| {
                    term.get(field)
                        .and_then(Value::as_array)
                        .cloned()
                        .unwrap_or_default()
                };
                let new = list(new);
                list(old).iter().all(|condition| new.contains(condition))
            })
        })
}

/// What a binding makes of a pod: it has a node, and that is known as a condition.
pub fn bind(pod: &mut Value, node: &str, now: &str) {
    pod["spec"]["nodeName"] = json!(node);
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    if !pod["status"].is_object() {
        pod["status"] = json!({"phase": "Pending"});
    }
    let conditions = pod["status"].get("conditions").and_then(Value::as_array).cloned();
    let mut conditions = conditions.unwrap_or_default();
    conditions.retain(|condition| condition.get("type") != Some(&json!("PodScheduled")));
    conditions.push(condition);
    pod["status"]["conditions"] = json!(conditions);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(before: Value, after: Value) -> usize {
        let mut causes = Vec::new();
        check_update(&json!({"spec": before}), &json!({"spec": after}), &mut causes);
        causes.len()
    }

    fn pinned(node: &str) -> Value {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}})
    }

    #[test]
    fn a_gated_pod_can_be_pinned_and_let_go_in_one_change() {
        let gated = json!({"schedulingGates": [{"name": "freehold.dev/placement"}], "containers": []});
        assert_eq!(
            problems(gated.clone(), json!({"affinity": pinned("n1"), "containers": []})),
            0
        );
        let free = json!({"containers": []});
        assert_eq!(
            problems(free.clone(), json!({"affinity": pinned("n1"), "containers": []})),
            1
        );
        assert_eq!(problems(free, gated), 1);
    }

    #[test]
    fn a_gated_pods_placement_only_becomes_narrower() {
        let gates = json!([{"name": "g"}]);
        let before = json!({"schedulingGates": gates, "affinity": pinned("n1"), "nodeSelector": {"a": "b"}});
        let wider = json!({"schedulingGates": gates, "affinity": pinned("n2"), "nodeSelector": {}});
        assert_eq!(problems(before.clone(), wider), 2);
        let narrower =
            json!({"schedulingGates": gates, "affinity": pinned("n1"), "nodeSelector": {"a": "b", "c": "d"}});
        assert_eq!(problems(before, narrower), 0);
    }

    #[test]
    fn an_image_may_change_and_a_command_may_not() {
        let pod = |image: &str, command: &str| json!({"containers": [{"name": "a", "image": image, "command": [command]}]});
        assert_eq!(problems(pod("1", "x"), pod("2", "x")), 0);
        assert_eq!(problems(pod("1", "x"), pod("1", "y")), 1);
    }
}
