//! MongoDB, and the plugin's commands sent over its driver alone: one connection for each caller, and
//! nothing between. Callers do not share commands, as those of one plugin do.

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
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher as _, Hasher as _},
    ops::Range,
    time::Duration,
};
use tokio::try_join;

const PENDING: i32 = 0;
const IN_FLIGHT: i32 = 1;
/// A claim that lost all it picked to others picks again so often, as the plugin does.
const TRIES_MAX: u32 = 10;
/// Ticks of numbers in a millisecond, and the bits below them, which are the plugin's handles'.
const TICKS: i64 = 256;
const PLACE_BITS: u32 = 12;

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

    /// The last of the drawn ticks, and the server's clock.
    async fn draw(&self, field: &str, count: usize) -> Result<(i64, DateTime), Failure> {
        let count = i64::try_from(count)?;
        let by_clock = doc! { "$multiply": [{ "$toLong": "$now" }, TICKS] };
        let before = doc! { "$max": [format!("${field}"), by_clock] };
        let command = doc! {
            "findAndModify": "store",
            "query": { "_id": "numbers" },
            "update": [
                { "$set": { "now": { "$max": ["$now", "$$NOW"] } } },
                { "$set": { field: { "$add": [before, count] } } },
            ],
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
        let size = |field: &str| doc! { "$binarySize": field };
        let due = vec![
            doc! { "$match": {
                "queue": QUEUE, "live": true, "$expr": { "$lte": ["$at", "$$NOW"] },
            } },
            doc! { "$sort": { "rank": 1, "at": 1, "seq": 1 } },
            doc! { "$limit": i64::try_from(further + 1)? },
            doc! { "$set": {
                "now": "$$NOW",
                "weight": { "$toLong": { "$add": [size("$envelope"), size("$progress")] } },
                "attempts": "$$REMOVE",
            } },
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
        let now = *due[0].get_datetime("now")?;
        let (mut ids, mut admissions, mut above) = (Vec::new(), Vec::new(), 0);
        for task in &due {
            ids.push(task.get_str("_id")?);
            admissions.push(task.get_i64("seq")?);
            above = above.max(task.get_i64("seq")?).max(task.get_i64("generation")?);
        }
        let by_clock = (now.timestamp_millis() * TICKS) << PLACE_BITS;
        let generation = by_clock.max(above + (1 << PLACE_BITS));
        let mark = RandomState::new().build_hasher().finish().cast_signed();
        let ends = now.timestamp_millis() + i64::try_from(LEASE.as_millis())?;
        let change = doc! {
            "$set": {
                "status": IN_FLIGHT,
                "generation": generation,
                "mark": mark,
                "at": DateTime::from_millis(ends),
                "claimed_at": now,
                "claimed_by": WORKER,
            },
            "$inc": { "revision": 1_i64 },
            "$unset": { "ending": "" },
        };
        let wanted = doc! {
            "_id": { "$in": &ids }, "seq": { "$in": admissions }, "status": PENDING,
            "at": { "$lte": now }, "generation": { "$lt": generation }, "revision": 0_i64,
        };
        let update = doc! { "q": wanted, "u": change, "multi": true, "hint": { "_id": 1 } };
        let command = doc! { "update": "tasks", "updates": [update], "ordered": false };
        let count = counted(&self.write(command).await?)?;
        // What others took since it was seen is theirs.
        let taken = if count < due.len() {
            let ours = doc! { "_id": { "$in": ids }, "generation": generation, "mark": mark };
            self.read(vec![doc! { "$match": ours }], ReadConcern::local()).await?
        } else {
            due
        };
        let held = taken.iter().map(|task| {
            let proof = [task.get_i64("seq")?.to_be_bytes(), generation.to_be_bytes()].concat();
            Ok::<_, Failure>(Held {
                number: number_of(task.get_str("_id")?)?,
                proof: Bytes::from(proof),
            })
        });
        let held: Vec<_> = held.collect::<Result<_, _>>()?;
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
        let document = |(number, tick): (u64, i64)| {
            doc! {
                "_id": id_of(number), "queue": QUEUE, "handler_ref": HANDLER, "rank": 0_i64,
                "at": now, "seq": tick << PLACE_BITS, "revision": 0_i64, "generation": 0_i64,
                "status": PENDING,
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
        let mut claims: HashMap<i64, (Vec<String>, Vec<i64>)> = HashMap::new();
        for held in &held {
            let number = |at: usize| {
                let bytes = held.proof.get(at * 8..at * 8 + 8).ok_or("a proof")?;
                Ok::<_, Failure>(i64::from_be_bytes(bytes.try_into()?))
            };
            let (ids, admissions) = claims.entry(number(1)?).or_default();
            ids.push(id_of(held.number));
            admissions.push(number(0)?);
        }
        let heads = vec![
            doc! { "$match": { "_id": { "$in": &ids } } },
            doc! { "$project": { "seq": 1, "generation": 1, "status": 1 } },
        ];
        let highest = claims.keys().max().map_or(0, |generation| generation >> PLACE_BITS);
        let lift = doc! {
            "update": "store",
            "updates": [{
                "q": { "_id": "numbers", "admissions": { "$lt": highest } },
                "u": { "$set": { "admissions": highest } },
            }],
            "writeConcern": { "w": 1 },
        };
        let lifted = async { Ok(self.db.run_command(lift).await?) };
        let (found, _) = try_join!(self.read(heads, ReadConcern::local()), lifted)?;
        if found.len() != held.len() {
            return Err("a claimed task is gone".into());
        }
        let deletes: Vec<_> = claims
            .into_iter()
            .map(|(generation, (ids, admissions))| {
                let wanted = doc! {
                    "_id": { "$in": ids }, "seq": { "$in": admissions },
                    "generation": generation, "status": IN_FLIGHT,
                };
                doc! { "q": wanted, "limit": 0, "hint": { "_id": 1 } }
            })
            .collect();
        let command = doc! { "delete": "tasks", "deletes": deletes, "ordered": false };
        if counted(&self.write(command).await?)? < held.len() {
            return Err("a claim was not held".into());
        }
        Ok(())
    }
}

/// How many tasks a command changed.
fn counted(reply: &Document) -> Result<usize, Failure> {
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    for error in errors.filter_map(Bson::as_document) {
        // One that met other writers stopped there.
        if error.get_i32("code")? != 112 {
            return Err(error.to_string().into());
        }
    }
    Ok(usize::try_from(reply.get_i32("n")?)?)
}
