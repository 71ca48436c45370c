//! The HTTP routes, made from the lines of the access table. Handlers are parse → ask → render.

mod dashboard;

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Query, State, rejection::QueryRejection},
    response::{Html, IntoResponse, Response},
    routing::{MethodRouter, delete, get, post},
};
use http::{StatusCode, header};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use super::{
    access::table::{Endpoint, ROUTES},
    ask::Ask,
    errors::ApiError,
    gate::{Surface, render},
};
use crate::{
    domain::{actor::ProvokedFault, api_fault::ApiFault},
    ports::telemetry,
};

/// What the handlers share.
#[derive(Clone, Debug)]
struct Shared {
    ask: Ask,
    message_bytes: usize,
}

/// The routes of the table; for the health listener only its plain ones.
pub(super) fn router(ask: Ask, message_bytes: usize, plain_only: bool) -> Router {
    let mut router = Router::new();
    for route in ROUTES.iter().filter(|route| route.plain || !plain_only) {
        router = router.route(route.path, endpoint(route.endpoint));
    }
    router
        .fallback(|| async { ApiError::NoSuchMethod })
        .with_state(Shared { ask, message_bytes })
}

fn endpoint(endpoint: Endpoint) -> MethodRouter<Shared> {
    match endpoint {
        Endpoint::Alive => get(alive),
        Endpoint::Ready => get(ready),
        Endpoint::Metrics => get(metrics),
        Endpoint::Dashboard => get(show_dashboard),
        Endpoint::Status => get(status),
        Endpoint::Inventory => get(inventory),
        Endpoint::Actors => get(actors),
        Endpoint::ProvokeFault => post(provoke),
        Endpoint::Faults => get(faults),
        Endpoint::AddFault => post(add_fault),
        Endpoint::ClearFaults => delete(clear_faults),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        render(Surface::Http, &self)
    }
}

/// Answers must not be kept by caches, and never be taken for another type.
fn plain(response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        http::HeaderValue::from_static("nosniff"),
    );
    response
}

async fn alive() -> Response {
    plain(Json(json!({"alive": true})))
}

async fn ready(State(shared): State<Shared>) -> Response {
    let status = shared.ask.status();
    if status.ready {
        plain(Json(json!({"ready": true})))
    } else {
        let document = Json(json!({"ready": false, "reasons": status.reasons}));
        plain((StatusCode::SERVICE_UNAVAILABLE, document))
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    plain((
        [(header::CONTENT_TYPE, telemetry::CONTENT_TYPE)],
        shared.ask.metrics(),
    ))
}

async fn show_dashboard(State(shared): State<Shared>) -> Response {
    let page = dashboard::render(&shared.ask.status(), &shared.ask.inventory());
    let mut response = plain(Html(page));
    response.headers_mut().insert(
        header::CONTENT_SECURITY_POLICY,
        http::HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    );
    response
}

async fn status(State(shared): State<Shared>) -> Response {
    plain(Json(shared.ask.status()))
}

async fn inventory(State(shared): State<Shared>) -> Response {
    plain(Json(shared.ask.inventory()))
}

#[derive(Debug, Deserialize)]
struct ActorsQuery {
    path: Option<String>,
    depth: Option<u32>,
}

async fn actors(
    State(shared): State<Shared>,
    query: Result<Query<ActorsQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::Invalid {
        field: None,
        message: error.body_text(),
    })?;
    let report = shared.ask.actors(query.path.as_deref(), query.depth)?;
    Ok(plain(Json(report)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Provocation {
    kind: ProvokedFault,
}

async fn provoke(
    State(shared): State<Shared>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let actor = path.strip_suffix("/fault").ok_or(ApiError::NoSuchMethod)?;
    // First: without debug.enabled there is nothing here at all.
    shared.ask.debugging()?;
    let provocation: Provocation = parse(body, shared.message_bytes).await?;
    shared.ask.provoke(actor, provocation.kind)?;
    Ok(plain((StatusCode::ACCEPTED, Json(json!({"accepted": true})))))
}

async fn faults(State(shared): State<Shared>) -> Result<Response, ApiError> {
    Ok(plain(Json(shared.ask.faults()?)))
}

async fn add_fault(State(shared): State<Shared>, body: Body) -> Result<Response, ApiError> {
    shared.ask.debugging()?;
    let fault: ApiFault = parse(body, shared.message_bytes).await?;
    shared.ask.add_fault(fault)?;
    Ok(plain((StatusCode::CREATED, Json(json!({"added": true})))))
}

async fn clear_faults(State(shared): State<Shared>) -> Result<Response, ApiError> {
    shared.ask.clear_faults()?;
    Ok(plain(Json(json!({"cleared": true}))))
}

async fn parse<T: DeserializeOwned>(body: Body, limit: usize) -> Result<T, ApiError> {
    let bytes = axum::body::to_bytes(body, limit)
        .await
        .map_err(|_| ApiError::TooLarge { limit })?;
    serde_json::from_slice(&bytes).map_err(|error| ApiError::Invalid {
        field: None,
        message: format!("the body cannot be understood: {error}"),
    })
}
