//! One statement a row against one statement a batch (`json_each`), for each of the three hot
//! statements, on the real schema and a backlog: why the writer runs one a row.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use rusqlite::{Connection, Statement, params};
use std::{fmt::Write as _, time::Instant};

const BACKLOG: i64 = 100_000;
const BATCHES: i64 = 200;
const SIZES: [i64; 3] = [1, 10, 100];

const INSERT_ROW: &str = include_str!("../src/queries/insert_task.sql");
const INSERT_SET: &str = "
    INSERT INTO tasks (
        task, id, queue, lane, at, status, attempt_count, redrive_count, lease_expired_count,
        last_attempt_no, next_attempt_at, created_at, priority, handler_ref, envelope
    ) SELECT value ->> 0, value ->> 1, 1, 0, value ->> 2, 0, 0, 0, 0, 0, value ->> 2, value ->> 2, 0,
        value ->> 3, unhex(value ->> 4)
    FROM json_each(?1) WHERE true ON CONFLICT (id) DO NOTHING";
const CLAIM_ROW: &str = include_str!("../src/queries/update_task.sql");
const CLAIM_SET: &str = "
    UPDATE tasks SET lane = 2147483650, at = ?2, status = 1, generation = given.value ->> 1,
        ending = 0, next_attempt_at = NULL, lease_expires_at = ?2, claimed_at = ?3, claimed_by = ?4
    FROM json_each(?1) AS given WHERE task = given.value ->> 0";
const COMPLETE_ROW: &str = include_str!("../src/queries/complete_task.sql");
const COMPLETE_SET: &str = "
    UPDATE tasks SET lane = 2147483651, at = given.value ->> 3, status = 2, ending = 10, history = 2,
        finished_at = ?2, attempt_count = attempt_count + 1, last_attempt_no = last_attempt_no + 1,
        lease_expires_at = NULL
    FROM json_each(?1) AS given
    WHERE task = given.value ->> 0 AND tasks.id = given.value ->> 1 AND generation = given.value ->> 2
        AND status = 1 AND history = 0 AND only_attempt IS NULL
    RETURNING task";

fn main() {
    let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    println!("µs a row, commit and sync included\nrows in a batch        one a row   json_each");
    for size in SIZES {
        let row = Store::new(&dir.path().join(format!("row-{size}.db"))).lives(size, false);
        let set = Store::new(&dir.path().join(format!("set-{size}.db"))).lives(size, true);
        for (what, (row, set)) in ["enqueue", "claim", "complete"].iter().zip(row.iter().zip(set)) {
            println!("{size:>4} {what:<16} {row:>11.2} {set:>11.2}");
        }
    }
}

struct Store {
    db: Connection,
    envelope: [u8; 130],
}

impl Store {
    fn new(path: &std::path::Path) -> Self {
        let db = Connection::open(path).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;").unwrap();
        db.execute_batch(include_str!("../migrations/0001_tasks.sql")).unwrap();
        db.execute_batch("INSERT INTO queues (name) VALUES ('q'); BEGIN;").unwrap();
        let store = Self { db, envelope: [7; 130] };
        let mut insert = store.db.prepare(INSERT_ROW).unwrap();
        (0..BACKLOG).for_each(|n| store.insert_row(&mut insert, n));
        drop(insert);
        store.db.execute_batch("COMMIT;").unwrap();
        store
    }

    /// The time that each of the three statements takes a row, in microseconds.
    fn lives(&self, size: i64, as_set: bool) -> [f64; 3] {
        let sql = |row, set| self.db.prepare(if as_set { set } else { row }).unwrap();
        let mut insert = sql(INSERT_ROW, INSERT_SET);
        let enqueued = self.timed(size, |first| {
            let numbers = BACKLOG + first..BACKLOG + first + size;
            if as_set {
                insert.execute([self.insert_json(numbers)]).unwrap();
            } else {
                numbers.for_each(|n| self.insert_row(&mut insert, n));
            }
        });
        let mut claim = sql(CLAIM_ROW, CLAIM_SET);
        let claimed = self.timed(size, |first| {
            let numbers = first..first + size;
            if as_set {
                let json = json(numbers, |json, n| write!(json, "[{},{}]", key(n), n + 1));
                claim.execute(params![json, 2_000_000, 1_000_000, "worker"]).unwrap();
            } else {
                numbers.for_each(|n| claim_row(&mut claim, n));
            }
        });
        let mut complete = sql(COMPLETE_ROW, COMPLETE_SET);
        let completed = self.timed(size, |first| {
            let numbers = first..first + size;
            if as_set {
                let json = json(numbers, |json, n| {
                    write!(json, "[{},\"{}\",{},{}]", key(n), id(n), n + 1, n + 1)
                });
                let mut rows = complete.query(params![json, 1_000_000]).unwrap();
                while rows.next().unwrap().is_some() {}
            } else {
                for n in numbers {
                    let params = params![key(n), id(n), n + 1, n + 1, 10, 1_000_000, 0];
                    assert_eq!(complete.execute(params).unwrap(), 1);
                }
            }
        });
        [enqueued, claimed, completed]
    }

    #[expect(clippy::disallowed_methods, reason = "measures how long a statement takes")]
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    fn timed(&self, size: i64, mut batch: impl FnMut(i64)) -> f64 {
        let start = Instant::now();
        for number in 0..BATCHES {
            self.db.execute_batch("BEGIN IMMEDIATE;").unwrap();
            batch(number * size);
            self.db.execute_batch("COMMIT;").unwrap();
        }
        start.elapsed().as_secs_f64() * 1e6 / (BATCHES * size) as f64
    }

    fn insert_row(&self, insert: &mut Statement<'_>, n: i64) {
        let none = None::<i64>;
        let params = params![
            key(n),
            id(n),
            1,
            0,
            n,
            0,
            0,
            0,
            0,
            n,
            none,
            n,
            0,
            "handler",
            none,
            none,
            none,
            none,
            none,
            self.envelope
        ];
        assert_eq!(insert.execute(params).unwrap(), 1);
    }

    fn insert_json(&self, numbers: std::ops::Range<i64>) -> String {
        json(numbers, |json, n| {
            write!(json, "[{},\"{}\",{n},\"handler\",\"", key(n), id(n))?;
            self.envelope.iter().try_for_each(|byte| write!(json, "{byte:02x}"))?;
            write!(json, "\"]")
        })
    }
}

fn claim_row(claim: &mut Statement<'_>, n: i64) {
    let none = None::<i64>;
    let params = params![
        key(n),
        2_147_483_650_i64,
        2_000_000,
        1,
        n + 1,
        0,
        0,
        0,
        0,
        0,
        none,
        2_000_000,
        1_000_000,
        "worker",
        none,
        none,
        none,
        0,
        none
    ];
    assert_eq!(claim.execute(params).unwrap(), 1);
}

fn json(
    numbers: std::ops::Range<i64>,
    row: impl Fn(&mut String, i64) -> std::fmt::Result,
) -> String {
    let mut json = String::from("[");
    for n in numbers {
        if json.len() > 1 {
            json.push(',');
        }
        row(&mut json, n).unwrap();
    }
    json.push(']');
    json
}

fn key(n: i64) -> i64 {
    (1 << 43) + n
}

fn id(n: i64) -> String {
    format!("01K0000000000000{n:010}")
}
