//! The connections, and how a call runs on one: to its end even if nobody waits for it any more, by
//! a deadline, and again where it lost against another transaction.
//!
//! Every call is one statement, which commits by itself: a connection is never left inside a
//! transaction.

use crate::{
    config::{OpenError, PostgresOptions},
    errors::{Access, Failure, Sql},
};
use futures::future::BoxFuture;
use rdq_spi::{Result, StorageError};
use sqlx::{
    Connection as _, PgConnection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpStream, sync::Semaphore};

/// How long a call waits for one of the connections to be free: as long as a statement may take.
const TURN_MAX: Duration = Duration::from_secs(30);
/// How long it waits for a new connection: a database that recovers, or a machine that is busy,
/// takes its time.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// After so long it looks whether there is anybody to wait for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a statement may take, by the server's clock and, should the server not answer, by ours.
const STATEMENT_MAX: &str = "30s";
const ANSWER_MAX: Duration = Duration::from_secs(35);
/// How long a statement waits for another transaction's lock.
const LOCK_MAX: &str = "5s";
/// An idle connection is given back after this.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// One that idled for longer is asked whether it lives: a write that is sent into a dead one has an
/// unknown outcome.
const TRUSTED_IDLE: Duration = Duration::from_millis(500);
/// How often a call that lost against another transaction is tried.
const TRIES_MAX: u32 = 8;

/// The connections.
#[derive(Debug)]
pub(crate) struct Pool {
    connections: PgPool,
    /// Where the database is, unless it is a socket in the file system.
    address: Option<(String, u16)>,
    free: Arc<Semaphore>,
}

impl Pool {
    /// Connections to this database and schema, none of them open yet.
    pub(crate) fn new(options: &PostgresOptions) -> Self {
        let max_connections = options.max_connections.max(2);
        let path = search_path(&options.namespace);
        let connections = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(CONNECT_MAX)
            .idle_timeout(IDLE_MAX)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > TRUSTED_IDLE {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .after_connect(move |connection, _| {
                let path = path.clone();
                Box::pin(async move { settle(connection, &path).await })
            })
            .connect_lazy_with(connect_options(&options.connect));
        let free = Arc::new(Semaphore::new(max_connections as usize));
        let host = options.connect.get_host();
        let is_remote = options.connect.get_socket().is_none() && !host.starts_with('/');
        let address = is_remote.then(|| (host.to_owned(), options.connect.get_port()));
        Self { connections, address, free }
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
        let (connections, free) = (self.connections.clone(), Arc::clone(&self.free));
        let address = self.address.clone();
        // In a task of its own: whoever gives up waiting does not leave a statement half sent.
        let ran = tokio::spawn(async move {
            let permit = match tokio::time::timeout(TURN_MAX, free.acquire_owned()).await {
                Ok(permit) => permit.map_err(|_| StorageError::Closed)?,
                Err(_) => {
                    return Err(Failure::of_connecting(sqlx::Error::PoolTimedOut).answer(operation));
                }
            };
            let ran = repeat(&connections, address.as_ref(), access, call).await;
            drop(permit);
            ran.map_err(|failure| failure.answer(operation))
        });
        ran.await.unwrap_or_else(|error| {
            Err(StorageError::Internal { operation, source: io::Error::other(error).into() })
        })
    }

    /// Waits for what is running and closes the connections.
    pub(crate) async fn close(&self) {
        self.free.close();
        self.connections.close().await;
    }
}

async fn repeat<T>(
    connections: &PgPool,
    address: Option<&(String, u16)>,
    access: Access,
    call: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Sql<T>>,
) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        let mut connection = acquire(connections, address).await.map_err(Failure::of_connecting)?;
        let failure = match tokio::time::timeout(ANSWER_MAX, call(&mut connection)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::of_statement(error, access),
            Err(_) => Failure::timed_out(access),
        };
        if failure.breaks_connection() {
            connection.close_on_drop();
        }
        drop(connection);
        tries += 1;
        if !failure.may_be_repeated() || tries == TRIES_MAX {
            return Err(failure);
        }
        tokio::time::sleep(pause(tries)).await;
    }
}

/// A connection. Where nobody listens at the database's address the driver goes on trying for as
/// long as it may wait; callers learn sooner.
async fn acquire(
    connections: &PgPool,
    address: Option<&(String, u16)>,
) -> Sql<PoolConnection<Postgres>> {
    let nobody_listens = async {
        tokio::time::sleep(PATIENCE).await;
        let Some((host, port)) = address else { return std::future::pending().await };
        loop {
            match TcpStream::connect((host.as_str(), *port)).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return error,
                _ => tokio::time::sleep(PATIENCE).await,
            }
        }
    };
    tokio::select! {
        biased;
        acquired = connections.acquire() => acquired,
        error = nobody_listens => Err(sqlx::Error::Io(error)),
    }
}

/// Longer from try to try, and never the same for two who met.
fn pause(tries: u32) -> Duration {
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
    let mut connection = PgConnection::connect_with(&connect_options(&options.connect)).await?;
    settle(&mut connection, &search_path(&options.namespace)).await?;
    Ok(connection)
}

/// Our schema, and temporary tables of others last.
fn search_path(namespace: &str) -> String {
    format!("{namespace}, pg_temp")
}

async fn settle(connection: &mut PgConnection, search_path: &str) -> Sql<()> {
    sqlx::query(include_str!("queries/settle.sql"))
        .bind(search_path)
        .bind(STATEMENT_MAX)
        .bind(LOCK_MAX)
        .execute(connection)
        .await?;
    Ok(())
}
