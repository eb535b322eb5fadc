//! Many at once, through two handles: the sum must come out right. What each history shows is judged
//! by the checker of histories; what the store holds at the end is counted here.

use super::resolve::CALLS;
use crate::{
    Fixture, Random,
    given::*,
    history::{History, Truth, check},
};
use futures::future::join_all;
use rdq_spi::{AttemptOutcome, Call, Claim, Moment, QueueName, Storage, Task, TaskId, TaskStatus};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// The lease that stalled workers outlive.
const LEASE: Duration = Duration::from_millis(80);

/// Two handles on one store, recorded.
async fn two_handles<F: Fixture>(fixture: &F, history: &History) -> [Arc<dyn Storage>; 2] {
    [history.watch(fixture.open().await), history.watch(fixture.open().await)]
}

/// Runs so many at once, on alternate handles, each with its own random numbers.
async fn all_at_once<T: Send + 'static, R: Future<Output = T> + Send + 'static>(
    n: usize,
    stores: &[Arc<dyn Storage>; 2],
    role: impl Fn(Arc<dyn Storage>, Random) -> R,
) -> Vec<T> {
    let seed = Random::any_seed();
    let start = |i: usize| {
        let random = Random::seeded(seed ^ u64::try_from(i).expect("few"));
        tokio::spawn(role(stores[i % 2].clone(), random))
    };
    join_all((0..n).map(start)).await.into_iter().map(|it| it.expect("no call failed")).collect()
}

/// Completes everything that is left, waiting for leases to lapse.
async fn drain(store: &dyn Storage, queue: &QueueName) {
    loop {
        let claimed = claim_as(store, claim_params(queue, 100, LONG_LEASE)).await;
        for claim in &claimed.claims {
            complete(store, claim).await;
        }
        match claimed.next_due_in {
            None if claimed.claims.is_empty() => return,
            None => {}
            Some(wait) => tokio::time::sleep(wait.min(LEASE)).await,
        }
    }
}

/// What the checker says, against what the store holds.
async fn assert_clean(history: &History, store: &dyn Storage, queue: &QueueName) {
    assert_clean_as_of(history, list_all(store, queue).await);
}

/// What the checker says, against what the store held then.
fn assert_clean_as_of(history: &History, found: Vec<Task>) {
    let states = found.into_iter().map(|task| (task.id, task.status));
    let truth = Truth { states: states.collect(), max_attempts: None };
    let violations = check(history, &truth);
    assert!(violations.is_empty(), "{history:?}: {violations:#?}");
}

pub(crate) async fn stalled_and_quick_workers_finish_every_task_once<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    let queue = some_queue();
    let admitted = enqueue_some(&*stores[0], &queue, 60).await;

    let worked: Vec<Vec<TaskId>> = all_at_once(8, &stores, |store, mut random| {
        let queue = queue.clone();
        async move {
            let mut done = Vec::new();
            for _ in 0..12 {
                for claimed in claim(&*store, &queue, 2, LEASE).await {
                    if random.percent(15) {
                        lapse(LEASE).await;
                    }
                    let call = if random.percent(70) { Call::Complete } else { Call::Reschedule };
                    match end(&*store, &claimed, call).await {
                        Ok(_) if call == Call::Complete => done.push(claimed.task.id),
                        Ok(_) => {}
                        answer => assert!(is_stale(&answer), "{answer:?}"),
                    }
                }
            }
            done
        }
    })
    .await;
    drain(&*stores[1], &queue).await;

    let done: Vec<_> = worked.into_iter().flatten().collect();
    assert_eq!(done.iter().collect::<HashSet<_>>().len(), done.len(), "none was completed twice");
    for id in &admitted {
        let task = get(&*stores[0], id).await;
        assert_eq!(task.status, TaskStatus::Succeeded);
        let ended = |outcome| {
            let alike = task.attempts.iter().filter(|record| record.outcome == Some(outcome));
            u32::try_from(alike.count()).expect("few")
        };
        assert_eq!(ended(AttemptOutcome::Success), 1);
        assert_eq!(ended(AttemptOutcome::LeaseExpired), task.lease_expired_count);
        assert_eq!(usize::try_from(task.attempt_count).expect("few"), task.attempts.len());
        let numbers: Vec<_> = task.attempts.iter().map(|record| record.attempt_no).collect();
        assert_eq!(numbers, (1..=task.attempt_count).collect::<Vec<_>>());
    }
    assert_clean(&history, &*stores[0], &queue).await;
}

pub(crate) async fn claimants_share_out_every_task_once<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    let queue = some_queue();
    let admitted = enqueue_some(&*stores[0], &queue, 200).await;

    let claimed = all_at_once(16, &stores, |store, mut random| {
        let queue = queue.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                let limit = u32::try_from(1 + random.below(9)).expect("small");
                let claims = claim(&*store, &queue, limit, LONG_LEASE).await;
                if claims.is_empty() {
                    return mine;
                }
                mine.extend(ids(&claims));
            }
        }
    })
    .await;

    let mut claimed: Vec<_> = claimed.into_iter().flatten().collect();
    claimed.sort();
    let mut admitted = admitted;
    admitted.sort();
    assert_eq!(claimed, admitted);
}

