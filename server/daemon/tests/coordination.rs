//! Coordination over the wire, as a client sees it: the answers, and what they leave behind.
#![allow(clippy::pedantic, clippy::unwrap_used, reason = "stories of calls, long by nature")]

mod support;

use rdq_proto::v1::{
    self, lock_service_client::LockServiceClient, operation::Operation as Op,
    operation_result::Result as Done, outbox_service_client::OutboxServiceClient,
    read_request::Start, record_service_client::RecordServiceClient, selector::Selection,
    signal_service_client::SignalServiceClient, stream_service_client::StreamServiceClient,
    transact_request::Request as Ask, transact_response::Response as Answer,
    transaction_service_client::TransactionServiceClient,
};
use std::time::Duration;
use support::{Served, encoded, millis, reason, seconds, serve, task};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt as _;

const MIB: usize = 1 << 20;

struct Clients {
    served: Served,
    signals: SignalServiceClient<Channel>,
    streams: StreamServiceClient<Channel>,
    locks: LockServiceClient<Channel>,
    records: RecordServiceClient<Channel>,
    outboxes: OutboxServiceClient<Channel>,
    transactions: TransactionServiceClient<Channel>,
}

async fn clients() -> Clients {
    let served = serve().await;
    let channel = || served.channel.clone();
    Clients {
        signals: SignalServiceClient::new(channel()),
        streams: StreamServiceClient::new(channel()),
        locks: LockServiceClient::new(channel()),
        records: RecordServiceClient::new(channel()),
        outboxes: OutboxServiceClient::new(channel()),
        transactions: TransactionServiceClient::new(channel()),
        served,
    }
}

fn metadata(status: &Status, key: &str) -> String {
    let details = status.get_error_details();
    details.error_info().and_then(|info| info.metadata.get(key).cloned()).unwrap_or_default()
}

fn publish(stream: &str, payload: impl Into<bytes::Bytes>) -> v1::PublishRequest {
    v1::PublishRequest { stream: stream.into(), key: None, payload: payload.into() }
}

fn read(stream: &str, start: Option<Start>, limit: Option<i32>) -> v1::ReadRequest {
    v1::ReadRequest { stream: stream.into(), start, limit }
}

fn subscribe(stream: &str) -> v1::SubscribeRequest {
    v1::SubscribeRequest { stream: stream.into(), consumer: "reader".into(), limit: None }
}

fn message(outbox: &str, id: &str) -> v1::OutboxServiceEnqueueRequest {
    v1::OutboxServiceEnqueueRequest {
        outbox: outbox.into(),
        id: id.into(),
        payload: "hello".into(),
        ..Default::default()
    }
}

fn commit(operations: Vec<Op>) -> v1::CommitRequest {
    let operation = |operation| v1::Operation { operation: Some(operation) };
    v1::CommitRequest { operations: operations.into_iter().map(operation).collect() }
}

impl Clients {
    async fn publish(&mut self, stream: &str, text: &str) -> i64 {
        let request = publish(stream, text.to_owned());
        self.streams.publish(request).await.unwrap().into_inner().offset
    }

    async fn read_all(&mut self, stream: &str) -> Vec<String> {
        let request = read(stream, Some(Start::Offset(0)), Some(1_000));
        let events = self.streams.read(request).await.unwrap().into_inner().events;
        events.iter().map(|event| String::from_utf8_lossy(&event.payload).into()).collect()
    }

    async fn save(&mut self, stream: &str, consumer: &str, offset: i64) -> i64 {
        let (stream, consumer) = (stream.into(), consumer.into());
        let request = v1::SaveOffsetRequest { stream, consumer, offset };
        self.streams.save_offset(request).await.unwrap().into_inner().offset
    }

    async fn claim(&mut self, outbox: Option<&str>, limit: i32) -> Vec<v1::OutboxMessage> {
        let request = v1::ClaimBatchRequest {
            outbox: outbox.map(Into::into),
            limit: Some(limit),
            lease: None,
            worker_id: "relay".into(),
        };
        self.outboxes.claim_batch(request).await.unwrap().into_inner().messages
    }

    async fn claim_one(&mut self, outbox: &str) -> v1::OutboxMessage {
        let mut claimed = self.claim(Some(outbox), 1).await;
        assert_eq!(claimed.len(), 1, "a message is available");
        claimed.remove(0)
    }

    async fn mark(&mut self, message: &v1::OutboxMessage) -> Result<bool, Status> {
        let request = v1::MarkProjectedRequest {
            id: message.id.clone(),
            worker_id: message.worker_id.clone(),
            generation: message.generation,
        };
        Ok(self.outboxes.mark_projected(request).await?.into_inner().replayed)
    }

    async fn unprojected(&mut self, outbox: &str) -> i64 {
        let request = v1::CountUnprojectedRequest { outbox: Some(outbox.into()) };
        let counts = self.outboxes.count_unprojected(request).await.unwrap().into_inner().counts;
        assert_eq!(counts.len(), 1);
        counts[0].unprojected
    }

    async fn transact(&mut self) -> Turns {
        let (asks, requests) = mpsc::channel(4);
        let answers = self.transactions.transact(ReceiverStream::new(requests)).await.unwrap();
        Turns { asks, answers: answers.into_inner() }
    }
}

/// An interactive transaction.
struct Turns {
    asks: mpsc::Sender<v1::TransactRequest>,
    answers: Streaming<v1::TransactResponse>,
}

impl Turns {
    async fn ask(&mut self, request: Option<Ask>) -> Answer {
        self.asks.send(v1::TransactRequest { request }).await.unwrap();
        self.answers.message().await.unwrap().unwrap().response.unwrap()
    }

    async fn apply(&mut self, operations: Vec<Op>) -> Answer {
        self.ask(Some(Ask::Apply(commit(operations)))).await
    }

    async fn texts(&mut self, stream: &str) -> Vec<String> {
        let request = read(stream, Some(Start::Offset(0)), None);
        let Answer::Events(response) = self.ask(Some(Ask::ReadStream(request))).await else {
            panic!("no events");
        };
        let text = |event: &v1::StreamEvent| String::from_utf8_lossy(&event.payload).into();
        response.events.iter().map(text).collect()
    }

    async fn commit(mut self) {
        let answer = self.ask(Some(Ask::Commit(v1::CommitTransaction {}))).await;
        assert!(matches!(answer, Answer::Committed(_)), "{answer:?}");
        assert!(self.answers.message().await.unwrap().is_none(), "it is the last message");
    }
}

