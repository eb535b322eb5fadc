//! A storage that admits, claims, keeps and ends tasks by the functions of the schema, as an
//! application would, and leaves to a server what they cannot be told. It knows no table and no
//! function that SCHEMA.md does not name.

use crate::envelope::{self, Arguments};
use async_trait::async_trait;
use bytes::Bytes;
use rdq_postgres::PostgresStorage;
use rdq_spi::{
    Admission, AttemptReport, CLAIM_ATTEMPTS_MAX, Call, Cancelled, Capabilities, Claim,
    ClaimParams, ClaimRef, ClaimToken, Claimed, DlqListParams, DueHints, ExtendParams, Extended,
    ListParams, Moment, NewTask, Outcome, Overrides, Page, PurgeParams, QueueConfig, QueueName,
    QueueRecord, QueueStats, RedriveParams, Resolution, Resolved, Result, Signals, StaleDetail,
    Step, Storage, StorageError, Streams, SweepParams, Swept, Task, TaskId, TaskStatus, Timestamp,
};
use sqlx::{
    AssertSqlSafe, PgPool, Row as _,
    postgres::{PgArguments, PgPoolOptions, PgRow, types::PgInterval},
    query::Query,
};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A claim by SQL is bounded to more bytes than any of the kit's but those about bytes.
const BYTES_ASKED: usize = 3 << 20;

/// How often each function was called, in all cases together.
static CALLS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// How often each function was called; all are named.
pub(crate) fn calls() -> BTreeMap<&'static str, u64> {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for function in [
        "enqueue",
        "claim_due",
        "extend_lease",
        "complete",
        "reschedule",
        "dead_letter",
        "release",
        "publish",
        "notify",
    ] {
        calls.entry(function).or_default();
    }
    calls
}

/// An application with connections of its own, beside a server.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) server: PostgresStorage,
    pub(crate) db: PgPool,
    namespace: String,
    is_closed: AtomicBool,
}

type Statement<'q> = Query<'q, sqlx::Postgres, PgArguments>;

