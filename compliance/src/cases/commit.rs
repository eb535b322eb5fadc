//! Commits: everything happens at one instant, or nothing does.

use crate::{Fixture, Random, given::*, tellers::Tellers};
use futures::StreamExt as _;
use rdq_spi::{
    Applied, Call, Operation, Resolution, Storage, StorageError, TaskStatus, Topic, Wake,
};
use std::{collections::HashSet, sync::Arc, time::Duration};

pub(crate) async fn every_kind_of_write_happens_together<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let wares = Wares::prepare(&*store).await;
    let claim = {
        let queue = some_queue();
        enqueue_one(&*store, &queue).await;
        claim_one(&*store, &queue, LONG_LEASE).await
    };
    let mut operations = wares.operations();
    operations.push(Operation::Resolve(resolution(&claim, Call::Complete, succeed(b"done"))));

    let applied = commit(&*store, operations).await.expect("a commit");

    wares.assert_written(&*other).await;
    let done = get(&*other, &claim.task.id).await;
    assert_eq!((done.status, &done.result[..]), (TaskStatus::Succeeded, &b"done"[..]));
    assert_eq!(applied.len(), 9);
    assert!(matches!(applied[0], Applied::Enqueued(it) if it.created), "{applied:?}");
    let published = offsets(&read_all(&*store, &wares.stream).await);
    assert_eq!(applied[1..3], [Applied::Published(published[0]), Applied::Published(published[1])]);
    assert_eq!(applied[3..5], [Applied::Notified, Applied::OffsetSaved(1)]);
    assert_eq!(applied[5..7], [Applied::Recorded(1), Applied::Recorded(1)]);
    assert!(matches!(applied[7], Applied::Cancelled(it) if it.changed), "{applied:?}");
    assert!(
        matches!(applied[8], Applied::Resolved(it) if it.status == TaskStatus::Succeeded),
        "{applied:?}"
    );
    assert_eq!(claim_one(&*other, &wares.queue, LONG_LEASE).await.task.id, wares.task);
}

/// Whether an error is the one that the story expects.
type Expected = fn(&StorageError) -> bool;

pub(crate) async fn whichever_fails_nothing_happens<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let taken = enqueue_one(&*store, &some_queue()).await;
    let wares = Wares::prepare(&*store).await;
    let failing: Vec<(Operation, Expected)> = vec![
        (
            Operation::Enqueue(Draft::of(&wares.queue).with(|task| task.id = taken).build()),
            |error| matches!(error, StorageError::IdConflict { .. }),
        ),
        (Operation::CompareAndSet(set(&wares.record, 7, "late")), |error| {
            matches!(error, StorageError::CasConflict { .. })
        }),
        (Operation::CompareAndSet(unset(&some_key(), 1)), |error| {
            matches!(error, StorageError::CasConflict { .. })
        }),
        (Operation::Cancel(some_id()), |error| matches!(error, StorageError::NotFound { .. })),
    ];
    for (operation, is_expected) in failing {
        let count = wares.operations().len();
        for place in [0, count / 2, count] {
            let mut operations = wares.operations();
            operations.insert(place, operation.clone());
            let rejected = commit(&*store, operations).await.expect_err("a failure");
            assert_eq!(rejected.index, Some(place), "{rejected:?}");
            assert!(is_expected(&rejected.error), "{rejected:?}");
            wares.assert_untouched(&*store).await;
        }
    }
    commit(&*store, wares.operations()).await.expect("without it all goes well");
    wares.assert_written(&*store).await;
}

