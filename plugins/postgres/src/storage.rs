//! `impl Storage`: one short method per operation. Each is one statement of one transaction; what it
//! does is in the modules and, below them, in the functions of the schema.

use crate::{
    admission::Admissions,
    checks,
    claims::{self, Delivery, Group, Served},
    clock::Moment,
    config::{OpenError, PostgresOptions},
    coordination::{Announcer, Coordination},
    dead_letters,
    errors::Sql,
    handoff::{Handoffs, Waited},
    heads::{Heads, Place},
    holding::{self, Answered},
    listener::Listener,
    migrations, pool,
    pool::Pool,
    queues, reads,
    rounds::{repeated, rounds},
    sweeps,
    token::StoreId,
    turns::Turns,
    waiting::Waiting,
};
use async_trait::async_trait;
use futures::{FutureExt as _, future::BoxFuture};
use rdq_spi::{
    Admission, Awaited, Call, Cancelled, Capabilities, ClaimParams, ClaimRef, ClaimToken, Claimed,
    DlqListParams, DueHints, Durability, ExtendParams, Extended, HeldClaim, Ledger, ListParams,
    Locks, Migrated, NewTask, Outcome, Page, PurgeParams, QueueConfig, QueueName, QueueRecord,
    QueueStats, Records, RedriveParams, Resolution, Resolved, Result, Signals, Step, Storage,
    StorageError, Streams, SweepParams, Swept, Task, TaskId, Timestamp, Transactions,
    keyset::{self, List},
};
use sqlx::{Connection as _, PgConnection, Row as _};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// A claim that waits and found something due that it could not have looks again after this.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Tasks in a schema of a PostgreSQL database, which many servers may share.
#[derive(Debug)]
pub struct PostgresStorage {
    pub(crate) pool: Arc<Pool>,
    pub(crate) store_id: StoreId,
    turns: Turns,
    heads: Arc<Heads>,
    waiting: Arc<Waiting>,
    pub(crate) coordination: Coordination,
    handoffs: Arc<Handoffs>,
    giving_back: JoinHandle<()>,
    is_closed: AtomicBool,
}

impl PostgresStorage {
    /// Opens the schema, making or upgrading it where needed.
    pub async fn open(options: PostgresOptions) -> Result<Self, OpenError> {
        let (mut db, _) = Self::prepare(&options).await?;
        let store = sqlx::query("SELECT store_id FROM store").fetch_one(&mut db).await?;
        let store_id: Vec<u8> = store.try_get("store_id")?;
        let store_id = store_id.try_into().map_err(|_| crate::errors::corrupt("store_id"))?;
        let store_id = StoreId(store_id);
        let pool = Arc::new(Pool::new(&options));
        let listener = Listener::start(options, store_id.channel(), &mut db).await?;
        db.close().await?;
        let (handoffs, undeliverable) = Handoffs::new();
        let handoffs = Arc::new(handoffs);
        let announcer = Announcer::new(&pool, listener.channel());
        let waiting = Waiting::start(&pool, listener, announcer.clone(), Arc::clone(&handoffs));
        let waiting = Arc::new(waiting);
        let (turns, heads) = (Turns::default(), Arc::default());
        let coordination = Coordination::start(&pool, store_id, &heads, &waiting, announcer);
        let back = give_back(undeliverable, Arc::clone(&pool), store_id, Arc::clone(&waiting));
        let giving_back = tokio::spawn(back);
        let is_closed = AtomicBool::new(false);
        Ok(Self {
            pool,
            store_id,
            turns,
            heads,
            waiting,
            coordination,
            handoffs,
            giving_back,
            is_closed,
        })
    }

    /// Makes or upgrades the schema, and disconnects again.
    pub async fn migrate(options: PostgresOptions) -> Result<Migrated, OpenError> {
        let (db, migrated) = Self::prepare(&options).await?;
        db.close().await?;
        Ok(migrated)
    }

    async fn prepare(options: &PostgresOptions) -> Result<(PgConnection, Migrated), OpenError> {
        let mut db = pool::connect(options).await?;
        checks::check_server(&mut db).await?;
        checks::check_sessions(&mut db, options).await?;
        let migrated = migrations::migrate(&mut db, &options.namespace).await?;
        Ok((db, migrated))
    }

