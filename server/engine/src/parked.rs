//! A claim call that waits in the storage for streams that stand in the line, so that a task is
//! claimed in the step that admits it. Its claim loop ends it whenever something else is to be done.

use crate::{
    EngineError,
    clock::{self, Instant},
    core::Core,
    dispatch::Ask,
    feed::Feed,
    queues::Snapshot,
};
use futures::future::BoxFuture;
use rdq_spi::{Awaited, ClaimParams};
use std::sync::Arc;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) struct Parked {
    /// Whom it is for.
    pub(crate) standing: Vec<(Arc<Feed>, Ask)>,
    /// What its parameters were made from.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) called_at: Instant,
    /// Comes once the storage has answered.
    pub(crate) answer: BoxFuture<'static, Result<Awaited, EngineError>>,
    /// Cancelled when it is dropped: a loop that ends must leave no call behind that waits.
    enough: DropGuard,
}

impl Parked {
    /// Calls the storage; as many answers as there are waiters.
    pub(crate) fn new(
        core: &Arc<Core>,
        standing: Vec<(Arc<Feed>, Ask)>,
        snapshot: Arc<Snapshot>,
        params: Vec<ClaimParams>,
    ) -> Self {
        let enough = CancellationToken::new();
        let (core, until) = (Arc::clone(core), enough.clone());
        let answer = Box::pin(async move {
            let claim = |storage: Arc<dyn rdq_spi::Storage>| async move {
                storage.claim_when_due(params, until).await
            };
            core.call("claim_when_due", claim).await
        });
        let (called_at, enough) = (clock::now(), enough.drop_guard());
        Self { standing, snapshot, called_at, answer, enough }
    }

    /// It has waited enough: it will answer soon.
    pub(crate) fn end(&self) {
        self.enough.token().cancel();
    }

    /// Whether it ended by itself.
    pub(crate) fn ended_by_itself(&self) -> bool {
        !self.enough.token().is_cancelled()
    }

    /// Whether a stream has ended that it is for.
    pub(crate) fn lost_someone(&self) -> bool {
        self.standing.iter().any(|(feed, _)| !feed.is_serving())
    }
}
