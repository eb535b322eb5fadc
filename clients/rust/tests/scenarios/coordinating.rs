//! Events, locks, outboxes and transactions.

use crate::harness::{Proxy, QUEUE, Server, awaited, until};
use prost::Message as _;
use rdq_client::{
    Client, Code, Error, HandlerError, SubscriptionError, TaskStatus,
    v1::{
        self, lock_service_client::LockServiceClient, outbox_service_client::OutboxServiceClient,
        record_service_client::RecordServiceClient, stream_service_client::StreamServiceClient,
        transaction_service_client::TransactionServiceClient,
    },
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_secs(3_600);

/// Appends events, and answers with the offset of the last.
async fn publish(client: &Client, payloads: &[&'static str]) -> i64 {
    let mut streams = StreamServiceClient::new(client.connection());
    let mut offset = 0;
    for payload in payloads {
        let request = v1::PublishRequest {
            stream: "events".into(),
            payload: payload.as_bytes().into(),
            ..v1::PublishRequest::default()
        };
        offset = streams.publish(request).await.unwrap().into_inner().offset;
    }
    offset
}

async fn saved(client: &Client) -> i64 {
    let request = v1::GetOffsetRequest { stream: "events".into(), consumer: "reader".into() };
    let mut streams = StreamServiceClient::new(client.connection());
    streams.get_offset(request).await.unwrap().into_inner().offset
}

/// A subscription that runs.
struct Subscribed {
    events: mpsc::UnboundedReceiver<String>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), SubscriptionError<std::io::Error>>>,
}

impl Subscribed {
    /// Its handler fails at the payload that is named.
    fn start(client: &Client, fails_at: Option<&'static str>) -> Self {
        let (heard, events) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let subscription = client.subscription("events", "reader").events_per_message(2);
        let running = tokio::spawn(async move {
            let handler = |event: v1::StreamEvent| {
                let payload = String::from_utf8(event.payload.to_vec()).unwrap();
                let handled = if Some(payload.as_str()) == fails_at {
                    Err(std::io::Error::other("the handler failed"))
                } else {
                    heard.send(payload).map_err(std::io::Error::other)
                };
                async { handled }
            };
            subscription.run_until(stopped.cancelled_owned(), handler).await
        });
        Self { events, stop, running }
    }

    async fn gets(&mut self, payloads: &[&str]) {
        for payload in payloads {
            assert_eq!(awaited("an event", self.events.recv()).await.as_deref(), Some(*payload));
        }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        awaited("it stops", self.running).await.unwrap().unwrap();
        assert_eq!(self.events.recv().await, None, "no event more came");
    }
}

#[tokio::test]
async fn subscription() {
    let mut server = Server::start().await;
    let client = server.client().await;
    publish(&client, &["1", "2", "3"]).await;
    let mut first = Subscribed::start(&client, None);
    first.gets(&["1", "2", "3"]).await;
    let fifth = publish(&client, &["4", "5"]).await;
    first.gets(&["4", "5"]).await;
    until("the offset is saved", async || (saved(&client).await == fifth).then_some(())).await;

    server.kill();
    server.restart().await;
    let client = server.client().await;
    let seventh = publish(&client, &["6", "7"]).await;
    first.gets(&["6", "7"]).await;
    first.stop().await;
    assert_eq!(saved(&client).await, seventh);

    let eighth = publish(&client, &["8"]).await;
    publish(&client, &["9", "10"]).await;
    let mut second = Subscribed::start(&client, Some("9"));
    second.gets(&["8"]).await;
    let ended = awaited("the handler's error ends it", second.running).await.unwrap();
    assert!(matches!(ended, Err(SubscriptionError::Handler(_))), "{ended:?}");
    assert_eq!(saved(&client).await, eighth);
    let mut third = Subscribed::start(&client, None);
    third.gets(&["9", "10"]).await;
    third.stop().await;

    let nowhere = client.subscription(" ", "reader");
    let refused =
        nowhere.run_until(std::future::pending(), async |_| Ok::<_, std::io::Error>(())).await;
    assert!(
        matches!(refused, Err(SubscriptionError::Service(Error::InvalidName(_)))),
        "{refused:?}"
    );
}

async fn lock(client: &Client, name: &str) -> v1::GetLockResponse {
    let mut locks = LockServiceClient::new(client.connection());
    locks.get_lock(v1::GetLockRequest { name: name.into() }).await.unwrap().into_inner()
}

#[tokio::test]
async fn lock_guard() {
    const TTL: Duration = Duration::from_secs(4);
    let mut server = Server::start().await;
    let client = server.client().await;
    let first = client.lock("lock").ttl(TTL).acquire().await.unwrap().unwrap();
    assert!(client.lock("lock").acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(client.lock("lock").ttl(TTL).wait(HOUR).acquire());

    let begin = lock(&client, "lock").await.expires_at.unwrap().seconds;
    until("it is renewed for several ttls", async || {
        let end = lock(&client, "lock").await.expires_at.unwrap().seconds;
        (end - begin > 8).then_some(())
    })
    .await;
    let held = lock(&client, "lock").await;
    assert_eq!((held.owner.as_str(), held.generation), (first.owner(), first.generation()));
    assert!(!first.is_lost() && !waiting.is_finished());
    let generation = first.generation();
    first.release().await;
    let second = awaited("the one that waits has it", waiting).await.unwrap().unwrap().unwrap();
    assert!(second.generation() > generation);
    assert_eq!(second.name(), "lock");

    server.kill();
    let guarded = second.guard(std::future::pending::<()>());
    let lost = awaited("the holder is told", guarded).await.unwrap_err();
    assert!(std::error::Error::source(&lost).is_some(), "{lost:?}");
    assert!(second.is_lost() && second.cancellation().is_cancelled());
    let generation = second.generation();
    second.release().await;
    server.restart().await;
    let client = server.client().await;
    let third = client.lock("lock").wait(HOUR).acquire().await.unwrap().unwrap();
    assert!(third.generation() > generation);
    third.release().await;
    assert!(!lock(&client, "lock").await.held);
}

#[tokio::test]
async fn a_lock_that_is_taken_away_is_lost_and_one_that_is_dropped_is_released() {
    let server = Server::start().await;
    let client = server.client().await;
    let guard = client.lock("lock").ttl(Duration::from_secs(3)).owner("me").acquire().await;
    let guard = guard.unwrap().unwrap();
    let request = v1::LockServiceReleaseRequest {
        name: "lock".into(),
        owner: "me".into(),
        ..v1::LockServiceReleaseRequest::default()
    };
    LockServiceClient::new(client.connection()).release(request).await.unwrap();
    awaited("the holder is told", guard.lost()).await;

    drop(client.lock("other").ttl(HOUR).acquire().await.unwrap().unwrap());
    until("it is released", async || (!lock(&client, "other").await.held).then_some(())).await;
}

#[tokio::test]
async fn a_lock_out_of_reach_is_lost_and_one_that_may_be_held_is_given_back() {
    let server = Server::start().await;
    let direct = server.client().await;
    let proxy = Proxy::before(server.address()).await;
    let client = Client::connect(proxy.address()).await.unwrap();
    let guard = client.lock("lock").ttl(Duration::from_secs(3)).acquire().await.unwrap().unwrap();
    proxy.hole();
    awaited("the holder is told", guard.lost()).await;

    proxy.cut();
    client.capabilities().await.unwrap(); // there is a connection again
    proxy.hold();
    let trying = tokio::spawn(client.lock("other").ttl(HOUR).acquire());
    until("it is acquired", async || lock(&direct, "other").await.held.then_some(())).await;
    trying.abort();
    until("it is released", async || (!lock(&direct, "other").await.held).then_some(())).await;
}

async fn put(client: &Client, payload: &'static str) {
    let request = v1::OutboxServiceEnqueueRequest {
        outbox: "mail".into(),
        payload: payload.into(),
        ..v1::OutboxServiceEnqueueRequest::default()
    };
    OutboxServiceClient::new(client.connection()).enqueue(request).await.unwrap();
}

async fn unprojected(client: &Client) -> i64 {
    let request = v1::CountUnprojectedRequest { outbox: Some("mail".into()) };
    let mut outboxes = OutboxServiceClient::new(client.connection());
    outboxes.count_unprojected(request).await.unwrap().into_inner().counts[0].unprojected
}

async fn claim_as_rival(client: &Client) -> Option<v1::OutboxMessage> {
    let request = v1::ClaimBatchRequest {
        worker_id: "rival".into(),
        lease: Some(prost_types::Duration { seconds: 3_600, nanos: 0 }),
        ..v1::ClaimBatchRequest::default()
    };
    let mut outboxes = OutboxServiceClient::new(client.connection());
    outboxes.claim_batch(request).await.unwrap().into_inner().messages.pop()
}

async fn never(message: v1::OutboxMessage) -> Result<(), HandlerError> {
    panic!("delivered again: {message:?}");
}

#[tokio::test]
async fn outbox_relay() {
    let server = Server::start().await;
    let client = server.client().await;
    let relay = client.outbox_relay().outbox("mail");
    assert!(!relay.run_once("me", never).await.unwrap());
    put(&client, "one").await;
    let mut delivered = Vec::new();
    let found = relay.run_once("me", async |message| {
        delivered.push(message.payload);
        Ok::<_, HandlerError>(())
    });
    assert!(found.await.unwrap());
    assert_eq!(delivered, ["one"]);
    assert_eq!(unprojected(&client).await, 0);
    assert!(!relay.run_once("me", never).await.unwrap());

    put(&client, "two").await;
    let fails = async |_| Err(HandlerError::new("smtp.421", "not now"));
    assert!(relay.run_once("me", fails).await.unwrap());
    let (heard, mut again) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let looping = tokio::spawn({
        let (relay, stop) = (relay.clone(), stop.clone());
        async move {
            let deliver = |message: v1::OutboxMessage| {
                let sent = heard.send(message).map_err(|_| HandlerError::new("gone", ""));
                async { sent }
            };
            relay.run_until("me", stop.cancelled_owned(), deliver).await
        }
    });
    let second = awaited("it comes again", again.recv()).await.unwrap();
    assert_eq!((&*second.payload, second.attempt_count), (&b"two"[..], 2));
    assert_eq!(second.last_error, "smtp.421: not now");
    until("it is projected", async || (unprojected(&client).await == 0).then_some(())).await;
    stop.cancel();
    awaited("the loop stops", looping).await.unwrap().unwrap();
    put(&client, "three").await;
    assert!(again.recv().await.is_none(), "nothing more is delivered");

    // One whose claim ends while it is delivered is another's, and that is no error.
    let hasty = client.outbox_relay().lease(Duration::from_millis(10));
    for fails in [false, true] {
        let rival = Arc::new(std::sync::Mutex::new(None));
        let found = hasty.run_once("me", async |_| {
            let claimed = until("another claims it", async || claim_as_rival(&client).await).await;
            *rival.lock().unwrap() = Some(claimed);
            if fails { Err(HandlerError::new("late", "too late")) } else { Ok(()) }
        });
        assert!(found.await.unwrap());
        let claimed = rival.lock().unwrap().take().unwrap();
        let request = v1::ReleaseWithErrorRequest {
            id: claimed.id,
            worker_id: "rival".into(),
            generation: claimed.generation,
            ..v1::ReleaseWithErrorRequest::default()
        };
        let mut outboxes = OutboxServiceClient::new(client.connection());
        outboxes.release_with_error(request).await.unwrap();
    }

    // One that is broken off is due at once.
    let patient = client.outbox_relay().outbox("mail").lease(HOUR);
    let (begun, mut began) = mpsc::unbounded_channel();
    let delivering = tokio::spawn(async move {
        let deliver = async |_| {
            begun.send(()).unwrap();
            std::future::pending::<Result<(), HandlerError>>().await
        };
        patient.run_once("me", deliver).await
    });
    awaited("the delivery begins", began.recv()).await.unwrap();
    delivering.abort();
    let third = until("it is given back", async || claim_as_rival(&client).await).await;
    assert_eq!(
        (&*third.payload, third.last_error.as_str()),
        (&b"three"[..], "the delivery was broken off")
    );
}

async fn commit_as(client: &Client, id: &'static str) -> Result<v1::CommitResponse, Error> {
    let task = v1::Task {
        id: id.into(),
        queue: QUEUE.into(),
        handler_ref: "h".into(),
        ..v1::Task::default()
    };
    let operations = [
        v1::operation::Operation::Publish(v1::PublishRequest {
            stream: "events".into(),
            payload: id.into(),
            ..v1::PublishRequest::default()
        }),
        v1::operation::Operation::Enqueue(v1::EnqueueRequest { task: task.encode_to_vec().into() }),
        v1::operation::Operation::CompareAndSet(v1::CompareAndSetRequest {
            key: "record".into(),
            value: id.into(),
            expected_revision: 0,
        }),
    ];
    let operations = operations.map(|operation| v1::Operation { operation: Some(operation) });
    let request = v1::CommitRequest { operations: operations.into() };
    let mut transactions = TransactionServiceClient::new(client.connection());
    Ok(transactions.commit(request).await?.into_inner())
}

async fn only_the_first_is_there(client: &Client) {
    let request = v1::ReadRequest {
        stream: "events".into(),
        start: Some(v1::read_request::Start::Offset(0)),
        ..v1::ReadRequest::default()
    };
    let read = StreamServiceClient::new(client.connection()).read(request).await.unwrap();
    let payloads: Vec<_> =
        read.into_inner().events.into_iter().map(|event| event.payload).collect();
    assert_eq!(payloads, ["first"]);
    let request = v1::GetRecordRequest { key: "record".into() };
    let record = RecordServiceClient::new(client.connection()).get_record(request).await.unwrap();
    let record = record.into_inner().record.unwrap();
    assert_eq!((&*record.value, record.revision), (&b"first"[..], 1));
}

#[tokio::test]
async fn commit() {
    let server = Server::start().await;
    let client = server.client().await;
    commit_as(&client, "first").await.unwrap();
    only_the_first_is_there(&client).await;
    assert_eq!(client.get("first").await.unwrap().status(), TaskStatus::Pending);

    let conflict = commit_as(&client, "second").await.unwrap_err();
    assert!(matches!(conflict, Error::CasConflict(_)), "{conflict:?}");
    assert_eq!(conflict.metadata("operation_index"), Some("2"));
    assert_eq!(conflict.metadata("key"), Some("record"));
    assert!(!conflict.is_retryable());
    only_the_first_is_there(&client).await;
    assert!(matches!(client.get("second").await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn stubs_have_the_deadline_of_the_client() {
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let client = Client::connect(proxy.address()).await.unwrap();
    proxy.hole();
    let hasty = client.with_deadline(Duration::from_millis(50));
    let request = v1::GetRecordRequest { key: "k".into() };
    let late = RecordServiceClient::new(hasty.connection()).get_record(request).await.unwrap_err();
    assert_eq!(Error::from(late).code(), Code::DeadlineExceeded);
}
