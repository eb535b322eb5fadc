//! Claims and outcomes of single calls: policy, poison, fencing, pause, and callers who go away.
#![allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]

mod support;

use bytes::Bytes;
use rdq_engine::{
    Action, ClaimRequest, DlqListRequest, EngineError, EngineOptions, ExtendRequest, Judgement,
    ResolveRequest,
};
use rdq_spi::{
    AttemptOutcome, DlqFilter, Moment, Overrides, QueueConfig, TaskStatus, Timestamp,
    VersionMismatch,
};
use std::sync::atomic::Ordering;
use support::*;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_claim_answers_at_once_with_work_or_without() {
    for scene in scenes().await {
        let engine = &scene.engine;
        assert!(claim(engine, 10).await.is_empty());
        enqueue_many(engine, 3).await;
        assert_eq!(claim(engine, 2).await.len(), 2);
        assert_eq!(claim(engine, 0).await.len(), 0);
        let claimed = claim_one(engine).await;
        assert_eq!((claimed.attempt_no, claimed.max_attempts), (1, 5));
        assert_eq!(claimed.lease_remaining, secs(60));
        assert_eq!(claimed.version_mismatch, VersionMismatch::RunLatest);
        let done = resolve(engine, complete(&claimed)).await;
        assert_eq!((done.status, done.replayed), (TaskStatus::Succeeded, false));
        assert!(resolve(engine, complete(&claimed)).await.replayed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_comes_back_with_backoff_until_it_is_dead() {
    for scene in scenes().await {
        let engine = &scene.engine;
        let mut config = QueueConfig::default();
        config.retry.max_attempts = Some(3);
        config.retry.jitter = Some(0.0);
        engine.put_queue(queue("q"), config).await.unwrap();
        enqueue(engine, task("t")).await;
        for (attempt_no, backoff) in [(1, 1), (2, 2)] {
            let claimed = claim_one(engine).await;
            assert_eq!(claimed.attempt_no, attempt_no);
            assert_eq!(resolve(engine, fail(&claimed, "x")).await.status, TaskStatus::Pending);
            sleep(millis(backoff * 1_000 - 1)).await;
            assert!(claim(engine, 1).await.is_empty(), "attempt {attempt_no}");
            sleep(millis(1)).await;
        }
        let last = claim_one(engine).await;
        assert_eq!(resolve(engine, fail(&last, "x")).await.status, TaskStatus::Dead);
        let again = resolve(engine, fail(&last, "x")).await;
        assert!(again.replayed && again.status == TaskStatus::Dead);
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_dies_and_the_worker_may_judge_otherwise() {
    for scene in scenes().await {
        let engine = &scene.engine;
        let mut config = QueueConfig::default();
        config.classification.permanent = vec!["http.4??".into()];
        engine.put_queue(queue("q"), config).await.unwrap();
        enqueue_many(engine, 2).await;
        let claimed = claim(engine, 2).await;
        let first = resolve(engine, fail(&claimed[0], "http.404")).await;
        assert_eq!(first.status, TaskStatus::Dead);
        let judgement = Some(Judgement::Retryable);
        let action = Action::Fail { attempt: report("http.404"), judgement };
        let second = resolve(engine, request(&claimed[1], action)).await;
        assert_eq!(second.status, TaskStatus::Pending);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_attempts_are_spent_is_dead_lettered_and_never_handed_out() {
    for scene in scenes().await {
        let engine = &scene.engine;
        let overrides = Overrides { max_attempts: Some(1), ..Overrides::default() };
        enqueue(engine, rdq_spi::NewTask { overrides, ..task("poison") }).await;
        let crashed = claim_one(engine).await;
        sleep(secs(61)).await;
        enqueue(engine, task("good")).await;

        // One claim: it clears the poison away and still brings what is good.
        let claimed = claim_one(engine).await;

        assert_eq!(claimed.task.id, id("good"));
        let poison = engine.get(id("poison")).await.unwrap();
        assert_eq!(poison.status, TaskStatus::Dead);
        let last = poison.attempts.last().unwrap();
        assert_eq!(last.outcome, Some(AttemptOutcome::PermanentFailure));
        let filter = DlqFilter {
            error_type: Some("rdq.MaxAttemptsExceeded".into()),
            ..DlqFilter::default()
        };
        let found = engine.dlq_list(dlq_request(filter)).await.unwrap();
        assert_eq!(found.tasks.len(), 1);
        assert!(is_stale(&engine.resolve(complete(&crashed)).await.unwrap_err()));
    }
}

fn dlq_request(filter: DlqFilter) -> DlqListRequest {
    DlqListRequest {
        queue: queue("q"),
        filter,
        page_size: 10,
        page_token: String::new(),
        include_attempts: false,
        subject: "alice".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_past_its_time_is_dead_lettered_and_never_handed_out() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue(engine, rdq_spi::NewTask { expires: Some(Moment::In(secs(1))), ..task("t") }).await;
        sleep(secs(1)).await;
        assert!(claim(engine, 1).await.is_empty());
        let task = engine.get(id("t")).await.unwrap();
        assert_eq!(task.status, TaskStatus::Dead);
        let error = task.attempts.last().unwrap().error.as_ref().unwrap();
        assert_eq!(error.error_type, "rdq.Expired");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_token_changes_nothing() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue(engine, task("t")).await;
        let slow = claim_one(engine).await;
        sleep(secs(60)).await;
        let quick = claim_one(engine).await;
        assert!(quick.generation > slow.generation);
        assert!(is_stale(&engine.resolve(complete(&slow)).await.unwrap_err()));
        for token in [Bytes::from_static(b"garbage"), Bytes::from_static(&[0; 40])] {
            let forged = ResolveRequest { token, ..complete(&quick) };
            assert!(is_stale(&engine.resolve(forged).await.unwrap_err()));
        }
        let empty = ResolveRequest { token: Bytes::new(), ..complete(&quick) };
        let error = engine.resolve(empty).await.unwrap_err();
        assert!(matches!(error, EngineError::InvalidArgument { field: "claim_token", .. }));
        assert_eq!(resolve(engine, complete(&quick)).await.status, TaskStatus::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_answers_item_by_item_in_order() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue_many(engine, 2).await;
        let claimed = claim(engine, 2).await;
        let too_long = Action::Complete {
            attempt: rdq_spi::AttemptReport::default(),
            result: Bytes::from(vec![0; (64 << 10) + 1]),
        };
        let answers = engine
            .resolve_batch(vec![
                complete(&claimed[0]),
                request(&claimed[1], too_long),
                ResolveRequest { token: Bytes::from_static(b"?"), ..complete(&claimed[1]) },
                complete(&claimed[1]),
                complete(&claimed[0]),
            ])
            .await;
        assert!(answers[0].as_ref().is_ok_and(|done| !done.replayed));
        assert!(matches!(
            answers[1],
            Err(EngineError::PayloadTooLarge { field: "result", limit_bytes: 65_536, .. })
        ));
        assert!(answers[2].as_ref().is_err_and(is_stale));
        assert!(answers[3].as_ref().is_ok_and(|done| !done.replayed));
        assert!(answers[4].as_ref().is_ok_and(|done| done.replayed));
    }
}

#[tokio::test(start_paused = true)]
async fn many_callers_share_storage_calls_and_each_has_its_own_answer() {
    let [plain, _] = scenes().await;
    let engine = &plain.engine;
    enqueue(engine, rdq_spi::NewTask { queue: queue("other"), ..task("t-7") }).await;
    let before = plain.shell.enqueue_calls.load(Ordering::SeqCst);
    let calls = (0..500).map(|n| engine.enqueue(submission(task(format!("t-{n}")))));
    let answers = futures::future::join_all(calls).await;
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.is_ok(), n != 7, "{answer:?}");
    }
    let calls = plain.shell.enqueue_calls.load(Ordering::SeqCst) - before;
    assert!(calls <= 4, "{calls} storage calls for 500 callers");
}

#[tokio::test(start_paused = true)]
async fn more_callers_than_may_wait_are_told_to_come_later() {
    let [plain, _] = scenes().await;
    plain.shell.cause(shell::Trouble::seeded(1, 1_000, 0, 0));
    let engine = &plain.engine;
    let calls = (0..12_100).map(|n| engine.enqueue(submission(task(format!("t-{n}")))));
    let answers = futures::future::join_all(calls).await;
    let refused = answers.iter().filter(|answer| {
        matches!(answer, Err(EngineError::Overloaded { retry_after }) if !retry_after.is_zero())
    });
    let admitted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(admitted + refused.count(), 12_100);
    assert!((10_000..12_100).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_for_a_caller_who_is_gone_goes_back_unspent() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue_many(engine, 3).await;
        *scene.shell.claim_pause.lock().unwrap() = secs(1);
        let gone = tokio::time::timeout(millis(500), engine.claim(claim_request(3))).await;
        assert!(gone.is_err());
        assert_eq!(counts(&scene).await, (0, 3, 0), "the claim stands in the storage");
        sleep(secs(1)).await;
        assert_eq!(counts(&scene).await, (3, 0, 0));
        *scene.shell.claim_pause.lock().unwrap() = secs(0);
        assert_eq!(claim_one(engine).await.attempt_no, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_gives_nothing_and_goes_on_when_resumed() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue_many(engine, 1).await;
        assert_eq!(
            engine.pause_queue(queue("q"), true).await.unwrap().effective.paused,
            Some(true)
        );
        assert!(claim(engine, 1).await.is_empty());
        enqueue_many(engine, 1).await;
        engine.pause_queue(queue("q"), false).await.unwrap();
        assert_eq!(claim(engine, 2).await.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_keeps_the_claim_but_not_beyond_the_timeout() {
    for scene in scenes().await {
        let engine = &scene.engine;
        let mut config = QueueConfig::default();
        config.execution.lease = Some(secs(10));
        config.execution.timeout = Some(secs(25));
        engine.put_queue(queue("q"), config).await.unwrap();
        enqueue(engine, task("t")).await;
        let claimed = claim_one(engine).await;
        assert_eq!(claimed.execution_timeout, Some(secs(25)));
        let beat = ExtendRequest {
            task_id: id("t"),
            token: claimed.token.clone(),
            lease: None,
            progress: Some(Bytes::from_static(b"half")),
            strict: false,
        };
        sleep(secs(8)).await;
        assert_eq!(engine.extend(beat.clone()).await.unwrap().remaining, secs(10));
        sleep(secs(8)).await;
        assert_eq!(engine.extend(beat.clone()).await.unwrap().remaining, secs(9));
        let claims = vec![(id("t"), claimed.token.clone()), (id("t"), Bytes::from_static(b"?"))];
        assert_eq!(engine.live_claims(claims).await.unwrap(), [Some(secs(9)), None]);
        for (lease, ok) in [(millis(9), false), (secs(43_201), false), (millis(10), true)] {
            let beat = ExtendRequest { lease: Some(lease), ..beat.clone() };
            assert_eq!(engine.extend(beat).await.is_ok(), ok, "{lease:?}");
        }
        assert_eq!(engine.get(id("t")).await.unwrap().progress, "half");
    }
}

#[tokio::test(start_paused = true)]
async fn a_strict_queue_refuses_a_token_whose_lease_is_over() {
    for scene in scenes().await {
        let engine = &scene.engine;
        for (strict, ok) in [(false, true), (true, false)] {
            let mut config = QueueConfig::default();
            config.execution.strict_leases = Some(strict);
            engine.put_queue(queue("q"), config).await.unwrap();
            enqueue_many(engine, 1).await;
            let claimed = claim_one(engine).await;
            sleep(secs(60)).await;
            assert_eq!(engine.resolve(complete(&claimed)).await.is_ok(), ok);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_keeps_nothing_forgets_a_task_that_succeeds() {
    for scene in scenes().await {
        let mut config = QueueConfig::default();
        config.retention.succeeded = Some(secs(0));
        scene.engine.put_queue(queue("q"), config).await.unwrap();
        enqueue(&scene.engine, task("t")).await;
        let claimed = claim_one(&scene.engine).await;
        resolve(&scene.engine, complete(&claimed)).await;
        assert!(scene.engine.get(id("t")).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_refused_by_the_name_of_its_field() {
    let options = EngineOptions { require_declared_queues: true, ..EngineOptions::default() };
    for scene in scenes_with(options).await {
        let engine = &scene.engine;
        let error = engine.enqueue(submission(task("t"))).await.unwrap_err();
        assert!(matches!(error, EngineError::QueueNotFound { .. }), "{error:?}");
        let mut config = QueueConfig::default();
        config.limits.max_payload_bytes = Some(8);
        engine.put_queue(queue("q"), config).await.unwrap();
        enqueue(engine, task("t")).await;
        let mut large = submission(task("u"));
        large.payload_bytes = 9;
        let error = engine.enqueue(large).await.unwrap_err();
        let EngineError::PayloadTooLarge { limit_bytes: 8, size_bytes: 9, .. } = error else {
            panic!("{error:?}")
        };
        let overrides = Overrides { max_attempts: Some(0), ..Overrides::default() };
        let zero = rdq_spi::NewTask { overrides, ..task("u") };
        let error = engine.enqueue(submission(zero)).await.unwrap_err();
        assert!(matches!(error, EngineError::InvalidArgument { field: "task.max_attempts", .. }));
        let none = ClaimRequest { queues: vec![], ..claim_request(1) };
        let error = engine.claim(none).await.unwrap_err();
        assert!(matches!(error, EngineError::InvalidArgument { field: "queues", .. }));
        let short = ClaimRequest { lease: Some(millis(9)), ..claim_request(1) };
        let error = engine.claim(short).await.unwrap_err();
        assert!(matches!(error, EngineError::InvalidArgument { field: "lease", .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn finished_tasks_are_purged_and_swept() {
    for scene in scenes().await {
        let engine = &scene.engine;
        let mut config = QueueConfig::default();
        config.retention.succeeded = Some(secs(300));
        engine.put_queue(queue("q"), config).await.unwrap();
        enqueue_many(engine, 3).await;
        for claimed in claim(engine, 2).await {
            resolve(engine, complete(&claimed)).await;
        }
        let before = engine.purge_succeeded(queue("q"), Timestamp::MIN).await.unwrap();
        assert_eq!(before, (0, false));
        assert_eq!(engine.purge_succeeded(queue("q"), Timestamp::MAX).await.unwrap(), (2, false));
        let lapsing = rdq_spi::NewTask { expires: Some(Moment::In(secs(5))), ..task("t") };
        enqueue(engine, lapsing).await;
        sleep(secs(5)).await;
        assert_eq!(engine.sweep_expired(queue("q")).await.unwrap().expired, 1);
        for claimed in claim(engine, 5).await {
            resolve(engine, complete(&claimed)).await;
        }
        // Maintenance does the rest by itself.
        sleep(secs(300 + 80)).await;
        let stats = engine.stats(vec![]).await.unwrap();
        assert_eq!((stats.len(), stats[0].1.succeeded, stats[0].1.dead), (1, 0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_answer_could_carry_is_not_admitted_wherever_it_is() {
    for scene in scenes().await {
        let engine = &scene.engine;
        let sized =
            |name: &str, bytes| rdq_spi::NewTask { envelope: vec![7; bytes].into(), ..task(name) };
        // Fields that this server does not know, beside a payload of 8 bytes.
        let error = engine.enqueue(submission(sized("large", 9 + (320 << 10)))).await.unwrap_err();
        let EngineError::PayloadTooLarge { field: "task", limit_bytes: 327_680, .. } = error else {
            panic!("{error:?}")
        };
        enqueue(engine, sized("fits", 8 + (320 << 10))).await;
        assert_eq!(claim_one(engine).await.task.id, id("fits"));
    }
}
