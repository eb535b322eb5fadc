//! Dead letters: listed, filtered, redriven, purged.

use crate::{Fixture, given::*};
use rdq_spi::{
    Call, DlqFilter, DlqListParams, Moment, Outcome, PurgeParams, QueueName, RedriveParams,
    Selection, Storage, TaskId, TaskStatus,
};
use std::{collections::HashSet, time::Duration};

pub(crate) async fn a_list_is_newest_first_and_of_one_queue<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, other) = (some_queue(), some_queue());
    let mut dead = Vec::new();
    for _ in 0..5 {
        dead.push(dead_letter(&*store, Draft::of(&queue), "t").await);
    }
    dead_letter(&*store, Draft::of(&other), "t").await;
    enqueue_one(&*store, &queue).await;

    let listed = dead_letters(&*store, &queue).await;

    dead.reverse();
    assert_eq!(task_ids(&listed), dead);
}

pub(crate) async fn a_list_shows_the_final_attempt_or_all<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    for call in [Call::Reschedule, Call::DeadLetter] {
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        end(&*store, &claimed, call).await.expect("resolved");
    }
    let whole = get(&*store, &id).await;

    let brief = store.dlq_list(dlq_params(&queue, 10)).await.expect("dlq_list").tasks.remove(0);
    let params = DlqListParams { include_attempts: true, ..dlq_params(&queue, 10) };
    let full = store.dlq_list(params).await.expect("dlq_list").tasks.remove(0);

    assert_eq!(full.attempts, whole.attempts);
    assert_eq!(brief.attempts.len(), 1);
    assert_eq!(brief.attempts[0].attempt_no, 2);
    let error = brief.attempts[0].error.as_ref().expect("the final error");
    assert_eq!((error.error_type.as_str(), error.message.as_str()), ("t", "it broke"));
    assert_eq!((error.detail.as_str(), error.stack.as_str()), ("", ""));
    assert_eq!((brief.status, brief.finished_at), (TaskStatus::Dead, whole.finished_at));
}

/// Three dead letters that differ in all that a filter sees.
async fn three_kinds(store: &dyn Storage, queue: &QueueName) -> [TaskId; 3] {
    let handled = |handler: &str| Draft::of(queue).with(|task| task.handler_ref = name(handler));
    let first = dead_letter(store, handled("a"), "http.503").await;
    tokio::time::sleep(Duration::from_millis(3)).await;
    let second = dead_letter(store, handled("A"), "http.%").await;
    tokio::time::sleep(Duration::from_millis(3)).await;
    [first, second, dead_letter(store, handled("a"), "HTTP.503").await]
}

