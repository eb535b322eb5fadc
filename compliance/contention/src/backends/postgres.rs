//! PostgreSQL, and its schema's functions called over sqlx alone: one connection for each caller,
//! and nothing between.

use super::{Backend, Started, WireGoals};
use crate::{
    hand::{
        BYTES_MAX, ENVELOPE, Failure, HANDLER, Hand, Held, LEASE, QUEUE, WORKER, id_of, number_of,
    },
    load::{Hands, now},
};
use async_trait::async_trait;
use bytes::Bytes;
use rdq_test_servers::postgres::{self, PostgresServer};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, raw_sql};
use std::{
    any::Any,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The statements are the plugin's own.
const SETTLE: &str = include_str!("../../../../plugins/postgres/src/queries/settle.sql");
const ENQUEUE: &str = include_str!("../../../../plugins/postgres/src/queries/enqueue.sql");
const CLAIM: &str = include_str!("../../../../plugins/postgres/src/queries/claim_due.sql");
const RESOLVE: &str = include_str!("../../../../plugins/postgres/src/queries/resolve.sql");

/// As the figures were measured that are to be beaten.
const SETTINGS: [&str; 2] = ["shared_buffers=1GB", "max_wal_size=8GB"];
/// Claims look from the start of the index so often, as the plugin's do.
const FROM_START: Duration = Duration::from_millis(500);

struct Postgres(PostgresServer);

/// Starts one.
pub(super) async fn start() -> Started {
    if let Some(missing) = postgres::missing_locally() {
        return Ok(Err(missing));
    }
    Ok(Ok(Box::new(Postgres(PostgresServer::start_with(&SETTINGS).await?))))
}

impl Postgres {
    async fn connect(&self, store: &str) -> Result<PgConnection, Failure> {
        let mut db = PgConnection::connect(self.0.url()).await?;
        sqlx::query(SETTLE)
            .bind(format!("{store}, pg_temp"))
            .bind("30s")
            .bind("5s")
            .execute(&mut db)
            .await?;
        Ok(db)
    }
}

#[async_trait]
impl Backend for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn url(&self, store: &str) -> String {
        format!("{}?namespace={store}", self.0.url())
    }

    fn supply(&self) -> u64 {
        30_000
    }

    fn wire_goals(&self) -> Option<WireGoals> {
        Some(WireGoals { lives: 49_000.0, pick_up_us: Some(3_100.0 / 4.0) })
    }

    async fn bare(&self, store: &str, count: usize) -> Result<Hands, Failure> {
        let head = Arc::new(Mutex::new(Head { from: now(), place: START }));
        let mut hands = Hands::new();
        for _ in 0..count {
            hands.push(Box::new(Bare { db: self.connect(store).await?, head: Arc::clone(&head) }));
        }
        Ok(hands)
    }

    async fn settle(&self, store: &str) -> Result<(), Failure> {
        let mut db = self.connect(store).await?;
        raw_sql("VACUUM (ANALYZE) unfinished").execute(&mut db).await?;
        Ok(())
    }

    async fn foreign_transaction(
        &self,
        store: &str,
    ) -> Result<Option<Box<dyn Any + Send>>, Failure> {
        let mut db = PgConnection::connect(self.0.url()).await?;
        raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut db).await?;
        let see = AssertSqlSafe(format!("SELECT FROM {store}.tasks LIMIT 1"));
        raw_sql(see).execute(&mut db).await?;
        Ok(Some(Box::new(db)))
    }
}

/// Rank, time and admission: a place in the index of due tasks.
type Place = (i32, i64, i64);
const START: Place = (i32::MIN, i64::MIN, i64::MIN);

/// Behind which place callers look for tasks.
struct Head {
    from: Instant,
    place: Place,
}

struct Bare {
    db: PgConnection,
    head: Arc<Mutex<Head>>,
}

impl Bare {
    fn look(&self) -> Place {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        if head.from.elapsed() > FROM_START {
            *head = Head { from: now(), place: START };
        }
        head.place
    }

