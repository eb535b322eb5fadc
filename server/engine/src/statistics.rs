//! Counts of queues.

use crate::{Engine, EngineError, limits::once_each, queue_admin::callers_queues};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rdq_spi::{QueueName, QueueStats};

/// Queues answered if none is named.
const QUEUES_MAX: u32 = 1_000;
/// Counts under way at once.
const UNDER_WAY: usize = 4;

impl Engine {
    /// Counts the tasks of these queues, or of all that the storage knows, up to 1,000.
    pub async fn stats(
        &self,
        queues: Vec<QueueName>,
    ) -> Result<Vec<(QueueName, QueueStats)>, EngineError> {
        let all = queues.is_empty();
        let queues = once_each(queues);
        self.core
            .call("stats", |storage| async move {
                let queues =
                    if all { callers_queues(&*storage, None, QUEUES_MAX).await? } else { queues };
                let counts = queues.into_iter().map(|queue| {
                    let storage = &storage;
                    async move { Ok((queue.clone(), storage.stats(queue).await?)) }
                });
                stream::iter(counts).buffered(UNDER_WAY).try_collect().await
            })
            .await
    }
}
