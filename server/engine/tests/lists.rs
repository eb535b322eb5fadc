//! Lists, dead letters and queue administration: pages and their tokens, filters, redrives, purges,
//! configuration that acts at once.
#![allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]

mod support;

use futures::StreamExt as _;
use rdq_engine::{
    DlqListRequest, Engine, EngineError, EngineOptions, ListPage, ListQueuesRequest, ListRequest,
    Pace, PurgeRequest, QueueFile, RedriveRequest,
};
use rdq_spi::{DlqFilter, NewTask, QueueConfig, Selection, TaskStatus};
use std::collections::BTreeSet;
use support::*;
use tokio::time::sleep;

/// Dead letters `dead-0` to `dead-<count - 1>`; each third is of type `odd`.
async fn bury(engine: &Engine, count: usize) {
    let tasks = (0..count).map(|n| submission(task(format!("dead-{n}")))).collect();
    assert!(engine.enqueue_batch(tasks).await.iter().all(Result::is_ok));
    loop {
        let claimed = claim(engine, 1_000).await;
        if claimed.is_empty() {
            return;
        }
        let died = claimed.iter().map(|claim| {
            let n: usize = claim.task.id.as_str()[5..].parse().unwrap();
            let attempt = report(if n.is_multiple_of(3) { "odd" } else { "even" });
            request(claim, rdq_engine::Action::DeadLetter { attempt })
        });
        assert!(engine.resolve_batch(died.collect()).await.iter().all(Result::is_ok));
    }
}

fn odd() -> DlqFilter {
    DlqFilter { error_type: Some("odd".into()), ..DlqFilter::default() }
}

fn dlq(filter: DlqFilter, page_size: u32, page_token: &str) -> DlqListRequest {
    DlqListRequest {
        queue: queue("q"),
        filter,
        page_size,
        page_token: page_token.into(),
        include_attempts: false,
        subject: "alice".into(),
    }
}

