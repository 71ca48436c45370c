//! What is exposed: gRPC, HTTP, and who may call what.

pub mod access;
mod connection;
pub mod errors;
mod gate;
pub mod limits;
pub mod proto;
pub mod provider;
pub mod tls;
pub mod wire;
