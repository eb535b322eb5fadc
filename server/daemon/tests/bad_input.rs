//! Bad input over the wire: each gets its typed error, nothing is stored, and the server lives.
#![allow(clippy::pedantic, clippy::unwrap_used, reason = "stories of calls, long by nature")]

mod support;

use bytes::{BufMut as _, Bytes};
use prost_types::{Duration, Timestamp};
use rdq_proto::v1::{self, selector::Selection};
use support::{Served, encoded, reason, seconds, serve, task};
use tonic::Status;

async fn enqueue_refused(served: &mut Served, task: &v1::Task) -> Status {
    served.enqueue(task).await.expect_err(&format!("{task:?} should be refused"))
}

#[tokio::test]
async fn names_outside_the_grammar_are_refused_with_their_reason() {
    let mut served = serve().await;
    let long = "n".repeat(241);
    for (name, expected) in [
        ("", "INVALID_NAME"),
        ("   ", "INVALID_NAME"),
        ("\u{a0}\u{2003}", "INVALID_NAME"),
        (long.as_str(), "INVALID_NAME"),
        ("a\0b", "INVALID_NAME"),
        ("a\nb", "INVALID_NAME"),
        ("a\u{7f}", "INVALID_NAME"),
        ("__rdq_", "RESERVED_NAME"),
        ("__rdq_outbox", "RESERVED_NAME"),
    ] {
        let status = enqueue_refused(&mut served, &task("t", name)).await;
        assert_eq!(reason(&status), expected, "queue {name:?}: {status:?}");
        let with_handler = v1::Task { handler_ref: name.into(), ..task("t", "q") };
        let status = enqueue_refused(&mut served, &with_handler).await;
        assert_eq!(reason(&status), expected, "handler {name:?}: {status:?}");

        let get = served.queues.get_queue(v1::GetQueueRequest { name: name.into() }).await;
        assert_eq!(reason(&get.unwrap_err()), expected, "{name:?}");
        let config = Some(v1::QueueConfig::default());
        let put = v1::PutQueueRequest { name: name.into(), config };
        assert_eq!(reason(&served.queues.put_queue(put).await.unwrap_err()), expected);
        let stats = v1::StatsRequest { queues: vec![name.into()], outboxes: vec![] };
        assert_eq!(reason(&served.tasks.stats(stats).await.unwrap_err()), expected);
        let list = v1::ListRequest { queue: name.into(), ..Default::default() };
        assert_eq!(reason(&served.tasks.list(list).await.unwrap_err()), expected);
        let dlq = v1::DlqListRequest { queue: name.into(), ..Default::default() };
        assert_eq!(reason(&served.tasks.dlq_list(dlq).await.unwrap_err()), expected);
        let wait = v1::WaitDueRequest { queues: vec![name.into()] };
        assert_eq!(reason(&served.tasks.wait_due(wait).await.unwrap_err()), expected);
        let claim = v1::ClaimDueRequest {
            queues: vec!["q".into(), name.into()],
            worker_id: "w".into(),
            ..Default::default()
        };
        assert_eq!(reason(&served.tasks.claim_due(claim).await.unwrap_err()), expected);
    }
    let get = served.tasks.get(v1::GetRequest { id: "t".into(), outbox: None }).await;
    assert_eq!(reason(&get.unwrap_err()), "NOT_FOUND", "nothing was stored");
}

#[tokio::test]
async fn strange_but_valid_names_stay_distinct() {
    let mut served = serve().await;
    let names = [
        "%", "_", "'", "\"", "\\", "../x", "a:b", "{a}", "🦀", "عربي", "a", "a ", "A", "e\u{301}",
        "é",
    ];
    for (index, name) in names.iter().enumerate() {
        served.enqueue(&task(&format!("id-{name}-{index}"), name)).await.unwrap();
    }
    for name in names {
        assert_eq!(served.claim(name, 10).await.len(), 1, "{name:?}");
    }
}

