//! Subresources that do something: finalize, eviction, binding. Others have files of their own.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Call, answer, answer_object, body, delete, logs, pods, scale,
    selectors::{Selection, selector_text},
    tokens,
    write::keep,
};
use crate::sim::objects::{
    Cause, Deletion, Details, Keep, Refusal, Resource, State, is_deleting, metadata_text, timestamp,
};

const PODS: Resource = Resource::new("", "pods");
const BUDGETS: Resource = Resource::new("policy", "poddisruptionbudgets");

/// Answers a request to a subresource other than status.
pub fn dispatch(call: &Call, bytes: &[u8]) -> Result<Response, Refusal> {
    let plural = (call.kind.group.as_ref(), call.kind.plural.as_ref());
    match (plural, call.place.subresource.as_str(), call.verb) {
        (_, "scale", _) => scale::scale(call, bytes),
        (("", "namespaces"), "finalize", "update") => finalize(call, &body::parse(&call.headers, bytes)?),
        (("", "pods"), "eviction", "create") => evict(call, &body::parse(&call.headers, bytes)?),
        (("", "pods"), "binding", "create") => bind(call, &body::parse(&call.headers, bytes)?),
        (("", "pods"), "log", "get") => logs::log(call),
        (("", "serviceaccounts"), "token", "create") => {
            tokens::request(call, &body::parse(&call.headers, bytes)?)
        }
        (("", "namespaces"), "finalize", _)
        | (("", "pods"), "eviction" | "binding" | "log", _)
        | (("", "serviceaccounts"), "token", _) => Err(Refusal::method_not_allowed()),
        _ => Err(Refusal::no_such_path()),
    }
}

fn finalize(call: &Call, wanted: &Value) -> Result<Response, Refusal> {
    let finalizers = wanted.pointer("/spec/finalizers").cloned();
    let version = metadata_text(wanted, "resourceVersion");
    let keep = keep(call)?;
    let stored = call.api.objects.atomically(|state| {
        state.modify(&call.kind.storage, "", &call.place.name, keep, |namespace| {
            if !version.is_empty() && version != metadata_text(namespace, "resourceVersion") {
                return Err(Refusal::stale(&call.kind.resource(), &call.place.name));
            }
            match finalizers.filter(|list| list.as_array().is_some_and(|list| !list.is_empty())) {
                Some(list) => namespace["spec"]["finalizers"] = list,
                None => {
                    if let Some(spec) = namespace.get_mut("spec").and_then(Value::as_object_mut) {
                        spec.remove("finalizers");
                    }
                }
            }
            Ok(())
        })
    })?;
    answer_object(call, StatusCode::OK, &stored)
}

fn evict(call: &Call, eviction: &Value) -> Result<Response, Refusal> {
    let name = call.place.name.as_str();
    let named = metadata_text(eviction, "name");
    if !named.is_empty() && named != name {
        return Err(Refusal::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let options = eviction.get("deleteOptions").unwrap_or(&Value::Null);
    let text = |pointer: &str| {
        options
            .pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let deletion = Deletion {
        grace_seconds: options.get("gracePeriodSeconds").and_then(Value::as_i64),
        propagation: None,
        uid: text("/preconditions/uid"),
        resource_version: text("/preconditions/resourceVersion"),
    };
    let dry = options
        .get("dryRun")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty());
    let keep = if dry { Keep::DryRun } else { keep(call)? };
    call.api.objects.atomically(|state| {
        let pod = state
            .get(&PODS, &call.place.namespace, name)
            .ok_or_else(|| Refusal::not_found(&PODS, name))?;
        let phase = pod
            .pointer("/status/phase")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let disrupts = !is_deleting(&pod) && !matches!(phase, "Succeeded" | "Failed" | "Pending" | "");
        if disrupts {
            spend_budget(state, call, &pod, keep)?;
        }
        delete::remove(state, call, name, &deletion, keep)
    })?;
    let mut done = answer::success(&Value::Null);
    if let Some(map) = done.as_object_mut() {
        map.remove("details");
        map.insert("code".to_owned(), json!(201));
    }
    answer::value_response(StatusCode::CREATED, &done)
}

/// A pod under a budget goes only while the budget allows a disruption, and takes it.
fn spend_budget(state: &mut State, call: &Call, pod: &Value, keep: Keep) -> Result<(), Refusal> {
    let namespace = call.place.namespace.as_str();
    let covers = |budget: &Value| {
        let selector = selector_text(budget.pointer("/spec/selector").unwrap_or(&Value::Null));
        Selection::of_labels(&selector).is_ok_and(|selection| selection.matches(pod))
    };
    let budgets: Vec<String> = state
        .each(&BUDGETS, Some(namespace))
        .filter(|budget| covers(budget))
        .map(|budget| metadata_text(budget, "name").to_owned())
        .collect();
    let name = match budgets.as_slice() {
        [] => return Ok(()),
        [one] => one,
        _ => {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Refusal::new(500, "InternalError", message));
        }
    };
    state.modify(&BUDGETS, namespace, name, keep, |budget| {
        let allowed = budget
            .pointer("/status/disruptionsAllowed")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if allowed <= 0 {
            return Err(over_budget(name, budget));
        }
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        Ok(())
    })?;
    Ok(())
}

fn over_budget(name: &str, budget: &Value) -> Refusal {
    let number = |field: &str| {
        budget
            .pointer(&format!("/status/{field}"))
            .and_then(Value::as_i64)
            .unwrap_or(0)
    };
    let message = format!(
        "The disruption budget {name} needs {} healthy pods and has {} currently",
        number("desiredHealthy"),
        number("currentHealthy")
    );
    Refusal {
        code: 429,
        reason: "TooManyRequests",
        message: "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
        details: Some(Box::new(Details {
            causes: vec![Cause::of("DisruptionBudget", "", message)],
            ..Details::default()
        })),
        next: None,
    }
}

fn bind(call: &Call, binding: &Value) -> Result<Response, Refusal> {
    let node = binding
        .pointer("/target/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if node.is_empty() {
        let cause = Cause::required("target.name", "");
        return Err(Refusal::invalid("", "Binding", &call.place.name, vec![cause]));
    }
    let uid = metadata_text(binding, "uid");
    let keep = keep(call)?;
    call.api.objects.atomically(|state| {
        let now = timestamp(state.now());
        state.modify(&PODS, &call.place.namespace, &call.place.name, keep, |pod| {
            let conflict = |why: String| Err(Refusal::conflict(&PODS, &call.place.name, &why));
            if !uid.is_empty() && uid != metadata_text(pod, "uid") {
                return conflict(format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    metadata_text(pod, "uid")
                ));
            }
            if is_deleting(pod) {
                return conflict(format!(
                    "pod {} is being deleted, cannot be assigned to a host",
                    call.place.name
                ));
            }
            let present = pod
                .pointer("/spec/nodeName")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if !present.is_empty() {
                return conflict(format!(
                    "pod {} is already assigned to node \"{present}\"",
                    call.place.name
                ));
            }
            if super::defaults::is_gated(pod.get("spec").unwrap_or(&Value::Null)) {
                return conflict(format!(
                    "pod {} has non-empty .spec.schedulingGates",
                    call.place.name
                ));
            }
            pods::bind(pod, node, &now);
            Ok(())
        })
    })?;
    let mut done = answer::success(&Value::Null);
    if let Some(map) = done.as_object_mut() {
        map.remove("details");
        map.insert("code".to_owned(), json!(201));
    }
    answer::value_response(StatusCode::CREATED, &done)
}