fn refused(answer: Answer) -> (String, Option<i32>) {
    let Answer::Error(v1::TransactError { error: Some(error), operation_index }) = answer else {
        panic!("not refused: {answer:?}");
    };
    (error.reason().reason().to_owned(), operation_index)
}

#[tokio::test]
async fn what_the_storage_has_is_among_the_capabilities() {
    let mut clients = clients().await;
    let offer = clients.served.tasks.get_capabilities(v1::GetCapabilitiesRequest {}).await;
    let named = offer.unwrap().into_inner().capabilities;
    for expected in [
        "signals",
        "streams",
        "locks",
        "records",
        "outbox",
        "transactions",
        "interactive_transactions",
    ] {
        assert!(named.iter().any(|name| name == expected), "{expected} in {named:?}");
    }
}

#[tokio::test]
async fn events_are_read_in_their_order_from_any_start_and_up_to_any_limit() {
    let mut clients = clients().await;
    let first = clients.publish("s", "one").await;
    let keyed = v1::PublishRequest { key: Some("k".into()), ..publish("s", "two") };
    let second = clients.streams.publish(keyed).await.unwrap().into_inner().offset;
    assert!(second > first);

    let from_start = read("s", Some(Start::Offset(i64::MIN)), None);
    let events = clients.streams.read(from_start).await.unwrap().into_inner().events;
    let [one, two] = &events[..] else { panic!("{events:?}") };
    assert_eq!((one.offset, &one.payload[..], &one.key), (first, &b"one"[..], &None));
    assert_eq!((two.offset, &two.stream[..], two.key.as_deref()), (second, "s", Some("k")));
    assert!(one.created_at.is_some());

    for (start, limit, expected) in [
        (Start::Offset(first), None, 1),
        (Start::Offset(second), None, 0),
        (Start::Offset(i64::MAX), None, 0),
        (Start::Offset(-5), Some(1), 1),
        (Start::Offset(0), Some(0), 0),
        (Start::Offset(0), Some(i32::MIN), 0),
        (Start::Offset(0), Some(i32::MAX), 2),
        (Start::Consumer("reader".into()), None, 2),
    ] {
        let request = read("s", Some(start.clone()), limit);
        let events = clients.streams.read(request).await.unwrap().into_inner().events;
        assert_eq!(events.len(), expected, "{start:?} {limit:?}");
    }
    assert_eq!(clients.save("s", "reader", first).await, first);
    assert_eq!(clients.save("s", "reader", -7).await, first, "it never goes back");
    let request = read("s", Some(Start::Consumer("reader".into())), None);
    assert_eq!(clients.streams.read(request).await.unwrap().into_inner().events.len(), 1);
    let trim = |horizon| v1::TrimRequest { stream: "s".into(), horizon };
    for (horizon, count) in [(i64::MIN, 0), (first, 1), (first, 0), (i64::MAX, 1)] {
        let trimmed = clients.streams.trim(trim(horizon)).await.unwrap().into_inner();
        assert_eq!(trimmed.count, count, "{horizon}");
    }
}

#[tokio::test]
async fn an_answer_is_never_larger_than_a_client_reads() {
    let mut clients = clients().await;
    for _ in 0..6 {
        let request = publish("s", vec![7; MIB]);
        clients.streams.publish(request).await.unwrap();
    }
    let mut seen = 0;
    let mut after = 0;
    while seen < 6 {
        let request = read("s", Some(Start::Offset(after)), Some(1_000));
        let events = clients.streams.read(request).await.unwrap().into_inner().events;
        assert!((1..=3).contains(&events.len()), "{}", events.len());
        seen += events.len();
        after = events.last().unwrap().offset;
    }
    let mut subscription = clients.streams.subscribe(subscribe("s")).await.unwrap().into_inner();
    let mut seen = 0;
    while seen < 6 {
        seen += subscription.message().await.unwrap().unwrap().events.len();
    }
}

#[tokio::test]
async fn a_subscription_gets_what_is_there_and_then_what_comes() {
    let mut clients = clients().await;
    let first = clients.publish("s", "old").await;
    clients.publish("s", "one").await;
    clients.save("s", "reader", first).await;
    let mut events = clients.streams.subscribe(subscribe("s")).await.unwrap().into_inner();
    let mut texts = Vec::new();
    for next in [None, Some("two"), Some("three")] {
        if let Some(text) = next {
            clients.publish("s", text).await;
        }
        let expected = texts.len() + 1;
        while texts.len() < expected {
            let events = events.message().await.unwrap().unwrap().events;
            texts.extend(events.iter().map(|it| String::from_utf8_lossy(&it.payload).into_owned()));
        }
    }
    assert_eq!(texts, ["one", "two", "three"]);
    let saved = v1::GetOffsetRequest { stream: "s".into(), consumer: "reader".into() };
    let saved = clients.streams.get_offset(saved).await.unwrap().into_inner().offset;
    assert_eq!(saved, first, "the server saves nothing");

    let Clients { served, .. } = clients;
    let (ended, over) = tokio::join!(served.server.shutdown(), async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    });
    ended.unwrap();
    let over = over.expect_err("a drain ends it");
    assert_eq!((over.code(), reason(&over)), (Code::Unavailable, "CLOSED".into()));
}

#[tokio::test]
async fn a_listener_is_attached_at_its_first_message_and_woken_by_its_channel_alone() {
    let mut clients = clients().await;
    let listen = v1::ListenRequest { channel: "c".into() };
    let mut wakes = clients.signals.listen(listen).await.unwrap().into_inner();
    let first = wakes.message().await.unwrap().unwrap();
    assert_eq!((first.channel.as_str(), first.reconnected), ("", false));
    for channel in ["other", "c"] {
        let request = v1::NotifyRequest { channel: channel.into(), payload: vec![1; MIB].into() };
        clients.signals.notify(request).await.unwrap();
    }
    assert_eq!(wakes.message().await.unwrap().unwrap().channel, "c");

    let Clients { served, .. } = clients;
    let (ended, over) = tokio::join!(served.server.shutdown(), wakes.message());
    ended.unwrap();
    assert_eq!(reason(&over.expect_err("a drain ends it")), "CLOSED");
}