pub(crate) async fn a_filter_compares_exactly<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let [first, second, third] = three_kinds(&*store, &queue).await;
    let died = get(&*store, &second).await.finished_at;
    let by_type = |text: &str| DlqFilter { error_type: Some(text.into()), ..DlqFilter::default() };
    let by_handler =
        |text: &str| DlqFilter { handler_ref: Some(text.into()), ..DlqFilter::default() };

    for (filter, expected) in [
        (by_type("http.503"), vec![&first]),
        (by_type("http.%"), vec![&second]),
        (by_type("http"), vec![]),
        (by_type(""), vec![]),
        (by_handler("a"), vec![&third, &first]),
        (by_handler("A"), vec![&second]),
        (DlqFilter { dead_from: died, ..DlqFilter::default() }, vec![&third, &second]),
        (DlqFilter { dead_to: died, ..DlqFilter::default() }, vec![&first]),
        (DlqFilter { dead_from: died, ..by_handler("a") }, vec![&third]),
    ] {
        let params = DlqListParams { filter: filter.clone(), ..dlq_params(&queue, 10) };
        let listed = store.dlq_list(params).await.expect("dlq_list").tasks;
        assert_eq!(task_ids(&listed).iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

pub(crate) async fn a_filter_sees_the_final_attempt_alone<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;
    for (call, outcome) in [
        (Call::Reschedule, Outcome::Retry { attempt: failure("first"), due: Moment::NOW }),
        (Call::DeadLetter, Outcome::Die { attempt: failure("final") }),
    ] {
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        resolve(&*store, resolution(&claimed, call, outcome)).await.expect("resolved");
    }

    for (error_type, found) in [("first", 0), ("final", 1)] {
        let filter = DlqFilter { error_type: Some(error_type.into()), ..DlqFilter::default() };
        let params = DlqListParams { filter, ..dlq_params(&queue, 10) };
        let listed = store.dlq_list(params).await.expect("dlq_list").tasks;
        assert_eq!(listed.len(), found, "{error_type}");
    }
}

pub(crate) async fn a_redrive_resets_and_the_history_persists<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let draft = Draft::of(&queue).priority(3).with(|task| task.progress = "half".into());
    let id = dead_letter(&*store, draft, "t").await;
    let dead = get(&*store, &id).await;

    assert_eq!(redrive_all(&*store, &queue).await, 1);

    let task = get(&*store, &id).await;
    assert_eq!(task.status, TaskStatus::Pending);
    assert_eq!((task.attempt_count, task.redrive_count), (0, 1));
    assert_eq!((&task.attempts, task.last_attempt_no), (&dead.attempts, 1));
    assert_eq!(task.finished_at, None);
    assert!(task.next_attempt_at >= dead.finished_at, "{task:?}");
    let kept = (&task.envelope, task.priority, &task.progress, task.created_at);
    assert_eq!(kept, (&dead.envelope, dead.priority, &dead.progress, dead.created_at));
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    complete(&*store, &claimed).await;
    let task = get(&*store, &id).await;
    assert_eq!((task.attempt_count, task.redrive_count), (1, 1));
    let numbers: Vec<_> = task.attempts.iter().map(|record| record.attempt_no).collect();
    assert_eq!(numbers, [1, 2], "numbers go on over redrives");
    assert_eq!(dead_letters(&*store, &queue).await, []);
}

pub(crate) async fn a_redrive_by_ids_takes_those_alone<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, other) = (some_queue(), some_queue());
    let mut dead = Vec::new();
    for _ in 0..3 {
        dead.push(dead_letter(&*store, Draft::of(&queue), "t").await);
    }
    let foreign = dead_letter(&*store, Draft::of(&other), "t").await;
    let pending = enqueue(&*store, Draft::of(&queue).due(Moment::In(LONG_LEASE))).await;
    let before = [get(&*store, &foreign).await, get(&*store, &pending).await];

    let (id, missing) = (dead[0].clone(), some_id());
    let asked = vec![id.clone(), foreign.clone(), pending.clone(), missing, id.clone()];
    let count = redrive(&*store, redrive_params(&queue, Selection::Ids(asked))).await;

    assert_eq!(count, 1, "others are passed over, and a repeated id counts once");
    assert_eq!(get(&*store, &id).await.status, TaskStatus::Pending);
    assert_eq!([get(&*store, &foreign).await, get(&*store, &pending).await], before);
    assert_eq!(task_ids(&dead_letters(&*store, &queue).await), [dead[2].clone(), dead[1].clone()]);
}

pub(crate) async fn a_redrive_by_filter_takes_what_matches<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let [first, second, third] = three_kinds(&*store, &queue).await;
    let filter = DlqFilter { handler_ref: Some("a".into()), ..DlqFilter::default() };

    let count = redrive(&*store, redrive_params(&queue, Selection::Filter(filter))).await;

    assert_eq!(count, 2);
    assert_eq!(task_ids(&dead_letters(&*store, &queue).await), [second]);
    for id in [first, third] {
        assert_eq!(get(&*store, &id).await.status, TaskStatus::Pending);
    }
}

pub(crate) async fn a_dry_run_counts_and_changes_nothing<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    for _ in 0..3 {
        dead_letter(&*store, Draft::of(&queue), "t").await;
    }
    let before = dead_letters(&*store, &queue).await;
    for selection in [Selection::All, Selection::Ids(task_ids(&before)[..2].to_vec())] {
        let expected = if selection == Selection::All { 3 } else { 2 };
        let dry = RedriveParams { dry_run: true, ..redrive_params(&queue, selection.clone()) };
        assert_eq!(redrive(&*store, dry).await, expected);
        let dry = PurgeParams { dry_run: true, ..purge_params(&queue, selection) };
        assert_eq!(purge(&*store, dry).await, expected);
    }
    assert_eq!(dead_letters(&*store, &queue).await, before);
}

