//! A storage around another: it hides capabilities, counts calls, and, if told so, dawdles, fails
//! before the call, or loses its answer after it. Closing it leaves the inner one open.

use async_trait::async_trait;
use rdq_memory::MemoryStorage;
use rdq_spi::{
    Admission, Awaited, Cancelled, Capabilities, ClaimParams, ClaimRef, ClaimToken, Claimed,
    DlqListParams, DueHints, ExtendParams, Extended, HeldClaim, ListParams, Locks, NewTask, Page,
    PurgeParams, QueueConfig, QueueName, QueueRecord, QueueStats, Records, RedriveParams,
    Resolution, Resolved, Result, Signals, Step, Storage, StorageError, StreamName, Streams,
    SweepParams, Swept, Task, TaskId, Timestamp, Transactions,
};
use std::{
    future::Future,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// What goes wrong, of a thousand calls.
#[derive(Debug, Default)]
pub struct Trouble {
    pub slow: u32,
    pub unavailable: u32,
    pub answer_lost: u32,
    rng: Option<Mutex<fastrand::Rng>>,
}

impl Trouble {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn seeded(seed: u64, slow: u32, unavailable: u32, answer_lost: u32) -> Self {
        let rng = Some(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { slow, unavailable, answer_lost, rng }
    }

    fn strikes(&self, per_mille: u32) -> bool {
        self.rng.as_ref().is_some_and(|rng| rng.lock().unwrap().u32(0..1_000) < per_mille)
    }

    fn pause(&self) -> Duration {
        let rng = self.rng.as_ref().unwrap();
        Duration::from_millis(rng.lock().unwrap().u64(1..200))
    }
}

#[derive(Debug)]
pub struct Shell {
    pub(super) inner: MemoryStorage,
    masked: bool,
    closed: AtomicBool,
    pub trouble: Mutex<std::sync::Arc<Trouble>>,
    /// Every claim of this takes so long, once it is done.
    pub claim_pause: Mutex<Duration>,
    /// Claim calls, and the claims within them.
    pub claim_calls: AtomicUsize,
    pub claim_params: AtomicUsize,
    pub live_calls: AtomicUsize,
    pub enqueue_calls: AtomicUsize,
    pub lost_answers: AtomicUsize,
    pub sweep_calls: AtomicUsize,
    pub commits: AtomicUsize,
    pub publish_calls: AtomicUsize,
    /// Publications to this stream wait for somebody who does not go on.
    pub jammed: Mutex<Option<StreamName>>,
    /// Every lock is granted to whoever asks.
    pub lying_locks: AtomicBool,
    /// Claims that wait get nothing, as where others alone made something due.
    pub waiting_in_vain: AtomicBool,
}

impl Shell {
    pub fn new(inner: MemoryStorage, masked: bool, trouble: Trouble) -> Self {
        Self {
            inner,
            masked,
            closed: AtomicBool::new(false),
            trouble: Mutex::new(std::sync::Arc::new(trouble)),
            claim_pause: Mutex::default(),
            claim_calls: AtomicUsize::new(0),
            claim_params: AtomicUsize::new(0),
            live_calls: AtomicUsize::new(0),
            enqueue_calls: AtomicUsize::new(0),
            lost_answers: AtomicUsize::new(0),
            sweep_calls: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            publish_calls: AtomicUsize::new(0),
            jammed: Mutex::default(),
            lying_locks: AtomicBool::new(false),
            waiting_in_vain: AtomicBool::new(false),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub fn cause(&self, trouble: Trouble) {
        *self.trouble.lock().unwrap() = std::sync::Arc::new(trouble);
    }

    pub(super) async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if self.is_closed() {
            return Err(StorageError::Closed);
        }
        let trouble = self.trouble.lock().unwrap().clone();
        if trouble.strikes(trouble.slow) {
            tokio::time::sleep(trouble.pause()).await;
        }
        if trouble.strikes(trouble.unavailable) {
            return Err(StorageError::Unavailable { operation, source: "planned".into() });
        }
        let answer = call.await?;
        if trouble.strikes(trouble.answer_lost) {
            self.lost_answers.fetch_add(1, Ordering::SeqCst);
            return Err(StorageError::OutcomeUnknown { operation, source: "planned".into() });
        }
        Ok(answer)
    }
}

#[async_trait]
impl Storage for Shell {
    fn capabilities(&self) -> Capabilities {
        let has = !self.masked;
        Capabilities {
            notify: has,
            waiting_claims: has,
            filter_pushdown: has,
            batch_enqueue: has,
            ..self.inner.capabilities()
        }
    }

    async fn ping(&self) -> Result<()> {
        self.call("ping", self.inner.ping()).await
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        assert!(!self.masked || tasks.len() == 1, "without batch_enqueue, tasks come one by one");
        self.enqueue_calls.fetch_add(1, Ordering::SeqCst);
        self.call("enqueue", self.inner.enqueue(tasks)).await
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        self.claim_calls.fetch_add(1, Ordering::SeqCst);
        self.claim_params.fetch_add(claims.len(), Ordering::SeqCst);
        let answer = self.call("claim_due", self.inner.claim_due(claims)).await;
        let pause = *self.claim_pause.lock().unwrap();
        tokio::time::sleep(pause).await;
        answer
    }

    async fn claim_when_due(
        &self,
        claims: Vec<ClaimParams>,
        enough: CancellationToken,
    ) -> Result<Awaited> {
        assert!(!self.masked, "no claim waits without waiting_claims");
        self.claim_calls.fetch_add(1, Ordering::SeqCst);
        self.claim_params.fetch_add(claims.len(), Ordering::SeqCst);
        if self.waiting_in_vain.load(Ordering::SeqCst) {
            enough.cancelled().await;
            let nothing = |_| Ok(Claimed { claims: Vec::new(), next_due_in: None });
            let (claims, waited) = (claims.iter().map(nothing).collect(), Duration::ZERO);
            return Ok(Awaited { claims, waited });
        }
        let answer = self.call("claim_when_due", self.inner.claim_when_due(claims, enough)).await;
        let pause = *self.claim_pause.lock().unwrap();
        tokio::time::sleep(pause).await;
        answer
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        self.call("extend_leases", self.inner.extend_leases(leases)).await
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        self.call("resolve", self.inner.resolve(resolutions)).await
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        self.live_calls.fetch_add(1, Ordering::SeqCst);
        self.call("live_claims", self.inner.live_claims(claims)).await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        self.call("cancel", self.inner.cancel(tasks)).await
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        self.call("get", self.inner.get(task)).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.call("list", self.inner.list(params)).await
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        assert!(!self.masked || params.filter.is_empty(), "no filter without filter_pushdown");
        self.call("dlq_list", self.inner.dlq_list(params)).await
    }

    async fn redrive(&self, params: RedriveParams) -> Result<Step> {
        self.call("redrive", self.inner.redrive(params)).await
    }

    async fn purge(&self, params: PurgeParams) -> Result<Step> {
        self.call("purge", self.inner.purge(params)).await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.call("stats", self.inner.stats(queue)).await
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        self.sweep_calls.fetch_add(1, Ordering::SeqCst);
        self.call("sweep", self.inner.sweep(params)).await
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        self.call("queue_names", self.inner.queue_names(after, limit)).await
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        self.call("put_queue", self.inner.put_queue(queue, config)).await
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        self.call("queue_records", self.inner.queue_records()).await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        self.call("delete_queue", self.inner.delete_queue(queue)).await
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        if self.masked {
            return Err(StorageError::Unsupported { operation: "shared_secret" });
        }
        self.call("shared_secret", self.inner.shared_secret(name, candidate)).await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.call("now", self.inner.now()).await
    }

    async fn claims_of(&self, claims: Vec<HeldClaim>) -> Result<Vec<Option<ClaimToken>>> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        self.call("claims_of", self.inner.claims_of(claims)).await
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn signals(&self) -> Option<&dyn Signals> {
        if self.masked { None } else { Some(self) }
    }

    fn locks(&self) -> Option<&dyn Locks> {
        if self.masked { None } else { Some(self) }
    }

    fn records(&self) -> Option<&dyn Records> {
        if self.masked { None } else { Some(self) }
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        if self.masked { None } else { Some(self) }
    }

    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        assert!(!self.masked, "no hints without notify");
        self.call("wait_due", self.inner.wait_due(queues)).await
    }
}
