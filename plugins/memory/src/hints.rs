//! The stream behind `wait_due`: what other calls make known, and a timer for what is known and
//! falls due later.

use crate::storage::Shared;
use futures::{StreamExt as _, stream};
use rdq_spi::{DueHint, DueHints, QueueName};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::sync::watch;

struct Waiter {
    shared: Arc<Shared>,
    queues: Vec<QueueName>,
    news: DueHints,
    closed: watch::Receiver<bool>,
    /// The queues where a task was due from the beginning.
    at_once: VecDeque<QueueName>,
}

/// Hints for these queues, until `closed` turns true.
pub(crate) fn hints(
    shared: Arc<Shared>,
    queues: Vec<QueueName>,
    closed: watch::Receiver<bool>,
) -> DueHints {
    // Subscribed before the first look, so that nothing falls in between.
    let news = shared.hub.subscribe(&queues);
    let at_once = shared.call(|state, now| {
        let due = queues.iter().filter(|name| state.next_due_at([*name], now) == Some(now));
        due.cloned().collect()
    });
    let waiter = Waiter { shared, queues, news, closed, at_once };
    Box::pin(stream::unfold(waiter, |mut waiter| async move {
        let hint = waiter.next().await?;
        Some((hint, waiter))
    }))
}

impl Waiter {
    async fn next(&mut self) -> Option<DueHint> {
        loop {
            if *self.closed.borrow() {
                return None;
            }
            if let Some(queue) = self.at_once.pop_front() {
                return Some(DueHint { queue, due_in: Duration::ZERO });
            }
            let timer = self.shared.lock().next_timer(&self.queues);
            let fall_due = async {
                match timer {
                    Some(at) => self.shared.clock.reach(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                hint = self.news.next() => return hint,
                // The look itself makes what has fallen due known, to every waiter.
                () = fall_due => {
                    self.shared.call(|state, now| state.next_due_at(&self.queues, now));
                }
                closed = self.closed.changed() => closed.ok()?,
            }
        }
    }
}
