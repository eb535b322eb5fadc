//! The operator's half, and errors.

use crate::harness::{Interposer, Proxy, QUEUE, Rival, Server, until, until_status};
use rdq_client::{
    Claim, Client, Code, DlqFilter, Error, HandlerError, NewTask, Permanent, QueueConfig, Selector,
    Task, TaskStatus, Worker,
};
use rdq_proto::ERROR_DOMAIN;
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, SystemTime},
};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

const LONG: Duration = Duration::from_secs(600);

/// Makes dead letters with these ids and error types.
async fn bury(
    client: &Client,
    queue: &str,
    dead: impl IntoIterator<Item = (String, &'static str)>,
) {
    let dead: Vec<_> = dead.into_iter().collect();
    let tasks = dead
        .iter()
        .map(|(id, error_type)| NewTask::new(queue, "dies").id(id).header("error", *error_type));
    assert!(client.enqueue_many(tasks).await.iter().all(Result::is_ok));
    let worker = Worker::builder(client)
        .queue(queue)
        .handler("dies", |claim: Claim| async move {
            let error_type = claim.header("error").unwrap_or_default().to_owned();
            Err::<(), _>(Permanent(HandlerError::new(error_type, "dead")))
        })
        .build()
        .unwrap()
        .start();
    for (id, _) in &dead {
        until_status(client, id, TaskStatus::Dead).await;
    }
    worker.stop().await.unwrap();
}

fn ids(tasks: &[Task]) -> HashSet<&str> {
    tasks.iter().map(Task::id).collect()
}

#[tokio::test]
async fn page_iteration() {
    let server = Server::start().await;
    let client = server.client().await;
    let names: Vec<_> = (0..130).map(|index| format!("task-{index}")).collect();
    let tasks = names.iter().map(|id| NewTask::new("listed", "h").id(id));
    assert!(client.enqueue_many(tasks).await.iter().all(Result::is_ok));
    bury(&client, "dead", (0..70).map(|index| (format!("dead-{index}"), "gone"))).await;

    let listed = client.list("listed").pages().items().collect().await.unwrap();
    assert_eq!(listed.len(), 130, "each once");
    assert_eq!(ids(&listed), names.iter().map(String::as_str).collect());
    let pending = client.list("listed").status(TaskStatus::Pending).page_size(7).pages();
    let mut items = pending.items();
    let mut count = 0;
    while let Some(task) = items.next().await {
        assert_eq!(task.unwrap().id(), listed[count].id(), "the newest first");
        count += 1;
    }
    assert_eq!(count, 130);
    let none = client.list("listed").status(TaskStatus::Dead).pages().items().collect().await;
    assert!(none.unwrap().is_empty());

    let dead = client.dlq_list("dead").page_size(30).with_attempts().pages();
    let first = dead.page(None).await.unwrap();
    assert_eq!(first.items[0].attempts()[0].error.as_ref().unwrap().message, "dead");
    let second = dead.page(first.next.as_deref()).await.unwrap();
    assert!(ids(&first.items).is_disjoint(&ids(&second.items)));
    let all = dead.clone().items().collect().await.unwrap();
    assert_eq!((all.len(), ids(&all).len()), (70, 70));

    let mut tampered = first.next.unwrap();
    let other = if &tampered[10..11] == "A" { "B" } else { "A" };
    tampered.replace_range(10..11, other);
    let error = dead.page(Some(&tampered)).await.unwrap_err();
    assert!(matches!(error, Error::InvalidCursor(_)), "{error:?}");
}

#[tokio::test]
async fn operator_calls() {
    let server = Server::start().await;
    let client = server.client().await;
    assert_eq!(client.capabilities().await.unwrap().contract_version, "1.1");

    // Queues.
    let mut config = QueueConfig::default();
    config.max_attempts = Some(7);
    config.lease = Some(Duration::from_secs(5));
    config.permanent = vec!["http.4??".into()];
    let stored = client.put_queue(QUEUE, config.clone()).await.unwrap();
    assert_eq!((stored.name.as_str(), stored.config), (QUEUE, Some(config)));
    let queue = client.get_queue(QUEUE).await.unwrap();
    assert_eq!(queue.effective.max_attempts, Some(7));
    assert_eq!(queue.effective.multiplier, Some(2.0), "inherited");
    assert!(queue.updated_at.is_some());
    client.enqueue(NewTask::new("another", "h").id("waits")).await.unwrap();
    let queues = client.list_queues_with(1).items().collect().await.unwrap();
    let names: Vec<_> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["another", QUEUE]);
    assert_eq!(client.list_queues().page(None).await.unwrap().items.len(), 2);

    // Paused and resumed.
    let rival = Rival::at(&server.address());
    assert_eq!(client.pause_queue("another").await.unwrap().effective.paused, Some(true));
    assert!(rival.claim("another", LONG).await.is_none(), "it is paused");
    assert_eq!(client.resume_queue("another").await.unwrap().effective.paused, Some(false));
    rival.claims("another", LONG).await;
    let stats = client.stats(["another", "unknown"]).await.unwrap();
    assert_eq!((stats[0].in_flight, stats[0].pending, stats[1].in_flight), (1, 0, 0));
    assert_eq!(client.stats(Vec::<String>::new()).await.unwrap().len(), 2);

    // Dead letters, brought back by ids, by a filter, and all.
    let error_type = |index: usize| if index < 4 { "http.404" } else { "http.410" };
    bury(&client, QUEUE, (0..10).map(|index| (format!("dead-{index}"), error_type(index)))).await;
    let depth = async || client.stats([QUEUE]).await.unwrap()[0].dlq_depth;
    let some = || Selector::ids(["dead-9", "dead-8", "unknown"]);
    assert_eq!(client.redrive(QUEUE, some()).dry_run().run().await.unwrap(), 2);
    assert_eq!(depth().await, 10, "a dry run changes nothing");
    assert_eq!(client.redrive(QUEUE, some()).run().await.unwrap(), 2);
    let task = client.get("dead-9").await.unwrap();
    assert_eq!((task.status(), task.redrive_count()), (TaskStatus::Pending, 1));
    assert_eq!((task.attempt_count(), task.attempts().len()), (0, 1), "its history is kept");

    let not_found = DlqFilter::new().error_type("http.404").handler_ref("dies");
    let listed = client.dlq_list(QUEUE).filter(not_found.clone()).pages().items().collect().await;
    assert_eq!(listed.unwrap().len(), 4);
    let mut counts = client.redrive(QUEUE, not_found).spread_over(LONG).counts();
    let mut last = None;
    while let Some(count) = counts.next().await {
        last = Some(count.unwrap());
    }
    assert_eq!(last.map(|last| (last.count, last.done)), Some((4, true)));
    let epoch = SystemTime::UNIX_EPOCH;
    let never = DlqFilter::new().dead_from(epoch).dead_to(epoch + LONG);
    assert_eq!(client.purge(QUEUE, never).run().await.unwrap(), 0);
    assert_eq!(client.purge(QUEUE, Selector::ids(["dead-7"])).run().await.unwrap(), 1);
    assert!(matches!(client.get("dead-7").await, Err(Error::NotFound(_))));
    assert_eq!(client.purge(QUEUE, Selector::All).dry_run().run().await.unwrap(), 3);
    assert_eq!(client.redrive(QUEUE, Selector::All).rate_per_second(1e3).run().await.unwrap(), 3);
    assert_eq!(depth().await, 0);
    assert_eq!(client.purge(QUEUE, Selector::All).run().await.unwrap(), 0);
    let error = client.purge(QUEUE, DlqFilter::new()).run().await.unwrap_err();
    assert_eq!(error.count, 0);
    assert!(matches!(Error::from(error), Error::InvalidArgument(_)));

    client.put_queue("emptied", QueueConfig::default()).await.unwrap();
    assert!(client.delete_queue("emptied").await.unwrap());
    assert!(!client.delete_queue("emptied").await.unwrap());
}