#[tokio::test]
async fn values_of_a_task_outside_their_range_are_refused_by_field() {
    let mut served = serve().await;
    let base = || task("t", "q");
    let far = Some(Timestamp { seconds: 253_402_300_800, nanos: 0 });
    let nanos = Some(Timestamp { seconds: 0, nanos: 1_000_000_000 });
    let before = Some(Timestamp { seconds: -62_135_596_801, nanos: 0 });
    let mixed = Some(Duration { seconds: 1, nanos: -1 });
    let header = |key: &str| std::collections::HashMap::from([(key.to_owned(), "v".to_owned())]);
    for (task, field) in [
        (v1::Task { id: "i".repeat(256), ..base() }, "id"),
        (v1::Task { id: "a\0".into(), ..base() }, "id"),
        (v1::Task { envelope_version: Some(2), ..base() }, "task.envelope_version"),
        (v1::Task { envelope_version: Some(0), ..base() }, "task.envelope_version"),
        (v1::Task { envelope_version: Some(-1), ..base() }, "task.envelope_version"),
        (v1::Task { max_attempts: Some(0), ..base() }, "task.max_attempts"),
        (v1::Task { max_attempts: Some(i32::MIN), ..base() }, "task.max_attempts"),
        (v1::Task { lease: Some(seconds(0)), ..base() }, "task.lease"),
        (v1::Task { lease: Some(seconds(-5)), ..base() }, "task.lease"),
        (
            v1::Task { lease: Some(Duration { seconds: 0, nanos: 9_999_999 }), ..base() },
            "task.lease",
        ),
        (v1::Task { lease: Some(seconds(12 * 3600 + 1)), ..base() }, "task.lease"),
        (v1::Task { initial_backoff: Some(seconds(0)), ..base() }, "task.initial_backoff"),
        (v1::Task { retention_dead: Some(seconds(-1)), ..base() }, "task.retention_dead"),
        (v1::Task { delay: mixed, ..base() }, "task.delay"),
        (v1::Task { expires_in: Some(seconds(i64::MAX)), ..base() }, "task.expires_in"),
        (v1::Task { next_attempt_at: far, ..base() }, "task.next_attempt_at"),
        (v1::Task { next_attempt_at: nanos, ..base() }, "task.next_attempt_at"),
        (v1::Task { expires_at: before, ..base() }, "task.expires_at"),
        (v1::Task { created_at: far, ..base() }, "task.created_at"),
        (v1::Task { attempt_count: -1, ..base() }, "task.attempt_count"),
        (v1::Task { redrive_count: -1, ..base() }, "task.redrive_count"),
        (v1::Task { lease_expired_count: -1, ..base() }, "task.lease_expired_count"),
        (v1::Task { headers: header("rdq.x"), ..base() }, "task.headers"),
        (v1::Task { headers: header(""), ..base() }, "task.headers"),
        (v1::Task { payload_content_type: "c".repeat(256), ..base() }, "task.payload_content_type"),
        (v1::Task { attempts: vec![Bytes::from_static(&[8, 0])], ..base() }, "task.attempts"),
        (v1::Task { attempts: vec![Bytes::from_static(&[8, 1]); 2], ..base() }, "task.attempts"),
        (
            v1::Task { attempts: vec![Bytes::from_static(&[8, 1, 32, 99])], ..base() },
            "attempt.outcome",
        ),
    ] {
        let status = enqueue_refused(&mut served, &task).await;
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{field}: {status:?}");
        assert_eq!(metadata(&status, "field"), field, "{status:?}");
    }
    let get = served.tasks.get(v1::GetRequest { id: "t".into(), outbox: None }).await;
    assert_eq!(reason(&get.unwrap_err()), "NOT_FOUND", "nothing was stored");
}

fn metadata(status: &Status, key: &str) -> String {
    use tonic_types::StatusExt as _;
    let details = status.get_error_details();
    details.error_info().and_then(|info| info.metadata.get(key).cloned()).unwrap_or_default()
}

