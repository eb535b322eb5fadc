//! `TaskService`: its unary calls, and which module serves its streams.

use super::{ANONYMOUS, KeepAlive, claims, work};
use crate::{
    convert,
    limits::deadline,
    status::{Refusal, engine_status},
};
use futures::{Stream, StreamExt as _};
use rdq_engine::{
    DlqListRequest, Engine, EngineError, ListRequest, Progress, PurgeRequest, RedriveRequest,
    ResolveRequest,
};
use rdq_proto::{
    time,
    v1::{self, task_service_server::TaskService},
};
use rdq_spi::Resolved;
use std::pin::Pin;
use tonic::{Request, Response, Status, Streaming};

/// A list has so many entries on a page unless the caller says otherwise.
const PAGE_SIZE: u32 = 50;
const PAGE_SIZE_MAX: u32 = 1_000;
const BATCH_MAX: usize = 1_000;
const LIVE_CLAIMS_MAX: usize = 10_000;

type Reply<T> = Result<Response<T>, Status>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves `TaskService` from an engine.
#[derive(Debug)]
pub(crate) struct Tasks {
    engine: Engine,
    keep_alive: KeepAlive,
}

impl Tasks {
    pub(crate) fn new(engine: Engine, keep_alive: KeepAlive) -> Self {
        Self { engine, keep_alive }
    }

