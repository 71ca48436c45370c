//! Arguments → config → app, and an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold::cli::run(std::env::args_os())
}
