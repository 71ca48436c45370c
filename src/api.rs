//! What is exposed: gRPC, HTTP, and who may call what.

pub mod errors;
pub mod proto;
pub mod provider;
pub mod wire;
