//! Tasks that stand in the index as runs, against a model: whatever leaves a run in whatever order,
//! the counts are right, each task is handed out as often as it was pending, and nothing stays behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod servers;

use rdq_compliance::crew::{claim_ref, new_task, queue, resolution};
use rdq_redis::RedisStorage;
use rdq_spi::{
    Age, Call, Claim, ClaimParams, ClaimQueue, ExtendParams, ListParams, NewTask, Outcome,
    PurgeParams, QueueName, QueueStats, Selection, Storage as _, SweepParams, TaskId, TaskStatus,
    Timestamp, WorkerId,
};
use rdq_test_servers::redis::Flavor;
use servers::Served;
use std::{collections::BTreeMap, time::Duration};

const LEASE: Duration = Duration::from_secs(600);
/// Less than any step of the test takes, with the pause after it.
const SHORT_LEASE: Duration = Duration::from_millis(10);

/// Numbers in an order that looks like none, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
    }
}

/// What should be there.
struct Model {
    store: RedisStorage,
    queue: QueueName,
    dice: Dice,
    admitted: usize,
    statuses: BTreeMap<TaskId, TaskStatus>,
    held: Vec<Claim>,
}

impl Model {
    fn count(&self, status: TaskStatus) -> u64 {
        self.statuses.values().filter(|it| **it == status).count().try_into().unwrap()
    }

    async fn admit(&mut self, count: usize) {
        let tasks: Vec<_> = (0..count)
            .map(|n| {
                let priority = i32::try_from(self.dice.below(8) / 7).unwrap();
                let id = format!("t{}", self.admitted + n);
                NewTask { priority, ..new_task(&id, &self.queue) }
            })
            .collect();
        self.admitted += count;
        self.statuses.extend(tasks.iter().map(|it| (it.id.clone(), TaskStatus::Pending)));
        for admission in self.store.enqueue(tasks).await.unwrap() {
            assert!(admission.unwrap().created);
        }
    }

    async fn claim(&mut self, limit: u32, lease: Duration) -> Vec<Claim> {
        let from = ClaimQueue { queue: self.queue.clone(), lease, lease_max: LEASE };
        let params = ClaimParams {
            queues: vec![from],
            limit,
            bytes_max: 1 << 20,
            lease: None,
            worker_id: WorkerId::new("worker").unwrap(),
        };
        self.store.claim_due(vec![params]).await.unwrap().remove(0).unwrap().claims
    }

    async fn take(&mut self, limit: u32) {
        let expected = self.count(TaskStatus::Pending).min(limit.into());
        let claims = self.claim(limit, LEASE).await;
        assert_eq!(u64::try_from(claims.len()).unwrap(), expected);
        for claim in claims {
            let before = self.statuses.insert(claim.task.id.clone(), TaskStatus::InFlight);
            assert_eq!(before, Some(TaskStatus::Pending), "{claim:?}");
            self.held.push(claim);
        }
    }

    /// Claims that lapse, and are claimed again by others.
    async fn lose(&mut self, limit: u32) {
        let lost = self.claim(limit, SHORT_LEASE).await;
        tokio::time::sleep(2 * SHORT_LEASE).await;
        let stats = self.store.stats(self.queue.clone()).await.unwrap();
        assert_eq!(stats.lapsed, u64::try_from(lost.len()).unwrap());
        for claim in lost {
            self.statuses.insert(claim.task.id, TaskStatus::Pending);
        }
        let again = u32::try_from(self.count(TaskStatus::Pending)).unwrap();
        self.take(again).await;
    }

    async fn resolve(&mut self, count: usize) {
        let mut ends = Vec::new();
        for _ in 0..count.min(self.held.len()) {
            let claim = self.held.swap_remove(self.dice.below(self.held.len()));
            let calls = [Call::Complete, Call::Reschedule, Call::DeadLetter, Call::Release];
            let call = calls[self.dice.below(8).saturating_sub(4)];
            let mut end = resolution(&claim, call);
            if let Outcome::Succeed { forget, .. } = &mut end.outcome {
                *forget = self.dice.below(4) > 0;
                if *forget {
                    self.statuses.remove(&claim.task.id);
                }
            }
            ends.push(end);
        }
        for (end, resolved) in ends.clone().iter().zip(self.store.resolve(ends).await.unwrap()) {
            let status = resolved.unwrap().status;
            self.statuses.entry(end.claim.task_id.clone()).and_modify(|it| *it = status);
        }
    }

