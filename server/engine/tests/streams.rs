//! Subscriptions and work streams: wake-ups, bounds, what goes back, what is told, and the drain.
#![allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]

mod support;

use bytes::Bytes;
use futures::{FutureExt as _, Stream, StreamExt as _};
use rdq_engine::{
    ClaimedTask, Engine, EngineError, EngineOptions, ExtendRequest, FollowRequest, Submission,
    Subscription, WorkEvent, WorkEvents, WorkHandle, WorkStart,
};
use rdq_spi::{Moment, NewTask, Overrides, QueueConfig, StaleDetail, TaskStatus};
use std::sync::atomic::Ordering;
use support::*;
use tokio::time::{Instant, sleep, timeout};

fn follow(engine: &Engine, limit: u32, max_in_flight: u32) -> Subscription {
    engine.follow(FollowRequest { claim: claim_request(limit), max_in_flight }).unwrap()
}

fn work(engine: &Engine) -> (WorkHandle, WorkEvents) {
    let start = WorkStart { queues: vec![queue("q")], lease: None, worker_id: worker("w") };
    engine.work(start).unwrap()
}

/// What a stream yields without waiting to speak of.
async fn soon<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    timeout(millis(600), stream.next()).await.ok().flatten()
}

async fn next_tasks(subscription: &mut Subscription) -> Vec<ClaimedTask> {
    soon(subscription).await.map(Result::unwrap).unwrap_or_default()
}

