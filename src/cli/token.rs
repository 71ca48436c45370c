//! `freehold token create|list|revoke`.

use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use super::{
    Console,
    arguments::{Format, TokenAction},
    connection::Connection,
    failure::{Exit, Failure},
    table::Table,
};
use crate::{
    api::{
        proto::private_v1::{self, access_service_client::AccessServiceClient},
        wire::{self, WireError},
    },
    domain::access::{Role, TokenReport},
    ports::clock::{Clock as _, SystemClock},
};

/// A new token, the one time its secret is shown.
#[derive(Serialize)]
struct CreatedToken {
    token: TokenReport,
    secret: String,
}

pub async fn run(
    connection: &Connection,
    action: TokenAction,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let action = match action {
        TokenAction::Create { role, .. } if role.parse::<Role>().is_err() => {
            let message = role
                .parse::<Role>()
                .map_or_else(|error| error.to_string(), |_| String::new());
            return Err(Failure::bad_input("--role", message));
        }
        action => action,
    };
    let mut client = AccessServiceClient::new(connection.wire().await?);
    match action {
        TokenAction::Create {
            name,
            role,
            subject,
            expires_in,
            request_id,
        } => {
            let request = private_v1::CreateTokenRequest {
                request_id: request_id.unwrap_or_else(new_request_id),
                name,
                role,
                subject,
                expires_at: expires_in.map(expiry).transpose()?,
            };
            let answer = connection
                .answer(client.create_token(connection.request(request)))
                .await?;
            let token = answer.token.ok_or(WireError::Missing { field: "token" })?;
            let created = CreatedToken {
                token: wire::token::parse(token)?,
                secret: answer.secret,
            };
            if created.secret.is_empty() {
                let id = &created.token.id;
                return Err(Failure::new(
                    Exit::Conflict,
                    "already_created",
                    format!("this request made token {id} before, and its secret is shown once only"),
                )
                .hint(format!("freehold token revoke {id}, then create another one")));
            }
            if format == Format::Table {
                // The secret alone goes to stdout, so that `> file` makes a token file.
                let TokenReport { id, name, role, .. } = &created.token;
                console.say(&format!(
                    "token {id} ({name}, {role}); its secret is shown this once:"
                ));
            }
            console.show(format, &created, |created| format!("{}\n", created.secret))?;
        }
        TokenAction::List => {
            let call = client.list_tokens(connection.request(private_v1::ListTokensRequest {}));
            let tokens = connection.answer(call).await?.tokens;
            let tokens: Vec<TokenReport> = tokens
                .into_iter()
                .map(wire::token::parse)
                .collect::<Result<_, _>>()?;
            console.show(format, &tokens, |tokens| table(tokens))?;
        }
        TokenAction::Revoke { id, request_id } => {
            let request = private_v1::RevokeTokenRequest {
                request_id: request_id.unwrap_or_else(new_request_id),
                id: id.clone(),
            };
            connection
                .answer(client.revoke_token(connection.request(request)))
                .await?;
            console.say(&format!("token {id} is revoked"));
        }
    }
    Ok(Exit::Done)
}

fn new_request_id() -> String {
    Uuid::now_v7().to_string()
}

fn expiry(after: Duration) -> Result<prost_types::Timestamp, Failure> {
    let end = SystemClock::start()
        .wall()
        .checked_add(after)
        .map_err(|_| Failure::bad_input("--expires-in", "it is too far away"))?;
    Ok(prost_types::Timestamp {
        seconds: end.as_second(),
        nanos: end.subsec_nanosecond(),
    })
}

fn table(tokens: &[TokenReport]) -> String {
    let mut table = Table::new(["ID", "NAME", "ROLE", "SUBJECT", "CREATED", "EXPIRES"]);
    for token in tokens {
        table.row([
            token.id.clone(),
            token.name.clone(),
            token.role.to_string(),
            if token.subject.is_empty() {
                "-".to_owned()
            } else {
                token.subject.clone()
            },
            token.created_at.to_string(),
            token
                .expires_at
                .map_or_else(|| "never".to_owned(), |at| at.to_string()),
        ]);
    }
    table.render()
}
