//! What a real API server refuses: names, labels, what must be there, and what may not change.

use serde_json::{Value, json};

use super::kinds::{Kind, NameRule};
use crate::sim::objects::{Cause, Refusal, metadata_text};

/// The rule for subdomains, in the real server's words.
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// The rule for labels, in the real server's words.
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// The rule for services, in the real server's words.
const SERVICE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|byte| byte.is_some_and(|byte| inner(*byte)))
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}

/// What is wrong with a name, in the real server's words.
#[must_use]
pub fn name_problem(rule: NameRule, name: &str) -> Option<String> {
    let too_long =
        |limit: usize| (name.len() > limit).then(|| format!("must be no more than {limit} characters"));
    match rule {
        NameRule::Subdomain => {
            too_long(253).or_else(|| (!name.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned()))
        }
        NameRule::Label => too_long(63).or_else(|| (!is_label(name)).then(|| LABEL.to_owned())),
        NameRule::Service => too_long(63).or_else(|| {
            let starts = name.starts_with(|first: char| first.is_ascii_lowercase());
            (!(starts && is_label(name))).then(|| SERVICE.to_owned())
        }),
        NameRule::PathSegment => {
            let bad = matches!(name, "." | "..") || name.contains(['/', '%']);
            bad.then(|| "may not contain '/' or '%', and may not be '.' or '..'".to_owned())
        }
    }
}

fn is_label_value(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let prefix_fits = prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_label));
    prefix_fits && !name.is_empty() && is_label_value(name)
}

/// Checks a whole object, as it would be stored.
pub fn check(kind: &Kind, object: &Value) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    check_metadata(kind, object, &mut causes);
    if !kind.custom {
        check_content(kind, object, &mut causes);
    }
    refuse(kind, object, causes)
}

fn refuse(kind: &Kind, object: &Value, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() {
        return Ok(());
    }
    let name = metadata_text(object, "name");
    Err(Refusal::invalid(&kind.group, &kind.kind, name, causes))
}

fn check_metadata(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let name = metadata_text(object, "name");
    let prefix = metadata_text(object, "generateName");
    if name.is_empty() && prefix.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    }
    if !name.is_empty()
        && let Some(problem) = name_problem(kind.names, name)
    {
        causes.push(Cause::invalid("metadata.name", &json!(name), &problem));
    }
    if name.is_empty() && !prefix.is_empty() {
        // A prefix may end in what a name may not end in.
        let example = format!("{}x", prefix.trim_end_matches('-'));
        if let Some(problem) = name_problem(kind.names, &example) {
            causes.push(Cause::invalid("metadata.generateName", &json!(prefix), &problem));
        }
    }
    for (field, is_labels) in [("labels", true), ("annotations", false)] {
        let Some(pairs) = object
            .pointer(&format!("/metadata/{field}"))
            .filter(|pairs| !pairs.is_null())
        else {
            continue;
        };
        let Some(pairs) = pairs.as_object() else {
            causes.push(Cause::invalid(
                format!("metadata.{field}"),
                pairs,
                "must be a map of strings",
            ));
            continue;
        };
        let mut size = 0_usize;
        for (key, value) in pairs {
            size = size
                .saturating_add(key.len())
                .saturating_add(value.as_str().map_or(0, str::len));
            if !is_qualified_name(key) {
                let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
                causes.push(Cause::invalid(format!("metadata.{field}"), &json!(key), why));
            }
            let fits = value
                .as_str()
                .is_some_and(|text| !is_labels || is_label_value(text));
            if !fits {
                let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
                causes.push(Cause::invalid(format!("metadata.{field}"), value, why));
            }
        }
        if !is_labels && size > 256 * 1024 {
            let message = format!("Too long: may not be more than {} bytes", 256 * 1024);
            causes.push(Cause::of("FieldValueTooLong", "metadata.annotations", message));
        }
    }
}

