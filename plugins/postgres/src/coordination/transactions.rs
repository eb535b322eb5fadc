//! Transactions: many operations in one of the database's own, at once or one call after the other.

use crate::{
    coordination::{
        Coordination,
        operations::{self, Done, News},
        session::{Session, Turn},
        streams, tasks,
    },
    errors::{Access, Failure},
    pool::{ANSWER_MAX, TRIES_MAX, TURN_MAX, pause},
};
use async_trait::async_trait;
use rdq_spi::{
    Applied, ConsumerName, Operation, ReadParams, Rejected, Result, StorageError, StreamEvent,
    StreamName, Task, TaskId, Transaction,
};
use std::time::Duration;
use tokio::time::timeout;

/// How long one waits to begin an interactive transaction.
const BEGIN_MAX: Duration = Duration::from_secs(5);

const COMMIT: &str = "commit";
const TRANSACTION: &str = "transaction";

/// Applies all of these operations or none, at once; again where it lost against another transaction.
pub(crate) async fn commit(
    base: &Coordination,
    operations: &[Operation],
) -> Result<Vec<Applied>, Rejected> {
    let mut tries = 0;
    loop {
        let failure = match commit_once(base, operations).await? {
            Ok(answer) => return answer,
            Err(failure) => failure,
        };
        tries += 1;
        if !failure.may_be_repeated() || tries == TRIES_MAX {
            return Err(failure.answer(COMMIT).into());
        }
        tokio::time::sleep(pause(tries)).await;
    }
}

type Answer = Result<Vec<Applied>, Rejected>;

async fn commit_once(
    base: &Coordination,
    operations: &[Operation],
) -> Result<Result<Answer, Failure>> {
    let late = || Failure::of_connecting(sqlx::Error::PoolTimedOut).answer(COMMIT);
    let turn = Turn::take(&base.pool.connections, &base.pool.free, TURN_MAX, late).await?;
    let run = async {
        let mut session = Session::begin(turn).await?;
        match apply(base, &mut session, operations, false).await? {
            Ok(Done { applied, news }) => {
                end(base, session, &news).await?;
                Ok(Ok(applied))
            }
            Err(rejected) => {
                session.rollback().await?;
                Ok(Err(rejected))
            }
        }
    };
    Ok(run.await)
}

async fn apply(
    base: &Coordination,
    session: &mut Session,
    operations: &[Operation],
    is_partial: bool,
) -> Result<Result<Done, Rejected>, Failure> {
    let run = async {
        let db = session.connection()?;
        if is_partial {
            operations::apply_or_undo(db, base.store_id, operations).await
        } else {
            operations::apply(db, base.store_id, operations).await
        }
    };
    let outcome = timeout(ANSWER_MAX, run).await;
    session.settled(outcome, Access::Read)
}

/// Commits, and tells whoever waits.
async fn end(base: &Coordination, mut session: Session, news: &News) -> Result<(), Failure> {
    if !news.notified.is_empty() {
        let tell =
            async { base.announcer.tell_within(session.connection()?, &news.notified).await };
        let outcome = timeout(ANSWER_MAX, tell).await;
        session.settled(outcome, Access::Read)?;
    }
    let committed = session.commit().await;
    // Where the outcome is unknown, it may have been committed.
    if committed.as_ref().err().is_none_or(Failure::is_unknown) {
        base.announcer.published(news.published.iter());
        news.dues.tell(&base.heads, &base.waiting);
    }
    committed
}

/// An interactive transaction: one of the database's own, on a connection of its own.
#[derive(Debug)]
pub(crate) struct Interactive {
    base: Coordination,
    /// `None` once nothing but a rollback is left.
    session: Option<Session>,
    news: News,
}

impl Interactive {
    /// Begins one.
    pub(crate) async fn begin(base: Coordination) -> Result<Self> {
        let late = || StorageError::Contention { operation: "begin" };
        let turn = Turn::take(&base.pool.connections, &base.interactive, BEGIN_MAX, late).await?;
        let session = Session::begin(turn).await.map_err(|failure| failure.answer("begin"))?;
        Ok(Self { base, session: Some(session), news: News::default() })
    }

    /// The session, unless the transaction is over.
    fn session(&mut self) -> Result<&mut Session> {
        if self.base.interactive.is_closed() {
            self.session = None;
            return Err(StorageError::Closed);
        }
        // What became of a call that was given up, nobody knows.
        self.session.take_if(|session| session.is_busy());
        self.session.as_mut().ok_or(StorageError::Contention { operation: TRANSACTION })
    }

    /// Says why a call was refused or failed, and rolls back if nothing else is left.
    fn failed(&mut self, error: StorageError) -> StorageError {
        if error.ends_transaction() {
            self.session = None;
        }
        error
    }
}

/// Runs a read on the transaction's connection.
macro_rules! read {
    ($self:ident, $operation:literal, $db:ident => $read:expr) => {{
        let session = $self.session()?;
        let run = async {
            let $db = session.connection()?;
            $read.await
        };
        let outcome = timeout(ANSWER_MAX, run).await;
        let settled = session.settled(outcome, Access::Read);
        settled.map_err(|failure| {
            // The database takes no more statements, and would roll back where it is to commit.
            $self.session = None;
            failure.answer($operation)
        })
    }};
}

#[async_trait]
impl Transaction for Interactive {
    async fn apply(&mut self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        let base = self.base.clone();
        match apply(&base, self.session()?, &operations, true).await {
            Ok(Ok(Done { applied, news })) => {
                self.news.extend(news);
                Ok(applied)
            }
            Ok(Err(Rejected { index, error })) => {
                Err(Rejected { index, error: self.failed(error) })
            }
            Err(failure) => {
                if !operations::needs_savepoint(&operations) {
                    self.session = None;
                }
                Err(self.failed(failure.answer(TRANSACTION)).into())
            }
        }
    }

    async fn get(&mut self, task: TaskId) -> Result<Task> {
        read!(self, "get", db => tasks::get(db, &task))?
    }

    async fn read(&mut self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        read!(self, "read", db => streams::read(db, &params))
    }

    async fn offset(&mut self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        read!(self, "offset", db => streams::saved_offset(db, &stream, &consumer))
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        self.session()?;
        let Some(session) = self.session.take() else { return Ok(()) };
        let committed = end(&self.base, session, &self.news).await;
        committed.map_err(|failure| failure.answer(COMMIT))
    }

    async fn rollback(mut self: Box<Self>) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        session.rollback().await.map_err(|failure| failure.answer("rollback"))
    }
}
