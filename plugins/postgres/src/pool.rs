//! The connections, and how a call runs on one: to its end even if nobody waits for it any more, by
//! a deadline, and again where it lost against another transaction.
//!
//! Every call is one statement, which commits by itself: a connection is never left inside a
//! transaction.

use crate::{
    config::{OpenError, PostgresOptions},
    connections::{self, Connections},
    errors::{Access, Failure, Sql},
};
use futures::future::BoxFuture;
use rdq_spi::{Result, StorageError};
use sqlx::{PgConnection, postgres::PgConnectOptions};
use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    sync::Arc,
    time::Duration,
};
use tokio::sync::Semaphore;

/// How long a call waits for one of the connections to be free: as long as a statement may take.
pub(crate) const TURN_MAX: Duration = Duration::from_secs(30);
/// How long a statement may take by our clock, should the server not end it by its own.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(35);
/// How often a call that lost against another transaction is tried.
pub(crate) const TRIES_MAX: u32 = 8;

/// The connections.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) connections: Arc<Connections>,
    /// How many calls may run at once.
    pub(crate) width: u32,
    pub(crate) free: Arc<Semaphore>,
}

impl Pool {
    /// Connections to this database and schema, none of them open yet.
    pub(crate) fn new(options: &PostgresOptions) -> Self {
        let width = options.max_connections.max(2);
        let options_of_each = connect_options(&options.connect);
        let connections = Connections::new(options_of_each, search_path(&options.namespace));
        let free = Arc::new(Semaphore::new(width as usize));
        Self { connections: Arc::new(connections), width, free }
    }

    /// Runs a call that changes nothing.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Sql<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        self.run(operation, Access::Read, call).await
    }

    /// Runs a call that changes something, in one transaction.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Sql<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        self.run(operation, Access::Write, call).await
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        access: Access,
        call: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Sql<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (connections, free) = (Arc::clone(&self.connections), Arc::clone(&self.free));
        // In a task of its own: whoever gives up waiting does not leave a statement half sent.
        let ran = tokio::spawn(async move {
            let permit = match tokio::time::timeout(TURN_MAX, free.acquire_owned()).await {
                Ok(permit) => permit.map_err(|_| StorageError::Closed)?,
                Err(_) => {
                    return Err(Failure::of_connecting(sqlx::Error::PoolTimedOut).answer(operation));
                }
            };
            let ran = repeat(&connections, access, call).await;
            drop(permit);
            ran.map_err(|failure| failure.answer(operation))
        });
        ran.await.unwrap_or_else(|error| {
            Err(StorageError::Internal { operation, source: io::Error::other(error).into() })
        })
    }

    /// Waits for what is running and closes the connections.
    pub(crate) async fn close(&self) {
        // Nobody runs who has all turns; who comes later is refused.
        let all = self.free.acquire_many(self.width).await;
        self.free.close();
        drop(all);
        self.connections.close().await;
    }
}

async fn repeat<T>(
    connections: &Connections,
    access: Access,
    call: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Sql<T>>,
) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        let mut connection = connections.acquire().await.map_err(Failure::of_connecting)?;
        let failure = match tokio::time::timeout(ANSWER_MAX, call(&mut connection)).await {
            Ok(Ok(answer)) => {
                connections.release(connection);
                return Ok(answer);
            }
            Ok(Err(error)) => Failure::of_statement(error, access),
            Err(_) => Failure::timed_out(access),
        };
        if failure.breaks_connection() {
            drop(connection);
            connections.abandon();
        } else {
            connections.release(connection);
        }
        tries += 1;
        if !failure.may_be_repeated() || tries == TRIES_MAX {
            return Err(failure);
        }
        tokio::time::sleep(pause(tries)).await;
    }
}

/// Longer from try to try, and never the same for two who met.
pub(crate) fn pause(tries: u32) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    Duration::from_micros(random % (1_000 << tries.min(8)))
}

/// How any connection of a handle is opened.
pub(crate) fn connect_options(options: &PgConnectOptions) -> PgConnectOptions {
    use sqlx::ConnectOptions as _;
    // No float is ever read, and a pooler may refuse the parameter before it can be told from a
    // database. Statements are not logged: they carry payloads.
    options.clone().application_name("rdq").extra_float_digits(None).disable_statement_logging()
}

/// A connection beside the pool.
pub(crate) async fn connect(options: &PostgresOptions) -> Result<PgConnection, OpenError> {
    let path = search_path(&options.namespace);
    Ok(connections::open(&connect_options(&options.connect), &path).await?)
}

/// Our schema, and temporary tables of others last.
pub(crate) fn search_path(namespace: &str) -> String {
    format!("{namespace}, pg_temp")
}