    fn took(&self, place: Place) {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        head.place = head.place.max(place);
    }
}

#[async_trait]
impl Hand for Bare {
    async fn admit(&mut self, numbers: Range<u64>) -> Result<(), Failure> {
        let ids: Vec<_> = numbers.map(id_of).collect();
        let count = ids.len();
        // What is the same for all is not said of each.
        let none = None::<Vec<i64>>;
        let rows = sqlx::query(ENQUEUE)
            .bind(ids)
            .bind(vec![QUEUE; count])
            .bind(vec![HANDLER; count])
            .bind(vec![0_i32; count])
            .bind(&none)
            .bind(&none)
            .bind(&none)
            .bind(&none)
            .bind(&none)
            .bind(vec![&ENVELOPE[..]; count])
            .bind(&none)
            .bind(&none)
            .bind(&none)
            .bind(&none)
            .bind(&none)
            .bind(&none)
            .bind(&none)
            .bind(None::<Vec<&[u8]>>)
            .bind(&none)
            .bind(None::<Vec<i32>>)
            .bind(None::<Vec<&str>>)
            .bind(None::<Vec<&str>>)
            .bind(&none)
            .bind(None::<Vec<&str>>)
            .fetch_all(&mut self.db)
            .await?;
        all_are(&rows, 0)
    }

    async fn claim(&mut self, limit: u32) -> Result<Vec<Held>, Failure> {
        let (rank, at, seq) = self.look();
        let lease = i64::try_from(LEASE.as_millis())?;
        let rows = sqlx::query(CLAIM)
            .bind([QUEUE])
            .bind([lease])
            .bind([lease])
            .bind([rank])
            .bind([at])
            .bind([seq])
            .bind([i32::try_from(limit)?])
            .bind([i64::from(BYTES_MAX)])
            .bind([None::<i64>])
            .bind([WORKER])
            .fetch_all(&mut self.db)
            .await?;
        let mut held = Vec::with_capacity(rows.len());
        for row in rows {
            if row.try_get::<Option<i32>, _>("claim")?.is_none() {
                continue; // it says when to come again
            }
            self.took((row.try_get("rank")?, row.try_get("was_due")?, row.try_get("seq")?));
            let generation: i64 = row.try_get("generation")?;
            let proof = Bytes::copy_from_slice(&generation.to_be_bytes());
            held.push(Held { number: number_of(row.try_get("id")?)?, proof });
        }
        Ok(held)
    }

    async fn complete(&mut self, held: Vec<Held>) -> Result<(), Failure> {
        let count = held.len();
        let generation =
            |held: &Held| Ok::<_, Failure>(i64::from_be_bytes(held.proof[..].try_into()?));
        let generations = held.iter().map(generation).collect::<Result<Vec<_>, Failure>>()?;
        let (none, no_text) = (None::<Vec<i64>>, None::<Vec<&str>>);
        let rows = sqlx::query(RESOLVE)
            .bind(held.iter().map(|held| id_of(held.number)).collect::<Vec<_>>())
            .bind(generations)
            .bind(vec![1_i16; count])
            .bind(vec![4_i16; count])
            .bind(None::<Vec<bool>>)
            .bind(vec![true; count])
            .bind(&none)
            .bind(&none)
            .bind(None::<Vec<&[u8]>>)
            .bind(&no_text)
            .bind(&no_text)
            .bind(&no_text)
            .bind(&no_text)
            .bind(None::<Vec<&[u8]>>)
            .fetch_all(&mut self.db)
            .await?;
        all_are(&rows, 0)
    }
}

fn all_are(rows: &[sqlx::postgres::PgRow], expected: i16) -> Result<(), Failure> {
    for row in rows {
        let verdict: i16 = row.try_get("verdict")?;
        if verdict != expected {
            return Err(format!("verdict {verdict}").into());
        }
    }
    Ok(())
}
