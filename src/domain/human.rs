//! Durations, sizes and decimals as people write them: `5s`, `1h30m`, `512Mi`, `24Gi`, `1.25`, `0`.
//!
//! Reading is exact (integers all the way, never a float) and refuses what it would have to round.
//! `Display` writes the same value back in the same language.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// A text that is not a duration, a size or a decimal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HumanError {
    /// There is nothing to read.
    #[error("it is empty")]
    Empty,
    /// A time or a size below zero.
    #[error("it cannot be negative")]
    Negative,
    /// No number where a number must stand.
    #[error("a number must stand before the unit")]
    NoNumber,
    /// A unit nobody knows.
    #[error("unit {unit:?} is not known: use {known}")]
    UnknownUnit {
        /// The unit as it was written.
        unit: String,
        /// The units there are.
        known: &'static str,
    },
    /// A plain number has no unit and no exponent.
    #[error("it is a plain number, without {unit:?}")]
    NoUnit {
        /// What stands behind the number.
        unit: String,
    },
    /// Parts of a duration must go from large to small, each once, as in `1h30m`.
    #[error("its parts must go from the largest unit to the smallest, each once, as in 1h30m")]
    Order,
    /// More digits than the smallest unit can hold.
    #[error("it is finer than {smallest}")]
    TooFine {
        /// The smallest unit.
        smallest: &'static str,
    },
    /// Larger than can be held.
    #[error("it is too large")]
    TooLarge,
}

/// Largest first; the first spelling of each is the one that is written.
const TIME_UNITS: [(&str, u64); 8] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

const SIZE_UNITS: [(&str, u64); 13] = [
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
    ("K", 1_000),
];

/// A length of time. Plain integers are seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// The duration itself.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for HumanDuration {
    type Err = HumanError;

    fn from_str(text: &str) -> Result<Self, HumanError> {
        let mut rest = start(text)?;
        let mut nanos: u128 = 0;
        let mut last = u64::MAX;
        while !rest.is_empty() {
            let (number, after) = Decimal::take(rest)?;
            let unit_length = after
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(after.len());
            let (unit, next) = after.split_at(unit_length);
            let unit = unit.trim();
            let size = match TIME_UNITS.iter().find(|(name, _)| *name == unit) {
                Some((_, size)) => *size,
                // Only a plain number may go without a unit: `1h30` says too little.
                None if unit.is_empty() && last == u64::MAX && next.is_empty() => 1_000_000_000,
                None => {
                    return Err(HumanError::UnknownUnit {
                        unit: unit.to_owned(),
                        known: "ns, us, ms, s, m, h or d",
                    });
                }
            };
            if size >= last {
                return Err(HumanError::Order);
            }
            last = size;
            let part = number.times(size)?.ok_or(HumanError::TooFine {
                smallest: "a nanosecond",
            })?;
            nanos = nanos.checked_add(part).ok_or(HumanError::TooLarge)?;
            rest = next;
        }
        u64::try_from(nanos)
            .map(|nanos| Self(Duration::from_nanos(nanos)))
            .map_err(|_| HumanError::TooLarge)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return formatter.write_str("0s");
        }
        let mut rest = self.0.as_nanos();
        for (unit, size) in TIME_UNITS {
            let count = rest / u128::from(size);
            rest %= u128::from(size);
            if count > 0 {
                write!(formatter, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// A number of bytes. Plain integers are bytes; `Ki`, `Mi`, `Gi` … count by 1024, `k`, `M`, `G` … by 1000,
/// and a `B` may follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanSize(pub u64);

impl HumanSize {
    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for HumanSize {
    type Err = HumanError;

    fn from_str(text: &str) -> Result<Self, HumanError> {
        let (number, after) = Decimal::take(start(text)?)?;
        let written = after.trim();
        let unit = written.strip_suffix('B').unwrap_or(written);
        let size = if unit.is_empty() {
            1
        } else {
            SIZE_UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .map(|(_, size)| *size)
                .ok_or_else(|| HumanError::UnknownUnit {
                    unit: written.to_owned(),
                    known: "Ki, Mi, Gi, Ti, Pi, Ei or k, M, G, T, P, E",
                })?
        };
        let bytes = number
            .times(size)?
            .ok_or(HumanError::TooFine { smallest: "a byte" })?;
        u64::try_from(bytes).map(Self).map_err(|_| HumanError::TooLarge)
    }
}

impl fmt::Display for HumanSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIZE_UNITS
            .iter()
            .find(|(_, size)| self.0 > 0 && self.0.is_multiple_of(*size))
        {
            Some((unit, size)) => write!(formatter, "{}{unit}", self.0 / size),
            None => write!(formatter, "{}", self.0),
        }
    }
}

/// A decimal of at most six places, not below zero, held exactly: ratios such as `1.25`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDecimal {
    millionths: u64,
}

impl HumanDecimal {
    /// One.
    pub const ONE: Self = Self {
        millionths: 1_000_000,
    };

    /// The number times a million, exact.
    #[must_use]
    pub const fn millionths(self) -> u64 {
        self.millionths
    }

    /// The nearest float, for what is not counted exactly (speeds, probabilities).
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "the nearest float is what is asked for"
    )]
    pub fn as_f64(self) -> f64 {
        self.millionths as f64 / 1e6
    }
}

