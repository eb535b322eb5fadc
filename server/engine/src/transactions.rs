//! Transactions: operations that all happen or none. Each is checked as the call of its own is,
//! before the storage is asked for anything. What a commit did is told within this server as those
//! calls tell it.

use crate::{
    Engine, EngineError, NewMessage, ResolveRequest, Submission,
    core::Core,
    faculties::{records, signals, streams, transactions},
    feed::Ended,
    limits::OPERATIONS_MAX,
    outbox::{Found, mismatch_if_over, projection, release},
    outbox_name::is_internal,
    queues::Snapshot,
    records::check_change,
    resolution::{Decided, decide},
    streams::check_event,
};
use futures::{StreamExt as _, future::BoxFuture, stream};
use rdq_spi::{
    Applied, AttemptReport, Cancelled, ChannelName, ClaimRef, ClaimToken, CompareAndSet, HeldClaim,
    Moment, NewEvent, NewMutation, NewTask, Operation, QueueName, Rejected, Resolved, SaveOffset,
    StaleDetail, Storage, Task, TaskId, TaskStatus,
};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// How often a commit is prepared anew because a claim that it resolves ended meanwhile.
const TRIES: usize = 3;
/// Tasks looked up at once for one commit.
const UNDER_WAY: usize = 16;

/// One operation of a transaction. Each means what the call of its own does.
#[derive(Debug, Clone)]
pub enum TransactionOperation {
    /// [`Engine::enqueue`]
    Enqueue(Submission),
    /// [`Engine::publish`]
    Publish(NewEvent),
    /// [`Engine::notify`]
    Notify {
        /// Where.
        channel: ChannelName,
        /// The size of the payload, which nobody is given.
        payload_bytes: usize,
    },
    /// [`Engine::save_offset`]
    SaveOffset(SaveOffset),
    /// [`Engine::enqueue_message`]
    EnqueueMessage(NewMessage),
    /// [`Engine::change_record`]
    ChangeRecord(CompareAndSet),
    /// [`Engine::cancel`]
    Cancel(TaskId),
    /// [`Engine::resolve`]
    Resolve(ResolveRequest),
    /// [`Engine::mark_projected`]; answered as [`Applied::Resolved`]
    MarkProjected(HeldClaim),
    /// [`Engine::release_message`]; answered as [`Applied::Resolved`]
    ReleaseMessage {
        /// Whose.
        claim: HeldClaim,
        /// What went wrong.
        attempt: AttemptReport,
        /// Available again after this.
        delay: Duration,
    },
}

/// Why operations were not applied. Nothing changed, unless the error itself says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct OperationError {
    /// Which operation failed, by its place in the call; `None` if no single one did.
    pub index: Option<usize>,
    /// Why.
    #[source]
    pub error: EngineError,
}

impl From<EngineError> for OperationError {
    fn from(error: EngineError) -> Self {
        Self { index: None, error }
    }
}

fn at<T>(index: usize, result: Result<T, EngineError>) -> Result<T, OperationError> {
    result.map_err(|error| OperationError { index: Some(index), error })
}

impl Engine {
    /// Applies all of the operations or none, and answers each in its order.
    pub async fn commit(
        &self,
        operations: Vec<TransactionOperation>,
    ) -> Result<Vec<Applied>, OperationError> {
        let core = &self.core;
        transactions(&*core.storage, "commit").map_err(EngineError::from)?;
        if operations.is_empty() {
            return Err(EngineError::invalid("operations", "must not be empty").into());
        }
        let checked = core.check_operations(operations, 0)?;
        let core = Arc::clone(core);
        let run = async move { commit_checked(&core, &checked, None).await };
        self.core.run("commit", run).await?
    }
}

