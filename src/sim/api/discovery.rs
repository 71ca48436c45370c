//! What is served here: groups, versions and resources, in the old form and in the aggregated one.

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::{
    answer,
    kinds::{self, Kind},
};
use crate::sim::objects::{Objects, Refusal};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The version this server behaves like.
pub fn version() -> Value {
    json!({
        "major": "1",
        "minor": "34",
        "gitVersion": "v1.34.1+freehold",
        "gitCommit": env!("FREEHOLD_REVISION"),
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "rust",
        "compiler": "rustc",
        "platform": "embedded",
    })
}

/// Answers a request for discovery; `None` when the path is none of it.
pub fn answer(objects: &Objects, path: &str, headers: &HeaderMap) -> Result<Option<Response>, Refusal> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let aggregated = accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2");
    let body = match segments.as_slice() {
        [] => paths(objects),
        ["api"] if aggregated => return aggregate(objects, true).map(Some),
        ["apis"] if aggregated => return aggregate(objects, false).map(Some),
        ["api"] => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
        ["apis"] => {
            let groups: Vec<Value> = groups(objects)
                .iter()
                .map(|(name, kinds)| group(name, kinds))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => {
            let groups = groups(objects);
            let Some((_, kinds)) = groups.iter().find(|(group, _)| group == name) else {
                return Err(Refusal::no_such_path());
            };
            let mut found = group(name, kinds);
            found["kind"] = json!("APIGroup");
            found["apiVersion"] = json!("v1");
            found
        }
        ["api", version] => resources(objects, "", version)?,
        ["apis", name, version] => resources(objects, name, version)?,
        ["openapi", "v3"] => json!({"paths": {}}),
        _ => return Ok(None),
    };
    answer::value_response(StatusCode::OK, &body).map(Some)
}

/// Groups other than the core one, each with its kinds, in order.
fn groups(objects: &Objects) -> Vec<(String, Vec<Kind>)> {
    let mut groups: Vec<(String, Vec<Kind>)> = Vec::new();
    for kind in kinds::all(objects)
        .into_iter()
        .filter(|kind| !kind.group.is_empty())
    {
        match groups.iter_mut().find(|(name, _)| *name == kind.group) {
            Some((_, kinds)) => kinds.push(kind),
            None => groups.push((kind.group.to_string(), vec![kind])),
        }
    }
    groups
}

fn versions(kinds: &[Kind]) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for kind in kinds {
        if !versions.iter().any(|version| *version == kind.version) {
            versions.push(kind.version.to_string());
        }
    }
    versions
}

fn group(name: &str, kinds: &[Kind]) -> Value {
    let versions: Vec<Value> = versions(kinds)
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn verbs(kind: &Kind) -> &'static [&'static str] {
    if kind.create_only {
        &["create"]
    } else if kind.is("", "namespaces") {
        &["create", "delete", "get", "list", "patch", "update", "watch"]
    } else {
        &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
    }
}

/// The subresources of a kind: name, kind of what they take, group, version, verbs.
fn subresources(kind: &Kind) -> Vec<(String, String, String, String, Vec<&'static str>)> {
    let mut found = Vec::new();
    for (name, of) in &kind.subresources {
        let (group, version) = match *of {
            "Eviction" => ("policy", "v1"),
            "TokenRequest" => ("authentication.k8s.io", "v1"),
            _ => ("", "v1"),
        };
        let verbs = match *name {
            "attach" | "exec" => vec!["create", "get"],
            "log" => vec!["get"],
            "finalize" => vec!["update"],
            _ => vec!["create"],
        };
        found.push((
            (*name).to_owned(),
            (*of).to_owned(),
            group.to_owned(),
            version.to_owned(),
            verbs,
        ));
    }
    let both = || vec!["get", "patch", "update"];
    if kind.scale.is_some() {
        found.push((
            "scale".into(),
            "Scale".into(),
            "autoscaling".into(),
            "v1".into(),
            both(),
        ));
    }
    if kind.status {
        let (group, version) = (kind.group.to_string(), kind.version.to_string());
        found.push(("status".into(), kind.kind.to_string(), group, version, both()));
    }
    found
}

fn resources(objects: &Objects, group: &str, version: &str) -> Result<Value, Refusal> {
    let mut resources = Vec::new();
    for kind in kinds::all(objects)
        .iter()
        .filter(|kind| kind.group == group && kind.version == version)
    {
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.singular(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.short.is_empty() {
            resource["shortNames"] = json!(kind.short);
        }
        if in_all(kind) {
            resource["categories"] = json!(["all"]);
        }
        resources.push(resource);
        for (name, of, of_group, of_version, verbs) in subresources(kind) {
            let mut resource = json!({
                "name": format!("{}/{name}", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": of,
                "verbs": verbs,
            });
            if of_group != kind.group || of_version != kind.version {
                resource["group"] = json!(of_group);
                resource["version"] = json!(of_version);
            }
            resources.push(resource);
        }
    }
    if resources.is_empty() {
        return Err(Refusal::no_such_path());
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Ok(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }))
}

fn in_all(kind: &Kind) -> bool {
    kind.group == "apps" || kind.group == "batch" || kind.is("", "pods") || kind.is("", "services")
}

fn aggregate(objects: &Objects, core: bool) -> Result<Response, Refusal> {
    let groups = if core {
        let kinds = kinds::builtins().iter().filter(|kind| kind.group.is_empty());
        vec![(String::new(), kinds.cloned().collect())]
    } else {
        groups(objects)
    };
    let items: Vec<Value> = groups
        .iter()
        .map(|(name, kinds): &(String, Vec<Kind>)| {
            let versions: Vec<Value> = versions(kinds)
                .iter()
                .map(|version| {
                    let of_version = kinds.iter().filter(|kind| kind.version == version.as_str());
                    let resources: Vec<Value> = of_version.map(aggregated_resource).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() {
                json!({"creationTimestamp": null})
            } else {
                json!({"name": name, "creationTimestamp": null})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let mut response = answer::value_response(StatusCode::OK, &body)?;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    Ok(response)
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular(),
        "verbs": verbs(kind),
    });
    if !kind.short.is_empty() {
        resource["shortNames"] = json!(kind.short);
    }
    if in_all(kind) {
        resource["categories"] = json!(["all"]);
    }
    let subresources: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|(name, of, group, version, verbs)| {
            json!({
                "subresource": name,
                "responseKind": {"group": group, "version": version, "kind": of},
                "verbs": verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = json!(subresources);
    }
    resource
}

fn paths(objects: &Objects) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (name, kinds) in groups(objects) {
        paths.push(format!("/apis/{name}"));
        paths.extend(
            versions(&kinds)
                .iter()
                .map(|version| format!("/apis/{name}/{version}")),
        );
    }
    paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    json!({"paths": paths})
}
