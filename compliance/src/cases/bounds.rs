//! Limits: no call returns more than it was asked for, in items and in bytes; a first item always
//! fits.

use crate::{Fixture, given::*};
use rdq_spi::{
    Attempt, CLAIM_ATTEMPTS_MAX, ClaimParams, DlqListParams, ListParams, QueueName, Storage, Task,
};

const KIB: usize = 1 << 10;

fn weight(task: &Task) -> usize {
    let history: usize = task.attempts.iter().map(Attempt::len_bytes).sum();
    task.envelope.len() + task.progress.len() + history
}

fn assert_fits(tasks: &[&Task], bytes_max: usize) {
    let total: usize = tasks.iter().map(|task| weight(task)).sum();
    assert!(!tasks.is_empty(), "a first task always fits");
    assert!(tasks.len() == 1 || total <= bytes_max, "{} tasks, {total} bytes", tasks.len());
}

async fn enqueue_heavy(store: &dyn Storage, queue: &QueueName, n: usize) {
    let heavy: Vec<_> = (0..n).map(|_| Draft::of(queue).payload(vec![7; 100 * KIB])).collect();
    enqueue_all(store, &heavy).await;
}

pub(crate) async fn a_claim_is_bounded_in_items<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_some(&*store, &queue, 20).await;
    for (limit, claimed) in [(1, 1), (3, 3), (10, 10), (100, 6)] {
        assert_eq!(claim(&*store, &queue, limit, LONG_LEASE).await.len(), claimed);
    }
}

pub(crate) async fn a_claim_is_bounded_in_bytes<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_heavy(&*store, &queue, 8).await;
    let mut claimed = 0;
    for bytes_max in [350 * KIB, 1, 1 << 30] {
        let call = ClaimParams { bytes_max, ..claim_params(&queue, 100, LONG_LEASE) };
        let claims = claim_as(&*store, call).await.claims;
        assert_fits(&claims.iter().map(|claim| &claim.task).collect::<Vec<_>>(), bytes_max);
        claimed += claims.len();
    }
    assert_eq!(claimed, 8, "what did not fit stayed claimable");
}

pub(crate) async fn histories_count_in_a_claims_bytes<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let drafts: Vec<_> = (0..5)
        .map(|_| {
            Draft::of(&queue).with(|task| {
                let talkative = |no| {
                    let mut record = carried_over(no);
                    record.error.as_mut().expect("set").message = "m".repeat(4_000);
                    record
                };
                task.attempts = (1..=50).map(talkative).collect();
                task.progress = vec![1; 50 * KIB].into();
            })
        })
        .collect();
    enqueue_all(&*store, &drafts).await;

    let bytes_max = 600 * KIB;
    let call = ClaimParams { bytes_max, ..claim_params(&queue, 100, LONG_LEASE) };
    let claims = claim_as(&*store, call).await.claims;

    assert_fits(&claims.iter().map(|claim| &claim.task).collect::<Vec<_>>(), bytes_max);
}

pub(crate) async fn a_claim_carries_the_newest_attempts_lightly<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let draft =
        Draft::of(&queue).with(|task| task.attempts = (1..=150).map(carried_over).collect());
    let id = enqueue(&*store, draft).await;

    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    let numbers: Vec<_> = claimed.task.attempts.iter().map(|it| it.attempt_no).collect();
    assert_eq!(numbers, (51..=150).collect::<Vec<_>>());
    assert_eq!(numbers.len(), CLAIM_ATTEMPTS_MAX);
    for record in &claimed.task.attempts {
        let error = record.error.as_ref().expect("set");
        assert_eq!((error.stack.as_str(), error.detail.as_str()), ("", ""));
        assert_eq!((error.error_type.as_str(), error.message.as_str()), ("before", "it broke"));
    }
    assert_eq!(claimed.task.last_attempt_no, 150);
    let whole = get(&*store, &id).await;
    assert_eq!(whole.attempts.len(), 150);
    assert!(whole.attempts.iter().all(|record| record.error == carried_over(1).error));
}

pub(crate) async fn pages_are_bounded_in_bytes_and_go_on<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_heavy(&*store, &queue, 7).await;
    die_all(&*store, &queue).await;
    for bytes_max in [1, 250 * KIB] {
        let (mut position, mut listed) = (None, 0);
        loop {
            let params = ListParams { bytes_max, position, ..list_params(&queue, 100) };
            let page = store.list(params).await.expect("list");
            assert_fits(&page.tasks.iter().collect::<Vec<_>>(), bytes_max);
            listed += page.tasks.len();
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        assert_eq!(listed, 7, "list");
        loop {
            let params = DlqListParams { bytes_max, position, ..dlq_params(&queue, 100) };
            let page = store.dlq_list(params).await.expect("dlq_list");
            assert_fits(&page.tasks.iter().collect::<Vec<_>>(), bytes_max);
            listed += page.tasks.len();
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        assert_eq!(listed, 14, "dlq_list");
    }
}
