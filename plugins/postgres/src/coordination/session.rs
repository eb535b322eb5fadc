//! A connection inside a transaction. It goes back to the others only once the transaction has ended:
//! dropped before, it rolls back by itself, and a connection whose answer was not read is closed.

use crate::{
    connections::Connections,
    errors::{Access, Failure, Sql},
    pool::ANSWER_MAX,
};
use rdq_spi::{Result, StorageError};
use sqlx::{PgConnection, raw_sql};
use std::{sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// A connection inside a transaction.
#[derive(Debug)]
pub(crate) struct Session {
    /// `None` once the transaction has ended, however it did.
    connection: Option<PgConnection>,
    /// A statement was begun whose answer was not read.
    is_busy: bool,
    turn: Turn,
}

/// The right to use a connection, and where it goes back to.
#[derive(Debug)]
pub(crate) struct Turn {
    connections: Arc<Connections>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// Waits for one of these turns; whoever waits for longer is answered `late`.
    pub(crate) async fn take(
        connections: &Arc<Connections>,
        turns: &Arc<Semaphore>,
        patience: Duration,
        late: impl FnOnce() -> StorageError,
    ) -> Result<Self> {
        let permit = timeout(patience, Arc::clone(turns).acquire_owned()).await;
        let permit = permit.map_err(|_| late())?;
        let permit = Some(permit.map_err(|_| StorageError::Closed)?);
        Ok(Self { connections: Arc::clone(connections), permit })
    }
}

impl Session {
    /// Begins a transaction.
    pub(crate) async fn begin(turn: Turn) -> Result<Self, Failure> {
        let connection = turn.connections.acquire().await.map_err(Failure::of_connecting)?;
        let mut session = Self { connection: Some(connection), is_busy: false, turn };
        session.execute("BEGIN", Access::Read).await?;
        Ok(session)
    }

    /// Whether a call was given up, and its answer never read.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// The connection, for one call, whose outcome `settled` is to be told.
    pub(crate) fn connection(&mut self) -> Sql<&mut PgConnection> {
        self.is_busy = true;
        self.connection.as_mut().ok_or(sqlx::Error::PoolClosed)
    }

    /// The call has ended, or took too long.
    pub(crate) fn settled<T>(
        &mut self,
        outcome: Result<Sql<T>, tokio::time::error::Elapsed>,
        access: Access,
    ) -> Result<T, Failure> {
        let failure = match outcome {
            Ok(Ok(answer)) => {
                self.is_busy = false;
                return Ok(answer);
            }
            Ok(Err(error)) => Failure::of_statement(error, access),
            Err(_) => Failure::timed_out(access),
        };
        if failure.breaks_connection() {
            self.connection = None;
            self.turn.connections.abandon();
        } else {
            self.is_busy = false;
        }
        Err(failure)
    }

    /// Makes everything happen.
    pub(crate) async fn commit(mut self) -> Result<(), Failure> {
        self.execute("COMMIT", Access::Write).await?;
        self.give_back();
        Ok(())
    }

    /// Makes nothing happen.
    pub(crate) async fn rollback(mut self) -> Result<(), Failure> {
        let ended = self.execute("ROLLBACK", Access::Read).await;
        if ended.is_ok() {
            self.give_back();
        }
        self.connection = None;
        ended
    }

    async fn execute(&mut self, sql: &'static str, access: Access) -> Result<(), Failure> {
        let run = async {
            raw_sql(sql).execute(self.connection()?).await?;
            Ok(())
        };
        let outcome = timeout(ANSWER_MAX, run).await;
        self.settled(outcome, access)
    }

    /// The transaction has ended.
    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.turn.connections.release(connection);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // The server rolls back what a closed connection leaves.
        if self.is_busy {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let turn = Turn {
            connections: Arc::clone(&self.turn.connections),
            permit: self.turn.permit.take(),
        };
        let rest = Self { connection: Some(connection), is_busy: true, turn };
        runtime.spawn(rest.rollback());
    }
}
