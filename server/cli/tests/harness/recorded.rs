//! Calls whose history is recorded as they are made, and the judgement on it. A call that failed is
//! not repeated here.

use super::{
    calls::{self, Tasks},
    wire::{
        complete_request, enqueue_of, extend_request, extended, fail_request, granted, of_item,
        of_status, release_request, resolve_of, resolved, status_of, task_id,
    },
};
use bytes::Bytes;
use rdq_compliance::history::{
    Answer, Event, Grant, History, Operation, Outcome, Ticket, Truth, check,
};
use rdq_proto::{time, v1};
use rdq_spi::{Call, ClaimToken, TaskId, TaskStatus};
use std::{collections::HashMap, time::Duration};
use tonic::{Request, Status, Streaming};

/// So many violations are shown, with all that happened to the task.
const SHOWN: usize = 3;
/// A call gives up after this, as the server does. It is against hanging alone: the connection to
/// a server that is killed breaks at once.
const CALL_WITHIN: Duration = Duration::from_secs(60);

/// A claim that somebody holds.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// The task's id.
    pub(crate) id: String,
    /// The claim's token.
    pub(crate) token: Bytes,
    /// The number of this attempt.
    pub(crate) attempt_no: i32,
    /// The task as it was claimed.
    pub(crate) task: v1::Task,
}

impl Held {
    /// What a worker keeps of a claim.
    pub(crate) fn of(claimed: &v1::ClaimedTask) -> Self {
        let task = calls::decode(&claimed.task);
        Self {
            id: task.id.clone(),
            token: claimed.claim_token.clone(),
            attempt_no: claimed.attempt_no,
            task,
        }
    }
}

/// A client whose calls go into a history.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// The plain client.
    pub(crate) tasks: Tasks,
    pub(super) history: History,
    within: Duration,
}

impl Recorded {
    /// Records the calls of this client.
    pub(crate) fn new(tasks: Tasks, history: &History) -> Self {
        Self { tasks, history: history.clone(), within: CALL_WITHIN }
    }

