//! What a subscription and a work stream share: room for claims, the claims that are open, and the
//! hand-over of tasks, one batch deep: who does not read is claimed nothing for.

use crate::{
    ClaimedTask, LostClaim,
    clock::{self, Instant},
    core::Core,
    dispatch::{Ask, Station},
    limits::{CREDITS_MAX, EXTENT_MAX},
    weight,
};
use bytes::Bytes;
use rdq_spi::{StaleDetail, TaskId, Timestamp, WorkerId};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

/// Losses told in one item.
const LOST_MAX: usize = 1_000;

/// How much a feed may be handed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Room {
    /// Until so many claims are open.
    InFlight(u32),
    /// So many more.
    Credits(u32),
}

/// Who takes, and how.
pub(crate) struct Taker {
    /// Tasks of one item.
    pub(crate) limit: u32,
    pub(crate) lease: Option<Duration>,
    pub(crate) worker_id: WorkerId,
}

pub(crate) struct Feed {
    /// Random, so that tokens of other servers name no feed of this one.
    pub(crate) id: u64,
    core: Arc<Core>,
    station: Arc<Station>,
    taker: Taker,
    inbox: Mutex<Inbox>,
}

struct Inbox {
    room: Room,
    /// Claims that nobody ended yet, as far as this server knows.
    open: HashMap<TaskId, OpenClaim>,
    /// Claimed and not yet taken by the stream.
    tasks: Vec<ClaimedTask>,
    claimed_at: Instant,
    lost: Vec<LostClaim>,
    serving: bool,
    /// It stands in the line, or is being served.
    in_line: bool,
    waker: Option<Waker>,
}

/// A claim that a feed handed out.
struct OpenClaim {
    token: Bytes,
    generation: i64,
    /// When its lease ends, as last known here.
    deadline: Instant,
    /// The task's `expires_at`.
    expires_at: Option<Timestamp>,
}

/// What a stream took from its feed.
pub(crate) struct Collected {
    pub(crate) tasks: Vec<ClaimedTask>,
    pub(crate) lost: Vec<LostClaim>,
    /// Claims that are open.
    pub(crate) open: usize,
}

/// Which open claims.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// Every one.
    All,
    /// Those whose task's `expires_at` has come by then, by the storage's clock.
    ExpiredBy(Timestamp),
    /// Those whose lease has ended by then, as far as this server knows.
    LapsedBy(Instant),
}

/// A claim that ended: its feed, task and generation.
pub(crate) type Ended = (u64, TaskId, i64);

impl Inbox {
    fn free(&self) -> u32 {
        match self.room {
            Room::InFlight(max) => {
                max.saturating_sub(u32::try_from(self.open.len()).unwrap_or(u32::MAX))
            }
            Room::Credits(left) => left,
        }
    }

    fn would_take(&self) -> bool {
        self.serving && self.tasks.is_empty() && self.free() > 0
    }
}

impl Feed {
    pub(crate) fn new(
        core: Arc<Core>,
        station: Arc<Station>,
        taker: Taker,
        room: Room,
    ) -> Arc<Self> {
        let inbox = Inbox {
            room,
            open: HashMap::new(),
            tasks: Vec::new(),
            claimed_at: clock::now(),
            lost: Vec::new(),
            serving: true,
            in_line: false,
            waker: None,
        };
        // 0 is nobody's.
        let id = fastrand::u64(1..);
        let feed = Arc::new(Self { id, core, station, taker, inbox: Mutex::new(inbox) });
        feed.core.feeds.add(&feed);
        if feed.core.closing.is_cancelled() {
            feed.retire();
        }
        feed
    }

    pub(crate) fn has_credits(&self) -> bool {
        matches!(self.lock().room, Room::Credits(_))
    }

    /// Lines up if it would take tasks.
    pub(crate) fn line_up(self: &Arc<Self>) {
        let mut inbox = self.lock();
        let line_up = self.taker.limit > 0 && !inbox.in_line && inbox.would_take();
        inbox.in_line |= line_up;
        // The line is locked before an inbox, never after one.
        drop(inbox);
        if line_up {
            self.station.line_up(Arc::clone(self));
        }
    }

    /// What it would take now; else it has left the line, and comes back when it would.
    pub(crate) fn ask(&self) -> Option<Ask> {
        let mut inbox = self.lock();
        inbox.in_line = inbox.would_take();
        inbox.in_line.then(|| Ask {
            limit: inbox.free().min(self.taker.limit).min(EXTENT_MAX),
            lease: self.taker.lease,
            worker_id: self.taker.worker_id.clone(),
            holder: self.id,
        })
    }

    /// Whether it takes tasks at all.
    pub(crate) fn is_serving(&self) -> bool {
        self.lock().serving
    }

    /// Takes claims for its stream; answers those that it cannot take any more.
    pub(crate) fn hand_over(
        &self,
        tasks: Vec<ClaimedTask>,
        claimed_at: Instant,
    ) -> Vec<ClaimedTask> {
        let mut inbox = self.lock();
        inbox.in_line = false;
        if !inbox.serving {
            return tasks;
        }
        for claim in &tasks {
            // A stream that lets every lease lapse must not fill the memory.
            if inbox.open.len() < CREDITS_MAX as usize {
                let open = OpenClaim {
                    token: claim.token.clone(),
                    generation: claim.generation,
                    deadline: claimed_at + claim.lease_remaining,
                    expires_at: claim.task.expires_at,
                };
                inbox.open.insert(claim.task.id.clone(), open);
            }
        }
        if let Room::Credits(left) = &mut inbox.room {
            *left = left.saturating_sub(u32::try_from(tasks.len()).unwrap_or(u32::MAX));
        } else if inbox.free() == 0 {
            self.core.full.notify_one();
        }
        inbox.tasks = tasks;
        inbox.claimed_at = claimed_at;
        wake(inbox);
        Vec::new()
    }

