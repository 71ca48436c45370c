//! Arguments → config → app, and an exit code.

use std::{io, process::ExitCode};

use freehold::cli::{self, Console, Invocation};

fn main() -> ExitCode {
    // Not locked: a log line of another thread must be able to come between.
    let (mut out, mut err) = (io::stdout(), io::stderr());
    cli::run(
        Invocation {
            arguments: std::env::args_os().collect(),
            environment: std::env::vars_os().collect(),
        },
        &mut Console::new(&mut out, &mut err),
    )
}