    /// The same, with another deadline for each call, which the server is told.
    pub(crate) fn within(&self, within: Duration) -> Self {
        Self { within, ..self.clone() }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.within);
        request
    }

    /// Admits a task.
    pub(crate) async fn enqueue(&self, task: &v1::Task) -> Result<v1::EnqueueResponse, Status> {
        let ticket = self.history.invoke(enqueue_of(task));
        let answer = self.tasks.clone().enqueue(self.request(calls::enqueue(task))).await;
        conclude(ticket, answer.map(tonic::Response::into_inner), |it| Outcome::Enqueued {
            created: it.created,
        })
    }

    /// Admits tasks, each with its own answer in the history; the results as they came.
    pub(crate) async fn enqueue_batch(
        &self,
        batch: &[v1::Task],
    ) -> Result<Vec<v1::EnqueueResult>, Status> {
        let tickets: Vec<_> =
            batch.iter().map(|task| self.history.invoke(enqueue_of(task))).collect();
        let message = v1::EnqueueBatchRequest { tasks: batch.iter().map(calls::encode).collect() };
        match self.tasks.clone().enqueue_batch(self.request(message)).await {
            Ok(answer) => {
                let results = answer.into_inner().results;
                for (ticket, result) in tickets.into_iter().zip(&results) {
                    ticket.returned(match &result.outcome {
                        Some(v1::enqueue_result::Outcome::Enqueued(it)) => {
                            Answer::Ok(Outcome::Enqueued { created: it.created })
                        }
                        Some(v1::enqueue_result::Outcome::Error(error)) => of_item(error),
                        None => Answer::Unknown,
                    });
                }
                Ok(results)
            }
            Err(status) => {
                for ticket in tickets {
                    ticket.returned(of_status(&status));
                }
                Err(status)
            }
        }
    }

    /// Claims what is due, once.
    pub(crate) async fn claim(&self, message: v1::ClaimDueRequest) -> Result<Vec<Held>, Status> {
        let ticket = self.history.invoke(Operation::Claim);
        let claiming = calls::claim_once(&self.tasks, message);
        // Dropped at the deadline, the ticket says "maybe".
        let answer = tokio::time::timeout(self.within, claiming).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("of the test")));
        let claimed = conclude(ticket, answer, |claimed| granted(claimed))?;
        Ok(claimed.iter().map(Held::of).collect())
    }

    /// Subscribes.
    pub(crate) async fn follow(&self, message: v1::ClaimDueRequest) -> Result<Follow, Status> {
        let ticket = self.history.invoke(Operation::Claim);
        let opening = self.tasks.clone();
        let stream = { opening }.claim_due(message).await?.into_inner();
        Ok(Follow { stream, ticket })
    }

    /// Completes.
    pub(crate) async fn complete(&self, held: &Held) -> Result<v1::CompleteResponse, Status> {
        let message = complete_request(held);
        let ticket = self.resolving(held, Call::Complete);
        let answer = self.tasks.clone().complete(self.request(message)).await;
        conclude(ticket, answer.map(tonic::Response::into_inner), |it| {
            resolved(TaskStatus::Succeeded, None, it.replayed)
        })
    }

    /// Fails, in a way that may be tried again or in one that may not.
    pub(crate) async fn fail(
        &self,
        held: &Held,
        outcome: v1::AttemptOutcome,
    ) -> Result<v1::FailResponse, Status> {
        let message = fail_request(held, outcome);
        let ticket = self.resolving(held, Call::Fail);
        let answer = self.tasks.clone().fail(self.request(message)).await;
        conclude(ticket, answer.map(tonic::Response::into_inner), |it| {
            resolved(status_of(it.status), it.next_attempt_at, it.replayed)
        })
    }

    /// Gives the claim back.
    pub(crate) async fn release(&self, held: &Held) -> Result<v1::ReleaseResponse, Status> {
        let message = release_request(held);
        let ticket = self.resolving(held, Call::Release);
        let answer = self.tasks.clone().release(self.request(message)).await;
        conclude(ticket, answer.map(tonic::Response::into_inner), |it| {
            resolved(TaskStatus::Pending, it.next_attempt_at, it.replayed)
        })
    }

    /// Keeps the claim.
    pub(crate) async fn extend(
        &self,
        held: &Held,
        lease: Duration,
    ) -> Result<v1::ExtendLeaseResponse, Status> {
        let message = extend_request(held, lease);
        let ticket = self.history.invoke(Operation::Extend {
            task: task_id(&held.id),
            token: ClaimToken(held.token.clone()),
            lease,
            strict: false,
        });
        let answer = self.tasks.clone().extend_lease(self.request(message)).await;
        conclude(ticket, answer.map(tonic::Response::into_inner), extended)
    }

    /// Makes every dead letter of a queue pending again; how many there were.
    pub(crate) async fn redrive_all(
        &self,
        queue: &str,
        spread_over: Option<Duration>,
    ) -> Result<i64, Status> {
        let ticket = self.redriving();
        let message = v1::RedriveRequest {
            queue: queue.to_owned(),
            selector: Some(v1::Selector { selection: Some(v1::selector::Selection::All(true)) }),
            spread_over: spread_over.map(time::duration),
            ..v1::RedriveRequest::default()
        };
        let mut stream = self.tasks.clone().redrive(message).await?.into_inner();
        while let Some(message) = stream.message().await? {
            if message.done {
                ticket.returned(Answer::Ok(Outcome::Done));
                return Ok(message.count);
            }
        }
        Err(Status::unknown("the stream ended before it was done"))
    }

    /// Call right before dead letters are redriven in another way than by the method here.
    pub(crate) fn redriving(&self) -> Ticket {
        self.history.invoke(Operation::Redrive { tasks: None })
    }

    /// Claims that a call may have taken without its caller ever learning of them.
    pub(crate) fn maybe_claimed(&self) {
        drop(self.history.invoke(Operation::Claim));
    }

    /// Call right before somebody claims in another way than by the methods here, for instance a
    /// child process. Each of its claims is one more answer.
    pub(crate) fn claiming_elsewhere(&self) -> ClaimsElsewhere {
        ClaimsElsewhere(self.history.invoke(Operation::Claim))
    }

    /// A claim that was learnt of in another way, and that nobody can have taken over yet.
    pub(crate) fn claimed_elsewhere(&self, grants: Vec<Grant>) {
        let answer = Answer::Ok(Outcome::Claimed(grants));
        self.history.invoke(Operation::Claim).returned(answer);
    }

    /// Call right before a claim is resolved in another way than by the methods here.
    pub(crate) fn resolving(&self, held: &Held, call: Call) -> Ticket {
        self.history.invoke(resolve_of(held, call))
    }

    /// Reads what the queues hold, and judges the history by it. Panics if a rule is broken.
    /// Answers how many tasks there are in each status.
    pub(crate) async fn judge(&self, queues: &[&str]) -> HashMap<TaskStatus, usize> {
        let mut truth = Truth::default();
        for queue in queues {
            for task in calls::list(&self.tasks, queue).await.expect("the queue can be listed") {
                truth.states.insert(task_id(&task.id), status_of(task.status));
            }
        }
        let violations = check(&self.history, &truth);
        for violation in violations.iter().take(SHOWN) {
            let events = self.history.events();
            let of_task = events.iter().filter(|event| concerns(event, &violation.task));
            eprintln!("{violation:?}:\n{:#?}", of_task.collect::<Vec<_>>());
        }
        assert!(violations.is_empty(), "{} violations", violations.len());
        let mut counts = HashMap::new();
        for status in truth.states.values() {
            *counts.entry(*status).or_default() += 1;
        }
        counts
    }
}

/// Claims of somebody else. In the end it stands for those that nobody learnt of.
#[derive(Debug)]
pub(crate) struct ClaimsElsewhere(Ticket);

impl ClaimsElsewhere {
    /// These were learnt of.
    pub(crate) fn learnt(&self, grants: Vec<Grant>) {
        self.0.one_more().returned(Answer::Ok(Outcome::Claimed(grants)));
    }
}

/// A subscription that is read.
#[derive(Debug)]
pub(crate) struct Follow {
    stream: Streaming<v1::ClaimDueResponse>,
    /// Of the claims that messages bring. In the end it stands for one that was never read.
    ticket: Ticket,
}

impl Follow {
    /// The claims of the next message; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Held>>, Status> {
        let Some(message) = self.stream.message().await? else { return Ok(None) };
        if !message.tasks.is_empty() {
            self.ticket.one_more().returned(Answer::Ok(granted(&message.tasks)));
        }
        Ok(Some(message.tasks.iter().map(Held::of).collect()))
    }
}

fn conclude<T>(
    ticket: Ticket,
    answer: Result<T, Status>,
    ok: impl FnOnce(&T) -> Outcome,
) -> Result<T, Status> {
    ticket.returned(match &answer {
        Ok(value) => Answer::Ok(ok(value)),
        Err(status) => of_status(status),
    });
    answer
}

fn concerns(event: &Event, id: &TaskId) -> bool {
    match (&event.operation, &event.answer) {
        (Operation::Claim, Answer::Ok(Outcome::Claimed(grants))) => {
            grants.iter().any(|grant| grant.task == *id)
        }
        (
            Operation::Enqueue { task, .. }
            | Operation::Extend { task, .. }
            | Operation::Resolve { task, .. },
            _,
        ) => task == id,
        _ => false,
    }
}
