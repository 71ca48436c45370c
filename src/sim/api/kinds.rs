//! The kinds this API server knows: one table of built-in ones, and those that CustomResourceDefinitions
//! add at run time.

mod builtin;

use std::borrow::Cow;

use serde_json::Value;

use crate::sim::objects::{Objects, Resource};

pub use self::builtin::builtins;

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
