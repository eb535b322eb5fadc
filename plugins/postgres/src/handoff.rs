//! Handing tasks over as they are admitted: where a claim of this handle waits for a queue of which
//! nothing else is due, its tasks are written with the claim at once, in one transaction instead of
//! two. It is as if the claim had come right after the admission.
//!
//! Here is who waits, and what is known of the queues waited for; nothing here runs a statement.

use crate::{claims::lease_of, clock::Moment};
use rdq_spi::{
    Awaited, Claim, ClaimParams, ClaimQueue, ClaimRef, Claimed, NewTask, QueueName, Result,
    StorageError, WorkerId,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// Queues remembered: beyond it all begin anew.
const QUEUES_MAX: usize = 10_000;
/// A call that is to end waits no longer for admissions under way: one may wait for a foreign
/// transaction that holds its id, and nobody else shall. What it hands over then is given back.
const LATE: Duration = Duration::from_millis(100);

/// Who waits in this handle.
#[derive(Debug)]
pub(crate) struct Handoffs {
    seats: Mutex<Vec<Arc<Seat>>>,
    known: Mutex<HashMap<QueueName, Known>>,
    /// Numbers of stirs, none given twice: what is forgotten of a queue does not come back as something
    /// else.
    stirs: AtomicU64,
    undeliverable: mpsc::UnboundedSender<Vec<ClaimRef>>,
}

/// What this handle knows of a queue.
#[derive(Debug)]
struct Known {
    /// The last thing that may have made something due.
    stir: u64,
    /// Since which of these nothing is due.
    quiet: Option<u64>,
    next_due: Option<(Moment, Duration)>,
}

/// A call that waits.
#[derive(Debug)]
struct Seat {
    claims: Arc<[ClaimParams]>,
    called: Moment,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "they change each by itself")]
struct State {
    /// What each claim has room for yet, in tasks and in bytes.
    rooms: Vec<(usize, usize)>,
    handed: Vec<Vec<Claim>>,
    /// Admissions under way that may hand something over.
    under_way: usize,
    /// When the first of them began that did.
    waited: Option<Duration>,
    has_handed: bool,
    /// Something may be due that was not handed over.
    looks: bool,
    error: Option<StorageError>,
    /// No admission begins to hand over any more.
    is_ending: bool,
    is_gone: bool,
}

/// A task's claim, if it can be handed over.
#[derive(Debug, Clone)]
pub(crate) struct Taker {
    /// Which claim of the call that waits.
    claim: usize,
    pub(crate) worker_id: WorkerId,
    pub(crate) lease: Duration,
}

/// An admission that may hand over what it admits. Dropped without more, it is told to have failed.
#[derive(Debug)]
pub(crate) struct Offer {
    handoffs: Arc<Handoffs>,
    seat: Arc<Seat>,
    pub(crate) plan: Arc<Plan>,
    /// How long the call had waited when this began.
    waited: Duration,
    is_done: bool,
}

/// Who claims what of an admission.
#[derive(Debug)]
pub(crate) struct Plan {
    /// For each task of the admission, in its order.
    pub(crate) takers: Vec<Option<Taker>>,
    /// The queues of those tasks.
    pub(crate) queues: Vec<QueueName>,
}

/// Why a call stops waiting.
pub(crate) enum Waited {
    Handed(Awaited),
    /// It is to claim as any call does, and may wait again.
    Look,
}