impl Application {
    pub(crate) async fn beside(server: PostgresStorage, url: &str, namespace: &str) -> Self {
        // Its search path is the database's: it names the schema.
        let db = PgPoolOptions::new().max_connections(5).connect(url).await.expect("it connects");
        let (namespace, is_closed) = (namespace.to_owned(), AtomicBool::new(false));
        Self { server, db, namespace, is_closed }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Relaxed) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// A call of a function of the schema.
    pub(crate) fn call<'q>(
        &self,
        function: &'static str,
        select: &str,
        arguments: &str,
    ) -> Statement<'q> {
        *CALLS.lock().unwrap_or_else(PoisonError::into_inner).entry(function).or_default() += 1;
        let namespace = &self.namespace;
        let sql = format!("SELECT {select} FROM {namespace}.{function}({arguments}) AS answer");
        sqlx::query(AssertSqlSafe(sql))
    }

    /// Admits all of them in one transaction of the application's. `None` if one has to go to a server,
    /// or if the transaction fails: nothing was admitted then.
    async fn admit_together(&self, tasks: &[NewTask]) -> Option<Vec<bool>> {
        let said: Vec<_> = tasks.iter().map(Said::of).collect::<Option<_>>()?;
        let tasks = || tasks.iter().zip(&said);
        // The application thinks better of it once, and then means it.
        let mut tx = self.db.begin().await.ok()?;
        for (task, said) in tasks().take(1) {
            self.enqueue(task, said).fetch_one(&mut *tx).await.ok()?;
        }
        tx.rollback().await.ok()?;
        let mut tx = self.db.begin().await.ok()?;
        let mut created = Vec::new();
        for (task, said) in tasks() {
            let row = self.enqueue(task, said).fetch_one(&mut *tx).await.ok()?;
            created.push(row.get("created"));
        }
        tx.commit().await.ok()?;
        Some(created)
    }

    async fn admit_alone(&self, task: NewTask) -> Result<Admission> {
        let Some(said) = Said::of(&task) else {
            return self.server.enqueue(vec![task]).await?.remove(0);
        };
        let row = self.enqueue(&task, &said).fetch_one(&self.db).await;
        let row = row.map_err(|error| refusal(&error, &task.id))?;
        self.admission(&task, row.get("created")).await
    }

    async fn admission(&self, task: &NewTask, created: bool) -> Result<Admission> {
        let status = if created {
            TaskStatus::Pending
        } else {
            self.server.get(task.id.clone()).await?.status
        };
        Ok(Admission { created, status })
    }

    fn enqueue<'q>(&self, task: &'q NewTask, said: &'q Said) -> Statement<'q> {
        let headers = (!said.envelope.headers.is_empty())
            .then(|| serde_json::to_string(&said.envelope.headers).expect("text is JSON"));
        self.call("enqueue", "created", "$1, $2, $3, $4, $5, $6, $7, $8, p_headers => $9::jsonb")
            .bind(task.queue.as_str())
            .bind(task.handler_ref.as_str())
            .bind(&said.envelope.payload)
            .bind(task.id.as_str())
            .bind(task.priority)
            .bind(said.delay)
            .bind(said.expires_in)
            .bind(said.max_attempts)
            .bind(headers)
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claimed> {
        let lease = params.lease.filter(|lease| {
            let is_cut = params.queues.iter().any(|queue| queue.lease_max < *lease);
            !is_cut && params.bytes_max >= BYTES_ASKED
        });
        let Some((lease, interval)) = lease.and_then(|it| Some((it, interval(it)?))) else {
            return self.server.claim_due(vec![params]).await?.remove(0);
        };
        let queues: Vec<_> = params.queues.iter().map(|it| it.queue.as_str().to_owned()).collect();
        let select = "id, claim_token, generation, attempt_count, \
            round(extract(epoch FROM lease_expires_at) * 1000)::bigint AS lease_end";
        let rows = self
            .call("claim_due", select, "$1, $2, $3, $4")
            .bind(queues)
            .bind(params.worker_id.as_str())
            .bind(i32::try_from(params.limit).unwrap_or(i32::MAX))
            .bind(interval)
            .fetch_all(&self.db)
            .await
            .map_err(|error| failure(&error))?;
        let mut claims = Vec::new();
        for row in rows {
            let task = self.server.get(TaskId::stored(row.get::<&str, _>("id"))).await?;
            claims.push(claim_of(&row, task, lease, &params));
        }
        Ok(Claimed { claims, next_due_in: None })
    }

    async fn extend(&self, params: ExtendParams) -> Result<Extended> {
        let lease = interval(params.lease).filter(|_| params.held_max.is_none() && !params.strict);
        let Some(lease) = lease else {
            return self.server.extend_leases(vec![params]).await?.remove(0);
        };
        let select = "round(extract(epoch FROM answer) * 1000)::bigint AS lease_end";
        let row = self
            .call("extend_lease", select, "$1, $2, $3, $4")
            .bind(params.claim.task_id.as_str())
            .bind(&params.claim.token.0[..])
            .bind(lease)
            .bind(params.progress.as_deref())
            .fetch_one(&self.db)
            .await
            .map_err(|error| refusal(&error, &params.claim.task_id))?;
        let lease_expires_at = Timestamp::from_millis(row.get("lease_end"));
        Ok(Extended { lease_expires_at, remaining: params.lease })
    }

    async fn end(&self, resolution: Resolution) -> Result<Resolved> {
        let Some((statement, status)) = self.ended_by_sql(&resolution) else {
            return self.server.resolve(vec![resolution]).await?.remove(0);
        };
        let task_id = &resolution.claim.task_id;
        let row = statement.fetch_one(&self.db).await.map_err(|error| refusal(&error, task_id))?;
        // The functions do not say when the task is due: whoever wants to know reads it.
        let next_attempt_at = match status {
            TaskStatus::Pending => self.server.get(task_id.clone()).await?.next_attempt_at,
            _ => None,
        };
        Ok(Resolved { status, next_attempt_at, replayed: row.get("answer") })
    }

    /// The call that says the same, and how the task stands after it.
    fn ended_by_sql<'q>(&self, resolution: &'q Resolution) -> Option<(Statement<'q>, TaskStatus)> {
        if resolution.strict {
            return None;
        }
        let id = resolution.claim.task_id.as_str();
        let token = &resolution.claim.token.0[..];
        let call =
            |function, arguments| self.call(function, "answer", arguments).bind(id).bind(token);
        match (&resolution.outcome, resolution.call) {
            (Outcome::Succeed { attempt, result, forget: false }, Call::Complete)
                if *attempt == AttemptReport::default() =>
            {
                Some((call("complete", "$1, $2, $3").bind(&result[..]), TaskStatus::Succeeded))
            }
            (Outcome::Retry { attempt, due: Moment::In(delay) }, Call::Reschedule)
                if attempt.extra.is_empty() =>
            {
                let (error, delay) = (attempt.error.as_ref()?, interval(*delay)?);
                let call = call("reschedule", "$1, $2, $3, $4, $5, $6, $7")
                    .bind(delay)
                    .bind(&error.error_type)
                    .bind(&error.message)
                    .bind(&error.detail)
                    .bind(&error.stack);
                Some((call, TaskStatus::Pending))
            }
            (Outcome::Die { attempt }, Call::DeadLetter) if attempt.extra.is_empty() => {
                let error = attempt.error.as_ref()?;
                let call = call("dead_letter", "$1, $2, $3, $4, $5, $6")
                    .bind(&error.error_type)
                    .bind(&error.message)
                    .bind(&error.detail)
                    .bind(&error.stack);
                Some((call, TaskStatus::Dead))
            }
            (Outcome::GiveBack { due: Moment::In(delay) }, Call::Release) => {
                let delay = interval(*delay)?;
                Some((call("release", "$1, $2, $3").bind(delay), TaskStatus::Pending))
            }
            _ => None,
        }
    }
}

