//! Who sends a request: the administrator, or a service account by a token that this server gave.
//! Tokens are signed with a key, so that none has to be remembered; they expire, and end with the
//! account and the pod they are bound to.

use std::collections::BTreeMap;

use axum::response::Response;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Api, Call, answer};
use crate::sim::objects::{Cause, Refusal, Resource, metadata_text, timestamp};

const ACCOUNTS: Resource = Resource::new("", "serviceaccounts");
const PODS: Resource = Resource::new("", "pods");
const NODES: Resource = Resource::new("", "nodes");
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Who sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `kubernetes-admin`, or `system:serviceaccount:<namespace>:<name>`.
    pub username: String,
    /// The account's UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Its groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The pod and node a token is bound to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// The one who may do everything.
    #[must_use]
    pub fn administrator() -> Self {
        Self {
            username: "kubernetes-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            ..Self::default()
        }
    }

    /// True for those who may do everything.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// What a token says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Vec<String>,
    iat: i64,
    nbf: i64,
    exp: i64,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    bound: Bound,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Bound {
    namespace: String,
    serviceaccount: Named,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Named>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Named {
    name: String,
    uid: String,
}

/// Reads who sends a request from its headers.
pub fn identify(api: &Api, headers: &HeaderMap) -> Result<Identity, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return if api.admit_anonymous {
            Ok(Identity::administrator())
        } else {
            Err(Refusal::unauthorized())
        };
    };
    let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    let Some(token) = token.map(str::trim) else {
        return Err(Refusal::unauthorized());
    };
    verify(api, token, &[])
        .map(|(identity, _)| identity)
        .map_err(|_| Refusal::unauthorized())
}

/// Checks a token for one of some audiences (any of the server's when none is given), and says whose it
/// is and which of them it is for.
pub fn verify(api: &Api, token: &str, audiences: &[String]) -> Result<(Identity, Vec<String>), String> {
    let own = vec![ISSUER.to_owned()];
    let audiences = if audiences.is_empty() { &own } else { audiences };
    if let Some(admin) = &api.admin_token
        && same(
            &mac(&api.token_key, admin.as_bytes()),
            &mac(&api.token_key, token.as_bytes()),
        )
    {
        return Ok((Identity::administrator(), audiences.to_vec()));
    }
    let claims = read(api, token)?;
    let now = api.clock.wall().as_second();
    if now >= claims.exp {
        return Err("service account token has expired".to_owned());
    }
    let fitting: Vec<String> = audiences
        .iter()
        .filter(|audience| claims.aud.contains(audience))
        .cloned()
        .collect();
    if fitting.is_empty() {
        return Err(format!(
            "token audiences {:?} is invalid for the target audiences {audiences:?}",
            claims.aud
        ));
    }
    let bound = &claims.bound;
    still_there(api, &ACCOUNTS, &bound.namespace, &bound.serviceaccount)?;
    if let Some(pod) = &bound.pod {
        still_there(api, &PODS, &bound.namespace, pod)?;
    }
    Ok((identity(&claims), fitting))
}

fn still_there(api: &Api, resource: &Resource, namespace: &str, named: &Named) -> Result<(), String> {
    let object = api.objects.get(resource, namespace, &named.name);
    match object {
        Some(object) if metadata_text(&object, "uid") == named.uid => Ok(()),
        _ => Err(format!(
            "service account token has been invalidated: {resource} \"{}\" is gone",
            named.name
        )),
    }
}

fn identity(claims: &Claims) -> Identity {
    let bound = &claims.bound;
    let mut extra = BTreeMap::new();
    let mut add = |key: &str, value: String| {
        extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    };
    add("credential-id", format!("JTI={}", claims.jti));
    if let Some(pod) = &bound.pod {
        add("pod-name", pod.name.clone());
        add("pod-uid", pod.uid.clone());
    }
    if let Some(node) = &bound.node {
        add("node-name", node.name.clone());
        add("node-uid", node.uid.clone());
    }
    Identity {
        username: claims.sub.clone(),
        uid: bound.serviceaccount.uid.clone(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", bound.namespace),
            "system:authenticated".to_owned(),
        ],
        extra,
    }
}

