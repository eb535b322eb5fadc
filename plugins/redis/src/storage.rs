//! `impl Storage`: one short method per operation. Each is one call of a function of the same name,
//! for the whole batch. The faculties beside tasks are in `coordination`.

use crate::{
    config::{OpenError, RedisConfig},
    connections::Connections,
    errors::{Access, corrupt},
    hints::Hints,
    packing::Unpacker,
    replies::{Reply, next},
    requests::{self, Args},
    rows,
    start::{self, Found},
    token::Token,
};
use async_trait::async_trait;
use bytes::Bytes;
use rdq_spi::{
    Admission, Cancelled, Capabilities, ClaimParams, ClaimRef, ClaimToken, Claimed, DlqListParams,
    DueHints, Durability, ExtendParams, Extended, HeldClaim, Ledger, ListParams, Locks, Migrated,
    NewTask, Page, PurgeParams, QueueConfig, QueueName, QueueRecord, QueueStats, Records,
    RedriveParams, Resolution, Resolved, Result, Signals, StaleDetail, Step, Storage, StorageError,
    Streams, SweepParams, Swept, Task, TaskId, TaskStatus, Timestamp, Transactions,
    keyset::{self, List},
};
use std::{sync::Arc, time::Duration};

use Access::{Reads, Writes};

/// Tasks in a Redis or Valkey server, which several processes may share.
#[derive(Debug)]
pub struct RedisStorage {
    pub(crate) config: RedisConfig,
    pub(crate) connections: Arc<Connections>,
    pub(crate) hints: Hints,
    durability: Durability,
}

impl RedisStorage {
    /// Connects to the server and checks that it can be trusted with tasks.
    pub async fn connect(config: RedisConfig) -> Result<Self, OpenError> {
        Ok(Self::start(config).await?.0)
    }

    /// Loads the functions and stores the layout of the data, and disconnects again.
    pub async fn migrate(config: RedisConfig) -> Result<Migrated, OpenError> {
        let (storage, layout) = Self::start(config).await?;
        storage.ping().await.map_err(OpenError::Write)?;
        storage.close().await;
        Ok(layout)
    }

    async fn start(config: RedisConfig) -> Result<(Self, Migrated), OpenError> {
        let (connections, Found { durability, layout }) = start::open(&config).await?;
        let (connections, hints) = (Arc::new(connections), Hints::new());
        Ok((Self { config, connections, hints, durability }, layout))
    }