/// What `enqueue` is told of a task.
struct Said {
    envelope: Arguments,
    delay: PgInterval,
    expires_in: Option<PgInterval>,
    max_attempts: Option<i32>,
}

impl Said {
    /// `None` if the function cannot be told all of it.
    fn of(task: &NewTask) -> Option<Self> {
        let Moment::In(delay) = task.due else { return None };
        let expires_in = match task.expires {
            None => None,
            Some(Moment::In(expires_in)) => Some(interval(expires_in)?),
            Some(Moment::At(_)) => return None,
        };
        let max_attempts = task.overrides.max_attempts;
        let is_plain = task.created_at.is_none()
            && task.overrides == Overrides { max_attempts, ..Overrides::default() }
            && (task.attempt_count, task.redrive_count, task.lease_expired_count) == (0, 0, 0)
            && task.progress.is_empty()
            && task.attempts.is_empty();
        let envelope = envelope::arguments(task).filter(|_| is_plain)?;
        let max_attempts = max_attempts.map(i32::try_from).transpose().ok()?;
        Some(Self { envelope, delay: interval(delay)?, expires_in, max_attempts })
    }
}

/// The claim in a row, with what the row does not say of its task.
fn claim_of(row: &PgRow, mut task: Task, lease: Duration, params: &ClaimParams) -> Claim {
    let lease_end = Timestamp::from_millis(row.get("lease_end"));
    if task.lease_expires_at != Some(lease_end) {
        // Somebody else was quicker than this reading; what the row says holds of the claim.
        let claimed_at = lease_end.millis() - i64::try_from(lease.as_millis()).expect("a lease");
        task.claimed_at = Some(Timestamp::from_millis(claimed_at));
        task.lease_expires_at = Some(lease_end);
        task.status = TaskStatus::InFlight;
        task.next_attempt_at = None;
        task.claimed_by = Some(params.worker_id.clone());
        let spent = u32::try_from(row.get::<i64, _>("attempt_count")).expect("a count");
        let since = task.attempt_count.saturating_sub(spent);
        task.attempt_count = spent;
        task.last_attempt_no = task.last_attempt_no.saturating_sub(since);
        task.attempts.truncate(task.attempts.len().saturating_sub(since as usize));
    }
    let older = task.attempts.len().saturating_sub(CLAIM_ATTEMPTS_MAX);
    task.attempts.drain(..older);
    for error in task.attempts.iter_mut().filter_map(|attempt| attempt.error.as_mut()) {
        error.detail.clear();
        error.stack.clear();
    }
    let token = ClaimToken(Bytes::copy_from_slice(row.get("claim_token")));
    Claim { task, token, generation: row.get("generation"), lease }
}

