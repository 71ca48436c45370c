//! What a real API server fills in when a built-in object is created or changed, as far as anybody looks.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::kinds::Kind;
use crate::sim::objects::{metadata_text, timestamp};

/// Sets a field that is not there.
fn default(map: &mut Map<String, Value>, field: &str, value: impl FnOnce() -> Value) {
    if map.get(field).is_none_or(Value::is_null) {
        map.insert(field.to_owned(), value());
    }
}

fn object<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    value.get_mut(field).and_then(Value::as_object_mut)
}

fn ensure<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    default(map, field, || json!({}));
    map.get_mut(field).and_then(Value::as_object_mut)
}

/// Fills in defaults, on create and on every change.
pub fn fill(kind: &Kind, value: &mut Value) {
    if kind.custom {
        return;
    }
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "pods") => {
            if let Some(spec) = object(value, "spec") {
                pod_spec(spec);
                default(spec, "enableServiceLinks", || json!(true));
                default(spec, "preemptionPolicy", || json!("PreemptLowerPriority"));
                default(spec, "priority", || json!(0));
            }
        }
        ("", "services") => service(value),
        ("", "namespaces") => namespace(value),
        ("", "persistentvolumeclaims") => {
            if let Some(spec) = object(value, "spec") {
                default(spec, "volumeMode", || json!("Filesystem"));
            }
        }
        ("", "persistentvolumes") => {
            if let Some(spec) = object(value, "spec") {
                default(spec, "volumeMode", || json!("Filesystem"));
                default(spec, "persistentVolumeReclaimPolicy", || json!("Retain"));
            }
        }
        ("", "secrets") => {
            if let Some(map) = value.as_object_mut() {
                secret(map);
            }
        }
        ("apps", plural) => {
            if let Some(spec) = object(value, "spec") {
                workload(plural, spec);
            }
        }
        ("batch", "jobs") => {
            if let Some(spec) = object(value, "spec") {
                job_spec(spec);
            }
        }
        ("batch", "cronjobs") => cron_job(value),
        ("storage.k8s.io", "storageclasses") => {
            if let Some(map) = value.as_object_mut() {
                default(map, "reclaimPolicy", || json!("Delete"));
                default(map, "volumeBindingMode", || json!("Immediate"));
            }
        }
        ("networking.k8s.io", "networkpolicies") => network_policy(value),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding(value),
        _ => {}
    }
}

/// Sets what only a new object gets, whatever the client said: the status it starts with.
pub fn begin(kind: &Kind, value: &mut Value, now: Timestamp) {
    let Some(map) = value.as_object_mut() else { return };
    if kind.custom {
        if kind.status {
            map.remove("status");
        }
        return;
    }
    let status = match (kind.group.as_ref(), kind.plural.as_ref()) {
        // A kubelet registers its node with a status.
        ("", "nodes") | ("apiextensions.k8s.io", _) => return,
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "pods") => pod_status(map, now),
        ("", "persistentvolumes" | "persistentvolumeclaims") => json!({"phase": "Pending"}),
        ("", "services") => json!({"loadBalancer": {}}),
        ("networking.k8s.io", "ingresses") => json!({"loadBalancer": {}}),
        ("storage.k8s.io", "volumeattachments") => json!({"attached": false}),
        _ if kind.status => json!({}),
        _ => return,
    };
    map.insert("status".to_owned(), status);
}

fn pod_status(pod: &Map<String, Value>, now: Timestamp) -> Value {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mut status = json!({"phase": "Pending", "qosClass": quality_of_service(spec)});
    if is_gated(spec) {
        status["conditions"] = json!([gated_condition(now)]);
    }
    status
}

/// True when the pod must not be scheduled yet.
#[must_use]
pub fn is_gated(spec: &Value) -> bool {
    spec.get("schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|gates| !gates.is_empty())
}

fn gated_condition(now: Timestamp) -> Value {
    json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": null,
        "lastTransitionTime": timestamp(now),
    })
}

/// The pod's class by its requests and limits of cpu and memory.
fn quality_of_service(spec: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    let lists = ["containers", "initContainers"];
    let containers = lists
        .iter()
        .filter_map(|list| spec.get(list)?.as_array())
        .flatten();
    for container in containers {
        for resource in ["cpu", "memory"] {
            let amount = |which: &str| container.pointer(&format!("/resources/{which}/{resource}"));
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        (false, _) => "BestEffort",
    }
}

fn pod_spec(spec: &mut Map<String, Value>) {
    default(spec, "restartPolicy", || json!("Always"));
    default(spec, "terminationGracePeriodSeconds", || json!(30));
    default(spec, "dnsPolicy", || json!("ClusterFirst"));
    default(spec, "schedulerName", || json!("default-scheduler"));
    default(spec, "securityContext", || json!({}));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container_defaults(container);
        }
    }
}