pub(crate) async fn a_later_operation_sees_an_earlier_one<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, stream, record) = (some_queue(), some_stream(), some_key());
    let (draft, reader) = (Draft::of(&queue).build(), consumer("reader"));

    let applied = commit(
        &*store,
        vec![
            Operation::Enqueue(draft.clone()),
            Operation::Enqueue(draft.clone()),
            Operation::Cancel(draft.id.clone()),
            Operation::Cancel(draft.id.clone()),
            Operation::CompareAndSet(set(&record, 0, "one")),
            Operation::CompareAndSet(set(&record, 1, "two")),
            Operation::CompareAndSet(unset(&record, 2)),
            Operation::CompareAndSet(set(&record, 0, "three")),
            Operation::SaveOffset(save(&stream, &reader, 5)),
            Operation::SaveOffset(save(&stream, &reader, 3)),
            Operation::Publish(event(&stream, "one")),
            Operation::Publish(event(&stream, "two")),
        ],
    )
    .await
    .expect("a commit");

    let created = applied[..2].iter().map(|it| match it {
        Applied::Enqueued(admission) => admission.created,
        other => panic!("{other:?}"),
    });
    assert_eq!(created.collect::<Vec<_>>(), [true, false]);
    let cancelled = applied[2..4].iter().map(|it| match it {
        Applied::Cancelled(cancelled) => cancelled.changed,
        other => panic!("{other:?}"),
    });
    assert_eq!(cancelled.collect::<Vec<_>>(), [true, false]);
    assert_eq!(applied[4..8], [1, 2, 2, 3].map(Applied::Recorded));
    assert_eq!(applied[8..10], [5, 5].map(Applied::OffsetSaved));
    let published = offsets(&read_all(&*store, &stream).await);
    assert_eq!(applied[10..], [published[0], published[1]].map(Applied::Published));
    assert_eq!(get(&*store, &draft.id).await.status, TaskStatus::Cancelled);
    assert_eq!(&get_record(&*store, &record).await.expect("there").value[..], b"three");
}

pub(crate) async fn dropped_calls_apply_wholly_or_not_at_all<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let (queue, stream) = (some_queue(), some_stream());
    let workers: Vec<_> = (0..6_u64)
        .map(|seed| {
            let store = stores[usize::from(seed % 2 == 0)].clone();
            let (queue, stream) = (queue.clone(), stream.clone());
            tokio::spawn(async move {
                let mut random = Random::seeded(seed);
                let mut sent = Vec::new();
                for _ in 0..12 {
                    let (record, draft) = (some_key(), Draft::of(&queue).build());
                    let operations = vec![
                        Operation::Enqueue(draft.clone()),
                        Operation::Publish(event(&stream, draft.id.as_str().to_owned())),
                        Operation::CompareAndSet(set(&record, 0, "x")),
                    ];
                    let calling = commit(&*store, operations);
                    let wait = Duration::from_micros(random.below(3000) as u64);
                    let answer = tokio::time::timeout(wait, calling).await;
                    let acknowledged = answer.is_ok_and(|answer| answer.is_ok());
                    sent.push((draft.id, record, acknowledged));
                }
                sent
            })
        })
        .collect();
    let mut sent = Vec::new();
    for worker in workers {
        sent.extend(worker.await.expect("a worker"));
    }
    // A dropped call may still be under way: it is judged once it has ended, and looked at by one
    // read first, so that what is seen there must be seen by the later ones.
    for (task, record, acknowledged) in sent {
        let is_there = store_has(&*stores[0], &task).await;
        assert!(is_there || !acknowledged, "{task} was acknowledged and is gone");
        if is_there {
            assert!(get_record(&*stores[1], &record).await.is_some(), "{task} without its record");
            let events = texts(&read_all(&*stores[1], &stream).await);
            let times = events.iter().filter(|text| *text == task.as_str()).count();
            assert_eq!(times, 1, "{task} without its event");
        }
    }
}

async fn store_has(store: &dyn Storage, task: &rdq_spi::TaskId) -> bool {
    match store.get(task.clone()).await {
        Ok(_) => true,
        Err(StorageError::NotFound { .. }) => false,
        Err(error) => panic!("{error:?}"),
    }
}

