//! The manifests in `deploy/`, the Dockerfile and `deny.toml` hold what they promise.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

use std::{collections::BTreeSet, fs, path::PathBuf};

use freehold::config::{ClusterKind, Config, Sources};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::Deployment,
    core::v1::{
        ConfigMap, Container, Namespace, PersistentVolumeClaim, PodSpec, Probe, Service, ServiceAccount,
    },
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding},
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

const ACCOUNT: &str = "system:serviceaccount:freehold:freehold";

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn manifest_files() -> BTreeSet<String> {
    fs::read_dir(root("deploy"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml") && name != "kustomization.yaml")
        .collect()
}

/// Every object of every manifest, with the file it is in.
fn objects() -> Vec<(String, Value)> {
    let mut objects = Vec::new();
    for file in manifest_files() {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text(&format!("deploy/{file}")))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        objects.extend(documents.into_iter().map(|document| (file.clone(), document)));
    }
    objects
}

/// The objects of one kind, typed.
fn all<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    objects()
        .into_iter()
        .filter(|(_, object)| object["kind"] == kind)
        .map(|(_, object)| serde_json::from_value(object).unwrap())
        .collect()
}

fn one<T: DeserializeOwned>(kind: &str) -> T {
    let mut found = all(kind);
    assert_eq!(found.len(), 1, "one {kind}");
    found.remove(0)
}

fn pod() -> PodSpec {
    one::<Deployment>("Deployment")
        .spec
        .unwrap()
        .template
        .spec
        .unwrap()
}

fn container() -> Container {
    let mut containers = pod().containers;
    assert_eq!(containers.len(), 1);
    containers.remove(0)
}

fn config_text() -> String {
    one::<ConfigMap>("ConfigMap").data.unwrap()["freehold.yaml"].clone()
}

fn config() -> Config {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("freehold.yaml");
    fs::write(&file, config_text()).unwrap();
    let sources = Sources {
        file: Some(file),
        ..Sources::default()
    };
    Config::load(sources.with_environment([("KUBERNETES_SERVICE_HOST", "10.96.0.1")])).unwrap()
}

/// A field the type does not know is lost on the way, so what comes back must be what went in.
fn keeps_every_field<T: DeserializeOwned + Serialize>(file: &str, object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(&serde_json::to_value(typed).unwrap(), object, "{file}");
}

#[test]
fn every_manifest_is_an_object_of_its_type_without_unknown_fields() {
    let objects = objects();
    assert!(objects.len() >= 12);
    for (file, object) in &objects {
        match object["kind"].as_str().unwrap_or_default() {
            "Namespace" => keeps_every_field::<Namespace>(file, object),
            "ServiceAccount" => keeps_every_field::<ServiceAccount>(file, object),
            "ClusterRole" => keeps_every_field::<ClusterRole>(file, object),
            "ClusterRoleBinding" => keeps_every_field::<ClusterRoleBinding>(file, object),
            "Role" => keeps_every_field::<Role>(file, object),
            "RoleBinding" => keeps_every_field::<RoleBinding>(file, object),
            "ValidatingAdmissionPolicy" => keeps_every_field::<ValidatingAdmissionPolicy>(file, object),
            "ValidatingAdmissionPolicyBinding" => {
                keeps_every_field::<ValidatingAdmissionPolicyBinding>(file, object)
            }
            "ConfigMap" => keeps_every_field::<ConfigMap>(file, object),
            "PersistentVolumeClaim" => keeps_every_field::<PersistentVolumeClaim>(file, object),
            "Deployment" => keeps_every_field::<Deployment>(file, object),
            "Service" => keeps_every_field::<Service>(file, object),
            other => panic!("{file}: nobody checks a {other}"),
        }
    }
}

#[test]
fn the_kustomization_names_every_manifest() {
    let kustomization: Value = serde_saphyr::from_str(&text("deploy/kustomization.yaml")).unwrap();
    let named: BTreeSet<String> = serde_json::from_value(kustomization["resources"].clone()).unwrap();
    assert_eq!(named, manifest_files());
}

#[test]
fn every_object_is_in_a_namespace_we_make_or_in_none() {
    let namespaces: Vec<Namespace> = all("Namespace");
    let made: BTreeSet<String> = namespaces
        .into_iter()
        .filter_map(|namespace| namespace.metadata.name)
        .collect();
    assert_eq!(made, BTreeSet::from(["freehold".to_owned(), "lease".to_owned()]));
    assert!(made.contains(&config().cluster.manifest_namespace));
    for (file, object) in objects() {
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            assert!(made.contains(namespace), "{file}");
        }
    }
}