pub(crate) async fn one_of_many_ends_of_a_claim_wins<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    for _ in 0..10 {
        let queue = some_queue();
        let id = enqueue_one(&*stores[0], &queue).await;
        let claimed = claim_one(&*stores[0], &queue, LONG_LEASE).await;

        let calls = CALLS.into_iter().enumerate().map(|(i, call)| {
            let (store, claimed) = (stores[i % 2].clone(), claimed.clone());
            tokio::spawn(async move { (call, end(&*store, &claimed, call).await) })
        });
        let answers: Vec<_> =
            join_all(calls).await.into_iter().map(|it| it.expect("ran")).collect();

        let winners: Vec<_> = answers.iter().filter(|(_, answer)| answer.is_ok()).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        let stale = answers.iter().filter(|(_, answer)| is_stale(answer)).count();
        assert_eq!(stale, 4, "{answers:?}");
        let task = get(&*stores[1], &id).await;
        let records = u32::from(winners[0].0 != Call::Release);
        assert_eq!(task.attempt_count, records, "{answers:?}");
    }
}

pub(crate) async fn a_cancellation_and_a_completion_do_not_both_win<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    let queue = some_queue();
    enqueue_some(&*stores[0], &queue, 30).await;
    for claimed in claim(&*stores[0], &queue, 30, LONG_LEASE).await {
        let (store, id) = (stores[1].clone(), claimed.task.id.clone());
        let cancelling = tokio::spawn(async move { cancel(&*store, &id).await.expect("cancel") });
        let completed = end(&*stores[0], &claimed, Call::Complete).await;
        let cancelled = cancelling.await.expect("ran");

        assert_ne!(completed.is_ok(), cancelled.changed, "{completed:?} {cancelled:?}");
        let task = get(&*stores[0], &claimed.task.id).await;
        let expected =
            if cancelled.changed { TaskStatus::Cancelled } else { TaskStatus::Succeeded };
        assert_eq!((task.status, cancelled.status), (expected, expected));
        assert_eq!(task.attempts.len(), 1);
    }
    assert_clean(&history, &*stores[0], &queue).await;
}

pub(crate) async fn a_reclaim_and_a_late_completion_do_not_both_win<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    let queue = some_queue();
    enqueue_some(&*stores[0], &queue, 20).await;
    let late = claim(&*stores[0], &queue, 20, SHORT_LEASE).await;
    lapse(SHORT_LEASE).await;

    let reclaiming = {
        let (store, queue) = (stores[1].clone(), queue.clone());
        tokio::spawn(async move {
            let mut reclaimed = Vec::new();
            for _ in 0..20 {
                reclaimed.extend(ids(&claim(&*store, &queue, 1, LONG_LEASE).await));
            }
            reclaimed
        })
    };
    let mut completed = Vec::new();
    for claimed in late.iter().rev() {
        if end(&*stores[0], claimed, Call::Complete).await.is_ok() {
            completed.push(claimed.task.id.clone());
        }
    }
    let mut all = reclaiming.await.expect("ran");
    all.extend(completed);

    let once: HashSet<_> = all.iter().collect();
    assert_eq!((all.len(), once.len()), (20, 20), "each went one way");
}

pub(crate) async fn concurrent_redrives_take_each_dead_letter_once<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    let queue = some_queue();
    let dead = die_together(&*stores[0], &queue, 40).await;

    let counts = all_at_once(4, &stores, |store, _| {
        let queue = queue.clone();
        async move { redrive_all(&*store, &queue).await }
    })
    .await;

    assert_eq!(counts.iter().sum::<u64>(), 40, "{counts:?}");
    for id in &dead {
        let task = get(&*stores[0], id).await;
        assert_eq!((task.status, task.redrive_count), (TaskStatus::Pending, 1));
    }
    assert_eq!(claim(&*stores[1], &queue, 100, LONG_LEASE).await.len(), 40);
}

/// Waits for a call, but gives up on it after a while: its future is dropped midway.
async fn or_drop<T>(random: &mut Random, call: impl Future<Output = T>) -> Option<T> {
    let patience = Duration::from_micros(random.next_u64() % 3_000);
    if random.percent(40) {
        // Dropped at the very first point where it waits for anything.
        return futures::FutureExt::now_or_never(call);
    }
    tokio::time::timeout(patience, call).await.ok()
}