fn container_defaults(container: &mut Map<String, Value>) {
    default(container, "terminationMessagePath", || {
        json!("/dev/termination-log")
    });
    default(container, "terminationMessagePolicy", || json!("File"));
    default(container, "resources", || json!({}));
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let is_latest = last.ends_with(":latest") || !(last.contains(':') || last.contains('@'));
    let pull = if is_latest { "Always" } else { "IfNotPresent" };
    default(container, "imagePullPolicy", || json!(pull));
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        default(port, "protocol", || json!("TCP"));
    }
    // A limit without a request is the request, too.
    let limits = container
        .get("resources")
        .and_then(|resources| resources.get("limits"));
    if let Some(limits) = limits.and_then(Value::as_object).cloned()
        && let Some(resources) = ensure(container, "resources")
        && let Some(requests) = ensure(resources, "requests")
    {
        for (resource, amount) in limits {
            default(requests, &resource, || amount);
        }
    }
}

/// What admission gives a new pod: the account it runs as and the tolerations every pod has.
pub fn admit_pod(pod: &mut Value) {
    let Some(spec) = object(pod, "spec") else { return };
    default(spec, "serviceAccountName", || json!("default"));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec.insert("serviceAccount".to_owned(), account);
    }
    default(spec, "tolerations", || json!([]));
    let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) else {
        return;
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = tolerations.iter().any(|toleration| {
            let effect = toleration
                .get("effect")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let fits_key = toleration.get("key").is_none_or(|own| own == key);
            fits_key && (effect.is_empty() || effect == "NoExecute")
        });
        if !covered {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

fn template(spec: &mut Map<String, Value>) {
    if let Some(spec) = spec
        .get_mut("template")
        .and_then(|template| template.get_mut("spec"))
        .and_then(Value::as_object_mut)
    {
        pod_spec(spec);
    }
}

fn workload(plural: &str, spec: &mut Map<String, Value>) {
    template(spec);
    if plural != "daemonsets" {
        default(spec, "replicas", || json!(1));
    }
    if plural != "replicasets" {
        default(spec, "revisionHistoryLimit", || json!(10));
    }
    match plural {
        "deployments" => {
            default(spec, "progressDeadlineSeconds", || json!(600));
            if let Some(strategy) = ensure(spec, "strategy") {
                default(strategy, "type", || json!("RollingUpdate"));
                if strategy.get("type") == Some(&json!("RollingUpdate"))
                    && let Some(rolling) = ensure(strategy, "rollingUpdate")
                {
                    default(rolling, "maxSurge", || json!("25%"));
                    default(rolling, "maxUnavailable", || json!("25%"));
                }
            }
        }
        "statefulsets" => {
            default(spec, "podManagementPolicy", || json!("OrderedReady"));
            default(spec, "serviceName", || json!(""));
            if let Some(strategy) = ensure(spec, "updateStrategy") {
                default(strategy, "type", || json!("RollingUpdate"));
                if strategy.get("type") == Some(&json!("RollingUpdate"))
                    && let Some(rolling) = ensure(strategy, "rollingUpdate")
                {
                    default(rolling, "partition", || json!(0));
                }
            }
            if let Some(policy) = ensure(spec, "persistentVolumeClaimRetentionPolicy") {
                default(policy, "whenDeleted", || json!("Retain"));
                default(policy, "whenScaled", || json!("Retain"));
            }
            let claims = spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
            for claim in claims.into_iter().flatten().filter_map(Value::as_object_mut) {
                default(claim, "apiVersion", || json!("v1"));
                default(claim, "kind", || json!("PersistentVolumeClaim"));
                default(claim, "status", || json!({"phase": "Pending"}));
                if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) {
                    default(spec, "volumeMode", || json!("Filesystem"));
                }
            }
        }
        "daemonsets" => {
            if let Some(strategy) = ensure(spec, "updateStrategy") {
                default(strategy, "type", || json!("RollingUpdate"));
                if strategy.get("type") == Some(&json!("RollingUpdate"))
                    && let Some(rolling) = ensure(strategy, "rollingUpdate")
                {
                    default(rolling, "maxSurge", || json!(0));
                    default(rolling, "maxUnavailable", || json!(1));
                }
            }
        }
        _ => {}
    }
}

fn job_spec(spec: &mut Map<String, Value>) {
    template(spec);
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        default(spec, "completions", || json!(1));
    }
    default(spec, "parallelism", || json!(1));
    default(spec, "backoffLimit", || json!(6));
    default(spec, "completionMode", || json!("NonIndexed"));
    default(spec, "suspend", || json!(false));
    default(spec, "manualSelector", || json!(false));
    default(spec, "podReplacementPolicy", || json!("TerminatingOrFailed"));
}

