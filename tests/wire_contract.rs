//! The wire contract: what was promised once stays. Every message, field, enum value and method of the
//! baseline must still be there with the same number, type and presence; more may be added.
//!
//! After adding something: `FREEHOLD_BLESS=1 cargo test --test wire_contract`, and commit the baseline.

use std::{collections::BTreeMap, path::PathBuf};

use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

/// One line per promise: its name, and what it promises.
type Contract = BTreeMap<String, String>;

fn contract(encoded: &[u8]) -> Contract {
    let set = FileDescriptorSet::decode(encoded).expect("descriptors are compiled in");
    let mut lines = Contract::new();
    for file in set
        .file
        .iter()
        .filter(|file| file.package().starts_with("freehold."))
    {
        let package = file.package();
        for message in &file.message_type {
            describe_message(&mut lines, package, message);
        }
        for listed in &file.enum_type {
            describe_enum(&mut lines, package, listed);
        }
        for service in &file.service {
            for method in &service.method {
                let name = format!("rpc {package}.{}/{}", service.name(), method.name());
                let stream = |streams: bool| if streams { "stream " } else { "" };
                let promise = format!(
                    "{}{} -> {}{}",
                    stream(method.client_streaming()),
                    method.input_type(),
                    stream(method.server_streaming()),
                    method.output_type()
                );
                lines.insert(name, promise);
            }
        }
    }
    lines
}

fn describe_message(lines: &mut Contract, parent: &str, message: &DescriptorProto) {
    let name = format!("{parent}.{}", message.name());
    lines.insert(format!("message {name}"), String::new());
    for field in &message.field {
        let oneof = field
            .oneof_index
            .filter(|_| !field.proto3_optional())
            .and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?))
            .map_or_else(String::new, |oneof| format!(" oneof {}", oneof.name()));
        let presence = if field.proto3_optional() { " optional" } else { "" };
        let promise = format!(
            "{} {:?} {:?} {}{presence}{oneof}",
            field.name(),
            field.label(),
            field.r#type(),
            field.type_name()
        );
        lines.insert(
            format!("field {name} {:04}", field.number()),
            promise.trim_end().to_owned(),
        );
    }
    for nested in &message.nested_type {
        describe_message(lines, &name, nested);
    }
    for listed in &message.enum_type {
        describe_enum(lines, &name, listed);
    }
}

fn describe_enum(lines: &mut Contract, parent: &str, listed: &EnumDescriptorProto) {
    for value in &listed.value {
        let name = format!("enum {parent}.{} {:04}", listed.name(), value.number());
        lines.insert(name, value.name().to_owned());
    }
}

fn render(contract: &Contract) -> String {
    contract
        .iter()
        .map(|(name, promise)| format!("{}\n", format!("{name} = {promise}").trim_end()))
        .collect()
}

fn parse(text: &str) -> Contract {
    text.lines()
        .filter_map(|line| {
            line.split_once(" = ")
                .or_else(|| Some((line.strip_suffix(" =")?, "")))
        })
        .map(|(name, promise)| (name.to_owned(), promise.to_owned()))
        .collect()
}

/// What the baseline promises and the present does not keep.
fn broken(baseline: &Contract, present: &Contract) -> Vec<String> {
    baseline
        .iter()
        .filter(|(name, promise)| present.get(*name) != Some(*promise))
        .map(|(name, promise)| format!("{name}: was {promise:?}, is {:?}", present.get(name)))
        .collect()
}

fn baseline_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/proto-baseline.txt")
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test's switch, not a setting of the program"
)]
fn fields_are_only_added() {
    let present = contract(freehold::api::proto::DESCRIPTORS);
    let kept = std::fs::read_to_string(baseline_path()).unwrap_or_default();
    let baseline = parse(&kept);
    let broken = broken(&baseline, &present);
    assert!(
        broken.is_empty(),
        "the wire contract is broken:\n{}",
        broken.join("\n")
    );
    if std::env::var("FREEHOLD_BLESS").is_ok() {
        std::fs::write(baseline_path(), render(&present)).unwrap();
        return;
    }
    let added: Vec<&String> = present
        .keys()
        .filter(|name| !baseline.contains_key(*name))
        .collect();
    assert!(
        added.is_empty(),
        "not in the baseline yet: {added:#?}\nrun FREEHOLD_BLESS=1 cargo test --test wire_contract"
    );
}

#[test]
fn a_changed_number_type_or_name_is_noticed() {
    let present = contract(freehold::api::proto::DESCRIPTORS);
    let field = present
        .keys()
        .find(|name| name.starts_with("field freehold.v1.Status "))
        .unwrap()
        .clone();
    let mut removed = present.clone();
    removed.remove(&field);
    assert_eq!(broken(&present, &removed).len(), 1);
    let mut renamed = present.clone();
    renamed.insert(field, "other Optional String ".into());
    assert_eq!(broken(&present, &renamed).len(), 1);
    let mut grown = present.clone();
    grown.insert("field freehold.v1.Status 0999".into(), "new".into());
    assert_eq!(broken(&present, &grown), Vec::<String>::new());
    assert_eq!(parse(&render(&present)), present);
}