#[tokio::test]
async fn a_lock_has_one_holder_until_it_is_released() {
    let mut clients = clients().await;
    let try_lock = |owner: &str| v1::TryLockRequest {
        name: "l".into(),
        owner: owner.into(),
        ttl: Some(seconds(60)),
    };
    let first = clients.locks.try_lock(try_lock("a")).await.unwrap().into_inner();
    assert!(first.acquired && first.generation > 0);
    let again = clients.locks.try_lock(try_lock("a")).await.unwrap().into_inner();
    assert_eq!((again.generation, again.expires_at), (first.generation, first.expires_at));
    let other = clients.locks.try_lock(try_lock("b")).await.unwrap().into_inner();
    assert_eq!(other, v1::TryLockResponse::default(), "an answer, not an error");

    let renew = |owner: &str, generation| v1::RenewRequest {
        name: "l".into(),
        owner: owner.into(),
        generation,
        ttl: Some(seconds(120)),
    };
    let renewed = clients.locks.renew(renew("a", None)).await.unwrap().into_inner();
    assert!(
        renewed.renewed && renewed.expires_at.unwrap().seconds > first.expires_at.unwrap().seconds
    );
    for (owner, generation) in [("b", None), ("a", Some(first.generation + 1))] {
        let renewed = clients.locks.renew(renew(owner, generation)).await.unwrap().into_inner();
        assert_eq!(renewed, v1::RenewResponse::default(), "{owner} {generation:?}");
    }
    let get = || v1::GetLockRequest { name: "l".into() };
    let held = clients.locks.get_lock(get()).await.unwrap().into_inner();
    assert_eq!((held.held, held.owner.as_str()), (true, "a"));
    assert!((119..=120).contains(&held.remaining.unwrap().seconds), "{held:?}");

    let release = || v1::LockServiceReleaseRequest {
        name: "l".into(),
        owner: "a".into(),
        generation: Some(first.generation),
    };
    assert!(clients.locks.release(release()).await.unwrap().into_inner().released);
    assert!(!clients.locks.release(release()).await.unwrap().into_inner().released);
    let held = clients.locks.get_lock(get()).await.unwrap().into_inner();
    assert_eq!(held, v1::GetLockResponse::default());
    let next = clients.locks.try_lock(try_lock("b")).await.unwrap().into_inner();
    assert!(next.generation > first.generation);
}

#[tokio::test]
async fn a_record_is_changed_by_who_knows_its_revision() {
    let mut clients = clients().await;
    let set = |expected_revision, value: &str| v1::CompareAndSetRequest {
        key: "r".into(),
        value: value.to_owned().into(),
        expected_revision,
    };
    let get = || v1::GetRecordRequest { key: "r".into() };
    let missing = clients.records.get_record(get()).await.unwrap_err();
    assert_eq!((missing.code(), reason(&missing)), (Code::NotFound, "NOT_FOUND".into()));
    let lost = clients.records.compare_and_set(set(3, "x")).await.unwrap_err();
    assert_eq!((lost.code(), reason(&lost)), (Code::Aborted, "CAS_CONFLICT".into()));
    assert_eq!(metadata(&lost, "key"), "r");
    assert_eq!(metadata(&lost, "expected_revision"), "3");

    assert_eq!(
        clients.records.compare_and_set(set(0, "a")).await.unwrap().into_inner().revision,
        1
    );
    assert_eq!(
        clients.records.compare_and_set(set(1, "b")).await.unwrap().into_inner().revision,
        2
    );
    let record = clients.records.get_record(get()).await.unwrap().into_inner().record.unwrap();
    assert_eq!((&record.value[..], record.revision), (&b"b"[..], 2));
    let delete = || v1::DeleteRecordRequest { key: "r".into(), expected_revision: 2 };
    clients.records.delete_record(delete()).await.unwrap();
    let twice = clients.records.delete_record(delete()).await.unwrap_err();
    assert_eq!(reason(&twice), "CAS_CONFLICT");
    assert_eq!(
        clients.records.compare_and_set(set(0, "c")).await.unwrap().into_inner().revision,
        3
    );

    for key in ["p/1", "p/2", "p/3", "q"] {
        let set = v1::CompareAndSetRequest { key: key.into(), ..set(0, "x") };
        clients.records.compare_and_set(set).await.unwrap();
    }
    let list = |prefix: &str, page_size, page_token: &str| v1::ListRecordsRequest {
        prefix: prefix.into(),
        page_size: Some(page_size),
        page_token: page_token.into(),
    };
    let first = clients.records.list_records(list("p/", 2, "")).await.unwrap().into_inner();
    let token = first.next_page_token;
    let next = clients.records.list_records(list("p/", 2, &token)).await.unwrap().into_inner();
    let keys: Vec<_> = first.records.iter().chain(&next.records).map(|it| &it.key[..]).collect();
    assert_eq!((keys, next.next_page_token.as_str()), (vec!["p/1", "p/2", "p/3"], ""));
    let elsewhere = clients.records.list_records(list("q", 2, &token)).await.unwrap_err();
    assert_eq!(reason(&elsewhere), "CURSOR_BINDING_MISMATCH");
    for size in [0, -1, i32::MIN] {
        let page = clients.records.list_records(list("", size, "")).await.unwrap().into_inner();
        assert_eq!(page, v1::ListRecordsResponse::default());
    }
}

#[tokio::test]
async fn a_message_goes_through_its_outbox() {
    let mut clients = clients().await;
    let mut first = message("orders", "m1");
    first.headers.insert("h".into(), "v".into());
    let answer = clients.outboxes.enqueue(first.clone()).await.unwrap().into_inner();
    assert_eq!((answer.id.as_str(), answer.created), ("m1", true));
    assert!(!clients.outboxes.enqueue(first).await.unwrap().into_inner().created);
    clients.outboxes.enqueue(message("orders", "")).await.unwrap();
    let conflict = clients.outboxes.enqueue(message("other", "m1")).await.unwrap_err();
    assert_eq!(reason(&conflict), "ID_CONFLICT");
    assert_eq!(clients.unprojected("orders").await, 2);
    assert_eq!(clients.unprojected("nobody").await, 0);

    let claimed = clients.claim_one("orders").await;
    assert_eq!((claimed.id.as_str(), claimed.outbox.as_str()), ("m1", "orders"));
    assert_eq!((&claimed.payload[..], claimed.headers["h"].as_str()), (&b"hello"[..], "v"));
    assert_eq!((claimed.attempt_count, claimed.last_error.as_str()), (1, ""));
    assert_eq!(claimed.worker_id, "relay");
    assert_eq!(claimed.available_at, claimed.created_at);
    assert!(claimed.lease_expires_at.is_some() && claimed.generation > 0);

    let release = |message: &v1::OutboxMessage| v1::ReleaseWithErrorRequest {
        id: message.id.clone(),
        worker_id: message.worker_id.clone(),
        generation: message.generation,
        error: "no route".into(),
        delay: Some(millis(30)),
    };
    let mut last = claimed;
    // Far more often than a task would be tried: releases end nothing.
    for round in 2..=8 {
        let released = clients.outboxes.release_with_error(release(&last)).await.unwrap();
        let available_at = released.into_inner().available_at;
        assert!(available_at.is_some());
        let mut next = clients.claim(Some("orders"), 2).await;
        while !next.iter().any(|message| message.id == "m1") {
            tokio::time::sleep(Duration::from_millis(5)).await;
            next.extend(clients.claim(Some("orders"), 2).await);
        }
        next.retain(|message| message.id == "m1");
        let next = next.remove(0);
        assert_eq!((next.attempt_count, next.last_error.as_str()), (round, "no route"));
        assert_eq!(next.available_at, available_at);
        let late = clients.outboxes.release_with_error(release(&last)).await.unwrap_err();
        assert_eq!(reason(&late), "OUTBOX_CLAIM_MISMATCH");
        let late = clients.mark(&last).await.unwrap_err();
        assert_eq!((late.code(), reason(&late)), (Code::Aborted, "OUTBOX_CLAIM_MISMATCH".into()));
        assert_eq!(metadata(&late, "id"), "m1");
        last = next;
    }
    let foreign = v1::OutboxMessage { worker_id: "another".into(), ..last.clone() };
    assert_eq!(reason(&clients.mark(&foreign).await.unwrap_err()), "OUTBOX_CLAIM_MISMATCH");
    assert!(!clients.mark(&last).await.unwrap());
    assert!(clients.mark(&last).await.unwrap(), "again is no error");
    assert!(clients.mark(&foreign).await.unwrap(), "whatever claim it names");
    let done = clients.outboxes.release_with_error(release(&last)).await.unwrap_err();
    assert_eq!(reason(&done), "OUTBOX_CLAIM_MISMATCH");
    let missing = v1::OutboxMessage { id: "nothing".into(), ..last };
    let missing = clients.mark(&missing).await.unwrap_err();
    assert_eq!((missing.code(), reason(&missing)), (Code::NotFound, "OUTBOX_MISSING".into()));
}

