//! MongoDB, and the plugin's commands sent over its driver alone: one connection for each caller, and
//! nothing between. Claims are those of tasks that differ, a statement each; the plugin takes those
//! that are alike by one, which this has yet to do.

use super::{Backend, Started, WireGoals};
use crate::{
    hand::{ENVELOPE, Failure, HANDLER, Hand, Held, LEASE, QUEUE, WORKER, id_of, number_of},
    load::Hands,
};
use async_trait::async_trait;
use bytes::Bytes;
use mongodb::{
    Client, Collection, Database,
    bson::{Binary, Bson, DateTime, Document, doc, spec::BinarySubtype},
    options::{ClientOptions, CollectionOptions, ReadConcern},
};
use rdq_test_servers::mongodb::{self as servers, MongoServer};
use std::{
    any::Any,
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    ops::Range,
    time::Duration,
};
use tokio::try_join;

const IN_FLIGHT: i32 = 2;
const SUCCEEDED: i32 = 3;
/// A claim that lost all it picked to others picks again so often, as the plugin does.
const TRIES_MAX: u32 = 10;
/// The server's word for a guard that failed.
const LOST: i32 = 241;

struct Mongo(MongoServer);

/// Starts a replica set of one.
pub(super) async fn start() -> Started {
    if let Some(missing) = servers::missing_locally() {
        return Ok(Err(missing));
    }
    Ok(Ok(Box::new(Mongo(MongoServer::start().await?))))
}

impl Mongo {
    async fn connect(&self, store: &str) -> Result<Database, Failure> {
        let mut options = ClientOptions::parse(self.0.url()).await?;
        options.max_pool_size = Some(2); // two commands at a time
        Ok(Client::with_options(options)?.database(store))
    }
}

#[async_trait]
impl Backend for Mongo {
    fn name(&self) -> &'static str {
        "MongoDB"
    }

    fn url(&self, store: &str) -> String {
        let url = self.0.url();
        let next = if url.contains('?') { '&' } else { '?' };
        format!("{url}{next}namespace={store}")
    }

    fn supply(&self) -> u64 {
        20_000
    }

    fn wire_goals(&self) -> Option<WireGoals> {
        Some(WireGoals { lives: 5_000.0, pick_up_us: None })
    }

    async fn bare(&self, store: &str, count: usize) -> Result<Hands, Failure> {
        let mut hands = Hands::new();
        for _ in 0..count {
            hands.push(Box::new(Bare { db: self.connect(store).await? }));
        }
        Ok(hands)
    }

    async fn foreign_transaction(
        &self,
        store: &str,
    ) -> Result<Option<Box<dyn Any + Send>>, Failure> {
        let db = self.connect(store).await?;
        let mut session = db.client().start_session().await?;
        let snapshot = ReadConcern::snapshot();
        session.start_transaction().read_concern(snapshot).await?;
        let tasks = db.collection::<Document>("tasks");
        tasks.find_one(doc! {}).session(&mut session).await?;
        Ok(Some(Box::new(session)))
    }
}

struct Bare {
    db: Database,
}

impl Bare {
    /// What the primary has now, or what the majority has.
    fn tasks(&self, concern: ReadConcern) -> Collection<Document> {
        let options = CollectionOptions::builder().read_concern(concern).build();
        self.db.collection_with_options("tasks", options)
    }

    async fn read(&self, tail: Vec<Document>, of: ReadConcern) -> Result<Vec<Document>, Failure> {
        let mut cursor = self.tasks(of).aggregate(tail).await?;
        let mut found = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    }

    /// The last of the drawn numbers, and the server's clock.
    async fn draw(&self, field: &str, count: usize) -> Result<(i64, DateTime), Failure> {
        let count = i64::try_from(count)?;
        let before = doc! { "$ifNull": [format!("${field}"), 0_i64] };
        let command = doc! {
            "findAndModify": "store",
            "query": { "_id": "numbers" },
            "update": [{ "$set": {
                field: { "$add": [before, count] }, "now": { "$max": ["$now", "$$NOW"] },
            } }],
            "new": true,
            "writeConcern": { "w": 1 },
        };
        let reply = self.db.run_command(command).await?;
        let drawn = reply.get_document("value")?;
        Ok((drawn.get_i64(field)?, *drawn.get_datetime("now")?))
    }

    /// Sends a durable write.
    async fn write(&self, mut command: Document) -> Result<Document, Failure> {
        command.insert("writeConcern", doc! { "w": "majority", "j": true, "wtimeout": 10_000 });
        Ok(self.db.run_command(command).await?)
    }

