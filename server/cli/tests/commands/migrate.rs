//! `rdq migrate`, and what becomes of a rdq that is older than its database. What a migration does is
//! the storages' own, and tested there.

use super::shell::{Ran, command, ran};
use crate::harness::server::Server;
use std::path::Path;
use tempfile::TempDir;

fn migrate(path: &Path, more: &[&str]) -> Ran {
    let storage = format!("sqlite:{}", path.display());
    ran(command(&["migrate", "--storage", &storage]).args(more).output())
}

#[tokio::test]
async fn a_database_is_prepared_once_and_served_then() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("rdq.db");
    let first = migrate(&path, &[]);
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(first.out, format!("sqlite:{}: made the schema, version 3\n", path.display()));

    let again = migrate(&path, &[]);
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    assert!(again.out.ends_with("the schema has version 3 already\n"), "{again:?}");
    let json = migrate(&path, &["--output", "json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["from"], &json["to"]), (&3.into(), &3.into()));

    let _server = Server::on_file(&path).await;
    let beside = migrate(&path, &[]);
    assert_eq!(beside.code, 0, "beside a server: {beside:?}");
}

#[test]
fn an_older_rdq_refuses_a_newer_schema_and_says_what_to_do() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("rdq.db");
    assert_eq!(migrate(&path, &[]).code, 0);
    let database = rusqlite::Connection::open(&path).expect("the database opens");
    database.pragma_update(None, "user_version", 7).expect("it can be changed");
    let expected = "the database has schema version 7, and this rdq knows up to 3: a newer rdq has \
        used it; use one that is as new\n";

    let refused = migrate(&path, &[]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert_eq!(refused.err, format!("error: cannot open the storage: {expected}"));

    let storage = format!("sqlite:{}", path.display());
    let listen = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let served = ran(command(&["serve", "--storage", &storage]).args(listen).output());
    assert_eq!(served.code, 1, "{served:?}");
    assert!(served.err.ends_with(expected), "{served:?}");
}

#[test]
fn what_has_no_schema_is_told_instead_of_prepared() {
    for (storage, expected) in [
        ("memory:", "`memory:` has no schema to prepare: it begins empty with every server"),
        ("http://127.0.0.1:1", "name the database of that server"),
        ("nowhere", "names no storage"),
    ] {
        let refused = ran(command(&["migrate", "--storage", storage]).output());
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains(expected), "{refused:?}");
    }
}
