//! Interactive transactions: they see their own writes, nobody else does, and what is not committed
//! never was.

use super::streams::read_along;
use crate::{Fixture, Random, given::*};
use rdq_spi::{
    Applied, Call, EventKey, Operation, ReadFrom, ReadParams, Result, Storage, StorageError,
    StreamName, TaskStatus, Transaction,
};
use std::{collections::HashSet, sync::Arc, time::Duration};

async fn apply(transaction: &mut dyn Transaction, operations: Vec<Operation>) -> Vec<Applied> {
    let count = operations.len();
    let applied = transaction.apply(operations).await.expect("apply");
    assert_eq!(applied.len(), count, "one answer for each operation");
    applied
}

pub(crate) async fn reads_see_what_it_wrote_and_nobody_else_does<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let wares = Wares::prepare(&*store).await;
    let mut transaction = begin(&*store).await;
    assert!(is_not_found(&transaction.get(wares.task.clone()).await));

    for operation in wares.operations() {
        apply(&mut *transaction, vec![operation]).await;
    }

    let task = transaction.get(wares.task.clone()).await.expect("its own task");
    assert_eq!((task.status, &task.queue), (TaskStatus::Pending, &wares.queue));
    let cancelled = transaction.get(wares.cancelled.clone()).await.expect("the other's");
    assert_eq!(cancelled.status, TaskStatus::Cancelled);
    let events = transaction.read(read_params(&wares.stream, 0)).await.expect("read");
    assert_eq!(texts(&events), ["one", "two"]);
    assert_eq!(events[1].key.as_ref().map(EventKey::as_str), Some("key"));
    let reader = wares.consumer.clone();
    let saved = transaction.offset(wares.stream.clone(), reader.clone()).await.expect("offset");
    assert_eq!(saved, 1);
    let from_reader =
        ReadParams { from: ReadFrom::Consumer(reader), ..read_params(&wares.stream, 0) };
    let rest = transaction.read(from_reader).await.expect("read");
    assert!(rest.iter().all(|event| event.offset > 1), "{rest:?}");
    for store in [&store, &other] {
        wares.assert_untouched(&**store).await;
    }
    assert!(claim(&*other, &wares.queue, 1, SHORT_LEASE).await.is_empty(), "nobody gets it yet");

    transaction.commit().await.expect("commit");

    wares.assert_written(&*other).await;
    assert_eq!(offsets(&read_all(&*store, &wares.stream).await), offsets(&events));
    assert_eq!(claim_one(&*other, &wares.queue, LONG_LEASE).await.task.id, wares.task);
}

pub(crate) async fn rolled_back_or_dropped_it_leaves_nothing<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let wares = Wares::prepare(&*store).await;
    for round in 0..6 {
        let mut transaction = begin(&*store).await;
        apply(&mut *transaction, wares.operations()).await;
        if round % 2 == 0 {
            transaction.rollback().await.expect("rollback");
        } else {
            drop(transaction);
        }
        wares.assert_untouched(&*store).await;
    }
    // What it would have written is free for the next one; one that wrote nothing commits too.
    begin(&*store).await.commit().await.expect("an empty commit");
    let mut transaction = begin(&*store).await;
    apply(&mut *transaction, wares.operations()).await;
    transaction.commit().await.expect("commit");
    wares.assert_written(&*store).await;
}

pub(crate) async fn a_commit_happens_as_it_was_answered<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, stream, record) = (some_queue(), some_stream(), some_key());
    enqueue_one(&*store, &queue).await;
    let claim = claim_one(&*store, &queue, LONG_LEASE).await;
    publish_text(&*store, &stream, "before").await;
    let mut transaction = begin(&*store).await;
    let first = apply(
        &mut *transaction,
        vec![
            Operation::Publish(event(&stream, "one")),
            Operation::CompareAndSet(set(&record, 0, "one")),
        ],
    )
    .await;
    let second = apply(
        &mut *transaction,
        vec![
            Operation::Publish(event(&stream, "two")),
            Operation::CompareAndSet(set(&record, 1, "two")),
            Operation::Resolve(resolution(&claim, Call::Complete, succeed(b"done"))),
        ],
    )
    .await;
    transaction.commit().await.expect("commit");

    let events = read_all(&*store, &stream).await;
    assert_eq!(texts(&events), ["before", "one", "two"]);
    assert_eq!(first, [Applied::Published(events[1].offset), Applied::Recorded(1)]);
    assert_eq!(second[..2], [Applied::Published(events[2].offset), Applied::Recorded(2)]);
    assert_eq!(get(&*store, &claim.task.id).await.status, TaskStatus::Succeeded);
    let again = end(&*store, &claim, Call::Complete).await.expect("a repetition");
    assert!(again.replayed);
}

pub(crate) async fn a_refused_operation_leaves_it_as_it_was<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let wares = Wares::prepare(&*store).await;
    let mut transaction = begin(&*store).await;
    let mut operations = wares.operations();
    let rest = operations.split_off(3);
    apply(&mut *transaction, operations).await;

    let refused = vec![
        Operation::Publish(event(&wares.stream, "never")),
        Operation::CompareAndSet(set(&wares.record, 9, "never")),
        Operation::Publish(event(&wares.stream, "never")),
    ];
    let rejected = transaction.apply(refused).await.expect_err("another revision");
    assert_eq!(rejected.index, Some(1), "{rejected:?}");
    assert!(is_conflict(&Err::<(), _>(rejected.error)));
    let missing = transaction.apply(vec![Operation::Cancel(some_id())]).await;
    let missing = missing.expect_err("no such task");
    assert_eq!(missing.index, Some(0));
    assert!(matches!(missing.error, StorageError::NotFound { .. }), "{missing:?}");

    let events = transaction.read(read_params(&wares.stream, 0)).await.expect("read");
    assert_eq!(texts(&events), ["one", "two"], "it goes on as it was");
    apply(&mut *transaction, rest).await;
    transaction.commit().await.expect("commit");
    wares.assert_written(&*store).await;
}

