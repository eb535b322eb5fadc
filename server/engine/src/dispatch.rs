//! Who lines up for tasks: one line and one claim loop for each distinct set of queues on this
//! server, however many workers wait. What a loop does stands in `rounds.rs`.

use crate::{ClaimedTask, EngineError, core::Core, feed::Feed, rounds::ClaimLoop, weight};
use rdq_spi::{QueueName, WorkerId};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, oneshot};

/// Waiters of one kind that one storage call serves.
const WAITERS_MAX: usize = 64;
/// Tasks that one storage call claims, roughly.
const TASKS_MAX: u32 = 4_000;

/// What a waiter would take now.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// At least 1.
    pub(crate) limit: u32,
    pub(crate) lease: Option<Duration>,
    pub(crate) worker_id: WorkerId,
    /// The feed that will hold the claims; 0 for none.
    pub(crate) holder: u64,
}

/// A unary claim: it is answered in its turn, with tasks or without.
pub(crate) struct Unary {
    pub(crate) ask: Ask,
    /// What earlier rounds brought.
    pub(crate) gathered: Undelivered,
    pub(crate) answer: oneshot::Sender<Result<Undelivered, EngineError>>,
}

/// Claims on their way to a caller. Wherever they are dropped, they go back.
pub(crate) struct Undelivered {
    core: Arc<Core>,
    tasks: Vec<ClaimedTask>,
}

impl Undelivered {
    pub(crate) fn none(core: Arc<Core>) -> Self {
        Self { core, tasks: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// What they weigh in an answer.
    pub(crate) fn bytes(&self) -> usize {
        self.tasks.iter().map(|claim| weight::weight(&claim.task)).sum()
    }

    pub(crate) fn add(&mut self, tasks: Vec<ClaimedTask>) {
        self.tasks.extend(tasks);
    }

    /// Gives back what one answer cannot carry.
    pub(crate) fn cut(&mut self, bytes_max: usize) {
        let fitting = weight::fitting(self.tasks.iter().map(|claim| &claim.task), bytes_max);
        self.core.give_back(self.tasks.split_off(fitting));
    }

    pub(crate) fn deliver(mut self) -> Vec<ClaimedTask> {
        std::mem::take(&mut self.tasks)
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        self.core.give_back(std::mem::take(&mut self.tasks));
    }
}

/// The waiters for one set of queues.
pub(crate) struct Station {
    pub(crate) queues: Vec<QueueName>,
    line: Mutex<Line>,
    /// Somebody came or left.
    pub(crate) news: Notify,
}

#[derive(Default)]
struct Line {
    /// Streams and calls that may still line up here.
    members: usize,
    unary: VecDeque<Unary>,
    /// Streams that would take tasks; each stands here at most once.
    standing: VecDeque<Arc<Feed>>,
}

impl Line {
    /// The next streams, besides so many tasks that others ask for.
    fn next_standing(&mut self, width: usize, mut tasks: u32) -> Vec<(Arc<Feed>, Ask)> {
        let mut standing = Vec::new();
        while standing.len() < width.min(WAITERS_MAX) && tasks < TASKS_MAX {
            let Some(feed) = self.standing.pop_front() else { break };
            if let Some(ask) = feed.ask() {
                tasks += ask.limit;
                standing.push((feed, ask));
            }
        }
        standing
    }
}

/// Those whom the next storage call serves.
#[derive(Default)]
pub(crate) struct Served {
    pub(crate) unary: Vec<Unary>,
    pub(crate) standing: Vec<(Arc<Feed>, Ask)>,
}

impl Served {
    pub(crate) fn is_empty(&self) -> bool {
        self.unary.is_empty() && self.standing.is_empty()
    }
}

impl Station {
    pub(crate) fn line_up(&self, feed: Arc<Feed>) {
        self.lock().standing.push_back(feed);
        self.news.notify_one();
    }

    /// Puts those who got nothing back to the head of the line, in their order.
    pub(crate) fn put_back(&self, unary: Vec<Unary>, standing: Vec<Arc<Feed>>) {
        let mut line = self.lock();
        for waiter in unary.into_iter().rev() {
            line.unary.push_front(waiter);
        }
        for feed in standing.into_iter().rev() {
            line.standing.push_front(feed);
        }
    }

    pub(crate) fn has_standing(&self) -> bool {
        !self.lock().standing.is_empty()
    }

    pub(crate) fn has_unary(&self) -> bool {
        !self.lock().unary.is_empty()
    }

    /// Takes the next to serve: unary claims always, and up to `width` streams. Streams that would
    /// take nothing any more leave the line.
    pub(crate) fn next(&self, width: usize) -> Served {
        let mut served = Served::default();
        let mut tasks = 0;
        let mut line = self.lock();
        while served.unary.len() < WAITERS_MAX && tasks < TASKS_MAX {
            let Some(waiter) = line.unary.pop_front() else { break };
            if waiter.answer.is_closed() {
                continue; // its caller is gone
            }
            tasks += waiter.ask.limit;
            served.unary.push(waiter);
        }
        served.standing = line.next_standing(width, tasks);
        served
    }

    /// Takes up to `width` streams alone.
    pub(crate) fn next_standing(&self, width: usize) -> Vec<(Arc<Feed>, Ask)> {
        self.lock().next_standing(width, 0)
    }

    /// Empties the line of a closing engine.
    pub(crate) fn refuse(&self) {
        let mut line = self.lock();
        line.standing.clear();
        for waiter in line.unary.drain(..) {
            let _ = waiter.answer.send(Err(EngineError::Closed));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to line up at a station, which keeps its loop alive.
pub(crate) struct Membership(pub(crate) Arc<Station>);

impl Membership {
    pub(crate) fn claim_once(&self, waiter: Unary) {
        self.0.lock().unary.push_back(waiter);
        self.0.news.notify_one();
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.0.lock().members -= 1;
        self.0.news.notify_one();
    }
}

/// All stations of an engine.
#[derive(Default)]
pub(crate) struct Dispatcher(Mutex<HashMap<Vec<QueueName>, Arc<Station>>>);

impl Dispatcher {
    /// Joins the station of these queues, and starts its loop if there is none.
    pub(crate) fn join(
        core: &Arc<Core>,
        queues: Vec<QueueName>,
    ) -> Result<Membership, EngineError> {
        let mut stations = core.dispatcher.lock();
        // Under the lock, so that no loop starts after the last one was told to end.
        if core.closing.is_cancelled() {
            return Err(EngineError::Closed);
        }
        let station = stations.entry(queues).or_insert_with_key(|queues| {
            let station = Arc::new(Station {
                queues: queues.clone(),
                line: Mutex::default(),
                news: Notify::new(),
            });
            core.tasks.spawn(ClaimLoop::new(Arc::clone(core), Arc::clone(&station)).run());
            station
        });
        station.lock().members += 1;
        Ok(Membership(Arc::clone(station)))
    }

    /// Forgets a station that nobody needs, or every one of a closing engine; says whether.
    pub(crate) fn try_end(&self, station: &Station, closing: bool) -> bool {
        let mut stations = self.lock();
        let idle = {
            let line = station.lock();
            line.members == 0 && line.unary.is_empty()
        };
        if idle || closing {
            stations.remove(&station.queues);
            station.refuse();
        }
        idle || closing
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<QueueName>, Arc<Station>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
