//! Create, update, patch and apply. Each is one step under the lock: look, admit, default, check, own, store.

use std::sync::Arc;

use axum::response::Response;
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::{
    Call, answer, answer_object, body, defaults, definitions, events,
    kinds::Kind,
    ownership::{self, Writer},
    patch::PatchKind,
    services, typed, validation,
};
use crate::sim::objects::{
    Cause, Details, Keep, Refusal, Resource, State, finalizers, is_deleting, metadata_text, timestamp,
};

const NAMESPACES: Resource = Resource::new("", "namespaces");
const CLASSES: Resource = Resource::new("storage.k8s.io", "storageclasses");

/// Answers a create.
pub fn create(call: &Call, mut object: Value) -> Result<Response, Refusal> {
    let keep = keep(call)?;
    check_type(&call.kind, &mut object)?;
    typed::check(call, &object)?;
    check_namespace(call, &mut object)?;
    let asked = object.pointer("/metadata/managedFields").cloned();
    let made = call.api.objects.atomically(|state| {
        admit_to_namespace(state, call, metadata_text(&object, "name"))?;
        let mut object = begin(state, &call.kind, object)?;
        let writer = writer(call, state)?;
        ownership::record_update(&call.kind, &json!({}), &mut object, asked.as_ref(), &writer);
        state
            .create(&call.kind.storage, object, keep)
            .map_err(|refusal| rename(call, refusal))
    })?;
    answer_object(call, StatusCode::CREATED, &made)
}

fn other_name(call: &Call, name: &str) -> Refusal {
    let on_url = &call.place.name;
    Refusal::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({on_url})"
    ))
}

/// Answers an update of an object or of its status.
pub fn update(call: &Call, mut object: Value) -> Result<Response, Refusal> {
    let keep = keep(call)?;
    check_type(&call.kind, &mut object)?;
    typed::check(call, &object)?;
    check_namespace(call, &mut object)?;
    let name = metadata_text(&object, "name");
    if !name.is_empty() && name != call.place.name {
        return Err(other_name(call, name));
    }
    object["metadata"]["name"] = json!(call.place.name);
    let asked = object.pointer("/metadata/managedFields").cloned();
    let stored = call.api.objects.atomically(|state| {
        let before = present(state, call)?;
        if needs_version(&call.kind) && metadata_text(&object, "resourceVersion").is_empty() {
            let cause = Cause::invalid(
                "metadata.resourceVersion",
                &json!(0),
                "must be specified for an update",
            );
            return Err(Refusal::invalid(
                &call.kind.group,
                &call.kind.kind,
                &call.place.name,
                vec![cause],
            ));
        }
        let mut after = complete(state, call, &before, object)?;
        let writer = writer(call, state)?;
        ownership::record_update(&call.kind, &before, &mut after, asked.as_ref(), &writer);
        store(state, call, after, keep)
    })?;
    answer_object(call, StatusCode::OK, &stored)
}

/// Answers a patch of any kind.
pub fn patch(call: &Call, body: &[u8]) -> Result<Response, Refusal> {
    let content_type = call
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let how = PatchKind::of(content_type.unwrap_or_default(), call.kind.custom)?;
    let keep = keep(call)?;
    if how == PatchKind::Apply {
        return apply(call, &body::from_yaml(body)?, keep);
    }
    if call.query.get("force").is_some() {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Refusal::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    }
    let change = body::from_json(body)?;
    let stored = call.api.objects.atomically(|state| {
        let before = present(state, call)?;
        let mut wanted = answer::presented(&call.kind, &before);
        super::patch::patch(how, &mut wanted, &change)?;
        check_type(&call.kind, &mut wanted)?;
        let asked = wanted.pointer("/metadata/managedFields").cloned();
        let mut after = complete(state, call, &before, wanted)?;
        let writer = writer(call, state)?;
        ownership::record_update(&call.kind, &before, &mut after, asked.as_ref(), &writer);
        store(state, call, after, keep)
    })?;
    answer_object(call, StatusCode::OK, &stored)
}