    /// Calls a function and takes its answer apart.
    pub(crate) async fn call<T>(
        &self,
        operation: &'static str,
        access: Access,
        args: Args,
        read: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<T> {
        let reply = self.connections.call(operation, access, args).await?;
        read(reply).ok_or_else(|| corrupt(operation, "answer"))
    }

    /// The same for a batch: each item has its own answer, in their order.
    pub(crate) async fn call_each<K, T>(
        &self,
        operation: &'static str,
        access: Access,
        items: Vec<K>,
        args: Args,
        read: impl Fn(Reply, &K) -> Option<T>,
    ) -> Result<Vec<T>> {
        let read = |reply: Reply| {
            let answers: Vec<_> =
                reply.list()?.zip(&items).map(|(it, item)| read(Reply(it), item)).collect();
            (answers.len() == items.len()).then_some(answers)?.into_iter().collect()
        };
        self.call(operation, access, args, read).await
    }

    /// The same where the answers are in one string, one behind the other.
    async fn call_bytes<K, T>(
        &self,
        operation: &'static str,
        items: Vec<K>,
        args: Args,
        read: impl Fn(&mut Unpacker<'_>, &K) -> Option<T>,
    ) -> Result<Vec<T>> {
        let read = |reply: Reply| {
            let answer = reply.bytes()?;
            let mut from = Unpacker(&answer);
            let answers = items.iter().map(|item| read(&mut from, item)).collect::<Option<_>>()?;
            from.is_empty().then_some(answers)
        };
        self.call(operation, Writes, args, read).await
    }
}

#[async_trait]
impl Storage for RedisStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: self.durability,
            notify: true,
            waiting_claims: false,
            filter_pushdown: true,
            batch_enqueue: true,
        }
    }

    async fn ping(&self) -> Result<()> {
        self.call("touch", Writes, Args::new(), |_| Some(())).await
    }

    async fn close(&self) {
        self.connections.close();
        self.hints.close();
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        let ids = tasks.iter().map(|task| task.id.clone()).collect();
        let args = requests::admission(tasks);
        self.call_bytes("enqueue", ids, args, read_admission).await
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        let mut args = Args::new();
        for params in &claims {
            requests::claim(&mut args, params);
        }
        self.call_each("claim_due", Writes, claims, args, |reply, _| claimed(reply).map(Ok)).await
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        let ids = leases.iter().map(|params| params.claim.task_id.clone()).collect();
        let mut args = Args::with_capacity(2 * leases.len());
        for params in leases {
            requests::extend(&mut args, params);
        }
        self.call_each("extend_leases", Writes, ids, args, extended).await
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        let ids = resolutions.iter().map(|it| it.claim.task_id.clone()).collect();
        let mut args = Args::with_capacity(4 * resolutions.len());
        for resolution in resolutions {
            requests::resolution(&mut args, resolution);
        }
        self.call_bytes("resolve", ids, args, resolved).await
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        let args = claims.iter().map(requests::claim_ref).collect();
        self.call_each("live_claims", Reads, claims, args, |reply, _| {
            Some(u64::try_from(reply.number()?).ok().map(Duration::from_millis))
        })
        .await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        let args = tasks.iter().map(|id| bytes_of(id.as_str())).collect();
        self.call_each("cancel", Writes, tasks, args, |reply, id| cancelled(reply.number()?, id))
            .await
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        let args = vec![bytes_of(task.as_str())];
        let found = self.call("get", Reads, args, rows::tasks).await?;
        found.into_iter().next().ok_or_else(|| not_found(&task))
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        let before = keyset::decode(List::Tasks, &params.queue, params.position.as_ref())?;
        let args = requests::list(&params, before);
        self.call("list", Reads, args, |reply| page(List::Tasks, &params.queue, reply)).await
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        let list = List::DeadLetters;
        let before = keyset::decode(list, &params.queue, params.position.as_ref())?;
        let args = requests::dlq_list(&params, before);
        self.call("dlq_list", Reads, args, |reply| page(list, &params.queue, reply)).await
    }

    async fn redrive(&self, params: RedriveParams) -> Result<Step> {
        let list = List::DeadLetters;
        let before = keyset::decode(list, &params.queue, params.position.as_ref())?;
        let args = requests::redrive(&params, before);
        self.call("redrive", Writes, args, |reply| step(&params.queue, reply)).await
    }

    async fn purge(&self, params: PurgeParams) -> Result<Step> {
        let list = List::DeadLetters;
        let before = keyset::decode(list, &params.queue, params.position.as_ref())?;
        let args = requests::purge(&params, before);
        self.call("purge", Writes, args, |reply| step(&params.queue, reply)).await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.call("stats", Reads, vec![bytes_of(queue.as_str())], stats).await
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        self.call("sweep", Writes, requests::sweep(&params), |reply| {
            let mut parts = reply.list()?;
            let (expired, removed) = (next(&mut parts)?.count()?, next(&mut parts)?.count()?);
            Some(Swept { expired, removed, more: next(&mut parts)?.number()? == 1 })
        })
        .await
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        let after = after.as_ref().map_or("", QueueName::as_str);
        let args = vec![bytes_of(after), bytes_of(&limit.to_string())];
        let mut names =
            self.call("queue_names", Reads, args, |reply| reply.each(Reply::text)).await?;
        names.retain(|name| name.as_str() > after);
        names.sort_unstable();
        names.dedup();
        Ok(names.into_iter().take(limit as usize).map(QueueName::stored).collect())
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        let json = serde_json::to_vec(&config).map_err(|error| StorageError::Internal {
            operation: "put_queue",
            source: error.into(),
        })?;
        let args = vec![bytes_of(queue.as_str()), json.into()];
        let stored_at = self.call("put_queue", Writes, args, |reply| reply.number()).await?;
        Ok(QueueRecord { queue, config, updated_at: Timestamp::from_millis(stored_at) })
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        let mut records = self.call("queue_records", Reads, Args::new(), queue_records).await?;
        records.sort_unstable_by(|a, b| a.queue.cmp(&b.queue));
        Ok(records)
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        let args = vec![bytes_of(queue.as_str())];
        match self.call("delete_queue", Writes, args, |reply| reply.number()).await? {
            ..0 => Err(StorageError::QueueNotEmpty { queue }),
            removed => Ok(removed > 0),
        }
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        let args = vec![bytes_of(name), candidate.into()];
        self.call("shared_secret", Writes, args, |reply| Some(reply.bytes()?.into())).await
    }

    async fn now(&self) -> Result<Timestamp> {
        // All that it writes is the clock.
        let now = self.call("now", Reads, Args::new(), |reply| reply.number()).await?;
        Ok(Timestamp::from_millis(now))
    }

    async fn claims_of(&self, claims: Vec<HeldClaim>) -> Result<Vec<Option<ClaimToken>>> {
        let args = claims.iter().map(requests::held_claim).collect();
        self.call_each("claims_of", Reads, claims, args, |reply, claim| {
            let token = reply.bytes_or_none()?;
            if token.is_empty() {
                return Some(None);
            }
            let mut from = Unpacker(&token);
            let token = Token { generation: from.i64()?, nonce: from.array()? };
            Some(Some(token.encode(&claim.task_id)))
        })
        .await
    }

    fn signals(&self) -> Option<&dyn Signals> {
        Some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn Records> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        self.connections.check_open()?;
        Ok(self.hints.subscribe(&self.config, &self.connections, &queues).await)
    }
}

