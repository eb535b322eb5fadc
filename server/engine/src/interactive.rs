//! Interactive transactions: a caller's, step by step, within limits of time and number. The
//! storage's calls run to their end whatever becomes of the caller; what nobody commits is rolled
//! back.

use crate::{
    Engine, EngineError, OperationError, OutboxName, TransactionOperation,
    clock::{self, Instant},
    core::Core,
    faculties::{streams, transactions},
    listing::as_asked,
    streams::read_params,
    transactions::{Aftermath, Seen, aftermath, prepare},
};
use rdq_spi::{
    Applied, ConsumerName, ReadFrom, StorageError, StreamEvent, StreamName, Task, TaskId,
    Transaction,
};
use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How many transactions each caller has open.
#[derive(Default)]
pub(crate) struct OpenTransactions(Mutex<HashMap<String, usize>>);

impl OpenTransactions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller's place for a transaction.
struct Place {
    core: Arc<Core>,
    subject: String,
}

impl Place {
    fn take(core: &Arc<Core>, subject: &str) -> Result<Self, EngineError> {
        let mut open = core.open_transactions.lock();
        let count = open.entry(subject.to_owned()).or_default();
        if *count >= core.options.transactions.per_subject {
            return Err(EngineError::Overloaded { retry_after: RETRY_AFTER });
        }
        *count += 1;
        drop(open);
        Ok(Self { core: Arc::clone(core), subject: subject.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.core.open_transactions.lock();
        if let Some(count) = open.get_mut(&self.subject) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.subject);
            }
        }
    }
}

/// A transaction of a caller. Dropped before its commit, it is rolled back.
#[must_use = "dropping it rolls it back"]
pub struct OpenTransaction {
    place: Place,
    /// Gone after an error that leaves nothing but a rollback.
    transaction: Option<Box<dyn Transaction>>,
    operations: usize,
    aftermath: Aftermath,
    opened_at: Instant,
    asked_at: Instant,
}

impl std::fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenTransaction")
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Begins a transaction.
    pub async fn begin(&self, subject: &str) -> Result<OpenTransaction, EngineError> {
        if self.core.closing.is_cancelled() {
            return Err(EngineError::Closed);
        }
        let faculty = transactions(&*self.core.storage, "begin")?;
        if !faculty.interactive() {
            return Err(StorageError::Unsupported { operation: "begin" }.into());
        }
        let place = Place::take(&self.core, subject)?;
        let transaction = self
            .core
            .call("begin", |storage| async move { transactions(&*storage, "begin")?.begin().await })
            .await?;
        let now = clock::now();
        Ok(OpenTransaction {
            place,
            transaction: Some(transaction),
            operations: 0,
            aftermath: Aftermath::default(),
            opened_at: now,
            asked_at: now,
        })
    }
}

impl OpenTransaction {
    /// Whether an error left nothing but a rollback.
    pub fn is_over(&self) -> bool {
        self.transaction.is_none()
    }

    /// The caller asked something, whatever becomes of it: it is not idle.
    pub fn heard(&mut self) {
        self.asked_at = clock::now();
    }

    /// Waits until the transaction may be open no longer, and says why.
    pub fn out_of_time(&self) -> impl Future<Output = EngineError> + Send + use<> {
        let closing = self.place.core.closing.clone();
        let limits = self.place.core.options.transactions;
        let idle_until = self.asked_at + limits.idle.min(clock::TIMER_MAX);
        let open_until = self.opened_at + limits.total.min(clock::TIMER_MAX);
        async move {
            tokio::select! {
                biased;
                () = closing.cancelled() => EngineError::Closed,
                () = clock::sleep_until(open_until) => {
                    EngineError::TransactionExpired { what: "open", limit: limits.total }
                }
                () = clock::sleep_until(idle_until) => {
                    EngineError::TransactionExpired { what: "idle", limit: limits.idle }
                }
            }
        }
    }

