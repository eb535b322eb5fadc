//! The database: its collections, how surely they are read and written, and how a command is sent,
//! bounded in time and repeated where it did nothing.

use crate::{
    clock::Clock,
    config::{MongoOptions, OpenError},
    document::TaskDocument,
    errors::{Access, Failure, Step},
    numbers::Numbering,
};
use futures::TryStreamExt as _;
use mongodb::{
    Client, ClientSession, Collection, Database,
    bson::{Bson, Document, doc},
    error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT},
    options::{ClientOptions, ReadConcern, WriteConcern},
};
use serde::de::DeserializeOwned;
use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};
use tokio::sync::Mutex;

/// A database that is away is said to be soon.
const SELECTION_MAX: Duration = Duration::from_secs(2);
/// How long a command may take by the server's clock.
const COMMAND_MAX: Duration = Duration::from_secs(20);
/// How long a write waits for the majority: it is there already, and its outcome unknown after.
const MAJORITY_MAX: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: u32 = 20;
/// How often a command that did nothing is sent.
pub(crate) const TRIES_MAX: u32 = 10;
/// How often a commit is sent whose outcome was not told.
const COMMITS_MAX: u32 = 3;

/// The collections of a store.
#[derive(Debug, Clone)]
pub(crate) struct Db {
    pub(crate) database: Database,
    pub(crate) clock: Arc<Clock>,
    pub(crate) numbering: Arc<Numbering>,
    client: Client,
    /// What another member could still undo is not read.
    tasks: Collection<TaskDocument>,
    /// As the primary sees them now: for what a guarded write follows.
    recent: Collection<TaskDocument>,
    /// Waits for the majority's journals.
    durable: WriteConcern,
    /// The transaction that all reads and durable writes are part of, if there is one.
    session: Option<Arc<Mutex<ClientSession>>>,
}

impl Db {
    /// Connects to nothing yet.
    pub(crate) async fn new(options: &MongoOptions) -> Result<Self, OpenError> {
        // The error may show the URL, and with it the password.
        let mut client = ClientOptions::parse(&options.url).await.map_err(|_| OpenError::Url)?;
        client.app_name = Some("rdq".into());
        client.server_selection_timeout.get_or_insert(SELECTION_MAX);
        client.connect_timeout.get_or_insert(SELECTION_MAX);
        client.max_pool_size.get_or_insert(CONNECTIONS_MAX);
        // What the driver repeats by itself nobody judged again.
        client.retry_writes = Some(false);
        // Every read here decides something: it is the primary's.
        client.selection_criteria = None;
        let client = Client::with_options(client)?;
        let database = client.database(&options.namespace);
        let durable = WriteConcern::builder()
            .w(mongodb::options::Acknowledgment::Majority)
            .journal(true)
            .w_timeout(MAJORITY_MAX)
            .build();
        let collection = |concern| {
            let options = mongodb::options::CollectionOptions::builder()
                .read_concern(concern)
                .write_concern(durable.clone())
                .build();
            database.collection_with_options("tasks", options)
        };
        let (tasks, recent) =
            (collection(ReadConcern::majority()), collection(ReadConcern::local()));
        let (clock, numbering) = (Arc::default(), Arc::default());
        Ok(Self { database, clock, numbering, client, tasks, recent, durable, session: None })
    }

    /// Waits for nothing but the primary's memory. What is written so is on disk and with the
    /// majority as soon as any later write of [`Db::write`] is.
    pub(crate) async fn write_ahead(&self, command: Document) -> Step<Document> {
        self.send(command, doc! { "w": 1 }).await
    }

    /// Runs a write that is with the majority, and on its disks, when this returns, or when its
    /// transaction is committed.
    pub(crate) async fn write(&self, command: Document) -> Step<Document> {
        if let Some(session) = &self.session {
            return self.send_within(&mut *session.lock().await, command).await;
        }
        let timeout = i32::try_from(MAJORITY_MAX.as_millis()).unwrap_or(i32::MAX);
        self.send(command, doc! { "w": "majority", "j": true, "wtimeout": timeout }).await
    }

