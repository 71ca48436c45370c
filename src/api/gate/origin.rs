//! A listener on loopback is called by its own name only. A page from elsewhere that makes a browser
//! call it, or a name that was bound to 127.0.0.1 (DNS rebinding), is refused.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Uri, header, uri::Authority};

use super::Surface;
use crate::api::errors::ApiError;

/// Whether Host and Origin belong here. gRPC needs no Host: no browser speaks it to us, and clients in
/// memory have none; an Origin is a browser's and is checked all the same.
pub(crate) fn check(surface: Surface, headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
    if surface == Surface::Health {
        return Ok(());
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (uri.authority(), hosts.next(), hosts.next()) {
        (_, _, Some(_)) | (None, None, None) => None,
        (Some(authority), _, None) => Some(authority.clone()),
        (None, Some(host), None) => host.to_str().ok().and_then(|text| text.parse().ok()),
    };
    for origin in headers.get_all(header::ORIGIN) {
        let page = origin
            .to_str()
            .ok()
            .and_then(|text| text.parse::<Uri>().ok())
            .filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
            .and_then(|uri| uri.authority().cloned());
        // Another port is another origin: a page served by some other program of this machine is no friend.
        if !page.is_some_and(|page| is_local(&page) && host.as_ref() == Some(&page)) {
            return Err(foreign("Origin", headers, &header::ORIGIN));
        }
    }
    if surface == Surface::Grpc || host.is_some_and(|authority| is_local(&authority)) {
        Ok(())
    } else {
        Err(foreign("Host", headers, &header::HOST))
    }
}

fn is_local(authority: &Authority) -> bool {
    let host = authority.host();
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    // A user part has no place in either header.
    !authority.as_str().contains('@')
        && (bare.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()))
}

fn foreign(name: &'static str, headers: &HeaderMap, header: &HeaderName) -> ApiError {
    let value = headers
        .get(header)
        .map(|value| {
            String::from_utf8_lossy(value.as_bytes())
                .chars()
                .take(80)
                .collect()
        })
        .unwrap_or_default();
    ApiError::Foreign { header: name, value }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn ask(host: Option<&'static str>, origin: Option<&'static str>) -> Result<(), ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, HeaderValue::from_static(host));
        }
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        check(Surface::Http, &headers, &Uri::from_static("/api/v1/status"))
    }

    #[test]
    fn our_own_names_are_welcome() {
        for host in [
            "127.0.0.1:7071",
            "localhost:7071",
            "LOCALHOST",
            "[::1]:7071",
            "127.1.2.3",
        ] {
            assert_eq!(ask(Some(host), None), Ok(()), "{host}");
        }
        assert_eq!(ask(Some("localhost:7071"), Some("http://LOCALHOST:7071")), Ok(()));
    }

    #[test]
    fn foreign_names_are_refused() {
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "localhost@evil.example",
            "evil@localhost",
            "10.0.0.1",
            "",
        ] {
            assert!(ask(Some(host), None).is_err(), "{host}");
        }
        assert!(ask(None, None).is_err());
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1",
            "http://evil.example",
            "null",
            "file://",
            "http://127.0.0.1.evil.example",
            "",
        ] {
            assert!(ask(Some("localhost"), Some(origin)).is_err(), "{origin}");
        }
    }
}
