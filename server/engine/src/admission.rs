//! Admission of tasks: single calls share storage calls, batches go in one piece.

use crate::{
    Engine, EngineError,
    batcher::{Batcher, Kind, about},
    core::{Core, refuse_all, spread},
    limits::{
        ADMITTED_ATTEMPTS_MAX, BESIDE_PAYLOAD_BYTES_MAX, check_blob, check_overrides, check_size,
    },
    report::fit_error,
};
use futures::{StreamExt as _, stream};
use rdq_spi::{Admission, Moment, NewTask, QueueName};
use std::{sync::Arc, task::Poll, time::Duration};

/// Admissions under way at once for one batch, where the storage takes one at a time.
const SINGLES_UNDER_WAY: usize = 16;

/// A task to admit.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The task, as the storage will keep it.
    pub task: NewTask,
    /// The size of the payload within its envelope.
    pub payload_bytes: u64,
}

impl Engine {
    /// Admits a task; idempotent by its id within a queue.
    pub async fn enqueue(&self, submission: Submission) -> Result<Admission, EngineError> {
        let task = self.core.admissible(submission)?;
        Batcher::<Enqueues>::join(&self.core, task).await
    }

    /// Admits many tasks, each with its own answer.
    pub async fn enqueue_batch(
        &self,
        submissions: Vec<Submission>,
    ) -> Vec<Result<Admission, EngineError>> {
        let count = submissions.len();
        let checked = submissions.into_iter().map(|submission| self.core.admissible(submission));
        let core = Arc::clone(&self.core);
        run_accepted(checked.collect(), |tasks| async move {
            let admitted = tasks.len();
            let run = Enqueues::run(Arc::clone(&core), tasks);
            core.run(Enqueues::OPERATION, run).await.unwrap_or_else(|e| refuse_all(&e, admitted))
        })
        .await
        .unwrap_or_else(|| refuse_all(&EngineError::Closed, count))
    }
}

/// Runs what passed its checks, and puts the answers between the refusals.
pub(crate) async fn run_accepted<I, O, F: Future<Output = Vec<Result<O, EngineError>>>>(
    checked: Vec<Result<I, EngineError>>,
    run: impl FnOnce(Vec<I>) -> F,
) -> Option<Vec<Result<O, EngineError>>> {
    let mut accepted = Vec::with_capacity(checked.len());
    let refusals: Vec<_> =
        checked.into_iter().map(|item| item.map(|item| accepted.push(item)).err()).collect();
    let answers = if accepted.is_empty() { Vec::new() } else { run(accepted).await };
    let mut answers = answers.into_iter();
    refusals.into_iter().map(|refusal| refusal.map(Err).or_else(|| answers.next())).collect()
}

impl Core {
    /// Checks what the engine knows limits for, and makes the history's text fit.
    pub(crate) fn admissible(&self, submission: Submission) -> Result<NewTask, EngineError> {
        let Submission { mut task, payload_bytes } = submission;
        let snapshot = self.queues.snapshot();
        self.queues.check_declared(&task.queue)?;
        let limit = snapshot.effective(&task.queue).max_payload_bytes;
        check_size("task.payload", payload_bytes, limit)?;
        // Whatever is admitted can be claimed: fields that this server does not know count too.
        let beside = (task.envelope.len() as u64).saturating_sub(payload_bytes);
        check_size("task", beside, BESIDE_PAYLOAD_BYTES_MAX)?;
        check_blob("task.progress", &task.progress)?;
        check_overrides(&task.overrides)?;
        if task.attempts.len() > ADMITTED_ATTEMPTS_MAX {
            let message = format!("must have at most {ADMITTED_ATTEMPTS_MAX} records");
            return Err(EngineError::invalid("task.attempts", message));
        }
        task.attempts.iter_mut().filter_map(|attempt| attempt.error.as_mut()).for_each(fit_error);
        Ok(task)
    }
}

/// Admissions of single calls.
pub(crate) struct Enqueues;

impl Kind for Enqueues {
    type Item = NewTask;
    type Answer = Admission;
    const OPERATION: &'static str = "enqueue";

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.enqueues
    }

    fn bytes(task: &NewTask) -> usize {
        task.envelope.len() + task.progress.len()
    }

    fn about(task: &NewTask) -> Option<u64> {
        Some(about(&task.id))
    }

    async fn run(core: Arc<Core>, tasks: Vec<NewTask>) -> Vec<Result<Admission, EngineError>> {
        let hints = core.hints_of(&tasks);
        let count = tasks.len();
        let answers = if core.capabilities.batch_enqueue {
            // Elsewhere such a claim would come too soon every time, or waits there already.
            let is_early = core.capabilities.notify && !core.capabilities.waiting_claims;
            let due_now = if is_early { queues_due_now(&tasks) } else { Vec::new() };
            let mut admitting = core.storage.enqueue(tasks);
            let admitted = match futures::poll!(&mut admitting) {
                Poll::Ready(admitted) => admitted,
                Poll::Pending => {
                    // Whoever waits claims at once: a storage that commits calls together need not
                    // commit twice. A claim that comes too soon finds nothing; the hint follows.
                    for queue in &due_now {
                        core.hints.hint(queue, Duration::ZERO);
                    }
                    admitting.await
                }
            };
            spread(Self::OPERATION, admitted, count)
        } else {
            let singles = tasks.into_iter().map(|task| {
                let core = Arc::clone(&core);
                async move { spread(Self::OPERATION, core.storage.enqueue(vec![task]).await, 1) }
            });
            let answers: Vec<_> = stream::iter(singles).buffered(SINGLES_UNDER_WAY).collect().await;
            answers.into_iter().flatten().collect()
        };
        for (queue, due_in) in hints {
            core.hint_in_process(&queue, due_in);
        }
        answers
    }
}

/// Where a claim would find something as soon as these tasks are admitted.
fn queues_due_now(tasks: &[NewTask]) -> Vec<QueueName> {
    let due_now = tasks.iter().filter(|task| task.due == Moment::NOW).map(|task| &task.queue);
    let mut queues: Vec<QueueName> = Vec::new();
    for queue in due_now {
        if queues.last() != Some(queue) {
            queues.push(queue.clone());
        }
    }
    queues
}

impl Core {
    /// What the claim loops of this process should hear, where the storage tells them nothing.
    fn hints_of(&self, tasks: &[NewTask]) -> Vec<(QueueName, Duration)> {
        if self.capabilities.notify {
            return Vec::new();
        }
        let hint = |task: &NewTask| match task.due {
            Moment::In(delay) => (task.queue.clone(), delay),
            // Only the storage knows its clock; a claim will tell when it is due.
            Moment::At(_) => (task.queue.clone(), Duration::ZERO),
        };
        tasks.iter().map(hint).collect()
    }
}