    /// Runs a batch in as many rounds as it takes for no round to have two items of one task.
    /// What it answers to an item includes whom to hint.
    async fn in_rounds<T, U>(
        &self,
        operation: &'static str,
        items: Vec<T>,
        id: impl Fn(&T) -> &TaskId,
        run: impl for<'c> Fn(&'c mut PgConnection, Vec<&'c T>) -> BoxFuture<'c, Sql<Vec<Answered<U>>>>
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
            let round = Arc::new(round);
            let (indexes, items) = (Arc::clone(&round), Arc::clone(&items));
            let answered = self.pool.write(operation, move |db| {
                let (indexes, items) = (Arc::clone(&indexes), Arc::clone(&items));
                async move {
                    let of_round = indexes.iter().filter_map(|index| items.get(*index)).collect();
                    run(db, of_round).await
                }
                .boxed()
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
                    for index in round.iter() {
                        answers[*index] = Some(Err(repeated(&error, operation)));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        // Every item was of some round.
        Ok(answers.into_iter().flatten().collect())
    }

    /// Serves claims of the same queues by one statement.
    async fn claim_together(&self, mut group: Group) -> Result<Served> {
        let limit = group.claims.iter().map(|claim| claim.limit as usize).sum();
        self.turns.arrange(&mut group.queues, limit, |from| &from.queue);
        let looks: Vec<_> = group.queues.iter().map(|from| self.heads.look(&from.queue)).collect();
        let heads: Arc<[Place]> = looks.iter().map(|look| look.behind).collect();
        let stirs = self.handoffs.stirs(&group.queues);
        let store_id = self.store_id;
        let group = Arc::new(group);
        let (asked, handoffs) = (Arc::clone(&group), Arc::clone(&self.handoffs));
        let served = self.pool.write("claim_due", move |db| {
            let (group, heads) = (Arc::clone(&asked), Arc::clone(&heads));
            let handoffs = Arc::clone(&handoffs);
            async move {
                let served = claims::claim_due(db, store_id, &group, &heads).await?;
                Ok(Delivery::of(served, handoffs))
            }
            .boxed()
        });
        let served = served.await?.received();
        for (from, look) in group.queues.iter().zip(looks) {
            if let Some((furthest, count)) = served.given.get(&from.queue) {
                self.heads.took(&from.queue, look, *furthest, *count);
            }
        }
        let mut leases: HashMap<&QueueName, Duration> = HashMap::new();
        for claim in served.claims.iter().flatten() {
            let soonest = leases.entry(&claim.task.queue).or_insert(claim.lease);
            *soonest = claim.lease.min(*soonest);
        }
        self.handoffs.looked(&group.queues, &stirs, served.next_due_in);
        for (queue, lease) in leases {
            self.waiting.hint_of_lease(queue, lease);
        }
        if group.queues.len() > 1 {
            let expected: HashSet<_> =
                group.queues.iter().take(limit).map(|from| &from.queue).collect();
            let given = served.given.keys().filter(|queue| !expected.contains(queue));
            given.for_each(|queue| self.turns.serve(queue));
        }
        Ok(served)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }
}

#[async_trait]
impl Storage for PostgresStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::PowerCut,
            notify: true,
            waiting_claims: true,
            filter_pushdown: true,
            batch_enqueue: true,
        }
    }

    async fn ping(&self) -> Result<()> {
        self.check_open()?;
        self.pool.read("ping", |db| queues::touch(db).boxed()).await
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.handoffs.close();
        self.waiting.close();
        self.coordination.close().await;
        self.pool.close().await;
        self.giving_back.abort();
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        self.check_open()?;
        let admissions = Admissions {
            pool: Arc::clone(&self.pool),
            store_id: self.store_id,
            heads: Arc::clone(&self.heads),
            waiting: Arc::clone(&self.waiting),
            handoffs: Arc::clone(&self.handoffs),
        };
        admissions.admit(tasks).await
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        self.check_open()?;
        let count = claims.len();
        let mut answers: Vec<Option<Result<Claimed>>> = (0..count).map(|_| None).collect();
        for (number, group) in claims::grouped(claims).into_iter().enumerate() {
            let indexes = group.indexes.clone();
            match self.claim_together(group).await {
                Ok(Served { claims, next_due_in, .. }) => {
                    for (index, claims) in indexes.into_iter().zip(claims) {
                        answers[index] = Some(Ok(Claimed { claims, next_due_in }));
                    }
                }
                Err(error) if number == 0 => return Err(error),
                // What the others claimed is theirs.
                Err(error) => {
                    for index in indexes {
                        answers[index] = Some(Err(repeated(&error, "claim_due")));
                    }
                }
            }
        }
        // Every claim was of some group.
        Ok(answers.into_iter().flatten().collect())
    }