pub(crate) async fn steps_are_bounded_and_cover_all<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for purging in [false, true] {
        let queue = some_queue();
        let dead = die_together(&*store, &queue, 25).await;
        let (mut position, mut total, mut steps) = (None, 0, 0);
        loop {
            let step = if purging {
                let limit =
                    PurgeParams { limit: 4, position, ..purge_params(&queue, Selection::All) };
                store.purge(limit).await.expect("purge")
            } else {
                let limit =
                    RedriveParams { limit: 4, position, ..redrive_params(&queue, Selection::All) };
                store.redrive(limit).await.expect("redrive")
            };
            assert!(step.count <= 4, "{step:?}");
            (total, steps) = (total + step.count, steps + 1);
            position = step.next;
            if position.is_none() {
                break;
            }
        }
        assert_eq!(total, 25);
        assert!(steps >= 7);
        assert_eq!(dead_letters(&*store, &queue).await, []);
        for id in dead {
            let gone = is_not_found(&store.get(id).await);
            assert_eq!(gone, purging);
        }
    }
}

pub(crate) async fn a_redrive_spaces_the_due_times<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let dead = die_together(&*store, &queue, 4).await;
    let died = get(&*store, &dead[0]).await.finished_at.expect("dead");
    let (delay, spacing) = (Duration::from_secs(100), Duration::from_secs(10));

    let params = redrive_params(&queue, Selection::All);
    store.redrive(RedriveParams { delay, spacing, ..params }).await.expect("redrive");

    let mut dues = Vec::new();
    for id in &dead {
        dues.push(get(&*store, id).await.next_attempt_at.expect("pending"));
    }
    dues.sort();
    assert!(dues[0] >= died.after(delay), "{dues:?}");
    for pair in dues.windows(2) {
        assert_eq!(pair[1].since(pair[0]), spacing);
    }
    assert_eq!(claim(&*store, &queue, 10, LONG_LEASE).await, [], "none is due yet");
}

pub(crate) async fn a_redrive_never_takes_what_died_again<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let dead: HashSet<_> = die_together(&*store, &queue, 12).await.into_iter().collect();

    let (mut position, mut total) = (None, 0);
    loop {
        let params = RedriveParams { limit: 3, position, ..redrive_params(&queue, Selection::All) };
        let step = store.redrive(params).await.expect("redrive");
        total += step.count;
        assert!(total <= 12, "a poison pill goes round for ever");
        die_all(&*store, &queue).await;
        position = step.next;
        if position.is_none() {
            break;
        }
    }

    assert_eq!(total, 12);
    for id in dead {
        let task = get(&*store, &id).await;
        assert_eq!((task.status, task.redrive_count), (TaskStatus::Dead, 1));
    }
}

pub(crate) async fn a_purge_removes_and_frees_the_id<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, other) = (some_queue(), some_queue());
    let gone = dead_letter(&*store, Draft::of(&queue), "t").await;
    let kept = dead_letter(&*store, Draft::of(&queue), "t").await;
    let pending = enqueue(&*store, Draft::of(&queue).due(Moment::In(LONG_LEASE))).await;

    let asked = Selection::Ids(vec![gone.clone(), pending.clone(), some_id()]);
    assert_eq!(purge(&*store, purge_params(&queue, asked)).await, 1);

    assert!(is_not_found(&store.get(gone.clone()).await));
    assert_eq!(task_ids(&dead_letters(&*store, &queue).await), [kept]);
    assert_eq!(get(&*store, &pending).await.status, TaskStatus::Pending);
    let elsewhere = Draft::of(&other).with(|task| task.id = gone.clone());
    enqueue(&*store, elsewhere).await;
    let task = get(&*store, &gone).await;
    assert_eq!((task.queue, task.attempts, task.last_attempt_no), (other, vec![], 0), "a new life");
}

pub(crate) async fn a_purge_by_filter_takes_what_matches<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let [first, second, third] = three_kinds(&*store, &queue).await;
    let filter = DlqFilter { error_type: Some("http.%".into()), ..DlqFilter::default() };

    assert_eq!(purge(&*store, purge_params(&queue, Selection::Filter(filter))).await, 1);

    assert!(is_not_found(&store.get(second).await));
    assert_eq!(task_ids(&dead_letters(&*store, &queue).await), [third, first]);
}