/// Commits operations, behind an observation if there is one; the answers are those of the caller's
/// operations. What they did is told.
pub(crate) async fn commit_checked(
    core: &Core,
    checked: &[Checked],
    observation: Option<&NewMutation>,
) -> Result<Vec<Applied>, OperationError> {
    let before = usize::from(observation.is_some());
    let commit = |operations: Vec<Operation>| -> BoxFuture<'_, _> {
        Box::pin(async move { transactions(&*core.storage, "commit")?.commit(operations).await })
    };
    let mut applied = Err(OperationError::from(EngineError::Closed));
    for tries_left in (0..TRIES).rev() {
        let seen = Seen::in_storage(&core.storage, checked).await?;
        let prepared = prepare(checked, &seen)?;
        if prepared.operations.is_empty() && observation.is_none() {
            // All of it happened before.
            applied = Ok(prepared.answers(Vec::new())?);
            break;
        }
        let operations = observation.cloned().map(Operation::Observe).into_iter();
        let operations = operations.chain(prepared.operations.iter().cloned()).collect();
        applied = match commit(operations).await {
            Ok(mut answers) => {
                answers.drain(..before.min(answers.len()));
                prepared.answers(answers).map_err(OperationError::from)
            }
            Err(Rejected { index, error }) => {
                let index = index.and_then(|index| index.checked_sub(before));
                let (error, is_over) = prepared.error(Rejected { index, error }, checked);
                if is_over && tries_left > 0 {
                    continue;
                }
                Err(error)
            }
        };
        break;
    }
    if let Ok(answers) = &applied {
        core.tell(aftermath(checked, answers));
    }
    applied
}

/// An operation that passed its checks.
pub(crate) enum Checked {
    /// It goes to the storage as it is.
    Plain(Operation),
    Cancel(TaskId),
    Resolve(Box<Decided>),
    /// Its claim is looked up first.
    MarkProjected(HeldClaim),
    ReleaseMessage {
        claim: HeldClaim,
        attempt: AttemptReport,
        delay: Duration,
    },
}

impl Checked {
    /// The claim of a message that it is about.
    fn held(&self) -> Option<&HeldClaim> {
        match self {
            Self::MarkProjected(claim) | Self::ReleaseMessage { claim, .. } => Some(claim),
            Self::Plain(_) | Self::Cancel(_) | Self::Resolve(_) => None,
        }
    }

    /// The task that is looked up before it.
    fn looked_up(&self) -> Option<&TaskId> {
        match self {
            Self::Cancel(id) => Some(id),
            other => other.held().map(|claim| &claim.task_id),
        }
    }
}

impl Core {
    /// Checks all of them, after so many that the transaction has already.
    pub(crate) fn check_operations(
        &self,
        operations: Vec<TransactionOperation>,
        before: usize,
    ) -> Result<Vec<Checked>, OperationError> {
        if before + operations.len() > OPERATIONS_MAX {
            let message = format!("must be at most {OPERATIONS_MAX} in one transaction");
            return Err(EngineError::invalid("operations", message).into());
        }
        let snapshot = self.queues.snapshot();
        let checked = operations
            .into_iter()
            .enumerate()
            .map(|(index, operation)| at(index, self.check_operation(&snapshot, operation)));
        checked.collect()
    }

    fn check_operation(
        &self,
        snapshot: &Snapshot,
        operation: TransactionOperation,
    ) -> Result<Checked, EngineError> {
        let storage = &*self.storage;
        Ok(match operation {
            TransactionOperation::Enqueue(submission) => {
                Checked::Plain(Operation::Enqueue(self.admissible(submission)?))
            }
            TransactionOperation::Publish(event) => {
                streams(storage, "publish")?;
                check_event(&event)?;
                Checked::Plain(Operation::Publish(event))
            }
            TransactionOperation::Notify { channel, payload_bytes } => {
                signals(storage, "notify")?;
                self.check_notification(payload_bytes)?;
                Checked::Plain(Operation::Notify(channel))
            }
            TransactionOperation::SaveOffset(offset) => {
                streams(storage, "save_offsets")?;
                Checked::Plain(Operation::SaveOffset(offset))
            }
            TransactionOperation::EnqueueMessage(message) => {
                Checked::Plain(Operation::Enqueue(self.admissible_message(message)?))
            }
            TransactionOperation::ChangeRecord(change) => {
                records(storage, "compare_and_set")?;
                check_change(&change)?;
                Checked::Plain(Operation::CompareAndSet(change))
            }
            TransactionOperation::Cancel(id) => Checked::Cancel(id),
            TransactionOperation::Resolve(request) => {
                Checked::Resolve(Box::new(decide(snapshot, request)?))
            }
            TransactionOperation::MarkProjected(claim) => {
                self.check_outboxes("claims_of")?;
                Checked::MarkProjected(claim)
            }
            TransactionOperation::ReleaseMessage { claim, attempt, delay } => {
                self.check_outboxes("claims_of")?;
                Checked::ReleaseMessage { claim, attempt, delay }
            }
        })
    }
}

