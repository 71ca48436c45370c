//! Deleting one object or a collection.

use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Call, answer, answer_object, body, details_of,
    kinds::{DEFINITIONS, served_versions},
    selectors::Selection,
};
use crate::sim::objects::{Cause, Deleted, Deletion, Keep, Propagation, Refusal, State, metadata_text};

/// What a client can say about a deletion, in the body.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    preconditions: Option<Preconditions>,
    dry_run: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Answers a deletion of one object.
pub fn delete(call: &Call, bytes: &[u8]) -> Result<Response, Refusal> {
    let (deletion, keep) = read(call, bytes)?;
    let deleted = call
        .api
        .objects
        .atomically(|state| remove(state, call, &call.place.name, &deletion, keep))?;
    // Some kinds answer with their last state, the others with the fact.
    let shows_itself = call.kind.is("", "pods")
        || call.kind.is("", "services")
        || call.kind.is("", "persistentvolumes")
        || call.kind.is("", "persistentvolumeclaims")
        || call.kind.is("", "serviceaccounts")
        || call.kind.is("", "resourcequotas");
    match deleted {
        Deleted::Removed(object) if !shows_itself => {
            answer::value_response(StatusCode::OK, &answer::success(&details_of(call, &object)))
        }
        Deleted::Removed(object) | Deleted::Marked(object) => answer_object(call, StatusCode::OK, &object),
    }
}

/// Answers a deletion of everything selected.
pub fn delete_collection(call: &Call, bytes: &[u8]) -> Result<Response, Refusal> {
    if call.kind.is("", "namespaces") {
        return Err(Refusal::method_not_allowed());
    }
    let (deletion, keep) = read(call, bytes)?;
    let selection = Selection::read(&call.kind, &call.place.namespace, &call.query)?;
    let namespace = (!call.place.namespace.is_empty()).then_some(call.place.namespace.as_str());
    let deleted = call.api.objects.atomically(|state| {
        let selected: Vec<_> = state
            .each(&call.kind.storage, namespace)
            .filter(|object| selection.matches(object))
            .cloned()
            .collect();
        for object in &selected {
            let (namespace, name) = (metadata_text(object, "namespace"), metadata_text(object, "name"));
            state.delete(&call.kind.storage, namespace, name, &deletion, keep)?;
        }
        Ok::<_, Refusal>(selected)
    })?;
    let metadata = serde_json::json!({"resourceVersion": call.api.objects.revision().to_string()});
    let body = answer::encode_list(
        &call.kind,
        call.format,
        call.api.clock.wall(),
        &deleted,
        &metadata,
    )?;
    Ok(answer::json_response(StatusCode::OK, body))
}

/// Removes one object; a definition takes the objects it defines with it.
pub fn remove(
    state: &mut State,
    call: &Call,
    name: &str,
    deletion: &Deletion,
    keep: Keep,
) -> Result<Deleted, Refusal> {
    let namespace = call.place.namespace.as_str();
    if call.kind.is("", "namespaces") && matches!(name, "default" | "kube-system" | "kube-public") {
        let why = "this namespace may not be deleted";
        return Err(Refusal::forbidden(&call.kind.resource(), name, why));
    }
    let deleted = state.delete(&call.kind.storage, namespace, name, deletion, keep)?;
    if keep == Keep::Yes
        && call.kind.storage == DEFINITIONS
        && let Deleted::Removed(definition) = &deleted
    {
        remove_instances(state, definition)?;
    }
    Ok(deleted)
}

fn remove_instances(state: &mut State, definition: &Value) -> Result<(), Refusal> {
    let Some(kind) = served_versions(definition).into_iter().next() else {
        return Ok(());
    };
    let instances: Vec<_> = state.each(&kind.storage, None).cloned().collect();
    for instance in instances {
        let (namespace, name) = (
            metadata_text(&instance, "namespace"),
            metadata_text(&instance, "name"),
        );
        state.delete(&kind.storage, namespace, name, &Deletion::default(), Keep::Yes)?;
    }
    Ok(())
}

fn read(call: &Call, bytes: &[u8]) -> Result<(Deletion, Keep), Refusal> {
    let options = parse(bytes)?;
    let policy = options
        .propagation_policy
        .as_deref()
        .or(call.query.get("propagationPolicy"));
    let orphan = options.orphan_dependents.or_else(|| {
        call.query
            .get("orphanDependents")
            .map(|_| call.query.flag("orphanDependents"))
    });
    let propagation = match (policy, orphan) {
        (Some("Background"), None) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), None) => Some(Propagation::Foreground),
        (Some("Orphan"), None) | (None, Some(true)) => Some(Propagation::Orphan),
        (None, None) => None,
        (Some(_), Some(_)) => {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            return Err(refuse(Cause::invalid("propagationPolicy", &policy.into(), why)));
        }
        (Some(other), None) => {
            let known = ["Foreground", "Background", "Orphan"];
            return Err(refuse(Cause::unsupported(
                "propagationPolicy",
                &other.into(),
                &known,
            )));
        }
    };
    let grace = match options.grace_period_seconds {
        Some(seconds) => Some(seconds),
        None => call.query.number("gracePeriodSeconds")?,
    };
    let preconditions = options.preconditions.unwrap_or_default();
    let deletion = Deletion {
        grace_seconds: grace,
        propagation,
        uid: preconditions.uid,
        resource_version: preconditions.resource_version,
    };
    let dry = match options.dry_run.as_slice() {
        [] => call.query.dry_run()?,
        [all] if all == "All" => true,
        _ => {
            let given = serde_json::json!(options.dry_run);
            return Err(refuse(Cause::unsupported("dryRun", &given, &["All"])));
        }
    };
    Ok((deletion, if dry { Keep::DryRun } else { Keep::Yes }))
}

fn parse(bytes: &[u8]) -> Result<DeleteOptions, Refusal> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(DeleteOptions::default());
    }
    let value = body::from_json(bytes)?;
    serde_json::from_value(value)
        .map_err(|error| Refusal::bad_request(format!("the DeleteOptions cannot be read: {error}")))
}

fn refuse(cause: Cause) -> Refusal {
    Refusal::invalid("meta.k8s.io", "DeleteOptions", "", vec![cause])
}