fn rules() -> Vec<PolicyRule> {
    let cluster = all::<ClusterRole>("ClusterRole")
        .into_iter()
        .filter_map(|role| role.rules);
    let own = all::<Role>("Role").into_iter().filter_map(|role| role.rules);
    cluster.chain(own).flatten().collect()
}

#[test]
fn the_rights_have_no_wildcards_no_escalation_and_no_secrets() {
    let rules = rules();
    assert!(!rules.is_empty());
    for rule in rules {
        let groups = rule.api_groups.clone().unwrap_or_default();
        let resources = rule.resources.clone().unwrap_or_default();
        let verbs = &rule.verbs;
        let words = groups.iter().chain(&resources).chain(verbs);
        assert!(words.clone().all(|word| !word.contains('*')), "{rule:?}");
        assert!(
            !groups.is_empty() && !resources.is_empty() && !verbs.is_empty(),
            "{rule:?}"
        );
        assert!(rule.non_resource_urls.is_none(), "{rule:?}");
        for forbidden in [
            "escalate",
            "bind",
            "impersonate",
            "deletecollection",
            "approve",
            "sign",
        ] {
            assert!(!verbs.iter().any(|verb| verb == forbidden), "{rule:?}");
        }
        for forbidden in [
            "secrets",
            "serviceaccounts/token",
            "nodes/proxy",
            "pods/exec",
            "certificatesigningrequests",
        ] {
            assert!(
                !resources.iter().any(|resource| resource == forbidden),
                "{rule:?}"
            );
        }
    }
}

/// S1 of the security figures: what is granted is what is used. A new verb comes here together with the code that needs it.
#[test]
fn the_rights_are_exactly_those_the_program_uses() {
    let granted: BTreeSet<String> = rules()
        .into_iter()
        .flat_map(|rule| {
            let resources = rule.resources.unwrap_or_default();
            let names = rule.resource_names.unwrap_or_default().join(",");
            let verbs = rule.verbs;
            resources.into_iter().flat_map(move |resource| {
                let names = names.clone();
                verbs
                    .clone()
                    .into_iter()
                    .map(move |verb| format!("{verb} {resource} {names}").trim().to_owned())
            })
        })
        .collect();
    let used = [
        "get nodes",
        "list nodes",
        "watch nodes",
        "get namespaces kube-system",
        "create tokenreviews",
        "create leases",
        "get leases freehold",
        "update leases freehold",
    ];
    assert_eq!(granted, used.map(str::to_owned).into());
}

#[test]
fn the_rights_go_to_our_account_only() {
    let account: ServiceAccount = one("ServiceAccount");
    assert_eq!(account.metadata.name.as_deref(), Some("freehold"));
    let cluster: ClusterRoleBinding = one("ClusterRoleBinding");
    let own: RoleBinding = one("RoleBinding");
    assert_eq!(
        (cluster.role_ref.kind.as_str(), cluster.role_ref.name.as_str()),
        ("ClusterRole", "freehold")
    );
    assert_eq!(
        (own.role_ref.kind.as_str(), own.role_ref.name.as_str()),
        ("Role", "freehold")
    );
    for subjects in [cluster.subjects, own.subjects] {
        let subjects = subjects.unwrap();
        assert_eq!(subjects.len(), 1);
        assert_eq!(
            (subjects[0].kind.as_str(), subjects[0].name.as_str()),
            ("ServiceAccount", "freehold")
        );
        assert_eq!(subjects[0].namespace.as_deref(), Some("freehold"));
    }
    assert_eq!(pod().service_account_name.as_deref(), Some("freehold"));
}

#[test]
fn the_admission_policy_confines_our_account_and_nobody_else() {
    let policy: ValidatingAdmissionPolicy = one("ValidatingAdmissionPolicy");
    let binding: ValidatingAdmissionPolicyBinding = one("ValidatingAdmissionPolicyBinding");
    let spec = policy.spec.unwrap();
    assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
    let conditions = spec.match_conditions.unwrap();
    assert_eq!(conditions.len(), 1);
    assert_eq!(
        conditions[0].expression,
        format!("request.userInfo.username == '{ACCOUNT}'")
    );
    let operations = &spec.match_constraints.unwrap().resource_rules.unwrap()[0];
    assert_eq!(operations.operations.as_ref().unwrap().len(), 4);
    assert_eq!(
        operations.resources.as_deref(),
        Some(["*/*".to_owned()].as_slice())
    );
    let variables = spec.variables.unwrap();
    let defined: Vec<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
    let validations = spec.validations.unwrap();
    let expressions = variables
        .iter()
        .map(|variable| &variable.expression)
        .chain(validations.iter().map(|validation| &validation.expression))
        .chain(
            validations
                .iter()
                .filter_map(|validation| validation.message_expression.as_ref()),
        );
    for expression in expressions {
        assert!(!expression.contains('\n'), "{expression}");
        for name in expression.split("variables.").skip(1) {
            let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
            assert!(defined.contains(&name.as_str()), "{name}");
        }
    }
    let ours = variables.iter().find(|variable| variable.name == "ours").unwrap();
    for namespace in ["freehold", config().cluster.manifest_namespace.as_str()] {
        assert!(ours.expression.contains(&format!("'{namespace}'")), "{namespace}");
    }
    let binding = binding.spec.unwrap();
    assert_eq!(binding.policy_name, policy.metadata.name);
    assert_eq!(binding.validation_actions, Some(vec!["Deny".to_owned()]));
}

