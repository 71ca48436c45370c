//! Who calls, and whether they may: the table, and the three ways to prove an identity (client
//! certificate, bearer token, Kubernetes TokenReview).
//!
//! An identity is a role and a subject. A client certificate carries them in its subject:
//! `OU=<role>, CN=<subject>`. A token of ours is `fht_<id>_<secret>`; any other bearer token goes to
//! the reviewer, when there is one. Credentials that are sent are always checked, also where none are
//! needed: a bad token on loopback is refused, not ignored.

pub mod certificate;
pub mod rate;
pub mod table;
pub mod tokens;

use std::sync::Arc;

use http::{HeaderMap, header};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use self::{
    certificate::CertifiedPeer,
    tokens::{TOKEN_PREFIX, TokenBook},
};
use super::{errors::ApiError, provider::TokenReviewer};
use crate::{
    domain::{access::Identity, secret::Secret},
    ports::clock::Clock,
};

/// A proved identity, and what ends it while a stream is open.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub identity: Identity,
    /// When the proof expires.
    pub expires_at: Option<Timestamp>,
    /// Cancelled when the proof is revoked.
    pub revoked: Option<CancellationToken>,
}

impl Caller {
    fn lasting(identity: Identity) -> Self {
        Self {
            identity,
            expires_at: None,
            revoked: None,
        }
    }
}

/// Finds out who calls.
#[derive(Debug)]
pub struct Identifier {
    /// Our own tokens.
    pub tokens: Arc<TokenBook>,
    /// Somebody else's.
    pub reviewer: Option<Arc<dyn TokenReviewer>>,
    /// For expiry.
    pub clock: Arc<dyn Clock>,
}

impl Identifier {
    /// Who calls, or nobody when no credentials were sent. A token stands over the certificate of the
    /// connection, because it was sent with this very call.
    ///
    /// # Errors
    /// When credentials were sent and prove nothing.
    pub async fn identify(
        &self,
        headers: &HeaderMap,
        certificate: Option<&CertifiedPeer>,
    ) -> Result<Option<Caller>, ApiError> {
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (first, second) = (sent.next(), sent.next());
        if second.is_some() {
            return Err(invalid("the authorization header was sent twice"));
        }
        if let Some(value) = first {
            let token = value
                .to_str()
                .ok()
                .and_then(|text| text.split_once(' '))
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
                .map(|(_, token)| token.trim())
                .ok_or_else(|| invalid("the authorization header is not `Bearer <token>`"))?;
            return self.bearer(token).await.map(Some);
        }
        match certificate {
            None => Ok(None),
            Some(peer) => self.certified(peer).map(Some),
        }
    }

    async fn bearer(&self, token: &str) -> Result<Caller, ApiError> {
        if token.starts_with(TOKEN_PREFIX) {
            return self
                .tokens
                .verify(token)
                .map_err(|error| invalid(&error.to_string()));
        }
        let Some(reviewer) = &self.reviewer else {
            return Err(invalid("it is not a token of this provider"));
        };
        match reviewer.review(Secret::new(token.to_owned())).await {
            Ok(Some(identity)) => Ok(Caller::lasting(identity)),
            Ok(None) => Err(invalid("the cluster does not know this token")),
            Err(error) => Err(ApiError::Unavailable {
                message: format!("the token could not be reviewed: {error}"),
            }),
        }
    }

    fn certified(&self, peer: &CertifiedPeer) -> Result<Caller, ApiError> {
        let certified = peer.as_ref().map_err(|error| invalid(&error.to_string()))?;
        if certified.expires_at <= self.clock.wall() {
            return Err(invalid("the client certificate has expired"));
        }
        Ok(Caller {
            identity: certified.identity.clone(),
            expires_at: Some(certified.expires_at),
            revoked: None,
        })
    }
}

fn invalid(reason: &str) -> ApiError {
    ApiError::CredentialsInvalid {
        reason: reason.to_owned(),
    }
}
