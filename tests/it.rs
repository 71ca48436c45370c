//! The program, or large parts of it: in one process on a paused clock, and as a process of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails panics, and processes live in real time"
)]

#[path = "it/kills.rs"]
mod kills;
#[path = "it/life.rs"]
mod life;
#[path = "it/process.rs"]
mod process;
#[path = "it/program.rs"]
mod program;
#[path = "it/refusals.rs"]
mod refusals;
#[path = "it/supervision.rs"]
mod supervision;
#[path = "it/watchers.rs"]
mod watchers;
#[path = "it/world.rs"]
mod world;