impl FromStr for HumanDecimal {
    type Err = HumanError;

    fn from_str(text: &str) -> Result<Self, HumanError> {
        let (number, after) = Decimal::take(start(text)?)?;
        if !after.is_empty() {
            return Err(HumanError::NoUnit {
                unit: after.trim().to_owned(),
            });
        }
        let millionths = number.times(1_000_000)?.ok_or(HumanError::TooFine {
            smallest: "six decimal places",
        })?;
        u64::try_from(millionths)
            .map(|millionths| Self { millionths })
            .map_err(|_| HumanError::TooLarge)
    }
}

impl fmt::Display for HumanDecimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:06}", self.millionths % 1_000_000);
        let fraction = fraction.trim_end_matches('0');
        let fraction = if fraction.is_empty() { "0" } else { fraction };
        write!(formatter, "{}.{fraction}", self.millionths / 1_000_000)
    }
}

impl Serialize for HumanDecimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

/// A decimal number without sign or exponent: `digits` ÷ 10^`places`.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// Reads a number at the start of `text` and gives back what follows it.
    fn take(text: &str) -> Result<(Self, &str), HumanError> {
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, after) = text.split_at(end);
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction.trim_end_matches('0')),
            Some(_) => return Err(HumanError::NoNumber),
            None => (number, ""),
        };
        if whole.is_empty() || fraction.contains('.') {
            return Err(HumanError::NoNumber);
        }
        let digits = [whole, fraction]
            .concat()
            .parse::<u128>()
            .map_err(|_| HumanError::TooLarge)?;
        let places = u32::try_from(fraction.len()).map_err(|_| HumanError::TooLarge)?;
        Ok((Self { digits, places }, after))
    }

    /// This many units of `size`, or nothing when that is not a whole number.
    fn times(self, size: u64) -> Result<Option<u128>, HumanError> {
        let product = self
            .digits
            .checked_mul(u128::from(size))
            .ok_or(HumanError::TooLarge)?;
        let divisor = 10_u128.checked_pow(self.places).ok_or(HumanError::TooFine {
            smallest: "can be held",
        })?;
        Ok((product % divisor == 0).then_some(product / divisor))
    }
}

fn start(text: &str) -> Result<&str, HumanError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(HumanError::Empty);
    }
    if text.starts_with('-') {
        return Err(HumanError::Negative);
    }
    Ok(text)
}

macro_rules! serde_as_text {
    ($type:ty, $expected:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl de::Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                        formatter.write_str($expected)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                        self.visit_str(&number.to_string())
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                        self.visit_str(&number.to_string())
                    }
                }

                deserializer.deserialize_any(Text)
            }
        }
    };
}

