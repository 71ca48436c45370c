//! How lists and maps merge: one table of list keys for server-side apply and strategic merge patch.
//! What is not in it is, for a list, atomic, and for a map, merged field by field.

/// How a value at some place is merged and owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Replaced and owned as a whole.
    Atomic,
    /// A map, field by field. Scalars are leaves whatever the shape.
    Fields,
    /// A list of objects, told apart by these keys.
    Keyed(&'static [&'static str]),
    /// A list of scalars, each owned by itself.
    Set,
}

/// One line of the table: the end of a path of field names, list items left out.
struct Rule {
    path: &'static [&'static str],
    apply: Shape,
    /// The merge key of strategic merge patch, where lists merge at all.
    strategic: Option<&'static str>,
}

const fn keyed(
    path: &'static [&'static str],
    keys: &'static [&'static str],
    strategic: &'static str,
) -> Rule {
    Rule {
        path,
        apply: Shape::Keyed(keys),
        strategic: Some(strategic),
    }
}

const fn atomic(path: &'static [&'static str]) -> Rule {
    Rule {
        path,
        apply: Shape::Atomic,
        strategic: None,
    }
}

/// For built-in kinds. The first line that fits counts.
const RULES: &[Rule] = &[
    keyed(&["containers", "env"], &["name"], "name"),
    keyed(&["initContainers", "env"], &["name"], "name"),
    keyed(&["ephemeralContainers", "env"], &["name"], "name"),
    keyed(
        &["containers", "ports"],
        &["containerPort", "protocol"],
        "containerPort",
    ),
    keyed(
        &["initContainers", "ports"],
        &["containerPort", "protocol"],
        "containerPort",
    ),
    keyed(&["containers", "volumeMounts"], &["mountPath"], "mountPath"),
    keyed(&["initContainers", "volumeMounts"], &["mountPath"], "mountPath"),
    keyed(
        &["ephemeralContainers", "volumeMounts"],
        &["mountPath"],
        "mountPath",
    ),
    keyed(&["containers", "volumeDevices"], &["devicePath"], "devicePath"),
    keyed(
        &["initContainers", "volumeDevices"],
        &["devicePath"],
        "devicePath",
    ),
    keyed(&["resources", "claims"], &["name"], "name"),
    keyed(&["spec", "containers"], &["name"], "name"),
    keyed(&["spec", "initContainers"], &["name"], "name"),
    keyed(&["spec", "ephemeralContainers"], &["name"], "name"),
    keyed(&["spec", "volumes"], &["name"], "name"),
    keyed(&["spec", "imagePullSecrets"], &["name"], "name"),
    keyed(&["spec", "hostAliases"], &["ip"], "ip"),
    keyed(&["spec", "schedulingGates"], &["name"], "name"),
    keyed(&["spec", "resourceClaims"], &["name"], "name"),
    keyed(
        &["spec", "topologySpreadConstraints"],
        &["topologyKey", "whenUnsatisfiable"],
        "topologyKey",
    ),
    // Only a Service has ports right below spec.
    keyed(&["spec", "ports"], &["port", "protocol"], "port"),
    // Only a CSINode has drivers there.
    keyed(&["spec", "drivers"], &["name"], "name"),
    keyed(&["spec", "variables"], &["name"], "name"),
    keyed(&["status", "conditions"], &["type"], "type"),
    keyed(&["status", "addresses"], &["type"], "type"),
    keyed(&["status", "podIPs"], &["ip"], "ip"),
    keyed(&["secrets"], &["name"], "name"),
    keyed(&["metadata", "ownerReferences"], &["uid"], "uid"),
    Rule {
        path: &["metadata", "finalizers"],
        apply: Shape::Set,
        strategic: Some(""),
    },
    Rule {
        path: &["spec", "podCIDRs"],
        apply: Shape::Set,
        strategic: Some(""),
    },
    Rule {
        path: &["spec", "finalizers"],
        apply: Shape::Atomic,
        strategic: None,
    },
    // Maps that are owned as a whole.
    atomic(&["spec", "selector"]),
    atomic(&["spec", "nodeSelector"]),
    atomic(&["labelSelector"]),
    atomic(&["namespaceSelector"]),
    atomic(&["podSelector"]),
    atomic(&["objectSelector"]),
    atomic(&["nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]),
    atomic(&["nodeAffinity", "required"]),
    atomic(&["valueFrom", "configMapKeyRef"]),
    atomic(&["valueFrom", "secretKeyRef"]),
    atomic(&["valueFrom", "fieldRef"]),
    atomic(&["valueFrom", "resourceFieldRef"]),
    atomic(&["secretRef"]),
    atomic(&["roleRef"]),
    atomic(&["targetRef"]),
    atomic(&["involvedObject"]),
    atomic(&["regarding"]),
    atomic(&["related"]),
    atomic(&["dataSource"]),
];

/// For custom resources only what every object has: their own lists are atomic.
const COMMON: &[Rule] = &[
    keyed(&["metadata", "ownerReferences"], &["uid"], "uid"),
    Rule {
        path: &["metadata", "finalizers"],
        apply: Shape::Set,
        strategic: Some(""),
    },
];

fn rule(custom: bool, path: &[&str]) -> Option<&'static Rule> {
    let rules = if custom { COMMON } else { RULES };
    rules.iter().find(|rule| path.ends_with(rule.path))
}

/// How server-side apply merges and owns what is at a path.
#[must_use]
pub fn shape(custom: bool, path: &[&str], is_list: bool) -> Shape {
    match rule(custom, path) {
        Some(rule) if is_list || rule.apply == Shape::Atomic => rule.apply,
        Some(_) | None if is_list => Shape::Atomic,
        Some(_) | None => Shape::Fields,
    }
}

/// How strategic merge patch merges the list at a path: by a key, as a set (empty key), or not at all.
#[must_use]
pub fn merge_key(path: &[&str]) -> Option<&'static str> {
    rule(false, path)?.strategic
}

/// The value of a list key that was left out: the server's default for it.
#[must_use]
pub fn key_default(key: &str) -> Option<&'static str> {
    (key == "protocol").then_some("TCP")
}
