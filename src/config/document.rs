//! A YAML document as a tree that knows the line of every key and value.
//!
//! Files come from people and from machines, so reading is bounded in size, depth, nodes and aliases.

use std::{fmt, fs::File, io::Read, path::Path};

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::{Spanned, options::NonFiniteFloatPolicy};

use super::error::{ConfigError, quoted};

/// More than any configuration needs, and little enough to read in an instant.
const LARGEST_FILE: u64 = 4 << 20;
const DEEPEST: usize = 16;

/// A value and the line it stands on.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: u64,
    pub(super) content: Content,
}

/// What YAML can say.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Null,
    Flag(bool),
    Whole(i128),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its line, and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: u64,
    pub(super) value: Node,
}

/// Why a text is not a document we read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) line: Option<u64>,
    pub(super) message: String,
}

/// The text of a file, or one clear error.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable =
        |message: String| ConfigError::new(message).origin(Some(format!("file {}", path.display())));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| {
        unreadable(format!("the config file cannot be opened: {error}")).hint("check --config")
    })?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(
            unreadable("the config file is a directory".to_owned()).hint("name the YAML file inside it")
        );
    }
    file.take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(format!("the config file cannot be read: {error}")))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LARGEST_FILE {
        return Err(unreadable(format!(
            "the config file is larger than {} MiB",
            LARGEST_FILE >> 20
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = error
            .as_bytes()
            .get(..error.utf8_error().valid_up_to())
            .unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::new("the config file is not UTF-8 text")
            .origin(Some(format!("file {}, line {line}", path.display())))
    })
}

/// Reads one document. An empty one is an empty map.
pub(super) fn parse(text: &str) -> Result<Node, Unreadable> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        // The reader of the key refuses them, and can say which key it was.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        budget: serde_saphyr::budget! { max_depth: DEEPEST, max_nodes: 100_000, max_documents: 2 },
    };
    let document: Option<Node> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map(|location| location.line());
        Unreadable {
            line: line.filter(|line| *line > 0),
            message: sentence(&error),
        }
    })?;
    Ok(document.unwrap_or(Node {
        line: 1,
        content: Content::Map(Vec::new()),
    }))
}

/// The library's message in our words, or on one line and without its "at line …", which the origin says.
fn sentence(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("key {} stands twice in the same map", quoted(key))
        }
        serde_saphyr::Error::MultipleDocuments { .. } => {
            "there is more than one YAML document (---), and only one is read".to_owned()
        }
        serde_saphyr::Error::Budget { .. } => {
            "it is too large, too deep or expands too far for a configuration".to_owned()
        }
        other => {
            let text = other.to_string();
            let first = text.lines().next().unwrap_or_default();
            let end = first.find(" at line ").unwrap_or(first.len());
            let message = first.get(..end).unwrap_or(first);
            format!(
                "it is not valid YAML: {}",
                message.trim_end_matches([':', ',', ' '])
            )
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            content: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyContent)
    }
}

struct AnyContent;

impl<'de> de::Visitor<'de> for AnyContent {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Content, E> {
        Ok(Content::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Content, E> {
        Ok(Content::Whole(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Content, E> {
        Ok(Content::Whole(number.into()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Content, E> {
        Ok(Content::Whole(number))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Content, E> {
        // No key takes a number near this, so the largest one stands for all above it.
        Ok(Content::Whole(i128::try_from(number).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Content, E> {
        Ok(Content::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            map.push(Entry {
                line: key.referenced.line(),
                key: key.value,
                value: entries.next_value()?,
            });
        }
        Ok(Content::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_know_their_lines() {
        let node = parse("# one\na:\n  b:\n    - 1\n    - x\n").unwrap();
        let Content::Map(top) = node.content else {
            panic!("a map")
        };
        assert_eq!((top[0].key.as_str(), top[0].line), ("a", 2));
        let Content::Map(inner) = &top[0].value.content else {
            panic!("a map")
        };
        let Content::List(items) = &inner[0].value.content else {
            panic!("a list")
        };
        assert_eq!((inner[0].line, items[0].line, items[1].line), (3, 4, 5));
    }

    #[test]
    fn nothing_at_all_is_an_empty_map() {
        for text in ["", "# only a comment\n", "---\n"] {
            assert!(
                matches!(parse(text).unwrap().content, Content::Map(map) if map.is_empty()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn hostile_documents_are_refused_on_one_line() {
        let bomb = {
            let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
            for level in 1..12 {
                let below = format!("*a{},", level - 1).repeat(9);
                text.push_str(&format!(
                    "a{level}: &a{level} [{}]\n",
                    below.trim_end_matches(',')
                ));
            }
            text
        };
        for (what, text) in [
            ("deep flow", "[".repeat(5000)),
            ("deep maps", "{a: ".repeat(400)),
            ("aliases", bomb),
            ("duplicate keys", "a: 1\na: 2\n".to_owned()),
            ("two documents", "a: 1\n---\na: 2\n".to_owned()),
            ("a tab", "a:\n\tb: 1\n".to_owned()),
            ("an open quote", "a: \"b\n".to_owned()),
            ("an unknown alias", "a: *b\n".to_owned()),
            ("a tag", "a: !custom 5\n".to_owned()),
        ] {
            let error = parse(&text).expect_err(what);
            assert!(
                !error.message.is_empty() && !error.message.contains('\n'),
                "{what}: {error:?}"
            );
        }
    }
}