pub(crate) async fn of_two_that_change_a_record_one_commits<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let record = some_key();
    for expected in 0..2 {
        let mut first = begin(&*store).await;
        let change =
            |value: &str| vec![Operation::CompareAndSet(set(&record, expected, value.to_owned()))];
        apply(&mut *first, change("first")).await;
        let mut second = begin(&*other).await;
        let losing = tokio::spawn({
            let change = change("second");
            async move {
                match second.apply(change).await {
                    Ok(_) => second.commit().await,
                    Err(rejected) => Err(rejected.error),
                }
            }
        });
        // The second may wait for the first one's end, or not; neither order makes both win.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (first, second) = (first.commit().await, losing.await.expect("the second"));
        let lost = |answer: &Result<()>| {
            is_conflict(answer) || matches!(answer, Err(StorageError::Contention { .. }))
        };
        assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
        assert!(lost(&first) || lost(&second), "{first:?} {second:?}");
        let value = get_record(&*store, &record).await.expect("there");
        let winner: &[u8] = if first.is_ok() { b"first" } else { b"second" };
        assert_eq!((&value.value[..], value.revision), (winner, expected + 1));
    }
}

pub(crate) async fn an_open_one_holds_up_nobody_elsewhere<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let wares = Wares::prepare(&*store).await;
    let mut transaction = begin(&*store).await;
    apply(&mut *transaction, wares.operations()).await;

    let (queue, stream, record) = (some_queue(), some_stream(), some_key());
    let elsewhere = async {
        for from in [&store, &other] {
            enqueue_one(&**from, &queue).await;
            let claimed = claim_one(&**from, &queue, LONG_LEASE).await;
            complete(&**from, &claimed).await;
            publish_text(&**from, &stream, "x").await;
        }
        change(&*other, set(&record, 0, "x")).await.expect("a change");
        let committed = vec![Operation::Publish(event(&stream, "y"))];
        commit(&*other, committed).await.expect("a commit");
    };
    // Far longer than this takes, on however slow a machine, and far less than for ever.
    tokio::time::timeout(Duration::from_secs(60), elsewhere).await.expect("nobody waits");
    transaction.commit().await.expect("commit");
    wares.assert_written(&*other).await;
}

/// One publisher's part: so many transactions that commit, among others that do not.
async fn publish_with_rollbacks(
    store: Arc<dyn Storage>,
    stream: StreamName,
    publisher: usize,
) -> Vec<String> {
    let mut random = Random::seeded(publisher as u64);
    let mut committed = Vec::new();
    let mut number = 0;
    while committed.len() < 4 {
        number += 1;
        let texts = [format!("{publisher}/{number}/a"), format!("{publisher}/{number}/b")];
        match attempt(&*store, &stream, &texts, random.below(3)).await {
            Ok(true) => committed.extend(texts),
            Ok(false) => {}
            // Somebody was in the way, or too many are open: later.
            Err(error) if error.ends_transaction() => {
                let pause = Duration::from_millis(1 + random.below(20) as u64);
                tokio::time::sleep(pause).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    committed
}

/// Two events in one transaction; whether it was committed.
async fn attempt(
    store: &dyn Storage,
    stream: &StreamName,
    texts: &[String; 2],
    fate: usize,
) -> Result<bool> {
    let mut transaction = transactions(store).begin().await?;
    for text in texts {
        let operations = vec![Operation::Publish(event(stream, text.clone()))];
        transaction.apply(operations).await.map_err(|rejected| rejected.error)?;
        tokio::task::yield_now().await;
    }
    match fate {
        0 => transaction.rollback().await.map(|()| false),
        1 if texts[0].len().is_multiple_of(2) => {
            drop(transaction);
            Ok(false)
        }
        _ => transaction.commit().await.map(|()| true),
    }
}

pub(crate) async fn a_hundred_publishers_and_a_reader_that_misses_nothing<F: Fixture>(fixture: F) {
    const PUBLISHERS: usize = 100;
    let stores = [fixture.open().await, fixture.open().await];
    let stream = some_stream();
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| {
            let (store, stream) = (stores[publisher % 2].clone(), stream.clone());
            tokio::spawn(publish_with_rollbacks(store, stream, publisher))
        })
        .collect();
    let (done, is_done) = tokio::sync::oneshot::channel();
    let reader = tokio::spawn(read_along(stores[1].clone(), stream.clone(), is_done));
    let mut committed = HashSet::new();
    for publisher in publishers {
        committed.extend(publisher.await.expect("a publisher"));
    }
    done.send(()).expect("the reader");
    let seen = reader.await.expect("the reader");

    assert!(seen.windows(2).all(|pair| pair[0].offset < pair[1].offset), "in order, none twice");
    assert_eq!(seen, read_all(&*stores[0], &stream).await, "nothing appeared below what was seen");
    let texts = texts(&seen);
    let unique: HashSet<_> = texts.iter().cloned().collect();
    assert_eq!(unique.len(), texts.len());
    assert_eq!(unique, committed, "everything committed, and nothing else");
}
