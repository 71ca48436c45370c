//! Freehold: a compute provider's control plane in one binary.
//!
//! Decide purely, act through ports, learn by message. `ARCHITECTURE.md` is the tour;
//! `tests/architecture.rs` holds the modules below to who may use whom.

pub mod actors;
pub mod adapters;
pub mod api;
pub mod app;
pub mod bus;
pub mod cli;
pub mod config;
pub mod domain;
pub mod ports;
pub mod sim;
pub mod store;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit this program was built from.
pub const REVISION: &str = env!("FREEHOLD_REVISION");
