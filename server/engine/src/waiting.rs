//! Hints for those who claim by themselves: another engine, most of all.

use crate::{
    Engine, EngineError,
    clock::{self, Instant},
    core::Core,
    limits::queue_set,
};
use futures::{StreamExt as _, stream};
use rdq_spi::{DueHint, DueHints, QueueName};
use std::{collections::VecDeque, sync::Arc, time::Duration};

impl Engine {
    /// Hints for these queues, until their source ends or the engine drains. Where the storage has
    /// none, each queue is hinted at in turn, as often as the engine itself would look.
    pub async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints, EngineError> {
        let queues = queue_set(&queues)?;
        if self.core.closing.is_cancelled() {
            return Err(EngineError::Closed);
        }
        let hints = if self.core.capabilities.notify {
            let wait =
                |storage: Arc<dyn rdq_spi::Storage>| async move { storage.wait_due(queues).await };
            self.core.call("wait_due", wait).await?
        } else {
            polling(Arc::clone(&self.core), queues)
        };
        let closing = self.core.closing.clone();
        Ok(Box::pin(hints.take_until(Box::pin(closing.cancelled_owned()))))
    }
}

/// Hints of this process as they come, and for every queue at each poll.
fn polling(core: Arc<Core>, queues: Vec<QueueName>) -> DueHints {
    struct Polling {
        core: Arc<Core>,
        in_process: DueHints,
        queues: Vec<QueueName>,
        pending: VecDeque<QueueName>,
        next_poll: Instant,
    }
    let in_process = core.hints.subscribe(&queues);
    // Everything may be due at first.
    let pending = queues.iter().cloned().collect();
    let next_poll = clock::now();
    let state = Polling { core, in_process, queues, pending, next_poll };
    Box::pin(stream::unfold(state, |mut state| async move {
        loop {
            if let Some(queue) = state.pending.pop_front() {
                let pause = clock::jittered(state.core.options.poll_interval, 0.2);
                state.next_poll = clock::now() + pause;
                return Some((DueHint { queue, due_in: Duration::ZERO }, state));
            }
            tokio::select! {
                biased;
                hint = state.in_process.next() => return hint.map(|hint| (hint, state)),
                () = clock::sleep_until(state.next_poll) => {
                    state.pending.extend(state.queues.iter().cloned());
                }
            }
        }
    }))
}
