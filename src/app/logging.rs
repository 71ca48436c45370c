//! What the program says while it runs: pretty on a terminal, JSON otherwise, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::config::{LogConfig, LogFormat};

/// Starts logging. Called once; a second call changes nothing.
pub fn start(config: &LogConfig) {
    let filter = EnvFilter::new(&config.filter);
    let json = match config.format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let registry = tracing_subscriber::registry().with(filter);
    // An error means that somebody has set up logging before, which is as good.
    let _ = if json {
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr);
        registry.with(layer).try_init()
    } else {
        let color = std::io::stderr().is_terminal();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(color)
            .with_target(false)
            .with_writer(std::io::stderr);
        registry.with(layer).try_init()
    };
}
