//! The memory plugin's calls, with the mistake on their way in or out.

use super::{Fault, memo::Memo};
use async_trait::async_trait;
use futures::StreamExt as _;
use rdq_spi::{
    Admission, Age, AttemptOutcome, AttemptReport, Awaited, Cancelled, Capabilities, ClaimParams,
    ClaimRef, Claimed, DeadRetention, DlqListParams, DueHints, Durability, ExtendParams, Extended,
    Ledger, ListParams, Locks, Moment, NewTask, Outcome, Page, PurgeParams, QueueConfig, QueueName,
    QueueRecord, QueueStats, Records, RedriveParams, Resolution, Resolved, Result, Selection,
    Signals, Step, Storage, StorageError, Streams, SweepParams, Swept, Task, TaskId, TaskStatus,
    Timestamp, Transactions,
};
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) store: Arc<dyn Storage>,
    pub(super) fault: Fault,
    pub(super) memo: Arc<Mutex<Memo>>,
}

impl Faulty {
    pub(super) fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    pub(super) fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().expect("no panic while it is held")
    }

    /// A queue's name as the storage understands it.
    fn name(&self, queue: &QueueName) -> QueueName {
        match self.fault {
            Fault::NamesFolded => QueueName::stored(queue.as_str().to_lowercase()),
            Fault::NamesTrimmed => QueueName::stored(queue.as_str().trim()),
            _ => queue.clone(),
        }
    }

    fn instant(&self, instant: Timestamp) -> Timestamp {
        let millis = instant.millis();
        let millis = if self.is(Fault::SecondsOnly) { millis - millis % 1_000 } else { millis };
        Timestamp::from_millis(millis)
    }

    /// A task as the storage shows it.
    fn show(&self, mut task: Task) -> Task {
        match self.fault {
            Fault::LapseNotRecorded => {
                task.attempts.retain(|it| it.outcome != Some(AttemptOutcome::LeaseExpired));
            }
            Fault::LapseNotCounted => task.lease_expired_count = 0,
            Fault::RedriveKeepsTheCount if task.redrive_count > 0 => {
                task.attempt_count = task.last_attempt_no;
            }
            Fault::RedriveDropsTheHistory if task.redrive_count > 0 => task.attempts.clear(),
            Fault::EnqueueOverwrites => {
                if let Some(envelope) = self.memo().envelopes.get(&task.id) {
                    task.envelope.clone_from(envelope);
                }
            }
            Fault::NewestTextShedFirst => {
                if let Some(error) = task.attempts.last_mut().and_then(|it| it.error.as_mut()) {
                    error.stack.clear();
                }
            }
            Fault::SecondsOnly => {
                task.created_at = self.instant(task.created_at);
                task.next_attempt_at = task.next_attempt_at.map(|at| self.instant(at));
                task.expires_at = task.expires_at.map(|at| self.instant(at));
            }
            _ => {}
        }
        task
    }

    fn error(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::NotFound { task_id } if self.is(Fault::MissingIsStale) => {
                StorageError::StaleClaim { task_id, detail: None }
            }
            StorageError::StaleClaim { task_id, .. } if self.is(Fault::DetailLost) => {
                StorageError::StaleClaim { task_id, detail: None }
            }
            error => error,
        }
    }

    fn store(&self, mut task: NewTask) -> NewTask {
        task.queue = self.name(&task.queue);
        match self.fault {
            Fault::PriorityIgnored => task.priority = 0,
            Fault::DueTimeIgnored => task.due = Moment::NOW,
            Fault::OwnRetentionIgnored => task.overrides.retention_dead = None,
            Fault::EnvelopesAsText => {
                task.envelope = String::from_utf8_lossy(&task.envelope).into_owned().into();
            }
            Fault::UnknownFieldsLost => {
                let first = [0xc0, 0xb8, 0x02]; // The key of field 5000.
                if let Some(at) = task.envelope.windows(3).position(|it| it == first) {
                    task.envelope.truncate(at);
                }
            }
            Fault::CarriedOverDropped => {
                (task.attempts, task.attempt_count) = (Vec::new(), 0);
            }
            _ => {}
        }
        task
    }

    fn admission(&self, task: &NewTask, answer: Result<Admission>) -> Result<Admission> {
        let pending = |created| Ok(Admission { created, status: TaskStatus::Pending });
        let mut memo = self.memo();
        match (self.fault, answer) {
            (Fault::ConflictIgnored, Err(StorageError::IdConflict { .. })) => pending(false),
            (Fault::EveryAdmissionCreates, Ok(_)) => pending(true),
            (_, answer) => {
                if answer.as_ref().is_ok_and(|it| !it.created) {
                    memo.envelopes.insert(task.id.clone(), task.envelope.clone());
                } else if let Some(claim) = memo.newest.get(&task.id) {
                    let last = claim.generation;
                    memo.generations.insert(task.id.clone(), last);
                }
                answer
            }
        }
    }

    async fn claimed(&self, mut claimed: Claimed) -> Result<Claimed> {
        if self.is(Fault::ClaimsCarryEverything) {
            for claim in &mut claimed.claims {
                claim.task.attempts = self.store.get(claim.task.id.clone()).await?.attempts;
            }
        }
        let mut memo = self.memo();
        for claim in &mut claimed.claims {
            memo.newest.insert(claim.task.id.clone(), claim.clone());
            if self.is(Fault::GenerationsRestart) {
                let before = memo.generations.get(&claim.task.id).copied().unwrap_or(0);
                claim.generation -= before;
            }
        }
        match self.fault {
            Fault::NewestFirst => claimed.claims.reverse(),
            Fault::LiveClaimsHandedOut if claimed.claims.is_empty() => {
                claimed.claims.clone_from(&memo.last_claims);
            }
            Fault::ClaimsRepeatNowAndThen if !claimed.claims.is_empty() && memo.is_one_in(7) => {
                claimed.claims.extend(memo.last_claims.clone());
            }
            _ => {}
        }
        if !claimed.claims.is_empty() {
            memo.last_claims.clone_from(&claimed.claims);
        }
        drop(memo);
        claimed.claims = claimed
            .claims
            .into_iter()
            .map(|claim| rdq_spi::Claim { task: self.show(claim.task.clone()), ..claim })
            .collect();
        Ok(claimed)
    }

    /// A resolution as the storage understands it.
    fn asked(&self, resolution: &Resolution) -> Resolution {
        let mut asked = resolution.clone();
        match self.fault {
            Fault::AnyTokenWillDo => asked.claim.token = self.memo().newest_token(&asked.claim),
            Fault::StrictIgnored => asked.strict = false,
            Fault::AlwaysStrict => asked.strict = true,
            Fault::ReleaseSpends => {
                if let Outcome::GiveBack { due } = asked.outcome {
                    asked.outcome = Outcome::Retry { attempt: AttemptReport::default(), due };
                }
            }
            Fault::AttemptExtrasLost => match &mut asked.outcome {
                Outcome::Succeed { attempt, .. }
                | Outcome::Retry { attempt, .. }
                | Outcome::Die { attempt } => attempt.extra.clear(),
                Outcome::GiveBack { .. } => {}
            },
            _ => {}
        }
        asked
    }

    fn resolved(&self, asked: &Resolution, answer: Result<Resolved>) -> Result<Resolved> {
        let mut memo = self.memo();
        let key = Memo::key(&asked.claim);
        let before = memo.spent.get(&key).copied();
        let answer = answer.map_err(|error| self.error(error));
        match (self.fault, answer, before) {
            (Fault::ReplaysForgotten, Ok(Resolved { replayed: true, .. }), _) => {
                let task_id = asked.claim.task_id.clone();
                Err(StorageError::StaleClaim { task_id, detail: None })
            }
            (Fault::AnyCallReplays, Err(_), Some((_, first))) => {
                Ok(Resolved { replayed: true, ..first })
            }
            (Fault::ReplaysOutliveTheClaim, Err(_), Some((call, first))) if call == asked.call => {
                Ok(Resolved { replayed: true, ..first })
            }
            (Fault::FailDecidesAgain, Ok(resolved), Some(_)) if resolved.replayed => {
                let dies = matches!(asked.outcome, Outcome::Die { .. });
                let status = if dies { TaskStatus::Dead } else { TaskStatus::Pending };
                Ok(Resolved { status, ..resolved })
            }
            (_, answer, _) => {
                if let Ok(resolved) = &answer {
                    memo.spent.entry(key).or_insert((asked.call, *resolved));
                }
                answer
            }
        }
    }

    /// A page with the mistake in it, and the memory of its edge.
    fn page(&self, mut page: Page, first: bool, newest: Option<Task>) -> Page {
        let mut memo = self.memo();
        let edge = memo.edge.take().filter(|_| !first);
        let last = page.tasks.last().cloned().or(edge.clone());
        match (self.fault, edge) {
            (Fault::PageSkipsEqualInstants, Some(edge)) => {
                page.tasks.retain(|task| task.finished_at != edge.finished_at);
            }
            (Fault::PageRepeatsItsEdge, Some(edge)) => {
                page.tasks.pop();
                page.tasks.insert(0, edge);
            }
            (Fault::PageAdmitsNewer, Some(_)) => {
                page.tasks.pop();
                page.tasks.extend(newest);
            }
            _ => {}
        }
        memo.edge = last;
        drop(memo);
        page.tasks = page.tasks.into_iter().map(|task| self.show(task)).collect();
        page
    }

    fn selection(&self, selection: Selection) -> Selection {
        if self.is(Fault::IdsMeanAll) { Selection::All } else { selection }
    }

    fn limit(&self, limit: u32) -> u32 {
        if self.is(Fault::StepsUnbounded) { 10_000 } else { limit }
    }
}