fn cron_job(value: &mut Value) {
    let Some(spec) = object(value, "spec") else { return };
    default(spec, "concurrencyPolicy", || json!("Allow"));
    default(spec, "suspend", || json!(false));
    default(spec, "successfulJobsHistoryLimit", || json!(3));
    default(spec, "failedJobsHistoryLimit", || json!(1));
    let template_of_pods = spec
        .get_mut("jobTemplate")
        .and_then(|job| job.get_mut("spec"))
        .and_then(Value::as_object_mut);
    if let Some(job) = template_of_pods {
        template(job);
    }
}

fn service(value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    let Some(spec) = ensure(map, "spec") else { return };
    default(spec, "type", || json!("ClusterIP"));
    default(spec, "sessionAffinity", || json!("None"));
    let kind = spec
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if kind != "ExternalName" {
        default(spec, "internalTrafficPolicy", || json!("Cluster"));
        default(spec, "ipFamilies", || json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", || json!("SingleStack"));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        default(spec, "externalTrafficPolicy", || json!("Cluster"));
    } else {
        spec.remove("externalTrafficPolicy");
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", || json!(true));
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        default(port, "protocol", || json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            default(port, "targetPort", || number);
        }
    }
}

fn namespace(value: &mut Value) {
    let name = metadata_text(value, "name").to_owned();
    let Some(map) = value.as_object_mut() else { return };
    if let Some(labels) = ensure(map, "metadata").and_then(|metadata| ensure(metadata, "labels"))
        && !name.is_empty()
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
    }
}

/// A new namespace stays until the namespace controller has emptied it.
pub fn admit_namespace(value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    if let Some(spec) = ensure(map, "spec") {
        spec.insert("finalizers".to_owned(), json!(["kubernetes"]));
    }
}

/// A new claim that names no class gets the default one; of several, the newest.
pub fn admit_claim<'a>(claim: &mut Value, classes: impl Iterator<Item = &'a Value>) {
    let Some(spec) = object(claim, "spec") else { return };
    if spec.contains_key("storageClassName") {
        return;
    }
    let is_default = |class: &&Value| {
        let annotations = class.pointer("/metadata/annotations");
        let mark = annotations.and_then(|all| all.get("storageclass.kubernetes.io/is-default-class"));
        mark.and_then(Value::as_str) == Some("true")
    };
    let newest = classes.filter(is_default).max_by(|a, b| {
        let made = |class: &Value| metadata_text(class, "creationTimestamp").to_owned();
        // Of the same age the first by name.
        let name = |class: &Value| std::cmp::Reverse(metadata_text(class, "name").to_owned());
        (made(a), name(a)).cmp(&(made(b), name(b)))
    });
    if let Some(class) = newest {
        spec.insert("storageClassName".to_owned(), json!(metadata_text(class, "name")));
    }
}

fn secret(map: &mut Map<String, Value>) {
    use base64::Engine as _;
    default(map, "type", || json!("Opaque"));
    let Some(Value::Object(texts)) = map.remove("stringData") else {
        return;
    };
    if let Some(data) = ensure(map, "data") {
        for (key, text) in texts {
            let bytes = text.as_str().unwrap_or_default().as_bytes();
            data.insert(
                key,
                json!(base64::engine::general_purpose::STANDARD.encode(bytes)),
            );
        }
    }
}

fn network_policy(value: &mut Value) {
    let Some(spec) = object(value, "spec") else { return };
    let types = if spec.contains_key("egress") {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    default(spec, "policyTypes", || types);
    default(spec, "podSelector", || json!({}));
}

fn binding(value: &mut Value) {
    if let Some(role) = object(value, "roleRef") {
        default(role, "apiGroup", || json!("rbac.authorization.k8s.io"));
    }
    let subjects = value.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten().filter_map(Value::as_object_mut) {
        let kind = subject.get("kind").and_then(Value::as_str);
        if matches!(kind, Some("User" | "Group")) {
            default(subject, "apiGroup", || json!("rbac.authorization.k8s.io"));
        }
    }
}