    async fn extend(&mut self, count: usize) {
        let leases = self.held.iter().take(count).map(|claim| ExtendParams {
            claim: claim_ref(claim),
            lease: LEASE,
            held_max: None,
            progress: None,
            strict: false,
        });
        for extended in self.store.extend_leases(leases.collect()).await.unwrap() {
            extended.unwrap();
        }
    }

    async fn cancel(&mut self, count: usize) {
        let ids: Vec<_> = self.statuses.keys().cloned().collect();
        let some: Vec<_> =
            (0..count.min(ids.len())).map(|_| ids[self.dice.below(ids.len())].clone()).collect();
        for (id, cancelled) in some.iter().zip(self.store.cancel(some.clone()).await.unwrap()) {
            self.statuses.insert(id.clone(), cancelled.unwrap().status);
            self.held.retain(|claim| claim.task.id != *id);
        }
    }

    async fn check(&self) {
        let stats = self.store.stats(self.queue.clone()).await.unwrap();
        let expected = QueueStats {
            ready: self.count(TaskStatus::Pending),
            in_flight: self.count(TaskStatus::InFlight),
            dead: self.count(TaskStatus::Dead),
            succeeded: self.count(TaskStatus::Succeeded),
            cancelled: self.count(TaskStatus::Cancelled),
            oldest_pending_age: stats.oldest_pending_age,
            ..QueueStats::default()
        };
        assert_eq!(stats, expected);
        assert_eq!(stats.oldest_pending_age.is_some(), stats.ready > 0);
    }

    /// Every task, by admission, newest first.
    async fn check_list(&self) {
        let (mut listed, mut position) = (Vec::new(), None);
        loop {
            let params = ListParams {
                queue: self.queue.clone(),
                status: None,
                position,
                limit: 45,
                bytes_max: 1 << 20,
                include_attempts: false,
            };
            let page = self.store.list(params).await.unwrap();
            listed.extend(page.tasks.into_iter().map(|task| (task.id, task.status)));
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        let number = |id: &TaskId| id.as_str()[1..].parse::<usize>().unwrap();
        assert!(listed.is_sorted_by_key(|(id, _)| std::cmp::Reverse(number(id))), "{listed:?}");
        assert_eq!(listed.into_iter().collect::<BTreeMap<_, _>>(), self.statuses);
    }

    async fn clear(&mut self) {
        self.take(1000).await;
        let ends = self.held.drain(..).map(|claim| {
            let mut end = resolution(&claim, Call::Complete);
            if let Outcome::Succeed { forget, .. } = &mut end.outcome {
                *forget = true;
            }
            end
        });
        for resolved in self.store.resolve(ends.collect()).await.unwrap() {
            resolved.unwrap();
        }
        let purge = PurgeParams {
            queue: self.queue.clone(),
            selection: Selection::All,
            dry_run: false,
            position: None,
            limit: 1000,
        };
        self.store.purge(purge).await.unwrap();
        let sweep = SweepParams {
            queue: self.queue.clone(),
            expire: false,
            succeeded_older_than: Some(Age::Before(Timestamp::MAX)),
            cancelled_older_than: Some(Age::Before(Timestamp::MAX)),
            dead: None,
            limit: 1000,
        };
        self.store.sweep(sweep).await.unwrap();
    }
}

#[tokio::test]
async fn whatever_leaves_a_run_the_counts_are_right_and_nothing_stays_behind() {
    if let Some(reason) = Flavor::Redis.missing_locally() {
        eprintln!("ignored: {reason}");
        return;
    }
    let served = Served::start_with(Flavor::Redis, &[]).await;
    for seed in 1..=2 {
        let mut model = Model {
            store: served.open().await,
            queue: queue("q"),
            dice: Dice(seed),
            admitted: 0,
            statuses: BTreeMap::new(),
            held: Vec::new(),
        };
        for _ in 0..100 {
            // About as large as runs, and as what is too little for one.
            let count = [1, 2, 3, 4, 31, 32, 33, 70][model.dice.below(8)];
            match model.dice.below(7) {
                0 | 1 => model.admit(count).await,
                2 => model.take(count.try_into().unwrap()).await,
                3 => model.resolve(count).await,
                4 => model.cancel(count / 8 + 1).await,
                5 => model.extend(count / 8 + 1).await,
                _ if count == 4 => model.lose(40).await,
                _ => model.check_list().await,
            }
            model.check().await;
        }
        model.clear().await;
        assert_eq!(served.keys(), [served.key("state")]);
    }
}