#[async_trait]
impl Storage for Faulty {
    fn capabilities(&self) -> Capabilities {
        let honest = self.store.capabilities();
        if self.is(Fault::DurabilityOverstated) {
            return Capabilities { durability: Durability::PowerCut, ..honest };
        }
        honest
    }

    async fn ping(&self) -> Result<()> {
        self.store.ping().await
    }

    async fn close(&self) {
        if !self.is(Fault::CloseIgnored) {
            self.store.close().await;
        }
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        if self.is(Fault::SomeAdmissionsLost) && self.memo().is_one_in(10) {
            let pending = Admission { created: true, status: TaskStatus::Pending };
            return Ok(tasks.iter().map(|_| Ok(pending)).collect());
        }
        let stored = tasks.iter().cloned().map(|task| self.store(task)).collect();
        let answers = self.store.enqueue(stored).await?;
        let answers = tasks.iter().zip(answers);
        Ok(answers.map(|(task, answer)| self.admission(task, answer)).collect())
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        let mut answers = Vec::new();
        for mut params in claims {
            for queue in &mut params.queues {
                queue.queue = self.name(&queue.queue);
            }
            match self.fault {
                Fault::LimitIgnored => params.limit = 1_000,
                Fault::BytesIgnored => params.bytes_max = usize::MAX,
                _ => {}
            }
            if self.is(Fault::QueuesStarve) {
                for queue in params.queues.clone() {
                    let stats = self.store.stats(queue.queue.clone()).await?;
                    if stats.ready > 0 {
                        params.queues = vec![queue];
                        break;
                    }
                }
            }
            let answer = self.store.claim_due(vec![params]).await?.remove(0);
            answers.push(match answer {
                Ok(claimed) => self.claimed(claimed).await,
                Err(error) => Err(error),
            });
        }
        Ok(answers)
    }