fn apply(call: &Call, intent: &Value, keep: Keep) -> Result<Response, Refusal> {
    let mut intent = intent.clone();
    if !intent.is_object() {
        return Err(Refusal::bad_request(
            "error decoding YAML: the configuration is not an object",
        ));
    }
    let missing = |field: &str| {
        intent
            .get(field)
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
    };
    if missing("apiVersion") || missing("kind") {
        return Err(Refusal::bad_request(
            "Object 'apiVersion' or 'kind' is missing in the applied configuration",
        ));
    }
    check_type(&call.kind, &mut intent)?;
    typed::check(call, &intent)?;
    check_namespace(call, &mut intent)?;
    if intent
        .pointer("/metadata/managedFields")
        .is_some_and(|fields| !fields.is_null())
    {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    let name = metadata_text(&intent, "name");
    if !name.is_empty() && name != call.place.name {
        return Err(other_name(call, name));
    }
    intent["metadata"]["name"] = json!(call.place.name);
    if call.query.get("fieldManager").is_none() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(Refusal::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    }
    let force = call.query.flag("force");
    let (status, stored) = call.api.objects.atomically(|state| {
        let writer = writer(call, state)?;
        let before = state.get(&call.kind.storage, &call.place.namespace, &call.place.name);
        let Some(before) = before else {
            if !call.place.subresource.is_empty() || !metadata_text(&intent, "uid").is_empty() {
                return Err(Refusal::not_found(&call.kind.resource(), &call.place.name));
            }
            admit_to_namespace(state, call, &call.place.name)?;
            let merged = ownership::apply(&call.kind, &Value::Null, &intent, force, &writer)?;
            let object = begin(state, &call.kind, merged)?;
            let made = state.create(&call.kind.storage, object, keep)?;
            return Ok((StatusCode::CREATED, made));
        };
        check_preconditions(call, &before, &intent)?;
        let live = answer::presented(&call.kind, &before);
        let mut merged = ownership::apply(&call.kind, &live, &intent, force, &writer)?;
        // The intent's version was checked against the live one; it is not a value to store.
        merged["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
        let managed = merged.pointer("/metadata/managedFields").cloned();
        let mut after = complete(state, call, &before, merged)?;
        if let (Some(managed), Some(metadata)) =
            (managed, after.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("managedFields".to_owned(), managed);
        }
        store(state, call, after, keep).map(|stored| (StatusCode::OK, stored))
    })?;
    answer_object(call, status, &stored)
}

/// Whether this request stores anything.
pub fn keep(call: &Call) -> Result<Keep, Refusal> {
    Ok(if call.query.dry_run()? {
        Keep::DryRun
    } else {
        Keep::Yes
    })
}

fn present(state: &State, call: &Call) -> Result<Arc<Value>, Refusal> {
    state
        .get(&call.kind.storage, &call.place.namespace, &call.place.name)
        .ok_or_else(|| Refusal::not_found(&call.kind.resource(), &call.place.name))
}

/// Messages name the kind as it was asked for, which for Events is not as it is stored.
fn rename(call: &Call, mut refusal: Refusal) -> Refusal {
    if call.kind.storage.group != call.kind.group {
        let (stored, asked) = (call.kind.storage.to_string(), call.kind.resource().to_string());
        refusal.message = refusal
            .message
            .replacen(&format!("{stored} "), &format!("{asked} "), 1);
    }
    refusal
}

/// The kind and version of a body must be those of the path; when left out they are filled in.
fn check_type(kind: &Kind, object: &mut Value) -> Result<(), Refusal> {
    let wanted = kind.api_version();
    if let Some(version) = object.get("apiVersion").and_then(Value::as_str)
        && version != wanted
    {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    if let Some(name) = object.get("kind").and_then(Value::as_str)
        && name != kind.kind
    {
        return Err(Refusal::bad_request(format!(
            "{name} in version \"{}\" cannot be handled as a {}: converting ({wanted}.{name}) to ({wanted}.{}): unknown conversion",
            kind.version, kind.kind, kind.kind
        )));
    }
    let Some(map) = object.as_object_mut() else {
        return Err(Refusal::new(
            422,
            "Invalid",
            "the patched object is not an object",
        ));
    };
    map.insert("apiVersion".to_owned(), json!(wanted));
    map.insert("kind".to_owned(), json!(kind.kind));
    let metadata = map.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        return Err(Refusal::bad_request("metadata must be an object"));
    }
    // Everything after this may rely on it.
    for field in ["spec", "status"] {
        let shaped = map
            .get(field)
            .is_none_or(|value| value.is_object() || value.is_null());
        if !shaped && !kind.custom {
            return Err(Refusal::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: {field} must be an object",
                kind.kind, kind.version, kind.kind
            )));
        }
    }
    Ok(())
}

