//! The workers of the main job: what each does with a task follows from the task's name and from
//! what has become of it so far.

use super::payloads::Payload;
use crate::{
    QUEUE,
    harness::{
        calls,
        crew::Way,
        recorded::{Held, Recorded},
        work_session::End,
    },
};
use bytes::Bytes;
use rdq_proto::v1;
use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::task::JoinSet;

/// A worker that has nothing looks again after this.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a stream may be quiet before its worker asks whether to stop.
const QUIET: Duration = Duration::from_millis(200);

/// What happens to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is delivered at once.
    Smooth,
    /// It fails at first.
    FailsOnce,
    /// The first worker hangs with it until the lease is over.
    HangsOnce,
    /// It fails for good, until it is redriven.
    FailsForGood,
    /// It fails every time, until it is redriven.
    FailsAlways,
}

impl Fate {
    /// Of a task: the same in each run.
    pub(crate) fn of(id: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        match hasher.finish() % 20 {
            0..=2 => Self::FailsOnce,
            3..=4 => Self::HangsOnce,
            5..=6 => Self::FailsForGood,
            7 => Self::FailsAlways,
            _ => Self::Smooth,
        }
    }

    /// Whether the task ends as a dead letter first.
    pub(crate) fn is_deadly(self) -> bool {
        matches!(self, Self::FailsForGood | Self::FailsAlways)
    }
}

/// What was done, over all workers.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Payloads that a worker took to be done.
    pub(crate) delivered: AtomicUsize,
    /// Attempts that failed, and could be tried again.
    pub(crate) failed: AtomicUsize,
    /// Attempts that failed for good.
    pub(crate) failed_for_good: AtomicUsize,
    /// Attempts whose worker hung.
    pub(crate) hung: AtomicUsize,
    /// Calls and streams that ended in an error.
    errors: AtomicUsize,
}

/// The workers, and what they saw.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// What was done.
    pub(crate) counts: Counts,
    expected: HashMap<String, Bytes>,
    received: Mutex<HashSet<String>>,
    stop: AtomicBool,
    workers: Mutex<JoinSet<()>>,
}

impl Fleet {
    /// Nobody yet.
    pub(crate) fn new(payloads: &[Payload]) -> Arc<Self> {
        let expected = payloads.iter().map(|it| (it.id.clone(), it.bytes.clone())).collect();
        Arc::new(Self {
            counts: Counts::default(),
            expected,
            received: Mutex::default(),
            stop: AtomicBool::new(false),
            workers: Mutex::default(),
        })
    }

    /// Adds a worker.
    pub(crate) fn worker(self: &Arc<Self>, client: Recorded, way: Way, lease: Duration) {
        let fleet = Arc::clone(self);
        self.workers.lock().expect("nobody panicked").spawn(async move {
            while !fleet.stop.load(Relaxed) {
                let result = match way {
                    Way::Unary => fleet.claim_once(&client, lease).await,
                    Way::Follow => fleet.follow(&client, lease).await,
                    Way::Work => fleet.work(&client, lease).await,
                };
                if result.is_err() {
                    fleet.counts.errors.fetch_add(1, Relaxed);
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Ends the workers; how many errors they met.
    pub(crate) async fn stop(&self) -> usize {
        self.stop.store(true, Relaxed);
        let mut workers = std::mem::take(&mut *self.workers.lock().expect("nobody panicked"));
        while let Some(ended) = workers.join_next().await {
            ended.expect("a worker does not panic");
        }
        self.counts.errors.load(Relaxed)
    }

    /// Tasks that no worker was ever handed out.
    pub(crate) fn never_received(&self) -> Vec<&String> {
        let received = self.received.lock().expect("nobody panicked");
        self.expected.keys().filter(|id| !received.contains(*id)).collect()
    }

    /// Panics unless workers failed, gave up, hung, and lost their server.
    pub(crate) fn every_fault_happened(&self) {
        let counts = &self.counts;
        for (what, count) in [
            ("failed", &counts.failed),
            ("failed for good", &counts.failed_for_good),
            ("hung", &counts.hung),
            ("lost its server", &counts.errors),
        ] {
            assert!(count.load(Relaxed) > 0, "no worker {what}");
        }
    }

    /// The handler: looks at what it was given, and decides how the attempt ends.
    fn handle(&self, held: &Held) -> Option<End> {
        let expected = &self.expected[&held.id];
        assert_eq!(expected, &held.task.payload, "{} came otherwise than it was sent", held.id);
        assert_eq!(held.task.headers["x-github-event"], held.task.handler_ref);
        self.received.lock().expect("nobody panicked").insert(held.id.clone());
        let count = |counter: &AtomicUsize| counter.fetch_add(1, Relaxed);
        match (Fate::of(&held.id), held.task.redrive_count, held.attempt_no) {
            (Fate::FailsOnce, 0, 1) | (Fate::FailsAlways, 0, _) => {
                count(&self.counts.failed);
                Some(End::Fail)
            }
            (Fate::FailsForGood, 0, _) => {
                count(&self.counts.failed_for_good);
                Some(End::FailForGood)
            }
            (Fate::HangsOnce, 0, 1) => {
                count(&self.counts.hung);
                None
            }
            _ => {
                count(&self.counts.delivered);
                Some(End::Complete)
            }
        }
    }

    async fn end(&self, client: &Recorded, held: &Held) -> Result<(), tonic::Status> {
        use v1::AttemptOutcome::{PermanentFailure, RetryableFailure};
        let result = match self.handle(held) {
            None => Ok(()),
            Some(End::Complete) => client.complete(held).await.map(drop),
            Some(End::Fail) => client.fail(held, RetryableFailure).await.map(drop),
            Some(End::FailForGood) => client.fail(held, PermanentFailure).await.map(drop),
            Some(End::Release) => client.release(held).await.map(drop),
        };
        match result {
            // Too slow: somebody else has the task.
            Err(status) if calls::reason(&status) == Some(v1::ErrorReason::StaleClaim) => Ok(()),
            result => result,
        }
    }

    async fn claim_once(&self, client: &Recorded, lease: Duration) -> Result<(), tonic::Status> {
        for held in client.claim(calls::claim(QUEUE, 5, lease)).await? {
            self.end(client, &held).await?;
        }
        Ok(())
    }

    async fn follow(&self, client: &Recorded, lease: Duration) -> Result<(), tonic::Status> {
        let mut stream = client.follow(calls::follow(QUEUE, 10, lease)).await?;
        while !self.stop.load(Relaxed) {
            let Ok(news) = tokio::time::timeout(QUIET, stream.next()).await else { continue };
            for held in news?.unwrap_or_default() {
                self.end(client, &held).await?;
            }
        }
        Ok(())
    }

    async fn work(&self, client: &Recorded, lease: Duration) -> Result<(), tonic::Status> {
        let mut session = client.work(QUEUE, lease, 10).await?;
        while !self.stop.load(Relaxed) {
            let Ok(news) = tokio::time::timeout(QUIET, session.next()).await else { continue };
            let Some(news) = news? else { return Ok(()) };
            let taken = i32::try_from(news.tasks.len()).expect("a message has few tasks");
            let ends: Vec<_> = news
                .tasks
                .into_iter()
                .filter_map(|held| self.handle(&held).map(|end| (held, end)))
                .collect();
            if taken > 0 {
                session.send(ends, taken).await;
            }
        }
        Ok(())
    }
}
