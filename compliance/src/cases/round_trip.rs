//! What goes in comes out: every byte, through every call that answers a task.

use crate::{Fixture, Random, envelope, given::*};
use bytes::Bytes;
use rdq_spi::{Call, Outcome, Overrides, Task};
use std::time::Duration;

/// Everything that a task can hold, unusual but valid.
fn full_draft(queue: &rdq_spi::QueueName) -> Draft {
    let payload: Vec<u8> = (0..=255).chain([0, 0, 0xff]).collect();
    let mut draft = Draft::of(queue).payload(payload).priority(i32::MIN);
    draft.headers = vec![("traceparent", "00-1-2-03"), ("Ключ", "значение 🦀"), ("empty", "")];
    draft.unknown = envelope::unknown_fields().finish();
    draft.with(|task| {
        task.handler_ref = name("handler / ünïcode '\"%");
        task.overrides = Overrides {
            max_attempts: Some(7),
            lease: Some(Duration::from_secs(43_200)),
            initial_backoff: Some(Duration::from_millis(1_500)),
            retention_dead: Some(Duration::from_millis(86_400_001)),
        };
        task.progress = Bytes::from_static(b"\0\xff progress");
    })
}

fn assert_holds(task: &Task, draft: &Draft) {
    let sent = draft.build();
    assert_eq!(task.envelope, sent.envelope);
    assert_eq!(
        (&task.id, &task.queue, &task.handler_ref),
        (&sent.id, &sent.queue, &sent.handler_ref)
    );
    assert_eq!((task.priority, task.overrides), (sent.priority, sent.overrides));
    assert_eq!(task.progress, sent.progress);
}

pub(crate) async fn every_answer_holds_what_was_sent<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let queue = some_queue();
    let draft = full_draft(&queue);
    let id = enqueue(&*store, draft.clone()).await;

    assert_holds(&get(&*other, &id).await, &draft);
    assert_holds(&list_all(&*other, &queue).await[0], &draft);
    let claimed = claim_one(&*other, &queue, LONG_LEASE).await;
    assert_holds(&claimed.task, &draft);
    end(&*store, &claimed, Call::Reschedule).await.expect("reschedule");
    let claimed = claim_one(&*other, &queue, LONG_LEASE).await;
    assert_holds(&claimed.task, &draft);
    end(&*store, &claimed, Call::DeadLetter).await.expect("dead-letter");
    assert_holds(&dead_letters(&*other, &queue).await[0], &draft);
    redrive_all(&*store, &queue).await;
    let claimed = claim_one(&*other, &queue, LONG_LEASE).await;
    assert_holds(&claimed.task, &draft);
    complete(&*store, &claimed).await;
    assert_holds(&get(&*other, &id).await, &draft);
}

pub(crate) async fn payloads_of_every_size_come_back<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let mut random = Random::seeded(Random::any_seed());
    for len in [0, 1, 127, 128, 4_095, 65_536, 1 << 20] {
        let queue = some_queue();
        let draft = Draft::of(&queue).payload(random.bytes(len));
        let id = enqueue(&*store, draft.clone()).await;

        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

        assert!(claimed.task.envelope == draft.build().envelope, "claimed, {len} bytes");
        assert!(get(&*store, &id).await.envelope == draft.build().envelope, "read, {len} bytes");
    }
}

pub(crate) async fn what_a_worker_reports_comes_back<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let mut attempt = failure("http.503 'ß\" %");
    attempt.extra = envelope::unknown_fields().finish();
    let error = attempt.error.as_mut().expect("set");
    error.message = "Привет, 🦀\r\n\t\\".into();
    error.detail = "'; drop table tasks; --".into();
    error.stack = "x".repeat(64 << 10);
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    let checkpoint = Bytes::from_static(b"\0\x01\xfe");
    let beat = heartbeat(&claimed, LONG_LEASE);
    let beat = rdq_spi::ExtendParams { progress: Some(checkpoint.clone()), ..beat };
    extend(&*store, beat).await.expect("extend");

    let outcome = Outcome::Retry { attempt: attempt.clone(), due: rdq_spi::Moment::NOW };
    resolve(&*store, resolution(&claimed, Call::Reschedule, outcome)).await.expect("reschedule");
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    let outcome = succeed(b"\0 result \xff");
    resolve(&*store, resolution(&claimed, Call::Complete, outcome)).await.expect("complete");

    let task = get(&*store, &id).await;
    assert_eq!(task.attempts[0].error, attempt.error);
    assert_eq!(task.attempts[0].extra, attempt.extra);
    assert_eq!((&*task.progress, &*task.result), (&*checkpoint, &b"\0 result \xff"[..]));
}

pub(crate) async fn carried_over_records_come_back<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let mut bare = carried_over(1);
    (bare.error, bare.worker_id, bare.outcome) = (None, None, None);
    (bare.started_at, bare.finished_at) = (None, None);
    let mut odd = carried_over(9);
    odd.extra = envelope::unknown_fields().finish();
    let records = vec![bare, carried_over(2), odd];
    let draft = Draft::of(&queue).with(|task| task.attempts.clone_from(&records));

    let id = enqueue(&*store, draft).await;

    assert_eq!(get(&*store, &id).await.attempts, records, "what was unset stays unset");
}
