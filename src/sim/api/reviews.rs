//! Reviews: questions that are answered and never stored.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Call, answer,
    rbac::{self, Attempt},
    tokens::{self, Identity},
};
use crate::sim::objects::{Cause, Refusal};

/// Answers a review.
pub fn review(call: &Call, body: &Value) -> Result<Response, Refusal> {
    let spec = body.get("spec").cloned().unwrap_or_default();
    let status = match call.kind.plural.as_ref() {
        "selfsubjectreviews" => json!({"userInfo": call.identity}),
        "tokenreviews" => review_token(call, &spec)?,
        "selfsubjectaccessreviews" => review_access(call, &call.identity, &spec)?,
        "subjectaccessreviews" | "localsubjectaccessreviews" => review_access(call, &subject(&spec)?, &spec)?,
        "selfsubjectrulesreviews" => review_rules(call, &spec),
        _ => return Err(Refusal::no_such_path()),
    };
    let mut answer = json!({
        "kind": call.kind.kind,
        "apiVersion": call.kind.api_version(),
        "metadata": body.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "status": status,
    });
    if call.kind.plural != "selfsubjectreviews" {
        answer["spec"] = spec;
    }
    answer::value_response(StatusCode::CREATED, &answer)
}

fn text(value: &Value, field: &str) -> String {
    value
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn review_token(call: &Call, spec: &Value) -> Result<Value, Refusal> {
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(Refusal::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    Ok(
        match tokens::verify(&call.api, &token, &texts(spec, "audiences")) {
            Ok((identity, audiences)) => {
                json!({"authenticated": true, "user": identity, "audiences": audiences})
            }
            Err(why) => json!({"user": {}, "error": format!("[{why}]")}),
        },
    )
}

fn subject(spec: &Value) -> Result<Identity, Refusal> {
    let identity = Identity {
        username: text(spec, "user"),
        groups: texts(spec, "groups"),
        ..Identity::default()
    };
    if identity.username.is_empty() && identity.groups.is_empty() {
        let cause = Cause::required("spec.user", "at least one of user or group must be specified");
        return Err(Refusal::invalid(
            "authorization.k8s.io",
            "SubjectAccessReview",
            "",
            vec![cause],
        ));
    }
    Ok(identity)
}

fn review_access(call: &Call, identity: &Identity, spec: &Value) -> Result<Value, Refusal> {
    let resource = spec
        .get("resourceAttributes")
        .filter(|attributes| !attributes.is_null());
    let path = spec
        .get("nonResourceAttributes")
        .filter(|attributes| !attributes.is_null());
    let allowed = match (resource, path) {
        (Some(attributes), None) => {
            let subresource = text(attributes, "subresource");
            let mut wanted = text(attributes, "resource");
            if !subresource.is_empty() {
                wanted = format!("{wanted}/{subresource}");
            }
            let attempt = Attempt {
                verb: text(attributes, "verb"),
                group: text(attributes, "group"),
                resource: wanted,
                namespace: text(attributes, "namespace"),
                name: text(attributes, "name"),
            };
            rbac::allows(&call.api.objects, identity, &attempt)
        }
        // Paths beside the resources are health, version and discovery: everybody's.
        (None, Some(attributes)) => identity.is_administrator() || text(attributes, "verb") == "get",
        _ => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let cause = Cause::invalid("spec.resourceAttributes", &Value::Null, why);
            return Err(Refusal::invalid(
                "authorization.k8s.io",
                &call.kind.kind,
                "",
                vec![cause],
            ));
        }
    };
    Ok(if allowed {
        json!({"allowed": true})
    } else {
        json!({"allowed": false, "reason": "no role bound to the user allows it"})
    })
}

fn review_rules(call: &Call, spec: &Value) -> Value {
    let rules = rbac::rules(&call.api.objects, &call.identity, &text(spec, "namespace"));
    json!({
        "resourceRules": rules,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version"]}],
        "incomplete": false,
    })
}
