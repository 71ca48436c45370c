//! What a request asks for: its path and query taken apart, as the real server's request info does.

use axum::extract::Query;
use http::{HeaderMap, Method, Uri, header};

use crate::sim::{faults::Target, objects::Refusal};

/// A path of the API, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version; empty for the list of groups.
    pub version: String,
    /// The plural; empty for discovery.
    pub plural: String,
    /// The namespace; empty when there is none in the path.
    pub namespace: String,
    /// The object's name; empty for a collection.
    pub name: String,
    /// What follows the name.
    pub subresource: String,
}

impl Place {
    /// Reads a path below `/api` or `/apis`; `None` for any other.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(decode)
            .collect();
        let mut segments = segments.into_iter();
        let mut place = Self::default();
        match segments.next()?.as_str() {
            "api" => {}
            "apis" => place.group = segments.next().unwrap_or_default(),
            _ => return None,
        }
        place.version = segments.next().unwrap_or_default();
        let rest: Vec<String> = segments.collect();
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let tail = match rest.as_slice() {
            ["namespaces", namespace, "status" | "finalize"] => {
                place.name = (*namespace).to_owned();
                place.plural = "namespaces".to_owned();
                place.subresource = rest.last().copied().unwrap_or_default().to_owned();
                return Some(place);
            }
            ["namespaces", namespace, tail @ ..] if !tail.is_empty() => {
                place.namespace = (*namespace).to_owned();
                tail
            }
            tail => tail,
        };
        let mut tail = tail.iter().copied();
        place.plural = tail.next().unwrap_or_default().to_owned();
        place.name = tail.next().unwrap_or_default().to_owned();
        place.subresource = tail.collect::<Vec<_>>().join("/");
        Some(place)
    }

    /// The Kubernetes verb of a request to this place.
    #[must_use]
    pub fn verb(&self, method: &Method, query: &Parameters) -> &'static str {
        let collection = self.name.is_empty();
        match *method {
            Method::GET | Method::HEAD if collection && query.flag("watch") => "watch",
            Method::GET | Method::HEAD if collection => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if collection => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        }
    }
}

/// What faults select requests by.
#[must_use]
pub fn target(method: &Method, uri: &Uri) -> Target {
    let Some(place) = Place::parse(uri.path()) else {
        return Target::default();
    };
    let query = Parameters::read(uri).unwrap_or_default();
    let verb = place.verb(method, &query).to_owned();
    let resource = if place.subresource.is_empty() {
        place.plural
    } else {
        format!("{}/{}", place.plural, place.subresource)
    };
    Target {
        verb,
        resource,
        namespace: place.namespace,
    }
}

fn decode(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = match (first, after) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |byte: &u8| {
                    char::from(*byte)
                        .to_digit(16)
                        .and_then(|digit| u8::try_from(digit).ok())
                };
                digit(high)
                    .zip(digit(low))
                    .map(|(high, low)| (high * 16 + low, tail))
            }
            _ => None,
        };
        let (byte, tail) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The query of a request. A parameter given twice counts once, the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads the query.
    pub fn read(uri: &Uri) -> Result<Self, Refusal> {
        Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map(|Query(pairs)| Self(pairs))
            .map_err(|error| Refusal::bad_request(format!("the query cannot be read: {error}")))
    }

    /// A parameter that is there and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// Every value of a parameter.
    pub fn every(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A parameter that is true.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.0
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .is_some_and(|(_, value)| matches!(value.as_str(), "" | "1" | "true" | "True" | "t"))
    }

    /// A whole number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Refusal> {
        self.get(name)
            .map(|text| {
                text.parse()
                    .map_err(|_| Refusal::bad_request(format!("invalid value for {name}: \"{text}\"")))
            })
            .transpose()
    }

    /// True when nothing shall be stored.
    pub fn dry_run(&self) -> Result<bool, Refusal> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let cause = crate::sim::objects::Cause::unsupported("dryRun", &other.into(), &["All"]);
                Err(Refusal::invalid("meta.k8s.io", "CreateOptions", "", vec![cause]))
            }
        }
    }
}

/// How the client wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Objects.
    Plain,
    /// A Table of what kubectl prints.
    Table,
    /// Metadata only.
    Metadata,
}

/// Reads the `Accept` header: JSON in one of its forms, or 406.
pub fn accepted(headers: &HeaderMap) -> Result<Format, Refusal> {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()) else {
        return Ok(Format::Plain);
    };
    for choice in accept.split(',') {
        let mut parts = choice.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let form = parts.find_map(|part| part.strip_prefix("as="));
        match (media, form) {
            ("application/json", Some("Table")) => return Ok(Format::Table),
            ("application/json", Some("PartialObjectMetadata" | "PartialObjectMetadataList")) => {
                return Ok(Format::Metadata);
            }
            ("application/json" | "*/*" | "application/*" | "", None) => return Ok(Format::Plain),
            _ => {}
        }
    }
    let message = "only the following media types are accepted: application/json, \
                   application/json;as=Table;v=v1;g=meta.k8s.io";
    Err(Refusal::new(406, "NotAcceptable", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> (String, String, String, String, String) {
        let place = Place::parse(path).unwrap();
        (
            place.group,
            place.namespace,
            place.plural,
            place.name,
            place.subresource,
        )
    }

    fn parts(
        group: &str,
        namespace: &str,
        plural: &str,
        name: &str,
        sub: &str,
    ) -> (String, String, String, String, String) {
        (
            group.into(),
            namespace.into(),
            plural.into(),
            name.into(),
            sub.into(),
        )
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(place("/api/v1/pods"), parts("", "", "pods", "", ""));
        assert_eq!(
            place("/api/v1/namespaces/a"),
            parts("", "", "namespaces", "a", "")
        );
        assert_eq!(
            place("/api/v1/namespaces/a/finalize"),
            parts("", "", "namespaces", "a", "finalize")
        );
        assert_eq!(
            place("/api/v1/namespaces/a/pods/b/log"),
            parts("", "a", "pods", "b", "log")
        );
        assert_eq!(
            place("/apis/apps/v1/namespaces/a/deployments/b/scale"),
            parts("apps", "a", "deployments", "b", "scale")
        );
        assert_eq!(
            place("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode"),
            parts("rbac.authorization.k8s.io", "", "clusterroles", "system:node", "")
        );
        assert_eq!(Place::parse("/version"), None);
    }

    #[test]
    fn a_client_that_reads_only_protobuf_is_told_so() {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::ACCEPT,
            "application/vnd.kubernetes.protobuf".parse().unwrap(),
        );
        assert_eq!(accepted(&headers).unwrap_err().code, 406);
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        headers.insert(header::ACCEPT, table.parse().unwrap());
        assert_eq!(accepted(&headers).unwrap(), Format::Table);
    }
}
