//! Those who use the service: producers, three kinds of workers, and an operator with a heavy hand.
//! Each follows its own seeded die.

use crate::{
    history::{LEASE, Path, expected, reached},
    support::{
        claim_request, complete, fail, id, millis, queue, report, request, secs, submission, task,
        worker,
    },
    world::World,
};
use futures::StreamExt as _;
use rdq_engine::{
    Action, ClaimRequest, ClaimedTask, Engine, EngineError, ExtendRequest, FollowRequest,
    Judgement, PurgeRequest, RedriveRequest, ResolveRequest, WorkStart,
};
use rdq_spi::{Moment, NewTask, Overrides, Resolved, Selection};
use std::rc::Rc;
use tokio::time::{sleep, timeout};

type Rng = fastrand::Rng;

fn pause(rng: &mut Rng, max: u64) -> tokio::time::Sleep {
    sleep(millis(rng.u64(1..=max)))
}

/// Enqueues tasks, each until it is acknowledged, now and then once more.
pub async fn producer(world: Rc<World>, mut rng: Rng, name: usize) {
    for n in 0..rng.usize(5..15) {
        let overrides = Overrides { max_attempts: Some(rng.u32(1..5)), ..Overrides::default() };
        let delay = if rng.bool() { secs(0) } else { millis(rng.u64(1..4_000)) };
        let expires = (rng.u8(0..6) == 0).then(|| Moment::In(millis(rng.u64(500..9_000))));
        let priority = rng.i32(0..3);
        let due = Moment::In(delay);
        let task = NewTask { overrides, due, expires, priority, ..task(format!("{name}-{n}")) };
        loop {
            world.history.enqueued(&task, None);
            let answer = world.engine(&mut rng).enqueue(submission(task.clone())).await;
            match answer {
                Ok(admission) => {
                    world.history.enqueued(&task, Some(admission.created));
                    if rng.u8(0..5) > 0 {
                        break;
                    }
                }
                Err(error) => expected(&error),
            }
            pause(&mut rng, 100).await;
        }
        pause(&mut rng, 1_500).await;
    }
}

fn claim_of(rng: &mut Rng, limit: u32) -> ClaimRequest {
    let lease = rng.bool().then_some(LEASE);
    ClaimRequest { lease, ..claim_request(limit) }
}

/// Claims by single calls, some of which it does not wait for.
pub async fn caller(world: Rc<World>, mut rng: Rng) {
    while !world.over.get() {
        let engine = world.engine(&mut rng);
        let limit = rng.u32(1..4);
        let claiming = engine.claim(claim_of(&mut rng, limit));
        let patience = if rng.u8(0..4) == 0 { millis(rng.u64(0..50)) } else { secs(5) };
        match timeout(patience, claiming).await {
            Ok(Ok(claims)) => {
                for claim in claims {
                    world.history.granted(&claim);
                    let work = handle(Rc::clone(&world), engine.clone(), rng.fork(), claim);
                    if rng.bool() { work.await } else { world.spawn(work) }
                }
            }
            Ok(Err(error)) => expected(&error),
            Err(_) => reached(Path::ClaimDropped),
        }
        pause(&mut rng, 700).await;
    }
}

/// Follows, for a while each time.
pub async fn follower(world: Rc<World>, mut rng: Rng) {
    while !world.over.get() {
        let engine = world.engine(&mut rng);
        let claim = claim_of(&mut rng, 3);
        let opened = engine.follow(FollowRequest { claim, max_in_flight: rng.u32(1..6) });
        let mut subscription = match opened {
            Ok(subscription) => subscription,
            Err(error) => {
                expected(&error);
                pause(&mut rng, 300).await;
                continue;
            }
        };
        for _ in 0..rng.usize(1..20) {
            match timeout(secs(1), subscription.next()).await {
                Ok(Some(Ok(claims))) => {
                    for claim in claims {
                        world.history.granted(&claim);
                        let work = handle(Rc::clone(&world), engine.clone(), rng.fork(), claim);
                        world.spawn(work);
                    }
                }
                Ok(Some(Err(error))) => expected(&error),
                Ok(None) => break,
                Err(_) if world.over.get() => break,
                Err(_) => {}
            }
            if rng.u8(0..5) == 0 {
                pause(&mut rng, 1_000).await;
            }
        }
        reached(Path::StreamDropped);
    }
}

