//! The `scale` subresource: one view of how many replicas something has and shall have.

use axum::response::Response;
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::{
    Call, answer, body, find,
    kinds::Scale,
    patch::{PatchKind, patch},
    selectors::selector_text,
    write::keep,
};
use crate::sim::objects::{Cause, Refusal, metadata_text};

/// Answers a request to a scale.
pub fn scale(call: &Call, bytes: &[u8]) -> Result<Response, Refusal> {
    let Some(scale) = call.kind.scale.clone() else {
        return Err(Refusal::no_such_path());
    };
    let object = match call.verb {
        "get" => find(call)?,
        "update" => {
            let wanted = body::parse(&call.headers, bytes)?;
            write(call, &scale, |present| {
                *present = wanted;
                Ok(())
            })?
        }
        "patch" => {
            let content_type = call
                .headers
                .get(header::CONTENT_TYPE)
                .and_then(|value| value.to_str().ok());
            let how = PatchKind::of(content_type.unwrap_or_default(), false)?;
            let change = body::from_yaml(bytes)?;
            write(call, &scale, |present| match how {
                PatchKind::Apply => patch(PatchKind::Merge, present, &change),
                other => patch(other, present, &change),
            })?
        }
        _ => return Err(Refusal::method_not_allowed()),
    };
    answer::value_response(StatusCode::OK, &render(&scale, &object))
}

fn write(
    call: &Call,
    scale: &Scale,
    change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
) -> Result<std::sync::Arc<Value>, Refusal> {
    let resource = call.kind.resource();
    let name = call.place.name.as_str();
    call.api.objects.atomically(|state| {
        let keep = keep(call)?;
        state.modify(&call.kind.storage, &call.place.namespace, name, keep, |object| {
            let mut wanted = render(scale, object);
            change(&mut wanted)?;
            let version = metadata_text(&wanted, "resourceVersion");
            if !version.is_empty() && version != metadata_text(object, "resourceVersion") {
                return Err(Refusal::stale(&resource, name));
            }
            let replicas = wanted
                .pointer("/spec/replicas")
                .and_then(Value::as_i64)
                .unwrap_or(0);
            if !(0..=i64::from(i32::MAX)).contains(&replicas) {
                let cause = Cause::invalid(
                    "spec.replicas",
                    &json!(replicas),
                    "must be greater than or equal to 0",
                );
                return Err(Refusal::invalid("autoscaling", "Scale", name, vec![cause]));
            }
            set(object, &scale.spec, json!(replicas))
        })
    })
}

fn set(object: &mut Value, pointer: &str, value: Value) -> Result<(), Refusal> {
    let mut place = object;
    for field in pointer.trim_start_matches('/').split('/') {
        if !place.is_object() {
            return Err(Refusal::internal(format!("there is no {pointer} to scale")));
        }
        place = &mut place[field];
        if place.is_null() && !pointer.ends_with(&format!("/{field}")) {
            *place = json!({});
        }
    }
    *place = value;
    Ok(())
}

fn render(scale: &Scale, object: &Value) -> Value {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let selector = scale
        .selector
        .as_deref()
        .and_then(|pointer| object.pointer(pointer));
    let selector = match selector {
        Some(Value::String(text)) => text.clone(),
        Some(selector) => selector_text(selector),
        None => String::new(),
    };
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|metadata| metadata.get(field)) {
            metadata[field] = value.clone();
        }
    }
    // As Go leaves it out: no replicas asked for is no field.
    let spec = match number(&scale.spec) {
        0 => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": {"replicas": number(&scale.status), "selector": selector},
    })
}
