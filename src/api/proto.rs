//! Generated from `proto/`; used in `api` and `cli` only.

/// The public interface.
pub mod v1 {
    #![expect(
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    tonic::include_proto!("freehold.v1");
}

/// The operators' interface.
pub mod private_v1 {
    #![expect(
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    tonic::include_proto!("freehold.private.v1");
}

/// The compiled descriptors, for reflection.
pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("descriptors");
