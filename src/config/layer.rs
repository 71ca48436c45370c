//! One layer of the configuration: where its keys come from, and a check that every one is known.

use std::{collections::BTreeMap, path::Path};

use config::{Map, Source, Value, ValueKind};

use super::{
    document::{self, Content, Entry, Node},
    error::{ConfigError, quoted},
    known::{self, Known},
};

/// What every variable of ours starts with.
pub(super) const PREFIX: &str = "FREEHOLD__";

/// What the origin of a default starts with.
pub(super) const DEFAULT_ORIGIN: &str = "compiled-in default";

/// Where the keys of a layer are written.
#[derive(Clone, Debug)]
enum Place {
    Defaults,
    File(String),
    Variable(String),
    Set(String),
}

impl Place {
    fn origin(&self, line: u64) -> String {
        match self {
            Self::Defaults => format!("{DEFAULT_ORIGIN}, line {line}"),
            Self::File(path) => format!("file {path}, line {line}"),
            Self::Variable(name) => format!("environment variable {name}"),
            Self::Set(key) => format!("--set {key}"),
        }
    }
}

/// A checked layer, ready to be merged.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    values: Map<String, Value>,
    /// Where each key and each entry of a map was written: merging forgets it for maps.
    origins: BTreeMap<String, String>,
    /// How many keys it sets.
    pub(super) keys: usize,
}

impl Layer {
    /// The compiled-in defaults.
    pub(super) fn defaults() -> Result<Self, ConfigError> {
        Self::checked(known::tree().clone(), &Place::Defaults)
    }

    /// A YAML file.
    pub(super) fn file(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = document::read(path)?;
        let node = document::parse(&text).map_err(|error| {
            let origin = match error.line {
                Some(line) => format!("file {name}, line {line}"),
                None => format!("file {name}"),
            };
            ConfigError::new(error.message).origin(Some(origin))
        })?;
        if !matches!(node.content, Content::Map(_)) {
            return Err(
                ConfigError::new("a config file is a map of keys to values, and this is not one")
                    .origin(Some(format!("file {name}, line {}", node.line))),
            );
        }
        Self::checked(node, &Place::File(name))
    }

    /// One environment variable whose name starts with [`PREFIX`].
    pub(super) fn variable(name: &str, value: &str) -> Result<Self, ConfigError> {
        let path: Vec<String> = name
            .strip_prefix(PREFIX)
            .unwrap_or(name)
            .split("__")
            .map(|segment| segment.to_lowercase().replace('_', "-"))
            .collect();
        Self::single(&path, value, &Place::Variable(name.to_owned()))
    }

    /// One `key=value`.
    pub(super) fn set(argument: &str) -> Result<Self, ConfigError> {
        let Some((key, value)) = argument.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
            return Err(
                ConfigError::new(format!("expected key=value, not {}", quoted(argument)))
                    .origin(Some("--set"))
                    .hint("for example --set embedded.nodes=100"),
            );
        };
        let key = key.trim();
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        Self::single(&path, value, &Place::Set(key.to_owned()))
    }

    /// A layer nobody checked, for asking what a key takes.
    pub(super) fn probe(values: Map<String, Value>) -> Self {
        Self {
            values,
            origins: BTreeMap::new(),
            keys: 0,
        }
    }

    /// A layer of a single key. Where a text is expected the value stands for itself, so that nobody has to quote
    /// twice; everywhere else it is YAML.
    fn single(path: &[String], written: &str, place: &Place) -> Result<Self, ConfigError> {
        let text_expected = match known::at(path) {
            Known::Value(Content::Text(_)) | Known::Free => true,
            Known::Value(_) | Known::Section(_) => false,
            Known::Unknown => return Err(known::unknown(&path.join("."), &place.origin(0))),
        };
        let is_quoted = written.starts_with(['"', '\'']);
        let content = if text_expected && !is_quoted {
            Content::Text(written.to_owned())
        } else if written.trim().is_empty() {
            Content::Null
        } else {
            let node = document::parse(written).map_err(|error| {
                ConfigError::new(error.message)
                    .key(path.join("."))
                    .origin(Some(place.origin(0)))
            })?;
            node.content
        };
        let node = path
            .iter()
            .rev()
            .fold(Node { line: 1, content }, |value, key| Node {
                line: 1,
                content: Content::Map(vec![Entry {
                    key: key.clone(),
                    line: 1,
                    value,
                }]),
            });
        Self::checked(node, place)
    }

    fn checked(node: Node, place: &Place) -> Result<Self, ConfigError> {
        let mut check = Check {
            place,
            path: Vec::new(),
            origins: BTreeMap::new(),
            keys: 0,
        };
        let values = match check.node(node)?.kind {
            ValueKind::Table(values) => values,
            _ => Map::new(),
        };
        Ok(Self {
            values,
            origins: check.origins,
            keys: check.keys,
        })
    }

    /// An error about a value of this layer, with its origin.
    pub(super) fn locate(&self, error: ConfigError) -> ConfigError {
        if error.origin.is_some() {
            return error;
        }
        let key = error.key.clone().unwrap_or_default();
        let within = |path: &str| {
            key.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let nearest = self.origins.iter().filter(|(path, _)| within(path));
        let origin = nearest
            .max_by_key(|(path, _)| path.len())
            .map(|(_, origin)| origin.clone());
        error.origin(origin)
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.values.clone())
    }
}

