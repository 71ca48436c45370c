//! Keeps the API's own secrets (the key of its CA) in the store, sealed.

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        access::tokens::TokenRecord,
        provider::{Keeper, KeeperError},
    },
    domain::secret::Secret,
    ports::store::{
        Batch, Store, Write,
        record::{self, Stored},
        requests::Answered,
    },
    store::sealed::{Place, Sealed, Sealer},
};

/// A sealed secret of the program's own.
#[derive(Debug, Serialize, Deserialize)]
struct OwnSecret(Sealed);

impl Stored for OwnSecret {
    const KIND: &'static str = "own-secret";
    const VERSION: u32 = 1;
}

/// The newest version this release knows of each kind of record in the store.
pub(super) fn known_records() -> Vec<(&'static str, u32)> {
    vec![
        (OwnSecret::KIND, OwnSecret::VERSION),
        (Answered::KIND, Answered::VERSION),
        (TokenRecord::KIND, TokenRecord::VERSION),
    ]
}

/// Keeps secrets in the store, sealed.
#[derive(Debug)]
pub(super) struct SealedKeeper {
    pub(super) store: Arc<dyn Store>,
    pub(super) sealer: Arc<Sealer>,
}

fn key_of(name: &str) -> Vec<u8> {
    format!("own-secret/{name}").into_bytes()
}

fn failed(error: impl std::fmt::Display) -> KeeperError {
    KeeperError {
        reason: error.to_string(),
    }
}

impl Keeper for SealedKeeper {
    fn load(&self, name: &'static str) -> BoxFuture<'static, Result<Option<Secret>, KeeperError>> {
        let (store, sealer) = (Arc::clone(&self.store), Arc::clone(&self.sealer));
        async move {
            let key = key_of(name);
            let Some(value) = store.get(key.clone()).await.map_err(failed)? else {
                return Ok(None);
            };
            let OwnSecret(sealed) = record::decode(&key, &value).map_err(failed)?;
            sealer
                .unseal(
                    &sealed,
                    Place {
                        kind: OwnSecret::KIND,
                        key: &key,
                    },
                )
                .map(Some)
                .map_err(failed)
        }
        .boxed()
    }

    fn save(&self, name: &'static str, secret: Secret) -> BoxFuture<'static, Result<(), KeeperError>> {
        let (store, sealer) = (Arc::clone(&self.store), Arc::clone(&self.sealer));
        async move {
            let key = key_of(name);
            let sealed = sealer
                .seal(
                    &secret,
                    Place {
                        kind: OwnSecret::KIND,
                        key: &key,
                    },
                )
                .map_err(failed)?;
            let value = record::encode(&OwnSecret(sealed)).map_err(failed)?;
            store
                .commit(Batch::taking(vec![Write::Put(key, value)]))
                .await
                .map_err(failed)
        }
        .boxed()
    }
}