    async fn claim_when_due(
        &self,
        claims: Vec<ClaimParams>,
        enough: CancellationToken,
    ) -> Result<Awaited> {
        let called = Moment::now();
        let claims: Arc<[_]> = claims.into();
        loop {
            self.check_open()?;
            if !self.handoffs.is_quiet(&claims) {
                let waited = called.age();
                let awaited = Awaited { claims: self.claim_due(claims.to_vec()).await?, waited };
                let is_due = |answer: &Result<Claimed>| {
                    answer.as_ref().is_ok_and(|it| it.next_due_in == Some(Duration::ZERO))
                };
                if !awaited.is_empty() || enough.is_cancelled() {
                    return Ok(awaited);
                }
                if awaited.claims.iter().any(is_due) {
                    // It came while this claim looked, or others are about to take it: no reason to
                    // ask without end, nor to come back with nothing.
                    let _ = tokio::time::timeout(LOOK_AGAIN, enough.cancelled()).await;
                    continue;
                }
            }
            match self.handoffs.wait(&claims, called, &enough).await? {
                Waited::Handed(awaited) => return Ok(awaited),
                Waited::Look => {}
            }
        }
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        self.check_open()?;
        let store_id = self.store_id;
        self.in_rounds(
            "extend_leases",
            leases,
            |lease| &lease.claim.task_id,
            move |db, leases| async move { holding::extend(db, store_id, &leases).await }.boxed(),
            |queue, due_in| self.waiting.hint_of_lease(queue, due_in),
        )
        .await
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        self.check_open()?;
        let store_id = self.store_id;
        self.in_rounds(
            "resolve",
            resolutions,
            |resolution| &resolution.claim.task_id,
            move |db, items| async move { holding::resolve(db, store_id, &items).await }.boxed(),
            |queue, due_in| {
                if due_in.is_zero() {
                    self.heads.disturb(queue);
                }
                self.waiting.hint(queue, due_in);
            },
        )
        .await
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        self.check_open()?;
        let (store_id, claims) = (self.store_id, Arc::new(claims));
        self.pool
            .read("live_claims", move |db| {
                let claims = Arc::clone(&claims);
                async move { reads::live_claims(db, store_id, &claims).await }.boxed()
            })
            .await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        self.check_open()?;
        self.in_rounds(
            "cancel",
            tasks,
            |task| task,
            move |db, tasks| async move { holding::cancel(db, &tasks).await }.boxed(),
            |_, _| {},
        )
        .await
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        self.check_open()?;
        let id = task.clone();
        let found = self.pool.read("get", move |db| {
            let id = id.clone();
            async move { reads::get(db, &id).await }.boxed()
        });
        found.await?.ok_or(StorageError::NotFound { task_id: task })
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.check_open()?;
        let before = keyset::decode(List::Tasks, &params.queue, params.position.as_ref())?;
        let params = Arc::new(params);
        self.pool
            .read("list", move |db| {
                let params = Arc::clone(&params);
                async move { reads::list(db, &params, before).await }.boxed()
            })
            .await
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        self.check_open()?;
        let before = keyset::decode(List::DeadLetters, &params.queue, params.position.as_ref())?;
        let params = Arc::new(params);
        self.pool
            .read("dlq_list", move |db| {
                let params = Arc::clone(&params);
                async move { reads::dlq_list(db, &params, before).await }.boxed()
            })
            .await
    }