/// Works on streams, and leaves each in some way.
pub async fn streamer(world: Rc<World>, mut rng: Rng) {
    while !world.over.get() {
        let lease = rng.bool().then_some(LEASE);
        let start = WorkStart { queues: vec![queue("q")], lease, worker_id: worker("stream") };
        match world.engine(&mut rng).work(start) {
            Ok(stream) => work_on(&world, &mut rng, stream).await,
            Err(error) => {
                expected(&error);
                pause(&mut rng, 300).await;
            }
        }
    }
}

async fn work_on(
    world: &World,
    rng: &mut Rng,
    (handle, mut events): (rdq_engine::WorkHandle, rdq_engine::WorkEvents),
) {
    let (mut granted, mut received) = (0, 0);
    let mut sent = std::collections::BTreeMap::new();
    let mut seq = 0;
    let mut handle = Some(handle);
    for _ in 0..rng.usize(3..30) {
        if let (Some(handle), true) = (&handle, rng.bool()) {
            let credit = rng.u32(1..4);
            granted += credit as usize;
            handle.credit(credit);
        }
        let event = match timeout(millis(rng.u64(1..1_500)), events.next()).await {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => {
                expected(&error);
                continue;
            }
            Ok(None) => break,
            Err(_) if world.over.get() => break,
            Err(_) => continue,
        };
        received += event.tasks.len();
        assert!(received <= granted, "{received} tasks for {granted} credits");
        event.lost.iter().for_each(|_| reached(Path::LossTold));
        for (seq, answer) in &event.outcome_acks {
            let sent = sent.remove(seq).expect("each outcome is acknowledged once");
            let replayed = answer.as_ref().is_ok_and(|done: &Resolved| done.replayed);
            world.history.answered(&sent, answer, replayed);
        }
        let mut outcomes = Vec::new();
        for claim in event.tasks {
            world.history.granted(&claim);
            if rng.u8(0..5) == 0 {
                continue; // the handler hangs
            }
            let completes = rng.bool();
            let outcome = if completes { complete(&claim) } else { fail(&claim, "x") };
            seq += 1;
            sent.insert(seq, world.history.sends(&claim, true, completes));
            outcomes.push((seq, outcome));
        }
        if let Some(handle) = &handle
            && timeout(secs(2), handle.outcomes(outcomes)).await.is_err()
        {
            break;
        }
        if rng.u8(0..12) == 0 {
            handle = None;
        }
    }
    // Answers that were not read are as good as lost.
    for sent in sent.values() {
        world.history.answered::<()>(sent, &Err(EngineError::Closed), false);
    }
}

/// What a worker does with one claim: mostly its work, at times anything else.
async fn handle(world: Rc<World>, engine: Engine, mut rng: Rng, claim: ClaimedTask) {
    match rng.u8(0..20) {
        0..=5 => end(&world, &engine, &claim, complete(&claim), true).await,
        6..=8 => end(&world, &engine, &claim, fail(&claim, "timeout"), false).await,
        9 => end(&world, &engine, &claim, fail(&claim, "fatal.bug"), false).await,
        10 => {
            let judgement = Some(Judgement::Permanent);
            let action = Action::Fail { attempt: report("timeout"), judgement };
            end(&world, &engine, &claim, request(&claim, action), false).await;
        }
        // It crashes.
        11..=12 => {}
        // It stalls past its lease, and then believes it holds the claim.
        13..=14 => {
            sleep(millis(rng.u64(900..6_000))).await;
            end(&world, &engine, &claim, complete(&claim), true).await;
        }
        // It lost the answer and repeats itself, through another server perhaps.
        15 => {
            end(&world, &engine, &claim, complete(&claim), true).await;
            pause(&mut rng, 500).await;
            end(&world, &world.engine(&mut rng), &claim, complete(&claim), true).await;
        }
        // It lies: two different outcomes.
        16 => {
            end(&world, &engine, &claim, fail(&claim, "x"), false).await;
            pause(&mut rng, 3_000).await;
            end(&world, &engine, &claim, complete(&claim), true).await;
        }
        17 => {
            let action = Action::Release { delay: millis(rng.u64(0..500)) };
            end(&world, &engine, &claim, request(&claim, action), false).await;
            reached(Path::Released);
        }
        18 => {
            beat(&world, &engine, &claim).await;
            sleep(millis(rng.u64(1..800))).await;
            beat(&world, &engine, &claim).await;
            end(&world, &engine, &claim, complete(&claim), true).await;
        }
        _ => {
            pause(&mut rng, 300).await;
            cancel(&world, &world.engine(&mut rng), claim.task.id.as_str()).await;
            end(&world, &engine, &claim, complete(&claim), true).await;
        }
    }
}