async fn event(events: &mut WorkEvents) -> WorkEvent {
    soon(events).await.unwrap().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "measures how long a story took")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn a_subscription_answers_at_once_and_then_as_tasks_fall_due() {
    for scene in scenes().await {
        let mut subscription = follow(&scene.engine, 10, 10);
        assert_eq!(subscription.next().now_or_never().unwrap().unwrap().unwrap(), []);
        let started = now();
        enqueue(&scene.engine, NewTask { due: Moment::In(secs(7)), ..task("later") }).await;
        enqueue(&scene.engine, task("now")).await;
        assert_eq!(next_tasks(&mut subscription).await[0].task.id, id("now"));
        assert!(now() - started < millis(50), "this process hears of its own tasks at once");
        let later = subscription.next().await.unwrap().unwrap();
        assert_eq!(later[0].task.id, id("later"));
        let waited = now() - started;
        assert!(waited >= secs(7) && waited < millis(7_100), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_another_server_arrive_too() {
    for scene in scenes().await {
        let other = scene.another().await;
        let mut subscription = follow(&scene.engine, 10, 10);
        assert!(next_tasks(&mut subscription).await.is_empty());
        sleep(secs(1)).await;
        enqueue_many(&other, 1).await;
        // Without hints, by the next poll.
        assert_eq!(next_tasks(&mut subscription).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_that_waits_misses_arrives_by_hints() {
    let scene = scene(false, EngineOptions::default()).await;
    scene.shell.waiting_in_vain.store(true, Ordering::SeqCst);
    let other = scene.another().await;
    let mut subscription = follow(&scene.engine, 10, 10);
    assert!(next_tasks(&mut subscription).await.is_empty());
    for name in ["first", "second"] {
        sleep(secs(1)).await;
        enqueue(&other, task(name)).await;
        assert_eq!(next_tasks(&mut subscription).await[0].task.id, id(name));
    }
    enqueue(&other, NewTask { due: Moment::In(secs(1)), ..task("later") }).await;
    sleep(millis(600)).await;
    enqueue(&other, task("sooner")).await;
    assert_eq!(next_tasks(&mut subscription).await[0].task.id, id("sooner"));
    assert_eq!(next_tasks(&mut subscription).await[0].task.id, id("later"));

    let paused = QueueConfig { paused: Some(true), ..QueueConfig::default() };
    scene.engine.put_queue(queue("q"), paused).await.unwrap();
    enqueue(&other, task("patient")).await;
    assert!(next_tasks(&mut subscription).await.is_empty());
    scene.engine.put_queue(queue("q"), QueueConfig::default()).await.unwrap();
    assert_eq!(next_tasks(&mut subscription).await[0].task.id, id("patient"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_is_kept_alive() {
    for scene in scenes().await {
        let mut subscription = follow(&scene.engine, 10, 10);
        let (_handle, mut events) = work(&scene.engine);
        for _ in 0..3 {
            let started = now();
            assert!(subscription.next().await.unwrap().unwrap().is_empty());
            let first = now() - started;
            assert!(first == secs(0) || (secs(14)..secs(16)).contains(&first), "{first:?}");
            assert!(events.next().await.unwrap().unwrap().tasks.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_never_has_more_in_flight_than_it_may() {
    for scene in scenes().await {
        let other = scene.another().await;
        enqueue_many(&scene.engine, 10).await;
        let mut subscription = follow(&scene.engine, 2, 3);
        assert!(next_tasks(&mut subscription).await.is_empty());
        let mut held = next_tasks(&mut subscription).await;
        held.extend(next_tasks(&mut subscription).await);
        assert_eq!(held.len(), 3);
        assert!(next_tasks(&mut subscription).await.is_empty(), "it is full");

        // Resolved through this server: room at once.
        resolve(&scene.engine, complete(&held[0])).await;
        let more = next_tasks(&mut subscription).await;
        assert_eq!(more.len(), 1);
        held.extend(more);

        // Resolved through another: known within a second or so, by one call.
        let calls = scene.shell.live_calls.load(Ordering::SeqCst);
        resolve(&other, complete(&held[1])).await;
        let started = now();
        let more = subscription.next().await.unwrap().unwrap();
        assert_eq!(more.len(), 1);
        assert!(now() - started < millis(1_200));
        sleep(secs(10)).await;
        let calls = scene.shell.live_calls.load(Ordering::SeqCst) - calls;
        assert!(calls <= 13, "{calls} look-ups");

        // The leases end: what nobody resolved does not count any more.
        sleep(secs(50)).await;
        assert!(!subscription.next().await.unwrap().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_through_another_server_keeps_its_place() {
    for scene in scenes().await {
        let other = scene.another().await;
        enqueue_many(&scene.engine, 10).await;
        let mut subscription = follow(&scene.engine, 2, 2);
        assert!(next_tasks(&mut subscription).await.is_empty());
        let held = next_tasks(&mut subscription).await;
        assert_eq!(held.len(), 2);

        // At the last moment, so that this server has not looked before the leases would have ended.
        sleep(held[0].lease_remaining.saturating_sub(millis(5))).await;
        for claim in &held {
            let (task_id, token) = (claim.task.id.clone(), claim.token.clone());
            let beat = ExtendRequest { task_id, token, lease: None, progress: None, strict: false };
            other.extend(beat).await.unwrap();
        }
        sleep(secs(30)).await;
        assert_eq!(counts(&scene).await.1, 2, "no more in flight than it may have");

        // Nobody extends them any more, and their places are free.
        let more = loop {
            let more = subscription.next().await.unwrap().unwrap();
            if !more.is_empty() {
                break more;
            }
        };
        assert_eq!(more.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_is_claimed_nothing_for() {
    for scene in scenes().await {
        enqueue_many(&scene.engine, 100).await;
        let mut subscription = follow(&scene.engine, 5, 1_000);
        let (handle, mut events) = work(&scene.engine);
        assert!(next_tasks(&mut subscription).await.is_empty());
        assert!(event(&mut events).await.tasks.is_empty());
        handle.credit(7);
        sleep(secs(5)).await;
        assert_eq!(counts(&scene).await.1, 5 + 7);
        drop(subscription);
        drop(events);
        settle().await;
        assert_eq!(counts(&scene).await, (100, 0, 0), "the undelivered went back");
        assert_eq!(claim_one(&scene.engine).await.attempt_no, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_goes_back_wakes_other_waiters() {
    for scene in scenes().await {
        enqueue_many(&scene.engine, 5).await;
        let idle = follow(&scene.engine, 5, 5);
        sleep(secs(1)).await;
        let mut other = follow(&scene.engine, 5, 5);
        assert!(next_tasks(&mut other).await.is_empty());
        drop(idle);
        assert_eq!(next_tasks(&mut other).await.len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_stream_gets_what_its_credits_allow_and_acknowledges_what_is_durable() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue_many(engine, 10).await;
        let (handle, mut events) = work(engine);
        assert!(events.next().now_or_never().is_some(), "the first event comes at once");
        handle.credit(3);
        let tasks = event(&mut events).await.tasks;
        assert_eq!(tasks.len(), 3);
        assert!(soon(&mut events).await.is_none(), "no credit is left");
        handle.outcomes(vec![(7, complete(&tasks[0])), (8, fail(&tasks[1], "x"))]).await;
        let beat = ExtendRequest {
            task_id: tasks[2].task.id.clone(),
            token: tasks[2].token.clone(),
            lease: Some(secs(90)),
            progress: None,
            strict: false,
        };
        handle.heartbeats(vec![(9, beat)]).await;
        let (mut outcomes, mut beats) = (Vec::new(), Vec::new());
        while outcomes.len() + beats.len() < 3 {
            let event = event(&mut events).await;
            outcomes.extend(event.outcome_acks);
            beats.extend(event.heartbeat_acks);
        }
        let statuses: Vec<_> =
            outcomes.iter().map(|(seq, ack)| (*seq, ack.as_ref().unwrap().status)).collect();
        assert_eq!(statuses, [(7, TaskStatus::Succeeded), (8, TaskStatus::Pending)]);
        assert_eq!((beats[0].0, beats[0].1.as_ref().unwrap().remaining), (9, secs(90)));
        assert!(soon(&mut events).await.is_none(), "outcomes are no credits");
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_stream_is_told_which_claims_are_lost() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue(engine, task("cancelled")).await;
        enqueue(engine, NewTask { expires: Some(Moment::In(secs(20))), ..task("expired") }).await;
        let (handle, mut events) = work(engine);
        handle.credit(2);
        let mut tasks = event(&mut events).await.tasks;
        while tasks.len() < 2 {
            tasks.extend(event(&mut events).await.tasks);
        }
        engine.cancel(id("cancelled")).await.unwrap();
        let lost = event(&mut events).await.lost;
        assert_eq!((lost.len(), lost[0].detail), (1, StaleDetail::Cancelled));
        assert_eq!(lost[0].generation, tasks[0].generation);
        sleep(secs(21)).await;
        engine.sweep_expired(queue("q")).await.unwrap();
        let mut lost = Vec::new();
        while lost.is_empty() {
            lost = event(&mut events).await.lost;
        }
        assert_eq!((&lost[0].id, lost[0].detail), (&id("expired"), StaleDetail::Expired));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_cancelled_before_it_is_read_is_not_delivered() {
    for scene in scenes().await {
        enqueue_many(&scene.engine, 1).await;
        enqueue(&scene.engine, task("cancelled")).await;
        let (handle, mut events) = work(&scene.engine);
        assert!(event(&mut events).await.tasks.is_empty());
        handle.credit(2);
        sleep(secs(1)).await;
        scene.engine.cancel(id("cancelled")).await.unwrap();
        let event = event(&mut events).await;
        assert_eq!((event.tasks.len(), event.lost.len()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_its_side_still_hears_of_its_outcomes() {
    for scene in scenes().await {
        enqueue_many(&scene.engine, 4).await;
        let (handle, mut events) = work(&scene.engine);
        handle.credit(2);
        let mut tasks = event(&mut events).await.tasks;
        while tasks.is_empty() {
            tasks = event(&mut events).await.tasks;
        }
        handle.credit(2);
        sleep(secs(1)).await;
        handle.outcomes(tasks.iter().map(|claim| (0, complete(claim))).collect()).await;
        drop(handle);
        let mut acks = 0;
        while let Some(event) = events.next().await {
            let event = event.unwrap();
            assert!(event.tasks.is_empty(), "nothing more is delivered");
            acks += event.outcome_acks.len();
        }
        assert_eq!(acks, 2);
        settle().await;
        assert_eq!(counts(&scene).await, (2, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_sends_is_slowed_down() {
    for scene in scenes().await {
        enqueue_many(&scene.engine, 1).await;
        let claimed = claim_one(&scene.engine).await;
        let (handle, mut events) = work(&scene.engine);
        let mut sent = 0;
        while timeout(secs(1), handle.outcomes(vec![(sent, complete(&claimed))])).await.is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 8);
        let acks = event(&mut events).await.outcome_acks;
        assert_eq!(acks.len(), 8);
        assert!(timeout(secs(1), handle.outcomes(vec![(8, complete(&claimed))])).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_idle_waiters_costs_one_claim_a_wake_up() {
    for scene in scenes().await {
        let crowd: Vec<_> = (0..500).map(|_| follow(&scene.engine, 10, 10)).collect();
        sleep(secs(1)).await;
        let before = scene.shell.claim_params.load(Ordering::SeqCst);
        for n in 0..10 {
            enqueue(&scene.engine, task(format!("t-{n}"))).await;
            sleep(secs(2)).await;
        }
        let claims = scene.shell.claim_params.load(Ordering::SeqCst) - before;
        let polls = if scene.masked { 20 * 5 } else { 0 };
        assert!((10..=40 + polls).contains(&claims), "{claims} claims for 10 tasks");
        assert_eq!(counts(&scene).await.1, 10);
        drop(crowd);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_with_hints_does_not_poll() {
    let [plain, masked] = scenes().await;
    let (_a, _b) = (follow(&plain.engine, 1, 1), follow(&masked.engine, 1, 1));
    sleep(secs(1)).await;
    let calls = |scene: &Scene| scene.shell.claim_calls.load(Ordering::SeqCst);
    let before = (calls(&plain), calls(&masked));
    sleep(secs(600)).await;
    assert!(calls(&plain) - before.0 <= 2, "an hourly look at most");
    let polls = calls(&masked) - before.1;
    assert!((1_900..=3_100).contains(&polls), "{polls} polls");
}

#[tokio::test(start_paused = true)]
async fn streams_outlive_an_outage_of_the_storage() {
    for scene in scenes().await {
        let mut subscription = follow(&scene.engine, 10, 10);
        assert!(next_tasks(&mut subscription).await.is_empty());
        scene.shell.cause(shell::Trouble::seeded(1, 0, 1_000, 0));
        enqueue_many(&scene.another().await, 1).await;
        let error = loop {
            if let Err(error) = scene.engine.claim(claim_request(1)).await {
                break error;
            }
        };
        assert!(matches!(error, EngineError::Storage(_)), "{error:?}");
        sleep(secs(60)).await;
        scene.shell.cause(shell::Trouble::none());
        let started = now();
        let mut tasks = Vec::new();
        while tasks.is_empty() {
            tasks = subscription.next().await.unwrap().unwrap();
        }
        assert!(now() - started < secs(9), "{:?}", now() - started);
    }
}

#[tokio::test(start_paused = true)]
async fn pausing_and_resuming_act_on_open_subscriptions() {
    for scene in scenes().await {
        let other = scene.another().await;
        let mut subscription = follow(&scene.engine, 10, 10);
        assert!(next_tasks(&mut subscription).await.is_empty());
        other.pause_queue(queue("q"), true).await.unwrap();
        sleep(secs(2)).await;
        enqueue_many(&scene.engine, 1).await;
        assert!(next_tasks(&mut subscription).await.is_empty());
        other.pause_queue(queue("q"), false).await.unwrap();
        let started = now();
        assert_eq!(subscription.next().await.unwrap().unwrap().len(), 1);
        assert!(now() - started < secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_leaves_nothing_claimed_and_undelivered() {
    for scene in scenes().await {
        let engine = &scene.engine;
        enqueue_many(engine, 50).await;
        let mut read = follow(engine, 5, 5);
        let mut unread = follow(engine, 5, 5);
        let (handle, mut events) = work(engine);
        assert!(event(&mut events).await.tasks.is_empty());
        handle.credit(3);
        let held = event(&mut events).await.tasks;
        handle.credit(4);
        let delivered = next_tasks(&mut read).await;
        assert_eq!((held.len(), delivered.len()), (3, 5));
        sleep(secs(1)).await;
        assert_eq!(counts(&scene).await.1, 3 + 4 + 5 + 5);

        let draining = tokio::spawn({
            let engine = engine.clone();
            async move { engine.drain().await }
        });
        settle().await;
        // The work stream is told first, and its last outcomes are taken.
        assert!(event(&mut events).await.draining);
        assert!(!draining.is_finished());
        handle.outcomes(held.iter().map(|claim| (1, complete(claim))).collect()).await;
        let mut acks = 0;
        let ended = loop {
            match events.next().await.unwrap() {
                Ok(event) => acks += event.outcome_acks.iter().filter(|ack| ack.1.is_ok()).count(),
                Err(error) => break error,
            }
        };
        assert!(matches!(ended, EngineError::Closed), "{ended:?}");
        assert_eq!(acks, 3);
        assert!(events.next().await.is_none());
        for subscription in [&mut read, &mut unread] {
            let ended = subscription.next().await.unwrap();
            assert!(matches!(ended, Err(EngineError::Closed)), "{ended:?}");
            assert!(subscription.next().await.is_none());
        }
        draining.await.unwrap();
        assert!(scene.shell.is_closed());
        assert_eq!(counts(&scene).await, (42, 5, 0), "only what was delivered is in flight");
        let refused = engine.claim(claim_request(1)).await.unwrap_err();
        assert!(matches!(refused, EngineError::Closed), "{refused:?}");
        assert!(
            engine.follow(FollowRequest { claim: claim_request(1), max_in_flight: 1 }).is_err()
        );
        let refused = engine.enqueue(submission(task("late"))).await.unwrap_err();
        assert!(matches!(refused, EngineError::Closed), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_its_grace_and_no_longer_for_a_worker_that_hangs() {
    for grace in [millis(0), millis(300), secs(5)] {
        let options = EngineOptions { drain_grace: grace, ..EngineOptions::default() };
        for scene in scenes_with(options).await {
            enqueue_many(&scene.engine, 1).await;
            let (handle, mut events) = work(&scene.engine);
            handle.credit(1);
            while event(&mut events).await.tasks.is_empty() {}
            let started = now();
            scene.engine.drain().await;
            let took = now() - started;
            assert!(took >= grace && took <= grace + secs(1), "{took:?} of {grace:?}");
            drop(handle);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_dropped_ends_its_streams() {
    for scene in scenes().await {
        let mut subscription = follow(&scene.engine, 1, 1);
        assert!(next_tasks(&mut subscription).await.is_empty());
        drop(scene.engine);
        assert!(matches!(subscription.next().await, Some(Err(EngineError::Closed))));
    }
}

#[tokio::test(start_paused = true)]
async fn no_item_outgrows_a_message_and_nothing_is_leaked_by_that() {
    for scene in scenes().await {
        let envelope = Bytes::from(vec![0; 1_250_000]);
        for n in 0..5 {
            let task = NewTask { envelope: envelope.clone(), ..task(format!("{n}")) };
            let submission = Submission { task, payload_bytes: 1_000_000 };
            scene.engine.enqueue(submission).await.unwrap();
        }
        assert_eq!(claim(&scene.engine, 100).await.len(), 2);
        let (handle, mut events) = work(&scene.engine);
        handle.credit(100);
        let mut got = Vec::new();
        while got.len() < 3 {
            let tasks = event(&mut events).await.tasks;
            assert!(tasks.len() <= 2);
            got.extend(tasks);
        }
        assert_eq!(counts(&scene).await, (0, 5, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn hints_are_given_with_or_without_the_storages_help() {
    for scene in scenes().await {
        let mut hints = scene.engine.wait_due(vec![queue("q"), queue("r")]).await.unwrap();
        if scene.masked {
            assert!(hints.next().await.is_some() && hints.next().await.is_some());
        } else {
            assert!(timeout(secs(5), hints.next()).await.is_err());
        }
        enqueue_many(&scene.engine, 1).await;
        let hint = timeout(secs(1), hints.next()).await.unwrap().unwrap();
        assert_eq!(hint.queue, queue("q"));
        scene.engine.drain().await;
        while hints.next().await.is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_poisoned_queue_does_not_hold_up_a_subscription() {
    for scene in scenes_with(EngineOptions::default()).await {
        let overrides = Overrides { max_attempts: Some(1), ..Overrides::default() };
        for n in 0..30 {
            let spent = NewTask { attempt_count: 1, overrides, ..task(format!("spent-{n}")) };
            enqueue(&scene.engine, spent).await;
        }
        enqueue(&scene.engine, task("good")).await;
        let mut subscription = follow(&scene.engine, 10, 10);
        assert!(next_tasks(&mut subscription).await.is_empty());
        assert_eq!(next_tasks(&mut subscription).await[0].task.id, id("good"));
        assert_eq!(counts(&scene).await, (0, 1, 30));
    }
}
