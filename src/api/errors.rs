//! The one table from errors to status codes, for gRPC and HTTP alike, and the document both render.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, header};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tonic::{Code, Status, metadata::MetadataMap};

use super::proto::v1::ErrorDetail;
use crate::domain::access::{Refusal, Role};

/// Why a call was not answered as asked.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ApiError {
    /// No credentials where some are needed.
    #[error("this call needs credentials")]
    CredentialsMissing,
    /// Credentials that prove nothing.
    #[error("the credentials are not valid: {reason}")]
    CredentialsInvalid {
        /// What is wrong with them; says nothing a stranger could use.
        reason: String,
    },
    /// The caller is known and may not.
    #[error("the role {role} may not do this")]
    Forbidden {
        /// The caller's role.
        role: Role,
    },
    /// A browser was sent here by a page from elsewhere, or a name was bound to this address.
    #[error("the {header} header {value:?} does not belong to this listener")]
    Foreign {
        /// `Host` or `Origin`.
        header: &'static str,
        /// As sent, cut.
        value: String,
    },
    /// There is no such thing, or it is somebody else's.
    #[error("there is no {what}")]
    NotFound {
        /// What was asked for.
        what: String,
        /// A thing of that kind that exists.
        nearest: Option<String>,
    },
    /// Faults can only be provoked when that is switched on.
    #[error("debugging is switched off")]
    DebugDisabled,
    /// No such method or route.
    #[error("there is no such method or route")]
    NoSuchMethod,
    /// The route exists, but not with this HTTP method.
    #[error("this route does not take this HTTP method")]
    MethodNotAllowed,
    /// A request that makes no sense.
    #[error("{message}")]
    Invalid {
        /// Which part of it.
        field: Option<String>,
        /// What is wrong with it.
        message: String,
    },
    /// The id of this request was used for another one.
    #[error("{message}")]
    Conflict {
        /// What collides.
        message: String,
    },
    /// A sequence that is too old or of another run.
    #[error("events after {after} are not kept")]
    OutOfRange {
        /// As asked.
        after: u64,
    },
    /// This caller asks too often.
    #[error("too many calls")]
    RateLimited {
        /// When the next one will be taken.
        retry_after: Duration,
    },
    /// Everybody together asks too much.
    #[error("too many {what} at once")]
    Overloaded {
        /// Calls or streams.
        what: &'static str,
    },
    /// A body that is too long.
    #[error("the request is longer than {limit} bytes")]
    TooLarge {
        /// `limits.message-bytes`.
        limit: usize,
    },
    /// It took too long.
    #[error("the call was not answered in time")]
    Deadline,
    /// A part of the program cannot answer now.
    #[error("{message}")]
    Unavailable {
        /// Which part, and why.
        message: String,
    },
    /// The program is on its way out.
    #[error("the server is stopping")]
    Stopping,
    /// Not with this configuration.
    #[error("{message}")]
    Unsupported {
        /// What is not possible.
        message: String,
        /// What to set.
        hint: String,
    },
    /// Our fault; the log knows more.
    #[error("an internal error happened; the server's log tells more")]
    Internal,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// For programs.
    pub code: &'static str,
    /// Over gRPC.
    pub grpc: Code,
    /// Over HTTP.
    pub http: StatusCode,
}

fn row(code: &'static str, grpc: Code, http: StatusCode) -> Row {
    Row { code, grpc, http }
}