async fn end(
    world: &World,
    engine: &Engine,
    claim: &ClaimedTask,
    request: ResolveRequest,
    completes: bool,
) {
    let sent = world.history.sends(claim, true, completes);
    let answer = engine.resolve(request).await;
    let replayed = answer.as_ref().is_ok_and(|done| done.replayed);
    world.history.answered(&sent, &answer, replayed);
}

async fn beat(world: &World, engine: &Engine, claim: &ClaimedTask) {
    let (task_id, token) = (claim.task.id.clone(), claim.token.clone());
    let sent = world.history.sends(claim, false, false);
    let beat = ExtendRequest { task_id, token, lease: None, progress: None, strict: false };
    let answer = engine.extend(beat).await;
    world.history.answered(&sent, &answer, false);
    if let Ok(extended) = &answer {
        world.history.extended(&sent, extended);
    }
}

async fn cancel(world: &World, engine: &Engine, name: &str) {
    match engine.cancel(id(name)).await {
        Ok(cancelled) if cancelled.changed => world.history.cancelled(&id(name)),
        Ok(_) => {}
        Err(error) => expected(&error),
    }
}

/// Drains, kills and restarts servers, pauses the queue, cancels and redrives.
pub async fn operator(world: Rc<World>, mut rng: Rng) {
    while !world.over.get() {
        pause(&mut rng, 3_000).await;
        let engine = world.engine(&mut rng);
        match rng.u8(0..7) {
            0 => restart(&world, &mut rng, true).await,
            1 => restart(&world, &mut rng, false).await,
            2 => {
                let pausing = async {
                    engine.pause_queue(queue("q"), true).await?;
                    sleep(secs(2)).await;
                    reached(Path::Paused);
                    engine.pause_queue(queue("q"), false).await
                };
                if let Err(error) = pausing.await {
                    expected(&error);
                }
            }
            3 | 4 => {
                let ids = world.history.acknowledged();
                if !ids.is_empty() {
                    cancel(&world, &engine, ids[rng.usize(0..ids.len())].as_str()).await;
                }
            }
            5 => redrive(&engine).await,
            _ => {
                // Nobody's dead letters: nothing is purged.
                let purge = PurgeRequest {
                    queue: queue("other"),
                    selection: Selection::All,
                    dry_run: false,
                    subject: "operator".into(),
                };
                if let Ok(progress) = engine.purge(purge) {
                    progress.for_each(|_| async {}).await;
                }
            }
        }
    }
}

async fn redrive(engine: &Engine) {
    let redrive = RedriveRequest {
        queue: queue("q"),
        selection: Selection::All,
        dry_run: false,
        pace: None,
        subject: "operator".into(),
    };
    match engine.redrive(redrive) {
        Ok(mut progress) => {
            while let Some(step) = progress.next().await {
                if let Err(error) = step {
                    expected(&error);
                }
            }
        }
        Err(error) => expected(&error),
    }
}

async fn restart(world: &World, rng: &mut Rng, gently: bool) {
    let at = rng.usize(0..world.servers.len());
    let fresh = World::serve(&world.memory, rng).await;
    let old = world.servers[at].replace(fresh);
    if gently {
        old.engine.drain().await;
        reached(Path::Drained);
    } else {
        drop(old);
        reached(Path::EngineDropped);
    }
}