impl Handoffs {
    /// Nobody waits. What comes out of the channel was handed to somebody who is gone.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Vec<ClaimRef>>) {
        let (undeliverable, given_back) = mpsc::unbounded_channel();
        let handoffs = Self {
            seats: Mutex::default(),
            known: Mutex::default(),
            stirs: AtomicU64::default(),
            undeliverable,
        };
        (handoffs, given_back)
    }

    /// This handle made something of the queue due then.
    pub(crate) fn stir(&self, queue: &QueueName, due_in: Duration) {
        self.know(queue, |known| {
            known.stir = self.next_stir();
            known.lower(due_in);
        });
        if due_in.is_zero() {
            for seat in lock(&self.seats).iter().filter(|seat| seat.waits_for(queue)) {
                lock(&seat.state).looks = true;
                seat.news.notify_one();
            }
        }
    }

    /// A lease of the queue ends then.
    pub(crate) fn note_lease(&self, queue: &QueueName, due_in: Duration) {
        self.know(queue, |known| known.lower(due_in));
    }

    /// The last that may have made something due: a claim is about to look.
    pub(crate) fn stirs(&self, queues: &[ClaimQueue]) -> Vec<u64> {
        queues.iter().map(|from| self.know(&from.queue, |known| known.stir)).collect()
    }

    /// A claim that began at these found that this is how long until the next task is due.
    pub(crate) fn looked(
        &self,
        queues: &[ClaimQueue],
        stirs: &[u64],
        next_due_in: Option<Duration>,
    ) {
        for (from, seen) in queues.iter().zip(stirs) {
            self.know(&from.queue, |known| {
                if known.stir != *seen {
                    return;
                }
                known.quiet = (next_due_in != Some(Duration::ZERO)).then_some(*seen);
                known.next_due = next_due_in.map(|due_in| (Moment::now(), due_in));
            });
        }
    }

    /// Whether nothing is due of these queues, as far as this handle knows.
    pub(crate) fn is_quiet(&self, claims: &[ClaimParams]) -> bool {
        let mut queues = claims.iter().flat_map(|claim| &claim.queues);
        queues.all(|from| self.know(&from.queue, |known| known.quiet == Some(known.stir)))
    }

    /// Waits until something is handed over, something else may be due, or it is enough.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        claims: &Arc<[ClaimParams]>,
        called: Moment,
        enough: &CancellationToken,
    ) -> Result<Waited> {
        let rooms = claims.iter().map(|it| (it.limit as usize, it.bytes_max)).collect();
        let handed = claims.iter().map(|_| Vec::new()).collect();
        let state = State { rooms, handed, ..State::default() };
        let (state, news) = (Mutex::new(state), Notify::new());
        let seat = Arc::new(Seat { claims: Arc::clone(claims), called, state, news });
        lock(&self.seats).push(Arc::clone(&seat));
        let taken = Seated { handoffs: self, seat: &seat };
        if !self.is_quiet(claims) {
            return Ok(Waited::Look);
        }
        let mut is_ending = false;
        let late = tokio::time::sleep(LATE);
        tokio::pin!(late);
        loop {
            let is_enough = enough.is_cancelled();
            if let Some(waited) = taken.outcome(is_enough, is_ending && late.is_elapsed()) {
                return waited;
            }
            if !is_ending && lock(&seat.state).is_ending {
                is_ending = true;
                late.set(tokio::time::sleep(LATE));
            }
            tokio::select! {
                () = seat.news.notified() => {}
                () = enough.cancelled(), if !is_enough => {}
                () = &mut late, if is_ending => {}
            }
        }
    }

    /// Somebody who waits and would take all or the first of these tasks.
    pub(crate) fn offer(self: &Arc<Self>, tasks: &[NewTask]) -> Option<Offer> {
        if !tasks.iter().all(is_plain) {
            return None;
        }
        let seats = lock(&self.seats);
        seats.iter().find_map(|seat| seat.offer(tasks)).map(|(seat, takers, waited)| {
            let mut queues = Vec::new();
            for (task, _) in tasks.iter().zip(&takers).filter(|(_, taker)| taker.is_some()) {
                if !queues.contains(&task.queue) {
                    queues.push(task.queue.clone());
                }
            }
            let plan = Arc::new(Plan { takers, queues });
            Offer { handoffs: Arc::clone(self), seat, plan, waited, is_done: false }
        })
    }

    /// Ends every wait.
    pub(crate) fn close(&self) {
        for seat in lock(&self.seats).iter() {
            lock(&seat.state).error = Some(StorageError::Closed);
            seat.news.notify_one();
        }
    }

    fn know<T>(&self, queue: &QueueName, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = lock(&self.known);
        if known.len() > QUEUES_MAX {
            known.clear();
        }
        if let Some(known) = known.get_mut(queue) {
            return change(known);
        }
        let stir = self.next_stir();
        change(known.entry(queue.clone()).or_insert(Known { stir, quiet: None, next_due: None }))
    }

    fn next_stir(&self) -> u64 {
        self.stirs.fetch_add(1, Ordering::Relaxed)
    }

    /// Nobody is there any more who was given these.
    pub(crate) fn give_back(&self, claims: impl Iterator<Item = Claim>) {
        let refs: Vec<_> =
            claims.map(|claim| ClaimRef { task_id: claim.task.id, token: claim.token }).collect();
        if !refs.is_empty() {
            // Nobody takes them once the handle is closed: their leases end.
            drop(self.undeliverable.send(refs));
        }
    }
}

