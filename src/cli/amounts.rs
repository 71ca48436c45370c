//! Amounts, sizes and ages as people read them.

use std::time::Duration;

use jiff::Timestamp;

use crate::domain::inventory::Quantity;

/// Shown for what is not known, which is not zero.
const UNKNOWN: &str = "?";

/// Cores out of millicpu: `64`, `0.5`, `63.75`.
#[must_use]
pub fn cores(millicpu: i64) -> String {
    let sign = if millicpu < 0 { "-" } else { "" };
    let (whole, rest) = (millicpu.unsigned_abs() / 1000, millicpu.unsigned_abs() % 1000);
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let fraction = format!("{rest:03}");
    format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
}

/// A size with a binary unit, cut to one decimal, exact where it can be: `256Gi`, `1.5Ti`, `17`.
#[must_use]
pub fn size(bytes: i64) -> String {
    const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let sign = if bytes < 0 { "-" } else { "" };
    let bytes = bytes.unsigned_abs();
    let (mut unit, mut step) = (0, 1u64);
    while unit + 1 < UNITS.len() && bytes / step >= 1024 {
        unit += 1;
        step = step.saturating_mul(1024);
    }
    let tenth = u64::try_from(u128::from(bytes % step) * 10 / u128::from(step)).unwrap_or_default();
    let name = UNITS.get(unit).copied().unwrap_or_default();
    match tenth {
        0 => format!("{sign}{}{name}", bytes / step),
        tenth => format!("{sign}{}.{tenth}{name}", bytes / step),
    }
}

/// A plain count.
#[must_use]
pub fn count(amount: i64) -> String {
    amount.to_string()
}

/// What is free out of what there is; −1 allocatable is without limit.
#[must_use]
pub fn free_of(quantity: &Quantity, show: fn(i64) -> String) -> String {
    let Some(allocatable) = quantity.allocatable else {
        return UNKNOWN.to_owned();
    };
    if allocatable == -1 {
        return "unlimited".to_owned();
    }
    let taken = quantity
        .allocated
        .zip(quantity.reserved)
        .and_then(|(a, r)| a.checked_add(r));
    let free = taken
        .and_then(|taken| allocatable.checked_sub(taken))
        .map_or_else(|| UNKNOWN.to_owned(), show);
    format!("{free}/{}", show(allocatable))
}

/// How long, in its two largest units: `3d4h`, `2m5s`, `12s`, `40ms`.
#[must_use]
pub fn span(duration: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let seconds = duration.as_secs();
    if seconds == 0 {
        return format!("{}ms", duration.subsec_millis());
    }
    let first = UNITS
        .iter()
        .position(|(_, length)| seconds >= *length)
        .unwrap_or(3);
    let mut rest = seconds;
    let mut text = String::new();
    for (name, length) in UNITS.iter().skip(first).take(2) {
        let amount = rest / length;
        rest %= length;
        if amount > 0 {
            text.push_str(&format!("{amount}{name}"));
        }
    }
    text
}

/// How long ago; a time to come is now.
#[must_use]
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    span(elapsed)
}

/// How old, where that is known.
#[must_use]
pub fn age_ms(milliseconds: Option<u64>) -> String {
    milliseconds.map_or_else(|| UNKNOWN.to_owned(), |age| span(Duration::from_millis(age)))
}

/// A number, where it is known.
#[must_use]
pub fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

/// Yes or no.
#[must_use]
pub fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        assert_eq!(
            [64_000, 500, 63_750, 1, 0, -1500].map(cores),
            ["64", "0.5", "63.75", "0.001", "0", "-1.5"]
        );
        assert_eq!(
            [
                256 << 30,
                3 << 39,
                17,
                1023,
                1024,
                1 << 60,
                i64::MAX,
                0,
                -(1 << 20)
            ]
            .map(size),
            ["256Gi", "1.5Ti", "17", "1023", "1Ki", "1Ei", "7.9Ei", "0", "-1Mi"]
        );
        assert_eq!(size(i64::MIN), "-8Ei");
        assert_eq!(cores(i64::MIN), "-9223372036854775.808");
    }

    #[test]
    fn unknown_is_shown_as_unknown_and_never_as_zero() {
        let quantity = |allocatable, allocated, reserved| Quantity {
            allocatable,
            allocated,
            reserved,
        };
        assert_eq!(free_of(&quantity(Some(8), Some(3), Some(1)), count), "4/8");
        assert_eq!(free_of(&quantity(Some(8), None, Some(1)), count), "?/8");
        assert_eq!(free_of(&quantity(None, Some(1), Some(1)), count), "?");
        assert_eq!(free_of(&quantity(Some(-1), Some(3), Some(1)), count), "unlimited");
        assert_eq!(
            free_of(&quantity(Some(i64::MIN), Some(i64::MAX), Some(1)), count),
            "?/-9223372036854775808"
        );
        assert_eq!(age_ms(None), "?");
    }

    #[test]
    fn spans_have_two_units_at_most() {
        let spans =
            [0, 40, 12_000, 125_000, 3_600_000, 273_900_000].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(spans, ["0ms", "40ms", "12s", "2m5s", "1h", "3d4h"]);
        assert_eq!(age(Timestamp::MAX, Timestamp::UNIX_EPOCH), "0ms");
    }
}
