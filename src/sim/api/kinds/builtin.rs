//! The table of built-in kinds: everything Freehold's leases need.

use std::{borrow::Cow, sync::OnceLock};

use super::{Kind, NameRule, Scale};
use crate::sim::objects::Resource;

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
