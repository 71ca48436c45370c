//! Why the simulated API server says no, rendered as the Kubernetes `Status` that clients read.

use serde_json::{Value, json};
use thiserror::Error;

use super::Resource;

/// A refused request: an HTTP status with the words and details a real API server uses.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// What a person reads.
    pub message: String,
    /// What it is about.
    pub details: Option<Box<Details>>,
    /// Of a list that can only go on inconsistently: the token to do so with.
    pub next: Option<String>,
}

/// What a refusal is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The object's name.
    pub name: String,
    /// Its API group.
    pub group: String,
    /// Its plural resource, or its kind for validation errors.
    pub kind: String,
    /// Each single cause.
    pub causes: Vec<Cause>,
    /// Seconds to wait before trying again; 0 = not said.
    pub retry_after_seconds: u32,
}

/// One cause of a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Such as `FieldValueRequired`.
    pub reason: String,
    /// What a person reads.
    pub message: String,
    /// The path of the field.
    pub field: String,
}

impl Cause {
    /// A field that must be there.
    #[must_use]
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self::of("FieldValueRequired", field, message)
    }

    /// A field with a value it must not have.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::of(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        )
    }

    /// A field that may not be set or changed here.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::of("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// A field whose value is none of those known.
    #[must_use]
    pub fn unsupported(field: impl Into<String>, value: &Value, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|name| format!("\"{name}\"")).collect();
        Self::of(
            "FieldValueNotSupported",
            field,
            format!(
                "Unsupported value: {value}: supported values: {}",
                known.join(", ")
            ),
        )
    }

    /// A cause with a reason of its own.
    #[must_use]
    pub fn of(reason: &str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.into(),
        }
    }
}

impl Refusal {
    /// A refusal without details.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            next: None,
        }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.plural.to_string(),
            ..Details::default()
        }));
        self
    }

    /// 404: there is no such object.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// 404: there is no such path.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 409: the name is taken.
    #[must_use]
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{resource} \"{name}\" already exists"),
        )
        .about(resource, name)
    }

    /// 409: the request does not fit what the object is by now.
    #[must_use]
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .about(resource, name)
    }

    /// 409: somebody wrote in between.
    #[must_use]
    pub fn stale(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 403.
    #[must_use]
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            403,
            "Forbidden",
            format!("{resource} \"{name}\" is forbidden: {why}"),
        )
        .about(resource, name)
    }

    /// 422: the object is not valid; `kind` is the kind with its group, such as `Deployment.apps`.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let said: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let said = match said.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{qualified} \"{name}\" is invalid: {said}"),
            details: Some(Box::new(Details {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: kind.to_owned(),
                causes,
                retry_after_seconds: 0,
            })),
            next: None,
        }
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 410: the revision asked for is no longer remembered.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 500: the simulation itself went wrong.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {}", message.into()),
        )
    }

    /// The body of the answer.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = json!(next);
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.render();
        }
        status
    }
}

impl Details {
    fn render(&self) -> Value {
        let mut details = serde_json::Map::new();
        for (field, value) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !value.is_empty() {
                details.insert(field.to_owned(), json!(value));
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut rendered = json!({"message": cause.message});
                if !cause.reason.is_empty() {
                    rendered["reason"] = json!(cause.reason);
                }
                if !cause.field.is_empty() {
                    rendered["field"] = json!(cause.field);
                }
                rendered
            });
            details.insert("causes".to_owned(), causes.collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".to_owned(), json!(self.retry_after_seconds));
        }
        Value::Object(details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_as_kube_reads_a_status() {
        let refusal = Refusal::not_found(&Resource::new("apps", "deployments"), "web");
        let status: kube::core::Status = serde_json::from_value(refusal.status()).unwrap();
        assert_eq!(status.code, 404);
        assert!(status.is_not_found());
        assert_eq!(status.message, "deployments.apps \"web\" not found");
        assert_eq!(status.details.unwrap().kind, "deployments");
    }

    #[test]
    fn several_causes_are_listed_in_brackets() {
        let causes = vec![
            Cause::required("spec.a", ""),
            Cause::required("spec.b", "it matters"),
        ];
        let refusal = Refusal::invalid("", "Pod", "p", causes);
        assert_eq!(
            refusal.message,
            "Pod \"p\" is invalid: [spec.a: Required value, spec.b: Required value: it matters]"
        );
    }
}