impl ApiError {
    /// The table.
    #[must_use]
    pub fn row(&self) -> Row {
        match self {
            Self::CredentialsMissing | Self::CredentialsInvalid { .. } => {
                row("unauthenticated", Code::Unauthenticated, StatusCode::UNAUTHORIZED)
            }
            Self::Forbidden { .. } => row("forbidden", Code::PermissionDenied, StatusCode::FORBIDDEN),
            Self::Foreign { .. } => row("foreign_origin", Code::PermissionDenied, StatusCode::FORBIDDEN),
            Self::NotFound { .. } => row("not_found", Code::NotFound, StatusCode::NOT_FOUND),
            Self::DebugDisabled => row("debug_disabled", Code::NotFound, StatusCode::NOT_FOUND),
            Self::NoSuchMethod => row("no_such_method", Code::Unimplemented, StatusCode::NOT_FOUND),
            Self::MethodNotAllowed => row(
                "method_not_allowed",
                Code::Unimplemented,
                StatusCode::METHOD_NOT_ALLOWED,
            ),
            Self::Invalid { .. } => row("invalid", Code::InvalidArgument, StatusCode::BAD_REQUEST),
            Self::Conflict { .. } => row("conflict", Code::AlreadyExists, StatusCode::CONFLICT),
            Self::OutOfRange { .. } => row("out_of_range", Code::OutOfRange, StatusCode::GONE),
            Self::RateLimited { .. } => row(
                "rate_limited",
                Code::ResourceExhausted,
                StatusCode::TOO_MANY_REQUESTS,
            ),
            Self::Overloaded { .. } => row(
                "overloaded",
                Code::ResourceExhausted,
                StatusCode::TOO_MANY_REQUESTS,
            ),
            Self::TooLarge { .. } => row(
                "too_large",
                Code::ResourceExhausted,
                StatusCode::PAYLOAD_TOO_LARGE,
            ),
            Self::Deadline => row(
                "deadline_exceeded",
                Code::DeadlineExceeded,
                StatusCode::GATEWAY_TIMEOUT,
            ),
            Self::Unavailable { .. } => {
                row("unavailable", Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::Stopping => row("stopping", Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
            Self::Unsupported { .. } => row("unsupported", Code::FailedPrecondition, StatusCode::CONFLICT),
            Self::Internal => row("internal", Code::Internal, StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::CredentialsMissing => {
                Some("send a bearer token (--token-file) or a client certificate (--cert, --key)".to_owned())
            }
            Self::CredentialsInvalid { .. } => {
                Some("make a new token with `freehold token create`".to_owned())
            }
            Self::Foreign { .. } => Some("call it by its address or as localhost".to_owned()),
            Self::NotFound { nearest, .. } => nearest.as_ref().map(|name| format!("did you mean {name}?")),
            Self::DebugDisabled => Some("set debug.enabled: true and start again".to_owned()),
            Self::OutOfRange { .. } => Some("watch again without `after`".to_owned()),
            Self::RateLimited { .. } | Self::Overloaded { .. } => Some("ask again later".to_owned()),
            Self::Unsupported { hint, .. } => Some(hint.clone()),
            Self::Stopping => Some("ask again when it has started".to_owned()),
            Self::Forbidden { .. }
            | Self::NoSuchMethod
            | Self::MethodNotAllowed
            | Self::Invalid { .. }
            | Self::Conflict { .. }
            | Self::TooLarge { .. }
            | Self::Deadline
            | Self::Unavailable { .. }
            | Self::Internal => None,
        }
    }

    fn field(&self) -> Option<String> {
        match self {
            Self::Invalid { field, .. } => field.clone(),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } => Some(*retry_after),
            Self::Overloaded { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// A request that makes no sense, by field.
    #[must_use]
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::Invalid {
            field: Some(field.to_owned()),
            message: message.into(),
        }
    }

    /// The JSON document.
    #[must_use]
    pub fn document(&self) -> ErrorDocument {
        ErrorDocument {
            error: ErrorBody {
                code: self.row().code.to_owned(),
                message: self.to_string(),
                field: self.field(),
                hint: self.hint(),
            },
        }
    }

    /// As a gRPC status with an [`ErrorDetail`] inside.
    #[must_use]
    pub fn status(&self) -> Status {
        let code = self.row().grpc;
        let retry_after_ms = self
            .retry_after()
            .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let detail = ErrorDetail {
            code: self.row().code.to_owned(),
            message: self.to_string(),
            field: self.field(),
            hint: self.hint(),
            retry_after_ms,
        };
        let envelope = RpcStatus {
            code: i32::from(code),
            message: self.to_string(),
            details: vec![prost_types::Any {
                type_url: DETAIL_URL.to_owned(),
                value: detail.encode_to_vec(),
            }],
        };
        let mut metadata = MetadataMap::new();
        if let Some(wait) = retry_after_ms {
            metadata.insert("grpc-retry-pushback-ms", wait.into());
        }
        Status::with_details_and_metadata(code, self.to_string(), envelope.encode_to_vec().into(), metadata)
    }

    /// Headers that go with it over HTTP.
    #[must_use]
    pub fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::new();
        if let Some(wait) = self.retry_after() {
            let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
            headers.push((header::RETRY_AFTER, HeaderValue::from(seconds.max(1))));
        }
        if self.row().http == StatusCode::UNAUTHORIZED {
            headers.push((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        }
        headers
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unauthenticated => Self::CredentialsMissing,
            Refusal::Forbidden { role } => Self::Forbidden { role },
        }
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        error.status()
    }
}

const DETAIL_URL: &str = "type.googleapis.com/freehold.v1.ErrorDetail";

/// `google.rpc.Status`, as gRPC puts it into `grpc-status-details-bin`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// An error as JSON: `{"error": {code, message, field, hint}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDocument {
    /// The error.
    pub error: ErrorBody,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// What is wrong in the request.
    pub field: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

impl ErrorDocument {
    /// The document a gRPC status stands for, so that the command line prints what HTTP would have said.
    #[must_use]
    pub fn from_status(status: &Status) -> Self {
        let detail = RpcStatus::decode(status.details()).ok().and_then(|envelope| {
            let detail = envelope
                .details
                .into_iter()
                .find(|detail| detail.type_url == DETAIL_URL)?;
            ErrorDetail::decode(detail.value.as_slice()).ok()
        });
        let error = match detail {
            Some(detail) => ErrorBody {
                code: detail.code,
                message: detail.message,
                field: detail.field,
                hint: detail.hint,
            },
            None => ErrorBody {
                code: code_name(status.code()).to_ascii_lowercase(),
                message: status.message().to_owned(),
                field: None,
                hint: None,
            },
        };
        Self { error }
    }
}

/// The name of a gRPC code as the specification writes it.
#[must_use]
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_carries_the_same_document_as_http() {
        for error in [
            ApiError::CredentialsMissing,
            ApiError::invalid("role", "there is no role \"king\""),
            ApiError::NotFound {
                what: "topic \"inventory.node\"".into(),
                nearest: Some("inventory.nodes".into()),
            },
            ApiError::RateLimited {
                retry_after: Duration::from_millis(1500),
            },
        ] {
            assert_eq!(ErrorDocument::from_status(&error.status()), error.document());
        }
    }

    #[test]
    fn a_foreign_status_still_makes_a_document() {
        let document = ErrorDocument::from_status(&Status::unavailable("no route"));
        assert_eq!(document.error.code, "unavailable");
        assert_eq!(document.error.message, "no route");
        let garbage = Status::with_details(Code::Internal, "x", vec![0xff, 0x00, 0x13].into());
        assert_eq!(ErrorDocument::from_status(&garbage).error.code, "internal");
    }

    #[test]
    fn a_rate_limit_says_when_to_come_back() {
        let error = ApiError::RateLimited {
            retry_after: Duration::from_millis(1500),
        };
        let status = error.status();
        assert_eq!(
            status.metadata().get("grpc-retry-pushback-ms").unwrap(),
            &tonic::metadata::MetadataValue::from(1500_u64)
        );
        assert_eq!(
            error.headers(),
            [(header::RETRY_AFTER, HeaderValue::from_static("2"))]
        );
    }
}
