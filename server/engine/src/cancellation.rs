//! Cancellation. Streams of this server that hold the task hear of it.

use crate::{
    Engine, EngineError,
    batcher::{Batcher, Kind, about},
    core::{Core, spread},
    outbox_name::is_internal,
};
use rdq_spi::{Cancelled, StaleDetail, TaskId};
use std::sync::Arc;

impl Engine {
    /// Ends an unfinished task for good; a finished one does not change.
    pub async fn cancel(&self, id: TaskId) -> Result<Cancelled, EngineError> {
        self.core.check_cancellable(&id).await?;
        Batcher::<Cancels>::join(&self.core, id).await
    }
}

/// Cancellations of single calls.
pub(crate) struct Cancels;

impl Kind for Cancels {
    type Item = TaskId;
    type Answer = Cancelled;
    const OPERATION: &'static str = "cancel";

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.cancels
    }

    fn about(id: &TaskId) -> Option<u64> {
        Some(about(id))
    }

    async fn run(core: Arc<Core>, ids: Vec<TaskId>) -> Vec<Result<Cancelled, EngineError>> {
        let answers = core.storage.cancel(ids.clone()).await;
        let answers = spread(Self::OPERATION, answers, ids.len());
        for (id, answer) in ids.iter().zip(&answers) {
            if answer.as_ref().is_ok_and(|cancelled| cancelled.changed) {
                core.feeds.lose(id, StaleDetail::Cancelled);
            }
        }
        answers
    }
}

impl Core {
    /// Refuses to cancel a message of an outbox: no caller's id names one.
    pub(crate) async fn check_cancellable(&self, id: &TaskId) -> Result<(), EngineError> {
        if !self.has_outboxes {
            return Ok(());
        }
        let id = id.clone();
        let task = self.call("get", |storage| async move { storage.get(id).await }).await?;
        if is_internal(&task.queue) { Err(EngineError::not_found(task.id)) } else { Ok(()) }
    }
}
