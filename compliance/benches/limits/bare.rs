//! Bare loops over SQLite, with a sync for each commit: the least that durable tasks on it cost.

use crate::measure::{Measured, micros_since, now};
use rusqlite::{Connection, params};
use std::{error::Error, path::Path, time::Duration};
use tempfile::TempDir;

/// Tasks that wait in the table while others live, as PERFORMANCE of the goal was measured.
const BACKLOG: usize = 100_000;
/// Tasks in one transaction.
const BATCH: usize = 100;
const PAYLOAD: [u8; 100] = [7; 100];

const INSERT: &str = "INSERT INTO task (queue, state, due, payload) VALUES (1, 0, ?1, ?2)";
const SELECT: &str =
    "SELECT id, payload FROM task WHERE queue = 1 AND state = 0 ORDER BY due LIMIT ?1";
const CLAIM: &str = "UPDATE task SET state = 1, token = ?2 WHERE id = ?1";
const DELETE: &str = "DELETE FROM task WHERE id = ?1 AND token = ?2";
const APPEND: &str = "INSERT INTO event (stream, position, payload) VALUES (1, ?1, ?2)";
const READ: &str = "SELECT position, key, payload FROM event WHERE stream = 1 AND position > ?1 ORDER BY position LIMIT ?2";

/// Measures one insert in each transaction.
pub(crate) fn commits(
    dir: &Path,
    total: usize,
    rest: Option<Duration>,
) -> Result<Measured, Box<dyn Error>> {
    let (_dir, db) = open(dir)?;
    let mut latencies = Vec::new();
    let start = now();
    for n in 0..total {
        if let Some(rest) = rest {
            std::thread::sleep(rest);
        }
        let start = now();
        db.prepare_cached(INSERT)?.execute(params![n, PAYLOAD])?;
        latencies.push(micros_since(start));
    }
    Ok(Measured::new(total, start, latencies, rest.is_some()))
}

/// Measures whole lives: insert, claim and delete, each statement for one task, the three steps of
/// a batch in one transaction.
pub(crate) fn lives(dir: &Path, total: usize) -> Result<Measured, Box<dyn Error>> {
    let (_dir, db) = open(dir)?;
    db.execute_batch("BEGIN")?;
    for n in 0..BACKLOG {
        db.prepare_cached(INSERT)?.execute(params![n, PAYLOAD])?;
    }
    db.execute_batch("COMMIT")?;
    let start = now();
    for batch in 0..total / BATCH {
        db.execute_batch("BEGIN IMMEDIATE")?;
        let mut insert = db.prepare_cached(INSERT)?;
        for n in 0..BATCH {
            insert.execute(params![BACKLOG + batch * BATCH + n, PAYLOAD])?;
        }
        let due: Vec<(i64, Vec<u8>)> = db
            .prepare_cached(SELECT)?
            .query_map([BATCH], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut claim = db.prepare_cached(CLAIM)?;
        for (id, _) in &due {
            claim.execute(params![id, id])?;
        }
        let mut delete = db.prepare_cached(DELETE)?;
        for (id, _) in &due {
            delete.execute(params![id, id])?;
        }
        db.execute_batch("COMMIT")?;
    }
    Ok(Measured::new(total, start, Vec::new(), false))
}

/// Events in one transaction, and in one read.
const EVENTS: (usize, usize) = (500, 1000);

/// Measures events: appended in transactions of many, then read page by page.
pub(crate) fn events(dir: &Path, total: usize) -> Result<(Measured, Measured), Box<dyn Error>> {
    let (_dir, db) = open(dir)?;
    let start = now();
    for batch in 0..total / EVENTS.0 {
        db.execute_batch("BEGIN IMMEDIATE")?;
        let mut append = db.prepare_cached(APPEND)?;
        for n in 1..=EVENTS.0 {
            append.execute(params![batch * EVENTS.0 + n, PAYLOAD])?;
        }
        db.execute_batch("COMMIT")?;
    }
    let published = Measured::new(total, start, Vec::new(), false);
    let start = now();
    let (mut read, mut offset) = (0, 0);
    loop {
        let page: Vec<(i64, Option<String>, Vec<u8>)> = db
            .prepare_cached(READ)?
            .query_map(params![offset, EVENTS.1], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?
            .collect::<Result<_, _>>()?;
        let Some((last, ..)) = page.last() else { break };
        offset = *last;
        read += page.len();
    }
    Ok((published, Measured::new(read, start, Vec::new(), false)))
}

fn open(dir: &Path) -> Result<(TempDir, Connection), Box<dyn Error>> {
    let dir = tempfile::tempdir_in(dir)?;
    let db = Connection::open(dir.path().join("bare.db"))?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         CREATE TABLE task (
             id INTEGER PRIMARY KEY,
             queue INTEGER NOT NULL,
             state INTEGER NOT NULL,
             due INTEGER NOT NULL,
             token INTEGER,
             payload BLOB NOT NULL
         ) STRICT;
         CREATE INDEX task_ready ON task (queue, due) WHERE state = 0;
         CREATE TABLE event (
             stream INTEGER NOT NULL,
             position INTEGER NOT NULL,
             key TEXT,
             payload BLOB NOT NULL,
             PRIMARY KEY (stream, position)
         ) STRICT, WITHOUT ROWID;",
    )?;
    Ok((dir, db))
}
