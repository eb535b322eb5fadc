//! Pick-up: how long an idle worker waits for a task, from before the producer's call.

use super::{
    lives::{complete, send},
    load::{Measured, micros_since, now, watched},
    place::Place,
};
use crate::{errors::CliError, output};
use rdq_proto::v1::{ClaimedTask, EnqueueRequest, WorkRequest, WorkResponse, WorkStart};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// Between two tasks everything comes to rest.
const REST: Duration = Duration::from_millis(5);

/// Pick-ups before the measurement, in which connections and caches warm up.
const WARM_UP: u64 = 20;

/// Measures `total` pick-ups, one after the other. Producer and worker use two connections.
pub(super) async fn measure(place: &Place, queue: &str, total: u64) -> Result<Measured, CliError> {
    let bar = output::progress("pick-up", Some(total + WARM_UP));
    let finished = AtomicU64::new(0);
    let start = now();
    let latencies =
        watched(pick_ups(place, queue, total + WARM_UP, &finished), &finished, &bar).await;
    bar.finish_and_clear();
    let measured = latencies?.split_off(usize::try_from(WARM_UP).unwrap_or(0));
    Ok(Measured::latency(total, start.elapsed(), measured))
}

async fn pick_ups(
    place: &Place,
    queue: &str,
    total: u64,
    finished: &AtomicU64,
) -> Result<Vec<u32>, CliError> {
    let (outbox, requests) = mpsc::channel(1);
    let worker = WorkStart {
        queues: vec![queue.to_owned()],
        worker_id: "bench".into(),
        ..WorkStart::default()
    };
    let first = WorkRequest { start: Some(worker), credits: Some(1), ..WorkRequest::default() };
    send(&outbox, first).await?;
    let mut stream =
        place.client(0).tasks().work(ReceiverStream::new(requests)).await?.into_inner();
    let mut producer = place.client(1).tasks();
    let task = place.task(queue);
    let mut latencies = Vec::new();
    for _ in 0..total {
        tokio::time::sleep(REST).await;
        let request = EnqueueRequest { task: task.clone() };
        let start = now();
        let pick_up = async {
            let claimed = next_task(&mut stream).await?;
            Ok::<_, CliError>((micros_since(start), claimed))
        };
        let (enqueued, picked_up) = tokio::join!(producer.enqueue(request), pick_up);
        enqueued?;
        let (latency, claimed) = picked_up?;
        latencies.push(latency);
        let outcomes = vec![complete(&claimed)?];
        send(&outbox, WorkRequest { credits: Some(1), outcomes, ..WorkRequest::default() }).await?;
        while message(&mut stream).await?.outcome_acks.is_empty() {}
        finished.fetch_add(1, Relaxed);
    }
    Ok(latencies)
}

async fn next_task(stream: &mut Streaming<WorkResponse>) -> Result<ClaimedTask, CliError> {
    loop {
        if let Some(task) = message(stream).await?.tasks.into_iter().next() {
            return Ok(task);
        }
    }
}

async fn message(stream: &mut Streaming<WorkResponse>) -> Result<WorkResponse, CliError> {
    stream.message().await?.ok_or(CliError::Cut("a Work stream"))
}