    async fn claim_when_due(
        &self,
        claims: Vec<ClaimParams>,
        enough: CancellationToken,
    ) -> Result<Awaited> {
        match self.fault {
            Fault::WaitersComeTooSoon => {
                Ok(Awaited { claims: self.claim_due(claims).await?, waited: Duration::ZERO })
            }
            Fault::WaitersStayBehind => {
                let store = self.store.clone();
                let wait =
                    async move { store.claim_when_due(claims, CancellationToken::new()).await };
                tokio::select! {
                    answer = tokio::spawn(wait) => answer.expect("it does not panic"),
                    () = enough.cancelled() => Ok(Awaited::default()),
                }
            }
            _ => self.store.claim_when_due(claims, enough).await,
        }
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        let mut asked = leases;
        for params in &mut asked {
            match self.fault {
                Fault::AnyTokenWillDo => {
                    params.claim.token = self.memo().newest_token(&params.claim);
                }
                Fault::StrictIgnored => params.strict = false,
                Fault::AlwaysStrict => params.strict = true,
                Fault::LeasesOnlyGrow => params.lease = params.lease.max(Duration::from_secs(3600)),
                Fault::HeldMaxIgnored => params.held_max = None,
                Fault::UnsetClearsProgress => {
                    params.progress = Some(params.progress.take().unwrap_or_default());
                }
                _ => {}
            }
        }
        let answers = self.store.extend_leases(asked).await?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| self.error(error))).collect())
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        let asked = resolutions.iter().map(|resolution| self.asked(resolution)).collect();
        let answers = self.store.resolve(asked).await?;
        let answers = resolutions.iter().zip(answers);
        Ok(answers.map(|(asked, answer)| self.resolved(asked, answer)).collect())
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        if self.is(Fault::EveryClaimIsLive) {
            return Ok(claims.iter().map(|_| Some(Duration::from_secs(3600))).collect());
        }
        self.store.live_claims(claims).await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        if self.is(Fault::CancelOnlyAnswers) {
            let done = Cancelled { status: TaskStatus::Cancelled, changed: true };
            return Ok(tasks.iter().map(|_| Ok(done)).collect());
        }
        let answers = self.store.cancel(tasks).await?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| self.error(error))).collect())
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        let task = self.store.get(task).await.map_err(|error| self.error(error))?;
        Ok(self.show(task))
    }

    async fn list(&self, mut params: ListParams) -> Result<Page> {
        params.queue = self.name(&params.queue);
        if self.is(Fault::BytesIgnored) {
            params.bytes_max = usize::MAX;
        }
        let first = params.position.is_none();
        match self.store.list(params.clone()).await {
            Err(StorageError::InvalidPosition) if self.is(Fault::AnyPositionWillDo) => {
                self.store.list(ListParams { position: None, ..params }).await
            }
            answer => answer.map(|page| self.page(page, first, None)),
        }
    }

    async fn dlq_list(&self, mut params: DlqListParams) -> Result<Page> {
        params.queue = self.name(&params.queue);
        let first = params.position.is_none();
        let mut prefix = None;
        match self.fault {
            Fault::BytesIgnored => params.bytes_max = usize::MAX,
            Fault::FiltersAsPrefixes => prefix = params.filter.error_type.take(),
            _ => {}
        }
        let newest = DlqListParams { position: None, limit: 1, ..params.clone() };
        let newest = self.store.dlq_list(newest).await?.tasks.pop();
        let mut page = match self.store.dlq_list(params.clone()).await {
            Err(StorageError::InvalidPosition) if self.is(Fault::AnyPositionWillDo) => {
                self.store.dlq_list(DlqListParams { position: None, ..params }).await?
            }
            answer => answer?,
        };
        if let Some(prefix) = prefix {
            page.tasks.retain(|task| {
                let error = task.attempts.last().and_then(|it| it.error.as_ref());
                error.is_some_and(|error| error.error_type.starts_with(&prefix))
            });
        }
        Ok(self.page(page, first, newest))
    }

    async fn redrive(&self, mut params: RedriveParams) -> Result<Step> {
        params.queue = self.name(&params.queue);
        params.selection = self.selection(params.selection);
        params.limit = self.limit(params.limit);
        match self.fault {
            Fault::DryRunActs => params.dry_run = false,
            Fault::RedriveStartsOver => params.position = None,
            _ => {}
        }
        self.store.redrive(params).await
    }

    async fn purge(&self, mut params: PurgeParams) -> Result<Step> {
        params.queue = self.name(&params.queue);
        params.selection = self.selection(params.selection);
        params.limit = self.limit(params.limit);
        params.dry_run &= !self.is(Fault::DryRunActs);
        self.store.purge(params).await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        let mut stats = self.store.stats(self.name(&queue)).await?;
        match self.fault {
            Fault::LapsedCountedApart => stats.in_flight -= stats.lapsed,
            Fault::OneTooManyReady => stats.ready += 1,
            _ => {}
        }
        Ok(stats)
    }

    async fn sweep(&self, mut params: SweepParams) -> Result<Swept> {
        params.limit = self.limit(params.limit);
        if self.is(Fault::SweptTooEarly) {
            let any = |age: Option<Age>| age.map(|_| Age::LongerThan(Duration::ZERO));
            params.succeeded_older_than = any(params.succeeded_older_than);
            params.cancelled_older_than = any(params.cancelled_older_than);
            let any = |_| DeadRetention { queue: Some(Duration::ZERO) };
            params.dead = params.dead.map(any);
        }
        self.store.sweep(params).await
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        self.store.queue_names(after, limit).await
    }

    async fn put_queue(&self, queue: QueueName, mut config: QueueConfig) -> Result<QueueRecord> {
        if self.is(Fault::ConfigurationMerged) {
            let records = self.store.queue_records().await?;
            let old = records.into_iter().find(|record| record.queue == queue);
            config.paused = config.paused.or(old.and_then(|record| record.config.paused));
        }
        self.store.put_queue(queue, config).await
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        self.store.queue_records().await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        match self.store.delete_queue(queue).await {
            Err(StorageError::QueueNotEmpty { .. }) if self.is(Fault::FullQueuesDeleted) => {
                Ok(true)
            }
            answer => answer,
        }
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        if self.is(Fault::OwnSecrets) {
            return Ok(candidate);
        }
        self.store.shared_secret(name, candidate).await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.store.now().await
    }

    fn signals(&self) -> Option<&dyn Signals> {
        if self.is(Fault::SignalsOverstated) { None } else { Some(self) }
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
        let hints = self.store.wait_due(queues).await?;
        if self.is(Fault::HintsLost) {
            return Ok(hints.filter(|_| futures::future::ready(false)).boxed());
        }
        Ok(hints)
    }
}
