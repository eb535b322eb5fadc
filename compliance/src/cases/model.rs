//! A random history against the storage and against the model, one call after the other: each answer
//! must be the model's. `RDQ_SEED` replays a history.

use super::resolve::CALLS;
use crate::{
    Fixture, Random,
    given::*,
    model::{Model, Refusal},
};
use rdq_spi::{
    AttemptReport, Call, ClaimToken, ExtendParams, Moment, Outcome, QueueName, Resolution, Result,
    Selection, Storage, StorageError, TaskId, TaskStatus, Timestamp,
};
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

const STEPS: usize = 200;
const LAPSES: usize = 8;
/// After every instant of the story but one: the year 2096.
const NOW_MILLIS: i64 = 4_000_000_000_000;
const LATER: Moment = Moment::At(Timestamp::MAX);

pub(crate) async fn a_random_history_is_answered_by_the_rules<F: Fixture>(fixture: F) {
    let seed = std::env::var("RDQ_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(Random::any_seed);
    let mut play = Play::new(fixture.open().await, seed);
    let told = AssertUnwindSafe(async {
        for _ in 0..STEPS {
            play.step().await;
        }
    });
    if let Err(panic) = futures::FutureExt::catch_unwind(told).await {
        eprintln!("replay this history with RDQ_SEED={seed}");
        std::panic::resume_unwind(panic);
    }
}

/// The story so far.
struct Play {
    store: Arc<dyn Storage>,
    model: Model,
    random: Random,
    queues: [QueueName; 2],
    /// Few, so that they meet again.
    ids: Vec<TaskId>,
    /// Every token that was seen, good or not.
    tokens: Vec<(TaskId, ClaimToken)>,
    lapses: usize,
}

impl Play {
    fn new(store: Arc<dyn Storage>, seed: u64) -> Self {
        Self {
            store,
            model: Model::default(),
            random: Random::seeded(seed),
            queues: [some_queue(), some_queue()],
            ids: (0..14).map(|_| some_id()).collect(),
            tokens: Vec::new(),
            lapses: LAPSES,
        }
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..22 => self.enqueue().await,
            22..40 => drop(self.claim(LONG_LEASE).await),
            40..44 => self.claim_and_lapse().await,
            44..54 => self.extend().await,
            54..80 => self.resolve().await,
            80..84 => self.cancel().await,
            84..89 => self.redrive().await,
            89..91 => self.purge().await,
            _ => self.look().await,
        }
    }

    async fn enqueue(&mut self) {
        let id = self.some_id();
        let due = [0, 1, 2, 3].map(|millis| Moment::At(Timestamp::from_millis(millis)));
        let due = if self.random.percent(8) { LATER } else { due[self.random.below(4)] };
        let priority = [-1, 0, 0, 1][self.random.below(4)];
        let payload = self.random.bytes(20);
        let queue = self.some_queue();
        let draft = Draft::of(&queue).priority(priority).due(due).payload(payload);
        let draft = draft.with(|task| task.id = id.clone());

        let answer = admit(&*self.store, std::slice::from_ref(&draft)).await.remove(0);

        let expected = self.model.enqueue(&draft.build());
        compare(&answer.map(|it| (it.created, it.status)), &expected, "enqueue");
        self.compare(&id).await;
    }

    async fn claim(&mut self, lease: Duration) -> Vec<TaskId> {
        let queue = self.some_queue();
        let limit = 1 + self.random.below(3);
        let name = worker(&format!("worker {}", self.random.below(3)));
        let expected = self.model.due(&queue, limit, Timestamp::from_millis(NOW_MILLIS));

        let params = claim_params(&queue, u32::try_from(limit).expect("small"), lease);
        let params = rdq_spi::ClaimParams { worker_id: name.clone(), ..params };
        let claims = claim_as(&*self.store, params).await.claims;

        assert_eq!(ids(&claims), expected, "the order of claims");
        for claimed in claims {
            self.model.claim(&claimed.task.id, &claimed.token, &name);
            self.compare(&claimed.task.id).await;
            self.tokens.push((claimed.task.id, claimed.token));
        }
        expected
    }

    async fn claim_and_lapse(&mut self) {
        if self.lapses == 0 {
            return;
        }
        self.lapses -= 1;
        let lease = Duration::from_millis(15);
        let claimed = self.claim(lease).await;
        if !claimed.is_empty() {
            lapse(lease).await;
        }
        for id in claimed {
            self.model.lapse(&id);
        }
    }

    async fn extend(&mut self) {
        let Some(claim) = self.some_claim() else { return };
        let progress = self.random.percent(50).then(|| self.random.bytes(5).into());
        let params = ExtendParams {
            claim: claim.clone(),
            lease: LONG_LEASE,
            held_max: None,
            progress: progress.clone(),
            strict: false,
        };

        let answer = extend(&*self.store, params).await;

        let expected = self.model.extend(&claim.task_id, &claim.token, progress);
        compare(&answer.map(drop), &expected, "extend");
        self.compare(&claim.task_id).await;
    }

    async fn resolve(&mut self) {
        let Some(claim) = self.some_claim() else { return };
        let call = CALLS[self.random.below(5)];
        let outcome = self.some_outcome(call);
        let asked =
            Resolution { claim: claim.clone(), call, outcome: outcome.clone(), strict: false };

        let answer = resolve(&*self.store, asked).await;

        let expected = self.model.resolve(&claim.task_id, &claim.token, call, &outcome);
        compare(&answer.map(|it| (it.status, it.replayed)), &expected, &format!("{call:?}"));
        self.compare(&claim.task_id).await;
    }

    async fn cancel(&mut self) {
        let id = self.some_id();
        let answer = cancel(&*self.store, &id).await;
        let expected = self.model.cancel(&id);
        compare(&answer.map(|it| (it.status, it.changed)), &expected, "cancel");
        self.compare(&id).await;
    }

    async fn redrive(&mut self) {
        let queue = self.some_queue();
        let (selection, expected) = self.some_selection(&queue);
        let count = redrive(&*self.store, redrive_params(&queue, selection)).await;
        assert_eq!(count, u64::try_from(expected.len()).expect("few"), "redrive");
        self.model.redrive(&expected);
        for id in &expected {
            self.compare(id).await;
        }
    }

    async fn purge(&mut self) {
        let queue = self.some_queue();
        let (selection, expected) = self.some_selection(&queue);
        let count = purge(&*self.store, purge_params(&queue, selection)).await;
        assert_eq!(count, u64::try_from(expected.len()).expect("few"), "purge");
        self.model.purge(&expected);
        for id in &expected {
            self.compare(id).await;
        }
    }

    /// Lists and counts.
    async fn look(&mut self) {
        let queue = self.some_queue();
        let listed = task_ids(&list_all(&*self.store, &queue).await);
        assert_eq!(listed, self.model.list(&queue), "list");
        let dead = task_ids(&dead_letters(&*self.store, &queue).await);
        assert_eq!(dead, self.model.dead_letters(&queue), "dlq_list");
        let stats = self.store.stats(queue.clone()).await.expect("stats");
        let count = |status| self.model.count(&queue, status);
        assert_eq!(stats.ready + stats.delayed, count(TaskStatus::Pending), "{stats:?}");
        assert_eq!(stats.in_flight, count(TaskStatus::InFlight), "{stats:?}");
        assert_eq!(stats.dead, count(TaskStatus::Dead), "{stats:?}");
        assert_eq!(stats.succeeded, count(TaskStatus::Succeeded), "{stats:?}");
        assert_eq!(stats.cancelled, count(TaskStatus::Cancelled), "{stats:?}");
    }

    /// Compares the whole task.
    async fn compare(&mut self, id: &TaskId) {
        let found = match self.store.get(id.clone()).await {
            Ok(task) => Some(task),
            Err(StorageError::NotFound { .. }) => None,
            Err(error) => panic!("get: {error:?}"),
        };
        self.model.compare(id, found.as_ref());
    }

    fn some_queue(&mut self) -> QueueName {
        self.queues[self.random.below(2)].clone()
    }

    fn some_id(&mut self) -> TaskId {
        self.ids[self.random.below(self.ids.len())].clone()
    }

    /// A claim that was seen once, mostly a new one.
    fn some_claim(&mut self) -> Option<rdq_spi::ClaimRef> {
        let newest = if self.random.percent(70) { 6 } else { self.tokens.len() };
        let back = 1 + self.random.below(newest.clamp(1, self.tokens.len().max(1)));
        let (task_id, token) = self.tokens.get(self.tokens.len().checked_sub(back)?)?.clone();
        Some(rdq_spi::ClaimRef { task_id, token })
    }

    fn some_outcome(&mut self, call: Call) -> Outcome {
        let attempt = match self.random.below(3) {
            0 => AttemptReport::default(),
            _ => failure(["a", "b"][self.random.below(2)]),
        };
        let due =
            if self.random.percent(15) { LATER } else { Moment::At(Timestamp::from_millis(2)) };
        match call {
            Call::Complete => {
                let attempt = AttemptReport::default();
                Outcome::Succeed { attempt, result: self.random.bytes(4).into(), forget: false }
            }
            Call::DeadLetter => Outcome::Die { attempt },
            Call::Fail if self.random.percent(50) => Outcome::Die { attempt },
            Call::Reschedule | Call::Fail => Outcome::Retry { attempt, due },
            Call::Release => Outcome::GiveBack { due: Moment::NOW },
        }
    }

    /// Some dead letters of a queue, or all of them.
    fn some_selection(&mut self, queue: &QueueName) -> (Selection, Vec<TaskId>) {
        let dead = self.model.dead_letters(queue);
        if self.random.percent(40) {
            return (Selection::All, dead);
        }
        let asked: Vec<_> = (0..3).map(|_| self.some_id()).collect();
        let taken = dead.into_iter().filter(|id| asked.contains(id)).collect();
        (Selection::Ids(asked), taken)
    }
}

/// Whether the storage answers as the model does.
fn compare<T: PartialEq + std::fmt::Debug>(
    answer: &Result<T>,
    expected: &std::result::Result<T, Refusal>,
    what: &str,
) {
    match (answer, expected) {
        (Ok(answer), Ok(expected)) => assert_eq!(answer, expected, "{what}"),
        (Err(StorageError::StaleClaim { detail, .. }), Err(Refusal::Stale(expected))) => {
            assert!(expected.is_none() || detail == expected, "{what}: {detail:?}, {expected:?}");
        }
        (Err(StorageError::NotFound { .. }), Err(Refusal::NotFound))
        | (Err(StorageError::IdConflict { .. }), Err(Refusal::IdConflict)) => {}
        _ => panic!("{what}: {answer:?}, but by the rules {expected:?}"),
    }
}