impl Known {
    fn lower(&mut self, due_in: Duration) {
        let is_sooner =
            |(since, before): (Moment, Duration)| due_in < before.saturating_sub(since.age());
        if self.next_due.is_none_or(is_sooner) {
            self.next_due = Some((Moment::now(), due_in));
        }
    }
}

impl Seat {
    fn waits_for(&self, queue: &QueueName) -> bool {
        self.claims.iter().any(|claim| claim.queues.iter().any(|from| from.queue == *queue))
    }

    /// Reserves room for these tasks, in the order in which claims would come to them.
    fn offer(
        self: &Arc<Self>,
        tasks: &[NewTask],
    ) -> Option<(Arc<Self>, Vec<Option<Taker>>, Duration)> {
        let mut state = lock(&self.state);
        if state.is_ending || state.looks || state.error.is_some() {
            return None;
        }
        let mut order: Vec<usize> = (0..tasks.len())
            .filter(|index| {
                due_rank(&tasks[*index]).is_some() && self.waits_for(&tasks[*index].queue)
            })
            .collect();
        order.sort_by_key(|index| (!tasks[*index].priority, due_rank(&tasks[*index])));
        let mut takers: Vec<Option<Taker>> = tasks.iter().map(|_| None).collect();
        let (mut claim, mut is_any) = (0, false);
        for index in order {
            let task = &tasks[index];
            // A task that does not fit ends its claim: those behind it must not overtake it.
            let taker = loop {
                let Some((tasks_left, bytes_left)) = state.rooms.get(claim).copied() else {
                    break None;
                };
                let params = &self.claims[claim];
                let from = params.queues.iter().find(|from| from.queue == task.queue);
                let is_first = tasks_left == params.limit as usize;
                let fits = tasks_left > 0 && (is_first || task.envelope.len() <= bytes_left);
                if let (Some(from), true) = (from, fits) {
                    let left = bytes_left.saturating_sub(task.envelope.len());
                    state.rooms[claim] = (tasks_left - 1, left);
                    let lease = lease_of(params, &task.overrides, from);
                    break Some(Taker { claim, worker_id: params.worker_id.clone(), lease });
                }
                claim += 1;
            };
            let Some(taker) = taker else { break };
            (takers[index], is_any) = (Some(taker), true);
        }
        if !is_any {
            return None;
        }
        state.under_way += 1;
        Some((Arc::clone(self), takers, self.called.age()))
    }
}

/// Of this kind a claim needs to know no more than the admission does.
fn is_plain(task: &NewTask) -> bool {
    task.attempts.is_empty()
        && (task.attempt_count, task.redrive_count, task.lease_expired_count) == (0, 0, 0)
        && task.progress.is_empty()
}

/// Its order among tasks of one priority that are admitted together; `None` if it is due later. An
/// instant may be in the past or, as the storage finds then, not.
fn due_rank(task: &NewTask) -> Option<i64> {
    match task.due {
        rdq_spi::Moment::At(at) => Some(at.millis()),
        rdq_spi::Moment::In(delay) => delay.is_zero().then_some(i64::MAX),
    }
}