pub(crate) async fn readers_never_see_a_part<F: Fixture>(fixture: F) {
    const ROUNDS: i64 = 40;
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (record, stream, reader) = (some_key(), some_stream(), consumer("reader"));
    let writer = tokio::spawn({
        let (record, stream, reader) = (record.clone(), stream.clone(), reader.clone());
        async move {
            for round in 0..ROUNDS {
                let operations = vec![
                    Operation::CompareAndSet(set(&record, round, "x")),
                    Operation::Publish(event(&stream, "x")),
                    Operation::SaveOffset(save(&stream, &reader, round + 1)),
                ];
                commit(&*store, operations).await.expect("a commit");
            }
        }
    });
    let revision = async || get_record(&*other, &record).await.map_or(0, |it| it.revision);
    loop {
        let before = revision().await;
        let events = i64::try_from(read_all(&*other, &stream).await.len()).expect("few");
        let between = revision().await;
        let saved = offset(&*other, &stream, &reader).await;
        let after = revision().await;
        assert!(before <= events && events <= between, "{before} {events} {between}");
        assert!(between <= saved && saved <= after, "{between} {saved} {after}");
        if before == ROUNDS {
            break;
        }
        // A storage that answers at once would leave the writer no turn.
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer");
}

pub(crate) async fn hints_and_wakes_come_after_it<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let wares = Wares::prepare(&*store).await;
    let topics = [Topic::Channel(wares.channel.clone()), Topic::Stream(wares.stream.clone())];
    let mut missing = HashSet::new();
    let mut listener = None;
    if F::FACULTIES.signals {
        missing.extend(&topics);
        listener = Some(listen(&*other, &topics).await);
    }
    let mut hints = None;
    if F::CAPABILITIES.notify {
        hints = Some(other.wait_due(vec![wares.queue.clone()]).await.expect("wait_due"));
    }

    commit(&*store, wares.operations()).await.expect("a commit");

    let lost = Duration::from_secs(60);
    while !missing.is_empty() {
        let wake = listener.as_mut().expect("wakes").next();
        match tokio::time::timeout(lost, wake).await.expect("a wake was lost").expect("a wake") {
            Wake::News(topic) => _ = missing.remove(&topic),
            Wake::Reconnected => missing.clear(),
        }
        wares.assert_written(&*other).await;
    }
    if let Some(hints) = &mut hints {
        let hint = tokio::time::timeout(lost, hints.next()).await.expect("a hint was lost");
        assert_eq!(hint.expect("a hint").queue, wares.queue);
    }
}

pub(crate) async fn a_stale_token_fails_the_whole<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;
    let stale = claim_one(&*store, &queue, SHORT_LEASE).await;
    lapse(SHORT_LEASE).await;
    let live = claim_one(&*store, &queue, LONG_LEASE).await;
    let wares = Wares::prepare(&*store).await;
    let complete = |claim| -> Resolution { resolution(claim, Call::Complete, succeed(b"done")) };

    let mut operations = wares.operations();
    operations.push(Operation::Resolve(complete(&stale)));
    let rejected = commit(&*store, operations).await.expect_err("a stale token");
    assert!(matches!(rejected.error, StorageError::StaleClaim { .. }), "{rejected:?}");
    assert_eq!(rejected.index, Some(8));
    wares.assert_untouched(&*store).await;
    assert_eq!(get(&*store, &live.task.id).await.status, TaskStatus::InFlight);

    let mut operations = wares.operations();
    operations.insert(0, Operation::Resolve(complete(&live)));
    commit(&*store, operations).await.expect("a live token");
    wares.assert_written(&*store).await;
    // The repetition of the same resolution is the same, inside another commit too.
    let again = commit(&*store, vec![Operation::Resolve(complete(&live))]).await;
    let again = again.expect("a repetition");
    assert!(matches!(again[0], Applied::Resolved(it) if it.replayed), "{again:?}");
}

pub(crate) async fn one_of_many_commits_on_a_revision_wins<F: Fixture>(fixture: F) {
    let stores: [Arc<dyn Storage>; 2] = [fixture.open().await, fixture.open().await];
    let (record, stream) = (some_key(), some_stream());
    for expected in 0..3 {
        let commits: Vec<_> = (0..12_usize)
            .map(|number| {
                let (store, record) = (stores[number % 2].clone(), record.clone());
                let stream = stream.clone();
                tokio::spawn(async move {
                    let operations = vec![
                        Operation::Publish(event(&stream, format!("{expected}/{number}"))),
                        Operation::CompareAndSet(set(&record, expected, number.to_string())),
                    ];
                    loop {
                        match commit(&*store, operations.clone()).await {
                            Ok(_) => return Some(format!("{expected}/{number}")),
                            Err(it) if matches!(it.error, StorageError::Contention { .. }) => {}
                            Err(it) => {
                                assert!(is_conflict(&Err::<(), _>(it.error)));
                                return None;
                            }
                        }
                    }
                })
            })
            .collect();
        let mut winners = Vec::new();
        for attempt in commits {
            winners.extend(attempt.await.expect("a commit"));
        }
        assert_eq!(winners.len(), 1, "{winners:?}");
        let events = texts(&read_all(&*stores[0], &stream).await);
        assert_eq!(events.last(), winners.last(), "and no event of those who lost: {events:?}");
        assert_eq!(events.len(), usize::try_from(expected + 1).expect("few"));
    }
}

pub(crate) async fn transfers_keep_the_sum_and_their_journal<F: Fixture>(fixture: F) {
    let tellers = Tellers::start(async || fixture.open().await).await;
    tellers.works_on().await;
    tellers.finish(fixture.open().await).await;
}