#[tokio::test]
async fn parts_above_their_limit_say_limit_and_size() {
    let mut served = serve().await;
    let one_mib = 1 << 20;
    let at_limit = v1::Task { payload: vec![7; one_mib].into(), ..task("full", "q") };
    served.enqueue(&at_limit).await.expect("a payload of exactly the limit");
    assert_eq!(served.claim("q", 1).await.len(), 1, "and it can be claimed");
    let headers = |len: usize| [("k".to_owned(), "v".repeat(len - 1))].into();
    for (task, field, limit) in [
        (
            v1::Task { payload: vec![7; one_mib + 1].into(), ..task("t", "q") },
            "task.payload",
            one_mib,
        ),
        (v1::Task { headers: headers((64 << 10) + 1), ..task("t", "q") }, "task.headers", 64 << 10),
        (
            v1::Task { progress: vec![0; (64 << 10) + 1].into(), ..task("t", "q") },
            "task.progress",
            64 << 10,
        ),
    ] {
        let status = enqueue_refused(&mut served, &task).await;
        assert_eq!(reason(&status), "PAYLOAD_TOO_LARGE", "{status:?}");
        assert_eq!(metadata(&status, "field"), field);
        assert_eq!(metadata(&status, "limit_bytes"), limit.to_string());
        assert_eq!(metadata(&status, "size_bytes"), (limit + 1).to_string());
    }
    served.enqueue(&v1::Task { headers: headers(64 << 10), ..task("h", "q") }).await.expect("fits");
    let claim = served.claim("q", 1).await.remove(0);
    let result = vec![0; (64 << 10) + 1].into();
    let complete = v1::CompleteRequest {
        id: "h".into(),
        claim_token: claim.claim_token.clone(),
        result,
        ..Default::default()
    };
    let status = served.tasks.complete(complete).await.unwrap_err();
    assert_eq!(
        (reason(&status), metadata(&status, "field")),
        ("PAYLOAD_TOO_LARGE".into(), "result".into())
    );
    let extend = v1::ExtendLeaseRequest {
        id: "h".into(),
        claim_token: claim.claim_token,
        progress: Some(vec![0; (64 << 10) + 1].into()),
        ..Default::default()
    };
    let status = served.tasks.extend_lease(extend).await.unwrap_err();
    assert_eq!(reason(&status), "PAYLOAD_TOO_LARGE", "{status:?}");
}

#[tokio::test]
async fn batches_empty_or_too_long_are_refused_and_one_bad_item_spoils_no_other() {
    let mut served = serve().await;
    for count in [0, 1_001] {
        let tasks = vec![encoded(&task("", "q")); count];
        let status =
            served.tasks.enqueue_batch(v1::EnqueueBatchRequest { tasks }).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{count} tasks");
        let resolutions = vec![v1::Resolution::default(); count];
        let request = v1::ResolveBatchRequest { resolutions };
        let status = served.tasks.resolve_batch(request).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{count} resolutions");
        let leases = vec![v1::ExtendLeaseRequest::default(); count];
        let request = v1::ExtendLeasesRequest { leases };
        let status = served.tasks.extend_leases(request).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{count} leases");
    }
    let tasks = vec![
        encoded(&task("a", "q")),
        Bytes::from_static(&[0x0a, 0xff]), // does not decode
        encoded(&task("b", "")),
        encoded(&task("a", "other")),
        encoded(&task("a", "q")),
    ];
    let response = served.tasks.enqueue_batch(v1::EnqueueBatchRequest { tasks }).await.unwrap();
    let reasons: Vec<_> = response.into_inner().results.into_iter().map(item_reason).collect();
    assert_eq!(
        reasons,
        ["created", "INVALID_ARGUMENT", "INVALID_NAME", "ID_CONFLICT", "there already"]
    );
}

fn item_reason(result: v1::EnqueueResult) -> String {
    match result.outcome.expect("an outcome") {
        v1::enqueue_result::Outcome::Enqueued(response) if response.created => "created".into(),
        v1::enqueue_result::Outcome::Enqueued(_) => "there already".into(),
        v1::enqueue_result::Outcome::Error(error) => error.reason().reason().into(),
    }
}