    async fn send(&self, mut command: Document, concern: Document) -> Step<Document> {
        command.insert("writeConcern", concern);
        command.insert("maxTimeMS", i32::try_from(COMMAND_MAX.as_millis()).unwrap_or(i32::MAX));
        let mut tries = 0;
        loop {
            tries += 1;
            let failure = match self.database.run_command(command.clone()).await {
                Ok(reply) => match reply.get_document("writeConcernError") {
                    Ok(error) => return Err(Failure::Unknown(error.to_string().into())),
                    Err(_) => return Ok(reply),
                },
                Err(error) => Failure::of(error, Access::Write),
            };
            if !failure.may_be_repeated() || tries == TRIES_MAX {
                return Err(failure);
            }
            pause(tries).await;
        }
    }

    /// Until the commit nothing is applied, and any error ends the transaction: whoever began it
    /// begins another.
    async fn send_within(
        &self,
        session: &mut ClientSession,
        mut command: Document,
    ) -> Step<Document> {
        command.insert("maxTimeMS", i32::try_from(COMMAND_MAX.as_millis()).unwrap_or(i32::MAX));
        let reply = self.database.run_command(command).session(session).await;
        let reply = reply.map_err(|error| Failure::of(error, Access::Read))?;
        match crate::changes::first_error(&reply, Access::Read) {
            Some(failure) => Err(failure),
            None => Ok(reply),
        }
    }

    /// Puts in new tasks, none of which stands in the way of another; answers the errors of those
    /// that could not be.
    pub(crate) async fn insert(&self, tasks: &[TaskDocument]) -> Step<Vec<(usize, i32, String)>> {
        use mongodb::error::ErrorKind;
        let insert = self.tasks.insert_many(tasks).ordered(false);
        let inserted = match &self.session {
            Some(session) => insert.session(&mut *session.lock().await).await,
            None => insert.await,
        };
        let Err(error) = inserted else { return Ok(Vec::new()) };
        match error.kind.as_ref() {
            ErrorKind::InsertMany(refused) if refused.write_concern_error.is_none() => {
                let errors = refused.write_errors.iter().flatten();
                Ok(errors.map(|it| (it.index, it.code, it.message.clone())).collect())
            }
            ErrorKind::InsertMany(_) => Err(Failure::Unknown(error.into())),
            _ => Err(Failure::of(error, Access::Write)),
        }
    }

    /// What the majority has, or the transaction sees.
    pub(crate) async fn read<T>(&self, pipeline: Vec<Document>) -> Step<Vec<T>>
    where
        T: DeserializeOwned + Send + Sync + Unpin,
    {
        self.aggregate_all(&self.tasks, pipeline).await
    }

    /// What the primary has now, or the transaction sees.
    pub(crate) async fn read_recent<T>(&self, pipeline: Vec<Document>) -> Step<Vec<T>>
    where
        T: DeserializeOwned + Send + Sync + Unpin,
    {
        self.aggregate_all(&self.recent, pipeline).await
    }

    /// What the majority has, or the transaction sees, of a collection beside the tasks'.
    pub(crate) async fn read_from<T>(&self, name: &str, pipeline: Vec<Document>) -> Step<Vec<T>>
    where
        T: DeserializeOwned + Send + Sync + Unpin,
    {
        self.aggregate_all(&self.beside(name), pipeline).await
    }

    /// The same, one after the other until `each` has enough.
    pub(crate) async fn read_each<T>(
        &self,
        name: &str,
        pipeline: Vec<Document>,
        each: impl FnMut(T) -> Step<ControlFlow<()>> + Send,
    ) -> Step<()>
    where
        T: DeserializeOwned + Send + Sync + Unpin,
    {
        self.aggregate(&self.beside(name), pipeline, each).await
    }

    async fn aggregate_all<C, T>(
        &self,
        collection: &Collection<C>,
        pipeline: Vec<Document>,
    ) -> Step<Vec<T>>
    where
        C: Send + Sync,
        T: DeserializeOwned + Send + Sync + Unpin,
    {
        let mut found = Vec::new();
        let all = |item| {
            found.push(item);
            Ok(ControlFlow::Continue(()))
        };
        self.aggregate(collection, pipeline, all).await?;
        Ok(found)
    }

