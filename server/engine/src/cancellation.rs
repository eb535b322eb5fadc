//! Cancellation. Streams of this server that hold the task hear of it.

use crate::{
    Engine, EngineError,
    batcher::{Batcher, Kind},
    core::{Core, spread},
};
use rdq_spi::{Cancelled, StaleDetail, TaskId};
use std::sync::Arc;

impl Engine {
    /// Ends an unfinished task for good; a finished one does not change.
    pub async fn cancel(&self, id: TaskId) -> Result<Cancelled, EngineError> {
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