fn check_content(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "pods") => check_pod_spec(spec, "spec", causes),
        ("", "services") => check_service(spec, causes),
        ("", "persistentvolumeclaims") => {
            if spec
                .get("accessModes")
                .and_then(Value::as_array)
                .is_none_or(Vec::is_empty)
            {
                causes.push(Cause::required(
                    "spec.accessModes",
                    "at least 1 access mode is required",
                ));
            }
            if spec.pointer("/resources/requests/storage").is_none() {
                causes.push(Cause::required("spec.resources[storage]", ""));
            }
        }
        ("apps", _) => check_workload(spec, causes),
        ("batch", "jobs") => {
            check_pod_spec(template_spec(spec), "spec.template.spec", causes);
            let policy = template_spec(spec).get("restartPolicy").unwrap_or(&Value::Null);
            if policy != "OnFailure" && policy != "Never" {
                let field = "spec.template.spec.restartPolicy";
                causes.push(Cause::unsupported(field, policy, &["OnFailure", "Never"]));
            }
        }
        ("storage.k8s.io", "storageclasses") if object.get("provisioner").is_none_or(|name| name == "") => {
            causes.push(Cause::required("provisioner", ""));
        }
        ("apiextensions.k8s.io", _) => check_definition(object, causes),
        _ => {}
    }
}

fn template_spec(spec: &Value) -> &Value {
    spec.pointer("/template/spec").unwrap_or(&Value::Null)
}

fn check_workload(spec: &Value, causes: &mut Vec<Cause>) {
    check_pod_spec(template_spec(spec), "spec.template.spec", causes);
    let Some(selector) = spec.get("selector").filter(|selector| selector.is_object()) else {
        causes.push(Cause::required("spec.selector", ""));
        return;
    };
    let labels = spec.pointer("/template/metadata").cloned().unwrap_or_default();
    let text = super::selectors::selector_text(selector);
    let matches = super::selectors::Selection::of_labels(&text)
        .is_ok_and(|selection| selection.matches(&json!({"metadata": labels})));
    if !matches || text.is_empty() {
        let labels = labels.get("labels").cloned().unwrap_or_default();
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", &labels, why));
    }
    if spec
        .get("replicas")
        .and_then(Value::as_i64)
        .is_some_and(|count| count < 0)
    {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.replicas", &spec["replicas"], why));
    }
}

fn check_pod_spec(spec: &Value, at: &str, causes: &mut Vec<Cause>) {
    let containers = spec.get("containers").and_then(Value::as_array);
    let Some(containers) = containers.filter(|list| !list.is_empty()) else {
        causes.push(Cause::required(format!("{at}.containers"), ""));
        return;
    };
    let mut names = std::collections::BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let field = format!("{at}.containers[{index}].name");
        if name.is_empty() {
            causes.push(Cause::required(field, ""));
        } else if let Some(problem) = name_problem(NameRule::Label, name) {
            causes.push(Cause::invalid(field, &json!(name), &problem));
        } else if !names.insert(name) {
            causes.push(Cause::of(
                "FieldValueDuplicate",
                field,
                format!("Duplicate value: \"{name}\""),
            ));
        }
        if container.get("image").is_none_or(|image| image == "") {
            causes.push(Cause::required(format!("{at}.containers[{index}].image"), ""));
        }
    }
}

fn check_service(spec: &Value, causes: &mut Vec<Cause>) {
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
    let known = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !known.contains(&kind) {
        causes.push(Cause::unsupported("spec.type", &json!(kind), &known));
    }
    let ports = spec
        .get("ports")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let headless = spec.get("clusterIP").is_some_and(|address| address == "None");
    if ports.is_empty() && kind != "ExternalName" && !headless {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(
                format!("spec.ports[{index}].port"),
                &json!(number),
                why,
            ));
        }
        if ports.len() > 1 && port.get("name").is_none_or(|name| name == "") {
            causes.push(Cause::required(format!("spec.ports[{index}].name"), ""));
        }
    }
}

fn check_definition(object: &Value, causes: &mut Vec<Cause>) {
    let field = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (group, plural) = (field("/spec/group"), field("/spec/names/plural"));
    for (value, name) in [
        (group, "spec.group"),
        (plural, "spec.names.plural"),
        (field("/spec/names/kind"), "spec.names.kind"),
        (field("/spec/scope"), "spec.scope"),
    ] {
        if value.is_empty() {
            causes.push(Cause::required(name, ""));
        }
    }
    let wanted = format!("{plural}.{group}");
    let name = metadata_text(object, "name");
    if name != wanted {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &json!(name), why));
    }
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let stored = |version: &&Value| version.get("storage") == Some(&json!(true));
    if versions.map_or(0, |versions| versions.iter().filter(stored).count()) != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid(
            "spec.versions",
            &json!(versions.map_or(0, Vec::len)),
            why,
        ));
    }
}

