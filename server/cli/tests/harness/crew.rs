//! Producers and workers as tasks of the test's runtime. They go on through every error, since the
//! faults are what the tests are about.

use super::{
    calls,
    recorded::{Held, Recorded},
    until,
    work_session::End,
};
use rdq_compliance::Random;
use rdq_proto::{time, v1};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet};

/// After an error, a short while.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a stream may be quiet before its worker asks whether to stop.
const QUIET: Duration = Duration::from_millis(200);

/// How often, in a hundred, a worker does something else than to complete.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Temper {
    /// Fails, and the task may be tried again.
    pub(crate) fail: usize,
    /// Fails for good.
    pub(crate) fail_for_good: usize,
    /// Gives the claim back.
    pub(crate) release: usize,
    /// Keeps the claim first.
    pub(crate) extend: usize,
    /// Never answers.
    pub(crate) abandon: usize,
}

/// How a worker gets its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `ClaimDue`, again and again.
    Unary,
    /// `ClaimDue` with `follow`.
    Follow,
    /// `Work`.
    Work,
}

/// What everybody shares.
#[derive(Debug)]
struct Shared {
    queue: String,
    temper: watch::Receiver<Temper>,
    stop: watch::Receiver<bool>,
    admitted: AtomicUsize,
    resolved: AtomicUsize,
    errors: AtomicUsize,
}

/// Producers and workers on one queue.
#[derive(Debug)]
pub(crate) struct Crew {
    shared: Arc<Shared>,
    temper: watch::Sender<Temper>,
    stop_producing: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    producers: JoinSet<()>,
    workers: JoinSet<()>,
    lease: Duration,
}

impl Crew {
    /// Nobody yet.
    pub(crate) fn new(queue: &str, temper: Temper, lease: Duration) -> Self {
        let (temper, temper_seen) = watch::channel(temper);
        let (stop, stop_seen) = watch::channel(false);
        let shared = Arc::new(Shared {
            queue: queue.to_owned(),
            temper: temper_seen,
            stop: stop_seen,
            admitted: AtomicUsize::new(0),
            resolved: AtomicUsize::new(0),
            errors: AtomicUsize::new(0),
        });
        Self {
            shared,
            temper,
            stop_producing: watch::channel(false).0,
            stop,
            producers: JoinSet::new(),
            workers: JoinSet::new(),
            lease,
        }
    }

    /// Adds a producer. Every task is sent until it is acknowledged, under the same id.
    pub(crate) fn producer(&mut self, client: &Recorded, name: &str, mut random: Random) {
        let (client, shared) = (client.clone(), Arc::clone(&self.shared));
        let (name, mut stop) = (name.to_owned(), self.stop_producing.subscribe());
        self.producers.spawn(async move {
            for number in 0.. {
                let len = random.below(300);
                let payload = random.bytes(len);
                let mut task = calls::task(&format!("{name}-{number}"), &shared.queue, payload);
                task.max_attempts = Some(200);
                task.initial_backoff = Some(time::duration(Duration::from_millis(50)));
                task.priority = i32::try_from(random.below(3)).expect("small");
                if random.percent(20) {
                    let delay = u64::try_from(random.below(400)).expect("small");
                    task.delay = Some(time::duration(Duration::from_millis(delay)));
                }
                while let Err(_error) = client.enqueue(&task).await {
                    shared.errors.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(PAUSE).await;
                }
                shared.admitted.fetch_add(1, Ordering::Relaxed);
                let gap = Duration::from_millis(u64::try_from(random.below(8)).expect("small"));
                if tokio::time::timeout(gap, stop.changed()).await.is_ok() || *stop.borrow() {
                    return;
                }
            }
        });
    }

    /// Adds a worker.
    pub(crate) fn worker(&mut self, client: &Recorded, way: Way, random: Random) {
        let worker = Worker {
            client: client.clone(),
            shared: Arc::clone(&self.shared),
            random,
            lease: self.lease,
        };
        self.workers.spawn(worker.run(way));
    }

    /// Ends the producers, has the workers complete everything, and ends them too.
    pub(crate) async fn drain(mut self, client: &Recorded) -> Tally {
        self.stop_producing.send_replace(true);
        while let Some(ended) = self.producers.join_next().await {
            ended.expect("a producer does not panic");
        }
        self.temper.send_replace(Temper::default());
        until("every task has ended", async || {
            let stats = calls::stats(&client.tasks, &self.shared.queue).await.ok()?;
            (stats.pending == 0 && stats.in_flight == 0).then_some(())
        })
        .await;
        self.stop.send_replace(true);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker does not panic");
        }
        Tally {
            admitted: self.shared.admitted.load(Ordering::Relaxed),
            resolved: self.shared.resolved.load(Ordering::Relaxed),
            errors: self.shared.errors.load(Ordering::Relaxed),
        }
    }

    /// Waits until more outcomes were acknowledged than that: there is load.
    pub(crate) async fn resolved_more_than(&self, before: usize) {
        until("there is load", async || (self.resolved() > before).then_some(())).await;
    }

    /// Outcomes that were acknowledged so far.
    pub(crate) fn resolved(&self) -> usize {
        self.shared.resolved.load(Ordering::Relaxed)
    }
}

