//! What can go wrong on the command line, and the exit status it has.

use std::io;

use tonic::{Code, Status};

use super::arguments::Format;
use crate::api::{
    errors::{ErrorBody, ErrorDocument},
    wire::WireError,
};

/// How a command ended (INTERFACE §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or yes.
    Done,
    /// It failed.
    Failed,
    /// The input or the configuration is wrong.
    BadInput,
    /// The answer is no.
    No,
    /// There is no such thing.
    NotFound,
    /// It collides with what is there.
    Conflict,
    /// The server cannot be reached, or is not ready.
    Unreachable,
    /// `--wait` ran out.
    WaitRanOut,
}

impl Exit {
    /// The number.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::BadInput => 2,
            Self::No => 3,
            Self::NotFound => 4,
            Self::Conflict => 5,
            Self::Unreachable => 6,
            Self::WaitRanOut => 7,
        }
    }
}

/// Why a command failed, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status.
    pub exit: Exit,
    /// For programs.
    pub code: String,
    /// What happened.
    pub message: String,
    /// The flag, key or field it is about.
    pub field: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

/// The code of a failure that is not one: whoever reads our output has gone.
const CLOSED_PIPE: &str = "closed_pipe";

impl Failure {
    /// A failure of a kind.
    #[must_use]
    pub fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.to_owned(),
            message: message.into(),
            field: None,
            hint: None,
        }
    }

    /// It failed.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, "failed", message)
    }

    /// A flag or a file makes no sense.
    #[must_use]
    pub fn bad_input(field: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::BadInput, "invalid", message).field(field)
    }

    /// The server cannot be reached.
    #[must_use]
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Exit::Unreachable, "unreachable", message)
    }

    /// Says what it is about.
    #[must_use]
    pub fn field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whether it only means that nobody reads our output any more.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        self.code == CLOSED_PIPE
    }

    pub(super) fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let text = text.trim_end();
        let text = text.strip_prefix("error: ").unwrap_or(text);
        Self::new(Exit::BadInput, "usage", text)
    }

    /// As it goes to stderr, with its line end.
    #[must_use]
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Json => {
                let document = ErrorDocument {
                    error: ErrorBody {
                        code: self.code.clone(),
                        message: self.message.clone(),
                        field: self.field.clone(),
                        hint: self.hint.clone(),
                    },
                };
                let text = serde_json::to_string(&document).unwrap_or_else(|_| self.message.clone());
                format!("{text}\n")
            }
            Format::Table | Format::Yaml => {
                let field = self
                    .field
                    .as_ref()
                    .map(|field| format!("{field}: "))
                    .unwrap_or_default();
                let hint = self
                    .hint
                    .as_ref()
                    .map(|hint| format!("hint: {hint}\n"))
                    .unwrap_or_default();
                format!("error: {field}{}\n{hint}", self.message)
            }
        }
    }
}

impl From<io::Error> for Failure {
    /// Of writing results: files name themselves in a message of their own.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Done, CLOSED_PIPE, "nobody reads the output");
        }
        Self::failed(format!("the output could not be written: {error}"))
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::new(
            Exit::Failed,
            "malformed_answer",
            format!("the server's answer makes no sense: {error}"),
        )
        .hint("is the server of the same release as this program? compare `freehold --version` with `freehold status`")
    }
}

/// The failure an answer of the server stands for.
impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let ErrorDocument { error } = ErrorDocument::from_status(&status);
        let message = if error.message.is_empty() {
            format!(
                "the server answered {}",
                crate::api::errors::code_name(status.code())
            )
        } else {
            error.message
        };
        Self {
            exit: exit_of(status.code()),
            code: error.code,
            message,
            field: error.field,
            hint: error.hint.or_else(|| hint_of(status.code()).map(str::to_owned)),
        }
    }
}

fn exit_of(code: Code) -> Exit {
    match code {
        Code::Ok => Exit::Done,
        Code::InvalidArgument => Exit::BadInput,
        Code::NotFound => Exit::NotFound,
        Code::AlreadyExists | Code::Aborted => Exit::Conflict,
        Code::Unavailable | Code::DeadlineExceeded => Exit::Unreachable,
        Code::Cancelled
        | Code::Unknown
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => Exit::Failed,
    }
}

fn hint_of(code: Code) -> Option<&'static str> {
    match code {
        Code::Unauthenticated => {
            Some("send a bearer token (--token-file) or a client certificate (--cert and --key)")
        }
        Code::PermissionDenied => {
            Some("the token or certificate has another role: ask the operator for one that may")
        }
        Code::DeadlineExceeded => Some("give it more time with --timeout"),
        Code::Unimplemented => {
            Some("the server is older than this program: compare `freehold --version` with `freehold status`")
        }
        _ => None,
    }
}
