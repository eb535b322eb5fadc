//! Operations in an application's own transaction of the same file, so that they happen with its rows
//! or not at all. They are those of a commit, on the application's connection.

use super::transactions;
use crate::{
    config::OpenError,
    errors::{Failure, Sql},
    migrations,
    reader::Snapshot,
    reads::not_found,
    statements::Statements,
    transaction::Tx,
    turns::Turns,
};
use rdq_spi::{
    Applied, ConsumerName, Operation, ReadParams, Rejected, Result, StorageError, StreamEvent,
    StreamName, Task, TaskId,
};
use rusqlite::{Connection, Transaction};
use std::fmt;

const OPERATION: &str = "join";

/// An application's transaction that rdq takes part in.
pub struct Joined<'t> {
    db: &'t Connection,
    sql: Statements<'t>,
    turns: Turns,
}

impl fmt::Debug for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").finish_non_exhaustive()
    }
}

/// Takes part in this transaction of a file that a store was opened on before. It should have begun
/// as `IMMEDIATE`: one that reads first and writes later is refused by SQLite when somebody wrote in
/// between. Whoever waits for tasks, events or notifications is woken after its commit, as by another
/// process.
pub fn join<'t>(transaction: &'t Transaction<'_>) -> Result<Joined<'t>, OpenError> {
    join_open(transaction)
}

/// The same for the transaction that the connection has open, however it was begun.
pub fn join_open(db: &Connection) -> Result<Joined<'_>, OpenError> {
    if db.is_autocommit() {
        return Err(OpenError::NoTransaction);
    }
    migrations::check_newest(db)?;
    Ok(Joined { db, sql: Statements::prepare(db)?, turns: Turns::default() })
}

impl<'t> Joined<'t> {
    /// Applies all of these operations or none, within the transaction.
    pub fn apply(&mut self, operations: &[Operation]) -> Result<Vec<Applied>, Rejected> {
        self.apply_or_undo(operations).map_err(|error| Rejected::from(answer(error)))?
    }

    /// The task, as the transaction sees it.
    pub fn get(&mut self, task: &TaskId) -> Result<Task> {
        let found = self.view().and_then(|view| view.get(task)).map_err(answer)?;
        found.ok_or_else(|| not_found(task.clone()))
    }

    /// Events, as the transaction sees them.
    pub fn read(&mut self, params: &ReadParams) -> Result<Vec<StreamEvent>> {
        self.view().and_then(|view| view.read(params)).map_err(answer)
    }

    /// What the consumer saved, as the transaction sees it.
    pub fn offset(&mut self, stream: &StreamName, consumer: &ConsumerName) -> Result<i64> {
        self.view().and_then(|view| view.offset(stream, consumer)).map_err(answer)
    }

    fn apply_or_undo(&mut self, operations: &[Operation]) -> Sql<Result<Vec<Applied>, Rejected>> {
        self.sql.state.savepoint.execute([])?;
        let applied = self.apply_all(operations);
        if applied.is_err() {
            // The application may commit what it did before; ours must not be there in part.
            self.sql.state.rollback_to.execute([])?;
        }
        self.sql.state.release.execute([])?;
        applied
    }

    fn apply_all(&mut self, operations: &[Operation]) -> Sql<Result<Vec<Applied>, Rejected>> {
        let mut tx = Tx::start(self.db, &mut self.sql, &mut self.turns)?;
        let applied = transactions::commit(&mut tx, operations)?;
        if applied.is_ok() {
            tx.finish()?;
        }
        Ok(applied)
    }

    fn view(&mut self) -> Sql<Snapshot<'t>> {
        Tx::start(self.db, &mut self.sql, &mut self.turns).map(|tx| tx.view())
    }
}

fn answer(error: rusqlite::Error) -> StorageError {
    Failure::before_commit(error).answer(OPERATION)
}
