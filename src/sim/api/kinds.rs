//! The kinds this API server knows: one table of built-in ones, and those that CustomResourceDefinitions
//! add at run time.

use std::{borrow::Cow, sync::OnceLock};

use serde_json::Value;

use crate::sim::objects::{Objects, Resource};

/// Where CustomResourceDefinitions are stored.
pub const DEFINITIONS: Resource = Resource::new("apiextensions.k8s.io", "customresourcedefinitions");

/// A kind in one version, and how it is served.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version.
    pub version: Cow<'static, str>,
    /// As in paths.
    pub plural: Cow<'static, str>,
    /// As in objects.
    pub kind: Cow<'static, str>,
    /// Short names for kubectl.
    pub short: Vec<Cow<'static, str>>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether `status` is a subresource of its own.
    pub status: bool,
    /// Where `scale` reads and writes.
    pub scale: Option<Scale>,
    /// Other subresources, for discovery: name and kind.
    pub subresources: Vec<(&'static str, &'static str)>,
    /// The rule for names.
    pub names: NameRule,
    /// Where objects are stored, whatever the version.
    pub storage: Resource,
    /// True for kinds from a CustomResourceDefinition.
    pub custom: bool,
    /// Fields beside name and namespace that can be selected: name and JSON pointer.
    pub fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// Whether it can only be created, never read: reviews.
    pub create_only: bool,
}

/// Where a scale's numbers are, as JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Wanted replicas.
    pub spec: Cow<'static, str>,
    /// Present replicas.
    pub status: Cow<'static, str>,
    /// The label selector, as an object or a string.
    pub selector: Option<Cow<'static, str>>,
}

/// What a name may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, up to 253 characters: most kinds.
    Subdomain,
    /// RFC 1123 label, up to 63 characters: namespaces.
    Label,
    /// RFC 1035 label: services.
    Service,
    /// Anything that can stand in a path: RBAC.
    PathSegment,
}

impl Kind {
    /// `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The resource as messages name it.
    #[must_use]
    pub fn resource(&self) -> Resource {
        Resource {
            group: self.group.clone(),
            plural: self.plural.clone(),
        }
    }