#[tokio::test]
async fn numbers_follow_their_kind() {
    let mut served = serve().await;
    served.enqueue(&task("t", "q")).await.unwrap();
    for limit in [0, -1, i32::MIN] {
        assert!(
            served.claim("q", limit).await.is_empty(),
            "an extent of {limit} is the empty answer"
        );
        let list =
            v1::ListRequest { queue: "q".into(), page_size: Some(limit), ..Default::default() };
        let page = served.tasks.list(list).await.unwrap().into_inner();
        assert_eq!((page.tasks.len(), page.next_page_token.as_str()), (0, ""), "{limit}");
    }
    let claim = |lease: Option<Duration>, max_in_flight, worker: &str| v1::ClaimDueRequest {
        queues: vec!["q".into()],
        lease,
        worker_id: worker.into(),
        follow: true,
        max_in_flight,
        ..Default::default()
    };
    for (request, expected) in [
        (claim(Some(seconds(0)), None, "w"), "INVALID_ARGUMENT"),
        (claim(Some(seconds(-1)), None, "w"), "INVALID_ARGUMENT"),
        (claim(Some(seconds(43_201)), None, "w"), "INVALID_ARGUMENT"),
        (claim(Some(Duration { seconds: 0, nanos: 1 }), None, "w"), "INVALID_ARGUMENT"),
        (claim(None, Some(0), "w"), "INVALID_ARGUMENT"),
        (claim(None, Some(-1), "w"), "INVALID_ARGUMENT"),
        (claim(None, None, ""), "INVALID_NAME"),
        (claim(None, None, "a\0"), "INVALID_NAME"),
    ] {
        let shown = format!("{request:?}");
        let status = served.tasks.claim_due(request).await.expect_err(&shown);
        assert_eq!(reason(&status), expected, "{shown}");
    }
    let none = v1::ClaimDueRequest { worker_id: "w".into(), ..Default::default() };
    assert_eq!(reason(&served.tasks.claim_due(none).await.unwrap_err()), "INVALID_ARGUMENT");
    let many = v1::ClaimDueRequest {
        queues: (0..65).map(|n| format!("q{n}")).collect(),
        worker_id: "w".into(),
        ..Default::default()
    };
    assert_eq!(reason(&served.tasks.claim_due(many).await.unwrap_err()), "INVALID_ARGUMENT");
    assert_eq!(served.claim("q", i32::MAX).await.len(), 1, "an extent above the maximum is cut");
}

#[tokio::test]
async fn tokens_missing_or_never_issued_change_nothing() {
    let mut served = serve().await;
    served.enqueue(&task("t", "q")).await.unwrap();
    served.enqueue(&task("u", "q")).await.unwrap();
    let claims = served.claim("q", 2).await;
    let before = served.get("t").await;
    let mut flipped = claims[0].claim_token.to_vec();
    for byte in &mut flipped {
        *byte ^= 0x55;
    }
    let cut = claims[0].claim_token.slice(..claims[0].claim_token.len() / 2);
    let mut longer = claims[0].claim_token.to_vec();
    longer.put_u8(0);
    for (token, expected) in [
        (Bytes::new(), "INVALID_ARGUMENT"),
        (Bytes::from_static(b"garbage"), "STALE_CLAIM"),
        (flipped.into(), "STALE_CLAIM"),
        (cut, "STALE_CLAIM"),
        (longer.into(), "STALE_CLAIM"),
        (vec![0; 1 << 20].into(), "STALE_CLAIM"),
        (claims[1].claim_token.clone(), "STALE_CLAIM"), // of another task
    ] {
        let (id, claim_token) = ("t".to_owned(), token);
        let statuses = [
            served
                .tasks
                .complete(v1::CompleteRequest {
                    id: id.clone(),
                    claim_token: claim_token.clone(),
                    ..Default::default()
                })
                .await
                .unwrap_err(),
            served
                .tasks
                .reschedule(v1::RescheduleRequest {
                    id: id.clone(),
                    claim_token: claim_token.clone(),
                    ..Default::default()
                })
                .await
                .unwrap_err(),
            served
                .tasks
                .dead_letter(v1::DeadLetterRequest {
                    id: id.clone(),
                    claim_token: claim_token.clone(),
                    ..Default::default()
                })
                .await
                .unwrap_err(),
            served
                .tasks
                .fail(v1::FailRequest {
                    id: id.clone(),
                    claim_token: claim_token.clone(),
                    ..Default::default()
                })
                .await
                .unwrap_err(),
            served
                .tasks
                .release(v1::ReleaseRequest {
                    id: id.clone(),
                    claim_token: claim_token.clone(),
                    ..Default::default()
                })
                .await
                .unwrap_err(),
            served
                .tasks
                .extend_lease(v1::ExtendLeaseRequest { id, claim_token, ..Default::default() })
                .await
                .unwrap_err(),
        ];
        for status in statuses {
            assert_eq!(reason(&status), expected, "{status:?}");
        }
    }
    assert_eq!(served.get("t").await, before);
}