#[test]
fn the_deployment_is_one_replica_that_is_replaced_and_never_doubled() {
    let spec = one::<Deployment>("Deployment").spec.unwrap();
    assert_eq!(spec.replicas, Some(1));
    let strategy = spec.strategy.unwrap();
    assert_eq!(strategy.type_.as_deref(), Some("Recreate"));
    assert!(strategy.rolling_update.is_none());
    // An orderly stop takes up to 25 s.
    assert!(pod().termination_grace_period_seconds.unwrap() >= 30);
    assert_eq!(pod().enable_service_links, Some(false));
}

#[test]
fn the_container_is_not_root_and_its_root_is_read_only() {
    let pod = pod();
    assert!(pod.host_network.is_none() && pod.host_pid.is_none() && pod.host_ipc.is_none());
    let security = pod.security_context.unwrap();
    assert_eq!(security.run_as_non_root, Some(true));
    assert!(security.run_as_user.unwrap() > 0);
    assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault");
    let container = container();
    let own = container.security_context.unwrap();
    assert_eq!(own.read_only_root_filesystem, Some(true));
    assert_eq!(own.allow_privilege_escalation, Some(false));
    let capabilities = own.capabilities.unwrap();
    assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
    assert!(capabilities.add.is_none());
    let resources = container.resources.unwrap();
    assert!(
        resources
            .requests
            .is_some_and(|asked| asked.contains_key("cpu") && asked.contains_key("memory"))
    );
    assert!(
        resources
            .limits
            .is_some_and(|limits| limits.contains_key("memory"))
    );
    let mounts = container.volume_mounts.unwrap();
    let writable: Vec<&str> = mounts
        .iter()
        .filter(|mount| mount.read_only != Some(true))
        .map(|mount| mount.mount_path.as_str())
        .collect();
    assert_eq!(writable, ["/var/lib/freehold"]);
    for volume in pod.volumes.unwrap() {
        assert!(volume.host_path.is_none(), "{}", volume.name);
        assert!(
            mounts.iter().any(|mount| mount.name == volume.name),
            "{}",
            volume.name
        );
    }
}

#[test]
fn the_image_is_this_version() {
    let image = container().image.unwrap();
    assert_eq!(image, format!("freehold:{}", freehold::VERSION));
    assert!(text("deploy/README.md").contains(&image));
}

#[test]
fn the_config_loads_strictly_and_means_a_real_cluster() {
    let config = config();
    assert_eq!(config.cluster.kind, ClusterKind::Kubernetes);
    config.refuse_simulation_in_pod().unwrap();
    let args = container().args.unwrap();
    let mounts = container().volume_mounts.unwrap();
    let mount_of = |name: &str| {
        mounts
            .iter()
            .find(|mount| mount.name == name)
            .unwrap()
            .mount_path
            .clone()
    };
    assert!(args.contains(&format!("{}/freehold.yaml", mount_of("config"))));
    assert!(config.store.path.starts_with(mount_of("store")));
    assert!(config.store.key_file.starts_with(mount_of("store")));
    assert!(!config.store.key_file.starts_with(&config.store.path));
    let tls = &config.api.tls;
    for file in [&tls.cert_file, &tls.key_file, &tls.client_ca_file] {
        assert!(file.as_ref().unwrap().starts_with(mount_of("tls")));
    }
}

#[test]
fn the_volumes_name_objects_that_are_here_or_in_the_readme() {
    let volumes = pod().volumes.unwrap();
    let claim: PersistentVolumeClaim = one("PersistentVolumeClaim");
    let map: ConfigMap = one("ConfigMap");
    let named = volumes
        .iter()
        .find_map(|volume| volume.persistent_volume_claim.as_ref())
        .unwrap();
    assert_eq!(Some(&named.claim_name), claim.metadata.name.as_ref());
    let named = volumes
        .iter()
        .find_map(|volume| volume.config_map.as_ref())
        .unwrap();
    assert_eq!(Some(&named.name), map.metadata.name.as_ref());
    let secret = volumes.iter().find_map(|volume| volume.secret.as_ref()).unwrap();
    assert_eq!(secret.default_mode, Some(0o440));
    assert!(text("deploy/README.md").contains(secret.secret_name.as_ref().unwrap()));
}

