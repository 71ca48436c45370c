//! Running the program itself, and the embedded cluster alone.

use std::{ffi::OsString, path::PathBuf};

use super::{
    Console,
    arguments::EmbeddedAction,
    failure::{Exit, Failure},
    offline::chain,
};
use crate::{
    app::{
        self,
        serve::{PortsError, ServeError},
    },
    config::{Config, ConfigError, Sources},
    sim::{embedded::EmbeddedError, journal::JournalError},
};

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
pub fn serve(setup: &Setup, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let config = setup.load()?;
    app::serve::run(&config, |line| {
        // Serving goes on when nobody reads what it says.
        let _ = console.print(&format!("{line}\n"));
    })?;
    Ok(Exit::Done)
}

/// `freehold embedded [--listen]` until it is told to stop; `freehold embedded reset`.
pub fn embedded(
    setup: &Setup,
    action: Option<EmbeddedAction>,
    listen: Option<String>,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let mut setup = setup.clone();
    setup
        .sets
        .extend(listen.map(|listen| format!("embedded.listen={listen}")));
    let config = setup.load()?;
    if action == Some(EmbeddedAction::Reset) {
        let was_there =
            app::serve::reset_embedded(&config).map_err(|error| ServeError::from(PortsError::from(error)))?;
        console.say(if was_there {
            "the embedded cluster forgot everything; the next start makes the sample fleet anew"
        } else {
            "there was nothing to forget"
        });
        return Ok(Exit::Done);
    }
    app::serve::run_embedded(&config, |line| {
        // Serving goes on when nobody reads what it says.
        let _ = console.print(&format!("{line}\n"));
    })?;
    Ok(Exit::Done)
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Config(error) => error.into(),
            ServeError::Api(error) if error.is_configuration() => {
                Self::new(Exit::BadInput, ConfigError::CODE, error.to_string())
            }
            ServeError::Ports(PortsError::Store(error)) => error.into(),
            ServeError::Ports(PortsError::Cluster(error)) => {
                Self::new(Exit::BadInput, ConfigError::CODE, error.to_string()).field("cluster.kubeconfig")
            }
            ServeError::Ports(PortsError::Embedded(EmbeddedError::Fleet(error))) => {
                Self::new(Exit::BadInput, ConfigError::CODE, chain(&error)).field("embedded.fleet")
            }
            ServeError::Ports(PortsError::Embedded(
                error @ EmbeddedError::Journal(JournalError::Locked { .. }),
            )) => Self::new(Exit::Conflict, "embedded_locked", chain(&error)),
            error @ (ServeError::Ports(_)
            | ServeError::Api(_)
            | ServeError::Runtime(_)
            | ServeError::Lost { .. }) => Self::failed(chain(&error)),
        }
    }
}
