//! Tokens: made once, kept as hashes, revoked at once.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use super::fakes::{FakeStore, World};
use crate::{
    api::access::tokens::{LoadError, NewToken, STORE_PREFIX, TokenBook, TokenError, VerifyError},
    domain::access::{Identity, Role},
    ports::clock::{Clock as _, SimulatedClock},
};

fn new(request_id: &str, name: &str) -> NewToken {
    NewToken {
        request_id: request_id.into(),
        name: name.into(),
        role: Role::Tenant,
        subject: "alice".into(),
        expires_at: None,
    }
}

fn operator() -> Identity {
    Identity::local_operator()
}

async fn book(world: &World) -> TokenBook {
    TokenBook::load(world.store.clone(), world.clock.clone())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_token_survives_a_restart_and_the_store_never_sees_it() {
    let world = World::new();
    let made = book(&world)
        .await
        .create(new("", "ci"), &operator())
        .await
        .unwrap();
    let token = made.secret.unwrap();
    let caller = book(&world).await.verify(token.expose()).unwrap();
    assert_eq!(caller.identity, Identity::new(Role::Tenant, "alice").unwrap());
    let secret = token.expose().rsplit('_').next().unwrap();
    assert_eq!(secret.len(), 64, "256 bits");
    for (key, value) in world.store.pairs.lock().iter() {
        let kept = [key.as_slice(), value.as_slice()].concat();
        assert!(!String::from_utf8_lossy(&kept).contains(secret));
    }
    assert!(!format!("{token:?}").contains(secret));
}

#[tokio::test]
async fn a_repeated_request_makes_no_second_token_and_shows_no_secret() {
    let world = World::new();
    let book = book(&world).await;
    let first = book.create(new("r1", "ci"), &operator()).await.unwrap();
    let again = book.create(new("r1", "ci"), &operator()).await.unwrap();
    assert_eq!(first.report, again.report);
    assert!(again.secret.is_none());
    assert_eq!(book.list().len(), 1);
    assert_eq!(
        book.create(new("r1", "other"), &operator()).await.unwrap_err(),
        TokenError::RequestReused { id: first.report.id }
    );
    let somebody_else = Identity::new(Role::Operator, "bob").unwrap();
    assert!(
        book.create(new("r1", "ci"), &somebody_else)
            .await
            .unwrap()
            .secret
            .is_some()
    );
}

#[tokio::test]
async fn a_revoked_token_is_dead_at_once_and_after_a_restart() {
    let world = World::new();
    let book = book(&world).await;
    let made = book.create(new("", "ci"), &operator()).await.unwrap();
    let token = made.secret.unwrap();
    let caller = book.verify(token.expose()).unwrap();
    book.revoke(&made.report.id).await.unwrap();
    assert!(caller.revoked.unwrap().is_cancelled());
    assert_eq!(book.verify(token.expose()).unwrap_err(), VerifyError::Revoked);
    assert_eq!(book.revoke(&made.report.id).await, Ok(()), "twice is no error");
    assert!(book.list().is_empty());
    let reloaded = TokenBook::load(world.store.clone(), world.clock.clone())
        .await
        .unwrap();
    assert_eq!(reloaded.verify(token.expose()).unwrap_err(), VerifyError::Revoked);
    assert!(matches!(
        book.revoke("ffff").await,
        Err(TokenError::NotFound { .. })
    ));
}

#[tokio::test]
async fn a_token_that_is_not_durable_does_not_work() {
    let world = World::new();
    let book = book(&world).await;
    world.store.broken.store(true, Ordering::SeqCst);
    assert!(matches!(
        book.create(new("", "ci"), &operator()).await,
        Err(TokenError::Store(_))
    ));
    assert!(book.list().is_empty());
}

#[tokio::test]
async fn a_token_is_revoked_even_when_the_store_fails_and_the_caller_is_told() {
    let world = World::new();
    let book = book(&world).await;
    let made = book.create(new("", "ci"), &operator()).await.unwrap();
    world.store.broken.store(true, Ordering::SeqCst);
    assert!(matches!(
        book.revoke(&made.report.id).await,
        Err(TokenError::Store(_))
    ));
    assert_eq!(
        book.verify(made.secret.unwrap().expose()).unwrap_err(),
        VerifyError::Revoked
    );
    world.store.broken.store(false, Ordering::SeqCst);
    assert_eq!(book.revoke(&made.report.id).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_on_time_and_is_forgotten_a_day_later() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(start));
    let store = Arc::new(FakeStore::default());
    let book = TokenBook::load(store.clone(), clock.clone()).await.unwrap();
    let ends = clock.wall() + Duration::from_secs(60);
    let short = NewToken {
        expires_at: Some(ends),
        ..new("", "short")
    };
    let token = book.create(short, &operator()).await.unwrap().secret.unwrap();
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(book.verify(token.expose()).is_ok());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(book.verify(token.expose()).unwrap_err(), VerifyError::Expired);
    book.create(new("", "later"), &operator()).await.unwrap();
    assert_eq!(store.pairs.lock().len(), 2);
    tokio::time::advance(Duration::from_secs(25 * 3600)).await;
    book.create(new("", "next day"), &operator()).await.unwrap();
    assert_eq!(store.pairs.lock().len(), 2, "the expired one is gone");
}

#[tokio::test]
async fn a_token_that_makes_no_sense_is_refused() {
    let world = World::new();
    let book = book(&world).await;
    let refused = [
        (
            NewToken {
                subject: String::new(),
                ..new("", "x")
            },
            "subject",
        ),
        (
            NewToken {
                subject: "a b".into(),
                ..new("", "x")
            },
            "subject",
        ),
        (new("", ""), "name"),
        (new("", "line\nbreak"), "name"),
        (new(&"r".repeat(200), "x"), "request"),
        (
            NewToken {
                expires_at: Some(world.clock.wall()),
                ..new("", "x")
            },
            "expires",
        ),
    ];
    for (token, what) in refused {
        let error = book.create(token, &operator()).await.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    assert!(world.store.pairs.lock().is_empty());
}

#[tokio::test]
async fn a_damaged_record_stops_the_start_and_is_named() {
    let world = World::new();
    let key = [STORE_PREFIX, b"0011"].concat();
    world.store.pairs.lock().insert(key, b"{\"v\": 1".to_vec());
    let error = TokenBook::load(world.store.clone(), world.clock.clone())
        .await
        .unwrap_err();
    assert!(
        matches!(error, LoadError::Unreadable { ref key, .. } if key == "access/token/0011"),
        "{error}"
    );
}

#[tokio::test]
async fn more_tokens_than_a_page_are_all_read() {
    let world = World::new();
    let first = book(&world).await;
    for number in 0..1100 {
        first
            .create(new("", &format!("t{number}")), &operator())
            .await
            .unwrap();
    }
    assert_eq!(book(&world).await.list(), first.list());
}
