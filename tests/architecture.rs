//! Holds the house to its rules (DESIGN §10): who may use whom, no orphaned file, no file too long, no name that
//! says nothing. Each rule is a function over source text, tried on made-up offenders at the end of this file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Lines a file may have, its tests not counted.
const LONGEST_FILE: usize = 500;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = [
    "util", "utils", "common", "helper", "helpers", "manager", "managers", "misc",
];

/// Which of our own modules each may use. A longer path is a narrower permission.
const MODULES: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("ports", &["domain"]),
    // The clock stamps what is published.
    ("bus", &["domain", "ports::clock"]),
    ("config", &["domain"]),
    ("store", &["domain", "ports"]),
    ("sim", &["domain", "ports"]),
    ("adapters", &["domain", "ports"]),
    ("actors", &["domain", "ports", "bus", "config"]),
    ("api", &["domain", "bus", "ports"]),
    ("app", &["*"]),
    ("cli", &["*"]),
];

/// What every module may use of the crate's root.
const ROOT_ITEMS: [&str; 2] = ["VERSION", "REVISION"];

/// All that `domain` may use: no async, no clock, no randomness, no I/O.
const PURE_CRATES: [&str; 12] = [
    "std",
    "core",
    "alloc",
    "serde",
    "serde_json",
    "thiserror",
    "jiff",
    "zeroize",
    "sha2",
    "strsim",
    "base64",
    "uuid",
];

/// Parts of the pure crates that are not pure.
const IMPURE_PATHS: [&str; 7] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "uuid::Uuid::now_v7",
    "jiff::Timestamp::now",
];

/// Crates whose types stay where they are translated.
const CONFINED: &[(&str, &[&str])] = &[
    ("kube", &["adapters", "sim", "app", "cli"]),
    ("k8s_openapi", &["adapters", "sim", "app", "cli"]),
    ("sled", &["store"]),
    ("tonic", &["api", "app", "cli"]),
    ("tonic_prost", &["api"]),
    ("tonic_health", &["api", "app"]),
    ("tonic_reflection", &["api", "app"]),
    ("prost", &["api"]),
    ("prost_types", &["api", "cli"]),
    ("axum", &["api", "sim", "app"]),
    ("actix", &["actors", "app"]),
    ("actix_rt", &["actors", "app", "cli"]),
    ("config", &["config"]),
    ("clap", &["cli"]),
];

/// Generated code is a translation too.
const GENERATED: (&str, &[&str]) = ("api::proto", &["api", "cli"]);

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every `.rs` file below a directory, by its path from the package's root.
fn sources(directory: &str) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut open = vec![root().join(directory)];
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.expect("a directory of the package is readable").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file is readable text");
                files.insert(
                    path.strip_prefix(root())
                        .expect("it is below the root")
                        .to_owned(),
                    text,
                );
            }
        }
    }
    files
}

/// The source with comments, strings and character literals made blank, line by line as before.
fn code_of(source: &str) -> String {
    let letters: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    let blank = |code: &mut String, letter: char| code.push(if letter == '\n' { '\n' } else { ' ' });
    while let Some(&letter) = letters.get(at) {
        let next = letters.get(at + 1).copied();
        let before = at.checked_sub(1).and_then(|at| letters.get(at)).copied();
        let in_word = before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        let end = match (letter, next) {
            ('/', Some('/')) => line_comment_end(&letters, at),
            ('/', Some('*')) => block_comment_end(&letters, at),
            ('r', Some('"' | '#')) if !in_word || before == Some('b') => raw_string_end(&letters, at),
            ('"', _) => string_end(&letters, at),
            ('\'', _) => character_end(&letters, at),
            _ => at,
        };
        if end == at {
            code.push(letter);
            at += 1;
        } else {
            let end = end.min(letters.len());
            letters[at..end]
                .iter()
                .for_each(|letter| blank(&mut code, *letter));
            at = end;
        }
    }
    code
}

fn line_comment_end(letters: &[char], at: usize) -> usize {
    letters[at..]
        .iter()
        .position(|letter| *letter == '\n')
        .map_or(letters.len(), |length| at + length)
}