pub(crate) async fn dropped_calls_apply_wholly_or_not_at_all<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    let queue = some_queue();

    let admitted: Vec<HashMap<TaskId, bool>> = all_at_once(8, &stores, |store, mut random| {
        let queue = queue.clone();
        async move {
            let mut admitted = HashMap::new();
            for _ in 0..12 {
                let drafts: Vec<_> = (0..3).map(|_| Draft::of(&queue)).collect();
                let answer = or_drop(&mut random, admit(&*store, &drafts)).await;
                let acknowledged = answer.is_some_and(|it| it.iter().all(Result::is_ok));
                admitted.extend(drafts.into_iter().map(|draft| (draft.task.id, acknowledged)));
                let claiming = claim(&*store, &queue, 4, LEASE);
                for claimed in or_drop(&mut random, claiming).await.unwrap_or_default() {
                    let call = CALLS[random.below(4)];
                    drop(or_drop(&mut random, end(&*store, &claimed, call)).await);
                }
                or_drop(&mut random, redrive_all(&*store, &queue)).await;
            }
            admitted
        }
    })
    .await;
    // A dropped call may still be under way, and leave work behind after any look. So the tasks are
    // judged as they stood when all of them had ended.
    let found = loop {
        settle(&*stores[0], &queue).await;
        drain(&*stores[0], &queue).await;
        let found = list_all(&*stores[1], &queue).await;
        if found.iter().all(|task| task.status.is_terminal()) {
            break found;
        }
    };
    let present: HashSet<_> = found.iter().map(|task| &task.id).collect();
    for (id, acknowledged) in admitted.iter().flatten() {
        assert!(present.contains(id) || !acknowledged, "{id} was acknowledged and is gone");
    }
    for task in &found {
        let whole = get(&*stores[1], &task.id).await;
        let numbers: Vec<_> = whole.attempts.iter().map(|record| record.attempt_no).collect();
        assert_eq!(numbers, (1..=whole.last_attempt_no).collect::<Vec<_>>(), "no half record");
        assert!(whole.attempts.iter().all(|record| record.outcome.is_some()));
    }
    assert_clean_as_of(&history, found);
}

/// Waits until what was dropped has run to its end, as it seems: until the counts stand still.
async fn settle(store: &dyn Storage, queue: &QueueName) {
    let mut last = None;
    loop {
        let stats = store.stats(queue.clone()).await.expect("stats");
        let counts = (stats.ready + stats.delayed + stats.in_flight, stats.dead, stats.succeeded);
        if last.replace(counts) == Some(counts) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

pub(crate) async fn heartbeats_keep_a_claim_among_claimants<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    let queue = some_queue();
    enqueue_one(&*stores[0], &queue).await;
    // Long enough that a slow machine still beats in time.
    let lease = Duration::from_secs(2);
    let held = claim_one(&*stores[0], &queue, lease).await;
    let thief = {
        let (store, queue) = (stores[1].clone(), queue.clone());
        tokio::spawn(async move {
            let mut stolen: Vec<Claim> = Vec::new();
            for _ in 0..30 {
                stolen.extend(claim(&*store, &queue, 1, lease).await);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stolen
        })
    };
    let mut kept = true;
    while !thief.is_finished() {
        kept &= extend(&*stores[0], heartbeat(&held, lease)).await.is_ok();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let stolen = thief.await.expect("ran");
    // It may have been stolen at the very end, from one who was kept from beating in time.
    kept &= extend(&*stores[0], heartbeat(&held, lease)).await.is_ok();

    assert_eq!(kept, stolen.is_empty(), "a claim is kept, or it is lost");
    let last = stolen.last().unwrap_or(&held);
    complete(&*stores[0], last).await;
    assert_clean(&history, &*stores[0], &queue).await;
}

pub(crate) async fn admissions_and_claims_at_once_lose_nothing<F: Fixture>(fixture: F) {
    let history = History::new();
    let stores = two_handles(&fixture, &history).await;
    let queue = some_queue();
    let producing = all_at_once(4, &stores, |store, mut random| {
        let queue = queue.clone();
        async move {
            let mut mine = Vec::new();
            for _ in 0..10 {
                let due = Moment::In(Duration::from_millis(random.next_u64() % 20));
                let drafts: Vec<_> = (0..4).map(|_| Draft::of(&queue).due(due)).collect();
                mine.extend(enqueue_all(&*store, &drafts).await);
            }
            mine
        }
    });
    let working = all_at_once(4, &stores, |store, _| {
        let queue = queue.clone();
        async move {
            for _ in 0..10 {
                for claimed in claim(&*store, &queue, 5, LONG_LEASE).await {
                    complete(&*store, &claimed).await;
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    });
    let (admitted, _) = futures::join!(producing, working);
    drain(&*stores[0], &queue).await;

    let found: HashSet<_> = task_ids(&list_all(&*stores[0], &queue).await).into_iter().collect();
    assert_eq!(found, admitted.into_iter().flatten().collect());
    assert_clean(&history, &*stores[0], &queue).await;
}