pub(crate) fn bytes_of(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn not_found(task: &TaskId) -> StorageError {
    StorageError::NotFound { task_id: task.clone() }
}

// What is answered to admissions, cancellations and resolutions is stored with mutations, too: these
// forms stay as they are.

/// The answer to an admission whose id is taken in another queue.
const ID_CONFLICT: u8 = 3;

pub(crate) fn read_admission(from: &mut Unpacker<'_>, id: &TaskId) -> Option<Result<Admission>> {
    match from.u8()? {
        ID_CONFLICT => Some(Err(StorageError::IdConflict { task_id: id.clone() })),
        answer => admission(answer).map(Ok),
    }
}

/// An admission that met no conflict.
pub(crate) fn admission(answer: u8) -> Option<Admission> {
    let created = match answer % 10 {
        1 => true,
        2 => false,
        _ => return None,
    };
    Some(Admission { created, status: TaskStatus::of_number(answer / 10)? })
}

pub(crate) fn cancelled(answer: i64, id: &TaskId) -> Option<Result<Cancelled>> {
    if answer < 0 {
        return Some(Err(not_found(id)));
    }
    cancellation(answer).map(Ok)
}

/// A cancellation that met a task.
pub(crate) fn cancellation(answer: i64) -> Option<Cancelled> {
    let status = TaskStatus::of_number(answer % 10)?;
    Some(Cancelled { status, changed: answer >= 10 })
}

// Where a claim stood when a call named it, as in `functions/holding.lua`; what is above is refused.
const HOLDS: u8 = 0;
const REPLAYED: u8 = 1;

fn standing(code: u8, task: &TaskId) -> Option<Result<()>> {
    let stale = |detail| Err(StorageError::StaleClaim { task_id: task.clone(), detail });
    Some(match code {
        HOLDS | REPLAYED => Ok(()),
        2 => Err(not_found(task)),
        3 => stale(None),
        4 => stale(Some(StaleDetail::Cancelled)),
        5 => stale(Some(StaleDetail::Expired)),
        _ => return None,
    })
}

fn claimed(reply: Reply) -> Option<Claimed> {
    let mut parts = reply.list()?;
    let due_in = next(&mut parts)?.number()?;
    let claims = rows::claims(next(&mut parts)?)?;
    let next_due_in = u64::try_from(due_in).ok().map(Duration::from_millis);
    Some(Claimed { claims, next_due_in })
}

fn extended(reply: Reply, task: &TaskId) -> Option<Result<Extended>> {
    let answer = reply.bytes()?;
    let mut from = Unpacker(&answer);
    if let Err(error) = standing(from.u8()?, task)? {
        return Some(Err(error));
    }
    let lease_expires_at = from.timestamp()?;
    let remaining = Duration::from_millis(from.i64()?.try_into().ok()?);
    Some(Ok(Extended { lease_expires_at, remaining }))
}

pub(crate) fn resolved(from: &mut Unpacker<'_>, task: &TaskId) -> Option<Result<Resolved>> {
    let answer = from.array()?;
    match standing(answer[0], task)? {
        Ok(()) => resolution(answer).map(Ok),
        Err(error) => Some(Err(error)),
    }
}

/// How long the answer to a resolution is.
const RESOLUTION_LEN: usize = 10;

/// A resolution that was not refused.
pub(crate) fn resolution(answer: [u8; RESOLUTION_LEN]) -> Option<Resolved> {
    let mut from = Unpacker(&answer);
    let replayed = match from.u8()? {
        HOLDS => false,
        REPLAYED => true,
        _ => return None,
    };
    let (status, due) = (TaskStatus::of_number(from.u8()?)?, from.timestamp()?);
    let next_attempt_at = (status == TaskStatus::Pending).then_some(due);
    Some(Resolved { status, next_attempt_at, replayed })
}

fn page(list: List, queue: &QueueName, reply: Reply) -> Option<Page> {
    let mut parts = reply.list()?;
    let rest = next(&mut parts)?.number()?;
    let tasks = rows::tasks(next(&mut parts)?)?;
    let next = (rest >= 0).then(|| keyset::encode(list, queue, rest));
    Some(Page { tasks, next })
}

fn step(queue: &QueueName, reply: Reply) -> Option<Step> {
    let mut parts = reply.list()?;
    let (count, rest) = (next(&mut parts)?.count()?, next(&mut parts)?.number()?);
    let next = (rest >= 0).then(|| keyset::encode(List::DeadLetters, queue, rest));
    Some(Step { count, next })
}

fn stats(reply: Reply) -> Option<QueueStats> {
    let mut parts = reply.list()?;
    let mut count = || next(&mut parts)?.count();
    let (ready, delayed, in_flight, lapsed) = (count()?, count()?, count()?, count()?);
    let (dead, succeeded, cancelled) = (count()?, count()?, count()?);
    let age = next(&mut parts)?.number()?;
    let oldest_pending_age = u64::try_from(age).ok().map(Duration::from_millis);
    Some(QueueStats {
        ready,
        delayed,
        in_flight,
        lapsed,
        dead,
        succeeded,
        cancelled,
        oldest_pending_age,
    })
}

fn queue_records(reply: Reply) -> Option<Vec<QueueRecord>> {
    let mut parts = reply.list()?;
    let mut records = Vec::new();
    while let Some(name) = next(&mut parts) {
        let stored = next(&mut parts)?.bytes()?;
        let mut from = Unpacker(&stored);
        let updated_at = from.timestamp()?;
        let config = serde_json::from_slice(from.0).ok()?;
        records.push(QueueRecord { queue: QueueName::stored(name.text()?), config, updated_at });
    }
    Some(records)
}
