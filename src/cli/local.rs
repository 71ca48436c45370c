//! Running the program itself, and the embedded cluster alone.

use std::{ffi::OsString, path::PathBuf};

use super::{
    Console,
    arguments::EmbeddedAction,
    failure::{Exit, Failure},
};
use crate::config::{Config, ConfigError, Sources};

/// Where the configuration comes from.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// All environment variables; the config picks its own.
    pub environment: Vec<(OsString, OsString)>,
    /// `--set`, in order, each with a `=`.
    pub sets: Vec<String>,
}

impl Setup {
    /// Reads the configuration.
    pub fn load(&self) -> Result<Config, Failure> {
        let sources = Sources {
            file: self.file.clone(),
            environment: self.environment.clone(),
            sets: self.sets.clone(),
        };
        Ok(Config::load(sources)?)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let origin = error
            .origin
            .map(|origin| format!(" ({origin})"))
            .unwrap_or_default();
        Self {
            exit: Exit::BadInput,
            code: ConfigError::CODE.to_owned(),
            message: format!("{}{origin}", error.message),
            field: error.key,
            hint: error.hint,
        }
    }
}

/// `freehold serve`: until SIGTERM or Ctrl-C, which end it with `Exit::Done`.
pub fn serve(setup: &Setup, _console: &mut Console<'_>) -> Result<Exit, Failure> {
    let config = setup.load()?;
    config.refuse_simulation_in_pod()?;
    Err(Failure::failed("`freehold serve` is not connected yet")) // wired by the integrator
}

/// `freehold embedded [--listen]` until it is told to stop; `freehold embedded reset`.
pub fn embedded(
    setup: &Setup,
    _action: Option<EmbeddedAction>,
    _listen: Option<String>,
    _console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let _config = setup.load()?;
    Err(Failure::failed("`freehold embedded` is not connected yet")) // wired by the integrator
}