/// A duration as SQL has it, if it can be said; rounded up, as it is in the end.
fn interval(duration: Duration) -> Option<PgInterval> {
    let microseconds = i64::try_from(duration.as_nanos().div_ceil(1_000)).ok()?;
    Some(PgInterval { months: 0, days: 0, microseconds })
}

/// A refusal in the words of the storage contract.
fn refusal(error: &sqlx::Error, task_id: &TaskId) -> StorageError {
    let task_id = task_id.clone();
    let Some(told) = error.as_database_error() else { return failure(error) };
    let told = told.downcast_ref::<sqlx::postgres::PgDatabaseError>();
    match told.code() {
        "RDQ01" => {
            let detail = match told.detail() {
                Some("cancelled") => Some(StaleDetail::Cancelled),
                Some("expired") => Some(StaleDetail::Expired),
                _ => None,
            };
            StorageError::StaleClaim { task_id, detail }
        }
        "RDQ02" => StorageError::NotFound { task_id },
        "RDQ03" => StorageError::IdConflict { task_id },
        _ => failure(error),
    }
}

pub(crate) fn failure(error: &sqlx::Error) -> StorageError {
    StorageError::Internal { operation: "sql", source: error.to_string().into() }
}

#[async_trait]
impl Storage for Application {
    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        self.check_open()?;
        let mut answers = Vec::new();
        if let Some(created) = self.admit_together(&tasks).await {
            for (task, created) in tasks.iter().zip(created) {
                answers.push(self.admission(task, created).await);
            }
        } else {
            for task in tasks {
                answers.push(self.admit_alone(task).await);
            }
        }
        Ok(answers)
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        self.check_open()?;
        let mut answers = Vec::new();
        for params in claims {
            answers.push(self.claim(params).await);
        }
        Ok(answers)
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        self.check_open()?;
        let mut answers = Vec::new();
        for params in leases {
            answers.push(self.extend(params).await);
        }
        Ok(answers)
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        self.check_open()?;
        let mut answers = Vec::new();
        for resolution in resolutions {
            answers.push(self.end(resolution).await);
        }
        Ok(answers)
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.db.close().await;
        self.server.close().await;
    }

    // The rest has no function: an application asks a server.

    fn capabilities(&self) -> Capabilities {
        Capabilities { waiting_claims: false, ..self.server.capabilities() }
    }

    fn signals(&self) -> Option<&dyn Signals> {
        Some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    async fn ping(&self) -> Result<()> {
        self.server.ping().await
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        self.server.live_claims(claims).await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        self.server.cancel(tasks).await
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        self.server.get(task).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.server.list(params).await
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        self.server.dlq_list(params).await
    }

    async fn redrive(&self, params: RedriveParams) -> Result<Step> {
        self.server.redrive(params).await
    }

    async fn purge(&self, params: PurgeParams) -> Result<Step> {
        self.server.purge(params).await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.server.stats(queue).await
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        self.server.sweep(params).await
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        self.server.queue_names(after, limit).await
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        self.server.put_queue(queue, config).await
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        self.server.queue_records().await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        self.server.delete_queue(queue).await
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        self.server.shared_secret(name, candidate).await
    }

    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        self.server.wait_due(queues).await
    }
}
