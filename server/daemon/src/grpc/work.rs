//! `Work`: credits, outcomes and heartbeats going up; claims and acknowledgements coming down.

use super::REQUEST_BYTES_MAX;
use crate::{
    convert,
    status::{Refusal, engine_status, of_request_stream},
};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use rdq_engine::{Engine, ExtendRequest, ResolveRequest, WorkEvent, WorkHandle, WorkStart};
use rdq_proto::v1;
use std::{pin::Pin, time::Duration};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, Streaming};

/// A worker that opened the stream says within this what it takes.
const START_WITHIN: Duration = Duration::from_secs(10);
const CREDITS_MAX: i32 = 10_000;
const ITEMS_MAX: usize = 1_000;
/// What this side answers by itself waits here; a worker that does not read is not read either.
const OWN_ANSWERS: usize = 16;

type Answer = Result<v1::WorkResponse, Status>;

/// Serves one worker. The answer begins at once; what the worker takes is read from its first
/// message.
pub(super) fn serve(
    engine: Engine,
    requests: Streaming<v1::WorkRequest>,
) -> Pin<Box<dyn Stream<Item = Answer> + Send>> {
    Box::pin(stream::once(begin(engine, requests)).try_flatten())
}

async fn begin(
    engine: Engine,
    mut requests: Streaming<v1::WorkRequest>,
) -> Result<impl Stream<Item = Answer>, Status> {
    let first = tokio::time::timeout(START_WITHIN, requests.message()).await;
    let missing = || Refusal::invalid("start", "the first message must carry `start`");
    let mut first = first
        .map_err(|_| missing())?
        .map_err(|status| of_request_stream(status, REQUEST_BYTES_MAX))?
        .ok_or_else(missing)?;
    let start = work_start(&first.start.take().ok_or_else(missing)?)?;
    let (handle, events) = engine.work(start).map_err(engine_status)?;
    let (answers, own_answers) = mpsc::channel(OWN_ANSWERS);
    let reader = AbortOnDropHandle::new(tokio::spawn(read(handle, first, requests, answers)));
    let events = events.map(|event| event.map_err(engine_status).and_then(response));
    // The reader lives as long as the answers do.
    Ok(stream::select(events, ReceiverStream::new(own_answers)).inspect(move |_| {
        let _ = &reader;
    }))
}

fn work_start(start: &v1::WorkStart) -> Result<WorkStart, Refusal> {
    Ok(WorkStart {
        queues: convert::queues(&start.queues, 1)?,
        worker_id: convert::worker_id(&start.worker_id)?,
        lease: convert::lease(start.lease.as_ref())?,
    })
}

/// Hands what the worker sends to the engine, until the worker closes its side. A message that
/// breaks the contract ends the stream; an item that does is answered in its acknowledgement.
async fn read(
    handle: WorkHandle,
    first: v1::WorkRequest,
    mut requests: Streaming<v1::WorkRequest>,
    answers: mpsc::Sender<Answer>,
) {
    let mut next = first;
    loop {
        match take(&handle, next).await {
            Ok(None) => {}
            Ok(Some(own)) => {
                if answers.send(Ok(own)).await.is_err() {
                    return;
                }
            }
            Err(refusal) => {
                let _ = answers.send(Err(refusal.into())).await;
                return;
            }
        }
        next = match requests.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(status) => {
                let _ = answers.send(Err(of_request_stream(status, REQUEST_BYTES_MAX))).await;
                return;
            }
        };
        if next.start.is_some() {
            let refusal = Refusal::invalid("start", "only the first message may carry `start`");
            let _ = answers.send(Err(refusal.into())).await;
            return;
        }
    }
}

async fn take(
    handle: &WorkHandle,
    message: v1::WorkRequest,
) -> Result<Option<v1::WorkResponse>, Refusal> {
    let credits = match message.credits {
        None => 0,
        Some(credits @ 1..=CREDITS_MAX) => credits.unsigned_abs(),
        Some(_) => {
            let message = format!("`credits` must be 1 to {CREDITS_MAX}");
            return Err(Refusal::invalid("credits", message));
        }
    };
    if message.outcomes.len() > ITEMS_MAX || message.heartbeats.len() > ITEMS_MAX {
        let message = format!("a message must have at most {ITEMS_MAX} outcomes and heartbeats");
        return Err(Refusal::invalid("outcomes", message));
    }
    let mut own = v1::WorkResponse::default();
    let mut outcomes = Vec::with_capacity(message.outcomes.len());
    for outcome in message.outcomes {
        let seq = outcome.seq;
        match resolve_request(outcome) {
            Ok(request) => outcomes.push((seq, request)),
            Err(refusal) => {
                let result = Some(convert::resolve_result(Err(refusal)));
                own.outcome_acks.push(v1::WorkOutcomeAck { seq, result });
            }
        }
    }
    let mut heartbeats = Vec::with_capacity(message.heartbeats.len());
    for heartbeat in message.heartbeats {
        let seq = heartbeat.seq;
        match extend_request(heartbeat) {
            Ok(request) => heartbeats.push((seq, request)),
            Err(refusal) => {
                let result = Some(convert::extend_result(Err(refusal)));
                own.heartbeat_acks.push(v1::WorkHeartbeatAck { seq, result });
            }
        }
    }
    // Heartbeats first: they are what cannot wait.
    if !heartbeats.is_empty() {
        handle.heartbeats(heartbeats).await;
    }
    if !outcomes.is_empty() {
        handle.outcomes(outcomes).await;
    }
    if credits > 0 {
        handle.credit(credits);
    }
    let has_own = !own.outcome_acks.is_empty() || !own.heartbeat_acks.is_empty();
    Ok(has_own.then_some(own))
}

fn resolve_request(outcome: v1::WorkOutcome) -> Result<ResolveRequest, Refusal> {
    let missing = || Refusal::invalid("resolution", "`resolution` is required");
    convert::resolution(outcome.resolution.ok_or_else(missing)?)
}

fn extend_request(heartbeat: v1::WorkHeartbeat) -> Result<ExtendRequest, Refusal> {
    let missing = || Refusal::invalid("extend", "`extend` is required");
    convert::extend(heartbeat.extend.ok_or_else(missing)?)
}

fn response(event: WorkEvent) -> Answer {
    let outcome_ack = |(seq, result): (i64, Result<_, rdq_engine::EngineError>)| {
        let result = Some(convert::resolve_result(result.map_err(Refusal::Engine)));
        v1::WorkOutcomeAck { seq, result }
    };
    let heartbeat_ack = |(seq, result): (i64, Result<_, rdq_engine::EngineError>)| {
        let result = Some(convert::extend_result(result.map_err(Refusal::Engine)));
        v1::WorkHeartbeatAck { seq, result }
    };
    Ok(v1::WorkResponse {
        tasks: convert::claimed(event.tasks)?,
        outcome_acks: event.outcome_acks.into_iter().map(outcome_ack).collect(),
        heartbeat_acks: event.heartbeat_acks.into_iter().map(heartbeat_ack).collect(),
        lost: event.lost.into_iter().map(convert::lost).collect(),
        draining: event.draining,
    })
}