#[tokio::test]
async fn nobody_purges_a_queue_by_leaving_a_field_out() {
    let mut served = serve().await;
    let ids = |ids: Vec<String>| {
        Some(v1::Selector { selection: Some(Selection::Ids(v1::TaskIds { ids })) })
    };
    for selector in [
        None,
        Some(v1::Selector { selection: None }),
        Some(v1::Selector { selection: Some(Selection::All(false)) }),
        Some(v1::Selector { selection: Some(Selection::Filter(v1::DlqFilter::default())) }),
        ids(vec![]),
        ids(vec![String::new()]),
        ids((0..1_001).map(|n| n.to_string()).collect()),
    ] {
        let request = v1::PurgeRequest {
            queue: "q".into(),
            selector: selector.clone(),
            ..Default::default()
        };
        let status = served.tasks.purge(request).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{selector:?}");
        let request = v1::RedriveRequest { queue: "q".into(), selector, ..Default::default() };
        let status = served.tasks.redrive(request).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT");
    }
    let all = || Some(v1::Selector { selection: Some(Selection::All(true)) });
    for (spread_over, rate_per_second) in [
        (Some(seconds(0)), None),
        (Some(seconds(-1)), None),
        (None, Some(0.0)),
        (None, Some(-1.0)),
        (None, Some(f64::NAN)),
        (None, Some(f64::INFINITY)),
        (Some(seconds(1)), Some(1.0)),
    ] {
        let request = v1::RedriveRequest {
            queue: "q".into(),
            selector: all(),
            spread_over,
            rate_per_second,
            ..Default::default()
        };
        let status = served.tasks.redrive(request).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{rate_per_second:?}");
    }
    let request = v1::PurgeSucceededRequest { queue: "q".into(), older_than: None };
    assert_eq!(
        reason(&served.tasks.purge_succeeded(request).await.unwrap_err()),
        "INVALID_ARGUMENT"
    );
}

#[tokio::test]
async fn enums_and_oneofs_outside_the_contract_are_refused() {
    let mut served = serve().await;
    let list = v1::ListRequest { queue: "q".into(), status: 99, ..Default::default() };
    assert_eq!(reason(&served.tasks.list(list).await.unwrap_err()), "INVALID_ARGUMENT");

    served.enqueue(&task("t", "q")).await.unwrap();
    let claim = served.claim("q", 1).await.remove(0);
    for outcome in [1, 4, 5, 99, -1] {
        let attempt = v1::Attempt { outcome, ..Default::default() };
        let request = v1::FailRequest {
            id: "t".into(),
            claim_token: claim.claim_token.clone(),
            attempt: prost::Message::encode_to_vec(&attempt).into(),
        };
        let status = served.tasks.fail(request).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{outcome}");
    }
    let complete = v1::CompleteRequest {
        id: "t".into(),
        claim_token: claim.claim_token,
        ..Default::default()
    };
    let resolutions = vec![
        v1::Resolution::default(),
        v1::Resolution {
            decided_fail: true,
            call: Some(v1::resolution::Call::Complete(complete.clone())),
        },
        v1::Resolution {
            decided_fail: false,
            call: Some(v1::resolution::Call::Complete(complete)),
        },
    ];
    let response =
        served.tasks.resolve_batch(v1::ResolveBatchRequest { resolutions }).await.unwrap();
    let reasons: Vec<_> = response.into_inner().results.into_iter().map(resolve_reason).collect();
    assert_eq!(reasons, ["INVALID_ARGUMENT", "INVALID_ARGUMENT", "resolved"]);
}

fn resolve_reason(result: v1::ResolveResult) -> String {
    match result.outcome.expect("an outcome") {
        v1::resolve_result::Outcome::Resolved(_) => "resolved".into(),
        v1::resolve_result::Outcome::Error(error) => error.reason().reason().into(),
    }
}

