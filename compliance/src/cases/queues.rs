//! Queue configuration, names of queues, and secrets that servers share.

use crate::{Fixture, given::*};
use futures::future::join_all;
use rdq_spi::{
    Call, Classification, Execution, Handler, Limits, QueueConfig, QueueName, Retention, Retry,
    Storage, StorageError, VersionMismatch,
};
use std::{collections::HashSet, time::Duration};

/// Every key set, each to something else.
fn full_config() -> QueueConfig {
    QueueConfig {
        retry: Retry {
            max_attempts: Some(7),
            initial_backoff: Some(Duration::from_millis(1_500)),
            multiplier: Some(2.5),
            max_backoff: Some(Duration::from_secs(90)),
            jitter: Some(0.125),
        },
        classification: Classification {
            retryable: vec!["http.5*".into(), "Ünï?".into()],
            permanent: vec!["'; --".into()],
        },
        execution: Execution {
            lease: Some(Duration::from_secs(45)),
            timeout: Some(Duration::from_secs(600)),
            strict_leases: Some(true),
        },
        limits: Limits { max_payload_bytes: Some(1 << 21) },
        retention: Retention {
            succeeded: Some(Duration::ZERO),
            cancelled: Some(Duration::from_secs(1)),
            dead: Some(Duration::from_secs(86_400)),
        },
        handler: Handler { version_mismatch: Some(VersionMismatch::DeadLetter) },
        paused: Some(true),
    }
}

async fn stored(store: &dyn Storage, queue: &QueueName) -> Option<QueueConfig> {
    let records = store.queue_records().await.expect("queue_records");
    records.into_iter().find(|record| record.queue == *queue).map(|record| record.config)
}

pub(crate) async fn a_configuration_comes_back_and_is_replaced_whole<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let queue = some_queue();
    assert_eq!(stored(&*store, &queue).await, None);
    for config in [full_config(), QueueConfig::default()] {
        let record = store.put_queue(queue.clone(), config.clone()).await.expect("put_queue");
        assert_eq!((&record.queue, &record.config), (&queue, &config));
        assert_eq!(stored(&*other, &queue).await, Some(config));
    }
}

pub(crate) async fn records_come_by_name<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let names = ["-c", "-a", "-b"].map(|end| name(&format!("{queue}{end}")));
    for name in &names {
        store.put_queue(name.clone(), QueueConfig::default()).await.expect("put_queue");
    }

    let records = store.queue_records().await.expect("queue_records");

    let mine: Vec<_> = records.iter().map(|record| &record.queue).collect();
    let mine: Vec<_> = mine.into_iter().filter(|it| names.contains(it)).collect();
    assert_eq!(mine, [&names[1], &names[2], &names[0]]);
}

pub(crate) async fn a_queue_that_holds_a_task_is_not_deleted<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for call in [None, Some(Call::Complete), Some(Call::DeadLetter)] {
        let queue = some_queue();
        store.put_queue(queue.clone(), QueueConfig::default()).await.expect("put_queue");
        enqueue_one(&*store, &queue).await;
        if let Some(call) = call {
            let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
            end(&*store, &claimed, call).await.expect("resolved");
        }

        let answer = store.delete_queue(queue.clone()).await;

        assert!(matches!(answer, Err(StorageError::QueueNotEmpty { .. })), "{answer:?}");
        assert_eq!(stored(&*store, &queue).await, Some(QueueConfig::default()));
    }
}

pub(crate) async fn deleting_says_whether_there_was_one<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    assert!(!store.delete_queue(queue.clone()).await.expect("delete_queue"));
    store.put_queue(queue.clone(), full_config()).await.expect("put_queue");

    assert!(store.delete_queue(queue.clone()).await.expect("delete_queue"));

    assert_eq!(stored(&*store, &queue).await, None);
    assert!(!store.delete_queue(queue).await.expect("delete_queue"));
}

pub(crate) async fn queues_are_known_by_task_or_configuration<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let root = some_queue();
    let [a, b, c, d] = ["-a", "-b", "-c", "-d"].map(|end| name(&format!("{root}{end}")));
    store.put_queue(b.clone(), QueueConfig::default()).await.expect("put_queue");
    enqueue_one(&*store, &a).await;
    dead_letter(&*store, Draft::of(&c), "t").await;
    let names = async |after: &QueueName, limit| {
        store.queue_names(Some(after.clone()), limit).await.expect("queue_names")
    };

    assert_eq!(names(&root, 2).await, [a.clone(), b.clone()]);
    assert_eq!(names(&b, 1).await, std::slice::from_ref(&c));
    assert!(!names(&c, 1).await.contains(&d));
    purge_all(&*store, &c).await;
    assert!(!names(&b, 1).await.contains(&c), "it holds nothing any more");
    assert!(!store.queue_names(None, 1).await.expect("queue_names").is_empty());
}

pub(crate) async fn every_server_gets_the_same_secret<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let secret = some_queue();
    let calls = (0..20).map(|i: usize| {
        let (store, secret) = (stores[i % 2].clone(), secret.clone());
        let candidate = vec![u8::try_from(i).expect("few"), 0, 0xff];
        tokio::spawn(async move { store.shared_secret(secret.as_str(), candidate).await })
    });
    let answers: Vec<_> = join_all(calls).await.into_iter().map(|it| it.expect("ran")).collect();
    if answers.iter().all(|it| matches!(it, Err(StorageError::Unsupported { .. }))) {
        return; // A storage may leave secrets to its operator, on every handle alike.
    }

    let secrets: HashSet<_> = answers.into_iter().map(|it| it.expect("a secret")).collect();
    assert_eq!(secrets.len(), 1, "{secrets:?}");
    let first = secrets.into_iter().next().expect("one");
    assert!(first.len() == 3 && first[0] < 20 && first[1..] == [0, 0xff], "a candidate: {first:?}");
    let other = format!("{secret}-other");
    let answer = stores[0].shared_secret(&other, b"another".to_vec()).await.expect("a secret");
    assert_eq!(answer, b"another", "each name has its own");
}