fn check_namespace(call: &Call, object: &mut Value) -> Result<(), Refusal> {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let given = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !given.is_empty() && given != call.place.namespace {
        let message = if call.kind.namespaced {
            "the namespace of the provided object does not match the namespace sent on the request"
        } else {
            "namespace not allowed on this type"
        };
        return Err(Refusal::bad_request(message));
    }
    if call.kind.namespaced {
        metadata.insert("namespace".to_owned(), json!(call.place.namespace));
    } else {
        metadata.remove("namespace");
    }
    Ok(())
}

/// Nothing new in a namespace that is not there or is going.
pub fn admit_to_namespace(state: &State, call: &Call, name: &str) -> Result<(), Refusal> {
    if !call.kind.namespaced {
        return Ok(());
    }
    let name_of_space = call.place.namespace.as_str();
    let Some(namespace) = state.get(&NAMESPACES, "", name_of_space) else {
        return Err(Refusal::not_found(&NAMESPACES, name_of_space));
    };
    let phase = namespace.pointer("/status/phase").and_then(Value::as_str);
    if !is_deleting(&namespace) && phase != Some("Terminating") {
        return Ok(());
    }
    let why =
        format!("unable to create new content in namespace {name_of_space} because it is being terminated");
    let mut refusal = Refusal::forbidden(&call.kind.resource(), name, &why);
    let cause = Cause::of(
        "NamespaceTerminating",
        "metadata.namespace",
        format!("namespace {name_of_space} is being terminated"),
    );
    let details = refusal
        .details
        .get_or_insert_with(|| Box::new(Details::default()));
    details.causes.push(cause);
    Err(refusal)
}

/// A new object, ready to be stored.
fn begin(state: &State, kind: &Kind, object: Value) -> Result<Value, Refusal> {
    let mut object = if events::is_new_form(kind) {
        events::to_storage(&object)
    } else {
        object
    };
    if events::is_new_form(kind) {
        object["apiVersion"] = json!("v1");
    }
    defaults::begin(kind, &mut object, state.now());
    defaults::fill(kind, &mut object);
    if kind.is("", "pods") {
        defaults::admit_pod(&mut object);
    } else if kind.is("", "namespaces") {
        defaults::admit_namespace(&mut object);
    } else if kind.is("", "persistentvolumeclaims") {
        defaults::admit_claim(&mut object, state.each(&CLASSES, None).map(AsRef::as_ref));
    } else if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
        definitions::establish(&mut object, state.now());
    }
    validation::check(kind, &object)?;
    if kind.is("", "services") {
        services::allocate(state, &Value::Null, &mut object)?;
    }
    Ok(object)
}

/// A changed object, ready to be stored: only what the endpoint writes, defaulted and checked.
fn complete(state: &State, call: &Call, before: &Value, wanted: Value) -> Result<Value, Refusal> {
    check_preconditions(call, before, &wanted)?;
    let kind = &call.kind;
    let mut wanted = if events::is_new_form(kind) {
        events::to_storage(&wanted)
    } else {
        wanted
    };
    // An object stays in the version it was stored in.
    for field in ["apiVersion", "kind"] {
        if let Some(value) = before.get(field) {
            wanted[field] = value.clone();
        }
    }
    if call.place.subresource == "status" {
        let mut after = before.clone();
        set_or_remove(&mut after, "status", wanted.get("status"));
        return Ok(after);
    }
    if kind.status {
        set_or_remove(&mut wanted, "status", before.get("status"));
    }
    let mut after = wanted;
    carry_over(kind, before, &mut after);
    defaults::fill(kind, &mut after);
    if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
        definitions::establish(&mut after, state.now());
    }
    validation::check(kind, &after)?;
    // What was stored past the API may lack defaults; filling them in is no change.
    let mut base = before.clone();
    defaults::fill(kind, &mut base);
    validation::check_update(kind, &base, &after)?;
    check_finalizers(kind, before, &after)?;
    if kind.is("", "services") {
        after["metadata"]["uid"] = before["metadata"]["uid"].clone();
        services::allocate(state, before, &mut after)?;
    }
    Ok(after)
}