#[tokio::test]
async fn a_failed_message_backs_off_and_dies_at_the_fifth_time() {
    let mut clients = clients().await;
    clients.outboxes.enqueue(message("o", "m")).await.unwrap();
    let fail = |message: &v1::OutboxMessage| v1::OutboxServiceFailRequest {
        id: message.id.clone(),
        worker_id: message.worker_id.clone(),
        generation: message.generation,
        error: "broken".into(),
    };
    // Spent by releases, so that no backoff has to pass.
    for _ in 0..3 {
        let claimed = clients.claim_one("o").await;
        let release = v1::ReleaseWithErrorRequest {
            id: claimed.id,
            worker_id: claimed.worker_id,
            generation: claimed.generation,
            ..Default::default()
        };
        clients.outboxes.release_with_error(release).await.unwrap();
    }
    let claimed = clients.claim_one("o").await;
    let failed = clients.outboxes.fail(fail(&claimed)).await.unwrap().into_inner();
    assert!(!failed.dead);
    let wait =
        failed.available_at.unwrap().seconds - claimed.lease_expires_at.unwrap().seconds + 60;
    assert!((31..=49).contains(&wait), "5 s, doubled three times, within a fifth: {wait}");
    assert!(clients.claim(Some("o"), 1).await.is_empty());

    clients.outboxes.enqueue(message("o", "n")).await.unwrap();
    for _ in 0..4 {
        let claimed = clients.claim_one("o").await;
        let release = v1::ReleaseWithErrorRequest {
            id: claimed.id,
            worker_id: claimed.worker_id,
            generation: claimed.generation,
            ..Default::default()
        };
        clients.outboxes.release_with_error(release).await.unwrap();
    }
    let claimed = clients.claim_one("o").await;
    let failed = clients.outboxes.fail(fail(&claimed)).await.unwrap().into_inner();
    assert_eq!((failed.dead, failed.available_at), (true, None));
    assert_eq!(reason(&clients.mark(&claimed).await.unwrap_err()), "OUTBOX_CLAIM_MISMATCH");

    let tasks = &mut clients.served.tasks;
    let list = v1::DlqListRequest { outbox: Some("o".into()), ..Default::default() };
    let dead = tasks.dlq_list(list).await.unwrap().into_inner().tasks;
    assert_eq!(dead.len(), 1);
    assert_eq!(support::decoded(&dead[0]).id, "n");
    let stats = v1::StatsRequest { queues: vec![], outboxes: vec!["o".into()] };
    let stats = tasks.stats(stats).await.unwrap().into_inner().queues;
    assert_eq!((stats.len(), stats[0].outbox.as_deref(), stats[0].dlq_depth), (1, Some("o"), 1));
    let all = || Some(v1::Selector { selection: Some(Selection::All(true)) });
    let redrive =
        v1::RedriveRequest { selector: all(), outbox: Some("o".into()), ..Default::default() };
    let mut counts = tasks.redrive(redrive).await.unwrap().into_inner();
    while counts.message().await.unwrap().is_some() {}
    assert_eq!(clients.claim_one("o").await.id, "n");
}

#[tokio::test]
async fn messages_are_claimed_from_every_outbox_and_oldest_first() {
    let mut clients = clients().await;
    assert!(clients.claim(None, 10).await.is_empty());
    for number in 0..70 {
        let id = |kind: &str| format!("{number:02}{kind}");
        clients.outboxes.enqueue(message(&format!("o{number}"), &id("a"))).await.unwrap();
        clients.outboxes.enqueue(message(&format!("o{number}"), &id("b"))).await.unwrap();
    }
    clients.served.enqueue(&task("t", "q")).await.unwrap();
    let one = clients.claim(Some("o7"), 10).await;
    assert_eq!(one.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["07a", "07b"]);
    let mut claimed = Vec::new();
    while claimed.len() < 138 {
        let batch = clients.claim(None, 50).await;
        assert!((1..=50).contains(&batch.len()), "{} of what is left", batch.len());
        claimed.extend(batch);
    }
    let mut ids: Vec<_> = claimed.into_iter().map(|message| message.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 138, "each once, and no task among them");
    assert!(clients.claim(None, 10).await.is_empty());
    for limit in [0, -1, i32::MIN] {
        assert!(clients.claim(None, limit).await.is_empty());
    }
}

