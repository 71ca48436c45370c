//! The effective configuration, for people and machines.
//!
//! There is nothing to hide in it: secrets are in files of their own, and only their paths are configured.

use serde::Serialize;
use serde_json::Value;

use super::{Config, ConfigError, known};

/// How to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML that loads again.
    Yaml,
    /// JSON that loads again.
    Json,
}

/// One key, its effective value and where that was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The dotted path.
    pub key: String,
    /// The effective value.
    pub value: Value,
    /// Where it was written.
    pub origin: String,
}

impl Config {
    /// The effective configuration. What it prints loads again as the same configuration.
    pub fn show(&self, format: Format) -> Result<String, ConfigError> {
        match format {
            Format::Yaml => serde_saphyr::to_string(self).map_err(|error| unprintable(&error)),
            Format::Json => serde_json::to_string_pretty(self).map_err(|error| unprintable(&error)),
        }
    }

    /// Every key with its effective value and origin, in the order of the reference.
    pub fn settings(&self) -> Result<Vec<Setting>, ConfigError> {
        let whole = serde_json::to_value(self).map_err(|error| unprintable(&error))?;
        let settings = known::keys().into_iter().map(|(key, ..)| {
            let value = key
                .split('.')
                .try_fold(&whole, |value, segment| value.get(segment));
            Setting {
                value: value.cloned().unwrap_or(Value::Null),
                origin: self.origin_within(&key),
                key,
            }
        });
        Ok(settings.collect())
    }

    /// The effective configuration as YAML, with the origin of every key in a comment.
    pub fn show_with_origins(&self) -> Result<String, ConfigError> {
        let mut text = String::new();
        let mut open: Vec<String> = Vec::new();
        for setting in self.settings()? {
            let mut sections: Vec<String> = setting.key.split('.').map(str::to_owned).collect();
            let name = sections.pop().unwrap_or_default();
            let shared = open
                .iter()
                .zip(&sections)
                .take_while(|(one, other)| one == other)
                .count();
            for (depth, section) in sections.iter().enumerate().skip(shared) {
                text.push_str(&format!("{}{section}:\n", "  ".repeat(depth)));
            }
            let indent = "  ".repeat(sections.len());
            text.push_str(&format!(
                "{indent}{name}: {}  # {}\n",
                setting.value, setting.origin
            ));
            open = sections;
        }
        Ok(text)
    }

    /// The origin of a key, or, for a map with free keys, of everything in it.
    fn origin_within(&self, key: &str) -> String {
        if let Some(origin) = self.origin(key) {
            return origin.to_owned();
        }
        let below = format!("{key}.");
        let mut origins: Vec<&str> = self
            .origins
            .iter()
            .filter(|(path, _)| path.starts_with(&below))
            .map(|(_, origin)| origin.as_str())
            .collect();
        origins.sort_unstable();
        origins.dedup();
        if origins.is_empty() {
            super::DEFAULT_ORIGIN.to_owned()
        } else {
            origins.join("; ")
        }
    }
}

fn unprintable(error: &dyn std::error::Error) -> ConfigError {
    ConfigError::new(format!("the configuration cannot be written: {error}"))
}
