//! The claim loop of one set of queues: it serves whoever lines up, many by one storage call, and
//! rests until something may be due. It never polls a storage that gives hints, and waiters who
//! idle cost nothing.

use crate::{
    ClaimedTask, EngineError,
    clock::{self, Instant, TIMER_MAX},
    core::Core,
    dispatch::{Ask, Served, Station, Unary},
    limits::{ANSWER_BYTES_MAX, LEASE_MAX},
    parked::Parked,
    queues::Snapshot,
    screening::{Screened, screen},
    weight,
};
use futures::{FutureExt as _, StreamExt as _, stream};
use rdq_spi::{Awaited, ClaimParams, ClaimQueue, Claimed, DueHint, DueHints, Resolution};
use std::{future::ready, sync::Arc, time::Duration};
use tokio::sync::watch;

/// Bytes that one storage call claims, over all that it serves.
const ROUND_BYTES_MAX: usize = 32 << 20;
/// Streams that one call waits for in the storage, at most.
const PARKED_MAX: usize = 16;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// More is due, the storage says, and yet it claimed nothing: others are at it. Not a busy loop.
const CONTENDED_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct ClaimLoop {
    core: Arc<Core>,
    station: Arc<Station>,
    configuration: watch::Receiver<()>,
    /// Open from before the first scan that found nothing: no hint is missed.
    hints: Option<DueHints>,
    /// Something may be due that the line did not get yet.
    scan: bool,
    /// When something besides an answer last said so.
    told_at: Instant,
    /// How many streams the next scan serves: grows while tasks come, so that a wake-up for one
    /// task does not ask for a thousand idle streams.
    width: usize,
    /// When to scan again without a hint.
    due_at: Option<Instant>,
    failures: u32,
    /// The call that waits in the storage meanwhile.
    parked: Option<Parked>,
    /// Whether one may. Not again at once after one that came back with nothing by itself.
    may_park: bool,
    /// For how many streams: twice as many as were given tasks by the last one.
    parked_width: usize,
}

/// What a round learned.
#[derive(Default)]
struct Learned {
    claimed: usize,
    /// Streams that were given some.
    streams: usize,
    /// The soonest that more may be due, over all answers.
    next_due_in: Option<Duration>,
    error: Option<EngineError>,
}

impl ClaimLoop {
    pub(crate) fn new(core: Arc<Core>, station: Arc<Station>) -> Self {
        let configuration = core.queues.watch();
        let may_park = core.capabilities.waiting_claims;
        Self {
            core,
            station,
            configuration,
            hints: None,
            scan: true,
            told_at: clock::now(),
            width: 1,
            due_at: None,
            failures: 0,
            parked: None,
            may_park,
            parked_width: 1,
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let closing = self.core.closing.is_cancelled();
            self.heed_what_came();
            self.unpark_if_needed(closing).await;
            let served = if closing {
                Served::default()
            } else {
                self.station.next(if self.scan { self.width } else { 0 })
            };
            if !served.is_empty() {
                self.round(served).await;
            } else if self.core.dispatcher.try_end(&self.station, closing) {
                return;
            } else {
                self.rest().await;
            }
        }
    }

    /// Waits until there may be something to do.
    async fn rest(&mut self) {
        let waiting = self.parked.is_some() || self.station.has_standing();
        if waiting && self.hints.is_none() && self.failures == 0 {
            self.subscribe().await;
            return;
        }
        let subscribed = self.hints.is_some();
        if self.may_park && self.parked.is_none() && subscribed && self.failures == 0 {
            self.park();
        }
        self.may_park = self.core.capabilities.waiting_claims;
        let (hints, due_at) = (self.hints.as_mut(), self.due_at);
        let is_parked = self.parked.is_some();
        let parked = self.parked.as_mut().map(|parked| &mut parked.answer);
        tokio::select! {
            biased;
            () = self.core.closing.cancelled() => {}
            () = self.station.news.notified() => {}
            _ = self.configuration.changed() => self.told(),
            Some(answer) = async { Some(parked?.await) }, if is_parked => {
                self.heed_parked(answer).await;
            }
            hint = async { hints?.next().await }, if waiting && subscribed => match hint {
                Some(hint) => self.heed(&hint),
                None => self.back_off(None),
            },
            () = clock::sleep_until(due_at.unwrap_or_else(clock::now)),
                if waiting && due_at.is_some() =>
            {
                self.due_at = None;
                self.told();
            }
        }
    }

