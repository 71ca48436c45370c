//! A simulated kube-apiserver: a tower service that speaks the Kubernetes REST protocol over `Objects`,
//! so that `kube::Client` and kubectl work with it as with a real one.
//!
//! A request is taken apart (`request`), its kind found (`kinds`), its sender known (`tokens`), and then
//! it is a read (`list`, `watch`), a write (`write`, `delete`) or something special (`subresources`,
//! `reviews`, `logs`, `exec`). Every write looks and stores under one lock.

mod answer;
mod body;
pub mod containers;
mod defaults;
mod definitions;
mod delete;
mod discovery;
mod events;
mod exec;
mod fields;
mod kinds;
mod list;
mod logs;
mod ownership;
mod patch;
mod pods;
mod rbac;
mod request;
mod reviews;
mod scale;
mod selectors;
mod services;
mod shapes;
mod subresources;
mod table;
#[cfg(test)]
mod tests;
mod tokens;
mod typed;
mod validation;
mod watch;
mod write;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware,
    response::Response,
};
use http::{HeaderMap, Method, StatusCode, request::Parts};
use serde_json::{Value, json};

use self::{
    containers::Containers,
    kinds::Kind,
    request::{Format, Parameters, Place},
};
use crate::{
    ports::clock::Clock,
    sim::{
        faults::{self, Faults},
        objects::{Objects, Refusal},
    },
};

pub use self::{request::target, tokens::Identity};

/// What the API server is made of.
#[derive(Clone, Debug)]
pub struct Api {
    /// What it serves.
    pub objects: Objects,
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// What runs in the pods.
    pub containers: Arc<dyn Containers>,
    /// Where times come from; the same clock the objects have.
    pub clock: Arc<dyn Clock>,
    /// Whether a request without credentials is the administrator's. Otherwise it is refused.
    pub admit_anonymous: bool,
    /// A bearer token that makes its sender the administrator, such as the one in a kubeconfig.
    pub admin_token: Option<String>,
    /// Signs the tokens of service accounts. Keep it over restarts, or they end with them.
    pub token_key: [u8; 32],
}

/// The API server, as a service for `kube::Client::new` or for an HTTP server.
pub fn router(api: Api) -> Router {
    let faults = api.faults.clone();
    Router::new()
        .fallback(serve)
        .with_state(Arc::new(api))
        .layer(middleware::from_fn_with_state(faults, faults::inject))
}

async fn serve(State(api): State<Arc<Api>>, request: Request) -> Response {
    match handle(&api, request).await {
        Ok(response) => response,
        Err(refusal) => answer::refusal_response(&refusal),
    }
}

/// A request to a resource, with everything known about it before its body is read.
#[derive(Debug)]
struct Call {
    api: Arc<Api>,
    identity: Identity,
    kind: Kind,
    place: Place,
    query: Parameters,
    headers: HeaderMap,
    format: Format,
    verb: &'static str,
}

async fn handle(api: &Arc<Api>, request: Request) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    if matches!(path.trim_end_matches('/'), "/healthz" | "/livez" | "/readyz") {
        return Ok(Response::new("ok".into()));
    }
    if path.trim_end_matches('/') == "/version" {
        return answer::value_response(StatusCode::OK, &discovery::version());
    }
    let identity = tokens::identify(api, &parts.headers)?;
    if let Some(found) = discovery::answer(&api.objects, &path, &parts.headers)? {
        return if parts.method == Method::GET {
            Ok(found)
        } else {
            Err(Refusal::method_not_allowed())
        };
    }
    let call = understand(api, identity, &parts, &path)?;
    rbac::authorize(&call)?;
    if call.place.plural == "pods" && matches!(call.place.subresource.as_str(), "exec" | "attach") {
        return exec::exec(&call, &mut parts).await;
    }
    let body = body::read(body).await?;
    dispatch(&call, &body)
}

fn understand(api: &Arc<Api>, identity: Identity, parts: &Parts, path: &str) -> Result<Call, Refusal> {
    let place = Place::parse(path).ok_or_else(Refusal::no_such_path)?;
    let kind = kinds::find(&api.objects, &place.group, &place.version, &place.plural)
        .ok_or_else(Refusal::no_such_path)?;
    if !kind.namespaced && !place.namespace.is_empty() {
        return Err(Refusal::no_such_path());
    }
    let query = Parameters::read(&parts.uri)?;
    let verb = place.verb(&parts.method, &query);
    // A namespaced object has no path of its own without its namespace.
    let needs_namespace = !place.name.is_empty() || (verb == "create" && !kind.create_only);
    if kind.namespaced && place.namespace.is_empty() && needs_namespace {
        return Err(Refusal::no_such_path());
    }
    Ok(Call {
        api: Arc::clone(api),
        identity,
        format: request::accepted(&parts.headers)?,
        headers: parts.headers.clone(),
        kind,
        place,
        query,
        verb,
    })
}

fn dispatch(call: &Call, body: &[u8]) -> Result<Response, Refusal> {
    if call.kind.create_only {
        return match call.verb {
            "create" if call.place.name.is_empty() => {
                reviews::review(call, &body::parse(&call.headers, body)?)
            }
            _ => Err(Refusal::method_not_allowed()),
        };
    }
    match (call.place.subresource.as_str(), call.verb) {
        ("", "list") => list::list(call),
        ("", "watch") => watch::watch(call),
        ("", "get") => get(call),
        ("", "create") if call.place.name.is_empty() => {
            write::create(call, body::parse(&call.headers, body)?)
        }
        ("", "delete") => delete::delete(call, body),
        ("", "deletecollection") => delete::delete_collection(call, body),
        ("", "update") | ("status", "update") if named(call) => {
            write::update(call, body::parse(&call.headers, body)?)
        }
        ("", "patch") | ("status", "patch") if named(call) => write::patch(call, body),
        ("status", "get") => get(call),
        ("" | "status", _) => Err(Refusal::method_not_allowed()),
        _ => subresources::dispatch(call, body),
    }
}

fn named(call: &Call) -> bool {
    let writes_status = call.place.subresource != "status" || call.kind.status;
    !call.place.name.is_empty() && writes_status
}

fn get(call: &Call) -> Result<Response, Refusal> {
    if call.place.subresource == "status" && !call.kind.status {
        return Err(Refusal::no_such_path());
    }
    let object = find(call)?;
    answer_object(call, StatusCode::OK, &object)
}

/// The object a call is about.
fn find(call: &Call) -> Result<Arc<Value>, Refusal> {
    call.api
        .objects
        .get(&call.kind.storage, &call.place.namespace, &call.place.name)
        .ok_or_else(|| Refusal::not_found(&call.kind.resource(), &call.place.name))
}

fn answer_object(call: &Call, status: StatusCode, object: &Value) -> Result<Response, Refusal> {
    let body = answer::encode(&call.kind, call.format, call.api.clock.wall(), object)?;
    Ok(answer::json_response(status, body))
}

/// What a deletion's answer says it is about.
fn details_of(call: &Call, object: &Value) -> Value {
    let mut details = json!({
        "name": object.pointer("/metadata/name"),
        "kind": call.kind.plural,
        "uid": object.pointer("/metadata/uid"),
    });
    if !call.kind.group.is_empty() {
        details["group"] = json!(call.kind.group);
    }
    details
}
