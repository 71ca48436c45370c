//! The reference of all keys: what each takes, its default and its effect.
//!
//! Nothing is written twice: keys, defaults and effects come from `config/default.yaml` and its comments, and what
//! a key takes is asked of the loader itself, by giving it something no key takes.

use config::{Map, Value, ValueKind};
use serde::Serialize;

use super::{Config, document::Content, known, layer::Layer};

/// One key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyReference {
    /// The dotted path.
    pub key: String,
    /// What it takes.
    pub takes: String,
    /// Its default, as it is written.
    pub default: String,
    /// What it does.
    pub effect: String,
}

/// Every key there is, in the order of `config/default.yaml`.
#[must_use]
pub fn reference() -> Vec<KeyReference> {
    let lines: Vec<&str> = known::DEFAULTS.lines().collect();
    known::keys()
        .into_iter()
        .map(|(key, line, default)| KeyReference {
            takes: what_it_takes(&key, default),
            default: written(&lines, line),
            effect: comment_above(&lines, line),
            key,
        })
        .collect()
}

/// The reference as Markdown: `docs/config.md`.
#[must_use]
pub fn markdown_reference() -> String {
    let mut text = String::from(
        "# Configuration\n\n\
         Made from `config/default.yaml` by `freehold config reference`; do not edit. A key is read from the compiled-in\n\
         defaults, then the file of `--config` (`FREEHOLD_CONFIG`), then the environment, then `--set`; the last one counts.\n\
         In the environment `__` parts sections and `_` stands for `-`: `api.grpc.listen` is `FREEHOLD__API__GRPC__LISTEN`.\n\
         Maps are merged key by key, lists are replaced. An unknown key is an error.\n",
    );
    let mut section = String::new();
    for entry in reference() {
        let own = entry.key.split_once('.').map_or("", |(section, _)| section);
        if section != own {
            text.push_str(&format!("\n## {own}\n"));
            section = own.to_owned();
        }
        text.push_str(&format!(
            "\n### `{}`\n\n{}\n\nDefault: `{}`. Takes {}.\n",
            entry.key, entry.effect, entry.default, entry.takes
        ));
    }
    text
}

/// The reference for a terminal.
#[must_use]
pub fn plain_reference() -> String {
    let entries = reference().into_iter().map(|entry| {
        format!(
            "{}: {}\n    takes {}\n    {}\n",
            entry.key, entry.default, entry.takes, entry.effect
        )
    });
    entries.collect::<Vec<_>>().join("\n")
}

/// Asks the loader: no key takes a list that holds nothing.
fn what_it_takes(key: &str, default: &Content) -> String {
    let nonsense = Value::new(None, ValueKind::Array(vec![Value::new(None, ValueKind::Nil)]));
    let value = key.rsplit('.').fold(nonsense, |value, segment| {
        Value::new(None, Map::from_iter([(segment.to_owned(), value)]))
    });
    let refusal = Layer::defaults().ok().and_then(|defaults| {
        let top = value.into_table().ok()?;
        let probe = config::Config::builder()
            .add_source(defaults)
            .add_source(Layer::probe(top));
        Config::from_value(&probe.build().ok()?.cache).err()
    });
    let expected = refusal.and_then(|error| error.expected).unwrap_or_default();
    match default {
        Content::List(_) => format!("a list, each item {expected}"),
        _ => expected,
    }
}

/// The default as the file has it.
fn written(lines: &[&str], line: u64) -> String {
    at(lines, line)
        .and_then(|text| text.split_once(": "))
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

/// The comment that stands right above a line, as one paragraph.
fn comment_above(lines: &[&str], line: u64) -> String {
    let mut words: Vec<&str> = (1..line)
        .rev()
        .map_while(|above| at(lines, above)?.trim().strip_prefix('#'))
        .map(str::trim)
        .collect();
    words.reverse();
    words.join(" ")
}

fn at<'a>(lines: &[&'a str], line: u64) -> Option<&'a str> {
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    lines.get(index).copied()
}
