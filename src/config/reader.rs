//! Reads typed values out of the merged layers. Every refusal names the key, where it was written and what is expected.

use std::{
    cell::RefCell, collections::BTreeSet, fmt::Display, net::SocketAddr, ops::RangeInclusive, path::PathBuf,
    str::FromStr,
};

use config::{Map, Value, ValueKind};

use super::{
    error::{ConfigError, quoted},
    known,
};
use crate::domain::human::{HumanDecimal, HumanDuration, HumanSize};

pub(super) const ADDRESS: &str = "an address such as 127.0.0.1:7070";
pub(super) const DURATION: &str = "a duration such as 5s, 2m or 1.5h";
pub(super) const SIZE: &str = "a size such as 512Mi or 24Gi";

/// One table of the merged tree.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    path: String,
    table: &'a Map<String, Value>,
    origin: Option<&'a str>,
    /// What was asked for: the rest is unknown.
    seen: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: impl Into<String>, value: &'a Value) -> Result<Self, ConfigError> {
        let path = path.into();
        match &value.kind {
            ValueKind::Table(table) => Ok(Self {
                path,
                table,
                origin: value.origin(),
                seen: RefCell::default(),
            }),
            _ => Err(wrong(&path, value, "a map", None)),
        }
    }

    fn at(&self, key: &str) -> String {
        known::join(&self.path, key)
    }

    /// The value of a key that may be absent (inside lists; sections always have their defaults).
    fn find(&self, key: &'static str) -> Option<&'a Value> {
        self.seen.borrow_mut().insert(key);
        self.table.get(key)
    }

    fn get(&self, key: &'static str) -> Result<&'a Value, ConfigError> {
        self.find(key).ok_or_else(|| {
            ConfigError::new("this key must be given")
                .key(self.at(key))
                .origin(self.origin)
        })
    }

    pub(super) fn has(&self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    pub(super) fn section(&self, key: &'static str) -> Result<Self, ConfigError> {
        Reader::new(self.at(key), self.get(key)?)
    }

    /// Refuses keys that nobody asked for. Call it last, with what it made.
    pub(super) fn done<T>(self, made: T) -> Result<T, ConfigError> {
        let seen = self.seen.borrow();
        let unknown = self.table.iter().filter(|(key, _)| !seen.contains(key.as_str()));
        let Some((key, value)) = unknown.min_by_key(|(key, _)| *key) else {
            return Ok(made);
        };
        let near = seen
            .iter()
            .max_by(|one, other| strsim::jaro_winkler(one, key).total_cmp(&strsim::jaro_winkler(other, key)));
        let error = ConfigError::new("unknown key")
            .key(self.at(key))
            .origin(value.origin());
        Err(match near {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error,
        })
    }

    /// A text that `check` agrees to.
    pub(super) fn text_where<E: Display>(
        &self,
        key: &'static str,
        expected: &str,
        check: impl Fn(&str) -> Result<(), E>,
    ) -> Result<String, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        let text = as_text(&at, value, expected)?;
        check(text).map_err(|why| wrong(&at, value, expected, Some(why.to_string())))?;
        Ok(text.to_owned())
    }

    pub(super) fn path(&self, key: &'static str) -> Result<PathBuf, ConfigError> {
        match self.optional_path(key)? {
            Some(path) => Ok(path),
            None => Err(wrong(&self.at(key), self.get(key)?, "a path", None)),
        }
    }

    pub(super) fn optional_path(&self, key: &'static str) -> Result<Option<PathBuf>, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        let text = as_text(&at, value, "a path")?;
        if text.contains('\0') {
            return Err(wrong(&at, value, "a path", None));
        }
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    }

    pub(super) fn listen(&self, key: &'static str) -> Result<SocketAddr, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        parsed(&at, value, ADDRESS).map_err(names_are_not_looked_up)
    }

    /// An address, or "" for nowhere.
    pub(super) fn optional_listen(&self, key: &'static str) -> Result<Option<SocketAddr>, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        let expected = format!("{ADDRESS}, or \"\" for off");
        if as_text(&at, value, &expected)?.is_empty() {
            return Ok(None);
        }
        parsed(&at, value, &expected)
            .map(Some)
            .map_err(names_are_not_looked_up)
    }

    pub(super) fn flag(&self, key: &'static str) -> Result<bool, ConfigError> {
        let value = self.get(key)?;
        match value.kind {
            ValueKind::Boolean(flag) => Ok(flag),
            _ => Err(wrong(&self.at(key), value, "true or false", None)),
        }
    }

    pub(super) fn whole<T: TryFrom<i128> + Copy + Display + Into<i128>>(
        &self,
        key: &'static str,
        range: RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        let value = self.get(key)?;
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let number = match value.kind {
            ValueKind::I128(number) => Some(number),
            ValueKind::I64(number) => Some(number.into()),
            _ => None,
        };
        number
            .filter(|number| ((*range.start()).into()..=(*range.end()).into()).contains(number))
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| wrong(&self.at(key), value, &expected, None))
    }

    pub(super) fn decimal(
        &self,
        key: &'static str,
        expected: &str,
        accept: impl Fn(HumanDecimal) -> bool,
    ) -> Result<HumanDecimal, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        let text = match &value.kind {
            ValueKind::I128(number) => number.to_string(),
            ValueKind::Float(number) if number.is_finite() => number.to_string(),
            ValueKind::Float(_) => {
                return Err(wrong(&at, value, expected, Some("it is not finite".to_owned())));
            }
            _ => return Err(wrong(&at, value, expected, None)),
        };
        let number: HumanDecimal = text.parse().map_err(|why: <HumanDecimal as FromStr>::Err| {
            wrong(&at, value, expected, Some(why.to_string()))
        })?;
        if accept(number) {
            Ok(number)
        } else {
            Err(wrong(&at, value, expected, None))
        }
    }

    /// A duration of at least `least`.
    pub(super) fn duration(
        &self,
        key: &'static str,
        least: HumanDuration,
    ) -> Result<HumanDuration, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        let duration: HumanDuration = parsed(&at, value, DURATION)?;
        if duration < least {
            return Err(wrong(&at, value, &format!("{DURATION}, at least {least}"), None));
        }
        Ok(duration)
    }

    pub(super) fn size(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<HumanSize, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        let size: HumanSize = parsed(&at, value, SIZE)?;
        if range.contains(&size.bytes()) {
            return Ok(size);
        }
        let (least, most) = (HumanSize(*range.start()), HumanSize(*range.end()));
        Err(wrong(
            &at,
            value,
            &format!("{SIZE}, from {least} to {most}"),
            None,
        ))
    }

    pub(super) fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let expected = format!("one of {}", names.join(", "));
        let text = as_text(&at, value, &expected)?;
        choices
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, choice)| *choice)
            .ok_or_else(|| wrong(&at, value, &expected, None))
    }

    pub(super) fn list<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl Fn(&str, &'a Value) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let (at, value) = (self.at(key), self.get(key)?);
        let ValueKind::Array(items) = &value.kind else {
            return Err(wrong(&at, value, expected, None));
        };
        items
            .iter()
            .enumerate()
            .map(|(index, item)| read(&format!("{at}[{index}]"), item))
            .collect()
    }

    /// A map whose keys are free, in order.
    pub(super) fn entries(
        &self,
        key: &'static str,
        expected: &str,
    ) -> Result<Vec<(&'a str, &'a Value)>, ConfigError> {
        let value = self.get(key)?;
        let ValueKind::Table(table) = &value.kind else {
            return Err(wrong(&self.at(key), value, expected, None));
        };
        let mut entries: Vec<_> = table.iter().map(|(key, value)| (key.as_str(), value)).collect();
        entries.sort_by_key(|(key, _)| *key);
        Ok(entries)
    }
}

