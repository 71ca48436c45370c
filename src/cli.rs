//! cli

/// Runs the program.
pub fn run(_arguments: std::env::ArgsOs) -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
