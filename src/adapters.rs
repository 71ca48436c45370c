//! Adapters translate the outside world into domain types, once, at the edge.

pub mod kubernetes;
