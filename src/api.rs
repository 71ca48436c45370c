//! What is exposed: gRPC, HTTP, and who may call what.

pub mod proto;
