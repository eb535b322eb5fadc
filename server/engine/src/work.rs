//! Work streams: credits, outcomes and heartbeats go up; claims, acknowledgements and losses come
//! down, all in batches. There is no task and no channel for a single claim.

use crate::{
    ClaimedTask, Engine, EngineError, ExtendRequest, ResolveRequest, clock,
    core::Core,
    dispatch::{Dispatcher, Membership},
    feed::{Feed, Room, Taker},
    limits::{ANSWER_BYTES_MAX, EXTENT_MAX, check_lease, queue_set},
};
use futures::{FutureExt as _, Stream};
use rdq_spi::{Extended, QueueName, Resolved, StaleDetail, TaskId, WorkerId};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};

/// Batches of outcomes, and of heartbeats, that one stream has under way or not yet read back.
const BATCHES_MAX: usize = 8;
/// Acknowledgements of one event, unless a single batch has more.
const ACKS_MAX: usize = 1_000;
/// What an acknowledgement weighs, with an error and without.
const REFUSAL_BYTES: usize = 1_200;
const ACK_BYTES: usize = 48;
/// Beside this much of acknowledgements, an event carries no tasks.
const ACKS_BESIDE_TASKS_BYTES: usize = 256 << 10;

/// What a work stream takes.
#[derive(Debug, Clone)]
pub struct WorkStart {
    /// Where to take from, 1 to 64; repeated ones count once.
    pub queues: Vec<QueueName>,
    /// From 10 ms to 12 h; else the task's, else the queue's.
    pub lease: Option<Duration>,
    /// Who claims.
    pub worker_id: WorkerId,
}

/// What comes down a work stream; empty is a keep-alive.
#[derive(Debug, Clone, Default)]
pub struct WorkEvent {
    /// Claims, never more than the credits.
    pub tasks: Vec<ClaimedTask>,
    /// What became of outcomes, by the caller's numbers; durable.
    pub outcome_acks: Vec<(i64, Result<Resolved, EngineError>)>,
    /// What became of heartbeats, by the caller's numbers.
    pub heartbeat_acks: Vec<(i64, Result<Extended, EngineError>)>,
    /// Claims of this stream that are over.
    pub lost: Vec<LostClaim>,
    /// The engine drains: no more tasks come, and the stream ends soon.
    pub draining: bool,
}

/// A claim that somebody ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    /// The task.
    pub id: TaskId,
    /// The claim.
    pub generation: i64,
    /// What ended it.
    pub detail: StaleDetail,
}

impl WorkEvent {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
            && self.outcome_acks.is_empty()
            && self.heartbeat_acks.is_empty()
            && self.lost.is_empty()
            && !self.draining
    }
}

/// The upward half of a work stream. Dropping it says that the client sends no more: nothing is
/// claimed then, outcomes under way are still acknowledged, then the stream ends.
#[must_use = "dropping it ends the stream"]
pub struct WorkHandle(Arc<Shared>);

/// The downward half of a work stream. The first event comes at once, and an empty one after each
/// silence of the keep-alive. Dropping it gives back what it did not yield.
#[must_use = "dropping it ends the stream"]
pub struct WorkEvents {
    shared: Arc<Shared>,
    _membership: Membership,
    keep_alive: Pin<Box<Sleep>>,
    grace: Option<Pin<Box<Sleep>>>,
    first: bool,
    ended: bool,
}

struct Shared {
    core: Arc<Core>,
    feed: Arc<Feed>,
    acks: Mutex<Acks>,
    outcome_room: Arc<Semaphore>,
    heartbeat_room: Arc<Semaphore>,
}

type AckBatch<T> = (Vec<(i64, Result<T, EngineError>)>, OwnedSemaphorePermit);

/// Acknowledgements to read. A batch keeps its permit until it is read, so that a client that only
/// sends is slowed down.
#[derive(Default)]
struct Acks {
    outcomes: VecDeque<AckBatch<Resolved>>,
    heartbeats: VecDeque<AckBatch<Extended>>,
    under_way: usize,
    /// The client sends no more.
    handle_gone: bool,
    waker: Option<Waker>,
}

impl std::fmt::Debug for WorkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkHandle").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for WorkEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkEvents").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens a work stream, with no credits yet.
    pub fn work(&self, request: WorkStart) -> Result<(WorkHandle, WorkEvents), EngineError> {
        let queues = queue_set(&request.queues)?;
        check_lease("lease", request.lease)?;
        for queue in &queues {
            self.core.queues.check_declared(queue)?;
        }
        let core = Arc::clone(&self.core);
        let membership = Dispatcher::join(&core, queues)?;
        let taker = Taker { limit: EXTENT_MAX, lease: request.lease, worker_id: request.worker_id };
        let station = Arc::clone(&membership.0);
        let feed = Feed::new(Arc::clone(&core), station, taker, Room::Credits(0));
        let keep_alive = Box::pin(clock::sleep(core.options.keep_alive));
        let shared = Arc::new(Shared {
            core,
            feed,
            acks: Mutex::default(),
            outcome_room: Arc::new(Semaphore::new(BATCHES_MAX)),
            heartbeat_room: Arc::new(Semaphore::new(BATCHES_MAX)),
        });
        let events = WorkEvents {
            shared: Arc::clone(&shared),
            _membership: membership,
            keep_alive,
            grace: None,
            first: true,
            ended: false,
        };
        Ok((WorkHandle(shared), events))
    }
}

impl WorkHandle {
    /// Grants so many tasks more; above 100,000 open credits are cut to that.
    pub fn credit(&self, more: u32) {
        self.0.feed.grant(more);
    }