/// Answers a request for a token of a service account.
pub fn request(call: &Call, body: &Value) -> Result<Response, Refusal> {
    let account = super::find(call)?;
    let spec = match body.get("spec") {
        Some(spec) if spec.is_object() => spec.clone(),
        _ => json!({}),
    };
    let seconds = spec
        .get("expirationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(3600);
    if !(600..=1 << 32).contains(&seconds) {
        let why = "may not specify a duration less than 10 minutes or longer than 2^32 seconds";
        let cause = Cause::invalid("spec.expirationSeconds", &json!(seconds), why);
        return Err(Refusal::invalid(
            "authentication.k8s.io",
            "TokenRequest",
            &call.place.name,
            vec![cause],
        ));
    }
    let audiences: Vec<String> = spec
        .get("audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let audiences = if audiences.is_empty() {
        vec![ISSUER.to_owned()]
    } else {
        audiences
    };
    let (pod, node) = bound_pod(call, &spec)?;
    let api = &call.api;
    let now = api.clock.wall();
    let expires = now
        .checked_add(jiff::SignedDuration::from_secs(seconds))
        .unwrap_or(jiff::Timestamp::MAX);
    let (namespace, name) = (call.place.namespace.clone(), call.place.name.clone());
    let mut claims = Claims {
        iss: ISSUER.to_owned(),
        sub: format!("system:serviceaccount:{namespace}:{name}"),
        aud: audiences.clone(),
        iat: now.as_second(),
        nbf: now.as_second(),
        exp: expires.as_second(),
        jti: String::new(),
        bound: Bound {
            namespace,
            serviceaccount: named(&account),
            pod,
            node,
        },
    };
    claims.jti = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &answer::to_bytes(&claims)?).to_string();
    let mut answer = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec});
    answer["spec"]["audiences"] = json!(audiences);
    answer["spec"]["expirationSeconds"] = json!(seconds);
    answer["metadata"] = json!({"name": call.place.name, "namespace": call.place.namespace,
        "creationTimestamp": timestamp(now)});
    answer["status"] = json!({"token": write(api, &claims)?, "expirationTimestamp": timestamp(expires)});
    super::answer::value_response(StatusCode::CREATED, &answer)
}

fn named(object: &Value) -> Named {
    Named {
        name: metadata_text(object, "name").to_owned(),
        uid: metadata_text(object, "uid").to_owned(),
    }
}

/// The pod a token shall be bound to, and the node the pod is on.
fn bound_pod(call: &Call, spec: &Value) -> Result<(Option<Named>, Option<Named>), Refusal> {
    let Some(reference) = spec
        .get("boundObjectRef")
        .filter(|reference| !reference.is_null())
    else {
        return Ok((None, None));
    };
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != "Pod" {
        let message = format!(
            "cannot bind token for serviceaccount to object of kind {}: only Pod",
            text("kind")
        );
        return Err(Refusal::bad_request(message));
    }
    let name = text("name");
    let objects = &call.api.objects;
    let pod = objects
        .get(&PODS, &call.place.namespace, name)
        .ok_or_else(|| Refusal::not_found(&PODS, name))?;
    if !text("uid").is_empty() && text("uid") != metadata_text(&pod, "uid") {
        let why = format!(
            "the UID in the bound object reference ({}) does not match the UID in record",
            text("uid")
        );
        return Err(Refusal::conflict(&PODS, name, &why));
    }
    let account = pod
        .pointer("/spec/serviceAccountName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if account != call.place.name {
        return Err(Refusal::bad_request(format!(
            "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
            call.place.name
        )));
    }
    let node = pod
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let node = objects.get(&NODES, "", node).map(|node| named(&node));
    Ok((Some(named(&pod)), node))
}

fn write(api: &Api, claims: &Claims) -> Result<String, Refusal> {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = encode(&json!({"alg": "HS256", "kid": "freehold-embedded"}));
    let body = URL_SAFE_NO_PAD.encode(answer::to_bytes(claims)?);
    let signed = format!("{head}.{body}");
    let signature = URL_SAFE_NO_PAD.encode(mac(&api.token_key, signed.as_bytes()));
    Ok(format!("{signed}.{signature}"))
}

fn read(api: &Api, token: &str) -> Result<Claims, String> {
    let invalid = || "invalid bearer token".to_owned();
    let (signed, signature) = token.rsplit_once('.').ok_or_else(invalid)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| invalid())?;
    if !same(&signature, &mac(&api.token_key, signed.as_bytes())) {
        return Err(invalid());
    }
    let (_, body) = signed.split_once('.').ok_or_else(invalid)?;
    let body = URL_SAFE_NO_PAD.decode(body).map_err(|_| invalid())?;
    serde_json::from_slice(&body).map_err(|_| invalid())
}

/// HMAC-SHA-256; the key is not longer than a block.
fn mac(key: &[u8; 32], message: &[u8]) -> Vec<u8> {
    let pad = |with: u8| -> Vec<u8> {
        (0..64)
            .map(|index| key.get(index).copied().unwrap_or(0) ^ with)
            .collect()
    };
    let mut inner = Sha256::new();
    inner.update(pad(0x36));
    inner.update(message);
    let mut outer = Sha256::new();
    outer.update(pad(0x5c));
    outer.update(inner.finalize());
    outer.finalize().to_vec()
}

/// Compares without telling by time where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}
