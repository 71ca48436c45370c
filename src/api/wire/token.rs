//! `freehold.private.v1.Token`.

use super::{WireError, parse_optional_time, parse_time, render_time};
use crate::{api::proto::private_v1, domain::access::TokenReport};

/// Domain → wire.
#[must_use]
pub fn render(token: TokenReport) -> private_v1::Token {
    private_v1::Token {
        id: token.id,
        name: token.name,
        role: token.role.name().to_owned(),
        subject: token.subject,
        created_at: Some(render_time(token.created_at)),
        expires_at: token.expires_at.map(render_time),
    }
}

/// Wire → domain.
///
/// # Errors
/// When a part is missing or makes no sense.
pub fn parse(token: private_v1::Token) -> Result<TokenReport, WireError> {
    Ok(TokenReport {
        id: token.id,
        name: token.name,
        role: token
            .role
            .parse()
            .map_err(|error| WireError::malformed("role", error))?,
        subject: token.subject,
        created_at: parse_time("created_at", token.created_at)?,
        expires_at: parse_optional_time("expires_at", token.expires_at)?,
    })
}
