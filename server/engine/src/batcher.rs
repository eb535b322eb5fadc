//! Lets concurrent calls of one kind share storage calls: what waits while others are under way
//! goes together. There is no timer, so that an idle server answers at once, and each caller has
//! its own answer.

use crate::{
    EngineError,
    core::{Core, refuse_all},
};
use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// One fills while the other is written.
const UNDER_WAY_MAX: usize = 1;
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

    /// Calls the storage; as many answers as items.
    fn run(
        core: Arc<Core>,
        items: Vec<Self::Item>,
    ) -> impl Future<Output = Vec<Result<Self::Answer, EngineError>>> + Send;
}

pub(crate) struct Batcher<K: Kind>(Mutex<Line<K>>);

struct Line<K: Kind> {
    waiting: VecDeque<Waiting<K>>,
    waiting_bytes: usize,
    under_way: usize,
}

struct Waiting<K: Kind> {
    item: K::Item,
    bytes: usize,
    answer: oneshot::Sender<Result<K::Answer, EngineError>>,
}

impl<K: Kind> Default for Batcher<K> {
    fn default() -> Self {
        Self(Mutex::new(Line { waiting: VecDeque::new(), waiting_bytes: 0, under_way: 0 }))
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
            let answers = core
                .run(K::OPERATION, K::run(Arc::clone(&core), items))
                .await
                .unwrap_or_else(|error| refuse_all(&error, count));
            for (caller, answer) in callers.into_iter().zip(answers) {
                // A caller that is gone needs no answer.
                let _ = caller.send(answer);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Kind> Line<K> {
    fn take(&mut self) -> Vec<Waiting<K>> {
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
        self.waiting_bytes -= batch.iter().map(|waiting| waiting.bytes).sum::<usize>();
        batch
    }
}