#[test]
fn the_ports_of_config_container_probes_and_service_agree() {
    let config = config();
    let api = &config.api;
    let configured = [
        ("grpc", api.grpc.listen),
        ("http", api.http.listen),
        ("health", api.health.listen.unwrap()),
    ];
    let container = container();
    let ports = container.ports.unwrap();
    let service = one::<Service>("Service").spec.unwrap().ports.unwrap();
    assert_eq!((ports.len(), service.len()), (3, 3));
    for (name, listen) in configured {
        assert!(listen.ip().is_unspecified(), "{name}");
        let port = ports
            .iter()
            .find(|port| port.name.as_deref() == Some(name))
            .unwrap();
        assert_eq!(port.container_port, i32::from(listen.port()), "{name}");
        let port = service
            .iter()
            .find(|port| port.name.as_deref() == Some(name))
            .unwrap();
        assert_eq!(port.target_port, Some(IntOrString::String(name.to_owned())));
        assert_eq!(port.port, i32::from(listen.port()), "{name}");
    }
    let path_of = |probe: Option<Probe>| {
        let get = probe.unwrap().http_get.unwrap();
        assert_eq!(get.port, IntOrString::String("health".to_owned()));
        assert!(get.scheme.is_none(), "health is plain");
        get.path.unwrap()
    };
    assert_eq!(path_of(container.startup_probe), "/livez");
    assert_eq!(path_of(container.liveness_probe), "/livez");
    assert_eq!(path_of(container.readiness_probe), "/readyz");
}

#[test]
fn the_selectors_match_the_pods() {
    let deployment = one::<Deployment>("Deployment").spec.unwrap();
    let labels = deployment.template.metadata.unwrap().labels.unwrap();
    let service = one::<Service>("Service").spec.unwrap().selector.unwrap();
    for selector in [deployment.selector.match_labels.unwrap(), service] {
        assert!(!selector.is_empty());
        assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)));
    }
}

#[test]
fn the_image_and_the_deployment_agree() {
    let dockerfile = text("Dockerfile");
    let line = |word: &str| {
        let mut found = dockerfile.lines().filter_map(|line| line.strip_prefix(word));
        found
            .next_back()
            .unwrap_or_else(|| panic!("{word}"))
            .trim()
            .to_owned()
    };
    let user = pod().security_context.unwrap();
    assert_eq!(
        line("USER "),
        format!("{}:{}", user.run_as_user.unwrap(), user.run_as_group.unwrap())
    );
    assert_eq!(line("ENTRYPOINT "), "[\"/usr/bin/freehold\"]");
    assert!(container().command.is_none(), "the entry point is the image's");
    let mounts = container().volume_mounts.unwrap();
    assert_eq!(
        line("VOLUME "),
        mounts
            .iter()
            .find(|mount| mount.name == "store")
            .unwrap()
            .mount_path
    );
    assert_eq!(line("WORKDIR "), line("VOLUME "));
    for port in container().ports.unwrap() {
        assert!(
            line("EXPOSE ")
                .split(' ')
                .any(|exposed| exposed == port.container_port.to_string())
        );
    }
    let toolchain = line("ARG RUST_VERSION=");
    let manifest = text("Cargo.toml");
    let least = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \""))
        .unwrap();
    assert!(toolchain.starts_with(least.trim_end_matches('"')), "{toolchain}");
    assert!(dockerfile.contains("--locked --profile dist") && manifest.contains("[profile.dist]"));
}

#[test]
fn nothing_that_deny_toml_bans_is_in_the_tree_and_every_exception_is_still_needed() {
    let (deny, lock) = (text("deny.toml"), text("Cargo.lock"));
    let locked = |name: &str| lock.contains(&format!("name = \"{name}\"\n"));
    let banned: Vec<&str> = deny
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{ crate = \"")?.split('"').next())
        .collect();
    assert!(banned.len() >= 8);
    for name in banned {
        assert!(!locked(name), "{name} is banned");
    }
    for (advisory, name) in [("RUSTSEC-2025-0057", "fxhash"), ("RUSTSEC-2024-0384", "instant")] {
        assert_eq!(deny.contains(advisory), locked(name), "{advisory}");
    }
    for line in deny
        .lines()
        .filter(|line| line.contains("id = \"RUSTSEC") || line.contains("{ crate ="))
    {
        assert!(line.contains("reason = \""), "{line}");
    }
}