#[tokio::test]
async fn no_call_about_tasks_reaches_an_outbox_that_it_does_not_name() {
    let mut clients = clients().await;
    clients.outboxes.enqueue(message("o", "m")).await.unwrap();
    clients.served.enqueue(&task("t", "q")).await.unwrap();
    let Clients { served, .. } = &mut clients;
    let get = |outbox: Option<&str>, id: &str| v1::GetRequest {
        id: id.into(),
        outbox: outbox.map(Into::into),
    };
    for (outbox, id) in [(None, "m"), (Some("p"), "m"), (Some("o"), "t")] {
        let status = served.tasks.get(get(outbox, id)).await.unwrap_err();
        assert_eq!(reason(&status), "NOT_FOUND", "{outbox:?} {id}");
    }
    let found = served.tasks.get(get(Some("o"), "m")).await.unwrap().into_inner();
    assert_eq!(support::decoded(&found.task).id, "m");
    let cancel = served.tasks.cancel(v1::CancelRequest { id: "m".into() }).await.unwrap_err();
    assert_eq!(reason(&cancel), "NOT_FOUND");
    let conflict = served.enqueue(&task("m", "q")).await.unwrap_err();
    assert_eq!(reason(&conflict), "ID_CONFLICT");
    let queues = served.queues.list_queues(v1::ListQueuesRequest::default()).await.unwrap();
    let names: Vec<_> = queues.into_inner().queues.into_iter().map(|queue| queue.name).collect();
    assert_eq!(names, ["q"]);
    let stats = served.tasks.stats(v1::StatsRequest::default()).await.unwrap().into_inner();
    assert_eq!(stats.queues.len(), 1);
    assert_eq!((stats.queues[0].queue.as_str(), &stats.queues[0].outbox), ("q", &None));
    let both =
        v1::DlqListRequest { queue: "q".into(), outbox: Some("o".into()), ..Default::default() };
    assert_eq!(reason(&served.tasks.dlq_list(both).await.unwrap_err()), "INVALID_ARGUMENT");

    let claim = served.claim("q", 1).await.remove(0);
    let not_a_message = v1::OutboxMessage {
        id: "t".into(),
        worker_id: "worker".into(),
        generation: claim.generation,
        ..Default::default()
    };
    assert_eq!(reason(&clients.mark(&not_a_message).await.unwrap_err()), "OUTBOX_MISSING");
    let cancel = commit(vec![Op::Cancel(v1::CancelRequest { id: "m".into() })]);
    let status = clients.transactions.commit(cancel).await.unwrap_err();
    assert_eq!(
        (reason(&status), metadata(&status, "operation_index")),
        ("NOT_FOUND".into(), "0".into())
    );
    assert_eq!(clients.unprojected("o").await, 1);
}

#[tokio::test]
async fn a_commit_does_all_kinds_of_operations_or_none() {
    let mut clients = clients().await;
    clients.served.enqueue(&task("claimed", "w")).await.unwrap();
    let claim = clients.served.claim("w", 1).await.remove(0);
    clients.served.enqueue(&task("cancelled", "q")).await.unwrap();
    for id in ["mine", "released"] {
        clients.outboxes.enqueue(message("o", id)).await.unwrap();
    }
    let held = clients.claim(Some("o"), 2).await;
    let set = |key: &str, expected_revision| v1::CompareAndSetRequest {
        key: key.into(),
        value: "v".into(),
        expected_revision,
    };
    clients.records.compare_and_set(set("gone", 0)).await.unwrap();
    let complete = v1::CompleteRequest {
        id: "claimed".into(),
        claim_token: claim.claim_token,
        ..Default::default()
    };
    let operations = || {
        vec![
            Op::Enqueue(v1::EnqueueRequest { task: encoded(&task("new", "q")) }),
            Op::Publish(publish("s", "event")),
            Op::Notify(v1::NotifyRequest { channel: "c".into(), payload: "p".into() }),
            Op::SaveOffset(v1::SaveOffsetRequest {
                stream: "s".into(),
                consumer: "reader".into(),
                offset: 7,
            }),
            Op::OutboxEnqueue(message("o", "sent")),
            Op::CompareAndSet(set("made", 0)),
            Op::DeleteRecord(v1::DeleteRecordRequest { key: "gone".into(), expected_revision: 1 }),
            Op::Cancel(v1::CancelRequest { id: "cancelled".into() }),
            Op::Resolve(v1::Resolution {
                call: Some(v1::resolution::Call::Complete(complete.clone())),
                decided_fail: false,
            }),
            Op::MarkProjected(v1::MarkProjectedRequest {
                id: held[0].id.clone(),
                worker_id: "relay".into(),
                generation: held[0].generation,
            }),
            Op::ReleaseWithError(v1::ReleaseWithErrorRequest {
                id: held[1].id.clone(),
                worker_id: "relay".into(),
                generation: held[1].generation,
                error: "no".into(),
                delay: None,
            }),
        ]
    };
    // What fails last fails all.
    let mut failing = operations();
    failing.push(Op::CompareAndSet(set("made", 9)));
    let status = clients.transactions.commit(commit(failing)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::Aborted, "CAS_CONFLICT".into()));
    assert_eq!(metadata(&status, "operation_index"), "11");
    assert!(clients.read_all("s").await.is_empty());
    assert_eq!(clients.unprojected("o").await, 2);
    assert!(clients.claim(Some("o"), 5).await.is_empty());

    let listen = v1::ListenRequest { channel: "c".into() };
    let mut wakes = clients.signals.listen(listen).await.unwrap().into_inner();
    wakes.message().await.unwrap();
    let results = clients.transactions.commit(commit(operations())).await.unwrap();
    let results: Vec<_> =
        results.into_inner().results.into_iter().map(|it| it.result.unwrap()).collect();
    assert_eq!(wakes.message().await.unwrap().unwrap().channel, "c");
    let [
        Done::Enqueue(enqueued),
        Done::Publish(published),
        Done::Notify(_),
        Done::SaveOffset(saved),
        Done::OutboxEnqueue(sent),
        Done::CompareAndSet(made),
        Done::DeleteRecord(_),
        Done::Cancel(cancelled),
        Done::Resolve(resolved),
        Done::MarkProjected(marked),
        Done::ReleaseWithError(released),
    ] = &results[..]
    else {
        panic!("{results:?}");
    };
    assert_eq!((enqueued.id.as_str(), enqueued.created), ("new", true));
    assert!(published.offset > 0);
    assert_eq!((saved.offset, made.revision), (7, 1));
    assert_eq!((sent.id.as_str(), sent.created), ("sent", true));
    assert!(cancelled.cancelled && !marked.replayed && released.available_at.is_some());
    assert_eq!(resolved.status(), v1::TaskStatus::Succeeded);
    assert_eq!(clients.read_all("s").await, ["event"]);
    assert_eq!(clients.served.get("cancelled").await.status(), v1::TaskStatus::Cancelled);
    let next = clients.claim(Some("o"), 5).await;
    let next: Vec<_> = next.iter().map(|it| (it.id.as_str(), it.last_error.as_str())).collect();
    assert!(next.contains(&("released", "no")) && next.contains(&("sent", "")), "{next:?}");

    // What was marked before is marked, inside a commit too.
    let again = commit(vec![operations().remove(9)]);
    let again = clients.transactions.commit(again).await.unwrap().into_inner();
    let Some(Done::MarkProjected(again)) = &again.results[0].result else { panic!("{again:?}") };
    assert!(again.replayed);
    let late = commit(vec![Op::Publish(publish("s", "never")), operations().remove(10)]);
    let late = clients.transactions.commit(late).await.unwrap_err();
    assert_eq!(reason(&late), "OUTBOX_CLAIM_MISMATCH");
    assert_eq!(metadata(&late, "operation_index"), "1");
    assert_eq!(clients.read_all("s").await, ["event"]);
}

