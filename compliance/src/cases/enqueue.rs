//! Admission: once an id, whatever is sent again.

use crate::{Fixture, given::*};
use futures::future::join_all;
use rdq_spi::{Moment, StorageError, TaskStatus, Timestamp};
use std::time::Duration;

pub(crate) async fn a_repeated_id_is_the_same_task<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let first = Draft::of(&queue);
    enqueue(&*store, first.clone()).await;
    let before = get(&*store, &first.task.id).await;

    let again = first.clone().payload("another").priority(9);
    let answer = admit(&*store, &[again]).await.remove(0).expect("the same task");

    assert!(!answer.created);
    assert_eq!(answer.status, TaskStatus::Pending);
    assert_eq!(get(&*store, &first.task.id).await, before, "the first admission wins");
}

pub(crate) async fn a_finished_task_is_not_admitted_again<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let draft = Draft::of(&queue);
    enqueue(&*store, draft.clone()).await;
    complete(&*store, &claim_one(&*store, &queue, LONG_LEASE).await).await;

    let answer = admit(&*store, &[draft]).await.remove(0).expect("the same task");

    assert_eq!((answer.created, answer.status), (false, TaskStatus::Succeeded));
    assert_eq!(claim(&*store, &queue, 1, LONG_LEASE).await, []);
}

pub(crate) async fn an_id_of_another_queue_is_a_conflict<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (here, there) = (some_queue(), some_queue());
    let task = enqueue_one(&*store, &here).await;
    let before = get(&*store, &task).await;

    let elsewhere = Draft::of(&there).with(|new| new.id = task.clone());
    let answer = admit(&*store, &[elsewhere]).await.remove(0);

    assert!(
        matches!(&answer, Err(StorageError::IdConflict { task_id }) if *task_id == task),
        "{answer:?}"
    );
    assert_eq!(get(&*store, &task).await, before);
    assert_eq!(claim(&*store, &there, 1, LONG_LEASE).await, []);
}

pub(crate) async fn a_batch_answers_each_task_in_its_order<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, other) = (some_queue(), some_queue());
    let (old, taken) = (Draft::of(&queue), enqueue_one(&*store, &other).await);
    enqueue(&*store, old.clone()).await;
    let (new, twice) = (Draft::of(&queue), Draft::of(&queue));
    let conflict = Draft::of(&queue).with(|task| task.id = taken);

    let batch = [new.clone(), old, conflict, twice.clone(), twice.clone().payload("again")];
    let answers = admit(&*store, &batch).await;

    let created: Vec<_> = answers.iter().map(|it| it.as_ref().ok().map(|it| it.created)).collect();
    assert_eq!(created, [Some(true), Some(false), None, Some(true), Some(false)]);
    assert!(matches!(answers[2], Err(StorageError::IdConflict { .. })), "{answers:?}");
    for draft in [new, twice] {
        let task = get(&*store, &draft.task.id).await;
        assert_eq!(task.envelope, draft.build().envelope);
    }
}

pub(crate) async fn one_of_fifty_concurrent_admissions_creates<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let queue = some_queue();
    let draft = Draft::of(&queue);

    let calls = (0..50).map(|i: usize| {
        let store = stores[i % 2].clone();
        let mine = draft.clone().payload(format!("from {i}"));
        tokio::spawn(async move { admit(&*store, &[mine]).await.remove(0).expect("admitted") })
    });
    let answers = join_all(calls).await;

    let created = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|it| it.created));
    assert_eq!(created.count(), 1, "{answers:?}");
    assert_eq!(claim(&*stores[0], &queue, 10, LONG_LEASE).await.len(), 1);
}

pub(crate) async fn two_queues_that_race_for_an_id_do_not_both_get_it<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    for _ in 0..20 {
        let drafts = [some_queue(), some_queue()].map(|queue| Draft::of(&queue));
        let id = drafts[0].task.id.clone();

        let calls = drafts.into_iter().zip(&stores).map(|(draft, store)| {
            let (store, id) = (store.clone(), id.clone());
            tokio::spawn(
                async move { admit(&*store, &[draft.with(|it| it.id = id)]).await.remove(0) },
            )
        });
        let answers: Vec<_> =
            join_all(calls).await.into_iter().map(|it| it.expect("ran")).collect();

        let created = answers.iter().filter(|it| it.as_ref().is_ok_and(|it| it.created)).count();
        let conflicts =
            answers.iter().filter(|it| matches!(it, Err(StorageError::IdConflict { .. })));
        assert_eq!((created, conflicts.count()), (1, 1), "{answers:?}");
    }
}

pub(crate) async fn what_is_carried_over_is_kept<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let draft = Draft::of(&queue).with(|task| {
        task.attempts = vec![carried_over(3), carried_over(4)];
        task.attempt_count = 2;
        task.redrive_count = 5;
        task.lease_expired_count = 1;
        task.progress = "half way".into();
        task.created_at = Some(Timestamp::from_millis(1_111_111_111_111));
    });
    let id = enqueue(&*store, draft.clone()).await;

    let task = get(&*store, &id).await;

    assert_eq!(task.status, TaskStatus::Pending);
    assert_eq!((task.attempt_count, task.redrive_count, task.lease_expired_count), (2, 5, 1));
    assert_eq!(task.attempts, draft.task.attempts);
    assert_eq!(task.progress, draft.task.progress);
    assert_eq!(Some(task.created_at), draft.task.created_at);
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    complete(&*store, &claimed).await;
    let task = get(&*store, &id).await;
    assert_eq!(task.attempts.last().map(|record| record.attempt_no), Some(5), "numbers go on");
    assert_eq!((task.attempt_count, task.attempts.len()), (3, 3));
}

pub(crate) async fn an_admitted_task_is_pending_and_due_when_it_says<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let past = Timestamp::from_millis(1_000);
    let now = enqueue_one(&*store, &queue).await;
    let late = enqueue(&*store, Draft::of(&queue).due(Moment::At(past))).await;
    let soon = Draft::of(&queue).due(Moment::In(Duration::from_secs(3600)));
    let soon = enqueue(&*store, soon).await;

    for (id, due_after) in [(&now, Duration::ZERO), (&soon, Duration::from_secs(3600))] {
        let task = get(&*store, id).await;
        let due = task.next_attempt_at.expect("pending");
        assert!(due >= task.created_at.after(due_after), "{task:?}");
        assert!(due <= task.created_at.after(due_after + Duration::from_secs(60)), "{task:?}");
        assert_eq!(task.status, TaskStatus::Pending);
        let unset = (task.claimed_at, task.lease_expires_at, task.expires_at, task.finished_at);
        assert_eq!(unset, (None, None, None, None));
        assert_eq!((task.claimed_by, task.attempts, task.attempt_count), (None, vec![], 0));
    }
    let kept = get(&*store, &late).await.next_attempt_at;
    assert_eq!(kept, Some(past), "an instant in the past is kept");
    let claims = claim(&*store, &queue, 10, LONG_LEASE).await;
    assert_eq!(ids(&claims), [late, now], "and comes first; what is due later waits");
}