    /// Leaves a claim in the storage for the streams that are next.
    fn park(&mut self) {
        let snapshot = self.core.queues.snapshot();
        let queues = self.claimable(&snapshot);
        if queues.is_empty() {
            return;
        }
        let standing = self.station.next_standing(self.parked_width);
        if !standing.is_empty() {
            let asks: Vec<_> = standing.iter().map(|(_, ask)| ask.clone()).collect();
            let params = params_of(&asks, &queues);
            self.parked = Some(Parked::new(&self.core, standing, snapshot, params));
        }
    }

    /// Ends the call that waits if there is something else to do.
    async fn unpark_if_needed(&mut self, closing: bool) {
        let is_busy = closing || self.scan || self.station.has_unary();
        let Some(parked) = &mut self.parked else { return };
        if is_busy || parked.lost_someone() {
            parked.end();
            let answer = (&mut parked.answer).await;
            self.heed_parked(answer).await;
        }
    }

    async fn heed_parked(&mut self, answer: Result<Awaited, EngineError>) {
        let Some(parked) = self.parked.take() else { return };
        let by_itself = parked.ended_by_itself();
        let (answers, waited) = match answer {
            Ok(Awaited { claims, waited }) => (Ok(claims), waited),
            Err(error) => (Err(error), Duration::ZERO),
        };
        let (claimed_at, snapshot) = (parked.called_at + waited, parked.snapshot);
        let served = Served { unary: Vec::new(), standing: parked.standing };
        let (is_told, due_at) = (self.scan, self.due_at);
        let learned = self.heed_answers(served, answers, &snapshot, claimed_at).await;
        if self.failures == 0 {
            // It knows nothing of what came after it had looked, nor of queues that it was not for.
            let has_seen =
                claimed_at > self.told_at && Arc::ptr_eq(&snapshot, &self.core.queues.snapshot());
            self.scan |= is_told && !has_seen;
            self.due_at = [self.due_at, due_at].into_iter().flatten().min();
        }
        self.may_park &= learned.claimed > 0 || !by_itself;
        self.parked_width = (2 * learned.streams).clamp(1, PARKED_MAX);
    }

    async fn subscribe(&mut self) {
        let queues = &self.station.queues;
        let in_process = self.core.hints.subscribe(queues);
        if !self.core.capabilities.notify {
            self.hints = Some(in_process);
            return;
        }
        let queues = queues.clone();
        let subscribed =
            self.core.call("wait_due", |storage| async move { storage.wait_due(queues).await });
        match subscribed.await {
            // The storage's own, and what this process is about to admit.
            Ok(hints) => self.hints = Some(beside(hints, in_process)),
            Err(error) => self.back_off(Some(&error)),
        }
    }

    /// Takes the hints that are there. A subscription that has ended is noticed while resting.
    fn heed_what_came(&mut self) {
        // Each queue's hints coalesce, so that this ends.
        while !self.scan {
            let Some(hints) = &mut self.hints else { return };
            match hints.next().now_or_never() {
                Some(Some(hint)) => self.heed(&hint),
                Some(None) => return self.back_off(None),
                None => return,
            }
        }
    }

    fn heed(&mut self, hint: &DueHint) {
        if hint.due_in.is_zero() {
            self.told();
        } else {
            self.look_again_in(hint.due_in);
        }
    }

