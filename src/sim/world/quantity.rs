//! Kubernetes quantities as exact integers, rounded once: requests up, capacity down.

use serde_json::Value;

/// Which way a fraction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// For what is asked.
    Up,
    /// For what there is.
    Down,
}

/// The amount a resource has: thousandths for `cpu`, plain units for everything else. `None` when it
/// makes no sense, is negative, or does not fit 64 bits.
#[must_use]
pub fn amount(resource: &str, value: &Value, rounding: Rounding) -> Option<i64> {
    let scale = if resource == "cpu" { 1000 } else { 1 };
    match value {
        Value::String(text) => parse(text, scale, rounding),
        Value::Number(number) => parse(&number.to_string(), scale, rounding),
        _ => None,
    }
}

/// Reads a quantity and multiplies it by `scale`.
#[must_use]
pub fn parse(text: &str, scale: i128, rounding: Rounding) -> Option<i64> {
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+' || c == '-'))
        .unwrap_or(text.len());
    let (number, suffix) = (text.get(..split)?, text.get(split..)?);
    let (digits, decimals) = digits(number)?;
    let (numerator, denominator) = factor(suffix)?;
    let numerator = digits.checked_mul(numerator)?.checked_mul(scale)?;
    let denominator = denominator.checked_mul(10i128.checked_pow(decimals)?)?;
    let rounded = match rounding {
        Rounding::Down => numerator / denominator,
        Rounding::Up => numerator.checked_add(denominator - 1)? / denominator,
    };
    i64::try_from(rounded).ok()
}

/// The digits as one integer, and how many of them stand behind the point.
fn digits(number: &str) -> Option<(i128, u32)> {
    let number = number.strip_prefix('+').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    if (whole.is_empty() && !number.contains('.')) || whole.len() > 19 || fraction.len() > 9 {
        return None;
    }
    if !whole.chars().chain(fraction.chars()).all(|c| c.is_ascii_digit()) || number == "." {
        return None;
    }
    let joined = format!("{whole}{fraction}");
    let value = if joined.is_empty() {
        0
    } else {
        joined.parse().ok()?
    };
    Some((value, u32::try_from(fraction.len()).ok()?))
}

/// A suffix as a fraction.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    let power = |base: i128, exponent: u32| base.checked_pow(exponent);
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, power(1000, 3)?),
        "u" => (1, power(1000, 2)?),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (power(1000, 2)?, 1),
        "G" => (power(1000, 3)?, 1),
        "T" => (power(1000, 4)?, 1),
        "P" => (power(1000, 5)?, 1),
        "E" => (power(1000, 6)?, 1),
        "Ki" => (1024, 1),
        "Mi" => (power(1024, 2)?, 1),
        "Gi" => (power(1024, 3)?, 1),
        "Ti" => (power(1024, 4)?, 1),
        "Pi" => (power(1024, 5)?, 1),
        "Ei" => (power(1024, 6)?, 1),
        exponent => {
            let digits: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let size = 10i128.checked_pow(digits.unsigned_abs())?;
            if digits < 0 { (1, size) } else { (size, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_up_and_capacity_rounds_down() {
        let cases: [(&str, i128, i64, i64); 11] = [
            ("1", 1000, 1000, 1000),
            ("250m", 1000, 250, 250),
            ("0.0001", 1000, 1, 0),
            ("1.5", 1, 2, 1),
            ("24Gi", 1, 25_769_803_776, 25_769_803_776),
            ("1e3", 1, 1000, 1000),
            ("5E-1", 1, 1, 0),
            ("100n", 1000, 1, 0),
            ("1.5Ki", 1, 1536, 1536),
            (".5", 1000, 500, 500),
            ("+3", 1, 3, 3),
        ];
        for (text, scale, up, down) in cases {
            assert_eq!(parse(text, scale, Rounding::Up), Some(up), "{text}");
            assert_eq!(parse(text, scale, Rounding::Down), Some(down), "{text}");
        }
    }

    #[test]
    fn nonsense_is_no_amount() {
        for text in [
            "",
            "-1",
            "abc",
            "1e400",
            "9999999999E",
            "1.2.3",
            ".",
            "1Xi",
            "e5",
            "٣",
        ] {
            assert_eq!(parse(text, 1000, Rounding::Up), None, "{text}");
        }
    }
}