#[tokio::test]
async fn a_transaction_reads_what_it_wrote_and_nobody_else_does_before_its_commit() {
    let mut clients = clients().await;
    let mut turns = clients.transact().await;
    let applied = turns
        .apply(vec![
            Op::Enqueue(v1::EnqueueRequest { task: encoded(&task("t", "q")) }),
            Op::Publish(publish("s", "one")),
            Op::SaveOffset(v1::SaveOffsetRequest {
                stream: "s".into(),
                consumer: "reader".into(),
                offset: 1,
            }),
            Op::OutboxEnqueue(message("o", "m")),
        ])
        .await;
    assert!(matches!(&applied, Answer::Applied(it) if it.results.len() == 4), "{applied:?}");
    assert_eq!(turns.texts("s").await, ["one"]);
    let get = |id: &str, outbox: Option<&str>| {
        Some(Ask::GetTask(v1::GetRequest { id: id.into(), outbox: outbox.map(Into::into) }))
    };
    assert!(matches!(turns.ask(get("t", None)).await, Answer::Task(_)));
    assert!(matches!(turns.ask(get("m", Some("o"))).await, Answer::Task(_)));
    assert_eq!(refused(turns.ask(get("m", None)).await), ("NOT_FOUND".into(), None));
    let offset = v1::GetOffsetRequest { stream: "s".into(), consumer: "reader".into() };
    let offset = turns.ask(Some(Ask::GetOffset(offset))).await;
    assert!(matches!(offset, Answer::Offset(it) if it.offset == 1), "{offset:?}");
    assert!(clients.read_all("s").await.is_empty());
    assert!(clients.served.claim("q", 1).await.is_empty());

    // A refusal changes nothing, and it goes on.
    let set = v1::CompareAndSetRequest { key: "r".into(), value: "v".into(), expected_revision: 5 };
    let answer = turns.apply(vec![Op::Publish(publish("s", "no")), Op::CompareAndSet(set)]).await;
    assert_eq!(refused(answer), ("CAS_CONFLICT".into(), Some(1)));
    let answer = turns.apply(vec![Op::Publish(publish("s", "no")), Op::Publish(publish("", "no"))]);
    assert_eq!(refused(answer.await), ("INVALID_NAME".into(), Some(1)));
    assert_eq!(refused(turns.ask(None).await), ("INVALID_ARGUMENT".into(), None));
    assert_eq!(refused(turns.apply(vec![]).await), ("INVALID_ARGUMENT".into(), None));
    assert_eq!(
        refused(turns.apply(vec![Op::Cancel(v1::CancelRequest { id: "m".into() })]).await),
        ("NOT_FOUND".into(), Some(0))
    );
    assert_eq!(turns.texts("s").await, ["one"]);
    turns.commit().await;
    assert_eq!(clients.read_all("s").await, ["one"]);
    assert_eq!(clients.served.claim("q", 1).await.len(), 1);
    assert_eq!(clients.claim_one("o").await.id, "m");
}

#[tokio::test]
async fn the_end_of_the_stream_rolls_back_however_it_comes() {
    let mut clients = clients().await;
    for round in 0..3 {
        let mut turns = clients.transact().await;
        turns.apply(vec![Op::Publish(publish("s", "never"))]).await;
        match round {
            // In order.
            0 => {
                drop(turns.asks);
                assert!(turns.answers.message().await.unwrap().is_none());
            }
            // A client that is gone.
            1 => drop(turns),
            _ => {
                let Turns { asks, answers } = turns;
                drop(answers);
                drop(asks);
            }
        }
        assert!(clients.read_all("s").await.is_empty());
    }
    clients.publish("s", "after").await;
    assert_eq!(clients.read_all("s").await, ["after"]);

    let mut turns = clients.transact().await;
    turns.apply(vec![Op::Publish(publish("s", "drained"))]).await;
    let Clients { served, .. } = clients;
    let (ended, over) = tokio::join!(served.server.shutdown(), turns.answers.message());
    ended.unwrap();
    assert_eq!(reason(&over.expect_err("a drain ends it")), "CLOSED");
}

#[tokio::test]
async fn a_client_has_so_many_transactions_open_and_no_more() {
    let mut clients = clients().await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(clients.transact().await);
    }
    let (_asks, requests) = mpsc::channel(1);
    let status = clients.transactions.transact(ReceiverStream::new(requests)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::ResourceExhausted, "OVERLOADED".into()));
    open.pop().unwrap().commit().await;
    clients.transact().await.commit().await;
}

