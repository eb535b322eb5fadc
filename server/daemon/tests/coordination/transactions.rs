//! Commit and Transact.

use super::*;

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