    async fn aggregate<C, T>(
        &self,
        collection: &Collection<C>,
        pipeline: Vec<Document>,
        mut each: impl FnMut(T) -> Step<ControlFlow<()>> + Send,
    ) -> Step<()>
    where
        C: Send + Sync,
        T: DeserializeOwned + Send + Sync + Unpin,
    {
        let read = |error| Failure::of(error, Access::Read);
        let aggregate = collection.aggregate(pipeline).max_time(COMMAND_MAX);
        if let Some(session) = &self.session {
            let session = &mut *session.lock().await;
            let cursor = aggregate.session(&mut *session).with_type::<T>().await;
            let mut cursor = cursor.map_err(read)?;
            while let Some(item) = cursor.next(session).await {
                if each(item.map_err(read)?)?.is_break() {
                    break;
                }
            }
        } else {
            let mut cursor = aggregate.with_type::<T>().await.map_err(read)?;
            while let Some(item) = cursor.try_next().await.map_err(read)? {
                if each(item)?.is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Begins a transaction: the same database, of which all that is read and durably written is
    /// part of it. It sees one moment, and its own writes; dropped, it is rolled back. One that only
    /// reads in the end waits for nobody's disk there.
    pub(crate) async fn begin(&self, access: Access) -> Step<Self> {
        let concern = match access {
            Access::Read => WriteConcern::nodes(1),
            Access::Write => self.durable.clone(),
        };
        let failed = |error| Failure::of(error, Access::Read);
        let mut session = self.client.start_session().await.map_err(failed)?;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(concern)
            .max_commit_time(COMMAND_MAX)
            .await
            .map_err(failed)?;
        Ok(Self { session: Some(Arc::new(Mutex::new(session))), ..self.clone() })
    }

    /// Whether this is inside a transaction.
    pub(crate) fn is_within(&self) -> bool {
        self.session.is_some()
    }

    /// Makes everything of the transaction happen; it is with the majority, and on its disks, then.
    pub(crate) async fn commit(&self) -> Step<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let mut session = session.lock().await;
        let mut tries = 0;
        loop {
            tries += 1;
            let Err(error) = session.commit_transaction().await else { return Ok(()) };
            if error.contains_label(TRANSIENT_TRANSACTION_ERROR) {
                // Nothing of it happened, whichever of the tries this answers.
                return Err(Failure::of(error, Access::Read));
            }
            if !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) {
                let failure = Failure::of(error, Access::Write);
                return Err(if tries > 1 { failure.after_a_write() } else { failure });
            }
            if tries == COMMITS_MAX {
                return Err(Failure::Unknown(error.into()));
            }
            pause(tries).await;
        }
    }

    /// Makes nothing of the transaction happen.
    pub(crate) async fn rollback(&self) {
        let Some(session) = &self.session else { return };
        if let Err(error) = session.lock().await.abort_transaction().await {
            // The server ends it by itself.
            tracing::debug!(%error, "a transaction was not rolled back at once");
        }
    }

    /// A small collection beside the tasks'.
    pub(crate) fn beside(&self, name: &str) -> Collection<Document> {
        let options = mongodb::options::CollectionOptions::builder()
            .read_concern(ReadConcern::majority())
            .write_concern(self.durable.clone())
            .build();
        self.database.collection_with_options(name, options)
    }

    /// Ends the connections.
    pub(crate) async fn close(&self) {
        self.client.clone().shutdown().immediate(true).await;
    }
}

/// Longer from try to try, and never the same for two who met.
pub(crate) async fn pause(tries: u32) {
    tokio::time::sleep(Duration::from_micros(random() % (1_000 << tries.min(8)))).await;
}

pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A value that is never read as an expression.
pub(crate) fn literal(value: impl Into<Bson>) -> Bson {
    Bson::Document(doc! { "$literal": value.into() })
}