/// What was looked up for the operations: by their places, the task and the claim's token.
pub(crate) struct Seen {
    tasks: Vec<Option<Result<Task, EngineError>>>,
    tokens: Vec<Option<ClaimToken>>,
}

impl Seen {
    /// Of what is committed.
    async fn in_storage(
        storage: &Arc<dyn Storage>,
        checked: &[Checked],
    ) -> Result<Self, EngineError> {
        let tokens = Self::tokens(&**storage, checked).await?;
        let lookups = checked.iter().map(|operation| {
            let id = operation.looked_up().cloned();
            async move {
                match id {
                    Some(id) => Some(storage.get(id).await.map_err(EngineError::from)),
                    None => None,
                }
            }
        });
        let lookups: Vec<_> = lookups.collect();
        let tasks = stream::iter(lookups).buffered(UNDER_WAY).collect().await;
        Ok(Self { tasks, tokens })
    }

    /// As a transaction sees it.
    pub(crate) async fn in_transaction(
        storage: &dyn Storage,
        transaction: &mut dyn rdq_spi::Transaction,
        checked: &[Checked],
    ) -> Result<Self, EngineError> {
        // No transaction claims: what holds messages is committed.
        let tokens = Self::tokens(storage, checked).await?;
        let mut tasks = Vec::with_capacity(checked.len());
        for operation in checked {
            tasks.push(match operation.looked_up() {
                Some(id) => Some(transaction.get(id.clone()).await.map_err(EngineError::from)),
                None => None,
            });
        }
        Ok(Self { tasks, tokens })
    }

    async fn tokens(
        storage: &dyn Storage,
        checked: &[Checked],
    ) -> Result<Vec<Option<ClaimToken>>, EngineError> {
        let held: Vec<_> = checked.iter().filter_map(Checked::held).cloned().collect();
        if held.is_empty() {
            return Ok(vec![None; checked.len()]);
        }
        let mut tokens = storage.claims_of(held).await?.into_iter();
        let by_place = checked.iter().map(|each| each.held().and_then(|_| tokens.next().flatten()));
        Ok(by_place.collect())
    }
}

/// What goes to the storage.
pub(crate) struct Prepared {
    pub(crate) operations: Vec<Operation>,
    /// Which operation of the caller's each of them is.
    places: Vec<usize>,
    /// What is answered without the storage, by the caller's places.
    known: Vec<Option<Applied>>,
}

/// A message that was marked before.
const PROJECTED: Applied = Applied::Resolved(Resolved {
    status: TaskStatus::Succeeded,
    next_attempt_at: None,
    replayed: true,
});

/// Makes storage operations of checked ones and of what was looked up for them.
pub(crate) fn prepare(checked: &[Checked], seen: &Seen) -> Result<Prepared, OperationError> {
    let mut prepared = Prepared {
        operations: Vec::with_capacity(checked.len()),
        places: Vec::with_capacity(checked.len()),
        known: vec![None; checked.len()],
    };
    // Messages that an operation before this one enqueues.
    let mut messages: HashSet<&TaskId> = HashSet::new();
    for (index, operation) in checked.iter().enumerate() {
        let task = || {
            let missing = Err(EngineError::internal("get", "a task was not looked up"));
            seen.tasks.get(index).cloned().flatten().unwrap_or(missing)
        };
        let token = || seen.tokens.get(index).cloned().flatten();
        let storage_operation = match operation {
            Checked::Plain(plain) => {
                if let Operation::Enqueue(NewTask { id, queue, .. }) = plain
                    && is_internal(queue)
                {
                    messages.insert(id);
                }
                plain.clone()
            }
            Checked::Cancel(id) => {
                let of_an_outbox = match task() {
                    Ok(task) => is_internal(&task.queue),
                    // An operation before this one may enqueue it.
                    Err(error) if error.is_not_found() => messages.contains(id),
                    Err(error) => return at(index, Err(error)),
                };
                if of_an_outbox {
                    return at(index, Err(EngineError::not_found(id.clone())));
                }
                Operation::Cancel(id.clone())
            }
            Checked::Resolve(decided) => Operation::Resolve(decided.resolution.clone()),
            Checked::MarkProjected(claim) => {
                match at(index, Found::of(&claim.task_id, task(), token()))? {
                    Found::Projected => {
                        prepared.known[index] = Some(PROJECTED);
                        continue;
                    }
                    Found::Held(token, _) => {
                        let task_id = claim.task_id.clone();
                        Operation::Resolve(projection(ClaimRef { task_id, token }))
                    }
                }
            }
            Checked::ReleaseMessage { claim, attempt, delay } => {
                let found = Found::of(&claim.task_id, task(), token());
                let (token, _) = at(index, Found::held(found, &claim.task_id))?;
                let claim = ClaimRef { task_id: claim.task_id.clone(), token };
                Operation::Resolve(release(claim, attempt.clone(), *delay))
            }
        };
        prepared.operations.push(storage_operation);
        prepared.places.push(index);
    }
    Ok(prepared)
}