    /// Adds credits, up to the most that a stream may have open.
    pub(crate) fn grant(self: &Arc<Self>, more: u32) {
        if let Room::Credits(left) = &mut self.lock().room {
            *left = left.saturating_add(more).min(CREDITS_MAX);
        }
        self.line_up();
    }

    /// What is there for the stream: tasks of up to `bytes_max`, and losses. Whoever took the last
    /// task lines up for more.
    pub(crate) fn collect(self: &Arc<Self>, waker: &Waker, bytes_max: usize) -> Collected {
        let mut inbox = self.lock();
        inbox.waker = Some(waker.clone());
        let tasks = inbox.tasks.iter().map(|claim| &claim.task);
        let fitting = if bytes_max == 0 { 0 } else { weight::fitting(tasks, bytes_max) };
        let rest = inbox.tasks.split_off(fitting);
        let mut tasks = std::mem::replace(&mut inbox.tasks, rest);
        if !tasks.is_empty() {
            let waited = clock::now() - inbox.claimed_at;
            for claim in &mut tasks {
                claim.lease_remaining = claim.lease_remaining.saturating_sub(waited);
            }
        }
        let told = inbox.lost.len().min(LOST_MAX);
        let lost = inbox.lost.drain(..told).collect();
        let open = inbox.open.len();
        drop(inbox);
        self.line_up();
        Collected { tasks, lost, open }
    }

    /// These claims are over.
    pub(crate) fn settle(self: &Arc<Self>, ended: &[Ended]) {
        let mut inbox = self.lock();
        for (_, id, generation) in ended {
            if inbox.open.get(id).is_some_and(|open| open.generation == *generation) {
                inbox.open.remove(id);
            }
        }
        if inbox.serving {
            drop(inbox);
        } else {
            // It may wait for this to end.
            wake(inbox);
        }
        self.line_up();
    }

    /// The lease of a claim ends later.
    pub(crate) fn extended(&self, id: &TaskId, generation: i64, deadline: Instant) {
        if let Some(open) = self.lock().open.get_mut(id)
            && open.generation == generation
        {
            open.deadline = deadline;
        }
    }

    /// The task was ended under its claim: the stream is told, or not given the task at all.
    pub(crate) fn lose(self: &Arc<Self>, id: &TaskId, detail: StaleDetail) {
        let mut inbox = self.lock();
        let Some(open) = inbox.open.remove(id) else { return };
        let undelivered = inbox.tasks.len();
        inbox.tasks.retain(|claim| claim.task.id != *id);
        if inbox.tasks.len() < undelivered {
            if let Room::Credits(left) = &mut inbox.room {
                *left = left.saturating_add(1).min(CREDITS_MAX);
            }
        } else if matches!(inbox.room, Room::Credits(_)) {
            inbox.lost.push(LostClaim { id: id.clone(), generation: open.generation, detail });
        }
        wake(inbox);
        self.line_up();
    }

    /// Takes no tasks any more, and gives back what was not delivered.
    pub(crate) fn retire(&self) {
        let mut inbox = self.lock();
        inbox.serving = false;
        let undelivered = std::mem::take(&mut inbox.tasks);
        for claim in &undelivered {
            inbox.open.remove(&claim.task.id);
        }
        wake(inbox);
        self.core.give_back(undelivered);
    }

    /// When the next lease ends, as far as this server knows, if a subscription is full of claims.
    /// Another server may have extended it: the storage alone says that a claim is over.
    pub(crate) fn full_until(&self) -> Option<Instant> {
        let inbox = self.lock();
        if matches!(inbox.room, Room::Credits(_)) || !inbox.serving || inbox.free() > 0 {
            return None;
        }
        inbox.open.values().map(|open| open.deadline).min()
    }

    /// Forgets claims of a work stream whose lease ended before `long_ago`: nobody will end them. A
    /// subscription has no more of them than its places, and keeps each until the storage says that
    /// it is over.
    pub(crate) fn forget_lapsed(&self, long_ago: Instant) {
        let mut inbox = self.lock();
        if matches!(inbox.room, Room::Credits(_)) {
            inbox.open.retain(|_, open| open.deadline > long_ago);
        }
    }

    /// Its open claims of this kind.
    pub(crate) fn open_claims(&self, which: Which) -> Vec<(TaskId, Bytes, i64)> {
        let inbox = self.lock();
        let open = inbox.open.iter().filter(|(_, open)| match which {
            Which::All => true,
            Which::ExpiredBy(now) => open.expires_at.is_some_and(|at| at <= now),
            Which::LapsedBy(now) => open.deadline <= now,
        });
        open.map(|(id, open)| (id.clone(), open.token.clone(), open.generation)).collect()
    }

    /// Whether the lease of this claim should still run, as far as this server knows.
    pub(crate) fn believes(&self, id: &TaskId, generation: i64) -> bool {
        let now = clock::now();
        let inbox = self.lock();
        inbox.open.get(id).is_some_and(|open| open.generation == generation && open.deadline > now)
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the stream, out of the lock.
fn wake(mut inbox: MutexGuard<'_, Inbox>) {
    let waker = inbox.waker.take();
    drop(inbox);
    if let Some(waker) = waker {
        waker.wake();
    }
}
