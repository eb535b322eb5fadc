//! Interactive transactions for storages with one writer: nothing is locked while the client thinks.
//!
//! The transaction is the list of its operations. Each call runs all of them and then its own, at one
//! instant, and undoes them; the commit runs them once more and keeps them if every answer is the one
//! that was given before. Whoever got in between makes that [`StorageError::Contention`].

use crate::{
    Applied, ConsumerName, Operation, ReadParams, Rejected, Result, StorageError, StreamEvent,
    StreamName, StreamTurns, Task, TaskId, Transaction, Turn,
};
use async_trait::async_trait;
use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

/// More operations than any transaction has.
const OPERATIONS_MAX: usize = 1000;

const OPERATION: &str = "transaction";

/// What follows the operations of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Then {
    /// Undo them.
    Undo,
    /// Read a task, then undo them.
    Get(TaskId),
    /// Read events, then undo them.
    Read(ReadParams),
    /// Read a saved offset, then undo them.
    Offset(StreamName, ConsumerName),
    /// Keep them if each answer agrees with this one ([`Applied::agrees`]), else undo them and fail
    /// with [`StorageError::Contention`].
    Commit(Vec<Applied>),
}

/// What a run answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// To each operation.
    pub applied: Vec<Applied>,
    /// To what followed.
    pub read: Read,
}

/// What was read after the operations of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// Nothing was asked.
    Nothing,
    /// To [`Then::Get`].
    Task(Box<Task>),
    /// To [`Then::Read`].
    Events(Vec<StreamEvent>),
    /// To [`Then::Offset`].
    Offset(i64),
}

/// What a storage does for [`ReplayedTransaction`].
#[async_trait]
pub trait Replay: Debug + Send + Sync + 'static {
    /// Runs operations at one instant, each seeing what those before it did, and then what follows.
    /// They come by the calls that applied them, which a mutation that is observed needs; answers and
    /// the place of a failure are counted through all of them.
    async fn run(&self, calls: Vec<Vec<Operation>>, then: Then) -> Result<Run, Rejected>;

    /// Who publishes to which stream in this process.
    fn turns(&self) -> &StreamTurns;
}

/// An interactive transaction that is run again at each call.
#[derive(Debug)]
pub struct ReplayedTransaction<R> {
    storage: Arc<R>,
    /// Operations by the calls that applied them.
    calls: Vec<Vec<Operation>>,
    answers: Vec<Applied>,
    turns: BTreeMap<StreamName, Turn>,
    is_over: bool,
}

impl<R: Replay> ReplayedTransaction<R> {
    /// Begins one.
    pub fn new(storage: Arc<R>) -> Self {
        let (calls, answers, turns) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { storage, calls, answers, turns, is_over: false }
    }

    async fn run(&mut self, more: Vec<Operation>, then: Then) -> Result<Run, Rejected> {
        if self.is_over {
            return Err(StorageError::Contention { operation: OPERATION }.into());
        }
        let before = self.answers.len();
        let mut calls = self.calls.clone();
        calls.extend(Some(more).filter(|more| !more.is_empty()));
        let run = match self.storage.run(calls, then).await {
            // What was applied before no longer can be: somebody else was faster.
            Err(Rejected { index: Some(index), .. }) if index < before => None,
            Err(Rejected { index, error }) => {
                self.is_over |= error.ends_transaction();
                let index = index.map(|index| index - before);
                return Err(Rejected { index, error });
            }
            Ok(run) => Some(run),
        };
        let agrees = |run: &Run| {
            run.applied.len() >= before
                && run.applied.iter().zip(&self.answers).all(|(now, then)| now.agrees(then))
        };
        run.filter(agrees).ok_or_else(|| {
            self.is_over = true;
            StorageError::Contention { operation: OPERATION }.into()
        })
    }

    async fn read_then(&mut self, then: Then) -> Result<Read> {
        let run = self.run(Vec::new(), then).await.map_err(|rejected| rejected.error)?;
        Ok(run.read)
    }

    /// Waits for the streams' turns: whoever else publishes there in this process comes after.
    async fn take_turns(&mut self, operations: &[Operation]) -> Result<()> {
        let mut streams: Vec<_> = operations
            .iter()
            .filter_map(Operation::published)
            .filter(|stream| !self.turns.contains_key(*stream))
            .collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in streams {
            let turn = self.storage.turns().take(stream).await.inspect_err(|_| {
                self.is_over = true;
            })?;
            self.turns.insert(stream.clone(), turn);
        }
        Ok(())
    }
}

fn unexpected() -> StorageError {
    StorageError::Internal { operation: OPERATION, source: "a run answered something else".into() }
}

#[async_trait]
impl<R: Replay> Transaction for ReplayedTransaction<R> {
    async fn apply(&mut self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        if self.answers.len() + operations.len() > OPERATIONS_MAX {
            let message = format!("a transaction has at most {OPERATIONS_MAX} operations");
            return Err(StorageError::Refused { operation: OPERATION, message }.into());
        }
        self.take_turns(&operations).await?;
        let mut run = self.run(operations.clone(), Then::Undo).await?;
        let answers = run.applied.split_off(self.answers.len());
        self.calls.push(operations);
        self.answers.extend(&answers);
        Ok(answers)
    }

    async fn get(&mut self, task: TaskId) -> Result<Task> {
        match self.read_then(Then::Get(task)).await? {
            Read::Task(task) => Ok(*task),
            _ => Err(unexpected()),
        }
    }

    async fn read(&mut self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        match self.read_then(Then::Read(params)).await? {
            Read::Events(events) => Ok(events),
            _ => Err(unexpected()),
        }
    }

    async fn offset(&mut self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        match self.read_then(Then::Offset(stream, consumer)).await? {
            Read::Offset(offset) => Ok(offset),
            _ => Err(unexpected()),
        }
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        if self.answers.is_empty() && !self.is_over {
            return Ok(());
        }
        let then = Then::Commit(self.answers.clone());
        self.run(Vec::new(), then).await.map_err(|rejected| rejected.error)?;
        Ok(())
    }

    async fn rollback(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
