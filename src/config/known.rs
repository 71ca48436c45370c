//! The keys there are. `config/default.yaml` names every one, so it is the list.

use std::sync::LazyLock;

use super::{
    document::{self, Content, Entry, Node},
    error::ConfigError,
};

/// The compiled-in defaults, as text.
pub(super) const DEFAULTS: &str = include_str!("../../config/default.yaml");

static TREE: LazyLock<Node> = LazyLock::new(|| {
    document::parse(DEFAULTS)
        .expect("the compiled-in defaults are YAML: every test of this module reads them")
});

/// What stands at a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// A section with these keys.
    Section(&'static [Entry]),
    /// A key with this default.
    Value(&'static Content),
    /// Below a key whose own keys are free.
    Free,
    /// Nothing: no such key.
    Unknown,
}

/// The compiled-in defaults, as a tree.
pub(super) fn tree() -> &'static Node {
    &TREE
}

/// What stands at `path` (its segments).
pub(super) fn at(path: &[String]) -> Known {
    let mut here = &tree().content;
    for segment in path {
        match here {
            Content::Map(entries) if entries.is_empty() => return Known::Free,
            Content::Map(entries) => match entries.iter().find(|entry| entry.key == *segment) {
                Some(entry) => here = &entry.value.content,
                None => return Known::Unknown,
            },
            // Below a plain value: its reader says what it takes instead.
            _ => return Known::Value(here),
        }
    }
    match here {
        Content::Map(entries) if !entries.is_empty() => Known::Section(entries),
        other => Known::Value(other),
    }
}

/// Every key that holds a value, in the order of the file, with the line it stands on.
pub(super) fn keys() -> Vec<(String, u64, &'static Content)> {
    fn walk(prefix: &str, node: &'static Node, keys: &mut Vec<(String, u64, &'static Content)>) {
        let Content::Map(entries) = &node.content else {
            return;
        };
        for entry in entries {
            let path = join(prefix, &entry.key);
            match &entry.value.content {
                Content::Map(inner) if !inner.is_empty() => walk(&path, &entry.value, keys),
                content => keys.push((path, entry.line, content)),
            }
        }
    }
    let mut keys = Vec::new();
    walk("", tree(), &mut keys);
    keys
}

/// `prefix.key`, or `key` at the top.
pub(super) fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() {
        key.to_owned()
    } else {
        format!("{prefix}.{key}")
    }
}

/// The error for a key there is not.
pub(super) fn unknown(path: &str, origin: &str) -> ConfigError {
    let error = ConfigError::new("unknown key").key(path).origin(Some(origin));
    match nearest(path) {
        Some(known) => error.hint(format!("did you mean {known}?")),
        None => error,
    }
}

/// The known key most like `path`: spelt like it, or of the same name in another section.
fn nearest(path: &str) -> Option<String> {
    let path = path.to_lowercase().replace('_', "-");
    let name = path.rsplit('.').next().unwrap_or_default();
    let likeness = |known: &str| {
        let known_name = known.rsplit('.').next().unwrap_or_default();
        let whole = strsim::normalized_damerau_levenshtein(&path, known);
        let last = strsim::normalized_damerau_levenshtein(name, known_name);
        (whole.max(last * 0.9), whole)
    };
    keys()
        .into_iter()
        .map(|(known, ..)| (likeness(&known), known))
        .max_by(|((one, one_whole), _), ((other, other_whole), _)| {
            one.total_cmp(other).then(one_whole.total_cmp(other_whole))
        })
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_the_one_a_person_meant() {
        for (written, meant) in [
            ("api.grpc.listn", "api.grpc.listen"),
            ("cpu_commit_level", "cpu-commit-level"),
            ("cpu-comit-level", "cpu-commit-level"),
            ("key-file", "store.key-file"),
            ("min-free", "store.min-free"),
            ("cluster.type", "cluster.mode"),
            ("clustr.kind", "cluster.kind"),
            ("blocked-hostname", "blocked-hostnames"),
        ] {
            assert_eq!(nearest(written).as_deref(), Some(meant), "{written}");
        }
    }
}
