//! An application's own transaction, joined: what rdq writes there commits with the application's
//! rows, and never if they do not.

use crate::{
    DEFAULT_NAMESPACE,
    config::{OpenError, check_namespace},
    coordination::{
        ledger,
        operations::{self, Done, News, end_savepoint},
        records, signals, streams, tasks,
    },
    errors::{Access, Failure, Sql, corrupt},
    migrations::NEWEST,
    notifier,
    pool::search_path,
    token::StoreId,
};
use futures::{FutureExt as _, future::BoxFuture};
use rdq_spi::{
    Admission, Applied, Cancelled, ChannelName, CompareAndSet, ConsumerName, Mutation,
    MutationScope, NewEvent, NewTask, Operation, ReadParams, Record, RecordKey, Rejected,
    Resolution, Resolved, Result, SaveOffset, StorageError, StreamEvent, StreamName, Task, TaskId,
    Topic,
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, raw_sql};
use std::{collections::BTreeSet, iter};

/// Who sends to servers from an application's transaction.
const SENDER: &str = "joined";
/// The settings while a call runs, beside the search path: how long it waits for another
/// transaction's lock, and what plans need of a session of ours.
const SETTINGS: [(&str, &str); 10] = [
    ("lock_timeout", "5s"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_nestloop", "on"),
    ("enable_indexscan", "on"),
    ("enable_tidscan", "on"),
    ("jit", "off"),
];

/// Why a transaction cannot be joined. Nothing of it was changed.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The namespace is not a plain name.
    #[error("namespace {namespace:?} is not a plain name")]
    Namespace {
        /// What was asked for.
        namespace: String,
    },
    /// The connection is not inside a transaction.
    #[error("the connection is not inside a transaction")]
    NoTransaction,
    /// There is no schema of rdq's in this database.
    #[error("schema {namespace} is not one of rdq")]
    NoSchema {
        /// Which was looked for.
        namespace: String,
    },
    /// The schema has another version than this crate: `rdq migrate` brings an older one to it.
    #[error("schema {namespace} has version {found}, and this is for version {known}")]
    Version {
        /// Which schema.
        namespace: String,
        /// Its version.
        found: i32,
        /// The version known here.
        known: u32,
    },
    /// The database refused, or cannot be reached.
    #[error("the database cannot be used")]
    Sql(#[source] sqlx::Error),
}

impl From<sqlx::Error> for JoinError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if code.as_deref() == Some("25P01") { Self::NoTransaction } else { Self::Sql(error) }
    }
}

/// A joined transaction. It is the application's to commit: a call changes nothing that others see,
/// and a call that is refused leaves the transaction as it was. Servers are told at the commit.
#[derive(Debug)]
pub struct Joined<'c> {
    db: &'c mut PgConnection,
    store_id: StoreId,
    /// The search path while a call runs, and the application's own settings.
    path: String,
    theirs: Vec<String>,
}

/// Joins a transaction of a database whose schema has the default name.
///
/// ```no_run
/// # async fn order(pool: sqlx::PgPool, paid: rdq_spi::NewEvent) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pool.begin().await?;
/// sqlx::query("UPDATE orders SET paid = true WHERE id = 7").execute(&mut *tx).await?;
/// rdq_postgres::join(&mut tx).await?.publish(paid).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
pub async fn join(transaction: &mut PgConnection) -> Result<Joined<'_>, JoinError> {
    join_namespace(transaction, DEFAULT_NAMESPACE).await
}