impl Offer {
    /// The admission has ended. These were handed over, each to its taker, in the order of claims.
    pub(crate) fn end(mut self, handed: Vec<(Taker, Claim)>) {
        self.is_done = true;
        let mut state = lock(&self.seat.state);
        state.under_way -= 1;
        if state.is_gone {
            drop(state);
            self.handoffs.give_back(handed.into_iter().map(|(_, claim)| claim));
            return;
        }
        let is_any = !handed.is_empty();
        let (rooms, given) = {
            let State { rooms, handed: given, .. } = &mut *state;
            (rooms, given)
        };
        // What was not taken leaves its room to others.
        for taker in self.plan.takers.iter().flatten() {
            rooms[taker.claim].0 += 1;
        }
        for (taker, claim) in handed {
            rooms[taker.claim].0 -= 1;
            given[taker.claim].push(claim);
        }
        if is_any {
            let waited = state.waited.map_or(self.waited, |before| before.min(self.waited));
            (state.has_handed, state.is_ending, state.waited) = (true, true, Some(waited));
        }
        drop(state);
        self.seat.news.notify_one();
    }

    /// The admission failed: perhaps something was handed over all the same.
    pub(crate) fn fail(mut self, error: StorageError) {
        self.is_done = true;
        self.give_up(error);
    }

    fn give_up(&self, error: StorageError) {
        let mut state = lock(&self.seat.state);
        state.under_way -= 1;
        state.error.get_or_insert(error);
        drop(state);
        self.seat.news.notify_one();
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.is_done {
            let operation = "claim_when_due";
            let source = "the admission was given up".into();
            self.give_up(StorageError::OutcomeUnknown { operation, source });
        }
    }
}

/// A call in its seat.
struct Seated<'a> {
    handoffs: &'a Handoffs,
    seat: &'a Arc<Seat>,
}

