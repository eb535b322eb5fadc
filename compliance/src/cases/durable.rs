//! What an acknowledged write survives, and handles that are closed.

use crate::{Fixture, given::*};
use rdq_spi::{Call, Moment, QueueConfig, Storage, StorageError};

pub(crate) async fn everything_survives_a_restart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let done = enqueue_one(&*store, &queue).await;
    let completed = claim_one(&*store, &queue, LONG_LEASE).await;
    complete(&*store, &completed).await;
    let dead = dead_letter(&*store, Draft::of(&queue), "t").await;
    let cancelled = enqueue_one(&*store, &queue).await;
    cancel(&*store, &cancelled).await.expect("cancel");
    let held = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    let delayed = enqueue(&*store, Draft::of(&queue).due(Moment::In(LONG_LEASE))).await;
    let pending = enqueue(&*store, Draft::of(&queue).payload(vec![0xab; 300_000])).await;
    let mut config = QueueConfig::default();
    config.retry.max_attempts = Some(3);
    let record = store.put_queue(queue.clone(), config).await.expect("put_queue");
    let ids = [done, dead, cancelled, held, delayed, pending];
    let mut before = Vec::new();
    for id in &ids {
        before.push(get(&*store, id).await);
    }

    store.close().await;
    drop(store);
    fixture.restart().await;
    let store = fixture.open().await;

    for (id, before) in ids.iter().zip(before) {
        assert_eq!(get(&*store, id).await, before);
    }
    assert!(store.queue_records().await.expect("queue_records").contains(&record));
    let again = end(&*store, &completed, Call::Complete).await;
    assert!(again.as_ref().is_ok_and(|it| it.replayed), "a resolution is remembered: {again:?}");
    assert!(!complete(&*store, &claimed).await.replayed, "a token stays good");
    let next = claim_one(&*store, &queue, LONG_LEASE).await;
    assert_eq!(next.task.id, ids[5]);
}

pub(crate) async fn generations_grow_over_restarts<F: Fixture>(fixture: F) {
    let queue = some_queue();
    let draft = Draft::of(&queue);
    let mut last = i64::MIN;
    for _ in 0..3 {
        let store = fixture.open().await;
        enqueue(&*store, draft.clone()).await;
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        assert!(claimed.generation > last, "{} after {last}", claimed.generation);
        last = claimed.generation;
        end(&*store, &claimed, Call::DeadLetter).await.expect("dead-letter");
        purge_all(&*store, &queue).await;
        store.close().await;
        drop(store);
        fixture.restart().await;
    }
}

pub(crate) async fn a_closed_handle_says_so<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;

    store.close().await;
    store.close().await;

    let closed =
        |it: Option<StorageError>| assert!(matches!(it, Some(StorageError::Closed)), "{it:?}");
    closed(store.get(id.clone()).await.err());
    closed(store.enqueue(vec![Draft::of(&queue).build()]).await.err());
    closed(store.claim_due(vec![claim_params(&queue, 1, LONG_LEASE)]).await.err());
    closed(store.cancel(vec![id]).await.err());
    closed(store.ping().await.err());
}

pub(crate) async fn a_write_is_seen_through_every_handle_at_once<F: Fixture>(fixture: F) {
    let handles = [fixture.open().await, fixture.open().await, fixture.open().await];
    let [first, second, third] = handles.each_ref().map(|it| &**it as &dyn Storage);
    let queue = some_queue();
    for _ in 0..10 {
        let id = enqueue_one(first, &queue).await;
        get(second, &id).await;
        let claimed = claim_one(third, &queue, LONG_LEASE).await;
        assert_eq!(claimed.task.id, id);
        complete(second, &claimed).await;
        assert!(get(first, &id).await.status.is_terminal());
        assert_eq!(list_all(third, &queue).await[0].id, id);
    }
}

pub(crate) async fn coordination_survives_a_restart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (stream, trimmed, reader) = (some_stream(), some_stream(), consumer("reader"));
    publish(&*store, vec![event(&stream, "one"), keyed(&stream, "key", "two")]).await;
    let gone = publish_text(&*store, &trimmed, "gone").await;
    assert_eq!(trim(&*store, &trimmed, i64::MAX).await, 1);
    save_offset(&*store, &stream, &reader, 1).await;
    let (record, removed) = (some_key(), some_key());
    change(&*store, set(&record, 0, "value")).await.expect("made");
    change(&*store, set(&removed, 0, "value")).await.expect("made");
    change(&*store, unset(&removed, 1)).await.expect("removed");
    let (name, me) = (some_lock(), owner("me"));
    let released = try_lock(&*store, &name, &me, LONG_LEASE).await.expect("acquired");
    assert!(release(&*store, hold(&name, &released)).await);
    let kept = try_lock(&*store, &name, &me, LONG_LEASE).await.expect("acquired");
    let events = read_all(&*store, &stream).await;
    let before = get_record(&*store, &record).await;

    store.close().await;
    drop(store);
    fixture.restart().await;
    let store = fixture.open().await;

    assert_eq!(read_all(&*store, &stream).await, events);
    assert_eq!(offset(&*store, &stream, &reader).await, 1);
    assert!(publish_text(&*store, &trimmed, "next").await > gone, "no offset comes back");
    assert_eq!(get_record(&*store, &record).await, before);
    assert_eq!(change(&*store, set(&removed, 0, "again")).await.expect("made"), 2);
    assert_eq!(try_lock(&*store, &name, &owner("you"), LONG_LEASE).await, None, "still held");
    assert_eq!(get_lock(&*store, &name).await.expect("held").generation, kept.generation);
    assert!(release(&*store, hold(&name, &kept)).await);
    let next = try_lock(&*store, &name, &me, LONG_LEASE).await.expect("acquired");
    assert!(next.generation > kept.generation);
}