/// Joins a transaction of a database whose schema has this name.
pub async fn join_namespace<'c>(
    transaction: &'c mut PgConnection,
    namespace: &str,
) -> Result<Joined<'c>, JoinError> {
    let namespace_of_error = || namespace.to_owned();
    check_namespace(namespace).map_err(|error| match error {
        OpenError::Sql(error) => JoinError::Sql(error),
        _ => JoinError::Namespace { namespace: namespace_of_error() },
    })?;
    // Refused outside of a transaction.
    raw_sql("SAVEPOINT rdq; RELEASE SAVEPOINT rdq").execute(&mut *transaction).await?;
    let row = sqlx::query(include_str!("../queries/schema.sql")).bind(namespace);
    if !row.fetch_one(&mut *transaction).await?.try_get::<bool, _>("is_ours")? {
        return Err(JoinError::NoSchema { namespace: namespace_of_error() });
    }
    let sql = format!(
        "SELECT version, (SELECT store_id FROM {namespace}.store) AS store_id,
            ARRAY(
                SELECT current_setting(name) FROM unnest($1::text[]) WITH ORDINALITY AS s (name, n)
                ORDER BY n
            ) AS settings
        FROM {namespace}.schema_version"
    );
    let row = sqlx::query(AssertSqlSafe(sql)).bind(names()).fetch_one(&mut *transaction).await?;
    let found: i32 = row.try_get("version")?;
    if u32::try_from(found) != Ok(NEWEST) {
        let namespace = namespace_of_error();
        return Err(JoinError::Version { namespace, found, known: NEWEST });
    }
    let store_id: Vec<u8> = row.try_get("store_id")?;
    Ok(Joined {
        db: transaction,
        store_id: StoreId(store_id.try_into().map_err(|_| corrupt("store_id"))?),
        path: search_path(namespace),
        theirs: row.try_get("settings")?,
    })
}

impl Joined<'_> {
    /// Applies all of these operations, or none. Others who observe the mutation that is among them wait
    /// for the end of the transaction ([`rdq_spi::Ledger`]).
    pub async fn apply(&mut self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        let store_id = self.store_id;
        let applied = self.call_unless("transaction", Result::is_err, |db| {
            async move {
                let applied = operations::apply(db, store_id, &operations).await?;
                if let Ok(Done { news, .. }) = &applied {
                    tell(db, store_id, news).await?;
                }
                Ok(applied)
            }
            .boxed()
        });
        Ok(applied.await??.applied)
    }

    /// Admits a task ([`rdq_spi::Storage::enqueue`]).
    pub async fn enqueue(&mut self, task: NewTask) -> Result<Admission> {
        match self.one(Operation::Enqueue(task)).await? {
            Applied::Enqueued(admission) => Ok(admission),
            other => Err(unexpected(other)),
        }
    }

    /// Publishes an event, and answers its offset. Others who publish to the stream wait for the end
    /// of the transaction ([`rdq_spi::Streams::publish`]).
    pub async fn publish(&mut self, event: NewEvent) -> Result<i64> {
        match self.one(Operation::Publish(event)).await? {
            Applied::Published(offset) => Ok(offset),
            other => Err(unexpected(other)),
        }
    }

    /// Wakes whoever listens to the channel, at the commit ([`rdq_spi::Signals::notify`]).
    pub async fn notify(&mut self, channel: ChannelName) -> Result<()> {
        self.one(Operation::Notify(channel)).await.map(|_| ())
    }

    /// Saves an offset, and answers what is saved then ([`rdq_spi::Streams::save_offsets`]).
    pub async fn save_offset(&mut self, save: SaveOffset) -> Result<i64> {
        match self.one(Operation::SaveOffset(save)).await? {
            Applied::OffsetSaved(offset) => Ok(offset),
            other => Err(unexpected(other)),
        }
    }

    /// Changes a record, and answers its revision ([`rdq_spi::Records::compare_and_set`]).
    pub async fn compare_and_set(&mut self, change: CompareAndSet) -> Result<i64> {
        match self.one(Operation::CompareAndSet(change)).await? {
            Applied::Recorded(revision) => Ok(revision),
            other => Err(unexpected(other)),
        }
    }

    /// Ends a task for good ([`rdq_spi::Storage::cancel`]).
    pub async fn cancel(&mut self, task: TaskId) -> Result<Cancelled> {
        match self.one(Operation::Cancel(task)).await? {
            Applied::Cancelled(cancelled) => Ok(cancelled),
            other => Err(unexpected(other)),
        }
    }

    /// Ends a claim ([`rdq_spi::Storage::resolve`]).
    pub async fn resolve(&mut self, resolution: Resolution) -> Result<Resolved> {
        match self.one(Operation::Resolve(resolution)).await? {
            Applied::Resolved(resolved) => Ok(resolved),
            other => Err(unexpected(other)),
        }
    }

    /// Reads a task, as the transaction sees it.
    pub async fn get(&mut self, task: TaskId) -> Result<Task> {
        self.call("get", |db| async move { tasks::get(db, &task).await }.boxed()).await?
    }

    /// Reads events, as the transaction sees them.
    pub async fn read(&mut self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        self.call("read", |db| async move { streams::read(db, &params).await }.boxed()).await
    }

    /// Reads a saved offset, as the transaction sees it.
    pub async fn offset(&mut self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        let read = self.call("offset", |db| {
            async move { streams::saved_offset(db, &stream, &consumer).await }.boxed()
        });
        read.await
    }

    /// Reads a record, as the transaction sees it.
    pub async fn get_record(&mut self, key: RecordKey) -> Result<Option<Record>> {
        self.call("get_record", |db| async move { records::get(db, &key).await }.boxed()).await
    }

    /// Reads a mutation, as the transaction sees it.
    pub async fn mutation(&mut self, scope: MutationScope) -> Result<Option<Mutation>> {
        self.call("mutation", |db| async move { ledger::get(db, &scope).await }.boxed()).await
    }

    async fn one(&mut self, operation: Operation) -> Result<Applied> {
        let applied = self.apply(vec![operation]).await.map_err(|rejected| rejected.error)?;
        applied.into_iter().next().ok_or_else(|| internal("no answer to an operation"))
    }

    /// Runs a read.
    async fn call<T: Send>(
        &mut self,
        operation: &'static str,
        call: impl for<'d> FnOnce(&'d mut PgConnection) -> BoxFuture<'d, Sql<T>> + Send,
    ) -> Result<T> {
        self.call_unless(operation, |_| false, call).await
    }

    /// Runs a call with the settings of our own sessions, and undoes it if it fails or is refused:
    /// the application finds its transaction and its settings as they were.
    async fn call_unless<T: Send>(
        &mut self,
        operation: &'static str,
        is_refused: fn(&T) -> bool,
        call: impl for<'d> FnOnce(&'d mut PgConnection) -> BoxFuture<'d, Sql<T>> + Send,
    ) -> Result<T> {
        let Self { db, path, theirs, .. } = self;
        let ours: Vec<_> = iter::once(&path[..]).chain(SETTINGS.map(|(_, value)| value)).collect();
        let theirs: Vec<_> = theirs.iter().map(String::as_str).collect();
        let run = async {
            raw_sql("SAVEPOINT rdq").execute(&mut **db).await?;
            let called = async {
                set(db, &ours).await?;
                let answer = call(db).await?;
                set(db, &theirs).await?;
                Ok(answer)
            };
            let called: Sql<T> = called.await;
            let is_kept = called.as_ref().is_ok_and(|answer| !is_refused(answer));
            end_savepoint(db, is_kept).await?;
            called
        };
        let ran: Sql<T> = run.await;
        ran.map_err(|error| Failure::of_statement(error, Access::Read).answer(operation))
    }
}

