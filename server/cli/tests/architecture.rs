//! The structure that `docs/ARCHITECTURE.md` promises: who may import whom, where a clock is read,
//! where errors and messages are translated, and that the contract's pages are complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every source file of ours, as a path from the root.
fn sources() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("inside").to_string_lossy().into_owned()
}

/// The edges between our crates: normal ones, and those of tests.
fn edges() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let ours: BTreeSet<_> =
        packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut edges = BTreeMap::new();
    for package in packages {
        let (mut normal, mut tests) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let name = dependency["name"].as_str().expect("a name");
            if ours.contains(name) {
                let set = if dependency["kind"].is_null() { &mut normal } else { &mut tests };
                set.insert(name.to_owned());
            }
        }
        edges.insert(package["name"].as_str().expect("a name").to_owned(), (normal, tests));
    }
    edges
}

#[test]
fn crates_import_what_the_table_says_and_nothing_else() {
    let table: &[(&str, &[&str], &[&str])] = &[
        ("rdq-proto", &[], &[]),
        ("rdq-spi", &[], &[]),
        ("rdq-engine", &["rdq-spi"], &["rdq-memory"]),
        ("rdq-memory", &["rdq-spi"], &["rdq-compliance"]),
        ("rdq-sqlite", &["rdq-spi"], &["rdq-compliance"]),
        ("rdq-sqlite-sqlx", &["rdq-sqlite"], &["rdq-spi"]),
        ("rdq-postgres", &["rdq-spi"], &["rdq-compliance", "rdq-test-servers"]),
        ("rdq-redis", &["rdq-spi"], &["rdq-compliance", "rdq-test-servers"]),
        ("rdq-mongodb", &["rdq-spi"], &["rdq-compliance", "rdq-test-servers"]),
        (
            "rdq-remote",
            &["rdq-proto", "rdq-spi"],
            &["rdq-compliance", "rdq-daemon", "rdq-test-servers"],
        ),
        ("rdq-compliance", &["rdq-spi"], &["rdq-memory"]),
        ("rdq-test-servers", &[], &[]),
        ("rdq-contention", &["rdq-spi", "rdq-store", "rdq-test-servers"], &[]),
        (
            "rdq-store",
            &[
                "rdq-engine",
                "rdq-memory",
                "rdq-mongodb",
                "rdq-postgres",
                "rdq-proto",
                "rdq-redis",
                "rdq-remote",
                "rdq-spi",
                "rdq-sqlite",
            ],
            &[],
        ),
        ("rdq-client", &["rdq-proto"], &[]),
        ("rdq-daemon", &["rdq-engine", "rdq-proto", "rdq-spi", "rdq-store"], &[]),
        (
            "rdq-cli",
            &["rdq-compliance", "rdq-daemon", "rdq-proto", "rdq-remote", "rdq-spi"],
            &["rdq-test-servers"],
        ),
    ];
    let edges = edges();
    let named: BTreeSet<_> = table.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(
        edges.keys().cloned().collect::<BTreeSet<_>>(),
        named,
        "a crate is not in the table"
    );
    for (name, normal, tests) in table {
        let (has, has_for_tests) = &edges[*name];
        let allowed = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        let normal: BTreeSet<String> = allowed(normal);
        let extra: Vec<_> = has.difference(&normal).collect();
        assert!(extra.is_empty(), "{name} imports {extra:?}");
        let tests: BTreeSet<String> = allowed(tests);
        let extra: Vec<_> = has_for_tests
            .iter()
            .filter(|name| !tests.contains(*name) && !normal.contains(*name))
            .collect();
        assert!(extra.is_empty(), "the tests of {name} import {extra:?}");
    }
}

#[test]
fn every_source_file_says_what_it_is_and_every_crate_takes_the_workspaces_lints() {
    for path in sources() {
        let text = read(&path);
        let first = text.lines().find(|line| !line.starts_with("#!") && !line.is_empty());
        assert!(
            first.is_some_and(|line| line.starts_with("//!")),
            "{} opens without //!",
            relative(&path)
        );
    }
    for package in edges().keys().filter(|name| *name != "rdq-proto") {
        let manifest = ["plugins", "server", "compliance", ""].iter().map(|folder| {
            let name = package.trim_start_matches("rdq-").trim_start_matches("test-");
            let name = match name {
                // The clients' folders are named by their languages.
                "client" => "clients/rust",
                "sqlite-sqlx" => "sqlite/sqlx",
                name => name,
            };
            root().join(folder).join(name).join("Cargo.toml")
        });
        let manifest = manifest.filter(|path| path.exists()).map(|path| read(&path)).next();
        let manifest = manifest.unwrap_or_else(|| panic!("{package} is not where its name says"));
        // It lends one library's connection to another's, in one place that says why it may.
        let lints = if package == "rdq-sqlite-sqlx" {
            "[lints.rust]\nunsafe_code = \"deny\"\n"
        } else {
            "[lints]\nworkspace = true"
        };
        assert!(manifest.contains(lints), "{package} has lints of its own");
    }
}

#[test]
fn errors_become_statuses_and_messages_become_types_in_one_place_each() {
    for path in sources() {
        let name = relative(&path);
        if !name.starts_with("server/daemon/src/") {
            continue;
        }
        let text = read(&path);
        if name != "server/daemon/src/status.rs" {
            for made in
                ["Status::new(", "Status::with_", "Status::internal(", "Status::invalid_argument("]
            {
                assert!(!text.contains(made), "{name} makes a Status by {made}");
            }
        }
        if !name.starts_with("server/daemon/src/convert") {
            for made in ["QueueName::new(", "TaskId::new(", "WorkerId::new("] {
                assert!(!text.contains(made), "{name} converts by {made}");
            }
        }
    }
}

#[test]
fn every_error_reason_is_explained_in_the_contracts_readme() {
    let readme = read(&root().join("proto/README.md"));
    let proto = read(&root().join("proto/rdq/v1/error_reason.proto"));
    let reasons = proto.lines().filter_map(|line| line.trim().strip_prefix("ERROR_REASON_"));
    for reason in reasons.filter_map(|rest| rest.split_whitespace().next()) {
        assert!(
            reason == "UNSPECIFIED" || readme.contains(&format!("`{reason}`")),
            "{reason} is missing"
        );
    }
}