/// What an update may leave out without losing it.
fn carry_over(kind: &Kind, before: &Value, after: &mut Value) {
    if kind.is("", "namespaces") {
        // The finalizers of a namespace change through `finalize` only.
        if let Some(finalizers) = before.pointer("/spec/finalizers") {
            after["spec"]["finalizers"] = finalizers.clone();
        } else if let Some(spec) = after.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("finalizers");
        }
    }
    if kind.is("", "pods") {
        // A pod is bound through `binding` only, and scheduling never undone.
        for field in ["nodeName", "serviceAccountName", "serviceAccount", "tolerations"] {
            let missing = after.pointer(&format!("/spec/{field}")).is_none();
            if let (true, Some(value)) = (missing, before.pointer(&format!("/spec/{field}"))) {
                after["spec"][field] = value.clone();
            }
        }
    }
}

fn set_or_remove(object: &mut Value, field: &str, value: Option<&Value>) {
    let Some(map) = object.as_object_mut() else { return };
    match value {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

fn check_finalizers(kind: &Kind, before: &Value, after: &Value) -> Result<(), Refusal> {
    if !is_deleting(before) {
        return Ok(());
    }
    let new: Vec<&Value> = finalizers(after)
        .iter()
        .filter(|own| !finalizers(before).contains(own))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers {}",
        json!(new)
    );
    let cause = Cause::forbidden("metadata.finalizers", &why);
    Err(Refusal::invalid(
        &kind.group,
        &kind.kind,
        metadata_text(before, "name"),
        vec![cause],
    ))
}

/// A write can say which object and which state of it it means.
fn check_preconditions(call: &Call, before: &Value, wanted: &Value) -> Result<(), Refusal> {
    let resource = call.kind.resource();
    let uid = metadata_text(wanted, "uid");
    if !uid.is_empty() && uid != metadata_text(before, "uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            metadata_text(before, "uid")
        );
        return Err(Refusal::conflict(&resource, &call.place.name, &why));
    }
    let version = metadata_text(wanted, "resourceVersion");
    if !version.is_empty() && version != "0" && version != metadata_text(before, "resourceVersion") {
        return Err(Refusal::stale(&resource, &call.place.name));
    }
    Ok(())
}

/// Kinds that must not be overwritten blindly.
fn needs_version(kind: &Kind) -> bool {
    kind.custom
        || matches!(
            kind.group.as_ref(),
            "apiextensions.k8s.io" | "coordination.k8s.io" | "policy" | "admissionregistration.k8s.io"
        )
}

fn store(state: &mut State, call: &Call, after: Value, keep: Keep) -> Result<Arc<Value>, Refusal> {
    state.modify(
        &call.kind.storage,
        &call.place.namespace,
        &call.place.name,
        keep,
        |object| {
            *object = after;
            Ok(())
        },
    )
}

/// Who writes: the field manager given, or the start of the user agent.
fn writer(call: &Call, state: &State) -> Result<Writer, Refusal> {
    let agent = call
        .headers
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok());
    let agent = agent
        .and_then(|agent| agent.split('/').next())
        .filter(|name| !name.is_empty());
    let manager: String = call
        .query
        .get("fieldManager")
        .or(agent)
        .unwrap_or("unknown")
        .chars()
        .take(129)
        .collect();
    if manager.len() > 128 {
        let cause = Cause::of(
            "FieldValueTooLong",
            "fieldManager",
            "Too long: may not be more than 128 bytes",
        );
        return Err(Refusal::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    }
    Ok(Writer {
        manager,
        api_version: call.kind.api_version(),
        subresource: call.place.subresource.clone(),
        now: timestamp(state.now()),
    })
}
