//! Reading request bodies: JSON or YAML, up to the size a real API server takes.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::Value;

use crate::sim::objects::Refusal;

/// The most a body may have.
const LIMIT: usize = 3 * 1024 * 1024;

/// Reads a whole body.
pub async fn read(body: Body) -> Result<Bytes, Refusal> {
    axum::body::to_bytes(body, LIMIT).await.map_err(|error| {
        Refusal::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {LIMIT}: {error}"),
        )
    })
}

/// The body of a create or an update.
pub fn parse(headers: &HeaderMap, bytes: &[u8]) -> Result<Value, Refusal> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media = content_type
        .unwrap_or("application/json")
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    let value = match media {
        "application/json" | "" => from_json(bytes)?,
        "application/yaml" => from_yaml(bytes)?,
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                           application/json, application/yaml";
            return Err(Refusal::new(415, "UnsupportedMediaType", message));
        }
    };
    if !value.is_object() {
        return Err(Refusal::bad_request("the body of the request is not an object"));
    }
    Ok(value)
}

/// JSON.
pub fn from_json(bytes: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::bad_request(format!("the body of the request is not valid JSON: {error}")))
}

/// YAML, of which JSON is the common case.
pub fn from_yaml(bytes: &[u8]) -> Result<Value, Refusal> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Refusal::bad_request(format!("the body of the request is not text: {error}")))?;
    serde_saphyr::from_str(text)
        .map_err(|error| Refusal::bad_request(format!("the body of the request is not valid YAML: {error}")))
}
