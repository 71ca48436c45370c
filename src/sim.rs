//! The embedded world: a simulated Kubernetes cluster for newcomers, tests and demos.

pub mod api;
pub mod objects;