#[tokio::test]
async fn errors_by_reason() {
    let server = Server::start().await;
    let client = server.client().await;
    let valid = || NewTask::new(QUEUE, "h");
    client.enqueue(valid().id("taken")).await.unwrap();

    let error = client.get("unknown").await.unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error:?}");
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!((error.reason(), error.metadata("task_id")), (Some("NOT_FOUND"), Some("unknown")));
    assert!(!error.is_retryable() && !error.outcome_unknown());
    let error = client.enqueue(NewTask::new("other", "h").id("taken")).await.unwrap_err();
    assert!(matches!(error, Error::IdConflict(_)), "{error:?}");
    let error = client.enqueue(NewTask::new("\n", "h")).await.unwrap_err();
    assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
    let error = client.enqueue(NewTask::new("__rdq_x", "h")).await.unwrap_err();
    assert!(matches!(error, Error::ReservedName(_)), "{error:?}");
    let error = client.enqueue(valid().max_attempts(0)).await.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    let error = client.enqueue(valid().payload(vec![0; (1 << 20) + 1])).await.unwrap_err();
    assert!(matches!(error, Error::PayloadTooLarge(_)), "{error:?}");
    let error = client.enqueue(valid().payload(vec![0; 9 << 20])).await.unwrap_err();
    assert!(matches!(error, Error::MessageTooLarge(_)), "{error:?}");
    let error = client.delete_queue(QUEUE).await.unwrap_err();
    assert!(matches!(error, Error::QueueNotEmpty(_)), "{error:?}");
    client.enqueue(valid()).await.unwrap();
    let pages = client.list(QUEUE).page_size(1).pages();
    let next = pages.page(None).await.unwrap().next;
    let error = client.list("other").pages().page(next.as_deref()).await.unwrap_err();
    assert!(matches!(error, Error::CursorBindingMismatch(_)), "{error:?}");
    let error = pages.page(Some("no token")).await.unwrap_err();
    assert!(matches!(error, Error::InvalidCursor(_)), "{error:?}");

    // Of a claim that somebody else ended.
    let rival = Rival::at(&server.address());
    let claim = rival.claims(QUEUE, LONG).await;
    client.cancel(&claim.id).await.unwrap();
    let error = rival.complete(&claim, "").await.unwrap_err();
    assert!(matches!(error, Error::StaleClaim(_)), "{error:?}");
    assert_eq!(error.metadata("detail"), Some("CANCELLED"));

    let strict = Server::start_with(&["--require-declared-queues"]).await;
    let error = strict.client().await.enqueue(valid()).await.unwrap_err();
    assert!(matches!(error, Error::QueueNotFound(_)), "{error:?}");

    // Of nobody who answers.
    let proxy = Proxy::before(server.address()).await;
    let far = Client::connect(proxy.address()).await.unwrap();
    proxy.hole();
    let error = far.with_deadline(Duration::from_millis(50)).get("taken").await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
    assert!(error.outcome_unknown());

    // What only a server's trouble provokes, and a reason that comes with a later contract.
    let before = Interposer::before(server.address()).await;
    let client = Client::connect(before.address()).await.unwrap();
    let say = |code, reason: &str| {
        let details = ErrorDetails::with_error_info(reason, ERROR_DOMAIN, HashMap::new());
        before.refuse("Get", Status::with_error_details(code, "no", details));
    };
    say(Code::FailedPrecondition, "NEVER_HEARD_OF");
    let error = client.get("taken").await.unwrap_err();
    assert!(matches!(error, Error::Other(_)), "{error:?}");
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!((error.reason(), error.message()), (Some("NEVER_HEARD_OF"), "no"));
    say(Code::ResourceExhausted, "STORAGE_FULL");
    assert!(matches!(client.get("taken").await, Err(Error::StorageFull(_))));
    // Repeated until it helps.
    say(Code::Unavailable, "STORAGE_UNAVAILABLE");
    let calling = tokio::spawn({
        let client = client.with_deadline(LONG);
        async move { client.get("taken").await }
    });
    let refused = before.refusals();
    until("it was tried again", async || (before.refusals() > refused + 1).then_some(())).await;
    before.allow("Get");
    assert_eq!(calling.await.unwrap().unwrap().id(), "taken");
}
