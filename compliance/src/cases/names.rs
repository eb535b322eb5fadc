//! Names: never interpreted, never folded, each its own.

use crate::{Fixture, given::*};
use rdq_spi::{DlqFilter, DlqListParams, QueueName, Storage};
use std::collections::HashSet;

/// Ends of names that a backend might confuse, by case, by normal form, or by quoting.
pub(super) const ENDS: [&str; 34] = [
    "a",
    "A",
    "é",
    "e\u{301}",
    "ß",
    "ss",
    "SS",
    "ı",
    "i",
    "I",
    "İ",
    "ﬁ",
    "fi",
    "🦀",
    "😀",
    " ",
    "  ",
    "\u{a0}",
    "%",
    "_",
    "*",
    "?",
    "'",
    "\"",
    "\\",
    "`",
    "$1",
    ":1",
    "{a}",
    "../x",
    "a:b",
    "--",
    ";",
    "\u{202e}x",
];

fn queues() -> Vec<QueueName> {
    let root = some_queue();
    ENDS.iter().map(|end| name(&format!("{root}{end}"))).collect()
}

pub(crate) async fn queues_that_look_alike_are_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queues = queues();
    let drafts: Vec<_> = queues.iter().map(Draft::of).collect();
    let admitted = enqueue_all(&*store, &drafts).await;

    for (queue, id) in queues.iter().zip(&admitted) {
        assert_eq!(store.stats(queue.clone()).await.expect("stats").ready, 1, "{queue:?}");
        let claims = claim(&*store, queue, 10, LONG_LEASE).await;
        assert_eq!(ids(&claims), std::slice::from_ref(id), "{queue:?}");
        assert_eq!(claims[0].task.queue, *queue);
    }
}

pub(crate) async fn ids_that_look_alike_are_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let root = some_id();
    let longest = format!("{root}{}", "é".repeat(127)).split_at(254).0.to_owned() + "x";
    let mut texts: Vec<_> = ENDS.iter().map(|end| format!("{root}{end}")).collect();
    texts.push(longest);
    let drafts: Vec<_> =
        texts.iter().map(|text| Draft::of(&queue).with(|task| task.id = id(text))).collect();
    enqueue_all(&*store, &drafts).await;

    for draft in &drafts {
        let task = get(&*store, &draft.task.id).await;
        assert_eq!((&task.id, &task.envelope), (&draft.task.id, &draft.build().envelope));
    }
    let claims = claim(&*store, &queue, 100, LONG_LEASE).await;
    let claimed: HashSet<_> = ids(&claims).into_iter().collect();
    assert_eq!(claimed.len(), drafts.len());
}

pub(crate) async fn handlers_and_error_types_that_look_alike_are_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let mut dead = Vec::new();
    for end in ENDS {
        let draft = Draft::of(&queue).with(|task| task.handler_ref = name(&format!("h{end}")));
        dead.push(dead_letter(&*store, draft, &format!("t{end}")).await);
    }

    for (end, id) in ENDS.iter().zip(&dead) {
        for filter in [
            DlqFilter { handler_ref: Some(format!("h{end}")), ..DlqFilter::default() },
            DlqFilter { error_type: Some(format!("t{end}")), ..DlqFilter::default() },
        ] {
            let params = DlqListParams { filter, ..dlq_params(&queue, 100) };
            let listed = store.dlq_list(params).await.expect("dlq_list").tasks;
            assert_eq!(task_ids(&listed), std::slice::from_ref(id), "{end:?}");
        }
    }
}

pub(crate) async fn workers_are_recorded_as_they_are_called<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for end in [" ", "🦀'\"%\\", "e\u{301}"] {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        let called = worker(&format!("__rdq_{end}w{end}"));
        let call = rdq_spi::ClaimParams {
            worker_id: called.clone(),
            ..claim_params(&queue, 1, LONG_LEASE)
        };
        let claimed = claim_as(&*store, call).await.claims.remove(0);
        assert_eq!(claimed.task.claimed_by, Some(called.clone()));
        complete(&*store, &claimed).await;
        assert_eq!(get(&*store, &id).await.attempts[0].worker_id, Some(called));
    }
}

pub(crate) async fn configurations_of_names_that_look_alike_are_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queues = queues();
    for (queue, attempts) in queues.iter().zip(1..) {
        put_attempts(&*store, queue, attempts).await;
    }

    let records = store.queue_records().await.expect("queue_records");

    for (queue, attempts) in queues.iter().zip(1..) {
        let mine: Vec<_> = records.iter().filter(|record| record.queue == *queue).collect();
        assert_eq!(mine.len(), 1, "{queue:?}");
        assert_eq!(mine[0].config.retry.max_attempts, Some(attempts), "{queue:?}");
    }
    let mut sorted = records.clone();
    sorted.sort_by(|a, b| a.queue.cmp(&b.queue));
    assert_eq!(records, sorted, "by name, byte by byte");
}

async fn put_attempts(store: &dyn Storage, queue: &QueueName, attempts: u32) {
    let mut config = rdq_spi::QueueConfig::default();
    config.retry.max_attempts = Some(attempts);
    store.put_queue(queue.clone(), config).await.expect("put_queue");
}
