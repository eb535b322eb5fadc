//! Subscriptions: tasks as they fall due, as long as the client reads and resolves.

use crate::{
    ClaimRequest, ClaimedTask, Engine, EngineError, clock,
    core::Core,
    dispatch::{Dispatcher, Membership},
    feed::{Feed, Room, Taker},
    limits::{ANSWER_BYTES_MAX, EXTENT_MAX, IN_FLIGHT_MAX, check_lease, queue_set},
};
use futures::{FutureExt as _, Stream};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::Sleep;

/// What a subscription asks for.
#[derive(Debug, Clone)]
pub struct FollowRequest {
    /// What each item takes.
    pub claim: ClaimRequest,
    /// How many claims may be unresolved at once, 1 to 10,000; more is cut.
    pub max_in_flight: u32,
}

/// A stream of claims. The first item comes at once, perhaps empty, and an empty one after each
/// silence of the keep-alive; a drain ends it with [`EngineError::Closed`]. Dropping it gives back
/// what it did not yield.
#[must_use = "dropping it ends the subscription"]
pub struct Subscription {
    core: Arc<Core>,
    feed: Arc<Feed>,
    _membership: Membership,
    keep_alive: Pin<Box<Sleep>>,
    first: bool,
    ended: bool,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Engine {
    /// Subscribes to queues.
    pub fn follow(&self, request: FollowRequest) -> Result<Subscription, EngineError> {
        let FollowRequest { claim, max_in_flight } = request;
        let queues = queue_set(&claim.queues)?;
        check_lease("lease", claim.lease)?;
        if max_in_flight == 0 {
            return Err(EngineError::invalid("max_in_flight", "must be at least 1"));
        }
        for queue in &queues {
            self.core.queues.check_declared(queue)?;
        }
        let core = Arc::clone(&self.core);
        let membership = Dispatcher::join(&core, queues)?;
        let taker = Taker {
            limit: claim.limit.min(EXTENT_MAX),
            lease: claim.lease,
            worker_id: claim.worker_id,
        };
        let room = Room::InFlight(max_in_flight.min(IN_FLIGHT_MAX));
        let feed = Feed::new(Arc::clone(&core), Arc::clone(&membership.0), taker, room);
        feed.line_up();
        let keep_alive = Box::pin(clock::sleep(core.options.keep_alive));
        let (first, ended) = (true, false);
        Ok(Subscription { core, feed, _membership: membership, keep_alive, first, ended })
    }
}

impl Stream for Subscription {
    type Item = Result<Vec<ClaimedTask>, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let collected = self.feed.collect(context.waker(), ANSWER_BYTES_MAX);
        if self.core.closing.is_cancelled() {
            // The keeper of feeds may not have come by yet, and tasks may just have been taken.
            self.core.give_back(collected.tasks);
            self.ended = true;
            return Poll::Ready(Some(Err(EngineError::Closed)));
        }
        let silent = self.keep_alive.poll_unpin(context).is_ready();
        if collected.tasks.is_empty() && !self.first && !silent {
            return Poll::Pending;
        }
        self.first = false;
        self.keep_alive = Box::pin(clock::sleep(self.core.options.keep_alive));
        Poll::Ready(Some(Ok(collected.tasks)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.retire();
        self.core.feeds.remove(&self.feed);
    }
}
