//! The program, or large parts of it, in one process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails panics")]

#[path = "it/supervision.rs"]
mod supervision;
#[path = "it/world.rs"]
mod world;
