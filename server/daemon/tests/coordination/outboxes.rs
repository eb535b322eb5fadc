//! Outboxes.

use super::*;

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