/// What a crew did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally {
    /// Tasks that were acknowledged.
    pub(crate) admitted: usize,
    /// Outcomes that were acknowledged.
    pub(crate) resolved: usize,
    /// Calls and streams that failed.
    pub(crate) errors: usize,
}

struct Worker {
    client: Recorded,
    shared: Arc<Shared>,
    random: Random,
    lease: Duration,
}

impl Worker {
    async fn run(mut self, way: Way) {
        while !*self.shared.stop.borrow() {
            let result = match way {
                Way::Unary => self.claim_once().await,
                Way::Follow => self.follow().await,
                Way::Work => self.work().await,
            };
            if result.is_err() {
                self.shared.errors.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn claim_once(&mut self) -> Result<(), tonic::Status> {
        let request = calls::claim(&self.shared.queue, 5, self.lease);
        let claims = self.client.claim(request).await?;
        if claims.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        for held in claims {
            self.end(&held).await?;
        }
        Ok(())
    }

    async fn follow(&mut self) -> Result<(), tonic::Status> {
        let request = calls::follow(&self.shared.queue, 10, self.lease);
        let mut stream = self.client.follow(request).await?;
        while !*self.shared.stop.borrow() {
            let Ok(news) = tokio::time::timeout(QUIET, stream.next()).await else { continue };
            let Some(claims) = news? else { return Ok(()) };
            for held in claims {
                self.end(&held).await?;
            }
        }
        Ok(())
    }

    async fn work(&mut self) -> Result<(), tonic::Status> {
        let mut session = self.client.work(&self.shared.queue, self.lease, 10).await?;
        while !*self.shared.stop.borrow() {
            let Ok(news) = tokio::time::timeout(QUIET, session.next()).await else { continue };
            let Some(news) = news? else { return Ok(()) };
            self.shared.resolved.fetch_add(news.acknowledged, Ordering::Relaxed);
            let taken = i32::try_from(news.tasks.len()).expect("a message has few tasks");
            let ends: Vec<_> = news
                .tasks
                .into_iter()
                .filter_map(|held| self.decide().map(|end| (held, end)))
                .collect();
            if taken > 0 {
                session.send(ends, taken).await;
            }
        }
        // What was sent is also waited for, so that the history knows of it.
        while session.unacknowledged() > 0 {
            let Ok(Ok(Some(_))) = tokio::time::timeout(QUIET, session.next()).await else { break };
        }
        Ok(())
    }

    /// How to end a claim; not at all is an answer, too.
    fn decide(&mut self) -> Option<End> {
        let temper = *self.shared.temper.borrow();
        let dice = self.random.below(100);
        let mut bound = temper.abandon;
        if dice < bound {
            return None;
        }
        for (chance, end) in [
            (temper.fail, End::Fail),
            (temper.fail_for_good, End::FailForGood),
            (temper.release, End::Release),
        ] {
            bound += chance;
            if dice < bound {
                return Some(end);
            }
        }
        Some(End::Complete)
    }

    async fn end(&mut self, held: &Held) -> Result<(), tonic::Status> {
        if self.random.percent(self.shared.temper.borrow().extend) {
            self.client.extend(held, self.lease).await.ok();
        }
        let result = match self.decide() {
            None => Ok(()),
            Some(End::Complete) => {
                let result = self.client.complete(held).await.map(drop);
                self.shared.resolved.fetch_add(usize::from(result.is_ok()), Ordering::Relaxed);
                result
            }
            Some(End::Fail) => {
                let outcome = v1::AttemptOutcome::RetryableFailure;
                self.client.fail(held, outcome).await.map(drop)
            }
            Some(End::FailForGood) => {
                let outcome = v1::AttemptOutcome::PermanentFailure;
                self.client.fail(held, outcome).await.map(drop)
            }
            Some(End::Release) => self.client.release(held).await.map(drop),
        };
        match result {
            // The worker was too slow, and somebody else has the task.
            Err(status) if calls::reason(&status) == Some(v1::ErrorReason::StaleClaim) => Ok(()),
            result => result,
        }
    }
}