    /// The singular for kubectl.
    #[must_use]
    pub fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// True when this is the kind of that group and plural.
    #[must_use]
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

const fn text(value: &'static str) -> Cow<'static, str> {
    Cow::Borrowed(value)
}

fn builtin(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
) -> Kind {
    Kind {
        group: text(group),
        version: text("v1"),
        plural: text(plural),
        kind: text(kind),
        short: short.iter().copied().map(text).collect(),
        namespaced,
        status: false,
        scale: None,
        subresources: Vec::new(),
        names: NameRule::Subdomain,
        storage: Resource::new(group, plural),
        custom: false,
        fields: Vec::new(),
        create_only: false,
    }
}

impl Kind {
    fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    fn with_scale(mut self) -> Self {
        self.scale = Some(Scale {
            spec: text("/spec/replicas"),
            status: text("/status/replicas"),
            selector: Some(text("/spec/selector")),
        });
        self
    }

    fn with_subresources(mut self, subresources: &[(&'static str, &'static str)]) -> Self {
        self.subresources = subresources.to_vec();
        self
    }

    fn with_names(mut self, rule: NameRule) -> Self {
        self.names = rule;
        self
    }

    fn with_fields(mut self, fields: &[(&'static str, &'static str)]) -> Self {
        self.fields = fields
            .iter()
            .map(|(name, pointer)| (text(name), text(pointer)))
            .collect();
        self
    }

    fn created_only(mut self) -> Self {
        self.create_only = true;
        self
    }

    fn stored_as(mut self, resource: Resource) -> Self {
        self.storage = resource;
        self
    }
}

const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject.kind", "/involvedObject/kind"),
    ("involvedObject.namespace", "/involvedObject/namespace"),
    ("involvedObject.name", "/involvedObject/name"),
    ("involvedObject.uid", "/involvedObject/uid"),
    ("involvedObject.apiVersion", "/involvedObject/apiVersion"),
    (
        "involvedObject.resourceVersion",
        "/involvedObject/resourceVersion",
    ),
    ("involvedObject.fieldPath", "/involvedObject/fieldPath"),
    ("reason", "/reason"),
    ("reportingComponent", "/reportingComponent"),
    ("source", "/source/component"),
    ("type", "/type"),
];

const POD_FIELDS: &[(&str, &str)] = &[
    ("spec.nodeName", "/spec/nodeName"),
    ("spec.restartPolicy", "/spec/restartPolicy"),
    ("spec.schedulerName", "/spec/schedulerName"),
    ("spec.serviceAccountName", "/spec/serviceAccountName"),
    ("spec.hostNetwork", "/spec/hostNetwork"),
    ("status.phase", "/status/phase"),
    ("status.podIP", "/status/podIP"),
    ("status.nominatedNodeName", "/status/nominatedNodeName"),
];

fn core_kinds() -> Vec<Kind> {
    vec![
        builtin("", "configmaps", "ConfigMap", true, &["cm"]),
        builtin("", "endpoints", "Endpoints", true, &["ep"]),
        builtin("", "events", "Event", true, &["ev"]).with_fields(EVENT_FIELDS),
        builtin("", "limitranges", "LimitRange", true, &["limits"]),
        builtin("", "namespaces", "Namespace", false, &["ns"])
            .with_status()
            .with_names(NameRule::Label)
            .with_subresources(&[("finalize", "Namespace")])
            .with_fields(&[("status.phase", "/status/phase")]),
        builtin("", "nodes", "Node", false, &["no"])
            .with_status()
            .with_fields(&[("spec.unschedulable", "/spec/unschedulable")]),
        builtin(
            "",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            true,
            &["pvc"],
        )
        .with_status(),
        builtin("", "persistentvolumes", "PersistentVolume", false, &["pv"]).with_status(),
        builtin("", "pods", "Pod", true, &["po"])
            .with_status()
            .with_subresources(&[
                ("attach", "PodAttachOptions"),
                ("binding", "Binding"),
                ("eviction", "Eviction"),
                ("exec", "PodExecOptions"),
                ("log", "Pod"),
            ])
            .with_fields(POD_FIELDS),
        builtin("", "resourcequotas", "ResourceQuota", true, &["quota"]).with_status(),
        builtin("", "secrets", "Secret", true, &[]).with_fields(&[("type", "/type")]),
        builtin("", "serviceaccounts", "ServiceAccount", true, &["sa"])
            .with_subresources(&[("token", "TokenRequest")]),
        builtin("", "services", "Service", true, &["svc"])
            .with_status()
            .with_names(NameRule::Service)
            .with_fields(&[("spec.clusterIP", "/spec/clusterIP"), ("spec.type", "/spec/type")]),
    ]
}

fn workload_kinds() -> Vec<Kind> {
    vec![
        builtin("apps", "daemonsets", "DaemonSet", true, &["ds"]).with_status(),
        builtin("apps", "deployments", "Deployment", true, &["deploy"])
            .with_status()
            .with_scale(),
        builtin("apps", "replicasets", "ReplicaSet", true, &["rs"])
            .with_status()
            .with_scale()
            .with_fields(&[("status.replicas", "/status/replicas")]),
        builtin("apps", "statefulsets", "StatefulSet", true, &["sts"])
            .with_status()
            .with_scale(),
        builtin("batch", "cronjobs", "CronJob", true, &["cj"]).with_status(),
        builtin("batch", "jobs", "Job", true, &[])
            .with_status()
            .with_fields(&[("status.successful", "/status/succeeded")]),
        builtin(
            "policy",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            true,
            &["pdb"],
        )
        .with_status(),
        builtin(
            "scheduling.k8s.io",
            "priorityclasses",
            "PriorityClass",
            false,
            &["pc"],
        ),
        builtin("node.k8s.io", "runtimeclasses", "RuntimeClass", false, &[]),
    ]
}

fn network_kinds() -> Vec<Kind> {
    let net = "networking.k8s.io";
    vec![
        builtin("discovery.k8s.io", "endpointslices", "EndpointSlice", true, &[]),
        builtin(net, "ingressclasses", "IngressClass", false, &[]),
        builtin(net, "ingresses", "Ingress", true, &["ing"]).with_status(),
        builtin(net, "ipaddresses", "IPAddress", false, &["ip"]),
        builtin(net, "networkpolicies", "NetworkPolicy", true, &["netpol"]),
        builtin(net, "servicecidrs", "ServiceCIDR", false, &[]).with_status(),
    ]
}

fn storage_kinds() -> Vec<Kind> {
    let storage = "storage.k8s.io";
    vec![
        builtin(storage, "csidrivers", "CSIDriver", false, &[]),
        builtin(storage, "csinodes", "CSINode", false, &[]),
        builtin(storage, "csistoragecapacities", "CSIStorageCapacity", true, &[]),
        builtin(storage, "storageclasses", "StorageClass", false, &["sc"]),
        builtin(storage, "volumeattachments", "VolumeAttachment", false, &[]).with_status(),
    ]
}

fn governing_kinds() -> Vec<Kind> {
    let rbac = "rbac.authorization.k8s.io";
    let admission = "admissionregistration.k8s.io";
    let authentication = "authentication.k8s.io";
    let authorization = "authorization.k8s.io";
    let rbac_kind = |plural, kind, namespaced| {
        builtin(rbac, plural, kind, namespaced, &[]).with_names(NameRule::PathSegment)
    };
    vec![
        rbac_kind("clusterrolebindings", "ClusterRoleBinding", false),
        rbac_kind("clusterroles", "ClusterRole", false),
        rbac_kind("rolebindings", "RoleBinding", true),
        rbac_kind("roles", "Role", true),
        builtin("coordination.k8s.io", "leases", "Lease", true, &[]),
        builtin("events.k8s.io", "events", "Event", true, &["ev"])
            .with_fields(&[
                ("reason", "/reason"),
                ("reportingController", "/reportingComponent"),
                ("regarding.kind", "/involvedObject/kind"),
                ("regarding.namespace", "/involvedObject/namespace"),
                ("regarding.name", "/involvedObject/name"),
                ("regarding.uid", "/involvedObject/uid"),
                ("type", "/type"),
            ])
            .stored_as(Resource::new("", "events")),
        builtin(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            false,
            &["crd", "crds"],
        )
        .with_status(),
        builtin(
            admission,
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            false,
            &[],
        )
        .with_status(),
        builtin(
            admission,
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            false,
            &[],
        ),
        builtin(
            authentication,
            "selfsubjectreviews",
            "SelfSubjectReview",
            false,
            &[],
        )
        .created_only(),
        builtin(authentication, "tokenreviews", "TokenReview", false, &[]).created_only(),
        builtin(
            authorization,
            "localsubjectaccessreviews",
            "LocalSubjectAccessReview",
            true,
            &[],
        )
        .created_only(),
        builtin(
            authorization,
            "selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            false,
            &[],
        )
        .created_only(),
        builtin(
            authorization,
            "selfsubjectrulesreviews",
            "SelfSubjectRulesReview",
            false,
            &[],
        )
        .created_only(),
        builtin(
            authorization,
            "subjectaccessreviews",
            "SubjectAccessReview",
            false,
            &[],
        )
        .created_only(),
    ]
}

/// Every built-in kind, in the order of discovery.
pub fn builtins() -> &'static [Kind] {
    static TABLE: OnceLock<Vec<Kind>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut kinds = core_kinds();
        kinds.extend(workload_kinds());
        kinds.extend(network_kinds());
        kinds.extend(storage_kinds());
        kinds.extend(governing_kinds());
        kinds
    })
}

