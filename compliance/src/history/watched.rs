//! A storage that records what goes through it. It changes nothing.

use super::{Answer, Grant, History, Operation, Outcome, Ticket};
use async_trait::async_trait;
use rdq_spi::{
    Admission, Cancelled, Capabilities, ClaimParams, ClaimRef, Claimed, DlqListParams, DueHints,
    ExtendParams, Extended, ListParams, Moment, NewTask, Page, PurgeParams, QueueConfig, QueueName,
    QueueRecord, QueueStats, RedriveParams, Resolution, Resolved, Result, Selection, Step, Storage,
    StorageError, SweepParams, Swept, Task, TaskId,
};
use std::{sync::Arc, time::Duration};

/// See [`History::watch`].
#[derive(Debug)]
pub(super) struct Watched {
    store: Arc<dyn Storage>,
    history: History,
}

impl Watched {
    pub(super) fn new(store: Arc<dyn Storage>, history: History) -> Self {
        Self { store, history }
    }

    fn invoke_all(&self, operations: impl Iterator<Item = Operation>) -> Vec<Ticket> {
        operations.map(|operation| self.history.invoke(operation)).collect()
    }
}

/// Tells each ticket of a batch its answer.
fn return_all<T>(
    tickets: Vec<Ticket>,
    answers: &Result<Vec<Result<T>>>,
    ok: impl Fn(&T) -> Outcome,
) {
    match answers {
        Ok(answers) => {
            for (ticket, answer) in tickets.into_iter().zip(answers) {
                ticket.returned(answer_of(answer, &ok));
            }
        }
        Err(error) => tickets.into_iter().for_each(|it| it.returned(Answer::of_error(error))),
    }
}

fn answer_of<T>(answer: &Result<T>, ok: impl Fn(&T) -> Outcome) -> Answer {
    answer.as_ref().map_or_else(Answer::of_error, |value| Answer::Ok(ok(value)))
}

fn selected(selection: &Selection) -> Option<Vec<TaskId>> {
    match selection {
        Selection::Ids(ids) => Some(ids.clone()),
        Selection::Filter(_) | Selection::All => None,
    }
}

#[async_trait]
impl Storage for Watched {
    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        let tickets = self.invoke_all(tasks.iter().map(|new| {
            let due = match new.due {
                Moment::At(due) => Some(due),
                Moment::In(_) => None,
            };
            Operation::Enqueue { task: new.id.clone(), due }
        }));
        let answers = self.store.enqueue(tasks).await;
        return_all(tickets, &answers, |it| Outcome::Enqueued { created: it.created });
        answers
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        let tickets = self.invoke_all(claims.iter().map(|_| Operation::Claim));
        let answers = self.store.claim_due(claims).await;
        return_all(tickets, &answers, |it| {
            Outcome::Claimed(it.claims.iter().filter_map(Grant::of).collect())
        });
        answers
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        let tickets = self.invoke_all(leases.iter().map(|it| Operation::Extend {
            task: it.claim.task_id.clone(),
            token: it.claim.token.clone(),
            lease: it.lease,
            strict: it.strict,
        }));
        let answers = self.store.extend_leases(leases).await;
        return_all(tickets, &answers, |it| Outcome::Extended {
            lease_expires_at: it.lease_expires_at,
        });
        answers
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        let tickets = self.invoke_all(resolutions.iter().map(|it| Operation::Resolve {
            task: it.claim.task_id.clone(),
            token: it.claim.token.clone(),
            call: it.call,
        }));
        let answers = self.store.resolve(resolutions).await;
        return_all(tickets, &answers, |it| Outcome::Resolved {
            status: it.status,
            next_attempt_at: it.next_attempt_at,
            replayed: it.replayed,
        });
        answers
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        let operations = tasks.iter().map(|task| Operation::Cancel { task: task.clone() });
        let tickets = self.invoke_all(operations);
        let answers = self.store.cancel(tasks).await;
        return_all(tickets, &answers, |it| Outcome::Cancelled {
            status: it.status,
            changed: it.changed,
        });
        answers
    }

    async fn redrive(&self, params: RedriveParams) -> Result<Step> {
        let tasks = selected(&params.selection);
        let ticket = self.history.invoke(Operation::Redrive { tasks });
        let answer = self.store.redrive(params).await;
        ticket.returned(answer_of(&answer, |_| Outcome::Done));
        answer
    }

    async fn purge(&self, params: PurgeParams) -> Result<Step> {
        let tasks = selected(&params.selection);
        let ticket = self.history.invoke(Operation::Remove { tasks });
        let answer = self.store.purge(params).await;
        ticket.returned(answer_of(&answer, |_| Outcome::Done));
        answer
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        let retention = (params.succeeded_older_than, params.cancelled_older_than, params.dead);
        let ticket = self.history.invoke(match retention {
            (None, None, None) => Operation::Expire,
            _ => Operation::Remove { tasks: None },
        });
        let answer = self.store.sweep(params).await;
        ticket.returned(answer_of(&answer, |_| Outcome::Done));
        answer
    }

    // What only reads, or touches no task, is passed on.

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn ping(&self) -> Result<()> {
        self.store.ping().await
    }

    async fn close(&self) {
        self.store.close().await;
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        self.store.live_claims(claims).await
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        self.store.get(task).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.store.list(params).await
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        self.store.dlq_list(params).await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.store.stats(queue).await
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        self.store.queue_names(after, limit).await
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        self.store.put_queue(queue, config).await
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        self.store.queue_records().await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        self.store.delete_queue(queue).await
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>, StorageError> {
        self.store.shared_secret(name, candidate).await
    }

    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        self.store.wait_due(queues).await
    }
}
