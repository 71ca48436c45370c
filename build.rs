//! Compiles `proto/` without a `protoc` binary and records the source revision.

use std::{error::Error, fs, path::PathBuf, process::Command};

use prost::Message as _;

const PROTOS: [&str; 7] = [
    "freehold/v1/error.proto",
    "freehold/v1/status.proto",
    "freehold/v1/event.proto",
    "freehold/v1/inventory.proto",
    "freehold/private/v1/access.proto",
    "freehold/private/v1/debug.proto",
    "freehold/private/v1/store.proto",
];

#[expect(
    clippy::disallowed_methods,
    reason = "OUT_DIR is how cargo speaks to a build script"
)]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .compile_fds(descriptors)?;

    println!("cargo::rerun-if-changed=.git/HEAD");
    println!("cargo::rerun-if-changed=.git/refs/heads");
    println!("cargo::rustc-env=FREEHOLD_REVISION={}", revision());
    Ok(())
}

/// The commit this is built from, or "unknown" outside a checkout.
fn revision() -> String {
    Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