/// The kind behind a path.
#[must_use]
pub fn find(objects: &Objects, group: &str, version: &str, plural: &str) -> Option<Kind> {
    let known = builtins().iter().find(|kind| kind.is(group, plural));
    if let Some(kind) = known {
        return (kind.version == version).then(|| kind.clone());
    }
    let definition = objects.get(&DEFINITIONS, "", &format!("{plural}.{group}"))?;
    served_versions(&definition)
        .into_iter()
        .find(|kind| kind.version == version)
}

/// Every kind that is served now: built-in ones, then custom ones by group.
#[must_use]
pub fn all(objects: &Objects) -> Vec<Kind> {
    let mut kinds = builtins().to_vec();
    for definition in objects.list(&DEFINITIONS, None).items {
        kinds.extend(served_versions(&definition));
    }
    kinds
}

/// The kinds a CustomResourceDefinition serves, one per version, the preferred one first.
#[must_use]
pub fn served_versions(definition: &Value) -> Vec<Kind> {
    let field = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
    let (Some(group), Some(plural), Some(kind)) = (
        field("/spec/group"),
        field("/spec/names/plural"),
        field("/spec/names/kind"),
    ) else {
        return Vec::new();
    };
    let namespaced = field("/spec/scope") == Some("Namespaced");
    let short = definition
        .pointer("/spec/names/shortNames")
        .and_then(Value::as_array);
    let short: Vec<Cow<'static, str>> = short
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|name| Cow::Owned(name.to_owned()))
        .collect();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let mut kinds: Vec<Kind> = versions
        .into_iter()
        .flatten()
        .filter(|version| version.get("served").and_then(Value::as_bool).unwrap_or(false))
        .filter_map(|version| {
            Some(Kind {
                group: Cow::Owned(group.to_owned()),
                version: Cow::Owned(version.get("name")?.as_str()?.to_owned()),
                plural: Cow::Owned(plural.to_owned()),
                kind: Cow::Owned(kind.to_owned()),
                short: short.clone(),
                namespaced,
                status: version.pointer("/subresources/status").is_some(),
                scale: custom_scale(version),
                subresources: Vec::new(),
                names: NameRule::Subdomain,
                storage: Resource::named(group, plural),
                custom: true,
                fields: selectable_fields(version),
                create_only: false,
            })
        })
        .collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(version_priority(&kind.version)));
    kinds
}

