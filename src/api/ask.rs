//! What both surfaces ask the program for, with refusals in the API's own words. Handlers parse, ask
//! here, and render.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;

use super::{
    access::tokens::{MadeToken, NewToken, TokenBook, TokenError},
    errors::ApiError,
    provider::{AddFaultError, NotEmbedded, Provider, ProvokeError, StoreUnavailable, WatchError},
    wire::WireError,
};
use crate::domain::{
    access::{Identity, TokenReport},
    actor::{ActorReport, ProvokedFault},
    api_fault::ApiFault,
    event::BusEvent,
    inventory::Inventory,
    status::Status,
    store_report::{StoreReport, StoreVerification},
};

/// Most topics in one request; there are not that many.
const MAX_TOPICS: usize = 256;
/// Longest path of an actor.
const MAX_PATH: usize = 1024;

/// The program behind the handlers.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    provider: Arc<dyn Provider>,
    tokens: Arc<TokenBook>,
    debug: bool,
}

impl Ask {
    pub(crate) fn new(provider: Arc<dyn Provider>, tokens: Arc<TokenBook>, debug: bool) -> Self {
        Self {
            provider,
            tokens,
            debug,
        }
    }

    pub(crate) fn status(&self) -> Status {
        self.provider.status()
    }

    pub(crate) fn watch_status(&self) -> BoxStream<'static, Status> {
        self.provider.watch_status()
    }

    pub(crate) fn inventory(&self) -> Inventory {
        self.provider.inventory()
    }

    pub(crate) fn metrics(&self) -> String {
        self.provider.metrics_text()
    }

    pub(crate) fn events(
        &self,
        topics: Vec<String>,
        after: Option<u64>,
    ) -> Result<BoxStream<'static, BusEvent>, ApiError> {
        if topics.len() > MAX_TOPICS {
            return Err(ApiError::invalid(
                "topics",
                format!("there are at most {MAX_TOPICS} topics in a request"),
            ));
        }
        self.provider.events(topics, after).map_err(|error| match error {
            WatchError::UnknownTopic { name, nearest } => ApiError::NotFound {
                what: format!("topic {:?}", short(&name)),
                nearest,
            },
            WatchError::OutOfRange { after } => ApiError::OutOfRange { after },
        })
    }

    pub(crate) fn actors(&self, path: Option<&str>, depth: Option<u32>) -> Result<ActorReport, ApiError> {
        let path = path.filter(|path| !path.is_empty());
        self.provider
            .actors(path, depth)
            .ok_or_else(|| no_actor(path.unwrap_or("root")))
    }

    pub(crate) fn retry(&self, path: &str) -> Result<(), ApiError> {
        self.provider.retry(path).map_err(|error| match error {
            ProvokeError::UnknownActor { path } => no_actor(&path),
            ProvokeError::Unreachable { .. } => ApiError::Unavailable {
                message: error.to_string(),
            },
        })
    }

    pub(crate) fn provoke(&self, path: &str, fault: ProvokedFault) -> Result<(), ApiError> {
        self.debugging()?;
        if path.is_empty() || path.len() > MAX_PATH {
            return Err(ApiError::invalid(
                "path",
                "name an actor, as `freehold actors` shows it",
            ));
        }
        self.provider.provoke(path, fault).map_err(|error| match error {
            ProvokeError::UnknownActor { path } => no_actor(&path),
            ProvokeError::Unreachable { .. } => ApiError::Unavailable {
                message: error.to_string(),
            },
        })?;
        tracing::warn!(path, ?fault, "a fault was provoked through the API");
        Ok(())
    }

    pub(crate) fn faults(&self) -> Result<Vec<ApiFault>, ApiError> {
        self.debugging()?;
        self.provider.faults().map_err(not_embedded)
    }

    pub(crate) fn add_fault(&self, fault: ApiFault) -> Result<(), ApiError> {
        self.debugging()?;
        fault
            .check()
            .map_err(|error| ApiError::invalid(error.field(), error.to_string()))?;
        self.provider
            .add_fault(fault.clone())
            .map_err(|error| match error {
                AddFaultError::NotEmbedded(error) => not_embedded(error),
                AddFaultError::Refused { reason } => ApiError::invalid("fault", reason),
            })?;
        tracing::warn!(?fault, "a fault of the embedded cluster was set through the API");
        Ok(())
    }

    pub(crate) fn clear_faults(&self) -> Result<(), ApiError> {
        self.debugging()?;
        self.provider.clear_faults().map_err(not_embedded)
    }

    pub(crate) async fn store_report(&self) -> Result<StoreReport, ApiError> {
        self.provider.store_report().await.map_err(no_store)
    }

    pub(crate) async fn verify_store(&self) -> Result<StoreVerification, ApiError> {
        self.provider.verify_store().await.map_err(no_store)
    }

    pub(crate) async fn back_up_store(
        &self,
    ) -> Result<BoxStream<'static, Result<Bytes, StoreUnavailable>>, ApiError> {
        self.provider.back_up_store().await.map_err(no_store)
    }

    pub(crate) async fn create_token(&self, new: NewToken, by: &Identity) -> Result<MadeToken, ApiError> {
        let made = self.tokens.create(new, by).await.map_err(token_refused)?;
        if made.secret.is_some() {
            let (id, role) = (&made.report.id, made.report.role);
            tracing::info!(id, %role, subject = made.report.subject, %by, "a token was made");
        }
        Ok(made)
    }

    pub(crate) fn tokens(&self) -> Vec<TokenReport> {
        self.tokens.list()
    }

    pub(crate) async fn revoke_token(&self, id: &str, by: &Identity) -> Result<(), ApiError> {
        self.tokens.revoke(id).await.map_err(token_refused)?;
        tracing::info!(id, %by, "a token was revoked");
        Ok(())
    }

    /// Whether faults can be provoked at all.
    pub(crate) fn debugging(&self) -> Result<(), ApiError> {
        if self.debug {
            Ok(())
        } else {
            Err(ApiError::DebugDisabled)
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

fn no_actor(path: &str) -> ApiError {
    ApiError::NotFound {
        what: format!("actor {:?}", short(path)),
        nearest: None,
    }
}

fn not_embedded(NotEmbedded: NotEmbedded) -> ApiError {
    ApiError::Unsupported {
        message: "only the embedded cluster has faults".to_owned(),
        hint: "set cluster.kind: embedded".to_owned(),
    }
}

pub(crate) fn no_store(error: StoreUnavailable) -> ApiError {
    ApiError::Unavailable {
        message: error.to_string(),
    }
}

fn token_refused(error: TokenError) -> ApiError {
    let message = error.to_string();
    match error {
        TokenError::Subject(_) => ApiError::invalid("subject", message),
        TokenError::Name => ApiError::invalid("name", message),
        TokenError::RequestId => ApiError::invalid("request_id", message),
        TokenError::Expired => ApiError::invalid("expires_at", message),
        TokenError::RequestReused { .. } => ApiError::Conflict { message },
        TokenError::TooMany => ApiError::Overloaded { what: "tokens" },
        TokenError::NotFound { id } => ApiError::NotFound {
            what: format!("token {id:?}"),
            nearest: None,
        },
        TokenError::Store(_) => ApiError::Unavailable { message },
        TokenError::Broken(_) => {
            tracing::error!(%message, "a token could not be made");
            ApiError::Internal
        }
    }
}

impl From<WireError> for ApiError {
    fn from(error: WireError) -> Self {
        Self::invalid(error.field(), error.to_string())
    }
}