fn block_comment_end(letters: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < letters.len() {
        match (letters[at], letters.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Where `r#"…"#` ends; `r#name` is no string.
fn raw_string_end(letters: &[char], at: usize) -> usize {
    let hashes = letters[at + 1..]
        .iter()
        .take_while(|letter| **letter == '#')
        .count();
    let mut end = at + 1 + hashes;
    if letters.get(end) != Some(&'"') {
        return at;
    }
    end += 1;
    while end < letters.len() {
        let closed = letters[end] == '"'
            && letters[end + 1..]
                .iter()
                .take(hashes)
                .filter(|letter| **letter == '#')
                .count()
                == hashes;
        end += 1;
        if closed {
            return end + hashes;
        }
    }
    end
}

fn string_end(letters: &[char], at: usize) -> usize {
    let mut end = at + 1;
    while end < letters.len() && letters[end] != '"' {
        end += if letters[end] == '\\' { 2 } else { 1 };
    }
    end + 1
}

/// Where `'x'` ends; a lifetime is no character.
fn character_end(letters: &[char], at: usize) -> usize {
    if letters.get(at + 1) == Some(&'\\') {
        let close = letters.iter().skip(at + 3).position(|letter| *letter == '\'');
        return close.map_or(letters.len(), |length| at + 3 + length + 1);
    }
    if letters.get(at + 2) == Some(&'\'') {
        at + 3
    } else {
        at
    }
}

/// The code without its modules for tests, whole lines cut.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        // The item that follows, to its end: a semicolon, or the brace that closes it.
        let (mut depth, mut opened) = (0i64, false);
        for line in lines.by_ref() {
            depth += line.matches('{').count() as i64 - line.matches('}').count() as i64;
            opened |= line.contains('{');
            let ended = if opened {
                depth <= 0
            } else {
                line.trim_end().ends_with(';')
            };
            if ended {
                break;
            }
        }
    }
    kept
}

/// Every path the code names, `use` trees taken apart: `a::b::c`.
fn paths_of(code: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let tokens = tokens_of(code);
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "use" {
            at = read_use_tree(&tokens, at + 1, String::new(), &mut paths);
        } else if is_name(&tokens[at]) && (at == 0 || tokens[at - 1] != "::") {
            let mut path = tokens[at].clone();
            while tokens.get(at + 1).is_some_and(|token| token == "::")
                && tokens.get(at + 2).is_some_and(|token| is_name(token))
            {
                path = format!("{path}::{}", tokens[at + 2]);
                at += 2;
            }
            if path.contains("::") {
                paths.insert(path);
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    paths
}

/// Reads one branch of a `use` tree and returns where it ended.
fn read_use_tree(tokens: &[String], mut at: usize, prefix: String, paths: &mut BTreeSet<String>) -> usize {
    let mut path = prefix;
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = read_use_tree(tokens, at, path.clone(), paths);
                    if tokens.get(at).is_some_and(|token| token == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "as" => at += 2,
            "," | "}" | ";" => {
                paths.insert(path);
                return at;
            }
            name => {
                path = if path.is_empty() {
                    name.to_owned()
                } else {
                    format!("{path}::{name}")
                };
                at += 1;
            }
        }
    }
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

fn tokens_of(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut letters = code.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_alphanumeric() || letter == '_' {
            let mut word = String::from(letter);
            while let Some(next) = letters.next_if(|next| next.is_alphanumeric() || *next == '_') {
                word.push(next);
            }
            tokens.push(word);
        } else if letter == ':' && letters.next_if_eq(&':').is_some() {
            tokens.push("::".to_owned());
        } else if !letter.is_whitespace() {
            tokens.push(letter.to_string());
        }
    }
    tokens
}

/// The top-level module a file of `src` belongs to; the crate's own roots belong to none.
fn module_of(file: &Path) -> Option<String> {
    let mut parts = file.strip_prefix("src").ok()?.components();
    let first = Path::new(parts.next()?.as_os_str());
    let name = first.file_stem()?.to_string_lossy().into_owned();
    (name != "lib" && name != "main").then_some(name)
}

/// A path that climbs out of its top-level module by `super`, as a path from the crate's root.
fn climbed(file: &Path, path: String) -> String {
    let rest = path.trim_start_matches("super::");
    let levels = (path.len() - rest.len()) / "super::".len();
    let depth = file.components().count().saturating_sub(1);
    if levels > 0 && levels >= depth {
        format!("crate::{rest}")
    } else {
        path
    }
}

fn starts_with_path(path: &str, prefix: &str) -> bool {
    path == prefix
        || path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with("::"))
}

/// What a file uses that it may not. `crates` are the dependencies by the names code calls them.
fn forbidden_uses(file: &Path, source: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let Some(module) = module_of(file) else {
        return Vec::new();
    };
    let Some((_, allowed)) = MODULES.iter().find(|(name, _)| *name == module) else {
        return vec![format!(
            "{}: module {module} has no row in MODULES",
            file.display()
        )];
    };
    let everything = allowed.contains(&"*");
    let code = without_tests(&code_of(source));
    // A name of our own (`mod config;`, `use crate::config;`) is no crate.
    let mut own: BTreeSet<String> = declared_modules(&code).into_iter().collect();
    own.extend(paths_of(&code).iter().filter_map(|path| name_of_our_own(path)));
    let mut problems = Vec::new();
    for path in paths_of(&code).into_iter().map(|path| climbed(file, path)) {
        let mut complain =
            |why: &str| problems.push(format!("{}: {module} uses {path}: {why}", file.display()));
        if let Some(inner) = path.strip_prefix("crate::") {
            let head = inner.split("::").next().unwrap_or(inner);
            if starts_with_path(inner, GENERATED.0) && !GENERATED.1.contains(&&*module) {
                complain("generated code is for api and cli");
            } else if head != module
                && !everything
                && !ROOT_ITEMS.contains(&head)
                && !allowed.iter().any(|allowed| starts_with_path(inner, allowed))
            {
                complain("who may use whom is in MODULES");
            }
            continue;
        }
        let head = path.split("::").next().unwrap_or(&path);
        let external =
            (crates.contains(head) || matches!(head, "std" | "core" | "alloc")) && !own.contains(head);
        if !external {
            continue;
        }
        if module == "domain" {
            if !PURE_CRATES.contains(&head) {
                complain("domain is pure, see PURE_CRATES");
            } else if IMPURE_PATHS.iter().any(|impure| starts_with_path(&path, impure)) {
                complain("this part of a pure crate is not");
            }
        }
        if let Some((_, homes)) = CONFINED.iter().find(|(name, _)| *name == head)
            && !homes.contains(&&*module)
        {
            complain("this crate's types stay where CONFINED says");
        }
    }
    problems
}

/// The name that `use crate::…` or `use super::…` brings in.
fn name_of_our_own(path: &str) -> Option<String> {
    let ours = ["crate::", "super::", "self::"]
        .iter()
        .any(|start| path.starts_with(start));
    let path = path.strip_suffix("::self").unwrap_or(path);
    path.rsplit("::").next().filter(|_| ours).map(str::to_owned)
}

/// The names after `mod` that have a file of their own.
fn declared_modules(code: &str) -> Vec<String> {
    let tokens = tokens_of(code);
    tokens
        .windows(3)
        .filter(|window| window[0] == "mod" && window[2] == ";")
        .map(|window| window[1].clone())
        .collect()
}

/// The files that `#[path = "…"]` gives to modules, each on a line of its own.
fn paths_given(source: &str) -> impl Iterator<Item = &str> {
    source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"))
}

/// Files that no `mod` line leads to. `roots` are compiled by themselves.
fn orphans(files: &BTreeMap<PathBuf, String>, roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    // A file that `#[path]` gives has its modules beside it, as a root has.
    let mut beside: BTreeSet<PathBuf> = roots.iter().cloned().collect();
    let mut open: Vec<PathBuf> = roots.to_vec();
    while let Some(file) = open.pop() {
        let Some(source) = files.get(&file).filter(|_| reached.insert(file.clone())) else {
            continue;
        };
        let directory = if beside.contains(&file) || file.ends_with("mod.rs") {
            file.parent().unwrap_or(Path::new("")).to_owned()
        } else {
            file.with_extension("")
        };
        for given in paths_given(source).map(|path| file.with_file_name(path)) {
            beside.insert(given.clone());
            open.push(given);
        }
        for module in declared_modules(&code_of(source)) {
            open.push(directory.join(format!("{module}.rs")));
            open.push(directory.join(&module).join("mod.rs"));
        }
    }
    files
        .keys()
        .filter(|file| !reached.contains(*file))
        .cloned()
        .collect()
}

/// Every file of `tests/` and `benches/` that cargo compiles by itself: `x.rs` and `x/main.rs`.
fn test_roots(files: &BTreeMap<PathBuf, String>) -> Vec<PathBuf> {
    files
        .keys()
        .filter(|file| {
            let depth = file.components().count();
            depth == 2 || (depth == 3 && file.ends_with("main.rs"))
        })
        .cloned()
        .collect()
}

/// Lines that are not those of a module for tests.
fn length_without_tests(source: &str) -> usize {
    // The cut is found in the code, so that braces in strings do not matter; it keeps whole lines.
    without_tests(&code_of(source)).lines().count()
}

/// Whether a whole file is tests: `tests.rs` beside what it tests, or below such a directory.
fn is_test_file(file: &Path) -> bool {
    file.components()
        .any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
}

fn empty_names(file: &Path) -> Option<String> {
    let offends = |name: &str| {
        let name = name.strip_suffix(".rs").unwrap_or(name);
        name == "mod" || name.split('_').any(|part| EMPTY_NAMES.contains(&part))
    };
    file.components()
        .filter_map(|part| part.as_os_str().to_str())
        .any(offends)
        .then(|| {
            format!(
                "{}: a name must say what is inside (and mod.rs is not used)",
                file.display()
            )
        })
}

/// Dependencies by the names code calls them.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut section = String::new();
    let mut names = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        } else if section.ends_with("dependencies")
            && !line.starts_with('#')
            && let Some((name, _)) = line.split_once('=')
        {
            names.insert(name.trim().trim_end_matches(".workspace").replace('-', "_"));
        }
    }
    names
}

