//! Hints of the other server, kept coming: a stream that breaks is opened again, and because hints
//! may have been lost between, every queue is hinted at then.

use crate::{
    client::{Client, in_time},
    errors::Failure,
};
use futures::{StreamExt as _, stream};
use rdq_proto::{time, v1};
use rdq_spi::{DueHint, DueHints, QueueName};
use std::{collections::VecDeque, time::Duration};
use tokio::sync::watch;
use tonic::Streaming;

/// One stream watches at most so many queues, by the contract.
const QUEUES_MAX: usize = 64;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A live server says something every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Hints for these queues, until `closed` turns true. Fails if the first streams cannot be opened.
pub(crate) async fn hints(
    client: &Client,
    queues: &[QueueName],
    closed: &watch::Sender<bool>,
) -> Result<DueHints, Failure> {
    let mut watches = Vec::new();
    for queues in queues.chunks(QUEUES_MAX) {
        let stream = open(client, queues).await?;
        let watch = Watch {
            client: client.clone(),
            queues: queues.to_vec(),
            stream: Some(stream),
            missed: VecDeque::new(),
            backoff: BACKOFF_MIN,
        };
        watches.push(Box::pin(stream::unfold(watch, |mut watch| async move {
            let hint = watch.next().await;
            Some((hint, watch))
        })));
    }
    let mut closed = closed.subscribe();
    let end = async move {
        // An error says that the handle is gone, which ends the hints as well.
        let _ = closed.wait_for(|closed| *closed).await;
    };
    Ok(Box::pin(stream::select_all(watches).take_until(Box::pin(end))))
}

async fn open(
    client: &Client,
    queues: &[QueueName],
) -> Result<Streaming<v1::WaitDueResponse>, Failure> {
    let queues = queues.iter().map(|queue| queue.as_str().to_owned()).collect();
    let mut tasks = client.tasks.clone();
    in_time(async move { Ok(tasks.wait_due(v1::WaitDueRequest { queues }).await?.into_inner()) })
        .await
}

struct Watch {
    client: Client,
    queues: Vec<QueueName>,
    stream: Option<Streaming<v1::WaitDueResponse>>,
    /// Queues to hint at after a gap.
    missed: VecDeque<QueueName>,
    backoff: Duration,
}

impl Watch {
    async fn next(&mut self) -> DueHint {
        loop {
            if let Some(queue) = self.missed.pop_front() {
                return DueHint { queue, due_in: Duration::ZERO };
            }
            let Some(stream) = &mut self.stream else {
                self.reopen().await;
                continue;
            };
            match tokio::time::timeout(SILENCE_MAX, stream.message()).await {
                Ok(Ok(Some(message))) => {
                    self.backoff = BACKOFF_MIN;
                    if !message.queue.is_empty() {
                        return hint(message);
                    }
                }
                // Silence, an end or an error: what came in the meantime is not known.
                _ => self.stream = None,
            }
        }
    }

    async fn reopen(&mut self) {
        // Spread, so that all who lost the server do not come back at once.
        let pause = self.backoff.mul_f64(0.5 + fastrand::f64());
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        tokio::time::sleep(pause).await;
        if let Ok(stream) = open(&self.client, &self.queues).await {
            self.stream = Some(stream);
            self.missed = self.queues.iter().cloned().collect();
        }
    }
}

fn hint(message: v1::WaitDueResponse) -> DueHint {
    let due_in = message.due_in.as_ref().and_then(time::at_least_zero).unwrap_or_default();
    DueHint { queue: QueueName::stored(message.queue), due_in }
}
