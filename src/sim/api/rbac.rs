//! May the sender do this? Roles and bindings as they are stored; the administrator may do everything.

use serde_json::{Value, json};

use super::{Call, tokens::Identity};
use crate::sim::objects::{Details, Objects, Refusal, Resource, metadata_text};

const GROUP: &str = "rbac.authorization.k8s.io";
const ROLES: Resource = Resource::new(GROUP, "roles");
const CLUSTER_ROLES: Resource = Resource::new(GROUP, "clusterroles");
const BINDINGS: Resource = Resource::new(GROUP, "rolebindings");
const CLUSTER_BINDINGS: Resource = Resource::new(GROUP, "clusterrolebindings");

/// What somebody wants to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// The verb.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The plural, with the subresource after a slash.
    pub resource: String,
    /// The namespace; empty for all or for cluster-scoped ones.
    pub namespace: String,
    /// The object's name; empty for a collection.
    pub name: String,
}

/// Refuses a call its sender may not make.
pub fn authorize(call: &Call) -> Result<(), Refusal> {
    if call.identity.is_administrator() {
        return Ok(());
    }
    let place = &call.place;
    let resource = if place.subresource.is_empty() {
        place.plural.clone()
    } else {
        format!("{}/{}", place.plural, place.subresource)
    };
    let attempt = Attempt {
        verb: call.verb.to_owned(),
        group: place.group.clone(),
        resource,
        namespace: place.namespace.clone(),
        name: place.name.clone(),
    };
    if allows(&call.api.objects, &call.identity, &attempt) {
        return Ok(());
    }
    let scope = if place.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", place.namespace)
    };
    let named = if place.name.is_empty() {
        String::new()
    } else {
        format!(" \"{}\"", place.name)
    };
    let mut refusal = Refusal::new(
        403,
        "Forbidden",
        format!(
            "{}{named} is forbidden: User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {scope}",
            call.kind.resource(),
            call.identity.username,
            attempt.verb,
            attempt.resource,
            attempt.group,
        ),
    );
    refusal.details = Some(Box::new(Details {
        name: place.name.clone(),
        group: place.group.clone(),
        kind: place.plural.clone(),
        ..Details::default()
    }));
    Err(refusal)
}

/// True when a role bound to the sender allows the attempt.
#[must_use]
pub fn allows(objects: &Objects, identity: &Identity, attempt: &Attempt) -> bool {
    identity.is_administrator()
        || is_about_oneself(attempt)
        || rules(objects, identity, &attempt.namespace)
            .iter()
            .any(|rule| rule_allows(rule, attempt))
}

/// Everybody may ask who they are and what they may do.
fn is_about_oneself(attempt: &Attempt) -> bool {
    attempt.verb == "create"
        && matches!(
            (attempt.group.as_str(), attempt.resource.as_str()),
            (
                "authorization.k8s.io",
                "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
            ) | ("authentication.k8s.io", "selfsubjectreviews")
        )
}

/// Every rule that holds for somebody in a namespace.
#[must_use]
pub fn rules(objects: &Objects, identity: &Identity, namespace: &str) -> Vec<Value> {
    if identity.is_administrator() {
        return vec![json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})];
    }
    let mut bindings = objects.list(&CLUSTER_BINDINGS, None).items;
    if !namespace.is_empty() {
        bindings.extend(objects.list(&BINDINGS, Some(namespace)).items);
    }
    bindings
        .iter()
        .filter(|binding| binds(binding, identity))
        .flat_map(|binding| role_rules(objects, binding))
        .collect()
}

fn binds(binding: &Value, identity: &Identity) -> bool {
    let subjects = binding.get("subjects").and_then(Value::as_array);
    subjects.into_iter().flatten().any(|subject| {
        let text = |field: &str| subject.get(field).and_then(Value::as_str).unwrap_or_default();
        match text("kind") {
            "User" => text("name") == identity.username,
            "Group" => identity.groups.iter().any(|group| group == text("name")),
            "ServiceAccount" => {
                identity.username == format!("system:serviceaccount:{}:{}", text("namespace"), text("name"))
            }
            _ => false,
        }
    })
}

fn role_rules(objects: &Objects, binding: &Value) -> Vec<Value> {
    let text = |pointer: &str| {
        binding
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let name = text("/roleRef/name");
    let role = if text("/roleRef/kind") == "ClusterRole" {
        objects.get(&CLUSTER_ROLES, "", name)
    } else {
        objects.get(&ROLES, metadata_text(binding, "namespace"), name)
    };
    match role {
        Some(role) => role
            .get("rules")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
        // A real cluster always has this one.
        None if name == "cluster-admin" => {
            vec![json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})]
        }
        None => Vec::new(),
    }
}

fn rule_allows(rule: &Value, attempt: &Attempt) -> bool {
    let has = |field: &str, wanted: &str| {
        let list = rule.get(field).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .any(|value| value == "*" || value == wanted)
    };
    let any_of_subresource = attempt
        .resource
        .split_once('/')
        .map(|(_, sub)| format!("*/{sub}"));
    let names = rule.get("resourceNames").and_then(Value::as_array);
    has("verbs", &attempt.verb)
        && has("apiGroups", &attempt.group)
        && (has("resources", &attempt.resource)
            || any_of_subresource.is_some_and(|wanted| has("resources", &wanted)))
        && names
            .is_none_or(|names| names.is_empty() || names.iter().any(|name| name == attempt.name.as_str()))
}