    fn told(&mut self) {
        (self.scan, self.told_at) = (true, clock::now());
    }

    fn look_again_in(&mut self, pause: Duration) {
        let at = clock::now() + pause.min(TIMER_MAX);
        self.due_at = Some(self.due_at.map_or(at, |due_at| due_at.min(at)));
    }

    /// Streams wait; unary claims still try, since their callers wait for an answer. After the
    /// pause, hints are asked for anew and everything is looked at again.
    fn back_off(&mut self, error: Option<&EngineError>) {
        let pause = BACKOFF_MIN.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_MAX);
        if let Some(error) = error
            && self.failures == 0
        {
            let queues = &self.station.queues;
            tracing::warn!(%error, ?queues, "claims failed; trying again with backoff");
        }
        self.failures += 1;
        self.hints = None;
        self.scan = false;
        self.due_at = Some(clock::now() + clock::jittered(pause, 0.5));
    }

    /// One storage call for all that are served.
    async fn round(&mut self, served: Served) {
        let snapshot = self.core.queues.snapshot();
        let queues = self.claimable(&snapshot);
        if queues.is_empty() {
            self.scan = false;
            return self.serve_nothing(served);
        }
        let asks: Vec<Ask> = (served.unary.iter().map(|waiter| waiter.ask.clone()))
            .chain(served.standing.iter().map(|(_, ask)| ask.clone()))
            .collect();
        let params = params_of(&asks, &queues);
        // The lease runs from some moment after this one.
        let claimed_at = clock::now();
        let answers = self
            .core
            .call("claim_due", |storage| async move { storage.claim_due(params).await })
            .await;
        self.heed_answers(served, answers, &snapshot, claimed_at).await;
    }

    /// Hands out what the storage answered.
    async fn heed_answers(
        &mut self,
        served: Served,
        answers: Result<Vec<rdq_spi::Result<Claimed>>, EngineError>,
        snapshot: &Snapshot,
        claimed_at: Instant,
    ) -> Learned {
        let answers = match answers {
            Ok(answers) => {
                answers.into_iter().map(|answer| answer.map_err(EngineError::from)).collect()
            }
            Err(error) => {
                crate::core::refuse_all(&error, served.unary.len() + served.standing.len())
            }
        };
        let (learned, dead) = self.hand_out(served, answers, snapshot, claimed_at);
        if !dead.is_empty() {
            self.core.settle_surely(dead).await;
        }
        self.learn(&learned);
        learned
    }

    fn claimable(&self, snapshot: &Snapshot) -> Vec<ClaimQueue> {
        let queues = self.station.queues.iter().filter_map(|queue| {
            let effective = snapshot.effective(queue);
            (!effective.paused).then(|| ClaimQueue {
                queue: queue.clone(),
                lease: effective.lease,
                lease_max: effective.timeout.unwrap_or(LEASE_MAX).min(LEASE_MAX),
            })
        });
        queues.collect()
    }

    fn serve_nothing(&self, served: Served) {
        for waiter in served.unary {
            answer(waiter);
        }
        let standing = served.standing.into_iter().map(|(feed, _)| feed).collect();
        self.station.put_back(Vec::new(), standing);
    }

    fn hand_out(
        &self,
        served: Served,
        answers: Vec<Result<Claimed, EngineError>>,
        snapshot: &Snapshot,
        claimed_at: Instant,
    ) -> (Learned, Vec<Resolution>) {
        let mut learned = Learned::default();
        let mut dead = Vec::new();
        let (mut unary_again, mut standing_again) = (Vec::new(), Vec::new());
        let mut answers = answers.into_iter();
        let mut next = || {
            let missing = || Err(EngineError::internal("claim_due", "an answer is missing"));
            answers.next().unwrap_or_else(missing)
        };
        for mut waiter in served.unary {
            match next() {
                Ok(claimed) => {
                    let buried = dead.len();
                    let tasks = learned.take(claimed, waiter.ask.holder, snapshot, &mut dead);
                    waiter.ask.limit -=
                        u32::try_from(tasks.len()).unwrap_or(0).min(waiter.ask.limit);
                    waiter.gathered.add(tasks);
                    // What was no task for anybody leaves room for others.
                    if dead.len() > buried && waiter.ask.limit > 0 {
                        unary_again.push(waiter);
                    } else {
                        answer(waiter);
                    }
                }
                Err(error) => {
                    if waiter.gathered.is_empty() {
                        let _ = waiter.answer.send(Err(error.clone()));
                    } else {
                        answer(waiter);
                    }
                    learned.error = Some(error);
                }
            }
        }
        for (feed, ask) in served.standing {
            match next() {
                Ok(claimed) => {
                    let tasks = learned.take(claimed, ask.holder, snapshot, &mut dead);
                    if tasks.is_empty() {
                        standing_again.push(feed);
                    } else {
                        learned.streams += 1;
                        let refused = feed.hand_over(tasks, claimed_at);
                        self.core.give_back(refused);
                    }
                }
                Err(error) => {
                    standing_again.push(feed);
                    learned.error = Some(error);
                }
            }
        }
        self.station.put_back(unary_again, standing_again);
        (learned, dead)
    }

    fn learn(&mut self, learned: &Learned) {
        if let Some(error) = &learned.error {
            return self.back_off(Some(error));
        }
        self.failures = 0;
        self.due_at = None;
        self.scan = learned.next_due_in == Some(Duration::ZERO);
        if self.scan && learned.claimed == 0 {
            self.scan = false;
            self.look_again_in(clock::jittered(CONTENDED_PAUSE, 0.5));
        } else if let Some(pause) = learned.next_due_in
            && !self.scan
        {
            self.look_again_in(pause);
        }
        self.width = if self.scan { self.width.saturating_mul(4) } else { 1 };
        if !self.scan && !self.core.capabilities.notify {
            self.look_again_in(clock::jittered(self.core.options.poll_interval, 0.2));
        }
    }
}

