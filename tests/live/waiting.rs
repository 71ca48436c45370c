//! Waiting for what a real cluster does in its own time.

use std::time::Duration;

/// Asks again and again until there is an answer; fails the test after two minutes.
pub async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match tokio::time::timeout(Duration::from_secs(120), asking).await {
        Ok(answer) => answer,
        Err(_) => panic!("it did not come to pass within two minutes that {what}"),
    }
}