fn selectable_fields(version: &Value) -> Vec<(Cow<'static, str>, Cow<'static, str>)> {
    let fields = version.get("selectableFields").and_then(Value::as_array);
    fields
        .into_iter()
        .flatten()
        .filter_map(|field| field.get("jsonPath")?.as_str())
        .map(|path| {
            let name = path.trim_start_matches('.').to_owned();
            (Cow::Owned(name), Cow::Owned(path.replace('.', "/")))
        })
        .collect()
}

fn custom_scale(version: &Value) -> Option<Scale> {
    let scale = version.pointer("/subresources/scale")?;
    let pointer = |field: &str| {
        let path = scale.get(field)?.as_str()?;
        Some(Cow::Owned(path.replace('.', "/")))
    };
    Some(Scale {
        spec: pointer("specReplicasPath")?,
        status: pointer("statusReplicasPath")?,
        selector: pointer("labelSelectorPath"),
    })
}

/// Orders versions as Kubernetes does: stable over beta over alpha, then by number.
fn version_priority(version: &str) -> (u8, u32, u32, std::cmp::Reverse<String>) {
    let unknown = (0, 0, 0, std::cmp::Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else {
        return unknown;
    };
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    let (major, stage) = rest.split_at_checked(digits).unwrap_or((rest, ""));
    let Ok(major) = major.parse::<u32>() else {
        return unknown;
    };
    let last = std::cmp::Reverse(String::new());
    if stage.is_empty() {
        return (3, major, 0, last);
    }
    for (name, rank) in [("beta", 2), ("alpha", 1)] {
        if let Some(Ok(minor)) = stage.strip_prefix(name).map(str::parse::<u32>) {
            return (rank, major, minor, last);
        }
    }
    unknown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_serves_its_versions_with_the_most_stable_first() {
        let version = |name: &str, served: bool| json!({"name": name, "served": served, "subresources": {"status": {}}});
        let definition = json!({"spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1alpha1", true), version("v1", true), version("v2beta2", true), version("v0", false)]}});
        let versions: Vec<String> = served_versions(&definition)
            .iter()
            .map(|kind| kind.version.to_string())
            .collect();
        assert_eq!(versions, ["v1", "v2beta2", "v1alpha1"]);
        assert!(served_versions(&definition)[0].status);
    }

    #[test]
    fn no_built_in_kind_is_listed_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for kind in builtins() {
            assert!(seen.insert((&kind.group, &kind.plural)), "{} twice", kind.plural);
        }
    }
}