serde_as_text!(HumanDuration, "a duration such as 5s, 2m or 1.5h");
serde_as_text!(HumanSize, "a size such as 512Mi or 24Gi");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn duration(text: &str) -> Result<Duration, HumanError> {
        text.parse::<HumanDuration>().map(HumanDuration::get)
    }

    fn size(text: &str) -> Result<u64, HumanError> {
        text.parse::<HumanSize>().map(HumanSize::bytes)
    }

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, milliseconds) in [
            ("5s", 5_000),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("1d", 86_400_000),
            ("0", 0),
            ("0s", 0),
            ("30", 30_000),
            ("0.5", 500),
            (" 10 s ", 10_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("512Mi", 512 << 20),
            ("24Gi", 24 << 30),
            ("1.5Gi", 1536 << 20),
            ("1k", 1000),
            ("10MB", 10_000_000),
            ("4KiB", 4096),
            ("0", 0),
            ("17", 17),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_and_says_why() {
        assert_eq!(duration(""), Err(HumanError::Empty));
        assert_eq!(duration("-5s"), Err(HumanError::Negative));
        assert_eq!(duration("s"), Err(HumanError::NoNumber));
        assert_eq!(duration("1."), Err(HumanError::NoNumber));
        assert_eq!(duration("1.2.3s"), Err(HumanError::NoNumber));
        assert_eq!(duration("NaN"), Err(HumanError::NoNumber));
        assert_eq!(duration("30m1h"), Err(HumanError::Order));
        assert_eq!(duration("1h1h"), Err(HumanError::Order));
        assert_eq!(
            duration("0.1ns"),
            Err(HumanError::TooFine {
                smallest: "a nanosecond"
            })
        );
        assert_eq!(duration("600y").map_err(|e| e.to_string()), {
            Err("unit \"y\" is not known: use ns, us, ms, s, m, h or d".to_owned())
        });
        assert!(matches!(duration("1e400"), Err(HumanError::UnknownUnit { .. })));
        assert!(matches!(duration("1h30"), Err(HumanError::UnknownUnit { .. })));
        assert_eq!(duration("300000d"), Err(HumanError::TooLarge));
        assert_eq!(size("16Ei"), Err(HumanError::TooLarge));
        assert_eq!(size("0.3"), Err(HumanError::TooFine { smallest: "a byte" }));
        assert!(matches!(size("5m"), Err(HumanError::UnknownUnit { .. })));
        assert_eq!(size(&"9".repeat(60)), Err(HumanError::TooLarge));
        assert!(size(&format!("0.{}1", "0".repeat(60))).is_err());
    }

    #[test]
    fn decimals_are_exact() {
        let read = |text: &str| text.parse::<HumanDecimal>().map(HumanDecimal::millionths);
        assert_eq!(read("1.0"), Ok(1_000_000));
        assert_eq!(read("1.1"), Ok(1_100_000));
        assert_eq!(read("0.000001"), Ok(1));
        assert!(matches!(read("0.0000001"), Err(HumanError::TooFine { .. })));
        assert!(matches!(read("1e3"), Err(HumanError::NoUnit { .. })));
        assert_eq!(read("-1"), Err(HumanError::Negative));
        assert_eq!(read("inf"), Err(HumanError::NoNumber));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanos: u64, bytes: u64) {
            let decimal = HumanDecimal { millionths: bytes };
            prop_assert_eq!(decimal.to_string().parse(), Ok(decimal));
            let written = HumanDuration(Duration::from_nanos(nanos)).to_string();
            prop_assert_eq!(duration(&written), Ok(Duration::from_nanos(nanos)));
            prop_assert_eq!(size(&HumanSize(bytes).to_string()), Ok(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", number in "[0-9.]{0,50}[a-zA-Zµ]{0,3}") {
            let _ = (duration(&text), size(&text), duration(&number), size(&number));
        }
    }
}
