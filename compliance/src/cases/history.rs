//! Histories: bounded, and never in the way.

use crate::{Fixture, given::*};
use rdq_spi::{
    Attempt, AttemptReport, Call, HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, Moment, Outcome, Storage,
    shed,
};

async fn retry(store: &dyn Storage, queue: &rdq_spi::QueueName, attempt: AttemptReport) {
    let claimed = claim_one(store, queue, LONG_LEASE).await;
    let outcome = Outcome::Retry { attempt, due: Moment::NOW };
    resolve(store, resolution(&claimed, Call::Reschedule, outcome)).await.expect("reschedule");
}

pub(crate) async fn a_full_history_folds_and_never_blocks<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let brief = |no| Attempt { error: None, ..carried_over(no) };
    let carried: Vec<_> = (1..HISTORY_RECORDS_MAX).map(brief).collect();
    let draft = Draft::of(&queue).with(|task| task.attempts.clone_from(&carried));
    let id = enqueue(&*store, draft).await;

    for _ in 0..4 {
        retry(&*store, &queue, failure("t")).await;
    }

    let task = get(&*store, &id).await;
    let records = &task.attempts;
    assert_eq!(records.len(), usize::try_from(HISTORY_RECORDS_MAX).expect("fits"));
    assert_eq!((task.last_attempt_no, task.attempt_count), (HISTORY_RECORDS_MAX + 3, 4));
    let folded: Vec<_> = records.iter().filter(|record| record.folded_count > 0).collect();
    assert_eq!(folded.len(), 1, "the middle ones fold into one");
    assert_eq!(folded[0].folded_count, 4, "itself and three more");
    let half = records.len() / 2;
    assert_eq!(records[..half - 1], carried[..half - 1], "the first half stays as it was");
    let newest = records.iter().rev().zip((1..=task.last_attempt_no).rev());
    assert!(
        newest.take(half).all(|(record, no)| record.attempt_no == no && record.folded_count == 0)
    );
}

pub(crate) async fn the_oldest_text_is_shed_first<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let mut expected: Vec<Attempt> = Vec::new();
    for round in 0..20_u8 {
        let mut report = failure("t");
        let error = report.error.as_mut().expect("set");
        let letter = char::from(b'a' + round).to_string();
        error.stack = letter.repeat(60 << 10);
        error.detail = letter.repeat(20 << 10);
        error.message = letter.repeat(4 << 10);
        retry(&*store, &queue, report.clone()).await;
        let record = Attempt {
            worker_id: Some(worker("worker")),
            error: report.error,
            ..carried_over(u32::from(round) + 1)
        };
        expected.push(record);
        shed(&mut expected, HISTORY_BYTES_MAX);
    }

    let task = get(&*store, &id).await;

    let total: usize = task.attempts.iter().map(Attempt::len_bytes).sum();
    assert!(total <= HISTORY_BYTES_MAX, "{total} bytes");
    assert_eq!(task.attempts.len(), 20, "no record is lost");
    for (record, expected) in task.attempts.iter().zip(&expected) {
        assert!(record.error == expected.error, "of attempt {}", record.attempt_no);
    }
}

pub(crate) async fn what_a_lapse_appends_sheds_too<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let heavy = |no| {
        let mut record = carried_over(no);
        record.error.as_mut().expect("set").stack = "s".repeat(64 << 10);
        record
    };
    let mut records: Vec<_> = (1..=15).map(heavy).collect();
    let rest = HISTORY_BYTES_MAX - records.iter().map(Attempt::len_bytes).sum::<usize>();
    records[0].error.as_mut().expect("set").detail = "d".repeat(rest);
    let draft = Draft::of(&queue).with(|task| task.attempts = records);
    let id = enqueue(&*store, draft).await;
    claim_one(&*store, &queue, SHORT_LEASE).await;
    lapse(SHORT_LEASE).await;

    claim_one(&*store, &queue, LONG_LEASE).await;

    let task = get(&*store, &id).await;
    assert_eq!((task.attempts.len(), task.lease_expired_count), (16, 1));
    let total: usize = task.attempts.iter().map(Attempt::len_bytes).sum();
    assert!(total <= HISTORY_BYTES_MAX, "{total} bytes");
}