fn manifest_dependencies() -> BTreeSet<String> {
    dependencies(&fs::read_to_string(root().join("Cargo.toml")).expect("the manifest is readable"))
}

#[test]
fn every_module_uses_only_what_it_may() {
    let crates = manifest_dependencies();
    let sources = sources("src");
    let problems: Vec<_> = sources
        .iter()
        .filter(|(file, _)| !is_test_file(file))
        .flat_map(|(file, source)| forbidden_uses(file, source, &crates))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn no_file_is_orphaned() {
    let roots = ["src/lib.rs", "src/main.rs"].map(PathBuf::from);
    let mut lost = orphans(&sources("src"), &roots);
    for directory in ["tests", "benches"] {
        let files = sources(directory);
        let mut roots = test_roots(&files);
        // Examples of the testbed: Cargo.toml gives their paths.
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        roots.extend(
            files
                .keys()
                .filter(|file| manifest.contains(&format!("path = {file:?}")))
                .cloned(),
        );
        lost.extend(orphans(&files, &roots));
    }
    assert!(lost.is_empty(), "no `mod` line leads to {lost:?}");
}

#[test]
fn no_file_is_too_long() {
    let problems: Vec<_> = sources("src")
        .iter()
        .filter(|(file, _)| !is_test_file(file))
        .map(|(file, source)| (file.clone(), length_without_tests(source)))
        .filter(|(_, length)| *length > LONGEST_FILE)
        .map(|(file, length)| {
            format!(
                "{}: {length} lines without tests, more than {LONGEST_FILE}",
                file.display()
            )
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn names_say_what_is_inside() {
    let problems: Vec<_> = ["src", "tests", "benches"]
        .into_iter()
        .flat_map(|directory| sources(directory).into_keys())
        .filter_map(|file| empty_names(&file))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_rules_cover_the_house_as_it_is() {
    let crates = manifest_dependencies();
    assert!(
        crates.contains("kube") && crates.contains("serde_json") && crates.contains("proptest"),
        "{crates:?}"
    );
    let declared: BTreeSet<_> = declared_modules(&code_of(&sources("src")[Path::new("src/lib.rs")]))
        .into_iter()
        .collect();
    let ruled: BTreeSet<_> = MODULES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        declared, ruled,
        "MODULES has one row for each module of src/lib.rs"
    );
}

mod made_up_offenders {
    use super::*;

    fn problems(file: &str, source: &str) -> Vec<String> {
        let crates = [
            "kube", "tonic", "sled", "serde", "tokio", "config", "rand", "prost",
        ]
        .map(str::to_owned)
        .into();
        forbidden_uses(Path::new(file), source, &crates)
    }

    fn assert_refused(file: &str, source: &str) {
        assert_eq!(
            problems(file, source).len(),
            1,
            "{file}: {source}: {:?}",
            problems(file, source)
        );
    }

    fn assert_accepted(file: &str, source: &str) {
        assert_eq!(problems(file, source), Vec::<String>::new(), "{file}: {source}");
    }

    #[test]
    fn uses_across_the_house_are_refused_however_they_are_written() {
        assert_refused("src/domain/fit.rs", "use crate::ports::clock::Clock;");
        assert_refused(
            "src/domain/fit.rs",
            "use crate::{domain::node::NodeName, bus::{Bus, Claim as _}};"
                .replace(", Claim as _", "")
                .as_str(),
        );
        assert_refused("src/domain.rs", "fn f() { crate::store::open(); }");
        assert_refused("src/actors/node.rs", "use crate::adapters::kubernetes::Client;");
        assert_refused("src/store/sled_store.rs", "use crate::bus::Bus;");
        assert_refused("src/bus/topics.rs", "use crate::ports::store::Store;");
        assert_refused("src/actors/node.rs", "pub use crate::api::proto::v1::Status;");
        assert_refused("src/app.rs", "use crate::api::proto::v1::Status;");
        assert_refused("src/newcomer.rs", "fn f() {}");
        assert_refused("src/actors/node.rs", "use super::super::adapters::Client;");
        assert_refused("src/actors.rs", "use super::adapters::Client;");
    }

    #[test]
    fn foreign_types_are_refused_where_they_do_not_belong() {
        assert_refused("src/actors/node.rs", "use kube::Api;");
        assert_refused("src/actors/node.rs", "fn f(status: tonic::Status) {}");
        assert_refused("src/actors/store.rs", "use sled::Db;");
        assert_refused("src/adapters/dns.rs", "use {std::fmt, tonic::{Code}};");
        assert_refused("src/domain/fit.rs", "use tokio::time::sleep;");
        assert_refused("src/domain/fit.rs", "use rand::Rng as _;");
        assert_refused("src/domain/fit.rs", "fn f() { std::fs::read(path); }");
        assert_refused("src/bus/topics.rs", "#[derive(Clone, prost::Message)] struct S;");
    }

    #[test]
    fn what_is_allowed_is_accepted() {
        assert_accepted(
            "src/domain/fit.rs",
            "use std::{collections::BTreeMap, fmt}; use serde::Serialize; use super::node;",
        );
        assert_accepted(
            "src/bus/topics.rs",
            "use crate::{domain::status::Status, ports::clock::Clock}; use super::{config};",
        );
        assert_accepted(
            "src/actors/node.rs",
            "use crate::{actors::pool::Pool, bus::Bus, config::Config, VERSION};",
        );
        assert_accepted(
            "src/cli/status.rs",
            "use crate::{api::proto::v1, app::App, sim::World}; use tonic::Code;",
        );
        assert_accepted(
            "src/config.rs",
            "mod config; use config::File; use crate::domain::secret::Secret;",
        );
        assert_accepted("src/main.rs", "use freehold::cli;");
        assert_accepted(
            "src/cli/config.rs",
            "use crate::config::{self, Layer}; fn f() { config::reference(); }",
        );
        assert_refused("src/cli/config.rs", "fn f() { config::File::new(); }");
        assert_accepted(
            "src/actors/pool/node.rs",
            "use super::super::bus_reader::Reader; use super::store::Part;",
        );
    }

    #[test]
    fn comments_strings_and_tests_do_not_count() {
        for source in [
            "// use kube::Api;\n/* use kube::Api; /* kube::Api */ */ fn f() {}",
            "fn f() { let text = \"kube::Api \\\" kube::Client\"; let raw = r#\"kube::\"Api\"#; }",
            "fn f<'a>(x: &'a str) -> char { '\"' } // \" kube::Api",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use kube::Api;\n    fn g() { { } }\n}\n",
            "#[cfg(test)]\nuse kube::Api;\nfn f() {}\n",
        ] {
            assert_accepted("src/actors/node.rs", source);
        }
        assert_refused("src/actors/node.rs", "#[cfg(test)]\nmod tests;\nuse kube::Api;\n");
        assert_refused(
            "src/actors/node.rs",
            "#[cfg(test)]\nmod tests {\n}\nuse kube::Api;\n",
        );
        assert_refused(
            "src/actors/node.rs",
            "fn f() { let quote = '\\''; kube::Api::all(c); }",
        );
    }

    #[test]
    fn an_orphan_is_found_and_a_declared_file_is_not_one() {
        let files: BTreeMap<PathBuf, String> = [
            ("src/lib.rs", "pub mod bus;\n// pub mod lost;\n"),
            ("src/bus.rs", "mod topics;\n#[cfg(test)]\nmod tests;\n"),
            ("src/bus/topics.rs", ""),
            ("src/bus/tests.rs", ""),
            ("src/bus/forgotten.rs", "mod topics;"),
            ("src/lost.rs", ""),
            ("src/topics.rs", ""),
        ]
        .into_iter()
        .map(|(file, text)| (PathBuf::from(file), text.to_owned()))
        .collect();
        let found = orphans(&files, &[PathBuf::from("src/lib.rs")]);
        assert_eq!(
            found,
            ["src/bus/forgotten.rs", "src/lost.rs", "src/topics.rs"].map(PathBuf::from)
        );
    }

    #[test]
    fn tests_below_a_root_must_be_declared_too() {
        let files: BTreeMap<PathBuf, String> = [
            ("tests/architecture.rs", ""),
            ("tests/it/main.rs", "mod bids;"),
            (
                "tests/store.rs",
                "#[cfg(test)]\n#[path = \"store/kill.rs\"]\nmod kill;\n",
            ),
            ("tests/store/kill.rs", ""),
            ("tests/store/lost.rs", ""),
            ("tests/it/bids.rs", ""),
            ("tests/it/never_run.rs", ""),
        ]
        .into_iter()
        .map(|(file, text)| (PathBuf::from(file), text.to_owned()))
        .collect();
        assert_eq!(
            orphans(&files, &test_roots(&files)),
            ["tests/it/never_run.rs", "tests/store/lost.rs"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_long_file_is_measured_without_its_tests() {
        let code = "fn f() {}\n".repeat(501);
        let tests = format!(
            "#[cfg(test)]\nmod tests {{\n{}}}\n",
            "    fn t() {}\n".repeat(900)
        );
        assert_eq!(length_without_tests(&code), 501);
        assert_eq!(length_without_tests(&format!("{code}{tests}")), 501);
        assert_eq!(length_without_tests(&format!("{tests}{code}")), 501);
        assert!(
            is_test_file(Path::new("src/bus/tests.rs")) && is_test_file(Path::new("src/sim/tests/watch.rs"))
        );
        assert!(!is_test_file(Path::new("src/bus/contests.rs")));
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for file in [
            "src/util.rs",
            "src/bus/string_utils.rs",
            "src/helpers/x.rs",
            "src/lease_manager.rs",
            "src/bus/mod.rs",
        ] {
            assert!(empty_names(Path::new(file)).is_some(), "{file}");
        }
        for file in [
            "src/domain/commonwealth.rs",
            "src/bus/modern.rs",
            "tests/it/main.rs",
        ] {
            assert_eq!(empty_names(Path::new(file)), None);
        }
    }

    #[test]
    fn dependencies_are_read_from_the_manifest() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\n# serde = \"1\"\nk8s-openapi = \"0.29\"\ntokio = { version = \"1\" }\n[lints.rust]\nunsafe_code = \"forbid\"\n[dev-dependencies]\nproptest = \"1\"\n";
        assert_eq!(
            dependencies(manifest),
            ["k8s_openapi", "proptest", "tokio"].map(str::to_owned).into()
        );
    }
}
