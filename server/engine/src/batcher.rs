//! Lets concurrent calls of one kind share storage calls: what waits while others are under way
//! goes together. Nothing waits for a timer, so that an idle server answers at once, and each caller
//! has its own answer. A storage call that does not end soon, because somebody's transaction is in
//! its way perhaps, does not hold up the calls about other things.

use crate::{
    EngineError, clock,
    core::{Core, refuse_all},
};
use std::{
    collections::{HashSet, VecDeque},
    future::Future,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// One fills while the other is written.
const UNDER_WAY_MAX: usize = 1;
/// A storage call that is under way for so long is not waited for by others …
const SLOW_AFTER: Duration = Duration::from_millis(250);
/// … unless there are so many already.
const SLOW_MAX: usize = 8;
/// Items of one storage call.
const BATCH_ITEMS_MAX: usize = 1_000;
/// Bytes of one storage call, of the items' own weight; a first item always fits.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Items that wait: more are refused, so that a slow storage is felt at once.
const WAITING_ITEMS_MAX: usize = 10_000;
/// Bytes that wait.
const WAITING_BYTES_MAX: usize = 64 << 20;
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A kind of call.
pub(crate) trait Kind: Sized + Send + 'static {
    type Item: Send + 'static;
    type Answer: Send + 'static;
    const OPERATION: &'static str;

    fn batcher(core: &Core) -> &Batcher<Self>;

    /// What an item weighs beyond its count.
    fn bytes(_item: &Self::Item) -> usize {
        0
    }

    /// What an item is about, by [`about`]. While a storage call is slow, no other takes items about
    /// the same.
    fn about(_item: &Self::Item) -> Option<u64> {
        None
    }

    /// Calls the storage; as many answers as items.
    fn run(
        core: Arc<Core>,
        items: Vec<Self::Item>,
    ) -> impl Future<Output = Vec<Result<Self::Answer, EngineError>>> + Send;
}

/// A number for what an item is about. Two things of one number only wait for each other.
pub(crate) fn about(thing: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(thing)
}

pub(crate) struct Batcher<K: Kind>(Mutex<Line<K>>);

struct Line<K: Kind> {
    waiting: VecDeque<Waiting<K>>,
    waiting_bytes: usize,
    /// Those that are slow not among them.
    under_way: usize,
    slow: usize,
    /// What the slow ones are about.
    held_up: HashSet<u64>,
}

struct Waiting<K: Kind> {
    item: K::Item,
    bytes: usize,
    answer: oneshot::Sender<Result<K::Answer, EngineError>>,
}

impl<K: Kind> Default for Batcher<K> {
    fn default() -> Self {
        Self(Mutex::new(Line {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            under_way: 0,
            slow: 0,
            held_up: HashSet::new(),
        }))
    }
}

impl<K: Kind> Batcher<K> {
    /// Joins what waits, and waits for this item's own answer.
    pub(crate) async fn join(core: &Arc<Core>, item: K::Item) -> Result<K::Answer, EngineError> {
        let (answer, answered) = oneshot::channel();
        let bytes = K::bytes(&item);
        let start = {
            let mut line = K::batcher(core).lock();
            let full = line.waiting.len() >= WAITING_ITEMS_MAX
                || (line.waiting_bytes + bytes > WAITING_BYTES_MAX && !line.waiting.is_empty());
            if full {
                return Err(EngineError::Overloaded { retry_after: RETRY_AFTER });
            }
            line.waiting_bytes += bytes;
            line.waiting.push_back(Waiting { item, bytes, answer });
            let start = line.under_way < UNDER_WAY_MAX;
            line.under_way += usize::from(start);
            start
        };
        if start {
            core.tasks.spawn(Self::send(Arc::clone(core)));
        }
        let lost = |_| EngineError::internal(K::OPERATION, "the batch gave no answer");
        answered.await.map_err(lost)?
    }

    /// Sends batches while anything waits.
    async fn send(core: Arc<Core>) {
        loop {
            let batch = {
                let mut line = K::batcher(&core).lock();
                let batch = line.take();
                if batch.is_empty() {
                    line.under_way -= 1;
                    return;
                }
                batch
            };
            let count = batch.len();
            let (items, callers): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.item, waiting.answer)).unzip();
            let about: Vec<_> = items.iter().filter_map(K::about).collect();
            let mut answering = pin!(core.run(K::OPERATION, K::run(Arc::clone(&core), items)));
            let mut goes_on = true;
            let answers = tokio::select! {
                biased;
                answers = &mut answering => answers,
                () = clock::sleep(SLOW_AFTER) => {
                    let is_passed = Self::let_others_pass(&core, &about);
                    let answers = answering.await;
                    if is_passed {
                        goes_on = Self::come_back(&core, &about);
                    }
                    answers
                }
            };
            let answers = answers.unwrap_or_else(|error| refuse_all(&error, count));
            for (caller, answer) in callers.into_iter().zip(answers) {
                // A caller that is gone needs no answer.
                let _ = caller.send(answer);
            }
            if !goes_on {
                return;
            }
        }
    }

    /// Has others go on beside a storage call that is slow, but for what it is about.
    fn let_others_pass(core: &Arc<Core>, about: &[u64]) -> bool {
        {
            let mut line = K::batcher(core).lock();
            if line.slow >= SLOW_MAX {
                return false;
            }
            line.slow += 1;
            line.held_up.extend(about);
            // This one's place goes to another, which may find nothing to do.
        }
        core.tasks.spawn(Self::send(Arc::clone(core)));
        true
    }

    /// The slow call has ended. Says whether it sends what waits then: else somebody else does.
    fn come_back(core: &Arc<Core>, about: &[u64]) -> bool {
        let mut line = K::batcher(core).lock();
        line.slow -= 1;
        for thing in about {
            line.held_up.remove(thing);
        }
        let goes_on = line.under_way < UNDER_WAY_MAX;
        line.under_way += usize::from(goes_on);
        goes_on
    }

    fn lock(&self) -> MutexGuard<'_, Line<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Kind> Line<K> {
    fn take(&mut self) -> Vec<Waiting<K>> {
        let passed_over = self.pass_over();
        let mut bytes = 0;
        let count = self
            .waiting
            .iter()
            .take(BATCH_ITEMS_MAX)
            .take_while(|waiting| {
                let first = bytes == 0;
                bytes += waiting.bytes;
                first || bytes <= BATCH_BYTES_MAX
            })
            .count();
        let batch: Vec<_> = self.waiting.drain(..count).collect();
        for waiting in passed_over.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
        self.waiting_bytes -= batch.iter().map(|waiting| waiting.bytes).sum::<usize>();
        batch
    }

    /// Takes out what is about something that a slow call is about; it keeps its order.
    fn pass_over(&mut self) -> Vec<Waiting<K>> {
        if self.held_up.is_empty() {
            return Vec::new();
        }
        let is_held_up = |waiting: &Waiting<K>| {
            K::about(&waiting.item).is_some_and(|about| self.held_up.contains(&about))
        };
        let waiting = std::mem::take(&mut self.waiting);
        let (held_up, free) = waiting.into_iter().partition::<VecDeque<_>, _>(is_held_up);
        self.waiting = free;
        held_up.into()
    }
}