/// Turns a tree into values that remember where they were written, and stops at the first unknown key.
struct Check<'a> {
    place: &'a Place,
    path: Vec<String>,
    origins: BTreeMap<String, String>,
    keys: usize,
}

impl Check<'_> {
    fn node(&mut self, node: Node) -> Result<Value, ConfigError> {
        let Known::Section(known) = known::at(&self.path) else {
            self.keys += 1;
            let path = self.path.join(".");
            let node = if path == "provider.attributes" {
                attributes_as_map(node)
            } else {
                node
            };
            return Ok(self.value(&path, node));
        };
        let origin = self.place.origin(node.line);
        let Content::Map(entries) = node.content else {
            let names: Vec<&str> = known.iter().map(|entry| entry.key.as_str()).collect();
            return Err(ConfigError::new("this is a section: it takes keys, not a value")
                .key(self.path.join("."))
                .origin(Some(origin))
                .hint(format!(
                    "its keys are {}; leave it out to keep the defaults",
                    names.join(", ")
                )));
        };
        let mut table = Map::new();
        for entry in entries {
            self.path.push(entry.key.clone());
            if matches!(known::at(&self.path), Known::Unknown) {
                return Err(known::unknown(
                    &self.path.join("."),
                    &self.place.origin(entry.line),
                ));
            }
            let value = self.node(entry.value)?;
            table.insert(entry.key, value);
            self.path.pop();
        }
        Ok(Value::new(Some(&origin), table))
    }

    fn value(&mut self, path: &str, node: Node) -> Value {
        let origin = self.place.origin(node.line);
        let kind = match node.content {
            Content::Null => ValueKind::Nil,
            Content::Flag(flag) => ValueKind::Boolean(flag),
            Content::Whole(number) => ValueKind::I128(number),
            Content::Number(number) => ValueKind::Float(number),
            Content::Text(text) => ValueKind::String(text),
            Content::List(items) => {
                let items = items.into_iter().enumerate();
                ValueKind::Array(
                    items
                        .map(|(index, item)| self.value(&format!("{path}[{index}]"), item))
                        .collect(),
                )
            }
            Content::Map(entries) => ValueKind::Table(
                entries
                    .into_iter()
                    .map(|entry| {
                        let value = self.value(&known::join(path, &entry.key), entry.value);
                        (entry.key, value)
                    })
                    .collect(),
            ),
        };
        self.origins.insert(path.to_owned(), origin.clone());
        Value::new(Some(&origin), kind)
    }
}

/// `[{key: a, value: b}]` as `{a: b}`, so that both forms merge alike. Anything else is left for the reader to refuse.
fn attributes_as_map(node: Node) -> Node {
    let Content::List(items) = &node.content else {
        return node;
    };
    let mut map: Vec<Entry> = Vec::new();
    for item in items {
        let Content::Map(fields) = &item.content else {
            return node;
        };
        let field = |name: &str| fields.iter().find(|entry| entry.key == name);
        let (Some(key), Some(value), 2) = (field("key"), field("value"), fields.len()) else {
            return node;
        };
        let Content::Text(name) = &key.value.content else {
            return node;
        };
        if map.iter().any(|entry| entry.key == *name) {
            return node;
        }
        map.push(Entry {
            key: name.clone(),
            line: key.line,
            value: value.value.clone(),
        });
    }
    Node {
        line: node.line,
        content: Content::Map(map),
    }
}