#[tokio::test]
async fn bad_operations_of_a_commit_are_named_by_place_and_field_before_anything_happens() {
    let mut clients = clients().await;
    let good = || Op::Publish(publish("s", "never"));
    let cas = |key: &str, expected_revision| {
        Op::CompareAndSet(v1::CompareAndSetRequest {
            key: key.into(),
            value: "v".into(),
            expected_revision,
        })
    };
    let held = |id: &str, worker_id: &str| {
        Op::MarkProjected(v1::MarkProjectedRequest {
            id: id.into(),
            worker_id: worker_id.into(),
            generation: 1,
        })
    };
    for (bad, expected, field) in [
        (Op::Publish(publish("", "x")), "INVALID_NAME", "publish.stream"),
        (Op::Publish(publish("__rdq_x", "x")), "RESERVED_NAME", "publish.stream"),
        (Op::Publish(publish("s", vec![0; MIB + 1])), "PAYLOAD_TOO_LARGE", "publish.payload"),
        (
            Op::Publish(v1::PublishRequest { key: Some(String::new()), ..publish("s", "x") }),
            "INVALID_NAME",
            "publish.key",
        ),
        (Op::Notify(v1::NotifyRequest::default()), "INVALID_NAME", "notify.channel"),
        (
            Op::SaveOffset(v1::SaveOffsetRequest { stream: "s".into(), ..Default::default() }),
            "INVALID_NAME",
            "save_offset.consumer",
        ),
        (
            Op::Enqueue(v1::EnqueueRequest { task: encoded(&task("t", "__rdq_outbox:o")) }),
            "RESERVED_NAME",
            "enqueue.task.queue",
        ),
        (Op::OutboxEnqueue(message("__rdq_x", "m")), "RESERVED_NAME", "outbox_enqueue.outbox"),
        (Op::OutboxEnqueue(message("o", "\0")), "INVALID_ARGUMENT", "outbox_enqueue.id"),
        (cas("", 0), "INVALID_NAME", "compare_and_set.key"),
        (cas("r", -1), "INVALID_ARGUMENT", "compare_and_set.expected_revision"),
        (
            Op::DeleteRecord(v1::DeleteRecordRequest { key: "r".into(), expected_revision: 0 }),
            "INVALID_ARGUMENT",
            "delete_record.expected_revision",
        ),
        (Op::Cancel(v1::CancelRequest::default()), "INVALID_ARGUMENT", "cancel.id"),
        (Op::Resolve(v1::Resolution::default()), "INVALID_ARGUMENT", "resolve.call"),
        (held("", "w"), "INVALID_ARGUMENT", "mark_projected.id"),
        (held("m", "\n"), "INVALID_NAME", "mark_projected.worker_id"),
    ] {
        let request = commit(vec![good(), bad]);
        let status = clients.transactions.commit(request).await.unwrap_err();
        assert_eq!(reason(&status), expected, "{field}: {status:?}");
        assert_eq!(metadata(&status, "operation_index"), "1", "{field}");
        assert_eq!(metadata(&status, "field"), format!("operations[1].{field}"));
        let violations = status.get_error_details();
        let violations = violations.bad_request().unwrap().field_violations.clone();
        assert_eq!(violations[0].field, format!("operations[1].{field}"));
    }
    let unset = v1::CommitRequest {
        operations: vec![v1::Operation { operation: Some(good()) }, v1::Operation::default()],
    };
    let status = clients.transactions.commit(unset).await.unwrap_err();
    assert_eq!(reason(&status), "INVALID_ARGUMENT");
    assert_eq!(metadata(&status, "field"), "operations[1].operation");
    for count in [0, 1_001] {
        let status = clients.transactions.commit(commit(vec![good(); count])).await.unwrap_err();
        assert_eq!(
            (reason(&status), metadata(&status, "field")),
            ("INVALID_ARGUMENT".into(), "operations".into())
        );
    }
    assert!(clients.read_all("s").await.is_empty(), "nothing happened");
    let at_limit = vec![good(); 1_000];
    clients.transactions.commit(commit(at_limit)).await.expect("exactly the limit");
    let huge = commit(vec![Op::Publish(publish("s", vec![0; MIB])); 9]);
    let status = clients.transactions.commit(huge).await.unwrap_err();
    assert_eq!(reason(&status), "MESSAGE_TOO_LARGE");
}

#[tokio::test]
async fn names_outside_the_grammar_are_refused_by_every_call() {
    let mut clients = clients().await;
    let long = "n".repeat(241);
    for (name, expected, owner_expected) in [
        ("", "INVALID_NAME", Some("INVALID_NAME")),
        ("\u{a0}\u{2003}", "INVALID_NAME", Some("INVALID_NAME")),
        (long.as_str(), "INVALID_NAME", Some("INVALID_NAME")),
        ("a\0b", "INVALID_NAME", Some("INVALID_NAME")),
        ("a\nb", "INVALID_NAME", Some("INVALID_NAME")),
        ("__rdq_", "RESERVED_NAME", None),
        ("__rdq_outbox:x", "RESERVED_NAME", None),
    ] {
        let refused = |status: Status, field: &str| {
            assert_eq!(reason(&status), expected, "{name:?}: {status:?}");
            assert_eq!(metadata(&status, "field"), field, "{name:?}: {status:?}");
        };
        let Clients { signals, streams, locks, records, outboxes, .. } = &mut clients;
        let notify = v1::NotifyRequest { channel: name.into(), ..Default::default() };
        refused(signals.notify(notify).await.unwrap_err(), "channel");
        let listen = v1::ListenRequest { channel: name.into() };
        refused(signals.listen(listen).await.unwrap_err(), "channel");
        refused(streams.publish(publish(name, "x")).await.unwrap_err(), "stream");
        let start = Some(Start::Offset(0));
        refused(streams.read(read(name, start, None)).await.unwrap_err(), "stream");
        refused(streams.subscribe(subscribe(name)).await.unwrap_err(), "stream");
        let save = v1::SaveOffsetRequest { stream: name.into(), consumer: "c".into(), offset: 0 };
        refused(streams.save_offset(save).await.unwrap_err(), "stream");
        let get = v1::GetOffsetRequest { stream: name.into(), consumer: "c".into() };
        refused(streams.get_offset(get).await.unwrap_err(), "stream");
        let trim = v1::TrimRequest { stream: name.into(), horizon: 0 };
        refused(streams.trim(trim).await.unwrap_err(), "stream");
        let lock =
            v1::TryLockRequest { name: name.into(), owner: "o".into(), ttl: Some(seconds(1)) };
        refused(locks.try_lock(lock).await.unwrap_err(), "name");
        let renew = v1::RenewRequest {
            name: name.into(),
            owner: "o".into(),
            ttl: Some(seconds(1)),
            generation: None,
        };
        refused(locks.renew(renew).await.unwrap_err(), "name");
        let release = v1::LockServiceReleaseRequest {
            name: name.into(),
            owner: "o".into(),
            generation: None,
        };
        refused(locks.release(release).await.unwrap_err(), "name");
        refused(
            locks.get_lock(v1::GetLockRequest { name: name.into() }).await.unwrap_err(),
            "name",
        );
        refused(outboxes.enqueue(message(name, "m")).await.unwrap_err(), "outbox");
        let claim = v1::ClaimBatchRequest {
            outbox: Some(name.into()),
            worker_id: "w".into(),
            ..Default::default()
        };
        refused(outboxes.claim_batch(claim).await.unwrap_err(), "outbox");
        let count = v1::CountUnprojectedRequest { outbox: Some(name.into()) };
        refused(outboxes.count_unprojected(count).await.unwrap_err(), "outbox");

        // Of the caller's own alone: the reserved prefix is nobody's concern there.
        let Some(expected) = owner_expected else { continue };
        let refused = |status: Status, field: &str| {
            assert_eq!(reason(&status), expected, "{name:?}: {status:?}");
            assert_eq!(metadata(&status, "field"), field, "{name:?}: {status:?}");
        };
        let start = Some(Start::Consumer(name.into()));
        refused(streams.read(read("s", start, None)).await.unwrap_err(), "consumer");
        let by = v1::SubscribeRequest { consumer: name.into(), ..subscribe("s") };
        refused(streams.subscribe(by).await.unwrap_err(), "consumer");
        let lock =
            v1::TryLockRequest { name: "l".into(), owner: name.into(), ttl: Some(seconds(1)) };
        refused(locks.try_lock(lock).await.unwrap_err(), "owner");
        let get = v1::GetRecordRequest { key: name.into() };
        refused(records.get_record(get).await.unwrap_err(), "key");
        let delete = v1::DeleteRecordRequest { key: name.into(), expected_revision: 1 };
        refused(records.delete_record(delete).await.unwrap_err(), "key");
        let claim = v1::ClaimBatchRequest { worker_id: name.into(), ..Default::default() };
        refused(outboxes.claim_batch(claim).await.unwrap_err(), "worker_id");
    }
    for prefix in [long.as_str(), "a\0", "\t"] {
        let list = v1::ListRecordsRequest { prefix: prefix.into(), ..Default::default() };
        let status = clients.records.list_records(list).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_NAME", "{prefix:?}");
    }
    for key in ["", &"k".repeat(1_025)] {
        let request = v1::PublishRequest { key: Some(key.to_owned()), ..publish("s", "x") };
        let status = clients.streams.publish(request).await.unwrap_err();
        assert_eq!(
            (reason(&status), metadata(&status, "field")),
            ("INVALID_NAME".into(), "key".into())
        );
    }
    assert!(clients.read_all("s").await.is_empty(), "nothing was stored");
}

