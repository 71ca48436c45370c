//! Namespaces and ServiceAccounts with real tokens, and what they did according to the audit log.

use std::{fs, path::PathBuf};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::Value;

use super::{
    control_plane::{ControlPlane, client},
    waiting::eventually,
};

/// A ServiceAccount that can log in.
#[derive(Debug, Clone)]
pub struct Account {
    /// The namespace it lives in.
    pub namespace: String,
    /// Its name there.
    pub name: String,
    /// A token of an hour.
    pub token: String,
    /// A kubeconfig with that token.
    pub kubeconfig: PathBuf,
}

impl Account {
    /// Its user name, as RBAC and the audit log know it.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// A client under this account.
    pub async fn client(&self) -> kube::Client {
        client(&self.kubeconfig).await
    }
}

/// One request as the API server recorded it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Audited {
    pub user: String,
    pub verb: String,
    pub group: String,
    /// With its subresource: `pods/eviction`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub code: u64,
}

impl ControlPlane {
    /// Makes a namespace with a name of its own, and waits until pods can be made in it.
    pub async fn namespace(&self, prefix: &str) -> String {
        let client = self.client().await;
        let wanted = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let made = Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &wanted)
            .await
            .expect("a namespace");
        let name = made.metadata.name.expect("a name");
        if self.has_controllers() {
            let accounts = Api::<ServiceAccount>::namespaced(client, &name);
            eventually("the namespace has its default ServiceAccount", || async {
                accounts.get_opt("default").await.ok().flatten()
            })
            .await;
        }
        name
    }

    /// A ServiceAccount (made if it is not there) with a token from the API server. It may do nothing yet.
    pub async fn account(&self, namespace: &str, name: &str) -> Account {
        let accounts = Api::<ServiceAccount>::namespaced(self.client().await, namespace);
        let wanted = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        if accounts.get_opt(name).await.expect("an answer").is_none() {
            accounts
                .create(&PostParams::default(), &wanted)
                .await
                .expect("a ServiceAccount");
        }
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .expect("a token");
        let token = answer.status.expect("a token").token;
        let kubeconfig = self
            .write_kubeconfig(&format!("{namespace}.{name}"), &token, None)
            .expect("the testbed's directory");
        Account {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            token,
            kubeconfig,
        }
    }

    /// Allows an account something, in the whole cluster.
    pub async fn allow(&self, account: &Account, rules: Vec<PolicyRule>) {
        let client = self.client().await;
        let metadata = ObjectMeta {
            name: Some(format!("{}.{}", account.namespace, account.name)),
            ..ObjectMeta::default()
        };
        let role = ClusterRole {
            metadata: metadata.clone(),
            rules: Some(rules),
            ..ClusterRole::default()
        };
        let binding = ClusterRoleBinding {
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: "ClusterRole".to_owned(),
                name: metadata.name.clone().unwrap_or_default(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: account.name.clone(),
                namespace: Some(account.namespace.clone()),
                ..Subject::default()
            }]),
            metadata,
        };
        let post = PostParams::default();
        Api::all(client.clone())
            .create(&post, &role)
            .await
            .expect("a role");
        Api::all(client).create(&post, &binding).await.expect("a binding");
    }

    /// Everything this account asked for so far, in order, as the audit log has it.
    pub fn audited(&self, account: &Account) -> Vec<Audited> {
        let user = account.user();
        let log = fs::read_to_string(self.audit_log()).unwrap_or_default();
        log.lines()
            // The last line may be half written.
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event.pointer("/user/username").and_then(Value::as_str) == Some(&user))
            .map(|event| audited(&event))
            .collect()
    }
}

fn audited(event: &Value) -> Audited {
    let text = |pointer: &str| {
        event
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let resource = text("/objectRef/resource");
    let subresource = text("/objectRef/subresource");
    Audited {
        user: text("/user/username"),
        verb: text("/verb"),
        group: text("/objectRef/apiGroup"),
        resource: match subresource.as_str() {
            "" => resource,
            subresource => format!("{resource}/{subresource}"),
        },
        namespace: text("/objectRef/namespace"),
        name: text("/objectRef/name"),
        code: event
            .pointer("/responseStatus/code")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
    }
}
