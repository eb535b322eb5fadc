//! A `Work` stream whose claims and outcomes are recorded.

use super::{
    recorded::{Held, Recorded},
    wire::{
        complete_request, fail_request, granted, of_item, release_request, resolve_of, resolved,
        status_of,
    },
};
use rdq_compliance::history::{Answer, History, Operation, Ticket};
use rdq_proto::{time, v1};
use rdq_spi::Call;
use std::{collections::HashMap, time::Duration};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// How a worker ends a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// It succeeded.
    Complete,
    /// It failed, and may be tried again.
    Fail,
    /// It failed for good.
    FailForGood,
    /// Given back.
    Release,
}

/// What a message of the server brought.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Claims.
    pub(crate) tasks: Vec<Held>,
    /// Outcomes that are durable.
    pub(crate) acknowledged: usize,
    /// The server is about to leave.
    pub(crate) draining: bool,
}

/// One stream. Outcomes whose acknowledgement never came are "maybe" in the history.
#[derive(Debug)]
pub(crate) struct WorkSession {
    up: mpsc::Sender<v1::WorkRequest>,
    down: Streaming<v1::WorkResponse>,
    history: History,
    /// Of the claims that messages bring. In the end it stands for one that was never read.
    ticket: Ticket,
    outcomes: HashMap<i64, Ticket>,
    seq: i64,
}

impl Recorded {
    /// Opens a stream that takes up to so many tasks at once.
    pub(crate) async fn work(
        &self,
        queue: &str,
        lease: Duration,
        credits: i32,
    ) -> Result<WorkSession, Status> {
        let ticket = self.history.invoke(Operation::Claim);
        let (up, requests) = mpsc::channel(64);
        let start = v1::WorkRequest {
            start: Some(v1::WorkStart {
                queues: vec![queue.to_owned()],
                worker_id: "tester".to_owned(),
                lease: Some(time::duration(lease)),
            }),
            credits: Some(credits),
            ..v1::WorkRequest::default()
        };
        // There is room: nobody else sends.
        let _ = up.send(start).await;
        let down = self.tasks.clone().work(ReceiverStream::new(requests)).await?.into_inner();
        let history = self.history.clone();
        Ok(WorkSession { up, down, history, ticket, outcomes: HashMap::new(), seq: 0 })
    }
}

impl WorkSession {
    /// The next message; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<News>, Status> {
        let Some(message) = self.down.message().await? else { return Ok(None) };
        if !message.tasks.is_empty() {
            self.ticket.one_more().returned(Answer::Ok(granted(&message.tasks)));
        }
        for ack in &message.outcome_acks {
            let ticket = self.outcomes.remove(&ack.seq).expect("an outcome is acknowledged once");
            let outcome = ack.result.as_ref().and_then(|result| result.outcome.as_ref());
            ticket.returned(match outcome {
                Some(v1::resolve_result::Outcome::Resolved(it)) => {
                    Answer::Ok(resolved(status_of(it.status), it.next_attempt_at, it.replayed))
                }
                Some(v1::resolve_result::Outcome::Error(error)) => of_item(error),
                None => Answer::Unknown,
            });
        }
        Ok(Some(News {
            tasks: message.tasks.iter().map(Held::of).collect(),
            acknowledged: message.outcome_acks.len(),
            draining: message.draining,
        }))
    }

    /// Ends claims, and asks for so many more.
    pub(crate) async fn send(&mut self, ends: Vec<(Held, End)>, credits: i32) {
        let outcomes = ends
            .into_iter()
            .map(|(held, end)| {
                let (call, resolution) = resolution(&held, end);
                self.seq += 1;
                let ticket = self.history.invoke(resolve_of(&held, call));
                self.outcomes.insert(self.seq, ticket);
                v1::WorkOutcome { seq: self.seq, resolution: Some(resolution) }
            })
            .collect();
        let credits = (credits > 0).then_some(credits);
        let message = v1::WorkRequest { credits, outcomes, ..v1::WorkRequest::default() };
        // If the stream is gone, `next` says so.
        let _ = self.up.send(message).await;
    }

    /// Outcomes that wait for their acknowledgement.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.outcomes.len()
    }
}

fn resolution(held: &Held, end: End) -> (Call, v1::Resolution) {
    use v1::resolution::Call as Wire;
    let retryable = v1::AttemptOutcome::RetryableFailure;
    let permanent = v1::AttemptOutcome::PermanentFailure;
    let (call, wire) = match end {
        End::Complete => (Call::Complete, Wire::Complete(complete_request(held))),
        End::Fail => (Call::Fail, Wire::Fail(fail_request(held, retryable))),
        End::FailForGood => (Call::Fail, Wire::Fail(fail_request(held, permanent))),
        End::Release => (Call::Release, Wire::Release(release_request(held))),
    };
    (call, v1::Resolution { call: Some(wire), decided_fail: false })
}
