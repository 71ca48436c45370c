//! The first operator's token: made when credentials are wanted and nobody has any, and written to a
//! file that only its owner can read.
//!
//! The file is written before the token becomes valid. After a crash in between there is a file with a
//! token that does not work, and the next start writes a new one; never a token nobody knows.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;
use tokio::{fs, io::AsyncWriteExt as _};

use crate::{
    api::access::tokens::{NewToken, TokenBook, TokenError, new_secret},
    domain::access::{Identity, Role},
};

/// Why the first token could not be made.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// The file could not be written.
    #[error("the first operator's token could not be written to {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The token could not be made or kept.
    #[error("the first operator's token could not be made: {0}")]
    Token(#[from] TokenError),
}

/// Makes an operator's token and writes it to `path`, with mode 0600.
///
/// # Errors
/// When it cannot be written or kept.
pub async fn write_first_token(tokens: &TokenBook, path: &Path) -> Result<(), BootstrapError> {
    let secret = new_secret()?;
    write_private(path, secret.token.expose())
        .await
        .map_err(|source| BootstrapError::File {
            path: path.to_owned(),
            source,
        })?;
    let new = NewToken {
        request_id: String::new(),
        name: "bootstrap".to_owned(),
        role: Role::Operator,
        subject: "bootstrap".to_owned(),
        expires_at: None,
    };
    tokens
        .create_with(new, &Identity::local_operator(), secret)
        .await?;
    tracing::info!(path = %path.display(), "the first operator's token was written to a file");
    Ok(())
}

/// Whole or not at all, and never readable by others, not even for a moment.
async fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    match fs::remove_file(&beside).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .await?;
    file.write_all(text.as_bytes()).await?;
    file.write_all(b"\n").await?;
    file.sync_all().await?;
    fs::rename(&beside, path).await
}
