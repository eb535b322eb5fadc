//! The plans of all statements: none walks a table, and the hot ones use the index made for them.

use crate::{
    connection, migrations,
    statements::{self, text},
};
use rusqlite::Connection;

/// Of the readers; the writer's are listed where they are prepared.
const READS: &[(&str, &str)] = &[
    ("attempts", text!(attempts)),
    ("count_later", text!(count_later)),
    ("events", text!(events)),
    ("first_pending", text!(first_pending)),
    ("mutation", text!(mutation)),
    ("next_ready_lane", text!(next_ready_lane)),
    ("queue_names", text!(queue_names)),
    ("queue_records", text!(queue_records)),
    ("record_value", text!(record_value)),
    ("records", text!(records)),
    ("saved_offset", text!(saved_offset)),
    ("tasks_of_queue", text!(tasks_of_queue)),
];

/// Statements that walk on purpose: one lists the queues, which are few, one takes some of an index
/// that holds nothing but what it looks for, and one looks at so many rows at most.
const WALKS: &[&str] = &["queue_records", "forget_empty_queues", "forget_notifications"];

/// What the plan of a hot statement says.
const EXPECTED: &[(&str, &str)] = &[
    ("insert_task", ""),
    ("insert_claimed_task", ""),
    ("task", "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)"),
    ("update_task", "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)"),
    ("complete_task", "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)"),
    ("claim_task", "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)"),
    ("forget_task", "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)"),
    ("delete_whole_task", "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)"),
    ("task_by_id", "SEARCH tasks USING INDEX sqlite_autoindex_tasks_1 (id=?)"),
    ("ready_tasks", "SEARCH tasks USING INDEX tasks_place (queue=? AND lane<?)"),
    ("dead_tasks", "SEARCH tasks USING INDEX tasks_place (queue=? AND lane=? AND at<?)"),
    ("expired_tasks", "SEARCH tasks USING INDEX tasks_expiry (queue=? AND expires_at<?)"),
    ("purgeable_tasks", "SEARCH tasks USING COVERING INDEX tasks_purge (queue=? AND purge_at<?)"),
    ("dead_tasks_of_queue", "SEARCH tasks USING INDEX tasks_dead (queue=?)"),
    ("tasks_of_queue", "SEARCH tasks USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    ("insert_event", ""),
    ("stream", "SEARCH streams USING INDEX sqlite_autoindex_streams_1 (name=?)"),
    ("events", "SEARCH events USING INDEX events_place (stream=? AND offset>?)"),
    ("record", "SEARCH records USING INDEX sqlite_autoindex_records_1 (space=? AND key=?)"),
    ("records", "SEARCH records USING INDEX records_there (space=? AND key>? AND key<?)"),
    (
        "mutation",
        "SEARCH mutations USING INDEX sqlite_autoindex_mutations_1 (subject=? AND operation=? AND \
         key=?)",
    ),
    ("newest_attempts", "SEARCH attempts USING PRIMARY KEY (task=?)"),
];

fn new_store() -> (tempfile::TempDir, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let db = connection::open_writer(&dir.path().join("rdq.db")).unwrap();
    migrations::migrate(&db).unwrap();
    (dir, db)
}

fn plan(db: &Connection, text: &str) -> Vec<String> {
    let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    // The library answers the plan whatever is bound; nothing is.
    let mut rows = explain.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get(3).unwrap());
    }
    steps
}

fn all() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let writers = [
        statements::STATE,
        statements::TASKS,
        statements::HISTORY,
        statements::QUEUES,
        statements::COORDINATION,
    ];
    writers.into_iter().flatten().chain(READS)
}

#[test]
fn no_statement_walks_a_table_or_sorts() {
    let (_dir, db) = new_store();
    for (name, text) in all() {
        for step in plan(&db, text) {
            let is_free = step == "SCAN CONSTANT ROW" || WALKS.contains(name);
            assert!(is_free || !step.contains("SCAN"), "{name}: {step}");
            assert!(!step.contains("TEMP B-TREE"), "{name}: {step}");
        }
    }
}

#[test]
fn hot_statements_use_the_index_made_for_them() {
    let (_dir, db) = new_store();
    for (name, expected) in EXPECTED {
        let (_, text) = all().find(|(known, _)| known == name).unwrap();
        assert_eq!(plan(&db, text).join("; "), *expected, "{name}");
    }
}

#[test]
fn rows_are_read_in_the_order_of_the_table() {
    let (_dir, db) = new_store();
    let sql = db.prepare("SELECT * FROM tasks").unwrap();
    let columns = sql.column_names();
    for (index, name) in [(0, "task"), (5, "status"), (19, "history"), (31, "envelope")] {
        assert_eq!(columns[index], name);
    }
}
