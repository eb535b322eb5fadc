//! What a producer can count on.

use crate::harness::{Proxy, QUEUE, Server, awaited, until, until_status};
use rdq_client::{
    Claim, Client, Error, HandlerError, NewTask, QueueConfig, TaskStatus, VersionMismatch, Worker,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

#[tokio::test]
async fn enqueue_options() {
    let server = Server::start().await;
    let client = server.client().await;
    let hour = Duration::from_secs(3_600);
    let due_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let later = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000_000_000);

    let full = NewTask::new(QUEUE, "h")
        .id("full")
        .payload("{}")
        .content_type("application/json")
        .header("one", "1")
        .headers([("two", "2")])
        .priority(-7)
        .due_at(due_at)
        .expires_at(later)
        .handler_version("v3")
        .max_attempts(9)
        .lease(Duration::from_secs(11))
        .initial_backoff(Duration::from_secs(12))
        .retention_dead(Duration::from_secs(13));
    let enqueued = client.enqueue(full).await.unwrap();
    assert_eq!((enqueued.id.as_str(), enqueued.created), ("full", true));
    assert_eq!(enqueued.status, TaskStatus::Pending);
    let task = client.get("full").await.unwrap();
    assert_eq!((task.queue(), task.handler_ref()), (QUEUE, "h"));
    assert_eq!((task.handler_version(), task.priority()), (Some("v3"), -7));
    assert_eq!((&task.payload()[..], task.content_type()), (&b"{}"[..], "application/json"));
    let headers = [("one", "1"), ("two", "2")].map(|(key, value)| (key.into(), value.into()));
    assert_eq!(task.headers(), &HashMap::from(headers));
    assert_eq!((task.next_attempt_at(), task.expires_at()), (Some(due_at), Some(later)));
    assert_eq!((task.max_attempts(), task.lease()), (Some(9), Some(Duration::from_secs(11))));
    assert_eq!(task.initial_backoff(), Some(Duration::from_secs(12)));
    assert_eq!(task.retention_dead(), Some(Duration::from_secs(13)));

    let delayed = NewTask::new(QUEUE, "h").id("delayed").delay(hour).expires_in(2 * hour);
    client.enqueue(delayed).await.unwrap();
    let task = client.get("delayed").await.unwrap();
    assert_eq!(task.next_attempt_at(), task.created_at().map(|at| at + hour));
    assert_eq!(task.expires_at(), task.created_at().map(|at| at + 2 * hour));

    // The higher goes first, whatever came first.
    for (id, priority) in [("low", 1), ("high", 3), ("middle", 2)] {
        client.enqueue(NewTask::new("by-priority", "h").id(id).priority(priority)).await.unwrap();
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let order = Arc::clone(&seen);
    let worker = Worker::builder(&client)
        .queue("by-priority")
        .concurrency(1)
        .handler("h", move |claim: Claim| {
            order.lock().unwrap().push(claim.id().to_owned());
            async { Ok::<_, HandlerError>(()) }
        })
        .build()
        .unwrap()
        .start();
    for id in ["low", "middle", "high"] {
        until_status(&client, id, TaskStatus::Succeeded).await;
    }
    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
    assert_eq!(*seen.lock().unwrap(), ["high", "middle", "low"]);
}

#[tokio::test]
async fn enqueue_repeated() {
    let server = Server::start().await;
    let client = server.client().await;
    let task = || NewTask::new(QUEUE, "h").id("same");
    assert!(client.enqueue(task()).await.unwrap().created);
    let again = client.enqueue(task().payload("other")).await.unwrap();
    assert_eq!((again.id.as_str(), again.created), ("same", false));
    assert!(client.get("same").await.unwrap().payload().is_empty(), "the first admission wins");

    let error = client.enqueue(NewTask::new("other", "h").id("same")).await.unwrap_err();
    assert!(matches!(error, Error::IdConflict(_)), "{error:?}");
    assert_eq!(error.metadata("task_id"), Some("same"));

    let unnamed = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap();
    let other = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap();
    assert!(unnamed.created && unnamed.id < other.id, "ids that the client makes grow");
}

#[tokio::test]
async fn enqueue_answer_lost() {
    let server = Server::start().await;
    let direct = server.client().await;
    let proxy = Proxy::before(server.address()).await;
    let client = Client::connect(proxy.address()).await.unwrap();
    for id in [Some("chosen"), None] {
        let queue = id.unwrap_or("unnamed");
        proxy.mute();
        let task = NewTask::new(queue, "h");
        let task = match id {
            Some(id) => task.id(id),
            None => task,
        };
        let client = client.clone();
        let enqueuing = tokio::spawn(async move { client.enqueue(task).await });
        // The first try arrived, and its answer is lost.
        until("the task is admitted", async || {
            (direct.stats([queue]).await.unwrap()[0].pending == 1).then_some(())
        })
        .await;
        proxy.cut();

        let enqueued = awaited("the caller's answer", enqueuing).await.unwrap().unwrap();

        let tasks = direct.list(queue).pages().items().collect().await.unwrap();
        let ids: Vec<_> = tasks.iter().map(rdq_client::Task::id).collect();
        assert_eq!(ids, [enqueued.id.as_str()]);
        assert!(!enqueued.created, "the try whose answer was lost admitted it");
    }
}

#[tokio::test]
async fn enqueue_many_mixed() {
    let server = Server::start().await;
    let client = server.client().await;
    client.enqueue(NewTask::new("elsewhere", "h").id("taken")).await.unwrap();
    let mut config = QueueConfig::default();
    config.max_payload_bytes = Some(10);
    client.put_queue("small", config).await.unwrap();
    let tasks = (0..2_500).map(|index| match index {
        7 => NewTask::new(QUEUE, "h").id("taken"),
        1_300 => NewTask::new(" ", "h").id("nameless"),
        2_499 => NewTask::new("small", "h").id("large").payload("eleven bytes"),
        _ => NewTask::new(QUEUE, "h").id(format!("task-{index}")),
    });

    let answers = client.enqueue_many(tasks).await;

    assert_eq!(answers.len(), 2_500);
    for (index, answer) in answers.iter().enumerate() {
        match (index, answer) {
            (7, Err(error)) => assert!(matches!(error, Error::IdConflict(_)), "{error:?}"),
            (1_300, Err(error)) => assert!(matches!(error, Error::InvalidName(_)), "{error:?}"),
            (2_499, Err(error)) => {
                assert!(matches!(error, Error::PayloadTooLarge(_)), "{error:?}");
                assert_eq!((error.limit_bytes(), error.size_bytes()), (Some(10), Some(12)));
            }
            (_, Ok(enqueued)) => assert_eq!(enqueued.id, format!("task-{index}")),
            (_, Err(error)) => panic!("{index}: {error:?}"),
        }
    }
    assert_eq!(client.stats([QUEUE]).await.unwrap()[0].pending, 2_497);

    // What is too large for one request together goes in several.
    let large = (0..7).map(|_| NewTask::new("large", "h").payload(vec![7; 1 << 20]));
    let ids: HashSet<_> =
        client.enqueue_many(large).await.into_iter().map(|answer| answer.unwrap().id).collect();
    assert_eq!(ids.len(), 7);
    assert!(client.enqueue_many([]).await.is_empty());
}

#[tokio::test]
async fn version_mismatch() {
    let server = Server::start().await;
    let client = server.client().await;
    for (queue, mismatch) in
        [("strict", VersionMismatch::DeadLetter), ("lenient", VersionMismatch::RunLatest)]
    {
        let mut config = QueueConfig::default();
        config.version_mismatch = Some(mismatch);
        client.put_queue(queue, config).await.unwrap();
    }
    let handler = |name: &'static str| move |_: Claim| async move { Ok::<_, HandlerError>(name) };
    let worker = Worker::builder(&client)
        .queues(["strict", "lenient"])
        .handler_version("h", "1", handler("one"))
        .handler("h", handler("any"))
        .handler_version("only-versions", "1", handler("one"))
        .handler_version("only-versions", "2", handler("two"))
        .build()
        .unwrap()
        .start();
    for (queue, handler, version, expected) in [
        ("strict", "h", Some("1"), Some("one")),
        ("strict", "h", None, Some("any")),
        ("strict", "h", Some("9"), None),
        ("lenient", "h", Some("1"), Some("one")),
        ("lenient", "h", Some("9"), Some("any")),
        ("lenient", "only-versions", Some("9"), Some("two")),
    ] {
        let task = NewTask::new(queue, handler);
        let task = match version {
            Some(version) => task.handler_version(version),
            None => task,
        };
        let id = client.enqueue(task).await.unwrap().id;
        if let Some(result) = expected {
            let task = until_status(&client, &id, TaskStatus::Succeeded).await;
            assert_eq!(task.result(), result, "{queue} {handler} {version:?}");
        } else {
            let task = until_status(&client, &id, TaskStatus::Dead).await;
            let error = task.attempts()[0].error.as_ref().unwrap();
            assert_eq!(
                (error.error_type.as_str(), task.attempts().len()),
                ("rdq.VersionMismatch", 1)
            );
        }
    }
    worker.stop().await.unwrap();
}