#[tokio::test]
async fn strange_but_valid_names_stay_distinct() {
    let mut clients = clients().await;
    let names = ["%", "_", "'", "\\", "a:b", "🦀", "عربي", "a", "a ", "A", "e\u{301}", "é"];
    for name in names {
        clients.publish(name, name).await;
        clients.outboxes.enqueue(message(name, &format!("id {name}"))).await.unwrap();
    }
    for name in names {
        assert_eq!(clients.read_all(name).await, [name]);
        let claimed = clients.claim(Some(name), 5).await;
        assert_eq!(claimed.len(), 1, "{name:?}");
        assert_eq!(claimed[0].outbox, name);
    }
}

#[tokio::test]
async fn values_outside_their_range_are_refused_by_field() {
    let mut clients = clients().await;
    let invalid = |status: Status, field: &str| {
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{field}: {status:?}");
        assert_eq!(metadata(&status, "field"), field, "{status:?}");
    };
    let nanos = |nanos| prost_types::Duration { seconds: 0, nanos };
    for ttl in [
        None,
        Some(seconds(0)),
        Some(seconds(-1)),
        Some(seconds(i64::MIN)),
        Some(nanos(999_999)),
        Some(seconds(12 * 3_600 + 1)),
        Some(seconds(i64::MAX)),
        Some(prost_types::Duration { seconds: 1, nanos: -1 }),
    ] {
        let lock = v1::TryLockRequest { name: "l".into(), owner: "o".into(), ttl };
        invalid(clients.locks.try_lock(lock).await.unwrap_err(), "ttl");
        let renew = v1::RenewRequest { name: "l".into(), owner: "o".into(), generation: None, ttl };
        invalid(clients.locks.renew(renew).await.unwrap_err(), "ttl");
    }
    for ttl in [nanos(1_000_000), seconds(12 * 3_600)] {
        let name = format!("l{}", ttl.seconds);
        let lock = v1::TryLockRequest { name, owner: "o".into(), ttl: Some(ttl) };
        assert!(clients.locks.try_lock(lock).await.unwrap().into_inner().acquired);
    }
    invalid(clients.streams.read(read("s", None, None)).await.unwrap_err(), "start");
    for limit in [0, -1, i32::MIN] {
        let request = v1::SubscribeRequest { limit: Some(limit), ..subscribe("s") };
        invalid(clients.streams.subscribe(request).await.unwrap_err(), "limit");
    }
    for lease in [seconds(0), seconds(-1), nanos(9_999_999), seconds(12 * 3_600 + 1)] {
        let request = v1::ClaimBatchRequest {
            lease: Some(lease),
            worker_id: "w".into(),
            ..Default::default()
        };
        invalid(clients.outboxes.claim_batch(request).await.unwrap_err(), "lease");
    }
    let header = |key: &str| std::collections::HashMap::from([(key.to_owned(), String::new())]);
    for headers in [header("rdq.x"), header("")] {
        let request = v1::OutboxServiceEnqueueRequest { headers, ..message("o", "m") };
        invalid(clients.outboxes.enqueue(request).await.unwrap_err(), "headers");
    }
    let odd = Some(prost_types::Duration { seconds: 1, nanos: -1 });
    let request = v1::OutboxServiceEnqueueRequest { delay: odd, ..message("o", "m") };
    invalid(clients.outboxes.enqueue(request).await.unwrap_err(), "delay");
    for delay in [seconds(-5), seconds(0)] {
        let request = v1::OutboxServiceEnqueueRequest { delay: Some(delay), ..message("o", "") };
        clients.outboxes.enqueue(request).await.expect("now");
    }
    assert_eq!(clients.claim(Some("o"), 10).await.len(), 2);

    let set = |size| v1::CompareAndSetRequest {
        key: "r".into(),
        value: vec![1; size].into(),
        expected_revision: 0,
    };
    let large = |payload: usize| v1::OutboxServiceEnqueueRequest {
        payload: vec![1; payload].into(),
        ..message("o", "large")
    };
    for (status, field) in [
        (clients.streams.publish(publish("s", vec![1; MIB + 1])).await.unwrap_err(), "payload"),
        (clients.records.compare_and_set(set(MIB + 1)).await.unwrap_err(), "value"),
        (clients.outboxes.enqueue(large(MIB + 1)).await.unwrap_err(), "payload"),
    ] {
        assert_eq!(
            (reason(&status), metadata(&status, "field")),
            ("PAYLOAD_TOO_LARGE".into(), field.into())
        );
        assert_eq!(metadata(&status, "limit_bytes"), MIB.to_string());
        assert_eq!(metadata(&status, "size_bytes"), (MIB + 1).to_string());
    }
    clients.streams.publish(publish("s", vec![1; MIB])).await.expect("exactly the limit");
    clients.records.compare_and_set(set(MIB)).await.expect("exactly the limit");
    clients.outboxes.enqueue(large(MIB)).await.expect("exactly the limit");
}