    /// Applies all of these operations or none.
    pub async fn apply(
        &mut self,
        operations: Vec<TransactionOperation>,
    ) -> Result<Vec<Applied>, OperationError> {
        let core = Arc::clone(&self.place.core);
        if operations.is_empty() {
            return Err(EngineError::invalid("operations", "must not be empty").into());
        }
        let count = operations.len();
        let checked = core.check_operations(operations, self.operations)?;
        let storage = Arc::clone(&core.storage);
        let applied = self.step("apply", |mut transaction| async move {
            let applied = async {
                let seen = Seen::in_transaction(&*storage, &mut *transaction, &checked).await?;
                let prepared = prepare(&checked, &seen)?;
                // None: all of it happened before.
                let applied = if prepared.operations.is_empty() {
                    Ok(Vec::new())
                } else {
                    transaction.apply(prepared.operations.clone()).await
                };
                let answers = match applied {
                    Ok(answers) => prepared.answers(answers)?,
                    Err(rejected) => return Err(prepared.error(rejected, &checked).0),
                };
                let aftermath = aftermath(&checked, &answers);
                Ok((answers, aftermath))
            };
            let applied = applied.await;
            (transaction, applied)
        });
        let applied = applied.await?;
        self.end_if(applied.as_ref().err().map(|error| &error.error));
        let (answers, aftermath) = applied?;
        self.operations += count;
        self.aftermath.extend(aftermath);
        Ok(answers)
    }

    /// Reads a task.
    pub async fn get(
        &mut self,
        id: TaskId,
        outbox: Option<&OutboxName>,
    ) -> Result<Task, EngineError> {
        let read = self.read_step("get", |mut transaction| async move {
            let task = transaction.get(id).await;
            (transaction, task)
        });
        as_asked(read.await?, outbox)
    }

    /// Reads what a consumer saved.
    pub async fn saved_offset(
        &mut self,
        stream: StreamName,
        consumer: ConsumerName,
    ) -> Result<i64, EngineError> {
        streams(&*self.place.core.storage, "offset")?;
        self.read_step("offset", |mut transaction| async move {
            let offset = transaction.offset(stream, consumer).await;
            (transaction, offset)
        })
        .await
    }

    /// Reads a stream, as [`Engine::read_stream`] does.
    pub async fn read_stream(
        &mut self,
        stream: StreamName,
        from: ReadFrom,
        limit: u32,
    ) -> Result<Vec<StreamEvent>, EngineError> {
        streams(&*self.place.core.storage, "read")?;
        if limit == 0 {
            return Ok(Vec::new());
        }
        let params = read_params(stream, from, limit);
        self.read_step("read", |mut transaction| async move {
            let events = transaction.read(params).await;
            (transaction, events)
        })
        .await
    }

    /// Makes everything happen.
    pub async fn commit(mut self) -> Result<(), EngineError> {
        let transaction = self.transaction.take().ok_or_else(over)?;
        let (core, aftermath) = (Arc::clone(&self.place.core), std::mem::take(&mut self.aftermath));
        let commit = async move {
            transaction.commit().await?;
            core.tell(aftermath);
            Ok(())
        };
        self.place.core.run("commit", commit).await?
    }

    /// Makes nothing happen.
    pub async fn rollback(mut self) -> Result<(), EngineError> {
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        Ok(self.place.core.run("rollback", transaction.rollback()).await??)
    }

    async fn read_step<T: Send + 'static, F>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(Box<dyn Transaction>) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = (Box<dyn Transaction>, rdq_spi::Result<T>)> + Send + 'static,
    {
        let read = self.step(operation, work).await?.map_err(EngineError::from);
        self.end_if(read.as_ref().err());
        read
    }

    /// Runs a step to its end, even if the caller goes away: then the transaction goes with it.
    async fn step<T: Send + 'static, F>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(Box<dyn Transaction>) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = (Box<dyn Transaction>, T)> + Send + 'static,
    {
        let transaction = self.transaction.take().ok_or_else(over)?;
        let (transaction, answer) = self.place.core.run(operation, work(transaction)).await?;
        self.transaction = Some(transaction);
        self.asked_at = clock::now();
        Ok(answer)
    }

    fn end_if(&mut self, error: Option<&EngineError>) {
        if error.is_some_and(leaves_only_a_rollback) {
            self.transaction = None;
        }
    }
}

fn over() -> EngineError {
    StorageError::Contention { operation: "a transaction that is over" }.into()
}

/// Whether the error is one of the storage itself, not of what was asked.
fn leaves_only_a_rollback(error: &EngineError) -> bool {
    match error {
        EngineError::Storage(error) => error.ends_transaction(),
        EngineError::Closed => true,
        _ => false,
    }
}