    async fn resolve(&self, request: Result<ResolveRequest, Refusal>) -> Result<Resolved, Status> {
        self.engine.resolve(request?).await.map_err(engine_status)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it is what every method answers")]
fn reply<T>(message: T) -> Reply<T> {
    Ok(Response::new(message))
}

/// The items of a batch; none, or too many, is refused.
fn batch<T>(field: &'static str, items: Vec<T>, max: usize) -> Result<Vec<T>, Refusal> {
    if items.is_empty() || items.len() > max {
        return Err(Refusal::invalid(field, format!("`{field}` must have 1 to {max} items")));
    }
    Ok(items)
}

/// Converts the items of a batch, has the engine do the good ones, and puts all answers in order.
async fn each<I, Q, T, F>(
    items: Vec<I>,
    convert: impl Fn(I) -> Result<Q, Refusal>,
    act: impl FnOnce(Vec<Q>) -> F,
) -> Vec<Result<T, Refusal>>
where
    F: Future<Output = Vec<Result<T, EngineError>>>,
{
    let mut good = Vec::with_capacity(items.len());
    let mut answers: Vec<Option<Refusal>> = Vec::with_capacity(items.len());
    for item in items {
        match convert(item) {
            Ok(request) => {
                good.push(request);
                answers.push(None);
            }
            Err(refusal) => answers.push(Some(refusal)),
        }
    }
    let mut done = if good.is_empty() { Vec::new() } else { act(good).await }.into_iter();
    let answer = |refused: Option<Refusal>| match refused {
        Some(refusal) => Err(refusal),
        None => match done.next() {
            Some(result) => result.map_err(Refusal::Engine),
            None => Err(Refusal::internal(&"an engine's batch answered too few items")),
        },
    };
    answers.into_iter().map(answer).collect()
}

#[tonic::async_trait]
impl TaskService for Tasks {
    type ClaimDueStream = Answers<v1::ClaimDueResponse>;
    type WorkStream = Answers<v1::WorkResponse>;
    type WaitDueStream = Answers<v1::WaitDueResponse>;
    type RedriveStream = Answers<v1::RedriveResponse>;
    type PurgeStream = Answers<v1::PurgeResponse>;

    async fn enqueue(&self, request: Request<v1::EnqueueRequest>) -> Reply<v1::EnqueueResponse> {
        let submission = convert::submission(&request.into_inner().task)?;
        let id = submission.task.id.clone();
        let admission = self.engine.enqueue(submission).await.map_err(engine_status)?;
        reply(convert::enqueue_response(id, admission))
    }

    async fn enqueue_batch(
        &self,
        request: Request<v1::EnqueueBatchRequest>,
    ) -> Reply<v1::EnqueueBatchResponse> {
        let tasks = batch("tasks", request.into_inner().tasks, BATCH_MAX)?;
        let results = each(
            tasks,
            |task| convert::submission(&task),
            |submissions| async {
                let ids: Vec<_> = submissions.iter().map(|each| each.task.id.clone()).collect();
                let admissions = self.engine.enqueue_batch(submissions).await;
                ids.into_iter()
                    .zip(admissions)
                    .map(|(id, admission)| Ok((id, admission?)))
                    .collect()
            },
        );
        let results = results.await.into_iter().map(convert::enqueue_result).collect();
        reply(v1::EnqueueBatchResponse { results })
    }

    async fn claim_due(
        &self,
        request: Request<v1::ClaimDueRequest>,
    ) -> Reply<Self::ClaimDueStream> {
        // One claim is a call like any other, although its answer is a stream.
        let within = deadline(request.metadata().as_ref());
        let request = request.into_inner();
        if request.follow {
            return Ok(Response::new(claims::follow(&self.engine, &request)?));
        }
        let answer = tokio::time::timeout(within, claims::once(&self.engine, &request)).await;
        Ok(Response::new(answer.map_err(|_| Refusal::DeadlineExceeded)??))
    }

    async fn work(&self, request: Request<Streaming<v1::WorkRequest>>) -> Reply<Self::WorkStream> {
        Ok(Response::new(work::serve(self.engine.clone(), request.into_inner())))
    }

    async fn wait_due(&self, request: Request<v1::WaitDueRequest>) -> Reply<Self::WaitDueStream> {
        let queues = convert::queues(&request.into_inner().queues, 1)?;
        let hints = self.engine.wait_due(queues).await.map_err(engine_status)?;
        Ok(Response::new(claims::hints(hints, self.keep_alive)))
    }

    async fn extend_lease(
        &self,
        request: Request<v1::ExtendLeaseRequest>,
    ) -> Reply<v1::ExtendLeaseResponse> {
        let request = convert::extend(request.into_inner())?;
        let extended = self.engine.extend(request).await.map_err(engine_status)?;
        reply(convert::extend_response(extended))
    }

    async fn extend_leases(
        &self,
        request: Request<v1::ExtendLeasesRequest>,
    ) -> Reply<v1::ExtendLeasesResponse> {
        let leases = batch("leases", request.into_inner().leases, BATCH_MAX)?;
        let results =
            each(leases, convert::extend, |leases| self.engine.extend_batch(leases)).await;
        let results = results.into_iter().map(convert::extend_result).collect();
        reply(v1::ExtendLeasesResponse { results })
    }

    async fn complete(&self, request: Request<v1::CompleteRequest>) -> Reply<v1::CompleteResponse> {
        let resolved = self.resolve(convert::resolve_complete(request.into_inner())).await?;
        reply(v1::CompleteResponse { replayed: resolved.replayed })
    }

    async fn reschedule(
        &self,
        request: Request<v1::RescheduleRequest>,
    ) -> Reply<v1::RescheduleResponse> {
        let resolved = self.resolve(convert::resolve_reschedule(request.into_inner())).await?;
        let next_attempt_at = resolved.next_attempt_at.map(|at| time::timestamp(at.millis()));
        reply(v1::RescheduleResponse { next_attempt_at, replayed: resolved.replayed })
    }

    async fn dead_letter(
        &self,
        request: Request<v1::DeadLetterRequest>,
    ) -> Reply<v1::DeadLetterResponse> {
        let resolved = self.resolve(convert::resolve_dead_letter(request.into_inner())).await?;
        reply(v1::DeadLetterResponse { replayed: resolved.replayed })
    }

    async fn fail(&self, request: Request<v1::FailRequest>) -> Reply<v1::FailResponse> {
        let resolved = self.resolve(convert::resolve_fail(request.into_inner())).await?;
        reply(v1::FailResponse {
            status: convert::status(resolved.status).into(),
            next_attempt_at: resolved.next_attempt_at.map(|at| time::timestamp(at.millis())),
            replayed: resolved.replayed,
        })
    }

    async fn release(&self, request: Request<v1::ReleaseRequest>) -> Reply<v1::ReleaseResponse> {
        let resolved = self.resolve(convert::resolve_release(request.into_inner())).await?;
        let next_attempt_at = resolved.next_attempt_at.map(|at| time::timestamp(at.millis()));
        reply(v1::ReleaseResponse { next_attempt_at, replayed: resolved.replayed })
    }

    async fn resolve_batch(
        &self,
        request: Request<v1::ResolveBatchRequest>,
    ) -> Reply<v1::ResolveBatchResponse> {
        let resolutions = batch("resolutions", request.into_inner().resolutions, BATCH_MAX)?;
        let results = each(resolutions, convert::resolution, |resolutions| {
            self.engine.resolve_batch(resolutions)
        });
        let results = results.await.into_iter().map(convert::resolve_result).collect();
        reply(v1::ResolveBatchResponse { results })
    }

    async fn live_claims(
        &self,
        request: Request<v1::LiveClaimsRequest>,
    ) -> Reply<v1::LiveClaimsResponse> {
        let claims = batch("claims", request.into_inner().claims, LIVE_CLAIMS_MAX)?;
        let claims = claims.into_iter().map(convert::live_claim).collect::<Result<_, _>>()?;
        let live = self.engine.live_claims(claims).await.map_err(engine_status)?;
        let entry = |remaining: Option<std::time::Duration>| v1::LiveClaim {
            live: remaining.is_some(),
            lease_remaining: remaining.map(time::duration),
        };
        reply(v1::LiveClaimsResponse { claims: live.into_iter().map(entry).collect() })
    }

    async fn cancel(&self, request: Request<v1::CancelRequest>) -> Reply<v1::CancelResponse> {
        let id = convert::task_id(&request.into_inner().id)?;
        let cancelled = self.engine.cancel(id).await.map_err(engine_status)?;
        reply(v1::CancelResponse {
            status: convert::status(cancelled.status).into(),
            cancelled: cancelled.changed,
        })
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Reply<v1::GetResponse> {
        let id = convert::task_id(&request.into_inner().id)?;
        let task = self.engine.get(id).await.map_err(engine_status)?;
        reply(v1::GetResponse { task: convert::task_bytes(task)? })
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Reply<v1::ListResponse> {
        let request = request.into_inner();
        let page = self.engine.list(ListRequest {
            queue: convert::name("queue", &request.queue)?,
            status: convert::status_filter(request.status)?,
            page_size: convert::extent(request.page_size, PAGE_SIZE, PAGE_SIZE_MAX),
            page_token: request.page_token,
            include_attempts: request.include_attempts,
            subject: ANONYMOUS.to_owned(),
        });
        let page = page.await.map_err(engine_status)?;
        let tasks = page.tasks.into_iter().map(convert::task_bytes).collect::<Result<_, _>>()?;
        reply(v1::ListResponse { tasks, next_page_token: page.next_page_token })
    }

    async fn dlq_list(&self, request: Request<v1::DlqListRequest>) -> Reply<v1::DlqListResponse> {
        let request = request.into_inner();
        let page = self.engine.dlq_list(DlqListRequest {
            queue: convert::name("queue", &request.queue)?,
            filter: convert::dlq_filter(request.filter)?,
            page_size: convert::extent(request.page_size, PAGE_SIZE, PAGE_SIZE_MAX),
            page_token: request.page_token,
            include_attempts: request.include_attempts,
            subject: ANONYMOUS.to_owned(),
        });
        let page = page.await.map_err(engine_status)?;
        let tasks = page.tasks.into_iter().map(convert::task_bytes).collect::<Result<_, _>>()?;
        reply(v1::DlqListResponse { tasks, next_page_token: page.next_page_token })
    }

    async fn redrive(&self, request: Request<v1::RedriveRequest>) -> Reply<Self::RedriveStream> {
        let request = request.into_inner();
        let progress = self.engine.redrive(RedriveRequest {
            queue: convert::name("queue", &request.queue)?,
            selection: convert::selection(request.selector)?,
            dry_run: request.dry_run,
            pace: convert::pace(request.spread_over.as_ref(), request.rate_per_second)?,
            subject: ANONYMOUS.to_owned(),
        });
        let progress = progress.map_err(engine_status)?;
        let answers = running_count(progress, |count, done| v1::RedriveResponse { count, done });
        Ok(Response::new(answers))
    }

    async fn purge(&self, request: Request<v1::PurgeRequest>) -> Reply<Self::PurgeStream> {
        let request = request.into_inner();
        let progress = self.engine.purge(PurgeRequest {
            queue: convert::name("queue", &request.queue)?,
            selection: convert::selection(request.selector)?,
            dry_run: request.dry_run,
            subject: ANONYMOUS.to_owned(),
        });
        let progress = progress.map_err(engine_status)?;
        let answers = running_count(progress, |count, done| v1::PurgeResponse { count, done });
        Ok(Response::new(answers))
    }

    async fn stats(&self, request: Request<v1::StatsRequest>) -> Reply<v1::StatsResponse> {
        let queues = convert::queues(&request.into_inner().queues, 0)?;
        let stats = self.engine.stats(queues).await.map_err(engine_status)?;
        reply(v1::StatsResponse { queues: stats.into_iter().map(convert::stats).collect() })
    }

    async fn purge_succeeded(
        &self,
        request: Request<v1::PurgeSucceededRequest>,
    ) -> Reply<v1::PurgeSucceededResponse> {
        let request = request.into_inner();
        let queue = convert::name("queue", &request.queue)?;
        let older_than = convert::required_instant("older_than", request.older_than.as_ref())?;
        let purged = self.engine.purge_succeeded(queue, older_than).await;
        let (purged, more) = purged.map_err(engine_status)?;
        reply(v1::PurgeSucceededResponse { purged: convert::count(purged), more })
    }

    async fn sweep_expired(
        &self,
        request: Request<v1::SweepExpiredRequest>,
    ) -> Reply<v1::SweepExpiredResponse> {
        let queue = convert::name("queue", &request.into_inner().queue)?;
        let swept = self.engine.sweep_expired(queue).await.map_err(engine_status)?;
        reply(v1::SweepExpiredResponse {
            expired: convert::count(swept.expired),
            removed: convert::count(swept.removed),
            more: swept.more,
        })
    }

    async fn get_capabilities(
        &self,
        _: Request<v1::GetCapabilitiesRequest>,
    ) -> Reply<v1::GetCapabilitiesResponse> {
        let mut answer = convert::capabilities(self.engine.capabilities());
        if self.engine.has_schedules() {
            answer.capabilities.push("schedules".to_owned());
        }
        reply(answer)
    }
}

/// The running count of a long operation, and a last message that says it is done.
fn running_count<T: Send + 'static>(
    progress: Progress,
    message: impl Fn(i64, bool) -> T + Send + 'static,
) -> Answers<T> {
    let state = (progress, message, 0_i64, false);
    Box::pin(futures::stream::unfold(state, |(mut progress, message, last, over)| async move {
        if over {
            return None;
        }
        let (item, last, over) = match progress.next().await {
            Some(Ok(count)) => {
                let count = convert::count(count);
                (Ok(message(count, false)), count, false)
            }
            Some(Err(error)) => (Err(engine_status(error)), last, true),
            None => (Ok(message(last, true)), last, true),
        };
        Some((item, (progress, message, last, over)))
    }))
}
