//! The open connections: the one that was used last is used next, and nothing is asked of one between
//! two calls that follow each other. (The driver's own pool asks each after each call whether it
//! lives, which takes as long as a small call.) It bounds nothing; `pool.rs` does.

use crate::{clock::Moment, errors::Sql};
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long a call waits for a new connection: a database that recovers, or a machine that is busy,
/// takes its time.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long it waits where nobody listens.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries to connect.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// An idle connection is given back after this.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// One that idled for longer is asked whether it lives: a write that is sent into a dead one has an
/// unknown outcome.
const TRUSTED_IDLE: Duration = Duration::from_millis(500);

/// How long a statement may take by the server's clock, and how much of that it waits for another
/// transaction's lock.
const STATEMENT_MAX: &str = "30s";
const LOCK_MAX: &str = "5s";

/// Connections to one database and schema.
#[derive(Debug)]
pub(crate) struct Connections {
    options: PgConnectOptions,
    search_path: String,
    /// The one that was used last is the last.
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: PgConnection,
    since: Moment,
}

impl Connections {
    /// None of them open yet.
    pub(crate) fn new(options: PgConnectOptions, search_path: String) -> Self {
        Self { options, search_path, idle: Mutex::default() }
    }

    /// A connection that lives, as far as can be known.
    pub(crate) async fn acquire(&self) -> Sql<PgConnection> {
        loop {
            let Some(mut idle) = self.lock().pop() else { return self.connect().await };
            if idle.since.age() <= TRUSTED_IDLE {
                return Ok(idle.connection);
            }
            if let Ok(Ok(())) = tokio::time::timeout(PATIENCE, idle.connection.ping()).await {
                return Ok(idle.connection);
            }
            self.abandon();
        }
    }

    /// Takes back a connection that is in order.
    pub(crate) fn release(&self, connection: PgConnection) {
        let mut idle = self.lock();
        idle.push(Idle { connection, since: Moment::now() });
        if idle.first().is_some_and(|longest| longest.since.age() > IDLE_MAX) {
            let Idle { connection, .. } = idle.remove(0);
            // It has nothing to lose.
            tokio::spawn(async move { drop(connection.close().await) });
        }
    }

    /// A connection was found broken, or to lead to a server that takes no writes. What idles leads
    /// to the same server, and would be found so one by one.
    pub(crate) fn abandon(&self) {
        self.lock().clear();
    }

    /// Closes those that are idle.
    pub(crate) async fn close(&self) {
        let idle = std::mem::take(&mut *self.lock());
        for Idle { connection, .. } in idle {
            drop(connection.close().await);
        }
    }

    async fn connect(&self) -> Sql<PgConnection> {
        let start = Moment::now();
        loop {
            let connect = open(&self.options, &self.search_path);
            let error = match tokio::time::timeout(CONNECT_MAX, connect).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error,
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            };
            if start.age() >= patience(&error) {
                return Err(error);
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long what went wrong may pass.
fn patience(error: &sqlx::Error) -> Duration {
    match error {
        sqlx::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => PATIENCE,
        // Too many connections; the server starts or ends.
        sqlx::Error::Database(error)
            if error.code().is_some_and(|code| matches!(&*code, "53300" | "57P03")) =>
        {
            CONNECT_MAX
        }
        _ => Duration::ZERO,
    }
}

/// Opens a connection whose session has our settings.
pub(crate) async fn open(options: &PgConnectOptions, search_path: &str) -> Sql<PgConnection> {
    let mut connection = PgConnection::connect_with(options).await?;
    sqlx::query(include_str!("queries/settle.sql"))
        .bind(search_path)
        .bind(STATEMENT_MAX)
        .bind(LOCK_MAX)
        .execute(&mut connection)
        .await?;
    Ok(connection)
}
