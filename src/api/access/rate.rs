//! How often one caller may ask: a token bucket for each identity, or each peer where nobody is
//! known, kept as one number (the time at which the bucket would be full again). The number of
//! buckets is bounded; who does not fit shares one.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;

use crate::{domain::access::Identity, ports::clock::Clock};

/// Most buckets kept.
const MAX_BUCKETS: usize = 10_000;

/// Whose bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RateKey {
    /// A known caller's.
    Identity(Identity),
    /// An unknown one's. Of IPv6 the network counts: one host has as many addresses as it likes.
    Peer([u8; 16]),
    /// Of whoever has no address, such as an in-memory connection.
    Unaddressed,
    /// Of everybody who came when there were too many buckets.
    Crowd,
}

impl RateKey {
    /// The bucket of an unknown caller.
    #[must_use]
    pub fn peer(address: Option<IpAddr>) -> Self {
        match address {
            None => Self::Unaddressed,
            Some(IpAddr::V4(address)) => Self::Peer(address.to_ipv6_mapped().octets()),
            Some(IpAddr::V6(address)) => {
                let mut octets = address.octets();
                if address.to_ipv4_mapped().is_none() {
                    octets[8..].fill(0);
                }
                Self::Peer(octets)
            }
        }
    }
}

/// All buckets. Callers with different ones do not wait for each other.
#[derive(Debug)]
pub struct RateLimiter {
    clock: Arc<dyn Clock>,
    interval: Duration,
    burst: Duration,
    full_at: DashMap<RateKey, Duration>,
    /// When the buckets were last swept, in whole seconds of the monotonic clock.
    swept_at: AtomicU64,
}

impl RateLimiter {
    /// `per_second` calls on average, `burst` at once. 0 per second means without limit.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1).checked_div(per_second).unwrap_or_default();
        Self {
            clock,
            interval,
            burst: interval.saturating_mul(burst.max(1)),
            full_at: DashMap::new(),
            swept_at: AtomicU64::new(0),
        }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// When the bucket is empty: how long until it holds one again.
    pub fn take(&self, key: RateKey) -> Result<(), Duration> {
        if self.interval.is_zero() {
            return Ok(());
        }
        let now = self.clock.monotonic();
        let key = self.admit(key, now);
        let mut full_at = self.full_at.entry(key).or_insert(now);
        let next = (*full_at).max(now).saturating_add(self.interval);
        let over = next.saturating_sub(now).saturating_sub(self.burst);
        if over.is_zero() {
            *full_at = next;
            Ok(())
        } else {
            Err(over)
        }
    }
}

impl RateLimiter {
    /// The key itself, or the crowd's when there is no room for it.
    fn admit(&self, key: RateKey, now: Duration) -> RateKey {
        if self.full_at.contains_key(&key) || self.full_at.len() < MAX_BUCKETS {
            return key;
        }
        // A bucket that is full again holds nothing worth keeping. Sweeping at most once a second keeps
        // a flood of strangers from making every call walk all buckets.
        let second = now.as_secs();
        if self.swept_at.swap(second, Ordering::Relaxed) != second {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        if self.full_at.len() < MAX_BUCKETS {
            key
        } else {
            RateKey::Crowd
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::clock::SystemClock;

    fn limiter(per_second: u32, burst: u32) -> RateLimiter {
        RateLimiter::new(Arc::new(SystemClock::start()), per_second, burst)
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_its_burst_and_fills_again_with_time() {
        let limiter = limiter(10, 3);
        let key = || RateKey::peer(Some([10, 0, 0, 1].into()));
        for _ in 0..3 {
            assert_eq!(limiter.take(key()), Ok(()));
        }
        assert_eq!(limiter.take(key()), Err(Duration::from_millis(100)));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(limiter.take(key()), Ok(()));
        assert!(limiter.take(key()).is_err());
        tokio::time::advance(Duration::from_secs(60)).await;
        for _ in 0..3 {
            assert_eq!(limiter.take(key()), Ok(()));
        }
        assert!(limiter.take(key()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn callers_have_buckets_of_their_own() {
        let limiter = limiter(1, 1);
        assert!(limiter.take(RateKey::peer(Some([10, 0, 0, 1].into()))).is_ok());
        assert!(limiter.take(RateKey::peer(Some([10, 0, 0, 2].into()))).is_ok());
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let two: IpAddr = "2001:db8::ffff:2".parse().unwrap();
        assert!(limiter.take(RateKey::peer(Some(one))).is_ok());
        assert!(
            limiter.take(RateKey::peer(Some(two))).is_err(),
            "one network, one bucket"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_strangers_neither_grows_without_end_nor_locks_out_who_was_there() {
        let limiter = limiter(1, 1);
        let stranger = |number: u32| RateKey::peer(Some(IpAddr::from(number.to_be_bytes())));
        for number in 0..30_000 {
            let _ = limiter.take(stranger(number));
        }
        assert!(limiter.full_at.len() <= MAX_BUCKETS + 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(limiter.take(stranger(40_000)), Ok(()));
        assert!(limiter.full_at.len() < 10);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nothing_is_refused() {
        let limiter = limiter(0, 0);
        for _ in 0..1000 {
            assert_eq!(limiter.take(RateKey::Unaddressed), Ok(()));
        }
    }
}