/// What is set for a call.
fn names() -> Vec<&'static str> {
    iter::once("search_path").chain(SETTINGS.map(|(name, _)| name)).collect()
}

/// Sets all of them, for the transaction.
async fn set(db: &mut PgConnection, values: &[&str]) -> Sql<()> {
    let set = "SELECT set_config(name, value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value)";
    sqlx::query(set).bind(names()).bind(values).execute(db).await?;
    Ok(())
}

/// Tells servers at the commit, which is not ours to see.
async fn tell(db: &mut PgConnection, store_id: StoreId, news: &News) -> Sql<()> {
    let published = news.published.iter().cloned().map(Topic::Stream);
    let topics: BTreeSet<_> = news.notified.iter().cloned().chain(published).collect();
    let mut messages = signals::messages(SENDER, &topics);
    messages.extend(notifier::messages(SENDER, &news.dues.worth_telling()));
    if messages.is_empty() {
        return Ok(());
    }
    signals::tell(db, &store_id.channel(), &messages).await
}

fn unexpected(applied: Applied) -> StorageError {
    internal(format!("an operation of another kind was answered: {applied:?}"))
}

fn internal(cause: impl Into<rdq_spi::BoxError>) -> StorageError {
    StorageError::Internal { operation: "transaction", source: cause.into() }
}