/// The text of a value that must be one.
pub(super) fn as_text<'a>(at: &str, value: &'a Value, expected: &str) -> Result<&'a str, ConfigError> {
    match &value.kind {
        ValueKind::String(text) => Ok(text),
        ValueKind::Boolean(_) | ValueKind::I128(_) | ValueKind::Float(_) => {
            Err(wrong(at, value, expected, None).hint("put it in quotes if it is meant as text"))
        }
        _ => Err(wrong(at, value, expected, None)),
    }
}

fn names_are_not_looked_up(error: ConfigError) -> ConfigError {
    error.hint("give an IP address and a port; 0.0.0.0 or [::] is every address of this machine")
}

/// A text or a plain number that `T` reads.
fn parsed<T: FromStr<Err: Display>>(at: &str, value: &Value, expected: &str) -> Result<T, ConfigError> {
    let text = match &value.kind {
        ValueKind::String(text) => text.clone(),
        ValueKind::I128(number) => number.to_string(),
        ValueKind::Float(number) => number.to_string(),
        _ => return Err(wrong(at, value, expected, None)),
    };
    text.parse()
        .map_err(|why: T::Err| wrong(at, value, expected, Some(why.to_string())))
}

/// The one form of "this value is wrong".
pub(super) fn wrong(at: &str, value: &Value, expected: &str, why: Option<String>) -> ConfigError {
    let found = match &value.kind {
        ValueKind::Nil => "nothing (null)".to_owned(),
        ValueKind::String(text) if text.is_empty() => "an empty text".to_owned(),
        ValueKind::String(text) => quoted(text),
        ValueKind::Array(_) => "a list".to_owned(),
        ValueKind::Table(_) => "a map".to_owned(),
        ValueKind::Float(number) => format!("{number:?}"),
        other => other.to_string(),
    };
    let mut error = ConfigError::new(match why {
        Some(why) => format!("expected {expected}, not {found}: {why}"),
        None => format!("expected {expected}, not {found}"),
    })
    .key(at)
    .origin(value.origin());
    error.expected = Some(expected.to_owned());
    error
}
