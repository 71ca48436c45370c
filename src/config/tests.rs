//! What the configuration promises, tried from outside.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::*;

/// The provider file of seed 003, to the letter.
const SEED: &str = r#"# provider.yaml
inventory-resource-poll-period: 5s
inventory-resource-debug-frequency: 10
cpu-commit-level: 1.0
memory-commit-level: 1.0
storage-commit-level: 1.0
blocked-hostnames:
  - ".internal.local"
deployment-ingress-domain: provider.example.com
deployment-ingress-static-hosts: true
"#;

fn file(directory: &TempDir, text: impl AsRef<[u8]>) -> Sources {
    let path = directory.path().join("freehold.yaml");
    fs::write(&path, text).unwrap();
    Sources {
        file: Some(path),
        ..Sources::default()
    }
}

fn load_text(text: impl AsRef<[u8]>) -> Result<Config, ConfigError> {
    Config::load(file(&TempDir::new().unwrap(), text))
}

fn load_sets(sets: &[&str]) -> Result<Config, ConfigError> {
    Config::load(Sources {
        sets: sets.iter().map(|set| (*set).to_owned()).collect(),
        ..Sources::default()
    })
}

fn load_variables(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(Sources::default().with_environment(variables.iter().copied()))
}

/// Loads a text that must be refused, and checks key and line.
fn refusal(text: &str, key: &str, line: u64) -> ConfigError {
    let error = load_text(text).expect_err(text);
    assert_eq!(error.key.as_deref(), Some(key), "{text}: {error}");
    let origin = error.origin.clone().unwrap_or_default();
    assert!(
        origin.ends_with(&format!("freehold.yaml, line {line}")),
        "{text}: {error}"
    );
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn the_defaults_are_those_of_the_interface() {
    let config = Config::default();
    assert_eq!(config.store.path, PathBuf::from("./data"));
    assert_eq!(config.store.key_file, PathBuf::from("./data.key"));
    assert_eq!(config.store.min_free.bytes(), 512 << 20);
    assert_eq!(config.api.grpc.listen, "127.0.0.1:7070".parse().unwrap());
    assert_eq!(config.api.http.listen, "127.0.0.1:7071".parse().unwrap());
    assert_eq!(config.api.health.listen, None);
    assert_eq!(config.cluster.kind, ClusterKind::Embedded);
    assert_eq!(config.cluster.mode, ClusterMode::Manage);
    assert_eq!(config.cluster.manifest_namespace, "lease");
    assert_eq!(config.inventory.max_age.get(), Duration::from_secs(120));
    assert_eq!(config.reservation.ttl.get(), Duration::from_secs(300));
    assert_eq!(config.lease.keep_closed.get(), Duration::from_secs(86_400));
    assert_eq!(config.embedded.listen, Some("127.0.0.1:7443".parse().unwrap()));
    assert_eq!(
        config.embedded.kubeconfig,
        PathBuf::from("./data/embedded.kubeconfig")
    );
    assert_eq!((config.embedded.nodes, config.embedded.seed), (12, 1));
    assert!(config.embedded.persist && !config.debug.enabled);
}

#[test]
fn the_provider_file_of_seed_003_loads_unchanged() {
    let config = load_text(SEED).unwrap();
    assert_eq!(
        config.inventory_resource_poll_period.get(),
        Duration::from_secs(5)
    );
    assert_eq!(config.inventory_resource_debug_frequency, 10);
    assert_eq!(config.cpu_commit_level, HumanDecimal::ONE);
    assert_eq!(config.blocked_hostnames, [".internal.local"]);
    assert_eq!(config.deployment_ingress_domain, "provider.example.com");
    assert!(config.deployment_ingress_static_hosts);
}

#[test]
fn other_peoples_editors_are_no_reason_to_fail() {
    assert_eq!(
        load_text("\u{feff}embedded:\r\n  nodes: 7\r\n")
            .unwrap()
            .embedded
            .nodes,
        7
    );
    assert_eq!(
        load_text("{\"embedded\": {\"nodes\": 7}}")
            .unwrap()
            .embedded
            .nodes,
        7
    );
    let config = load_text("store: {path: &here /x}\ncluster: {kubeconfig: *here}\n").unwrap();
    assert_eq!(config.cluster.kubeconfig, Some(PathBuf::from("/x")));
    assert_eq!(load_text("").unwrap().layers()[1].keys, 0);
}

#[test]
fn later_layers_stand_over_earlier_ones_and_every_key_remembers_its_own() {
    let directory = TempDir::new().unwrap();
    let mut sources = file(&directory, "embedded:\n  nodes: 20\n  seed: 2\n  speed: 2\n").with_environment([
        ("FREEHOLD__EMBEDDED__NODES", "30"),
        ("FREEHOLD__EMBEDDED__SEED", "3"),
    ]);
    sources.sets = vec!["embedded.nodes=40".to_owned(), "embedded.nodes=50".to_owned()];
    let config = Config::load(sources).unwrap();
    assert_eq!(
        (
            config.embedded.nodes,
            config.embedded.seed,
            config.embedded.speed.as_f64()
        ),
        (50, 3, 2.0)
    );
    assert_eq!(config.origin("embedded.nodes"), Some("--set embedded.nodes"));
    assert_eq!(
        config.origin("embedded.seed"),
        Some("environment variable FREEHOLD__EMBEDDED__SEED")
    );
    assert!(
        config
            .origin("embedded.speed")
            .unwrap()
            .ends_with("freehold.yaml, line 4")
    );
    assert!(config.explicit("embedded.speed") && !config.explicit("embedded.persist"));
    let layers: Vec<usize> = config.layers().iter().skip(1).map(|layer| layer.keys).collect();
    assert_eq!(layers, [3, 2, 2]);
}

#[test]
fn the_environment_says_dashes_with_underscores_and_texts_without_quotes() {
    let config = load_variables(&[
        ("FREEHOLD__API__GRPC__LISTEN", "[::1]:0"),
        ("FREEHOLD__INVENTORY_RESOURCE_POLL_PERIOD", "7"),
        ("FREEHOLD__BLOCKED_HOSTNAMES", "[a.example, .b.example]"),
        ("FREEHOLD__PROVIDER__ADDRESS", "0123"),
        ("FREEHOLD__PROVIDER__ATTRIBUTES__REGION", "no"),
        ("FREEHOLD__EMBEDDED__LISTEN", ""),
        ("FREEHOLD__DEBUG__ENABLED", "true"),
        ("FREEHOLD_CONFIG", "elsewhere"),
        ("FREEHOLD_SERVICE_PORT", "tcp://10.0.0.1:80"),
        ("PATH", "/bin"),
    ])
    .unwrap();
    assert_eq!(config.api.grpc.listen, "[::1]:0".parse().unwrap());
    assert_eq!(
        config.inventory_resource_poll_period.get(),
        Duration::from_secs(7)
    );
    assert_eq!(config.blocked_hostnames, ["a.example", ".b.example"]);
    assert_eq!(config.provider.address, "0123");
    assert_eq!(config.provider.attributes["region"], "no");
    assert_eq!(config.embedded.listen, None);
    assert!(config.debug.enabled);
}

#[test]
fn attributes_of_several_layers_are_merged_in_both_forms() {
    let directory = TempDir::new().unwrap();
    let text = "provider:\n  attributes:\n    - {key: region, value: us-west}\n    - {key: tier, value: community}\n";
    let mut sources = file(&directory, text);
    sources.sets = vec![
        "provider.attributes.region=eu".to_owned(),
        "provider.attributes={host: x}".to_owned(),
    ];
    let attributes = Config::load(sources).unwrap().provider.attributes;
    let expected = [("host", "x"), ("region", "eu"), ("tier", "community")];
    assert_eq!(
        attributes,
        expected
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    );
    for text in [
        "provider:\n  attributes: [{key: a, value: x}, {key: a, value: y}]\n",
        "provider:\n  attributes: [a, b]\n",
        "provider:\n  attributes: {a: 1}\n",
        "provider:\n  attributes: {a: \"\"}\n",
    ] {
        assert!(load_text(text).is_err(), "{text}");
    }
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
    let error = refusal(
        "# hello\napi:\n  grpc:\n    listn: 127.0.0.1:1\n",
        "api.grpc.listn",
        4,
    );
    assert_eq!(error.hint.as_deref(), Some("did you mean api.grpc.listen?"));
    let error = refusal("cpu_commit_level: 2\n", "cpu_commit_level", 1);
    assert_eq!(error.hint.as_deref(), Some("did you mean cpu-commit-level?"));
    refusal("price:\n  cpu: 1\n", "price", 1);
    refusal("nonsense: {}\n", "nonsense", 1);
    refusal("1: 2\n", "1", 1);
    refusal("\"a.b\": 2\n", "a.b", 1);
    refusal("\"a\\nb\": 2\n", "a\u{fffd}b", 1);
    assert!(
        load_text(format!("{}: 2\n", "k".repeat(900)))
            .unwrap_err()
            .to_string()
            .len()
            < 600
    );
    let text = "embedded:\n  faults:\n    - kind: error\n      statuz: 500\n";
    let error = refusal(text, "embedded.faults[0].statuz", 4);
    assert_eq!(error.hint.as_deref(), Some("did you mean status?"));

    let error = load_variables(&[("FREEHOLD__API__GRPC__LISTN", "x")]).unwrap_err();
    assert_eq!(error.key.as_deref(), Some("api.grpc.listn"));
    assert_eq!(
        error.origin.as_deref(),
        Some("environment variable FREEHOLD__API__GRPC__LISTN")
    );
    assert_eq!(error.hint.as_deref(), Some("did you mean api.grpc.listen?"));
    for name in ["FREEHOLD__", "FREEHOLD__API____LISTEN", "FREEHOLD___"] {
        assert!(load_variables(&[(name, "x")]).is_err(), "{name}");
    }

    let error = load_sets(&["embeded.nodes=5"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "embeded.nodes: unknown key (--set embeded.nodes); did you mean embedded.nodes?"
    );
    for set in ["nothing", "=5", "", ".=1", "a..b=1"] {
        assert!(load_sets(&[set]).is_err(), "{set}");
    }
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_what_is_expected() {
    for (key, value) in [
        ("cpu-commit-level", "-1"),
        ("cpu-commit-level", "0"),
        ("cpu-commit-level", ".nan"),
        ("cpu-commit-level", "NaN"),
        ("cpu-commit-level", ".inf"),
        ("cpu-commit-level", "1e400"),
        ("cpu-commit-level", "1e300"),
        ("cpu-commit-level", "1.00000001"),
        ("cpu-commit-level", "\"\""),
        ("cpu-commit-level", "null"),
        ("cpu-commit-level", "many"),
        ("cpu-commit-level", "[1]"),
        ("cpu-commit-level", "{a: 1}"),
        ("memory-commit-level", "true"),
        ("inventory-resource-poll-period", "-5s"),
        ("inventory-resource-poll-period", "5x"),
        ("inventory-resource-poll-period", "0"),
        ("inventory-resource-poll-period", "\"\""),
        ("inventory-resource-poll-period", "1e400"),
        ("inventory-resource-poll-period", "true"),
        ("inventory-resource-poll-period", ""),
        ("inventory-resource-debug-frequency", "-1"),
        ("inventory-resource-debug-frequency", "1.5"),
        ("inventory-resource-debug-frequency", "99999999999999999999999999"),
        ("blocked-hostnames", "example.com"),
        ("deployment-ingress-domain", "5"),
        ("deployment-ingress-domain", "https://example.com"),
        ("deployment-ingress-domain", "\"a\\nb\""),
        ("deployment-ingress-static-hosts", "yes"),
        ("deployment-ingress-static-hosts", "1"),
        ("cluster-node-port-quantity", "70000"),
        ("store", "5"),
        ("store", ""),
        ("store", "[]"),
    ] {
        let error = refusal(&format!("\n{key}: {value}\n"), key, 2);
        assert!(error.expected.is_some() || key == "store", "{error}");
    }
    for (key, value) in [
        ("store.path", "\"\""),
        ("store.path", "5"),
        ("store.path", "~"),
        ("store.min-free", "-1"),
        ("store.min-free", "12Qi"),
        ("api.grpc.listen", "\"\""),
        ("api.grpc.listen", "localhost:7070"),
        ("api.grpc.listen", "127.0.0.1"),
        ("api.grpc.listen", "127.0.0.1:99999"),
        ("cluster.kind", "k8s"),
        ("cluster.kind", "Embedded"),
        ("cluster.manifest-namespace", "\"\""),
        ("cluster.manifest-namespace", "A_b"),
        ("inventory.max-age", "soon"),
        ("reservation.ttl", "-1"),
        ("debug.enabled", "\"true\""),
        ("log.filter", "\"\""),
        ("log.filter", "freehold=loudly"),
        ("log.format", "xml"),
        ("embedded.nodes", "-1"),
        ("embedded.nodes", "1e3"),
        ("embedded.nodes", "1000000"),
        ("embedded.speed", "-0.5"),
        ("embedded.speed", ".inf"),
        ("embedded.seed", "18446744073709551616"),
    ] {
        let (section, name) = key.rsplit_once('.').unwrap();
        let mut text = String::new();
        let mut indent = String::new();
        for part in section.split('.') {
            text.push_str(&format!("{indent}{part}:\n"));
            indent.push_str("  ");
        }
        let line = 1 + u64::try_from(section.split('.').count()).unwrap();
        let error = refusal(&format!("{text}{indent}{name}: {value}\n"), key, line);
        assert!(error.expected.is_some(), "{error}");
    }
    refusal(
        "blocked-hostnames:\n  - ok.example\n  - \"\"\n",
        "blocked-hostnames[1]",
        3,
    );
    refusal("blocked-hostnames:\n  - null\n", "blocked-hostnames[0]", 2);
    refusal(
        "embedded:\n  faults:\n    - {verb: list}\n",
        "embedded.faults[0].kind",
        3,
    );
    let fault = "embedded:\n  faults:\n    - {kind: error, probability: 1.5}\n";
    refusal(fault, "embedded.faults[0].probability", 3);
    refusal(
        "inventory:\n  overrides:\n    node-1: {}\n",
        "inventory.overrides.node-1",
        3,
    );
}

#[test]
fn a_wrong_value_counts_even_when_a_later_layer_hides_it() {
    let directory = TempDir::new().unwrap();
    let mut sources = file(&directory, "embedded:\n  nodes: many\n");
    sources.sets = vec!["embedded.nodes=5".to_owned()];
    assert!(
        Config::load(sources)
            .unwrap_err()
            .origin
            .unwrap()
            .ends_with("line 2")
    );
    let error = load_sets(&["embedded.nodes=", "embedded.nodes=5"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "embedded.nodes: expected a whole number from 0 to 100000, not nothing (null) (--set embedded.nodes)"
    );
}

#[test]
fn what_cannot_be_read_at_all_is_one_clear_error() {
    let directory = TempDir::new().unwrap();
    let load_path = |path: PathBuf| {
        let sources = Sources {
            file: Some(path),
            ..Sources::default()
        };
        Config::load(sources).unwrap_err().to_string()
    };
    assert!(load_path(directory.path().join("absent.yaml")).contains("cannot be opened"));
    assert!(load_path(directory.path().to_path_buf()).contains("is a directory"));
    assert!(
        load_text(vec![b'#'; 10 << 20])
            .unwrap_err()
            .to_string()
            .contains("larger than 4 MiB")
    );
    let error = load_text(b"debug:\n  enabled: \xff\n").unwrap_err();
    assert!(error.to_string().contains("not UTF-8"), "{error}");
    assert!(error.origin.unwrap().ends_with("line 2"));
    for (text, part) in [
        ("store: {path: a}\nstore: {path: b}\n", "\"store\" stands twice"),
        ("- a\n- b\n", "a map of keys"),
        ("just words\n", "a map of keys"),
        ("a: [\n", "not valid YAML"),
        ("debug: {}\n---\ndebug: {}\n", "more than one"),
    ] {
        let error = load_text(text).unwrap_err();
        assert!(error.message.contains(part), "{text}: {error}");
        assert!(
            error
                .origin
                .as_ref()
                .is_some_and(|origin| origin.contains("freehold.yaml")),
            "{error}"
        );
    }
}

#[test]
fn keys_that_belong_together_are_asked_for_together() {
    let error = load_sets(&["api.tls.cert-file=a.pem"]).unwrap_err();
    assert_eq!(error.key.as_deref(), Some("api.tls.key-file"));
    let error = load_sets(&["deployment-ingress-static-hosts=true"]).unwrap_err();
    assert_eq!(error.key.as_deref(), Some("deployment-ingress-domain"));
    let error = load_sets(&["api.http.listen=127.0.0.1:7070"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "api.http.listen: 127.0.0.1:7070 is also api.grpc.listen (--set api.http.listen)"
    );
    assert!(load_sets(&["api.http.listen=127.0.0.1:0", "api.grpc.listen=127.0.0.1:0"]).is_ok());
}

#[test]
fn the_key_file_and_the_kubeconfig_follow_the_store() {
    let config = load_sets(&["store.path=/var/lib/freehold/"]).unwrap();
    assert_eq!(config.store.key_file, PathBuf::from("/var/lib/freehold.key"));
    assert_eq!(
        config.embedded.kubeconfig,
        PathBuf::from("/var/lib/freehold/embedded.kubeconfig")
    );
    let error = load_sets(&["store.path=/"]).unwrap_err();
    assert_eq!(error.key.as_deref(), Some("store.key-file"));
    let config = load_sets(&["store.key-file=/k", "store.path=/"]).unwrap();
    assert_eq!(config.store.key_file, PathBuf::from("/k"));
}

#[test]
fn in_a_pod_a_simulated_cluster_must_be_asked_for() {
    let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
    let error = load_variables(&pod)
        .unwrap()
        .refuse_simulation_in_pod()
        .unwrap_err();
    assert_eq!(error.key.as_deref(), Some("cluster.kind"));
    assert!(load_variables(&[]).unwrap().refuse_simulation_in_pod().is_ok());
    for kind in ["embedded", "kubernetes"] {
        let config = load_variables(&[pod[0], ("FREEHOLD__CLUSTER__KIND", kind)]).unwrap();
        assert!(config.refuse_simulation_in_pod().is_ok());
    }
}

#[test]
fn faults_are_typed() {
    let config = load_sets(&[
        "embedded.faults=[{verb: list, resource: nodes, kind: error, status: 503, retry-after: 2s, count: 3}, {kind: latency, delay: 1500ms, probability: 0.25}]",
    ])
    .unwrap();
    let [error, latency] = config.embedded.faults.as_slice() else {
        panic!("two faults");
    };
    assert_eq!(
        (error.kind, error.status, error.count),
        (FaultKind::Error, Some(503), Some(3))
    );
    assert_eq!(error.probability, HumanDecimal::ONE);
    assert_eq!(latency.delay.unwrap().get(), Duration::from_millis(1500));
    assert_eq!(latency.probability.millionths(), 250_000);
}

#[test]
fn what_show_prints_loads_again_as_the_same_configuration() {
    let config = load_sets(&[
        "embedded.faults=[{verb: list, kind: error, status: 503, retry-after: 2s}]",
        "provider.attributes={region: \"1.0\", host: \"yes\"}",
        "provider.address=0123",
        "blocked-hostnames=[.internal.local]",
        "cpu-commit-level=1.25",
    ])
    .unwrap();
    let yaml = config.show(Format::Yaml).unwrap();
    let json = config.show(Format::Json).unwrap();
    let origins = config.show_with_origins().unwrap();
    assert!(
        origins.contains("cpu-commit-level: 1.25  # --set cpu-commit-level"),
        "{origins}"
    );
    assert!(
        origins.contains("  path: \"./data\"  # compiled-in default, line "),
        "{origins}"
    );
    for text in [yaml, json, origins] {
        let again = load_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(
            again.show(Format::Json).unwrap(),
            config.show(Format::Json).unwrap(),
            "{text}"
        );
    }
}

#[test]
fn every_key_is_shown_and_every_key_shown_is_known() {
    fn leaves(prefix: &str, value: &serde_json::Value, keys: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    leaves(&known::join(prefix, key), value, keys);
                }
            }
            _ => keys.push(prefix.to_owned()),
        }
    }
    let mut shown = Vec::new();
    leaves("", &serde_json::to_value(Config::default()).unwrap(), &mut shown);
    let mut known: Vec<String> = known::keys().into_iter().map(|(key, ..)| key).collect();
    shown.sort();
    known.sort();
    assert_eq!(shown, known);
}

#[test]
fn every_key_says_what_it_takes_and_what_it_does() {
    for entry in reference() {
        assert!(
            entry.takes.len() > 5 && entry.effect.len() > 15 && !entry.default.is_empty(),
            "{entry:?}"
        );
    }
    let takes = |key: &str| {
        reference()
            .into_iter()
            .find(|entry| entry.key == key)
            .unwrap()
            .takes
    };
    assert_eq!(takes("store.min-free"), "a size such as 512Mi or 24Gi");
    assert_eq!(takes("debug.enabled"), "true or false");
    assert_eq!(takes("cluster.kind"), "one of embedded, kubernetes");
}

#[test]
fn secrets_are_configured_as_files_only() {
    for (key, ..) in known::keys() {
        let name = key.rsplit('.').next().unwrap();
        let smells = ["password", "secret", "token", "key", "credential"]
            .iter()
            .any(|word| name.contains(word));
        assert!(!smells || name.ends_with("-file"), "{key}");
    }
}

#[test]
fn the_written_reference_is_the_present_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/config.md");
    let now = markdown_reference();
    if std::env::var_os("FREEHOLD_WRITE_DOCS").is_some() {
        fs::write(path, &now).unwrap();
    }
    assert!(
        fs::read_to_string(path).unwrap_or_default() == now,
        "docs/config.md is stale: run FREEHOLD_WRITE_DOCS=1 cargo test --lib config"
    );
}

#[test]
fn the_example_for_production_loads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/production.example.yaml");
    let config = Config::load(Sources {
        file: Some(path.into()),
        ..Sources::default()
    })
    .unwrap();
    assert_eq!(config.cluster.kind, ClusterKind::Kubernetes);
}

mod no_text_makes_it_panic {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn in_a_file(text in "[a-z:{}\\[\\]&*!|>'\"%@, \n\t#-]{0,80}") {
            let _ = load_text(text);
        }

        #[test]
        fn at_a_key(index in 0_usize..1000, value in "\\PC{0,40}") {
            let keys = known::keys();
            let key = &keys[index % keys.len()].0;
            if let Err(error) = load_sets(&[&format!("{key}={value}")]) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
