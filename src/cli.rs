//! The command line: arguments in, results on stdout, everything else on stderr, and an exit status that means
//! something (INTERFACE §1).
//!
//! `arguments` is the whole tree of commands. Commands that ask a server live in a file each and go through
//! `connection`; what a running program is not needed for is in `local`.

use std::{ffi::OsString, process::ExitCode};

use clap::Parser as _;

pub mod arguments;

mod actors;
mod amounts;
mod config;
mod connection;
mod console;
mod debug;
mod failure;
mod follow;
mod inventory;
pub mod local;
mod offline;
mod status;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod token;
mod watch;

pub use console::Console;
pub use failure::{Exit, Failure};

use arguments::{Arguments, Command, Format};
use connection::Connection;

/// What the operating system hands to the program.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    /// The program's name and its arguments.
    pub arguments: Vec<OsString>,
    /// All environment variables.
    pub environment: Vec<(OsString, OsString)>,
}

/// Runs the program and returns its exit status.
pub fn run(invocation: Invocation, console: &mut Console<'_>) -> ExitCode {
    ExitCode::from(execute(invocation, console).status())
}

/// Runs the program.
pub fn execute(invocation: Invocation, console: &mut Console<'_>) -> Exit {
    let format = format_asked_for(&invocation.arguments);
    let arguments = match Arguments::try_parse_from(&invocation.arguments) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error, format, console),
    };
    let format = arguments.output;
    let setup = local::Setup {
        file: arguments.config.clone(),
        environment: invocation.environment,
        sets: arguments.sets.clone(),
    };
    match dispatch(arguments, &setup, console) {
        Ok(exit) => exit,
        Err(failure) if failure.is_closed_pipe() => Exit::Done,
        Err(failure) => {
            console.fail(&failure, format);
            failure.exit
        }
    }
}

fn dispatch(arguments: Arguments, setup: &local::Setup, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let Arguments {
        client,
        output,
        command,
        ..
    } = arguments;
    match command.unwrap_or(Command::Serve) {
        Command::Serve => local::serve(setup, console),
        Command::Config { action } => config::run(setup, action, output, console),
        Command::Embedded { action, listen } => local::embedded(setup, action, listen, console),
        Command::Store { action } => store::run(&action, &client, setup, output, console),
        Command::Status { watch } => ask(async {
            let connection = Connection::open(&client)?;
            status::run(&connection, watch, output, console).await
        }),
        Command::Inventory { part, watch } => ask(async {
            let connection = Connection::open(&client)?;
            inventory::run(&connection, part, watch, output, console).await
        }),
        Command::Actors { path, depth, watch } => ask(async {
            let connection = Connection::open(&client)?;
            actors::run(
                &connection,
                &actors::Asked { path, depth },
                watch,
                output,
                console,
            )
            .await
        }),
        Command::Watch { topics, after } => ask(async {
            let connection = Connection::open(&client)?;
            watch::run(&connection, topics, after, output, console).await
        }),
        Command::Token { action } => ask(async {
            let connection = Connection::open(&client)?;
            token::run(&connection, action, output, console).await
        }),
        Command::Debug { action } => ask(async {
            let connection = Connection::open(&client)?;
            debug::run(&connection, action, output, console).await
        }),
    }
}

/// Drives a client command. Ctrl-C and SIGTERM end it as if its work were done: the only way to end a watch.
fn ask(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the runtime could not be started: {error}")))?;
    runtime.block_on(async {
        tokio::select! {
            result = work => result,
            () = asked_to_stop() => Ok(Exit::Done),
        }
    })
}

async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        // Without handlers the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// `--help` and `--version` are results; everything else clap says is bad input.
fn usage(error: &clap::Error, format: Format, console: &mut Console<'_>) -> Exit {
    if error.use_stderr() {
        let failure = Failure::usage(error);
        console.fail(&failure, format);
        failure.exit
    } else {
        // A closed pipe (`freehold --help | head`) is no failure.
        let _ = console.print(&error.render().to_string());
        Exit::Done
    }
}

/// The format asked for, for errors in the arguments themselves.
fn format_asked_for(arguments: &[OsString]) -> Format {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let json = words.iter().enumerate().any(|(at, word)| match word.as_ref() {
        "-o" | "--output" => words.get(at + 1).is_some_and(|next| next == "json"),
        word => matches!(word, "-ojson" | "-o=json" | "--output=json"),
    });
    if json { Format::Json } else { Format::Table }
}
