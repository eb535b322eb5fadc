//! Names and values at their bounds, at every call.

use super::*;

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