impl Seated<'_> {
    /// How the wait ends, if it does now; once it is late, it does.
    fn outcome(&self, is_enough: bool, is_late: bool) -> Option<Result<Waited>> {
        let mut state = lock(&self.seat.state);
        state.is_ending |= is_enough || state.looks || state.error.is_some();
        if !state.is_ending || state.under_way > 0 && !is_late {
            return None;
        }
        if state.has_handed {
            state.has_handed = false;
            let handed = std::mem::take(&mut state.handed);
            let (looks, waited) = (state.looks, state.waited.unwrap_or_default());
            drop(state);
            let answer = |(mut claims, params): (Vec<Claim>, &ClaimParams)| {
                // Of several admissions.
                claims.sort_by_key(|claim| !claim.task.priority);
                let next_due_in =
                    if looks { Some(Duration::ZERO) } else { self.next_due_in(params) };
                Ok(Claimed { claims, next_due_in })
            };
            let claims = handed.into_iter().zip(&*self.seat.claims).map(answer).collect();
            return Some(Ok(Waited::Handed(Awaited { claims, waited })));
        }
        if let Some(error) = state.error.take() {
            return Some(Err(error));
        }
        if state.looks && !is_enough {
            return Some(Ok(Waited::Look));
        }
        drop(state);
        let nothing =
            |params| Ok(Claimed { claims: Vec::new(), next_due_in: self.next_due_in(params) });
        let claims = self.seat.claims.iter().map(nothing).collect();
        Some(Ok(Waited::Handed(Awaited { claims, waited: Duration::ZERO })))
    }

    fn next_due_in(&self, params: &ClaimParams) -> Option<Duration> {
        let of_each = params.queues.iter().filter_map(|from| {
            self.handoffs.know(&from.queue, |known| {
                known.next_due.map(|(since, due_in)| due_in.saturating_sub(since.age()))
            })
        });
        of_each.min()
    }
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        lock(&self.handoffs.seats).retain(|seat| !Arc::ptr_eq(seat, self.seat));
        let mut state = lock(&self.seat.state);
        (state.is_ending, state.is_gone) = (true, true);
        let handed = std::mem::take(&mut state.handed);
        drop(state);
        self.handoffs.give_back(handed.into_iter().flatten());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::FutureExt as _;
    use rdq_spi::{ClaimToken, Overrides, Task, TaskId, TaskStatus, Timestamp};

    const LEASE: Duration = Duration::from_secs(60);

    fn queue() -> QueueName {
        QueueName::new("q").unwrap()
    }

    fn waiting(limits: &[u32]) -> Arc<[ClaimParams]> {
        let params = |limit: &u32| ClaimParams {
            queues: vec![ClaimQueue { queue: queue(), lease: LEASE, lease_max: LEASE }],
            limit: *limit,
            bytes_max: 10,
            lease: None,
            worker_id: WorkerId::new("w").unwrap(),
        };
        limits.iter().map(params).collect()
    }

    fn task(priority: i32, bytes: usize) -> NewTask {
        NewTask {
            id: TaskId::new("t").unwrap(),
            queue: queue(),
            handler_ref: queue(),
            priority,
            due: rdq_spi::Moment::NOW,
            expires: None,
            created_at: None,
            envelope: vec![0; bytes].into(),
            overrides: Overrides::default(),
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            attempts: Vec::new(),
        }
    }

    fn claim(priority: i32) -> Claim {
        let task = Task {
            id: TaskId::new("t").unwrap(),
            queue: queue(),
            handler_ref: queue(),
            priority,
            envelope: Bytes::new(),
            overrides: Overrides::default(),
            status: TaskStatus::InFlight,
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            result: Bytes::new(),
            claimed_at: None,
            claimed_by: None,
            next_attempt_at: None,
            lease_expires_at: None,
            expires_at: None,
            created_at: Timestamp::MIN,
            finished_at: None,
            attempts: Vec::new(),
            last_attempt_no: 0,
        };
        Claim { task, token: ClaimToken(Bytes::new()), generation: 1, lease: LEASE }
    }

    /// Nothing is due of the queue, as a claim has found.
    fn quiet() -> (Arc<Handoffs>, mpsc::UnboundedReceiver<Vec<ClaimRef>>) {
        let (handoffs, undeliverable) = Handoffs::new();
        let queues = [ClaimQueue { queue: queue(), lease: LEASE, lease_max: LEASE }];
        handoffs.looked(&queues, &handoffs.stirs(&queues), None);
        (Arc::new(handoffs), undeliverable)
    }

    fn offer_of_one(handoffs: &Arc<Handoffs>) -> Offer {
        handoffs.offer(&[task(0, 1)]).unwrap()
    }

    fn takers(offer: &Offer) -> Vec<Option<usize>> {
        offer.plan.takers.iter().map(|taker| taker.as_ref().map(|it| it.claim)).collect()
    }

    #[tokio::test]
    async fn the_first_tasks_are_offered_as_claims_would_take_them() {
        let (handoffs, _undeliverable) = quiet();
        let (claims, enough) = (waiting(&[2, 1]), CancellationToken::new());
        assert!(handoffs.offer(&[task(0, 1)]).is_none(), "nobody waits");
        let mut wait = Box::pin(handoffs.wait(&claims, Moment::now(), &enough));
        assert!((&mut wait).now_or_never().is_none());

        let tasks = [task(0, 1), task(1, 6), task(2, 6), task(0, 1), task(0, 1)];
        let offer = handoffs.offer(&tasks).unwrap();
        // The second by priority does not fit beside the first, and ends the first claim.
        assert_eq!(takers(&offer), [None, Some(1), Some(0), None, None]);
        let taker = |index: usize| offer.plan.takers[index].clone().unwrap();
        let handed = vec![(taker(2), claim(2)), (taker(1), claim(1))];
        offer.end(handed);

        let Waited::Handed(awaited) = wait.await.unwrap() else { panic!("it was handed some") };
        let priorities = awaited.claims.into_iter().map(|answer| {
            answer.unwrap().claims.iter().map(|it| it.task.priority).collect::<Vec<_>>()
        });
        assert_eq!(priorities.collect::<Vec<_>>(), [[2], [1]]);
    }

    #[tokio::test]
    async fn what_is_handed_to_somebody_who_is_gone_is_given_back() {
        let (handoffs, mut undeliverable) = quiet();
        let (claims, enough) = (waiting(&[1]), CancellationToken::new());
        let mut wait = Box::pin(handoffs.wait(&claims, Moment::now(), &enough));
        assert!((&mut wait).now_or_never().is_none());
        let offer = handoffs.offer(&[task(0, 1)]).unwrap();
        drop(wait);
        assert!(handoffs.offer(&[task(0, 1)]).is_none());

        let taker = offer.plan.takers[0].clone().unwrap();
        offer.end(vec![(taker, claim(0))]);

        assert_eq!(undeliverable.try_recv().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_wait_that_ends_does_not_wait_for_an_admission_that_lasts() {
        let (handoffs, mut undeliverable) = quiet();
        let (claims, enough) = (waiting(&[2]), CancellationToken::new());
        let mut wait = Box::pin(handoffs.wait(&claims, Moment::now(), &enough));
        assert!((&mut wait).now_or_never().is_none());
        let (lasting, other) = (offer_of_one(&handoffs), offer_of_one(&handoffs));
        let taker = |offer: &Offer| offer.plan.takers[0].clone().unwrap();
        let (late, early) = (taker(&lasting), taker(&other));
        other.end(vec![(early, claim(3))]);

        let Waited::Handed(awaited) = wait.await.unwrap() else { panic!("it was handed one") };
        lasting.end(vec![(late, claim(4))]);

        let mut given: Vec<_> =
            awaited.claims.into_iter().flat_map(|answer| answer.unwrap().claims).collect();
        assert_eq!((given.len(), given.remove(0).task.priority), (1, 3));
        assert_eq!(undeliverable.try_recv().unwrap().len(), 1, "the late one is given back");
    }

    #[test]
    fn what_was_seen_of_a_queue_that_was_forgotten_meanwhile_says_nothing() {
        let (handoffs, _undeliverable) = Handoffs::new();
        let queues = [ClaimQueue { queue: queue(), lease: LEASE, lease_max: LEASE }];
        let seen = handoffs.stirs(&queues);
        handoffs.stir(&queue(), Duration::ZERO);
        lock(&handoffs.known).clear();

        handoffs.looked(&queues, &seen, None);

        assert!(!handoffs.is_quiet(&waiting(&[1])));
    }

    #[tokio::test]
    async fn a_wait_ends_by_a_stir_and_by_a_failure_once_no_admission_is_under_way() {
        let (handoffs, _undeliverable) = quiet();
        let (claims, enough) = (waiting(&[2]), CancellationToken::new());
        let mut wait = Box::pin(handoffs.wait(&claims, Moment::now(), &enough));
        assert!((&mut wait).now_or_never().is_none());
        let offer = handoffs.offer(&[task(0, 1)]).unwrap();
        handoffs.stir(&queue(), Duration::ZERO);
        assert!((&mut wait).now_or_never().is_none(), "an admission is under way");
        offer.end(Vec::new());
        assert!(matches!(wait.await, Ok(Waited::Look)));
        let again = handoffs.wait(&claims, Moment::now(), &enough).await;
        assert!(matches!(again, Ok(Waited::Look)), "nobody has looked since");

        let (handoffs, _undeliverable) = quiet();
        let mut wait = Box::pin(handoffs.wait(&claims, Moment::now(), &enough));
        assert!((&mut wait).now_or_never().is_none());
        drop(handoffs.offer(&[task(0, 1)]).unwrap());
        assert!(matches!(wait.await, Err(StorageError::OutcomeUnknown { .. })));
    }
}
