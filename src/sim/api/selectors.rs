//! Label and field selectors.

use serde_json::Value;

use super::{kinds::Kind, request::Parameters};
use crate::sim::objects::Refusal;

/// What a list or watch selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
    namespace: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    pointer: String,
    value: String,
    equal: bool,
}

impl Selection {
    /// Reads `labelSelector` and `fieldSelector`; an empty namespace selects all.
    pub fn read(kind: &Kind, namespace: &str, query: &Parameters) -> Result<Self, Refusal> {
        let mut selection = Self {
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            ..Self::default()
        };
        if let Some(text) = query.get("labelSelector") {
            selection.labels = parse_labels(text)?;
        }
        if let Some(text) = query.get("fieldSelector") {
            selection.fields = parse_fields(kind, query, text)?;
        }
        Ok(selection)
    }

    /// The labels of a selector alone, such as a budget's.
    pub fn of_labels(text: &str) -> Result<Self, Refusal> {
        Ok(Self {
            labels: parse_labels(text)?,
            ..Self::default()
        })
    }

    /// True when it selects by labels or fields, so that a count of the rest cannot be known cheaply.
    #[must_use]
    pub fn is_selective(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// True when the object is selected.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let metadata = object.get("metadata");
        if let Some(namespace) = &self.namespace {
            let present = metadata.and_then(|metadata| metadata.get("namespace"));
            if present.and_then(Value::as_str) != Some(namespace) {
                return false;
            }
        }
        let labels = metadata.and_then(|metadata| metadata.get("labels"));
        self.labels.iter().all(|requirement| requirement.matches(labels))
            && self.fields.iter().all(|field| field.matches(object))
    }
}

impl Requirement {
    fn matches(&self, labels: Option<&Value>) -> bool {
        let value = labels
            .and_then(|labels| labels.get(&self.key))
            .and_then(Value::as_str);
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Test::NotIn(values) => !value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, object: &Value) -> bool {
        let present = match object.pointer(&self.pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(Value::Number(number)) => number.to_string(),
            // Flags that are not set read as false, everything else as empty.
            _ if matches!(self.pointer.as_str(), "/spec/unschedulable" | "/spec/hostNetwork") => {
                "false".to_owned()
            }
            _ if self.pointer == "/status/replicas" || self.pointer == "/status/succeeded" => "0".to_owned(),
            _ => String::new(),
        };
        (present == self.value) == self.equal
    }
}

fn unreadable(text: &str, why: &str) -> Refusal {
    Refusal::bad_request(format!("unable to parse requirement: {why} in \"{text}\""))
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Result<Vec<&str>, Refusal> {
    let mut depth = 0_i32;
    let mut parts = Vec::new();
    let mut rest = text;
    let mut at = 0;
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                let (part, after) = rest.split_at_checked(index - at).unwrap_or((rest, ""));
                parts.push(part.trim());
                rest = after.strip_prefix(',').unwrap_or(after);
                at = index + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(unreadable(text, "unbalanced parentheses"));
        }
    }
    if depth != 0 {
        return Err(unreadable(text, "unbalanced parentheses"));
    }
    parts.push(rest.trim());
    Ok(parts)
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Refusal> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    split(text)?
        .into_iter()
        .map(|part| parse_label(text, part))
        .collect()
}

fn parse_label(text: &str, part: &str) -> Result<Requirement, Refusal> {
    let of = |key: &str, test: Test| {
        let key = key.trim();
        let known = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
        if key.is_empty() || !key.chars().all(known) {
            return Err(unreadable(text, &format!("invalid label key \"{key}\"")));
        }
        let key = key.to_owned();
        Ok(Requirement { key, test })
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some((head, tail)) = part.split_once('(') {
        let Some(values) = tail.strip_suffix(')') else {
            return Err(unreadable(text, "expected ')' at the end"));
        };
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => of(key, Test::In(values)),
            (Some(key), Some("notin"), None) => of(key, Test::NotIn(values)),
            _ => Err(unreadable(text, "expected 'in' or 'notin' before '('")),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return of(key, Test::NotIn(one(value)));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return of(key, Test::In(one(value)));
    }
    if let Some(key) = part.strip_prefix('!') {
        return of(key, Test::Missing);
    }
    of(part, Test::Exists)
}

fn parse_fields(kind: &Kind, query: &Parameters, text: &str) -> Result<Vec<FieldRequirement>, Refusal> {
    let mut requirements = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, value, equal) = if let Some((name, value)) = part.split_once("!=") {
            (name, value, false)
        } else if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (name, value, true)
        } else {
            let why = format!("invalid field selector: '{part}'; can't understand '{part}'");
            return Err(Refusal::bad_request(why));
        };
        let pointer = match name.trim() {
            "metadata.name" => Some("/metadata/name"),
            "metadata.namespace" => Some("/metadata/namespace"),
            other => kind
                .fields
                .iter()
                .find(|(known, _)| known == other)
                .map(|(_, pointer)| pointer.as_ref()),
        };
        let Some(pointer) = pointer else {
            let message = format!(
                "Unable to find {:?} that match label selector {:?}, field selector {:?}: field label not supported: {}",
                format!("{}, Resource={}", kind_version(kind), kind.plural),
                query.get("labelSelector").unwrap_or_default(),
                text,
                name.trim()
            );
            return Err(Refusal::bad_request(message));
        };
        requirements.push(FieldRequirement {
            pointer: pointer.to_owned(),
            value: value.trim().to_owned(),
            equal,
        });
    }
    Ok(requirements)
}

fn kind_version(kind: &Kind) -> String {
    format!("{}/{}", kind.group, kind.version)
}

/// A LabelSelector object as the text of a selector.
#[must_use]
pub fn selector_text(selector: &Value) -> String {
    let mut parts = Vec::new();
    for (key, value) in selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
        let values = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        let values = values.join(",");
        match expression.get("operator").and_then(Value::as_str) {
            Some("In") => parts.push(format!("{key} in ({values})")),
            Some("NotIn") => parts.push(format!("{key} notin ({values})")),
            Some("Exists") => parts.push(key.to_owned()),
            Some("DoesNotExist") => parts.push(format!("!{key}")),
            _ => {}
        }
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(text: &str, labels: Value) -> bool {
        let selection = Selection::of_labels(text).unwrap();
        selection.matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn label_selectors_select() {
        let web = || json!({"app": "web", "tier": "front"});
        assert!(selects("app=web", web()));
        assert!(selects("app==web,tier in (front, back)", web()));
        assert!(selects("app!=db,!gone,tier", web()));
        assert!(selects("zone notin (a,b)", web()));
        assert!(!selects("app in (db)", web()));
        assert!(!selects("app=web,zone", web()));
        assert!(!selects("!app", web()));
    }

    #[test]
    fn unreadable_label_selectors_are_refused() {
        for text in ["app in (a", "a)b", "=x", "a b", "x foo (y)", "a,,b"] {
            assert_eq!(Selection::of_labels(text).unwrap_err().code, 400, "{text}");
        }
    }

    #[test]
    fn a_selector_object_reads_as_its_text() {
        let selector = json!({"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "DoesNotExist"}]});
        assert_eq!(selector_text(&selector), "a=b,c in (d,e),!f");
    }
}
