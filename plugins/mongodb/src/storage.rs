//! `impl Storage`: one short method per operation; what it does is in the modules.

use crate::{
    admission::{self, Answered},
    calls::Calls,
    checks::{self, Topology},
    config::{MongoOptions, OpenError},
    coordination::{Announcer, Coordination},
    database::Db,
    dead_letters,
    errors::{Access, Step},
    gathered::Gathered,
    holding, migrations, numbers, queues, reads,
    rounds::rounds,
    sweeps,
    token::StoreId,
    turns::Turns,
    waiting::Waiting,
};
use async_trait::async_trait;
use futures::{FutureExt as _, future::BoxFuture};
use rdq_spi::{
    Admission, Cancelled, Capabilities, ClaimParams, ClaimRef, ClaimToken, Claimed, DlqListParams,
    DueHints, Durability, ExtendParams, Extended, HeldClaim, Ledger, ListParams, Locks, Migrated,
    NewTask, Page, PurgeParams, QueueConfig, QueueName, QueueRecord, QueueStats, Records,
    RedriveParams, Resolution, Resolved, Result, Signals, Storage, StorageError, Streams,
    SweepParams, Swept, Task, TaskId, Timestamp, Transactions,
    keyset::{self, List},
};
use std::{collections::HashSet, future::Future, sync::Arc, time::Duration};

/// Tasks in a database of a MongoDB replica set, which many servers may share.
#[derive(Debug)]
pub struct MongoStorage {
    db: Db,
    store_id: StoreId,
    turns: Turns,
    waiting: Arc<Waiting>,
    gathered: Arc<Gathered>,
    calls: Calls,
    topology: Topology,
    pub(crate) coordination: Coordination,
}

impl MongoStorage {
    /// Opens the database, making what is missing.
    pub async fn open(options: MongoOptions) -> Result<Self, OpenError> {
        let db = Db::new(&options).await?;
        let topology = checks::check_server(&db).await?;
        let (store_id, _) = migrations::migrate(&db).await?;
        migrations::enter(&db).await?;
        let (announcer, calls) = (Announcer::default(), Calls::default());
        let waiting = Arc::new(Waiting::start(&db, topology, &announcer));
        let coordination = Coordination::new(&db, store_id, &calls, &waiting, announcer);
        let (turns, gathered) = (Turns::default(), Arc::default());
        Ok(Self { db, store_id, turns, waiting, gathered, calls, topology, coordination })
    }

    /// Makes what is missing in the database, and disconnects again.
    pub async fn migrate(options: MongoOptions) -> Result<Migrated, OpenError> {
        let db = Db::new(&options).await?;
        checks::check_server(&db).await?;
        Ok(migrations::migrate(&db).await?.1)
    }

