//! The embedded world: a simulated Kubernetes cluster for newcomers, tests and demos.

pub mod api;
pub mod fleet;
pub mod journal;
pub mod objects;
pub mod world;