fn list(status: Option<TaskStatus>, page_token: &str) -> ListRequest {
    ListRequest {
        queue: queue("q"),
        status,
        page_size: 7,
        page_token: page_token.into(),
        include_attempts: false,
        subject: "alice".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn pages_show_every_task_once_whatever_arrives_and_leaves() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue_many(engine, 40).await;
        let (mut seen, mut page) = (Vec::new(), engine.list(list(None, "")).await.unwrap());
        loop {
            seen.extend(page.tasks.iter().map(|task| task.id.clone()));
            enqueue_many(engine, 3).await;
            if page.next_page_token.is_empty() {
                break;
            }
            page = engine.list(list(None, &page.next_page_token)).await.unwrap();
        }
        assert_eq!(seen.len(), 40);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 40);
        let none = ListRequest { page_size: 0, ..list(None, "") };
        assert!(engine.list(none).await.unwrap().tasks.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_filter_finds_the_same_with_the_storages_help_and_without() {
    for scene in scenes().await {
        let engine = &scene.engine;
        bury(engine, 200).await;
        for page_size in [1, 7, 1_000] {
            let (mut found, mut page) = (Vec::new(), ListPage::default());
            loop {
                let token = page.next_page_token.clone();
                page = engine.dlq_list(dlq(odd(), page_size, &token)).await.unwrap();
                assert!(page.tasks.len() <= page_size as usize);
                found.extend(page.tasks.iter().map(|task| task.id.clone()));
                if page.next_page_token.is_empty() {
                    break;
                }
            }
            assert_eq!(found.len(), 67, "pages of {page_size}");
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 67);
        }
        let first = engine.dlq_list(dlq(odd(), 1, "")).await.unwrap();
        let dead = first.tasks[0].finished_at.unwrap();
        let before = DlqFilter { dead_to: Some(dead), ..DlqFilter::default() };
        assert!(engine.dlq_list(dlq(before, 10, "")).await.unwrap().tasks.is_empty());
        let since = DlqFilter {
            dead_from: Some(dead),
            handler_ref: Some("handler".into()),
            ..DlqFilter::default()
        };
        assert_eq!(engine.dlq_list(dlq(since, 1_000, "")).await.unwrap().tasks.len(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_token_is_good_for_its_caller_and_its_list_only() {
    for scene in scenes().await {
        let engine = &scene.engine;
        bury(engine, 20).await;
        let token = engine.dlq_list(dlq(odd(), 2, "")).await.unwrap().next_page_token;
        assert!(engine.dlq_list(dlq(odd(), 5, &token)).await.is_ok(), "page sizes may change");
        let mismatches = [
            DlqListRequest { subject: "bob".into(), ..dlq(odd(), 2, &token) },
            DlqListRequest { queue: queue("other"), ..dlq(odd(), 2, &token) },
            dlq(DlqFilter::default(), 2, &token),
        ];
        for request in mismatches {
            let error = engine.dlq_list(request).await.unwrap_err();
            assert!(matches!(error, EngineError::CursorBindingMismatch), "{error:?}");
        }
        let error = engine.list(list(None, &token)).await.unwrap_err();
        assert!(matches!(error, EngineError::CursorBindingMismatch), "{error:?}");
        let error = engine.list(list(None, &token[1..])).await.unwrap_err();
        assert!(matches!(error, EngineError::InvalidCursor), "{error:?}");
        let other = scene.another().await.dlq_list(dlq(odd(), 2, &token)).await;
        match (scene.masked, other) {
            (false, Ok(page)) => assert_eq!(page.tasks.len(), 2),
            // Without a key in the storage, each server has its own.
            (true, Err(EngineError::StaleCursor)) => {}
            (masked, other) => panic!("{masked}: {other:?}"),
        }
    }
}

fn redrive(selection: Selection) -> RedriveRequest {
    let (dry_run, pace) = (false, None);
    RedriveRequest { queue: queue("q"), selection, dry_run, pace, subject: "alice".into() }
}

async fn counted(progress: Result<rdq_engine::Progress, EngineError>) -> Vec<u64> {
    progress.unwrap().map(Result::unwrap).collect().await
}

#[tokio::test(start_paused = true)]
async fn redrives_and_purges_act_on_their_selection_in_steps() {
    for scene in scenes().await {
        let engine = &scene.engine;
        bury(engine, 2_400).await;
        let dry = RedriveRequest { dry_run: true, ..redrive(Selection::All) };
        let steps = counted(engine.redrive(dry)).await;
        assert_eq!(steps.last(), Some(&2_400));
        assert!(steps.len() >= 3, "{steps:?}");
        let ids = vec![id("dead-1"), id("dead-1"), id("dead-2"), id("nobody")];
        assert_eq!(counted(engine.redrive(redrive(Selection::Ids(ids)))).await.last(), Some(&2));
        let odds = counted(engine.redrive(redrive(Selection::Filter(odd())))).await;
        assert_eq!(odds.last(), Some(&800));
        assert_eq!(counts(&scene).await, (802, 0, 1_598));
        let nothing = counted(engine.redrive(redrive(Selection::Filter(odd())))).await;
        assert_eq!(nothing.last(), Some(&0), "at least one item");
        let task = engine.get(id("dead-0"), None).await.unwrap();
        assert_eq!((task.attempt_count, task.redrive_count, task.attempts.len()), (0, 1, 1));
        let even = DlqFilter { error_type: Some("even".into()), ..DlqFilter::default() };
        let purge = PurgeRequest {
            queue: queue("q"),
            selection: Selection::Filter(even),
            dry_run: false,
            subject: "alice".into(),
        };
        assert_eq!(counted(engine.purge(purge)).await.last(), Some(&1_598));
        assert_eq!(counts(&scene).await, (802, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_paced_redrive_spreads_the_due_times() {
    for scene in scenes().await {
        let engine = &scene.engine;
        for pace in [Pace::SpreadOver(secs(100)), Pace::PerSecond(20.0)] {
            bury(engine, 2_000).await;
            let paced = RedriveRequest { pace: Some(pace), ..redrive(Selection::All) };
            assert_eq!(counted(engine.redrive(paced)).await.last(), Some(&2_000));
            for _ in 0..4 {
                sleep(secs(25)).await;
                let ready = counts(&scene).await.0;
                let claimed = claim(engine, 1_000).await;
                assert_eq!(claimed.len() as u64, ready);
                assert!((480..=520).contains(&ready), "{pace:?}: {ready} in a quarter");
                let done = claimed.iter().map(complete).collect();
                assert!(engine.resolve_batch(done).await.iter().all(Result::is_ok));
            }
            engine.purge_succeeded(queue("q"), rdq_spi::Timestamp::MAX).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_purges_a_queue_by_leaving_a_field_out() {
    let [scene, _] = scenes().await;
    let many = (0..1_001).map(|n| id(format!("{n}"))).collect();
    for (selection, named) in [
        (Selection::Ids(vec![]), "selector.ids"),
        (Selection::Ids(many), "selector.ids"),
        (Selection::Filter(DlqFilter::default()), "selector.filter"),
    ] {
        match scene.engine.redrive(redrive(selection)).map(drop) {
            Err(EngineError::InvalidArgument { field, .. }) => assert_eq!(field, named),
            other => panic!("{named}: {other:?}"),
        }
    }
    for (pace, named) in [
        (Pace::SpreadOver(secs(0)), "spread_over"),
        (Pace::PerSecond(0.0), "rate_per_second"),
        (Pace::PerSecond(f64::NAN), "rate_per_second"),
        (Pace::PerSecond(f64::INFINITY), "rate_per_second"),
    ] {
        let paced = RedriveRequest { pace: Some(pace), ..redrive(Selection::All) };
        match scene.engine.redrive(paced).map(drop) {
            Err(EngineError::InvalidArgument { field, .. }) => assert_eq!(field, named),
            other => panic!("{pace:?}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stored_configuration_wins_key_by_key_and_acts_on_every_server() {
    let mut options = EngineOptions::default();
    let mut in_file = QueueConfig::default();
    in_file.retry.max_attempts = Some(7);
    in_file.execution.lease = Some(secs(9));
    options.file = QueueFile { queues: [(queue("q"), in_file)].into(), ..QueueFile::default() };
    for scene in scenes_with(options).await {
        let (engine, other) = (&scene.engine, scene.another().await);
        let view = engine.get_queue(queue("q")).await.unwrap();
        assert_eq!((view.stored, view.effective.retry.max_attempts), (None, Some(7)));
        let mut stored = QueueConfig::default();
        stored.retry.max_attempts = Some(2);
        other.put_queue(queue("q"), stored.clone()).await.unwrap();
        sleep(secs(2)).await;
        enqueue(engine, task("t")).await;
        let claimed = claim_one(engine).await;
        assert_eq!((claimed.max_attempts, claimed.lease_remaining), (2, secs(9)));
        let paused = engine.pause_queue(queue("q"), true).await.unwrap().stored.unwrap();
        assert_eq!(paused, QueueConfig { paused: Some(true), ..stored });
        let error = engine.delete_queue(queue("q")).await.unwrap_err();
        assert!(matches!(error, EngineError::Storage(_)), "{error:?}");
        resolve(engine, complete(&claimed)).await;
        engine.purge_succeeded(queue("q"), rdq_spi::Timestamp::MAX).await.unwrap();
        assert!(engine.delete_queue(queue("q")).await.unwrap());
        assert!(!engine.delete_queue(queue("q")).await.unwrap());
        assert_eq!(engine.get_queue(queue("q")).await.unwrap().effective.paused, Some(false));
    }
}

#[tokio::test(start_paused = true)]
async fn queues_are_listed_by_name_wherever_they_are_known_from() {
    let mut options = EngineOptions::default();
    options.file.queues = [(queue("file"), QueueConfig::default())].into();
    for scene in scenes_with(options).await {
        let engine = &scene.engine;
        engine.put_queue(queue("stored"), QueueConfig::default()).await.unwrap();
        enqueue(engine, NewTask { queue: queue("tasks"), ..task("t") }).await;
        let (mut names, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListQueuesRequest { page_size: 1, page_token, subject: "alice".into() };
            let page = engine.list_queues(request).await.unwrap();
            names.extend(page.queues.iter().map(|view| view.queue.as_str().to_owned()));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(names, ["file", "stored", "tasks"]);
    }
}

#[tokio::test(start_paused = true)]
async fn bad_options_are_refused_at_start() {
    let mut bad_file = EngineOptions::default();
    bad_file.file.defaults.retry.multiplier = Some(0.5);
    let short_key = Some(vec![0; 15]);
    for (options, named) in [
        (bad_file, "retry.multiplier"),
        (EngineOptions { page_token_key: short_key, ..EngineOptions::default() }, "page_token_key"),
        (EngineOptions { keep_alive: secs(0), ..EngineOptions::default() }, "keep_alive"),
    ] {
        let storage = std::sync::Arc::new(rdq_memory::MemoryStorage::new());
        match Engine::start(storage, options).await.map(drop) {
            Err(EngineError::InvalidArgument { field, .. }) => assert_eq!(field, named),
            other => panic!("{named}: {other:?}"),
        }
    }
    let yaml_like = r#"{"defaults": {"retry": {"max_atempts": 3}}}"#;
    let error = serde_json::from_str::<QueueFile>(yaml_like).unwrap_err();
    assert!(error.to_string().contains("max_atempts"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn changes_of_one_queue_at_once_are_all_kept() {
    for scene in scenes().await {
        let engine = &scene.engine;
        for round in 0..20 {
            scene.shell.cause(shell::Trouble::seeded(round, 700, 0, 0));
            let mut config = QueueConfig::default();
            config.retry.max_attempts = Some(10 + u32::try_from(round).unwrap());
            let paused = engine.pause_queue(queue("q"), true);
            let put = engine.put_queue(queue("q"), config.clone());
            let (paused, put) = tokio::join!(paused, put);
            let (paused, put) = (paused.unwrap(), put.unwrap());
            let stored = engine.get_queue(queue("q")).await.unwrap().stored.unwrap();
            assert_eq!(stored.retry.max_attempts, config.retry.max_attempts, "in round {round}");
            drop((paused, put));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_without_an_error_has_no_type_to_filter_by() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue(engine, task("t")).await;
        let claimed = claim_one(engine).await;
        let attempt = rdq_spi::AttemptReport::default();
        resolve(engine, request(&claimed, rdq_engine::Action::DeadLetter { attempt })).await;
        let filter = DlqFilter { error_type: Some(String::new()), ..DlqFilter::default() };
        let redriven = engine
            .redrive(RedriveRequest { dry_run: true, ..redrive(Selection::Filter(filter)) })
            .unwrap()
            .collect::<Vec<_>>()
            .await;
        assert_eq!(redriven.last().unwrap().as_ref().unwrap(), &0, "masked: {}", scene.masked);
    }
}