    async fn claim_once(&mut self, limit: usize, tries: u32) -> Result<Claimed, Failure> {
        let further = limit << (tries - 1).min(8);
        let due = vec![
            doc! { "$match": {
                "queue": QUEUE, "live": true, "$expr": { "$lte": ["$at", "$$NOW"] },
            } },
            doc! { "$sort": { "rank": 1, "at": 1, "seq": 1 } },
            doc! { "$limit": i64::try_from(further + 1)? },
            doc! { "$project": { "now": "$$NOW", "bytes": { "$binarySize": "$envelope" } } },
        ];
        let mut due = self.read(due, ReadConcern::local()).await?;
        if due.is_empty() {
            return Ok(Claimed::Nothing);
        }
        if tries > 1 {
            let surplus = due.len().saturating_sub(limit);
            let random = RandomState::new().build_hasher().finish();
            due.drain(..usize::try_from(random % (u64::try_from(surplus)? + 1))?);
        }
        due.truncate(limit);
        let ids: Vec<_> = due.iter().map(|due| due.get_str("_id")).collect::<Result<_, _>>()?;
        let whole = vec![
            doc! { "$match": { "_id": { "$in": ids } } },
            doc! { "$set": { "attempts": { "$slice": ["$attempts", -100] } } },
            doc! { "$unset": ["attempts.error.stack", "attempts.error.detail"] },
        ];
        let (found, (generation, now)) =
            try_join!(self.read(whole, ReadConcern::local()), self.draw("claims", 1))?;
        let ends = now.timestamp_millis() + i64::try_from(LEASE.as_millis())?;
        let (mut statements, mut held) = (Vec::new(), Vec::new());
        // What others took since it was seen is theirs.
        let is_due = |task: &&Document| task.get_datetime("at").is_ok_and(|at| *at <= now);
        for task in found.iter().filter(is_due) {
            let (seq, revision) = (task.get_i64("seq")?, task.get_i64("revision")?);
            let guard = vec![
                doc! { "$eq": ["$seq", seq] },
                doc! { "$eq": ["$revision", revision] },
                doc! { "$eq": ["$at", task.get_datetime("at")?] },
            ];
            let set = doc! {
                "revision": literal(revision + 1),
                "status": literal(IN_FLIGHT),
                "generation": literal(generation),
                "at": literal(DateTime::from_millis(ends)),
                "claimed_at": literal(now),
                "claimed_by": literal(WORKER),
                "ending": "$$REMOVE",
            };
            let id = task.get_str("_id")?;
            statements.push(statement(id, set, guard));
            let proof: Vec<u8> = [seq, revision + 1, generation]
                .iter()
                .flat_map(|number| number.to_be_bytes())
                .collect();
            held.push(Held { number: number_of(id)?, proof: Bytes::from(proof) });
        }
        if held.is_empty() {
            return Ok(Claimed::Lost);
        }
        let command = doc! { "update": "tasks", "updates": statements, "ordered": false };
        let reply = self.write(command).await?;
        let lost = lost(&reply)?;
        let held = held.into_iter().enumerate().filter(|(index, _)| !lost.contains(index));
        let held: Vec<_> = held.map(|(_, held)| held).collect();
        Ok(if held.is_empty() { Claimed::Lost } else { Claimed::Held(held) })
    }
}

/// What became of one try.
enum Claimed {
    Held(Vec<Held>),
    /// Others were faster with all of it.
    Lost,
    Nothing,
}

#[async_trait]
impl Hand for Bare {
    async fn admit(&mut self, numbers: Range<u64>) -> Result<(), Failure> {
        let count = usize::try_from(numbers.end - numbers.start)?;
        let (last, now) = self.draw("admissions", count).await?;
        let first = last + 1 - i64::try_from(count)?;
        let binary = |bytes: &[u8]| Binary { subtype: BinarySubtype::Generic, bytes: bytes.into() };
        let document = |(number, seq): (u64, i64)| {
            doc! {
                "_id": id_of(number), "queue": QUEUE, "handler_ref": HANDLER, "rank": 0_i64,
                "at": now, "seq": seq, "revision": 0_i64, "generation": 0_i64, "status": 1,
                "live": true, "created_at": now, "attempt_count": 0_i64, "redrive_count": 0_i64,
                "lease_expired_count": 0_i64, "last_attempt_no": 0_i64, "overrides": {},
                "progress": binary(&[]), "envelope": binary(&ENVELOPE), "records": 0_i64,
                "history_bytes": 0_i64, "attempts": [],
            }
        };
        let documents: Vec<_> = numbers.zip(first..).map(document).collect();
        let command = doc! { "insert": "tasks", "documents": documents, "ordered": false };
        let reply = self.write(command).await?;
        if reply.contains_key("writeErrors") { Err("a task was there".into()) } else { Ok(()) }
    }

