//! What the command line does without asking a server: run one, read the configuration, work on a store that
//! nobody has open, run the embedded cluster alone. Each function is one call into the part that knows how.

use std::{
    ffi::OsString,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use super::{
    Console,
    arguments::{ConfigAction, EmbeddedAction, Format},
    failure::{Exit, Failure},
};
use crate::{
    app::{
        self,
        serve::{PortsError, ServeError},
    },
    config::{self, Config, ConfigError, Sources},
    domain::store_report::{StoreReport, StoreVerification},
    store::{self, OpenError, SledStore, backup},
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

/// Why a store could not be worked on directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offline {
    /// A running program has it open: ask that one.
    InUse,
    /// It does not work at all.
    Failed(Failure),
}

/// `freehold serve`: until SIGTERM or Ctrl-C, which end it with `Exit::Done`.
pub fn serve(setup: &Setup, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let config = load(setup)?;
    let ended = app::serve::run(&config, |line| {
        // Serving goes on when nobody reads what it says.
        let _ = console.print(&format!("{line}\n"));
    });
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(serve_failure(&error)),
    }
}

fn serve_failure(error: &ServeError) -> Failure {
    match error {
        ServeError::Config(error) => config_failure(error),
        ServeError::Api(error) if error.is_configuration() => {
            Failure::new(Exit::BadInput, ConfigError::CODE, error.to_string())
        }
        ServeError::Ports(PortsError::Cluster(error)) => {
            Failure::new(Exit::BadInput, ConfigError::CODE, error.to_string()).field("cluster.kubeconfig")
        }
        ServeError::Ports(_)
        | ServeError::Api(_)
        | ServeError::Runtime(_)
        | ServeError::Lost { .. }
        | ServeError::Interrupted => Failure::failed(chain(error)),
    }
}

/// `freehold config check|show|reference`.
pub fn config(
    setup: &Setup,
    action: &ConfigAction,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    match action {
        ConfigAction::Check => {
            let config = load(setup)?;
            config.refuse_simulation_in_pod().map_err(|error| config_failure(&error))?;
            console.show(format, &config.layers(), |layers| {
                let mut text = String::from("the configuration is good\n");
                for layer in *layers {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "  {:>3} keys from {}", layer.keys, layer.layer);
                }
                text
            })?;
        }
        ConfigAction::Show => {
            let config = load(setup)?;
            let shown = match format {
                Format::Table => config.show_with_origins(),
                Format::Yaml => config.show(config::Format::Yaml),
                Format::Json => config.show(config::Format::Json),
            };
            console.print(&shown.map_err(|error| config_failure(&error))?)?;
        }
        ConfigAction::Reference => {
            console.show(format, &config::reference(), |_| config::plain_reference())?;
        }
    }
    Ok(Exit::Done)
}

/// `freehold embedded [--listen]`, `freehold embedded reset`.
pub fn embedded(
    setup: &Setup,
    action: Option<EmbeddedAction>,
    listen: Option<String>,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let mut setup = setup.clone();
    if let Some(listen) = listen {
        setup.sets.push(format!("embedded.listen={listen}"));
    }
    let config = load(&setup)?;
    if action == Some(EmbeddedAction::Reset) {
        let was_there = app::serve::reset_embedded(&config).map_err(|error| Failure::failed(chain(&error)))?;
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
    })
    .map_err(|error| serve_failure(&error))?;
    Ok(Exit::Done)
}

/// What is in the configured store.
pub fn store_info(setup: &Setup) -> Result<StoreReport, Offline> {
    let config = load(setup).map_err(Offline::Failed)?;
    Ok(app::report_of(store::info_of(&config.store.path).map_err(offline)?))
}

/// Reads and checks every record of the configured store.
pub fn verify_store(setup: &Setup) -> Result<StoreVerification, Offline> {
    let config = load(setup).map_err(Offline::Failed)?;
    let report = store::verify_directory(&config.store.path).map_err(offline)?;
    Ok(StoreVerification { records: report.records, problems: report.problems })
}

/// Writes a verified copy of the configured store; returns how many records are in it.
pub fn backup_store(setup: &Setup, file: &Path) -> Result<u64, Offline> {
    let failed = |error: &dyn std::error::Error| Offline::Failed(Failure::failed(chain(error)));
    with_store(setup, |opened| async move {
        let header = backup::write_backup(opened.backup_stream(), file).await.map_err(|error| failed(&error))?;
        Ok(header.records)
    })
}

/// Fills the configured store, which must be empty, from a backup.
pub fn restore_store(setup: &Setup, file: &Path) -> Result<(), Failure> {
    let config = load(setup)?;
    backup::restore(file, &config.store.path).map_err(|error| Failure::failed(chain(&error)))?;
    Ok(())
}

/// Makes the configured store forget which cluster it belongs to.
pub fn rebind_store(setup: &Setup) -> Result<(), Failure> {
    let rebound = with_store(setup, |opened| async move {
        let unbound = opened.unbind_cluster().await;
        unbound.map_err(|error| Offline::Failed(Failure::failed(error.to_string())))
    });
    match rebound {
        Ok(_) => Ok(()),
        Err(Offline::Failed(failure)) => Err(failure),
        Err(Offline::InUse) => {
            let message = "a running program has the store open";
            Err(Failure::new(Exit::Conflict, "in_use", message).hint("stop it, then rebind, then start it again"))
        }
    }
}

/// Reads a backup from end to end; returns how many records are in it.
pub fn verify_backup(file: &Path) -> Result<u64, Failure> {
    let header = backup::verify_backup(file).map_err(|error| Failure::failed(chain(&error)))?;
    Ok(header.records)
}

/// Opens the configured store, does something with it, and closes it in order.
fn with_store<T, F>(setup: &Setup, work: impl FnOnce(SledStore) -> F) -> Result<T, Offline>
where
    F: Future<Output = Result<T, Offline>>,
{
    let config = load(setup).map_err(Offline::Failed)?;
    let failed = |message: String| Offline::Failed(Failure::failed(message));
    // Opening makes a store where there is none; looking must not.
    store::info_of(&config.store.path).map_err(offline)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("the runtime could not be started: {error}")))?;
    runtime.block_on(async {
        let opened = SledStore::open(app::serve::offline_store_options(&config)).map_err(offline)?;
        let result = work(opened.store.clone()).await?;
        opened.store.close().await.map_err(|error| failed(error.to_string()))?;
        Ok(result)
    })
}

fn load(setup: &Setup) -> Result<Config, Failure> {
    let sources = Sources {
        file: setup.file.clone(),
        environment: setup.environment.clone(),
        sets: setup.sets.clone(),
    };
    Config::load(sources).map_err(|error| config_failure(&error))
}

fn config_failure(error: &ConfigError) -> Failure {
    let mut failure = Failure::new(Exit::BadInput, ConfigError::CODE, error.summary());
    failure.field = error.key.clone();
    failure.hint = error.hint.clone();
    failure
}

fn offline(error: OpenError) -> Offline {
    match error {
        OpenError::Locked { .. } => Offline::InUse,
        OpenError::NoStore { .. } => {
            Offline::Failed(Failure::new(Exit::NotFound, "not_found", error.to_string()))
        }
        error => Offline::Failed(Failure::failed(chain(&error))),
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
