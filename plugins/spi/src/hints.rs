//! Hints that a task may be due, and a hub that spreads them within a process.

use crate::QueueName;
use futures::Stream;
use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// A task of the queue may be due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueHint {
    /// Where.
    pub queue: QueueName,
    /// How soon, by the storage's clock; zero is now.
    pub due_in: Duration,
}

/// A stream of hints. It ends when its source does; the engine then subscribes again.
pub type DueHints = Pin<Box<dyn Stream<Item = DueHint> + Send>>;

/// Spreads hints to the subscriptions of one process. Hints of one queue coalesce to the soonest,
/// so that a subscriber who does not read costs nothing; none is lost.
#[derive(Debug, Default)]
pub struct HintHub {
    subscribers: Mutex<HashMap<QueueName, Vec<Weak<Inbox>>>>,
}

#[derive(Debug, Default)]
struct Inbox(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    soonest: HashMap<QueueName, Duration>,
    waker: Option<Waker>,
    closed: bool,
}

impl Inbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HintHub {
    /// A stream of the hints for these queues, from now on.
    pub fn subscribe(&self, queues: &[QueueName]) -> DueHints {
        let inbox = Arc::new(Inbox::default());
        let mut subscribers = self.lock();
        for queue in queues {
            let inboxes = subscribers.entry(queue.clone()).or_default();
            inboxes.retain(|inbox| inbox.strong_count() > 0);
            inboxes.push(Arc::downgrade(&inbox));
        }
        Box::pin(Subscription(inbox))
    }

    /// Whether somebody waits for any queue.
    pub fn is_watched(&self) -> bool {
        let mut subscribers = self.lock();
        subscribers.retain(|_, inboxes| inboxes.iter().any(|inbox| inbox.strong_count() > 0));
        !subscribers.is_empty()
    }

    /// The queues that somebody waits for.
    pub fn watched(&self) -> Vec<QueueName> {
        if self.is_watched() { self.lock().keys().cloned().collect() } else { Vec::new() }
    }

    /// Tells those who wait for the queue.
    pub fn hint(&self, queue: &QueueName, due_in: Duration) {
        let inboxes: Vec<_> = match self.lock().get(queue) {
            Some(inboxes) => inboxes.iter().filter_map(Weak::upgrade).collect(),
            None => return,
        };
        for inbox in inboxes {
            let mut pending = inbox.lock();
            let soonest = pending.soonest.entry(queue.clone()).or_insert(due_in);
            *soonest = due_in.min(*soonest);
            let waker = pending.waker.take();
            drop(pending);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Ends every subscription.
    pub fn close(&self) {
        for inbox in self.lock().drain().flat_map(|(_, inboxes)| inboxes) {
            if let Some(inbox) = inbox.upgrade() {
                let mut pending = inbox.lock();
                pending.closed = true;
                let waker = pending.waker.take();
                drop(pending);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<QueueName, Vec<Weak<Inbox>>>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Subscription(Arc<Inbox>);

impl Stream for Subscription {
    type Item = DueHint;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<DueHint>> {
        let mut pending = self.0.lock();
        if let Some(queue) = pending.soonest.keys().next().cloned() {
            let due_in = pending.soonest.remove(&queue).unwrap_or_default();
            return Poll::Ready(Some(DueHint { queue, due_in }));
        }
        if pending.closed {
            return Poll::Ready(None);
        }
        pending.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use futures::StreamExt as _;

    #[tokio::test]
    async fn hints_coalesce_to_the_soonest_and_reach_only_those_who_wait() {
        let hub = HintHub::default();
        let (a, b) = (QueueName::new("a").unwrap(), QueueName::new("b").unwrap());
        let mut hints = hub.subscribe(std::slice::from_ref(&a));
        assert!(hub.is_watched());

        hub.hint(&b, Duration::ZERO);
        hub.hint(&a, Duration::from_secs(9));
        hub.hint(&a, Duration::from_secs(3));

        let hint = hints.next().await.unwrap();
        assert_eq!((hint.queue, hint.due_in), (a, Duration::from_secs(3)));
        hub.close();
        assert_eq!(hints.next().await, None);
        assert!(!hub.is_watched());
    }
}