    async fn claim(&mut self, limit: u32) -> Result<Vec<Held>, Failure> {
        for tries in 1..=TRIES_MAX {
            match self.claim_once(usize::try_from(limit)?, tries).await? {
                Claimed::Held(held) => return Ok(held),
                Claimed::Nothing => break,
                Claimed::Lost => tokio::time::sleep(Duration::from_micros(500)).await,
            }
        }
        Ok(Vec::new())
    }

    async fn complete(&mut self, held: Vec<Held>) -> Result<(), Failure> {
        let ids: Vec<_> = held.iter().map(|held| id_of(held.number)).collect();
        let wanted = doc! { "$match": { "_id": { "$in": &ids } } };
        let heads = doc! { "$project": {
            "attempts": 0, "envelope": 0, "progress": 0, "result": 0,
        } };
        let heads = vec![wanted, heads, doc! { "$set": { "now": "$$NOW" } }];
        let (found, (last, now)) =
            try_join!(self.read(heads, ReadConcern::majority()), self.draw("ends", held.len()))?;
        if found.len() != held.len() {
            return Err("a claimed task is gone".into());
        }
        let (mut statements, mut generations) = (Vec::new(), Vec::new());
        for (held, ended) in held.iter().zip(last + 1 - i64::try_from(held.len())?..) {
            let number = |at: usize| {
                let bytes = held.proof.get(at * 8..at * 8 + 8).ok_or("a proof")?;
                Ok::<_, Failure>(i64::from_be_bytes(bytes.try_into()?))
            };
            let (seq, revision, generation) = (number(0)?, number(1)?, number(2)?);
            generations.push(generation);
            let record = doc! {
                "no": 1_i64, "started": now, "finished": now, "outcome": 1, "worker_id": WORKER,
                "bytes": 40_i64, "light_bytes": 40_i64,
            };
            let set = doc! {
                "revision": literal(revision + 1),
                "attempt_count": literal(1_i64),
                "last_attempt_no": literal(1_i64),
                "attempts": { "$concatArrays": ["$attempts", [literal(record)]] },
                "records": literal(1_i64),
                "history_bytes": literal(40_i64),
                "result": literal(Binary { subtype: BinarySubtype::Generic, bytes: Vec::new() }),
                "status": literal(SUCCEEDED),
                "live": literal(false),
                "at": "$$REMOVE",
                "finished_at": literal(now),
                "ended": literal(ended),
                "kept": literal(SUCCEEDED),
                "claimed_at": "$$REMOVE",
                "claimed_by": "$$REMOVE",
                "ending": literal(doc! { "call": 1, "status": SUCCEEDED }),
            };
            let guard =
                vec![doc! { "$eq": ["$seq", seq] }, doc! { "$eq": ["$revision", revision] }];
            statements.push(statement(&id_of(held.number), set, guard));
        }
        let command = doc! { "update": "tasks", "updates": statements, "ordered": false };
        let reply = self.write(command).await?;
        if !lost(&reply)?.is_empty() {
            return Err("a claim was not held".into());
        }
        let done = doc! {
            "_id": { "$in": ids }, "generation": { "$in": generations }, "status": SUCCEEDED,
        };
        let deletes = vec![doc! { "q": done, "limit": 0 }];
        self.write(doc! { "delete": "tasks", "deletes": deletes, "ordered": false }).await?;
        Ok(())
    }
}

/// A value that is never read as an expression.
fn literal(value: impl Into<Bson>) -> Document {
    doc! { "$literal": value.into() }
}

/// A change under a guard; if that fails, so does the statement, by an error of its own.
fn statement(id: &str, mut set: Document, guard: Vec<Document>) -> Document {
    let lost = doc! { "$toInt": { "$concat": ["lost ", "$_id"] } };
    set.insert("guard", doc! { "$cond": [{ "$and": guard }, "$$REMOVE", lost] });
    doc! { "q": { "_id": id }, "u": [{ "$set": set }] }
}

/// The statements whose guards failed.
fn lost(reply: &Document) -> Result<Vec<usize>, Failure> {
    let mut lost = Vec::new();
    for error in reply.get_array("writeErrors").into_iter().flatten() {
        let error = error.as_document().ok_or("an error")?;
        let code = error.get_i32("code")?;
        // A write conflict did nothing either.
        if code != LOST && code != 112 {
            return Err(error.to_string().into());
        }
        lost.push(usize::try_from(error.get_i32("index")?)?);
    }
    Ok(lost)
}
