//! A hub that spreads wakes within a process.

use crate::{Topic, Wake, Wakes};
use futures::Stream;
use std::{
    collections::{BTreeSet, HashMap},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

/// Spreads wakes to the listeners of one process. Wakes of one topic coalesce, so that a listener
/// who does not read costs nothing; none is lost.
#[derive(Debug, Default)]
pub struct WakeHub {
    listeners: Arc<Mutex<Listeners>>,
}

type Listeners = HashMap<Topic, Vec<Weak<Inbox>>>;

#[derive(Debug, Default)]
struct Inbox(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    news: BTreeSet<Topic>,
    reconnected: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, put: impl FnOnce(&mut Pending)) {
        let mut pending = self.lock();
        put(&mut pending);
        let waker = pending.waker.take();
        drop(pending);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl WakeHub {
    /// Wakes of these topics, from now on.
    pub fn listen(&self, topics: &[Topic]) -> Wakes {
        let inbox = Arc::new(Inbox::default());
        let mut listeners = self.lock();
        for topic in topics {
            listeners.entry(topic.clone()).or_default().push(Arc::downgrade(&inbox));
        }
        let listeners = Arc::clone(&self.listeners);
        Box::pin(Listener { inbox, topics: topics.to_vec(), listeners })
    }

    /// The topics that somebody listens to.
    pub fn watched(&self) -> Vec<Topic> {
        self.lock().keys().cloned().collect()
    }

    /// Tells those who listen to the topic.
    pub fn wake(&self, topic: &Topic) {
        let inboxes: Vec<_> = match self.lock().get(topic) {
            Some(inboxes) => inboxes.iter().filter_map(Weak::upgrade).collect(),
            None => return,
        };
        for inbox in inboxes {
            inbox.put(|pending| {
                pending.news.insert(topic.clone());
            });
        }
    }

    /// Tells every listener that it was cut off for a while.
    pub fn reconnected(&self) {
        for inbox in self.inboxes() {
            inbox.put(|pending| pending.reconnected = true);
        }
    }

    /// Ends every listener.
    pub fn close(&self) {
        for inbox in self.inboxes() {
            inbox.put(|pending| pending.closed = true);
        }
        self.lock().clear();
    }

    fn inboxes(&self) -> Vec<Arc<Inbox>> {
        self.lock().values().flatten().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Listener {
    inbox: Arc<Inbox>,
    topics: Vec<Topic>,
    listeners: Arc<Mutex<Listeners>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in &self.topics {
            if let Some(inboxes) = listeners.get_mut(topic) {
                inboxes.retain(|inbox| !std::ptr::eq(inbox.as_ptr(), &raw const *self.inbox));
                if inboxes.is_empty() {
                    listeners.remove(topic);
                }
            }
        }
    }
}

impl Stream for Listener {
    type Item = Wake;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Wake>> {
        let mut pending = self.inbox.lock();
        if std::mem::take(&mut pending.reconnected) {
            return Poll::Ready(Some(Wake::Reconnected));
        }
        if let Some(topic) = pending.news.pop_first() {
            return Poll::Ready(Some(Wake::News(topic)));
        }
        if pending.closed {
            return Poll::Ready(None);
        }
        pending.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use crate::{ChannelName, StreamName};
    use futures::StreamExt as _;

    #[tokio::test]
    async fn wakes_coalesce_and_reach_only_those_who_listen() {
        let hub = WakeHub::default();
        let channel = Topic::Channel(ChannelName::new("a").unwrap());
        let stream = Topic::Stream(StreamName::new("a").unwrap());
        let mut wakes = hub.listen(std::slice::from_ref(&channel));
        assert_eq!(hub.watched(), std::slice::from_ref(&channel));

        hub.wake(&stream);
        hub.wake(&channel);
        hub.wake(&channel);
        hub.reconnected();

        assert_eq!(wakes.next().await, Some(Wake::Reconnected));
        assert_eq!(wakes.next().await, Some(Wake::News(channel.clone())));
        hub.wake(&channel);
        hub.close();
        assert_eq!(wakes.next().await, Some(Wake::News(channel)), "what was heard is not lost");
        assert_eq!(wakes.next().await, None);
        assert!(hub.watched().is_empty());

        let listen = || hub.listen(std::slice::from_ref(&stream));
        let (one, two) = (listen(), listen());
        drop(one);
        assert_eq!(hub.watched(), [stream]);
        drop(two);
        assert!(hub.watched().is_empty());
    }
}
