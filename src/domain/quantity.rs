//! Kubernetes quantities, exactly: `500m`, `1.5Gi`, `2e3`, `0.1`, `1Ei` … Rounding happens once, here.

use thiserror::Error;

/// Which way to round what does not come out even: what is asked for goes up, what there is goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// For requests.
    Up,
    /// For capacities.
    Down,
}

/// Why a text is not a quantity we can count with.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// It is empty.
    #[error("the quantity is empty")]
    Empty,
    /// It is no quantity.
    #[error("{text:?} is not a quantity such as 500m, 2 or 1.5Gi")]
    Malformed {
        /// The text, shortened.
        text: String,
    },
    /// It is below zero.
    #[error("{text:?} is negative")]
    Negative {
        /// The text, shortened.
        text: String,
    },
    /// It is beyond what can be counted.
    #[error("{text:?} is beyond 9223372036854775807")]
    TooLarge {
        /// The text, shortened.
        text: String,
    },
}

/// A quantity in whole units: bytes, cards, pods.
pub fn parse_units(text: &str, rounding: Rounding) -> Result<i64, QuantityError> {
    parse_scaled(text, 0, rounding)
}

/// A quantity in thousandths: millicpu.
pub fn parse_milli(text: &str, rounding: Rounding) -> Result<i64, QuantityError> {
    parse_scaled(text, 3, rounding)
}

/// The longest text that is looked at; the longest honest quantity is far shorter.
const LONGEST: usize = 64;

/// `text` × 10^`scale`, as an integer. Exact but for the one rounding.
fn parse_scaled(text: &str, scale: i32, rounding: Rounding) -> Result<i64, QuantityError> {
    let shown = || text.chars().take(32).collect::<String>();
    let malformed = || QuantityError::Malformed { text: shown() };
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    if text.len() > LONGEST || !text.is_ascii() {
        return Err(malformed());
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number_end = unsigned
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(malformed());
    }
    let (binary, decimal) = multiplier(suffix).ok_or_else(malformed)?;
    let digits: Vec<u32> = whole
        .chars()
        .chain(fraction.chars())
        .filter_map(|digit| digit.to_digit(10))
        .collect();
    if digits.iter().all(|digit| *digit == 0) {
        return Ok(0);
    }
    if negative {
        return Err(QuantityError::Negative { text: shown() });
    }
    let too_large = || QuantityError::TooLarge { text: shown() };
    let exponent =
        i64::from(decimal) + i64::from(scale) - i64::try_from(fraction.len()).map_err(|_| malformed())?;
    // digits × 2^binary × 10^exponent, with the division last, so that nothing is lost before it.
    let mut mantissa: u128 = 0;
    for digit in digits {
        mantissa = mantissa
            .checked_mul(10)
            .and_then(|m| m.checked_add(u128::from(digit)))
            .ok_or_else(too_large)?;
    }
    let (quotient, rest) = if exponent >= 0 {
        let factor = u32::try_from(exponent)
            .ok()
            .and_then(|e| 10_u128.checked_pow(e))
            .ok_or_else(too_large)?;
        let value = mantissa
            .checked_mul(factor)
            .and_then(|m| m.checked_mul(1 << binary))
            .ok_or_else(too_large)?;
        (value, 0)
    } else {
        divide(mantissa, binary, exponent.unsigned_abs())
    };
    let rounded = match rounding {
        Rounding::Up if rest > 0 => quotient.checked_add(1).ok_or_else(too_large)?,
        Rounding::Up | Rounding::Down => quotient,
    };
    i64::try_from(rounded).map_err(|_| too_large())
}

/// `mantissa` × 2^`binary` ÷ 10^`power`: the quotient, and whether anything is left.
fn divide(mantissa: u128, binary: u32, power: u64) -> (u128, u128) {
    let Some(divisor) = u32::try_from(power).ok().and_then(|p| 10_u128.checked_pow(p)) else {
        return (0, 1);
    };
    match mantissa.checked_mul(1 << binary) {
        Some(value) => (value / divisor, value % divisor),
        // More digits than the product can hold: the whole part and the rest are scaled apart.
        None => {
            let (high, low) = (mantissa / divisor, mantissa % divisor);
            let carried = low
                .checked_mul(1 << binary)
                .map_or((0, 1), |v| (v / divisor, v % divisor));
            (
                high.saturating_mul(1 << binary).saturating_add(carried.0),
                carried.1,
            )
        }
    }
}

/// The powers of two and of ten that a suffix stands for.
fn multiplier(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            (0, exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read_exactly() {
        for (text, units) in [
            ("0", 0),
            ("1", 1),
            ("+5", 5),
            ("1Ki", 1024),
            ("1.5Gi", 1_610_612_736),
            ("2e3", 2000),
            ("2E3", 2000),
            ("1E", 1_000_000_000_000_000_000),
            ("7Ei", 8_070_450_532_247_928_832),
            ("128974848000m", 128_974_848),
            (".5k", 500),
            ("5.", 5),
            ("9223372036854775807", i64::MAX),
            ("-0", 0),
        ] {
            assert_eq!(parse_units(text, Rounding::Up), Ok(units), "{text}");
            assert_eq!(parse_units(text, Rounding::Down), Ok(units), "{text}");
        }
        assert_eq!(parse_milli("0.1", Rounding::Down), Ok(100));
        assert_eq!(parse_milli("64", Rounding::Down), Ok(64_000));
        assert_eq!(parse_milli("250m", Rounding::Up), Ok(250));
    }

    #[test]
    fn requests_round_up_and_capacity_rounds_down() {
        for (text, down, up) in [
            ("1m", 0, 1),
            ("0.9", 0, 1),
            ("1500m", 1, 2),
            ("1.0000000001Ki", 1024, 1025),
        ] {
            assert_eq!(parse_units(text, Rounding::Down), Ok(down), "{text}");
            assert_eq!(parse_units(text, Rounding::Up), Ok(up), "{text}");
        }
        assert_eq!(parse_milli("1n", Rounding::Up), Ok(1));
        assert_eq!(parse_units("1e-999999999", Rounding::Up), Ok(1));
        assert_eq!(parse_units("1e-999999999", Rounding::Down), Ok(0));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "x", "1.2.3", "1 Gi", "Gi", ".", "1e", "1e+", "1ee3", "0x10", "NaN", "１", "1KiB", "--1", "+-1",
        ] {
            assert!(
                matches!(
                    parse_units(text, Rounding::Up),
                    Err(QuantityError::Malformed { .. })
                ),
                "{text}"
            );
        }
        assert_eq!(parse_units("", Rounding::Up), Err(QuantityError::Empty));
        assert!(matches!(
            parse_units("-1", Rounding::Up),
            Err(QuantityError::Negative { .. })
        ));
        for text in ["9223372036854775808", "8Ei", "10E", "1e400", "1e999999999"] {
            assert!(
                matches!(
                    parse_units(text, Rounding::Down),
                    Err(QuantityError::TooLarge { .. })
                ),
                "{text}"
            );
        }
    }
}