/// Fields that may not change once an object is there.
const IMMUTABLE: &[(&str, &str, &[&str])] = &[
    ("apps", "deployments", &["/spec/selector"]),
    ("apps", "replicasets", &["/spec/selector"]),
    ("apps", "daemonsets", &["/spec/selector"]),
    (
        "batch",
        "jobs",
        &["/spec/selector", "/spec/template", "/spec/completionMode"],
    ),
    ("rbac.authorization.k8s.io", "rolebindings", &["/roleRef"]),
    ("rbac.authorization.k8s.io", "clusterrolebindings", &["/roleRef"]),
    (
        "storage.k8s.io",
        "storageclasses",
        &[
            "/provisioner",
            "/parameters",
            "/reclaimPolicy",
            "/volumeBindingMode",
        ],
    ),
    ("", "secrets", &["/type"]),
    ("scheduling.k8s.io", "priorityclasses", &["/value"]),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &[
            "/spec/group",
            "/spec/scope",
            "/spec/names/plural",
            "/spec/names/kind",
        ],
    ),
];

/// Checks what an update may not change.
pub fn check_update(kind: &Kind, before: &Value, after: &Value) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    if metadata_text(before, "name") != metadata_text(after, "name") {
        let name = json!(metadata_text(after, "name"));
        causes.push(Cause::invalid("metadata.name", &name, "field is immutable"));
    }
    let fields = IMMUTABLE.iter().find(|(group, plural, _)| kind.is(group, plural));
    for pointer in fields.map_or(&[][..], |(_, _, fields)| fields) {
        if before.pointer(pointer) != after.pointer(pointer) {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            let value = after.pointer(pointer).cloned().unwrap_or_default();
            causes.push(Cause::invalid(field, &value, "field is immutable"));
        }
    }
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "pods") => super::pods::check_update(before, after, &mut causes),
        ("apps", "statefulsets") => check_stateful_set(before, after, &mut causes),
        ("", "persistentvolumeclaims") => check_claim(before, after, &mut causes),
        ("", "configmaps" | "secrets") if before.get("immutable") == Some(&json!(true)) => {
            let same = ["data", "binaryData", "immutable"]
                .iter()
                .all(|field| before.get(field) == after.get(field));
            if !same {
                causes.push(Cause::forbidden(
                    "data",
                    "field is immutable when `immutable` is set",
                ));
            }
        }
        _ => {}
    }
    refuse(kind, before, causes)
}

fn check_stateful_set(before: &Value, after: &Value, causes: &mut Vec<Cause>) {
    let mutable = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let rest = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| !mutable.contains(&field.as_str()));
        }
        spec
    };
    if rest(before) != rest(after) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        causes.push(Cause::forbidden("spec", why));
    }
}

fn check_claim(before: &Value, after: &Value, causes: &mut Vec<Cause>) {
    let rest = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("resources");
            spec.remove("volumeAttributesClassName");
        }
        spec
    };
    let (mut old, new) = (rest(before), rest(after));
    // The binder may name the volume and the default class, once.
    for field in ["volumeName", "storageClassName"] {
        if old.get(field).is_none_or(|value| value == "")
            && let Some(value) = new.get(field)
        {
            old[field] = value.clone();
        }
    }
    if old != new {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_to_their_rules() {
        let long = "a".repeat(64);
        for (rule, good, bad) in [
            (
                NameRule::Subdomain,
                vec!["a", "a.b-c", long.as_str()],
                vec!["A", "-a", "a..b", "a_b", "é"],
            ),
            (NameRule::Label, vec!["1a"], vec!["a.b", long.as_str(), ""]),
            (NameRule::Service, vec!["a1"], vec!["1a", "a."]),
            (NameRule::PathSegment, vec!["system:node"], vec!["a/b", "..", "%"]),
        ] {
            for name in good {
                assert_eq!(name_problem(rule, name), None, "{name}");
            }
            for name in bad {
                assert!(name_problem(rule, name).is_some(), "{name}");
            }
        }
    }
}