impl Prepared {
    /// The storage's answers and those that were known, by the caller's places.
    pub(crate) fn answers(&self, answers: Vec<Applied>) -> Result<Vec<Applied>, EngineError> {
        if answers.len() != self.operations.len() {
            let message =
                format!("{} answers to {} operations", answers.len(), self.operations.len());
            return Err(EngineError::internal("commit", message));
        }
        let mut all = self.known.clone();
        for (place, answer) in self.places.iter().zip(answers) {
            all[*place] = Some(answer);
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// The storage's refusal by the caller's places, and whether it is that a message's claim is
    /// over, which a look at the message explains.
    pub(crate) fn error(&self, rejected: Rejected, checked: &[Checked]) -> (OperationError, bool) {
        let index = rejected.index.and_then(|index| self.places.get(index).copied());
        let error = EngineError::from(rejected.error);
        let held = index.and_then(|index| checked.get(index)).and_then(Checked::held);
        let is_over = held.is_some() && (error.is_stale() || error.is_not_found());
        let error = match held {
            Some(claim) => mismatch_if_over(error, claim.task_id.clone()),
            None => error,
        };
        (OperationError { index, error }, is_over)
    }
}

/// What others on this server hear of a commit.
#[derive(Default)]
pub(crate) struct Aftermath {
    ended: Vec<Ended>,
    cancelled: Vec<TaskId>,
    due: Vec<(QueueName, Duration)>,
}

impl Aftermath {
    pub(crate) fn extend(&mut self, more: Self) {
        self.ended.extend(more.ended);
        self.cancelled.extend(more.cancelled);
        self.due.extend(more.due);
    }
}

/// What others should hear once these operations are committed.
pub(crate) fn aftermath(checked: &[Checked], answers: &[Applied]) -> Aftermath {
    let mut aftermath = Aftermath::default();
    for (operation, answer) in checked.iter().zip(answers) {
        match (operation, answer) {
            (Checked::Plain(Operation::Enqueue(task)), _) => {
                let due_in = if let Moment::In(delay) = task.due { delay } else { Duration::ZERO };
                aftermath.due.push((task.queue.clone(), due_in));
            }
            (Checked::Cancel(id), Applied::Cancelled(Cancelled { changed: true, .. })) => {
                aftermath.cancelled.push(id.clone());
            }
            (Checked::Resolve(decided), _) => {
                aftermath.ended.push(decided.ended.clone());
                let due_in = decided.due_in();
                aftermath.due.extend(due_in.map(|due_in| (decided.queue.clone(), due_in)));
            }
            // Nobody waits for an outbox's messages.
            _ => {}
        }
    }
    aftermath
}

impl Core {
    pub(crate) fn tell(&self, aftermath: Aftermath) {
        self.feeds.settle(&aftermath.ended);
        for id in &aftermath.cancelled {
            self.feeds.lose(id, StaleDetail::Cancelled);
        }
        for (queue, due_in) in aftermath.due {
            self.hint_in_process(&queue, due_in);
        }
    }
}