    async fn redrive(&self, params: RedriveParams) -> Result<Step> {
        self.check_open()?;
        let before = keyset::decode(List::DeadLetters, &params.queue, params.position.as_ref())?;
        let params = Arc::new(params);
        let asked = Arc::clone(&params);
        let step = self.pool.write("redrive", move |db| {
            let asked = Arc::clone(&asked);
            async move { dead_letters::redrive(db, &asked, before).await }.boxed()
        });
        let step = step.await?;
        if step.count > 0 && !params.dry_run {
            self.heads.disturb(&params.queue);
            self.waiting.hint(&params.queue, params.delay);
        }
        Ok(step)
    }

    async fn purge(&self, params: PurgeParams) -> Result<Step> {
        self.check_open()?;
        let before = keyset::decode(List::DeadLetters, &params.queue, params.position.as_ref())?;
        let params = Arc::new(params);
        self.pool
            .write("purge", move |db| {
                let params = Arc::clone(&params);
                async move { dead_letters::purge(db, &params, before).await }.boxed()
            })
            .await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.check_open()?;
        self.pool
            .read("stats", move |db| {
                let queue = queue.clone();
                async move { reads::stats(db, &queue).await }.boxed()
            })
            .await
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        self.check_open()?;
        let params = Arc::new(params);
        self.pool
            .write("sweep", move |db| {
                let params = Arc::clone(&params);
                async move { sweeps::sweep(db, &params).await }.boxed()
            })
            .await
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        self.check_open()?;
        self.pool
            .read("queue_names", move |db| {
                let after = after.clone();
                async move { queues::names(db, after.as_ref(), limit).await }.boxed()
            })
            .await
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        self.check_open()?;
        let json = serde_json::to_string(&config).map_err(|error| StorageError::Internal {
            operation: "put_queue",
            source: error.into(),
        })?;
        let put = Arc::new((queue, config, json));
        self.pool
            .write("put_queue", move |db| {
                let put = Arc::clone(&put);
                async move { queues::put(db, &put.0, &put.1, &put.2).await }.boxed()
            })
            .await
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        self.check_open()?;
        self.pool.read("queue_records", |db| queues::records(db).boxed()).await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        self.check_open()?;
        self.pool
            .write("delete_queue", move |db| {
                let queue = queue.clone();
                async move { queues::delete(db, &queue).await }.boxed()
            })
            .await?
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        self.check_open()?;
        let asked = Arc::new((name.to_owned(), candidate));
        self.pool
            .write("shared_secret", move |db| {
                let asked = Arc::clone(&asked);
                async move { queues::shared_secret(db, &asked.0, &asked.1).await }.boxed()
            })
            .await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.check_open()?;
        self.coordination.now().await
    }

    async fn claims_of(&self, claims: Vec<HeldClaim>) -> Result<Vec<Option<ClaimToken>>> {
        self.check_open()?;
        self.coordination.claims_of(claims).await
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
        self.check_open()?;
        Ok(self.waiting.subscribe(&queues))
    }
}

impl Drop for PostgresStorage {
    fn drop(&mut self) {
        self.handoffs.close();
        self.giving_back.abort();
    }
}

/// Gives back, for ever, what was handed over to somebody who is gone.
async fn give_back(
    mut undeliverable: mpsc::UnboundedReceiver<Vec<ClaimRef>>,
    pool: Arc<Pool>,
    store_id: StoreId,
    waiting: Arc<Waiting>,
) {
    while let Some(claims) = undeliverable.recv().await {
        let resolution = |claim| Resolution {
            claim,
            call: Call::Release,
            outcome: Outcome::GiveBack { due: rdq_spi::Moment::NOW },
            strict: false,
        };
        let resolutions: Arc<[_]> = claims.into_iter().map(resolution).collect();
        let resolved = pool.write("resolve", move |db| {
            let resolutions = Arc::clone(&resolutions);
            async move {
                    holding::resolve(db, store_id, &resolutions.iter().collect::<Vec<_>>()).await
                }
                .boxed()
        });
        match resolved.await {
            Ok(resolved) => {
                for (queue, due_in) in resolved.into_iter().filter_map(|(_, due)| due) {
                    waiting.hint(&queue, due_in);
                }
            }
            // Their leases end.
            Err(error) => tracing::warn!(%error, "claims that nobody took were not given back"),
        }
    }
}