/// The parameters of a storage call for these waiters.
fn params_of(asks: &[Ask], queues: &[ClaimQueue]) -> Vec<ClaimParams> {
    let bytes_max = ANSWER_BYTES_MAX.min(ROUND_BYTES_MAX / asks.len().max(1));
    let params = asks.iter().map(|ask| ClaimParams {
        queues: queues.to_vec(),
        limit: ask.limit,
        bytes_max: weight::storage_bytes(bytes_max, ask.limit),
        lease: ask.lease,
        worker_id: ask.worker_id.clone(),
    });
    params.collect()
}

/// Both, until the first ends.
fn beside(hints: DueHints, more: DueHints) -> DueHints {
    let hints = hints.map(Some).chain(stream::once(ready(None)));
    let both = stream::select(hints, more.map(Some));
    Box::pin(both.take_while(|hint| ready(hint.is_some())).filter_map(ready))
}

fn answer(waiter: Unary) {
    let Unary { mut gathered, answer, .. } = waiter;
    gathered.cut(ANSWER_BYTES_MAX);
    // If nobody takes it, it comes back as an error, is dropped, and so is given back.
    let _ = answer.send(Ok(gathered));
}

impl Learned {
    /// The tasks that may be handed out; the rest goes to `dead`.
    fn take(
        &mut self,
        claimed: Claimed,
        holder: u64,
        snapshot: &Snapshot,
        dead: &mut Vec<Resolution>,
    ) -> Vec<ClaimedTask> {
        self.claimed += claimed.claims.len();
        self.next_due_in = match (self.next_due_in, claimed.next_due_in) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mut tasks = Vec::with_capacity(claimed.claims.len());
        for claim in claimed.claims {
            match screen(claim, snapshot, holder) {
                Screened::Good(task) => tasks.push(task),
                Screened::Dead(resolution) => dead.push(resolution),
            }
        }
        tasks
    }
}
