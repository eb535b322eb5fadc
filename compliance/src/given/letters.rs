//! Scene words about lists and dead letters.

#[allow(clippy::wildcard_imports, reason = "one vocabulary in two files")]
use super::*;
use rdq_spi::{DlqListParams, ListParams, PurgeParams, RedriveParams, Selection, SweepParams};

/// The first page of a queue's tasks.
pub(crate) fn list_params(queue: &QueueName, limit: u32) -> ListParams {
    ListParams {
        queue: queue.clone(),
        status: None,
        position: None,
        limit,
        bytes_max: BYTES_MAX,
        include_attempts: false,
    }
}

/// The first page of a queue's dead letters.
pub(crate) fn dlq_params(queue: &QueueName, limit: u32) -> DlqListParams {
    DlqListParams {
        queue: queue.clone(),
        filter: rdq_spi::DlqFilter::default(),
        position: None,
        limit,
        bytes_max: BYTES_MAX,
        include_attempts: false,
    }
}

/// The first step of a redrive, all due now.
pub(crate) fn redrive_params(queue: &QueueName, selection: Selection) -> RedriveParams {
    RedriveParams {
        queue: queue.clone(),
        selection,
        dry_run: false,
        position: None,
        limit: 100,
        delay: Duration::ZERO,
        spacing: Duration::ZERO,
    }
}

/// The first step of a purge.
pub(crate) fn purge_params(queue: &QueueName, selection: Selection) -> PurgeParams {
    PurgeParams { queue: queue.clone(), selection, dry_run: false, position: None, limit: 100 }
}

/// A step of maintenance that does nothing yet.
pub(crate) fn sweep_params(queue: &QueueName) -> SweepParams {
    SweepParams {
        queue: queue.clone(),
        expire: false,
        succeeded_older_than: None,
        cancelled_older_than: None,
        dead: None,
        limit: 100,
    }
}

/// Every task of a queue, newest first.
pub(crate) async fn list_all(store: &dyn Storage, queue: &QueueName) -> Vec<Task> {
    let (mut tasks, mut position) = (Vec::new(), None);
    loop {
        let params = ListParams { position, ..list_params(queue, 500) };
        let page = store.list(params).await.expect("list");
        tasks.extend(page.tasks);
        position = page.next;
        if position.is_none() {
            return tasks;
        }
    }
}

/// Every dead letter of a queue, newest first.
pub(crate) async fn dead_letters(store: &dyn Storage, queue: &QueueName) -> Vec<Task> {
    let (mut tasks, mut position) = (Vec::new(), None);
    loop {
        let params = DlqListParams { position, ..dlq_params(queue, 500) };
        let page = store.dlq_list(params).await.expect("dlq_list");
        tasks.extend(page.tasks);
        position = page.next;
        if position.is_none() {
            return tasks;
        }
    }
}

/// Redrives in steps until done, and says how many.
pub(crate) async fn redrive(store: &dyn Storage, mut params: RedriveParams) -> u64 {
    let mut total = 0;
    loop {
        let step = store.redrive(params.clone()).await.expect("redrive");
        total += step.count;
        params.position = step.next;
        if params.position.is_none() {
            return total;
        }
    }
}

/// Redrives every dead letter of a queue.
pub(crate) async fn redrive_all(store: &dyn Storage, queue: &QueueName) -> u64 {
    redrive(store, redrive_params(queue, Selection::All)).await
}

/// Purges in steps until done, and says how many.
pub(crate) async fn purge(store: &dyn Storage, mut params: PurgeParams) -> u64 {
    let mut total = 0;
    loop {
        let step = store.purge(params.clone()).await.expect("purge");
        total += step.count;
        params.position = step.next;
        if params.position.is_none() {
            return total;
        }
    }
}

/// Purges every dead letter of a queue.
pub(crate) async fn purge_all(store: &dyn Storage, queue: &QueueName) -> u64 {
    purge(store, purge_params(queue, Selection::All)).await
}

/// Admits a task, and lets it die of this error.
pub(crate) async fn dead_letter(store: &dyn Storage, draft: Draft, error_type: &str) -> TaskId {
    let queue = draft.task.queue.clone();
    let id = enqueue(store, draft).await;
    let claimed = claim_one(store, &queue, LONG_LEASE).await;
    assert_eq!(claimed.task.id, id, "the story has nothing else due there");
    let outcome = Outcome::Die { attempt: failure(error_type) };
    let call = Call::DeadLetter;
    resolve(store, resolution(&claimed, call, outcome)).await.expect("dead-letter");
    id
}

/// Lets everything die that is due in a queue, in one call: most of it in the same millisecond.
pub(crate) async fn die_all(store: &dyn Storage, queue: &QueueName) -> Vec<TaskId> {
    let claims = claim(store, queue, 1_000, LONG_LEASE).await;
    if claims.is_empty() {
        return Vec::new();
    }
    let call = Call::DeadLetter;
    let batch = claims.iter().map(|claim| resolution(claim, call, usual_outcome(call))).collect();
    for answer in store.resolve(batch).await.expect("resolve") {
        answer.expect("dead-letter");
    }
    ids(&claims)
}

/// Admits so many tasks, and lets them die together.
pub(crate) async fn die_together(store: &dyn Storage, queue: &QueueName, n: usize) -> Vec<TaskId> {
    enqueue_some(store, queue, n).await;
    let died = die_all(store, queue).await;
    assert_eq!(died.len(), n, "the story has nothing else due there");
    died
}
