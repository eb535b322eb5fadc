//! The trait that a backend implements.

use crate::{
    Admission, Awaited, Cancelled, Capabilities, ClaimParams, ClaimRef, ClaimToken, Claimed,
    DlqListParams, DueHints, ExtendParams, Extended, HeldClaim, Ledger, ListParams, Locks, NewTask,
    Page, PurgeParams, QueueConfig, QueueName, QueueRecord, QueueStats, Records, RedriveParams,
    Resolution, Resolved, Result, Signals, Step, StorageError, Streams, SweepParams, Swept, Task,
    TaskId, Timestamp, Transactions,
};
use async_trait::async_trait;
use std::{fmt::Debug, time::Duration};
use tokio_util::sync::CancellationToken;

/// Everything the engine needs from a database: the durable half of rdq.
///
/// A plugin stores, schedules, fences and hands out claims. It sees no retry policy, classifies no
/// error and reads no payload. Batches are the primitive: one is a batch of one, and every item has
/// its own answer, in the order of the call.
///
/// # Contract
///
/// - **Durable.** A write that returned `Ok` survives what [`Capabilities::durability`] says.
/// - **NoDoubleClaim.** A task has at most one live claim, whoever asks, through whatever handle.
/// - **Fencing.** A superseded or unknown token changes nothing and yields
///   [`StorageError::StaleClaim`]. A token stays good after its lease ran out, until the task is
///   claimed again, cancelled or swept; under `strict`, it is stale from the deadline on.
/// - **Generations grow.** Each claim's generation is above every earlier one of that task, for
///   ever: also when a task was removed and its id admitted again.
/// - **LeaseRecoveryCounts.** Reclaiming a lapsed lease appends a `LEASE_EXPIRED` attempt (error
///   type [`crate::AttemptError::LEASE_EXPIRED`]) and counts it, in the same atomic step.
/// - **AtomicTransitions.** Each item of a call applies wholly or not at all, even if its future is
///   dropped or the process dies.
/// - **IdempotentEnqueue.** A repeated id in one queue is the same task, whatever its content; in
///   another queue it is [`StorageError::IdConflict`].
/// - **LosslessRoundTrip.** What was admitted or reported is answered byte for byte.
/// - **RedriveResets.** A redriven task is pending with `attempt_count` 0 and its history.
/// - **StablePagination.** Lists are keyset pages: no skips, no duplicates, and nothing that
///   entered after the first page, whatever comes and goes.
/// - **ReplaySafeResolution.** The same [`crate::Call`] with the same token on the task that it
///   resolved succeeds, `replayed`, and changes nothing. That is remembered until the task is
///   claimed again, redriven or removed. Another call with that token is stale.
/// - **OrderedByPriorityThenDue.** Claims come by priority (higher first), then due time (a lapsed
///   task's is its lease's end), then admission.
/// - **StorageClock.** The backend's clock alone decides what is due and what has lapsed; callers
///   pass durations, or instants to be stored, never "now". The clock never runs backwards.
/// - **WaitingClaims.** Where they are offered, a claim that waits gets what calls of its handle make
///   due, and takes nothing once nobody waits for it.
/// - **Bounded.** No call returns or changes more than its limits, in items and in bytes (a first
///   item always fits).
///
/// # History
///
/// Every transition that appends a record increments `attempt_count`; the record's number is one
/// above the highest so far. A release and the cancellation of a pending task append none. The
/// history is bounded by [`crate::HISTORY_RECORDS_MAX`] and [`crate::HISTORY_BYTES_MAX`]; a long
/// one never blocks a transition.
#[async_trait]
pub trait Storage: Debug + Send + Sync + 'static {
    /// What this plugin offers beyond the contract.
    fn capabilities(&self) -> Capabilities;

    /// Whether the backend answers, reads and writes.
    async fn ping(&self) -> Result<()>;

    /// Flushes and releases what the handle holds. Later calls fail with
    /// [`StorageError::Closed`].
    async fn close(&self);

    /// Admits every task of the batch (Durable, IdempotentEnqueue). A task whose due time has come
    /// is due at its admission's instant unless it names an earlier one.
    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>>;

    /// Serves claims: each takes what is due from its queues, fairly between them, no task twice.
    /// Nothing due is an empty answer, not an error.
    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>>;

    /// The same for those who would only ask again: with [`Capabilities::waiting_claims`], the call
    /// waits in the storage until calls of this handle make something due there (WaitingClaims), or
    /// until `enough` is cancelled; then it answers with what it was given or found, perhaps nothing.
    /// What falls due with time, and what others do, it may miss: hints tell, and whoever was hinted
    /// claims. A call that was dropped keeps nothing: what it takes all the same, it gives back.
    async fn claim_when_due(
        &self,
        claims: Vec<ClaimParams>,
        enough: CancellationToken,
    ) -> Result<Awaited> {
        let _ = enough;
        Ok(Awaited { claims: self.claim_due(claims).await?, waited: Duration::ZERO })
    }

    /// Keeps claims: each lease becomes now + its duration, an absolute reset (Fencing).
    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>>;

    /// Ends claims (Fencing, ReplaySafeResolution).
    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>>;

    /// Which of these claims are live, and how much of their lease is left; `None` for a claim that
    /// was resolved, superseded or lapsed.
    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>>;

    /// Ends pending and in-flight tasks for good. In flight, a `CANCELLED` attempt is appended and
    /// the holder's next call is stale with detail `Cancelled`. A finished task does not change.
    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>>;

    /// Reads one task with its whole history, else [`StorageError::NotFound`].
    async fn get(&self, task: TaskId) -> Result<Task>;

    /// Lists a queue's tasks, by admission, newest first (StablePagination, Bounded).
    async fn list(&self, params: ListParams) -> Result<Page>;

    /// Lists dead letters, by their death, newest first (StablePagination, Bounded). Without
    /// [`Capabilities::filter_pushdown`] the filter is empty.
    async fn dlq_list(&self, params: DlqListParams) -> Result<Page>;

    /// One bounded step over the selected dead letters, newest first, making them pending
    /// (RedriveResets). What dies again while a redrive runs is not of its selection.
    async fn redrive(&self, params: RedriveParams) -> Result<Step>;

    /// One bounded step over the selected dead letters, newest first, removing them.
    async fn purge(&self, params: PurgeParams) -> Result<Step>;

    /// Counts a queue's tasks. An unknown queue has zeroes.
    async fn stats(&self, queue: QueueName) -> Result<QueueStats>;

    /// One bounded step of maintenance on a queue; idempotent, safe on many servers at once.
    async fn sweep(&self, params: SweepParams) -> Result<Swept>;

    /// The names of queues that hold tasks or have a stored configuration, by name, after `after`.
    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>>;

    /// Stores a queue's configuration, in place of what was stored.
    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord>;

    /// Every stored configuration, by name. Queues are few; servers read this every second.
    async fn queue_records(&self) -> Result<Vec<QueueRecord>>;

    /// Removes a stored configuration and says whether there was one. A queue that holds a task in
    /// any status is [`StorageError::QueueNotEmpty`].
    async fn delete_queue(&self, queue: QueueName) -> Result<bool>;

    /// Stores `candidate` as the secret of this name unless there is one, and answers what is
    /// stored: every server on one backend gets the same bytes.
    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        let _ = (name, candidate);
        Err(StorageError::Unsupported { operation: "shared_secret" })
    }

    /// The storage's clock.
    async fn now(&self) -> Result<Timestamp> {
        Err(StorageError::Unsupported { operation: "now" })
    }

    /// The token of the claim that this worker took of this task with this generation, if that is
    /// the task's newest one, live or not.
    async fn claims_of(&self, claims: Vec<HeldClaim>) -> Result<Vec<Option<ClaimToken>>> {
        let _ = claims;
        Err(StorageError::Unsupported { operation: "claims_of" })
    }

    /// Signals, if the plugin has them.
    fn signals(&self) -> Option<&dyn Signals> {
        None
    }

    /// Streams, if the plugin has them.
    fn streams(&self) -> Option<&dyn Streams> {
        None
    }

    /// Locks, if the plugin has them.
    fn locks(&self) -> Option<&dyn Locks> {
        None
    }

    /// Records, if the plugin has them.
    fn records(&self) -> Option<&dyn Records> {
        None
    }

    /// Transactions, if the plugin has them: of all that it has.
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// The ledger, if the plugin has it: its transactions apply [`crate::Operation::Observe`] then.
    fn ledger(&self) -> Option<&dyn Ledger> {
        None
    }

    /// Hints for these queues, if [`Capabilities::notify`]. One comes at once for a queue where a
    /// task is due; later ones when a task becomes due or when its due time becomes known,
    /// whichever server caused it. Hints may be spurious and may coalesce; none is lost.
    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        let _ = queues;
        Err(StorageError::Unsupported { operation: "wait_due" })
    }
}