    /// Ends claims, by this stream's numbers. Waits while too many batches are under way or unread.
    pub async fn outcomes(&self, outcomes: Vec<(i64, ResolveRequest)>) {
        let core = Arc::clone(&self.0.core);
        let run = |requests| async move { crate::resolution::resolve_all(&core, requests).await };
        self.0.send(&self.0.outcome_room, outcomes, run, |acks| &mut acks.outcomes).await;
    }

    /// Keeps claims, by this stream's numbers. Waits while too many batches are under way.
    pub async fn heartbeats(&self, beats: Vec<(i64, ExtendRequest)>) {
        let core = Arc::clone(&self.0.core);
        let run = |requests| async move { crate::heartbeat::extend_all(&core, requests).await };
        self.0.send(&self.0.heartbeat_room, beats, run, |acks| &mut acks.heartbeats).await;
    }
}

impl Drop for WorkHandle {
    fn drop(&mut self) {
        // What was not delivered could not be resolved on this stream any more.
        self.0.feed.retire();
        let mut acks = self.0.lock();
        acks.handle_gone = true;
        wake(acks);
    }
}

impl Shared {
    async fn send<Q, T, F>(
        self: &Arc<Self>,
        room: &Arc<Semaphore>,
        items: Vec<(i64, Q)>,
        run: impl FnOnce(Vec<Q>) -> F,
        lane: fn(&mut Acks) -> &mut VecDeque<AckBatch<T>>,
    ) where
        T: Send + 'static,
        F: Future<Output = Vec<Result<T, EngineError>>> + Send + 'static,
    {
        if items.is_empty() {
            return;
        }
        let Ok(permit) = Arc::clone(room).acquire_owned().await else { return };
        let (numbers, requests): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        let answers = run(requests);
        self.lock().under_way += 1;
        let shared = Arc::clone(self);
        self.core.tasks.spawn(async move {
            let answers = answers.await;
            let batch = numbers.into_iter().zip(answers).collect();
            let mut acks = shared.lock();
            acks.under_way -= 1;
            lane(&mut acks).push_back((batch, permit));
            wake(acks);
        });
    }

    fn lock(&self) -> MutexGuard<'_, Acks> {
        self.acks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(mut acks: MutexGuard<'_, Acks>) {
    let waker = acks.waker.take();
    drop(acks);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Acks {
    /// Moves what one event carries, and says what it weighs.
    fn fill(&mut self, event: &mut WorkEvent) -> usize {
        let mut count = 0;
        take_some(&mut self.outcomes, &mut event.outcome_acks, &mut count)
            + take_some(&mut self.heartbeats, &mut event.heartbeat_acks, &mut count)
    }

    fn is_idle(&self) -> bool {
        self.under_way == 0 && self.outcomes.is_empty() && self.heartbeats.is_empty()
    }
}

fn take_some<T>(
    lane: &mut VecDeque<AckBatch<T>>,
    into: &mut Vec<(i64, Result<T, EngineError>)>,
    count: &mut usize,
) -> usize {
    while let Some((batch, _)) = lane.front()
        && (*count == 0 || *count + batch.len() <= ACKS_MAX)
    {
        *count += batch.len();
        let Some((batch, permit)) = lane.pop_front() else { break };
        drop(permit);
        if into.is_empty() { *into = batch } else { into.extend(batch) }
    }
    let weigh = |ack: &(i64, Result<T, _>)| if ack.1.is_ok() { ACK_BYTES } else { REFUSAL_BYTES };
    into.iter().map(weigh).sum()
}

impl Stream for WorkEvents {
    type Item = Result<WorkEvent, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut event = WorkEvent::default();
        let shared = Arc::clone(&self.shared);
        let (acks_bytes, idle, handle_gone) = {
            let mut acks = shared.lock();
            acks.waker = Some(context.waker().clone());
            (acks.fill(&mut event), acks.is_idle(), acks.handle_gone)
        };
        let beside = acks_bytes <= ACKS_BESIDE_TASKS_BYTES;
        let tasks_bytes = if beside { ANSWER_BYTES_MAX - acks_bytes } else { 0 };
        let collected = shared.feed.collect(context.waker(), tasks_bytes);
        (event.tasks, event.lost) = (collected.tasks, collected.lost);
        let closing = shared.core.closing.is_cancelled();
        if closing && self.grace.is_none() {
            event.draining = true;
            let grace = shared.core.options.drain_grace.min(clock::TIMER_MAX);
            self.grace = Some(Box::pin(clock::sleep(grace)));
        }
        if self.first || !event.is_empty() {
            return self.emit(event);
        }
        if let Some(grace) = &mut self.grace {
            let over = grace.poll_unpin(context).is_ready();
            if over || (idle && (collected.open == 0 || handle_gone)) {
                self.end();
                return Poll::Ready(Some(Err(EngineError::Closed)));
            }
        } else if handle_gone && idle {
            self.end();
            return Poll::Ready(None);
        }
        if self.keep_alive.poll_unpin(context).is_ready() {
            return self.emit(event);
        }
        Poll::Pending
    }
}

impl WorkEvents {
    fn emit(&mut self, event: WorkEvent) -> Poll<Option<Result<WorkEvent, EngineError>>> {
        self.first = false;
        let keep_alive = self.shared.core.options.keep_alive;
        let next = clock::now() + keep_alive.min(clock::TIMER_MAX);
        self.keep_alive.as_mut().reset(next);
        Poll::Ready(Some(Ok(event)))
    }

    fn end(&mut self) {
        self.ended = true;
        self.shared.feed.retire();
        self.shared.core.feeds.remove(&self.shared.feed);
    }
}

impl Drop for WorkEvents {
    fn drop(&mut self) {
        self.end();
    }
}
