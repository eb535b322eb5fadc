//! Whole lives: batches of tasks in, `Work` streams out, with as few messages as the contract
//! allows.

use super::{
    load::{Measured, now, watched},
    place::{Place, task_id},
};
use crate::{connect::Client, errors::CliError, output};
use bytes::Bytes;
use rdq_proto::v1::{
    ClaimedTask, CompleteRequest, EnqueueBatchRequest, Resolution, WorkOutcome, WorkRequest,
    WorkStart, enqueue_result::Outcome as Enqueued, resolution::Call,
    resolve_result::Outcome as Resolved,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;

const PRODUCERS: u32 = 2;
const BATCH_TASKS: u64 = 500;
const STREAMS: u32 = 4;
/// Open credits of a stream: enough that a batch is always on its way.
const CREDITS: i32 = 1000;
/// The contract's bound of outcomes in a message.
const OUTCOMES_MAX: usize = 1000;
/// Messages of one stream that wait to be sent; more only add latency.
const OUTBOX_MESSAGES: usize = 16;

/// Measures from the first batch to the last acknowledged outcome.
pub(super) async fn measure(place: &Place, queue: &str, total: u64) -> Result<Measured, CliError> {
    let bar = output::progress("whole lives", Some(total));
    let done = Arc::new(AtomicU64::new(0));
    let sent = Arc::new(AtomicU64::new(0));
    let start = now();
    let mut work = JoinSet::new();
    for stream in 0..STREAMS {
        let client = place.client(stream).clone();
        work.spawn(worker(client, queue.to_owned(), stream, done.clone(), total));
    }
    for producer in 0..PRODUCERS {
        let client = place.client(producer).clone();
        work.spawn(produce(client, place.task(queue), sent.clone(), total));
    }
    // Streams stay open until the server ends them, so the count tells the end, not the tasks.
    let all = async {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(1));
        loop {
            tokio::select! {
                Some(joined) = work.join_next() => {
                    joined.map_err(|error| CliError::Malformed(error.to_string()))??;
                }
                _ = ticks.tick() => {}
            }
            if done.load(Relaxed) >= total {
                return Ok(());
            }
        }
    };
    let result = watched(all, &done, &bar).await;
    bar.finish_and_clear();
    result.map(|()| Measured::rate(total, start.elapsed(), Vec::new()))
}

async fn produce(
    client: Client,
    task: Bytes,
    sent: Arc<AtomicU64>,
    total: u64,
) -> Result<(), CliError> {
    let mut service = client.tasks();
    loop {
        let from = sent.fetch_add(BATCH_TASKS, Relaxed);
        if from >= total {
            return Ok(());
        }
        let size = usize::try_from(BATCH_TASKS.min(total - from)).unwrap_or(0);
        let request = EnqueueBatchRequest { tasks: vec![task.clone(); size] };
        let answer = service.enqueue_batch(request).await?.into_inner();
        for result in answer.results {
            match result.outcome {
                Some(Enqueued::Enqueued(_)) => {}
                other => return Err(CliError::Malformed(format!("not enqueued: {other:?}"))),
            }
        }
    }
}

async fn worker(
    client: Client,
    queue: String,
    number: u32,
    done: Arc<AtomicU64>,
    total: u64,
) -> Result<(), CliError> {
    let (outbox, requests) = mpsc::channel(OUTBOX_MESSAGES);
    let start = WorkStart {
        queues: vec![queue],
        worker_id: format!("bench-{number}"),
        ..WorkStart::default()
    };
    let first =
        WorkRequest { start: Some(start), credits: Some(CREDITS), ..WorkRequest::default() };
    send(&outbox, first).await?;
    let mut stream = client.tasks().work(ReceiverStream::new(requests)).await?.into_inner();
    while done.load(Relaxed) < total {
        let Some(response) = stream.message().await? else { break };
        for chunk in response.tasks.chunks(OUTCOMES_MAX) {
            let outcomes = chunk.iter().map(complete).collect::<Result<Vec<_>, _>>()?;
            let credits = i32::try_from(chunk.len()).ok();
            send(&outbox, WorkRequest { credits, outcomes, ..WorkRequest::default() }).await?;
        }
        for ack in &response.outcome_acks {
            match ack.result.as_ref().and_then(|result| result.outcome.as_ref()) {
                Some(Resolved::Resolved(_)) => {}
                other => return Err(CliError::Malformed(format!("not completed: {other:?}"))),
            }
        }
        let acks = u64::try_from(response.outcome_acks.len()).unwrap_or(0);
        done.fetch_add(acks, Relaxed);
    }
    Ok(())
}

/// The outcome of a claim that succeeded.
pub(super) fn complete(claimed: &ClaimedTask) -> Result<WorkOutcome, CliError> {
    let complete = CompleteRequest {
        id: task_id(&claimed.task)?,
        claim_token: claimed.claim_token.clone(),
        ..CompleteRequest::default()
    };
    let resolution = Resolution { call: Some(Call::Complete(complete)), ..Resolution::default() };
    Ok(WorkOutcome { seq: 0, resolution: Some(resolution) })
}

/// Sends a message of a worker; an error where the stream has ended.
pub(super) async fn send(
    outbox: &mpsc::Sender<WorkRequest>,
    message: WorkRequest,
) -> Result<(), CliError> {
    outbox.send(message).await.map_err(|_| CliError::Cut("a Work stream"))
}
