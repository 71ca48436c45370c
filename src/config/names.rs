//! Texts that must be names: what they may hold, and why one is refused.

/// One word: no spaces, nothing invisible.
pub(super) fn plain_word(text: &str) -> Result<(), &'static str> {
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("it has spaces or control characters");
    }
    Ok(())
}

/// A DNS label, as Kubernetes names are.
pub(super) fn label(text: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty()
        || text.len() > 63
        || !text.chars().all(plain)
        || text.starts_with('-')
        || text.ends_with('-')
    {
        return Err("it is 1 to 63 of a-z, 0-9 and -, and - neither first nor last");
    }
    Ok(())
}

/// A domain name: labels with dots between them.
pub(super) fn domain(text: &str) -> Result<(), &'static str> {
    if text.len() > 253 || text.split('.').any(|part| label(part).is_err()) {
        return Err("it is labels of a-z, 0-9 and - with dots between them, at most 253 characters");
    }
    Ok(())
}
