//! Each RPC over the wire, as a client sees it: the answer, and what it leaves behind.
#![allow(clippy::pedantic, clippy::unwrap_used, reason = "stories of calls, long by nature")]

mod support;

use futures::StreamExt as _;
use prost::Message as _;
use rdq_proto::v1::{self, TaskStatus, resolution::Call, selector::Selection};
use support::{Served, decoded, encoded, reason, seconds, serve, task};

fn failed(error_type: &str) -> bytes::Bytes {
    let error =
        v1::AttemptError { r#type: error_type.into(), message: "no".into(), ..Default::default() };
    v1::Attempt { error: error.encode_to_vec().into(), ..Default::default() }.encode_to_vec().into()
}

fn all() -> Option<v1::Selector> {
    Some(v1::Selector { selection: Some(Selection::All(true)) })
}

async fn claimed(served: &mut Served, id: &str, queue: &str) -> v1::ClaimedTask {
    served.enqueue(&task(id, queue)).await.expect("admitted");
    served.claim(queue, 1).await.remove(0)
}

async fn dead(served: &mut Served, id: &str, queue: &str) {
    let claim = claimed(served, id, queue).await;
    let request = v1::DeadLetterRequest {
        id: id.into(),
        claim_token: claim.claim_token,
        attempt: failed("bad.request"),
    };
    served.tasks.dead_letter(request).await.expect("dead");
}

#[tokio::test]
async fn enqueue_answers_whether_the_task_is_new_and_makes_an_id_where_there_is_none() {
    let mut served = serve().await;
    let first = served.enqueue(&task("t", "q")).await.unwrap();
    assert_eq!(
        (first.id.as_str(), first.created, first.status()),
        ("t", true, TaskStatus::Pending)
    );
    let again = served.enqueue(&v1::Task { priority: 9, ..task("t", "q") }).await.unwrap();
    assert!(!again.created);
    assert_eq!(served.get("t").await.priority, 0, "the first admission wins");
    let conflict = served.enqueue(&task("t", "other")).await.unwrap_err();
    assert_eq!(reason(&conflict), "ID_CONFLICT");

    let made = served.enqueue(&task("", "q")).await.unwrap();
    assert_eq!(made.id.len(), 26, "a ULID: {}", made.id);
    assert_eq!(served.get(&made.id).await.id, made.id);
    let next = served.enqueue(&task("", "q")).await.unwrap();
    assert!(made.id < next.id, "ids stand in the order of their making");
}

#[tokio::test]
async fn a_claim_carries_all_that_a_worker_needs() {
    let mut served = serve().await;
    let mut sent = task("t", "q");
    sent.headers.insert("traceparent".into(), "00-1-2-01".into());
    sent.handler_version = Some("v2".into());
    served.enqueue(&sent).await.unwrap();
    let claim = served.claim("q", 5).await.remove(0);
    let task = decoded(&claim.task);
    assert_eq!(
        (task.payload, task.headers, task.handler_version),
        (sent.payload, sent.headers, sent.handler_version)
    );
    assert_eq!(task.status, TaskStatus::InFlight as i32);
    assert_eq!(task.claimed_by, "worker");
    assert!(task.lease_expires_at.is_some() && task.claimed_at.is_some());
    assert!(task.next_attempt_at.is_none());
    assert_eq!((claim.attempt_no, claim.max_attempts), (1, 5));
    assert!(claim.generation > 0);
    let remaining = claim.lease_remaining.unwrap();
    assert!((1..=60).contains(&remaining.seconds), "{remaining:?}");
    assert_eq!(claim.version_mismatch(), v1::HandlerVersionMismatch::RunLatest);
    assert!(served.claim("q", 5).await.is_empty(), "no second claim");
}

#[tokio::test]
async fn complete_keeps_the_result_and_a_repetition_is_replayed() {
    let mut served = serve().await;
    let claim = claimed(&mut served, "t", "q").await;
    let request = v1::CompleteRequest {
        id: "t".into(),
        claim_token: claim.claim_token.clone(),
        attempt: bytes::Bytes::new(),
        result: "done".into(),
    };
    assert!(!served.tasks.complete(request.clone()).await.unwrap().into_inner().replayed);
    assert!(served.tasks.complete(request).await.unwrap().into_inner().replayed);
    let task = served.get("t").await;
    assert_eq!((task.status(), &task.result[..]), (TaskStatus::Succeeded, &b"done"[..]));
    assert!(task.finished_at.is_some() && task.lease_expires_at.is_none());
    let attempt = v1::Attempt::decode(task.attempts[0].clone()).unwrap();
    assert_eq!((attempt.attempt_no, attempt.outcome()), (1, v1::AttemptOutcome::Success));
    assert_eq!(attempt.worker_id, "worker");

    let claim_token = claim.claim_token;
    let other = v1::DeadLetterRequest {
        id: "t".into(),
        claim_token: claim_token.clone(),
        ..Default::default()
    };
    assert_eq!(reason(&served.tasks.dead_letter(other).await.unwrap_err()), "STALE_CLAIM");
    let extend = v1::ExtendLeaseRequest { id: "t".into(), claim_token, ..Default::default() };
    assert_eq!(reason(&served.tasks.extend_lease(extend).await.unwrap_err()), "STALE_CLAIM");
}

#[tokio::test]
async fn fail_retries_with_backoff_until_the_attempts_are_spent() {
    let mut served = serve().await;
    let config = v1::QueueConfig {
        retry: Some(v1::RetryConfig {
            max_attempts: Some(2),
            initial_backoff: Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = v1::PutQueueRequest { name: "q".into(), config: Some(config) };
    served.queues.put_queue(request).await.unwrap();
    let claim = claimed(&mut served, "t", "q").await;
    let fail = |claim: v1::ClaimedTask| v1::FailRequest {
        id: "t".into(),
        claim_token: claim.claim_token,
        attempt: failed("http.503"),
    };
    let first = served.tasks.fail(fail(claim)).await.unwrap().into_inner();
    assert_eq!(first.status(), TaskStatus::Pending);
    assert!(first.next_attempt_at.is_some());

    let claim = loop {
        if let Some(claim) = served.claim("q", 1).await.pop() {
            break claim;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(claim.attempt_no, 2);
    let repeated = fail(claim.clone());
    let last = served.tasks.fail(fail(claim)).await.unwrap().into_inner();
    assert_eq!(last.status(), TaskStatus::Dead);
    let replayed = served.tasks.fail(repeated).await.unwrap().into_inner();
    assert!(replayed.replayed && replayed.status() == TaskStatus::Dead);
    let task = served.get("t").await;
    assert_eq!((task.attempt_count, task.attempts.len()), (2, 2));
}

#[tokio::test]
async fn fail_classifies_by_type_unless_the_worker_judges() {
    let mut served = serve().await;
    let config = v1::QueueConfig {
        classification: Some(v1::ClassificationConfig {
            retryable: vec!["http.4*".into()],
            permanent: vec!["http.40?".into()],
        }),
        ..Default::default()
    };
    let request = v1::PutQueueRequest { name: "q".into(), config: Some(config) };
    served.queues.put_queue(request).await.unwrap();
    for (error_type, judged, expected) in [
        ("http.404", v1::AttemptOutcome::Unspecified, TaskStatus::Dead),
        ("http.429", v1::AttemptOutcome::Unspecified, TaskStatus::Pending),
        ("anything", v1::AttemptOutcome::Unspecified, TaskStatus::Pending),
        ("http.404", v1::AttemptOutcome::RetryableFailure, TaskStatus::Pending),
        ("anything", v1::AttemptOutcome::PermanentFailure, TaskStatus::Dead),
    ] {
        let id = format!("{error_type}-{judged:?}");
        let claim = claimed(&mut served, &id, "q").await;
        let error = v1::AttemptError { r#type: error_type.into(), ..Default::default() };
        let attempt = v1::Attempt {
            outcome: judged.into(),
            error: error.encode_to_vec().into(),
            ..Default::default()
        };
        let attempt = attempt.encode_to_vec().into();
        let request = v1::FailRequest { id: id.clone(), claim_token: claim.claim_token, attempt };
        let response = served.tasks.fail(request).await.unwrap().into_inner();
        assert_eq!(response.status(), expected, "{id}");
    }
}

#[tokio::test]
async fn reschedule_release_and_extend_do_what_they_say() {
    let mut served = serve().await;
    let claim = claimed(&mut served, "t", "q").await;
    let extend = v1::ExtendLeaseRequest {
        id: "t".into(),
        claim_token: claim.claim_token.clone(),
        lease: Some(seconds(600)),
        progress: Some("half".into()),
    };
    let extended = served.tasks.extend_lease(extend).await.unwrap().into_inner();
    assert!(extended.lease_remaining.unwrap().seconds > 500);
    assert_eq!(&served.get("t").await.progress[..], b"half");

    let release =
        v1::ReleaseRequest { id: "t".into(), claim_token: claim.claim_token, delay: None };
    served.tasks.release(release).await.unwrap();
    let claim = served.claim("q", 1).await.remove(0);
    assert_eq!(claim.attempt_no, 1, "a release gives the attempt out again");

    let reschedule = v1::RescheduleRequest {
        id: "t".into(),
        claim_token: claim.claim_token,
        attempt: failed("later"),
        delay: Some(seconds(3_600)),
        ..Default::default()
    };
    let due = served.tasks.reschedule(reschedule).await.unwrap().into_inner();
    let task = served.get("t").await;
    assert_eq!((task.status(), task.next_attempt_at), (TaskStatus::Pending, due.next_attempt_at));
    assert_eq!((task.attempt_count, &task.progress[..]), (1, &b"half"[..]));
    assert!(served.claim("q", 1).await.is_empty(), "not due yet");
}

#[tokio::test]
async fn batches_of_outcomes_and_heartbeats_answer_item_by_item() {
    let mut served = serve().await;
    let a = claimed(&mut served, "a", "q").await;
    let b = claimed(&mut served, "b", "q").await;
    let heartbeat = |id: &str, token: &bytes::Bytes| v1::ExtendLeaseRequest {
        id: id.into(),
        claim_token: token.clone(),
        ..Default::default()
    };
    let leases = vec![heartbeat("a", &a.claim_token), heartbeat("a", &b.claim_token)];
    let response = served.tasks.extend_leases(v1::ExtendLeasesRequest { leases }).await.unwrap();
    let outcomes: Vec<_> =
        response.into_inner().results.into_iter().map(|each| each.outcome.unwrap()).collect();
    assert!(matches!(&outcomes[0], v1::extend_lease_result::Outcome::Extended(_)));
    assert!(matches!(&outcomes[1], v1::extend_lease_result::Outcome::Error(_)));

    let claims = vec![
        v1::ClaimRef { id: "a".into(), claim_token: a.claim_token.clone() },
        v1::ClaimRef { id: "b".into(), claim_token: a.claim_token.clone() },
    ];
    let live =
        served.tasks.live_claims(v1::LiveClaimsRequest { claims }).await.unwrap().into_inner();
    assert_eq!(live.claims.iter().map(|claim| claim.live).collect::<Vec<_>>(), [true, false]);

    let complete = |id: &str, claim: &v1::ClaimedTask| v1::Resolution {
        call: Some(Call::Complete(v1::CompleteRequest {
            id: id.into(),
            claim_token: claim.claim_token.clone(),
            ..Default::default()
        })),
        decided_fail: false,
    };
    let resolutions = vec![complete("a", &a), complete("b", &a), complete("b", &b)];
    let response =
        served.tasks.resolve_batch(v1::ResolveBatchRequest { resolutions }).await.unwrap();
    let resolved: Vec<_> = response
        .into_inner()
        .results
        .into_iter()
        .map(|each| matches!(each.outcome, Some(v1::resolve_result::Outcome::Resolved(_))))
        .collect();
    assert_eq!(resolved, [true, false, true]);
}

#[tokio::test]
async fn cancel_ends_a_task_and_tells_its_holder() {
    let mut served = serve().await;
    let claim = claimed(&mut served, "t", "q").await;
    let response =
        served.tasks.cancel(v1::CancelRequest { id: "t".into() }).await.unwrap().into_inner();
    assert!(response.cancelled && response.status() == TaskStatus::Cancelled);
    let request = v1::CompleteRequest {
        id: "t".into(),
        claim_token: claim.claim_token,
        ..Default::default()
    };
    let status = served.tasks.complete(request).await.unwrap_err();
    let details = tonic_types::StatusExt::get_error_details(&status);
    assert_eq!(details.error_info().unwrap().metadata["detail"], "CANCELLED");
    let again =
        served.tasks.cancel(v1::CancelRequest { id: "t".into() }).await.unwrap().into_inner();
    assert!(!again.cancelled && again.status() == TaskStatus::Cancelled);
    let missing = served.tasks.cancel(v1::CancelRequest { id: "x".into() }).await.unwrap_err();
    assert_eq!(reason(&missing), "NOT_FOUND");
}

#[tokio::test]
async fn dead_letters_are_listed_redriven_and_purged() {
    let mut served = serve().await;
    for id in ["a", "b", "c"] {
        dead(&mut served, id, "q").await;
    }
    let list = |page_size, page_token: &str| v1::DlqListRequest {
        queue: "q".into(),
        page_size: Some(page_size),
        page_token: page_token.into(),
        include_attempts: true,
        ..Default::default()
    };
    let page = served.tasks.dlq_list(list(2, "")).await.unwrap().into_inner();
    let ids: Vec<_> = page.tasks.iter().map(|task| decoded(task).id).collect();
    assert_eq!(ids, ["c", "b"], "newest first");
    let rest = served.tasks.dlq_list(list(2, &page.next_page_token)).await.unwrap().into_inner();
    assert_eq!((decoded(&rest.tasks[0]).id.as_str(), rest.next_page_token.as_str()), ("a", ""));

    let one = Some(v1::Selector {
        selection: Some(Selection::Ids(v1::TaskIds { ids: vec!["a".into(), "unknown".into()] })),
    });
    let redrive = v1::RedriveRequest { queue: "q".into(), selector: one, ..Default::default() };
    let counts: Vec<_> = served.tasks.redrive(redrive).await.unwrap().into_inner().collect().await;
    let last = counts.last().unwrap().as_ref().unwrap();
    assert_eq!((last.count, last.done), (1, true));
    let task = served.get("a").await;
    assert_eq!(
        (task.status(), task.attempt_count, task.redrive_count),
        (TaskStatus::Pending, 0, 1)
    );
    assert_eq!(task.attempts.len(), 1, "history persists");

    for (dry_run, left) in [(true, 2), (false, 0)] {
        let purge = v1::PurgeRequest { queue: "q".into(), selector: all(), dry_run, outbox: None };
        let counts: Vec<_> = served.tasks.purge(purge).await.unwrap().into_inner().collect().await;
        let last = counts.last().unwrap().as_ref().unwrap();
        assert_eq!((last.count, last.done), (2, true), "dry_run {dry_run}");
        let stats = served
            .tasks
            .stats(v1::StatsRequest { queues: vec!["q".into()], outboxes: vec![] })
            .await
            .unwrap();
        assert_eq!(stats.into_inner().queues[0].dlq_depth, left, "dry_run {dry_run}");
    }
}

#[tokio::test]
async fn stats_count_and_an_unknown_queue_has_zeroes() {
    let mut served = serve().await;
    served.enqueue(&task("ready", "q")).await.unwrap();
    served.enqueue(&v1::Task { delay: Some(seconds(3_600)), ..task("later", "q") }).await.unwrap();
    let queues = vec!["q".into(), "unknown".into(), "q".into()];
    let stats = served
        .tasks
        .stats(v1::StatsRequest { queues, outboxes: vec![] })
        .await
        .unwrap()
        .into_inner()
        .queues;
    assert_eq!(stats.len(), 2);
    assert_eq!((stats[0].pending, stats[0].ready, stats[0].delayed), (2, 1, 1));
    assert!(stats[0].oldest_pending_age.is_some());
    assert_eq!(stats[1], v1::QueueStats { queue: "unknown".into(), ..Default::default() });
    let every = served.tasks.stats(v1::StatsRequest::default()).await.unwrap().into_inner().queues;
    assert_eq!(every.iter().map(|stats| stats.queue.as_str()).collect::<Vec<_>>(), ["q"]);
}

#[tokio::test]
async fn retention_and_expiry_act_on_demand() {
    let mut served = serve().await;
    let claim = claimed(&mut served, "done", "q").await;
    let request = v1::CompleteRequest {
        id: "done".into(),
        claim_token: claim.claim_token,
        ..Default::default()
    };
    served.tasks.complete(request).await.unwrap();
    let older_than = Some(prost_types::Timestamp { seconds: 253_402_300_799, nanos: 0 });
    let request = v1::PurgeSucceededRequest { queue: "q".into(), older_than };
    let purged = served.tasks.purge_succeeded(request).await.unwrap().into_inner();
    assert_eq!((purged.purged, purged.more), (1, false));
    let get =
        served.tasks.get(v1::GetRequest { id: "done".into(), outbox: None }).await.unwrap_err();
    assert_eq!(reason(&get), "NOT_FOUND");

    served.enqueue(&v1::Task { expires_in: Some(seconds(-1)), ..task("old", "q") }).await.unwrap();
    let request = v1::SweepExpiredRequest { queue: "q".into() };
    let swept = served.tasks.sweep_expired(request).await.unwrap().into_inner();
    assert_eq!((swept.expired, swept.more), (1, false));
    let task = served.get("old").await;
    let attempt = v1::Attempt::decode(task.attempts[0].clone()).unwrap();
    let error = v1::AttemptError::decode(attempt.error).unwrap();
    assert_eq!((task.status(), error.r#type.as_str()), (TaskStatus::Dead, "rdq.Expired"));
}

#[tokio::test]
async fn wait_due_hints_when_a_task_comes() {
    let mut served = serve().await;
    let request = v1::WaitDueRequest { queues: vec!["q".into()] };
    let mut hints = served.tasks.wait_due(request).await.unwrap().into_inner();
    served.enqueue(&task("t", "q")).await.unwrap();
    loop {
        let hint = hints.message().await.unwrap().expect("a hint");
        if hint.queue == "q" {
            break;
        }
    }
}

#[tokio::test]
async fn capabilities_name_the_contract_and_what_an_ok_survives() {
    let mut served = serve().await;
    let response = served.tasks.get_capabilities(v1::GetCapabilitiesRequest {}).await.unwrap();
    let capabilities = response.into_inner();
    assert_eq!(capabilities.contract_version, rdq_proto::CONTRACT_VERSION);
    assert_eq!(capabilities.durability(), v1::Durability::None, "memory survives nothing");
    assert!(capabilities.capabilities.contains(&"notify".to_owned()));
}

#[tokio::test]
async fn a_queue_is_configured_paused_resumed_and_deleted() {
    let mut served = serve().await;
    let config = v1::QueueConfig {
        execution: Some(v1::ExecutionConfig { lease: Some(seconds(5)), ..Default::default() }),
        ..Default::default()
    };
    let put = v1::PutQueueRequest { name: "q".into(), config: Some(config) };
    let queue = served.queues.put_queue(put).await.unwrap().into_inner().queue.unwrap();
    let effective = queue.effective.unwrap();
    assert_eq!(effective.execution.unwrap().lease, Some(seconds(5)));
    assert_eq!(effective.retry.unwrap().max_attempts, Some(5), "the rest is inherited");
    assert!(queue.updated_at.is_some());

    served.queues.pause_queue(v1::PauseQueueRequest { name: "q".into() }).await.unwrap();
    served.enqueue(&task("t", "q")).await.expect("admission goes on");
    assert!(served.claim("q", 1).await.is_empty(), "claims stop");
    let delete = || v1::DeleteQueueRequest { name: "q".into() };
    let status = served.queues.delete_queue(delete()).await.unwrap_err();
    assert_eq!(reason(&status), "QUEUE_NOT_EMPTY");
    let resumed = served.queues.resume_queue(v1::ResumeQueueRequest { name: "q".into() }).await;
    let queue = resumed.unwrap().into_inner().queue.unwrap();
    assert_eq!(
        queue.config.unwrap().execution.unwrap().lease,
        Some(seconds(5)),
        "the rest is kept"
    );
    let claim = served.claim("q", 1).await.remove(0);
    assert!(claim.lease_remaining.unwrap().seconds <= 5);

    let list =
        served.queues.list_queues(v1::ListQueuesRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), ["q"]);
    let missing =
        served.queues.delete_queue(v1::DeleteQueueRequest { name: "x".into() }).await.unwrap();
    assert!(!missing.into_inner().existed);
}

#[tokio::test]
async fn a_worker_on_one_stream_gets_tasks_and_acknowledgements() {
    let mut served = serve().await;
    let (to_server, requests) = tokio::sync::mpsc::channel(8);
    let start = v1::WorkStart { queues: vec!["q".into()], worker_id: "w".into(), lease: None };
    let first = v1::WorkRequest { start: Some(start), credits: Some(2), ..Default::default() };
    to_server.send(first).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut events = served.tasks.work(requests).await.unwrap().into_inner();
    for id in ["a", "b", "c"] {
        served.enqueue(&task(id, "q")).await.unwrap();
    }
    let mut claims = vec![];
    while claims.len() < 2 {
        claims.extend(events.message().await.unwrap().expect("an event").tasks);
    }
    let outcome = |seq, claim: &v1::ClaimedTask| v1::WorkOutcome {
        seq,
        resolution: Some(v1::Resolution {
            call: Some(Call::Complete(v1::CompleteRequest {
                id: decoded(&claim.task).id,
                claim_token: claim.claim_token.clone(),
                ..Default::default()
            })),
            decided_fail: false,
        }),
    };
    let heartbeat = v1::WorkHeartbeat {
        seq: 7,
        extend: Some(v1::ExtendLeaseRequest {
            id: decoded(&claims[1].task).id,
            claim_token: claims[1].claim_token.clone(),
            ..Default::default()
        }),
    };
    let outcomes = vec![outcome(1, &claims[0]), v1::WorkOutcome { seq: 2, resolution: None }];
    let message = v1::WorkRequest { outcomes, heartbeats: vec![heartbeat], ..Default::default() };
    to_server.send(message).await.unwrap();
    let (mut acks, mut beats, mut tasks) = (vec![], vec![], 0);
    while acks.len() < 2 || beats.is_empty() {
        let event = events.message().await.unwrap().expect("an event");
        acks.extend(event.outcome_acks);
        beats.extend(event.heartbeat_acks);
        tasks += event.tasks.len();
    }
    acks.sort_by_key(|ack| ack.seq);
    let resolved = |ack: &v1::WorkOutcomeAck| {
        let outcome = ack.result.as_ref().and_then(|result| result.outcome.as_ref());
        matches!(outcome, Some(v1::resolve_result::Outcome::Resolved(_)))
    };
    assert!(resolved(&acks[0]) && !resolved(&acks[1]));
    assert_eq!(beats[0].seq, 7);
    assert_eq!(tasks, 0, "no more tasks than credits");

    let more = v1::WorkRequest { credits: Some(1), ..Default::default() };
    to_server.send(more).await.unwrap();
    let third = loop {
        let event = events.message().await.unwrap().expect("an event");
        if let Some(claim) = event.tasks.into_iter().next() {
            break claim;
        }
    };
    served.tasks.cancel(v1::CancelRequest { id: decoded(&third.task).id }).await.unwrap();
    let lost = loop {
        let event = events.message().await.unwrap().expect("an event");
        if let Some(lost) = event.lost.into_iter().next() {
            break lost;
        }
    };
    assert_eq!((lost.generation, lost.detail.as_str()), (third.generation, "CANCELLED"));
    drop(to_server);
    while events.message().await.unwrap().is_some() {}
}

#[tokio::test]
async fn a_work_stream_that_breaks_the_contract_ends_with_its_error() {
    let mut served = serve().await;
    let start =
        || Some(v1::WorkStart { queues: vec!["q".into()], worker_id: "w".into(), lease: None });
    let with = |start, credits| v1::WorkRequest { start, credits, ..Default::default() };
    let many = vec![v1::WorkOutcome::default(); 1_001];
    for messages in [
        vec![with(None, Some(1))],
        vec![with(start(), Some(0))],
        vec![with(start(), Some(-1))],
        vec![with(start(), Some(10_001))],
        vec![with(start(), None), with(start(), None)],
        vec![with(start(), None), v1::WorkRequest { outcomes: many, ..Default::default() }],
        vec![],
    ] {
        let shown = format!("{} messages", messages.len());
        let mut events =
            served.tasks.work(tokio_stream::iter(messages)).await.unwrap().into_inner();
        let status = loop {
            match events.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{shown} ended without an error"),
                Err(status) => break status,
            }
        };
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{shown}: {status:?}");
    }
}

#[tokio::test]
async fn a_subscription_begins_at_once_and_holds_no_more_than_it_may() {
    let mut served = serve().await;
    let request = v1::ClaimDueRequest {
        queues: vec!["q".into()],
        limit: Some(10),
        worker_id: "w".into(),
        follow: true,
        max_in_flight: Some(2),
        ..Default::default()
    };
    let mut stream = served.tasks.claim_due(request).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().unwrap().tasks.is_empty(), "the first comes at once");
    let tasks = (0..5).map(|n| encoded(&task(&format!("t{n}"), "q"))).collect();
    served.tasks.enqueue_batch(v1::EnqueueBatchRequest { tasks }).await.unwrap();
    let mut claims = vec![];
    while claims.len() < 2 {
        claims.extend(stream.message().await.unwrap().unwrap().tasks);
    }
    let stats = served
        .tasks
        .stats(v1::StatsRequest { queues: vec!["q".into()], outboxes: vec![] })
        .await
        .unwrap();
    assert_eq!(stats.into_inner().queues[0].in_flight, 2);
    for done in 0..5 {
        let claim = claims.remove(0);
        let id = decoded(&claim.task).id;
        let request =
            v1::CompleteRequest { id, claim_token: claim.claim_token, ..Default::default() };
        served.tasks.complete(request).await.unwrap();
        while claims.is_empty() && done < 4 {
            claims.extend(stream.message().await.unwrap().unwrap().tasks);
        }
        assert!(claims.len() <= 2);
    }
    drop(stream);
}
