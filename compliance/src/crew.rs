//! Producers and workers on two handles, as two servers would have them, and the judgement on what
//! they saw. A call that fails is repeated by those who can. What happens to the storage meanwhile
//! is the test's own.

use crate::{
    Random,
    hands::{End, Hands},
    history::{History, Truth, check},
};
use bytes::Bytes;
use rdq_spi::{
    AttemptReport, Call, Claim, ClaimParams, ClaimQueue, ClaimRef, ExtendParams, ListParams,
    Moment, NewTask, Outcome, Overrides, QueueName, Resolution, Result, Storage, TaskId,
    TaskStatus, WorkerId,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// What workers ask for: short, so that some lapse.
pub const LEASE: Duration = Duration::from_millis(400);

/// What a crew did.
#[derive(Debug, Default)]
pub struct Tally {
    /// Tasks that were acknowledged.
    pub admitted: usize,
    /// Claims that their workers ended.
    pub resolved: usize,
    /// Calls that failed, and were repeated where that is safe.
    pub failed: usize,
}

#[derive(Debug, Default)]
struct Counters {
    admitted: AtomicUsize,
    resolved: AtomicUsize,
    failed: AtomicUsize,
}

/// Producers and workers under way.
#[derive(Debug)]
pub struct Crew {
    history: History,
    counters: Arc<Counters>,
    hands: Hands,
}

/// A queue.
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

/// A task that is due.
pub fn new_task(id: &str, queue: &QueueName) -> NewTask {
    NewTask {
        id: TaskId::new(id).expect("an id"),
        queue: queue.clone(),
        handler_ref: queue.clone(),
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: Bytes::from_static(b"\0envelope"),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

/// What a call about a claim names it by.
pub fn claim_ref(claim: &Claim) -> ClaimRef {
    ClaimRef { task_id: claim.task.id.clone(), token: claim.token.clone() }
}

/// Claims a few tasks.
pub async fn claim_from(
    store: &dyn Storage,
    queue: &QueueName,
    lease: Duration,
) -> Result<Vec<Claim>> {
    let from = ClaimQueue { queue: queue.clone(), lease, lease_max: Duration::from_secs(3600) };
    let params = ClaimParams {
        queues: vec![from],
        limit: 5,
        bytes_max: 1 << 20,
        lease: Some(lease),
        worker_id: WorkerId::new("worker").expect("a name"),
    };
    Ok(store.claim_due(vec![params]).await?.remove(0)?.claims)
}

/// The end of a claim by this call.
pub fn resolution(claim: &Claim, call: Call) -> Resolution {
    let attempt = AttemptReport::default();
    let outcome = match call {
        Call::Complete => Outcome::Succeed { attempt, result: Bytes::new(), forget: false },
        Call::Reschedule | Call::Fail => Outcome::Retry { attempt, due: Moment::NOW },
        Call::DeadLetter => Outcome::Die { attempt },
        Call::Release => Outcome::GiveBack { due: Moment::NOW },
    };
    Resolution { claim: claim_ref(claim), call, outcome, strict: false }
}

impl Crew {
    /// Starts them, on handles that it opens.
    pub async fn start(open: impl AsyncFn() -> Arc<dyn Storage>) -> Self {
        let history = History::new();
        let counters = Arc::new(Counters::default());
        let mut hands = Hands::default();
        let seed = Random::any_seed();
        eprintln!("seed {seed}");
        for number in 0..2_u64 {
            let store = history.watch(open().await);
            let (counters, end) = (counters.clone(), hands.end());
            let hand = Hand { store, counters, end, queue: queue("crew") };
            hands.put_to_work(hand.clone().produce(number));
            for worker in 0..3 {
                let random = Random::seeded(seed ^ (number * 10 + worker));
                hands.put_to_work(hand.clone().work(random));
            }
        }
        Self { history, counters, hands }
    }

    /// Returns when more was done.
    pub async fn works_on(&self) {
        let done = || self.counters.resolved.load(Ordering::Relaxed);
        let enough = done() + 20;
        self.hands.work_until(|| done() >= enough).await;
    }

    /// Lets them end, does what is left, on this handle, and judges.
    pub async fn finish(self, store: Arc<dyn Storage>) -> Tally {
        self.works_on().await;
        self.hands.finish().await;
        let queue = queue("crew");
        let store = self.history.watch(store);
        loop {
            let claims = claim_from(&*store, &queue, Duration::from_secs(60)).await.expect("up");
            for claim in &claims {
                let done = store.resolve(vec![resolution(claim, Call::Complete)]).await;
                done.expect("up").remove(0).expect("held");
            }
            let stats = store.stats(queue.clone()).await.expect("up");
            if stats.ready + stats.delayed + stats.in_flight == 0 {
                break;
            }
            tokio::time::sleep(LEASE / 4).await;
        }
        let mut states = std::collections::HashMap::new();
        let mut position = None;
        loop {
            let params = ListParams {
                queue: queue.clone(),
                status: None,
                position,
                limit: 500,
                bytes_max: 1 << 20,
                include_attempts: false,
            };
            let page = store.list(params).await.expect("up");
            states.extend(page.tasks.into_iter().map(|task| (task.id, task.status)));
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        let is_done = |status: &TaskStatus| *status == TaskStatus::Succeeded;
        assert!(states.values().all(is_done), "every task is completed in the end");
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let tally = Tally {
            admitted: count(&self.counters.admitted),
            resolved: count(&self.counters.resolved),
            failed: count(&self.counters.failed),
        };
        eprintln!("{tally:?}");
        assert!(
            tally.resolved > 0 && states.len() >= tally.admitted,
            "{} of {tally:?}",
            states.len()
        );
        let violations = check(&self.history, &Truth { states, max_attempts: None });
        assert!(violations.is_empty(), "{violations:#?}");
        tally
    }
}

#[derive(Clone)]
struct Hand {
    store: Arc<dyn Storage>,
    counters: Arc<Counters>,
    end: End,
    queue: QueueName,
}

impl Hand {
    async fn failed(&self) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    async fn produce(self, number: u64) {
        for batch in 0.. {
            let ids = (0..3).map(|n| format!("p{number}-{batch}-{n}"));
            let tasks: Vec<_> = ids.map(|id| new_task(&id, &self.queue)).collect();
            // A call with an identity: repeated until it is known.
            while let Err(_error) = self.store.enqueue(tasks.clone()).await {
                self.failed().await;
            }
            self.counters.admitted.fetch_add(3, Ordering::Relaxed);
            if self.end.has_come() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn work(self, mut random: Random) {
        while !self.end.has_come() {
            let Ok(claims) = claim_from(&*self.store, &self.queue, LEASE).await else {
                self.failed().await;
                continue;
            };
            if claims.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for claim in claims {
                match random.below(20) {
                    0 => continue, // It lapses.
                    1 => tokio::time::sleep(LEASE).await,
                    2 | 3 => self.extend(&claim).await,
                    _ => {}
                }
                let call = [Call::Complete, Call::Complete, Call::Reschedule, Call::Release]
                    [random.below(4)];
                self.resolve(&claim, call).await;
            }
        }
    }

    async fn extend(&self, claim: &Claim) {
        let params = ExtendParams {
            claim: claim_ref(claim),
            lease: LEASE,
            held_max: None,
            progress: None,
            strict: false,
        };
        if self.store.extend_leases(vec![params]).await.is_err() {
            self.failed().await;
        }
    }

    /// Repeats until the outcome is known.
    async fn resolve(&self, claim: &Claim, call: Call) {
        loop {
            match self.store.resolve(vec![resolution(claim, call)]).await {
                Ok(mut answers) => {
                    let done = answers.remove(0).is_ok();
                    self.counters.resolved.fetch_add(done.into(), Ordering::Relaxed);
                    return;
                }
                Err(_) => self.failed().await,
            }
        }
    }
}
