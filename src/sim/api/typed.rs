//! Whether an object is of its kind: fields of the right type, and with `fieldValidation=Strict` no others.
//!
//! Only kinds without quantities are looked at: a real server takes `cpu: 1` as well as `cpu: "1"`, which the
//! types used here do not, and to refuse what a real one takes would be worse than to take a little more.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace, Secret, Service, ServiceAccount},
    networking::v1::{Ingress, NetworkPolicy},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Call, answer};
use crate::sim::objects::Refusal;

type Read = fn(&[u8]) -> Result<Value, serde_json::Error>;

fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_slice::<T>(bytes)?)
}

fn reader(group: &str, kind: &str) -> Option<Read> {
    Some(match (group, kind) {
        ("", "ConfigMap") => read::<ConfigMap>,
        ("", "Namespace") => read::<Namespace>,
        ("", "Secret") => read::<Secret>,
        ("", "Service") => read::<Service>,
        ("", "ServiceAccount") => read::<ServiceAccount>,
        ("coordination.k8s.io", "Lease") => read::<Lease>,
        ("networking.k8s.io", "Ingress") => read::<Ingress>,
        ("networking.k8s.io", "NetworkPolicy") => read::<NetworkPolicy>,
        ("rbac.authorization.k8s.io", "ClusterRole") => read::<ClusterRole>,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => read::<ClusterRoleBinding>,
        ("rbac.authorization.k8s.io", "Role") => read::<Role>,
        ("rbac.authorization.k8s.io", "RoleBinding") => read::<RoleBinding>,
        _ => return None,
    })
}

/// Refuses an object that is not of its kind.
pub fn check(call: &Call, object: &Value) -> Result<(), Refusal> {
    let (group, kind) = (call.kind.group.as_ref(), call.kind.kind.as_ref());
    let Some(read) = reader(group, kind) else {
        return Ok(());
    };
    let typed = read(&answer::to_bytes(object)?).map_err(|error| {
        let version = call.kind.version.as_ref();
        Refusal::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
        ))
    })?;
    if call.query.get("fieldValidation") == Some("Strict")
        && let Some(field) = unknown_field(object, &typed, "")
    {
        return Err(Refusal::bad_request(format!(
            "strict decoding error: unknown field \"{field}\""
        )));
    }
    Ok(())
}

/// The first field that was sent and that the kind does not have.
fn unknown_field(sent: &Value, typed: &Value, at: &str) -> Option<String> {
    match (sent, typed) {
        (Value::Object(sent), Value::Object(typed)) => sent.iter().find_map(|(key, value)| {
            let path = if at.is_empty() {
                key.clone()
            } else {
                format!("{at}.{key}")
            };
            match typed.get(key) {
                Some(typed) => unknown_field(value, typed, &path),
                // What is null may be left out.
                None => (!value.is_null()).then_some(path),
            }
        }),
        (Value::Array(sent), Value::Array(typed)) => {
            let pairs = sent.iter().zip(typed).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (sent, typed))| unknown_field(sent, typed, &format!("{at}[{index}]")))
        }
        _ => None,
    }
}