    /// Runs a call in a task of its own, to its end: whoever gives up waiting does not leave it
    /// half done.
    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        access: Access,
        call: impl Future<Output = Step<T>> + Send + 'static,
    ) -> Result<T> {
        self.calls.run(operation, access, call).await
    }

    /// Coordination needs transactions, which a server that is in no replica set does not have.
    fn coordinates(&self) -> bool {
        self.topology == Topology::ReplicaSet
    }

    /// Runs a batch in as many rounds as it takes for no round to have two items of one task.
    async fn in_rounds<T, U>(
        &self,
        operation: &'static str,
        items: Vec<T>,
        id: impl Fn(&T) -> &TaskId,
        call: impl for<'c> Fn(&'c Db, StoreId, Vec<&'c T>) -> BoxFuture<'c, Step<Vec<Answered<U>>>>
        + Copy
        + Send
        + Sync
        + 'static,
        hint: impl Fn(&QueueName, Duration),
    ) -> Result<Vec<Result<U>>>
    where
        T: Send + Sync + 'static,
        U: Send + 'static,
    {
        let rounds = rounds(&items, id);
        let items = Arc::new(items);
        let mut answers: Vec<Option<Result<U>>> = items.iter().map(|_| None).collect();
        for (number, round) in rounds.into_iter().enumerate() {
            let (db, store_id) = (self.db.clone(), self.store_id);
            let (indexes, items) = (round.clone(), Arc::clone(&items));
            let answered = self.run(operation, Access::Write, async move {
                let of_round = indexes.iter().filter_map(|index| items.get(*index)).collect();
                call(&db, store_id, of_round).await
            });
            match answered.await {
                Ok(answered) => {
                    for (index, (answer, due)) in round.iter().zip(answered) {
                        if let Some((queue, due_in)) = due {
                            hint(&queue, due_in);
                        }
                        answers[*index] = Some(answer);
                    }
                }
                // What earlier rounds did stands: only these items fail.
                Err(error) if number > 0 => {
                    for index in round {
                        answers[index] = Some(Err(repeated(&error, operation)));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        // Every item was of some round.
        Ok(answers.into_iter().flatten().collect())
    }
}

/// The failure of a round as the answer to each of its items.
pub(crate) fn repeated(error: &StorageError, operation: &'static str) -> StorageError {
    let source = error.to_string().into();
    match error {
        StorageError::Closed => StorageError::Closed,
        StorageError::Contention { .. } => StorageError::Contention { operation },
        StorageError::Full { .. } => StorageError::Full { source },
        StorageError::Unavailable { .. } => StorageError::Unavailable { operation, source },
        StorageError::OutcomeUnknown { .. } => StorageError::OutcomeUnknown { operation, source },
        _ => StorageError::Internal { operation, source },
    }
}

impl Drop for MongoStorage {
    fn drop(&mut self) {
        // An interactive transaction that is open keeps what it needs.
        self.waiting.close();
    }
}

#[async_trait]
impl Storage for MongoStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::PowerCut,
            notify: true,
            waiting_claims: false,
            filter_pushdown: false,
            batch_enqueue: true,
        }
    }

    async fn ping(&self) -> Result<()> {
        let db = self.db.clone();
        self.run("ping", Access::Read, async move { queues::touch(&db).await }).await
    }

    async fn close(&self) {
        if self.calls.close() {
            self.waiting.close();
            self.db.close().await;
        }
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        let db = self.db.clone();
        let call = async move { admission::enqueue(&db, &tasks).await };
        let answers = self.run("enqueue", Access::Write, call).await?;
        let answers = answers.into_iter().map(|(answer, due)| {
            if let Some((queue, due_in)) = due {
                self.waiting.hint(&queue, due_in);
            }
            answer
        });
        Ok(answers.collect())
    }

    async fn claim_due(&self, mut claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        let mut expected = Vec::with_capacity(claims.len());
        for params in &mut claims {
            self.turns.arrange(&mut params.queues, params.limit as usize, |from| &from.queue);
            let first = params.queues.iter().take(params.limit as usize);
            expected.push(first.map(|from| from.queue.clone()).collect::<HashSet<_>>());
        }
        let (db, store_id) = (self.db.clone(), self.store_id);
        let gathered = Arc::clone(&self.gathered);
        let claimed = self.run("claim_due", Access::Write, async move {
            gathered.claim_due(&db, store_id, claims).await
        });
        let claimed = claimed.await?;
        for (claimed, expected) in claimed.iter().zip(expected) {
            for claim in &claimed.claims {
                self.waiting.hint_of_lease(&claim.task.queue, claim.lease);
            }
            let served: HashSet<_> = claimed.claims.iter().map(|it| &it.task.queue).collect();
            served
                .into_iter()
                .filter(|queue| !expected.contains(*queue))
                .for_each(|queue| self.turns.serve(queue));
        }
        Ok(claimed.into_iter().map(Ok).collect())
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        self.in_rounds(
            "extend_leases",
            leases,
            |lease| &lease.claim.task_id,
            |db, store_id, leases| {
                async move { holding::extend(db, store_id, &leases).await }.boxed()
            },
            |queue, due_in| self.waiting.hint_of_lease(queue, due_in),
        )
        .await
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        self.in_rounds(
            "resolve",
            resolutions,
            |resolution| &resolution.claim.task_id,
            |db, store_id, items| {
                async move { holding::resolve(db, store_id, &items).await }.boxed()
            },
            |queue, due_in| self.waiting.hint(queue, due_in),
        )
        .await
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        let (db, store_id) = (self.db.clone(), self.store_id);
        let call = async move { reads::live_claims(&db, store_id, &claims).await };
        self.run("live_claims", Access::Read, call).await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        self.in_rounds(
            "cancel",
            tasks,
            |task| task,
            |db, _, tasks| async move { holding::cancel(db, &tasks).await }.boxed(),
            |_, _| {},
        )
        .await
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        let (db, id) = (self.db.clone(), task.clone());
        let found =
            self.run("get", Access::Read, async move { reads::get(&db, &id).await }).await?;
        found.ok_or(StorageError::NotFound { task_id: task })
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        let before = keyset::decode(List::Tasks, &params.queue, params.position.as_ref())?;
        let db = self.db.clone();
        let call = async move { reads::list(&db, &params, before).await };
        self.run("list", Access::Read, call).await
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        let before = keyset::decode(List::DeadLetters, &params.queue, params.position.as_ref())?;
        let db = self.db.clone();
        let call = async move { reads::dlq_list(&db, &params, before).await };
        self.run("dlq_list", Access::Read, call).await
    }

    async fn redrive(&self, params: RedriveParams) -> Result<rdq_spi::Step> {
        let before = keyset::decode(List::DeadLetters, &params.queue, params.position.as_ref())?;
        let (db, hint) = (self.db.clone(), (params.queue.clone(), params.delay));
        let is_done = !params.dry_run;
        let call = async move { dead_letters::redrive(&db, &params, before).await };
        let step = self.run("redrive", Access::Write, call).await?;
        if is_done && step.count > 0 {
            self.waiting.hint(&hint.0, hint.1);
        }
        Ok(step)
    }

    async fn purge(&self, params: PurgeParams) -> Result<rdq_spi::Step> {
        let before = keyset::decode(List::DeadLetters, &params.queue, params.position.as_ref())?;
        let db = self.db.clone();
        let call = async move { dead_letters::purge(&db, &params, before).await };
        self.run("purge", Access::Write, call).await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        let db = self.db.clone();
        self.run("stats", Access::Read, async move { reads::stats(&db, &queue).await }).await
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        let db = self.db.clone();
        self.run("sweep", Access::Write, async move { sweeps::sweep(&db, &params).await }).await
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        let db = self.db.clone();
        let call = async move { queues::names(&db, after.as_ref(), limit).await };
        self.run("queue_names", Access::Read, call).await
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        let json = serde_json::to_string(&config).map_err(|error| StorageError::Internal {
            operation: "put_queue",
            source: error.into(),
        })?;
        let db = self.db.clone();
        let call = async move { queues::put(&db, &queue, config, &json).await };
        self.run("put_queue", Access::Write, call).await
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        let db = self.db.clone();
        self.run("queue_records", Access::Read, async move { queues::records(&db).await }).await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        let db = self.db.clone();
        let call = async move { queues::delete(&db, &queue).await };
        self.run("delete_queue", Access::Write, call).await
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        let (db, name) = (self.db.clone(), name.to_owned());
        let call = async move { queues::shared_secret(&db, &name, &candidate).await };
        self.run("shared_secret", Access::Write, call).await
    }

    async fn now(&self) -> Result<Timestamp> {
        let db = self.db.clone();
        self.run("now", Access::Read, async move { numbers::now(&db).await }).await
    }

    async fn claims_of(&self, claims: Vec<HeldClaim>) -> Result<Vec<Option<ClaimToken>>> {
        let (db, store_id) = (self.db.clone(), self.store_id);
        let call = async move { reads::claims_of(&db, store_id, &claims).await };
        self.run("claims_of", Access::Read, call).await
    }

    fn signals(&self) -> Option<&dyn Signals> {
        self.coordinates().then_some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        self.coordinates().then_some(self)
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.coordinates().then_some(self)
    }

    fn records(&self) -> Option<&dyn Records> {
        self.coordinates().then_some(self)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.coordinates().then_some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.coordinates().then_some(self)
    }

    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        self.calls.check_open()?;
        Ok(self.waiting.subscribe(&queues))
    }
}
