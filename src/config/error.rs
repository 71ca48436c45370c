//! What is wrong with a configuration: which key, where it was written, why, and what to do.

use std::fmt;

/// One thing wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key, as a dotted path; absent when a source cannot be read at all.
    pub key: Option<String>,
    /// Where it was written: a file and line, an environment variable, a `--set`.
    pub origin: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// What the key takes, when it has a wrong value.
    pub expected: Option<String>,
}

impl ConfigError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            key: None,
            origin: None,
            message: one_line(message.into()),
            hint: None,
            expected: None,
        }
    }

    pub(super) fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(one_line(key.into()));
        self
    }

    pub(super) fn origin(mut self, origin: Option<impl Into<String>>) -> Self {
        self.origin = origin.map(|origin| one_line(origin.into()));
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl ConfigError {
    /// The code of every such error, for machines.
    pub const CODE: &str = "config_invalid";

    /// Key, message and origin, without the hint: for those who show the hint apart.
    #[must_use]
    pub fn summary(&self) -> String {
        let without_hint = Self {
            hint: None,
            ..self.clone()
        };
        without_hint.to_string()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.key {
            write!(formatter, "{key}: ")?;
        }
        formatter.write_str(&self.message)?;
        if let Some(origin) = &self.origin {
            write!(formatter, " ({origin})")?;
        }
        if let Some(hint) = &self.hint {
            write!(formatter, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Keys and file names come from outside too: no line breaks, nothing invisible, no end in sight.
fn one_line(text: String) -> String {
    const LONGEST: usize = 400;
    if text.len() <= LONGEST && !text.contains(char::is_control) {
        return text;
    }
    let mut line: String = text
        .chars()
        .take(LONGEST)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}

/// A piece of what somebody wrote, fit for one line of a message: quoted, escaped, cut.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() > LONGEST {
        let start: String = text.chars().take(LONGEST).collect();
        format!("{start:?}…")
    } else {
        format!("{text:?}")
    }
}