#[tokio::test]
async fn queue_configuration_outside_its_range_is_refused_by_field() {
    let mut served = serve().await;
    let retry = |retry| v1::QueueConfig { retry: Some(retry), ..Default::default() };
    let execution =
        |execution| v1::QueueConfig { execution: Some(execution), ..Default::default() };
    let limits = |max| v1::QueueConfig {
        limits: Some(v1::LimitsConfig { max_payload_bytes: Some(max) }),
        ..Default::default()
    };
    let handler = |value| v1::QueueConfig {
        handler: Some(v1::HandlerConfig { version_mismatch: value }),
        ..Default::default()
    };
    let retention =
        |retention| v1::QueueConfig { retention: Some(retention), ..Default::default() };
    let globs = |globs| v1::QueueConfig {
        classification: Some(v1::ClassificationConfig { retryable: globs, permanent: vec![] }),
        ..Default::default()
    };
    let base = v1::RetryConfig::default;
    for (config, field) in [
        (retry(v1::RetryConfig { max_attempts: Some(0), ..base() }), "retry.max_attempts"),
        (retry(v1::RetryConfig { max_attempts: Some(-7), ..base() }), "retry.max_attempts"),
        (
            retry(v1::RetryConfig { initial_backoff: Some(seconds(0)), ..base() }),
            "retry.initial_backoff",
        ),
        (retry(v1::RetryConfig { multiplier: Some(0.5), ..base() }), "retry.multiplier"),
        (retry(v1::RetryConfig { multiplier: Some(f64::NAN), ..base() }), "retry.multiplier"),
        (retry(v1::RetryConfig { multiplier: Some(1_001.0), ..base() }), "retry.multiplier"),
        (retry(v1::RetryConfig { max_backoff: Some(seconds(-1)), ..base() }), "retry.max_backoff"),
        (retry(v1::RetryConfig { jitter: Some(1.1), ..base() }), "retry.jitter"),
        (retry(v1::RetryConfig { jitter: Some(-0.1), ..base() }), "retry.jitter"),
        (
            execution(v1::ExecutionConfig {
                lease: Some(Duration { seconds: 0, nanos: 1 }),
                ..Default::default()
            }),
            "execution.lease",
        ),
        (
            execution(v1::ExecutionConfig { timeout: Some(seconds(0)), ..Default::default() }),
            "execution.timeout",
        ),
        (limits(-1), "limits.max_payload_bytes"),
        (limits((2 << 20) + 1), "limits.max_payload_bytes"),
        (handler(99), "handler.version_mismatch"),
        (
            retention(v1::RetentionConfig { dead: Some(seconds(-1)), ..Default::default() }),
            "retention.dead",
        ),
        (globs(vec!["x".into(); 101]), "classification.retryable"),
        (globs(vec!["x".repeat(256)]), "classification.retryable"),
    ] {
        let shown = format!("{config:?}");
        let request = v1::PutQueueRequest { name: "q".into(), config: Some(config) };
        let status = served.queues.put_queue(request).await.expect_err(&shown);
        assert_eq!(
            (reason(&status).as_str(), metadata(&status, "field").as_str()),
            ("INVALID_ARGUMENT", field)
        );
    }
    let request = v1::PutQueueRequest { name: "q".into(), config: None };
    assert_eq!(reason(&served.queues.put_queue(request).await.unwrap_err()), "INVALID_ARGUMENT");
    let got = served.queues.get_queue(v1::GetQueueRequest { name: "q".into() }).await.unwrap();
    assert_eq!(got.into_inner().queue.unwrap().config, None, "nothing was stored");
}

#[tokio::test]
async fn page_tokens_of_others_are_refused() {
    let mut served = serve().await;
    for n in 0..3 {
        served.enqueue(&task(&format!("t{n}"), "q")).await.unwrap();
    }
    let list = |queue: &str, status, page_token: &str| v1::ListRequest {
        queue: queue.into(),
        status,
        page_size: Some(1),
        page_token: page_token.into(),
        include_attempts: false,
    };
    let first = served.tasks.list(list("q", 0, "")).await.unwrap().into_inner().next_page_token;
    assert!(!first.is_empty());
    let flipped: String = {
        let last = if first.ends_with('A') { 'B' } else { 'A' };
        first[..first.len() - 1].chars().chain([last]).collect()
    };
    for (request, expected) in [
        (list("other", 0, &first), "CURSOR_BINDING_MISMATCH"),
        (list("q", 1, &first), "CURSOR_BINDING_MISMATCH"),
        (list("q", 0, &first[..first.len() / 2]), "INVALID_CURSOR"),
        (list("q", 0, &flipped), "INVALID_CURSOR"),
        (list("q", 0, "not a token"), "INVALID_CURSOR"),
        (list("q", 0, &"A".repeat(1 << 20)), "INVALID_CURSOR"),
    ] {
        assert_eq!(reason(&served.tasks.list(request).await.unwrap_err()), expected);
    }
    let dlq =
        v1::DlqListRequest { queue: "q".into(), page_token: first.clone(), ..Default::default() };
    assert_eq!(reason(&served.tasks.dlq_list(dlq).await.unwrap_err()), "CURSOR_BINDING_MISMATCH");
    let mut seen = vec![];
    let mut token = String::new();
    loop {
        let page = served.tasks.list(list("q", 0, &token)).await.unwrap().into_inner();
        seen.extend(page.tasks.iter().map(|task| support::decoded(task).id));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, ["t2", "t1", "t0"]);
}
