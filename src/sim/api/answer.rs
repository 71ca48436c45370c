//! Answers: objects in the version they were asked for, lists, and refusals.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use super::{events, kinds::Kind, request::Format, table};
use crate::sim::objects::Refusal;

/// An object as it is answered: in the kind's version. Items of built-in lists carry no type.
#[derive(Debug)]
pub struct Rendered<'a> {
    /// The stored object.
    pub object: &'a Value,
    /// The kind it was asked for as.
    pub kind: &'a Kind,
    /// Whether `apiVersion` and `kind` are written.
    pub typed: bool,
}

impl Serialize for Rendered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let converted = events::is_new_form(self.kind).then(|| events::from_storage(self.object));
        let object = converted.as_ref().unwrap_or(self.object);
        let mut map = serializer.serialize_map(None)?;
        if self.typed {
            map.serialize_entry("kind", &self.kind.kind)?;
            map.serialize_entry("apiVersion", &self.kind.api_version())?;
        }
        for (key, value) in object.as_object().into_iter().flatten() {
            if key != "kind" && key != "apiVersion" {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

/// The object as a client sees it, for patching and comparing.
#[must_use]
pub fn presented(kind: &Kind, stored: &Value) -> Value {
    let mut object = if events::is_new_form(kind) {
        events::from_storage(stored)
    } else {
        stored.clone()
    };
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!(kind.api_version()));
        map.insert("kind".to_owned(), json!(kind.kind));
    }
    object
}

/// One object in one of the forms a client can ask for.
pub fn encode(kind: &Kind, format: Format, now: jiff::Timestamp, object: &Value) -> Result<Bytes, Refusal> {
    match format {
        Format::Plain => to_bytes(&Rendered {
            object,
            kind,
            typed: true,
        }),
        Format::Table => to_bytes(&table::render(
            kind,
            now,
            std::iter::once(object),
            &json!({
                "resourceVersion": object.pointer("/metadata/resourceVersion"),
            }),
        )),
        Format::Metadata => to_bytes(&json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object.get("metadata"),
        })),
    }
}

/// A list in one of the forms a client can ask for.
pub fn encode_list(
    kind: &Kind,
    format: Format,
    now: jiff::Timestamp,
    items: &[Arc<Value>],
    metadata: &Value,
) -> Result<Bytes, Refusal> {
    #[derive(Serialize)]
    struct List<'a> {
        kind: String,
        #[serde(rename = "apiVersion")]
        api_version: String,
        metadata: &'a Value,
        items: Vec<Rendered<'a>>,
    }
    match format {
        Format::Plain => to_bytes(&List {
            kind: format!("{}List", kind.kind),
            api_version: kind.api_version(),
            metadata,
            items: items
                .iter()
                .map(|object| Rendered {
                    object,
                    kind,
                    typed: kind.custom,
                })
                .collect(),
        }),
        Format::Table => to_bytes(&table::render(
            kind,
            now,
            items.iter().map(AsRef::as_ref),
            metadata,
        )),
        Format::Metadata => to_bytes(&json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": items.iter().map(|object| json!({"metadata": object.get("metadata")})).collect::<Vec<_>>(),
        })),
    }
}

/// Any value as JSON.
pub fn to_bytes(value: &impl Serialize) -> Result<Bytes, Refusal> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| Refusal::internal(format!("the answer cannot be written: {error}")))
}

/// An answer of JSON.
#[must_use]
pub fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// An answer of any value.
pub fn value_response(status: StatusCode, value: &impl Serialize) -> Result<Response, Refusal> {
    Ok(json_response(status, to_bytes(value)?))
}

/// A refusal as an answer.
#[must_use]
pub fn refusal_response(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, refusal.status().to_string());
    let wait = refusal
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if wait > 0 {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(wait));
    }
    response
}

/// The answer to a request that was done and has nothing to show.
#[must_use]
pub fn success(details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
