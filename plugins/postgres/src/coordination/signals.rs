//! Wakes: those who listen here are told at once, other servers by NOTIFY. A notification is sent
//! before its call is answered; an event's wake follows its commit, and is tried until it is sent.
//! Both go beside the transactions, many in one message: a NOTIFY makes all commits of the database
//! wait for each other.

use crate::{errors::Sql, pool::Pool, rounds::repeated};
use futures::FutureExt as _;
use rdq_spi::{ChannelName, Result, StorageError, StreamName, Topic, WakeHub, Wakes};
use sqlx::PgConnection;
use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, oneshot};

/// Between two messages, so that many calls share one.
const PAUSE: Duration = Duration::from_millis(1);
/// Before what could not be sent is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// How long a handle that is closed tries to tell.
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// PostgreSQL takes less than 8,000 bytes in one, and a name has 240.
const MESSAGE_BYTES_MAX: usize = 7_500;
/// Who sends within a transaction: heard by everybody, the sender's own listeners too.
const IN_TRANSACTION: &str = "transaction";

/// Tells who listens. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Announcer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    hub: WakeHub,
    pool: Arc<Pool>,
    channel: String,
    /// Tells this handle's messages from others'.
    sender: String,
    waiting: Mutex<Waiting>,
    more: Notify,
}

/// What is to be sent.
#[derive(Debug, Default)]
struct Waiting {
    /// Streams with news.
    streams: BTreeSet<Topic>,
    calls: Vec<Call>,
}

/// A notification, whose caller waits until it is sent.
#[derive(Debug)]
struct Call {
    channels: Vec<Topic>,
    answer: oneshot::Sender<Result<()>>,
}

impl Announcer {
    /// Sends by this pool on this database channel.
    pub(crate) fn new(pool: &Arc<Pool>, channel: &str) -> Self {
        Self(Arc::new(Shared {
            hub: WakeHub::default(),
            pool: Arc::clone(pool),
            channel: channel.to_owned(),
            sender: format!("wakes-{:016x}", RandomState::new().build_hasher().finish()),
            waiting: Mutex::default(),
            more: Notify::new(),
        }))
    }

    /// Wakes of these topics, from now on.
    pub(crate) fn listen(&self, topics: &[Topic]) -> Wakes {
        self.0.hub.listen(topics)
    }

    /// Wakes whoever listens to these channels.
    pub(crate) async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        let channels = channels.into_iter().map(Topic::Channel).collect();
        let (answer, sent) = oneshot::channel();
        self.lock().calls.push(Call { channels, answer });
        self.0.more.notify_one();
        sent.await.unwrap_or(Err(StorageError::Closed))
    }

    /// Wakes whoever listens to these streams: events of them were committed.
    pub(crate) fn published<'a>(&self, streams: impl Iterator<Item = &'a StreamName>) {
        let topics: BTreeSet<_> = streams.cloned().map(Topic::Stream).collect();
        if topics.is_empty() {
            return;
        }
        for topic in &topics {
            self.0.hub.wake(topic);
        }
        self.lock().streams.extend(topics);
        self.0.more.notify_one();
    }

    /// Passes on what a message tells that was heard, unless it is of this handle.
    pub(crate) fn heard(&self, message: &str) {
        let is_own = message.strip_prefix(&self.0.sender).is_some_and(|it| it.starts_with('\n'));
        if !is_own {
            read(message).for_each(|topic| self.0.hub.wake(&topic));
        }
    }

    /// Tells every listener here that messages may have been missed.
    pub(crate) fn reconnected(&self) {
        self.0.hub.reconnected();
    }

    /// Sends what there is to tell, for ever.
    pub(crate) async fn run(self) {
        loop {
            self.0.more.notified().await;
            let Waiting { streams, calls } = std::mem::take(&mut *self.lock());
            let channels = calls.iter().flat_map(|call| &call.channels);
            let topics: BTreeSet<_> = streams.iter().chain(channels).collect();
            match self.send(messages(&self.0.sender, topics)).await {
                Ok(()) => {
                    for Call { channels, answer } in calls {
                        for topic in &channels {
                            self.0.hub.wake(topic);
                        }
                        // Who does not wait any more needs no answer.
                        let _ = answer.send(Ok(()));
                    }
                }
                Err(error) => {
                    for Call { answer, .. } in calls {
                        let _ = answer.send(Err(repeated(&error, "notify")));
                    }
                    tracing::debug!(%error, "other servers were not told of events");
                    tokio::time::sleep(RETRY).await;
                    self.lock().streams.extend(streams);
                    self.0.more.notify_one();
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn send(&self, messages: Vec<String>) -> Result<()> {
        let (channel, messages) = (self.0.channel.clone(), Arc::new(messages));
        let send = self.0.pool.read("notify", move |db| {
            let (channel, messages) = (channel.clone(), Arc::clone(&messages));
            async move { tell(db, &channel, &messages).await }.boxed()
        });
        send.await
    }

    /// Tells of notifications at the commit of the transaction that this connection is in.
    pub(crate) async fn tell_within(
        &self,
        db: &mut PgConnection,
        told: &BTreeSet<Topic>,
    ) -> Sql<()> {
        tell(db, &self.0.channel, &messages(IN_TRANSACTION, told)).await
    }

    /// Ends every listener, and tries once more to tell of events.
    pub(crate) async fn close(&self) {
        self.0.hub.close();
        let Waiting { streams, .. } = std::mem::take(&mut *self.lock());
        if !streams.is_empty() {
            let told =
                tokio::time::timeout(CLOSE_MAX, self.send(messages(&self.0.sender, &streams)));
            if !matches!(told.await, Ok(Ok(()))) {
                tracing::debug!("other servers were not told of the last events");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends messages, at the commit.
pub(crate) async fn tell(db: &mut PgConnection, channel: &str, messages: &[String]) -> Sql<()> {
    let notify =
        sqlx::query("SELECT pg_notify($1, message) FROM unnest($2::text[]) AS m (message)");
    notify.bind(channel).bind(messages).execute(db).await?;
    Ok(())
}

/// A first line that says who tells, and a line for each topic. Hints of due tasks go on the same
/// channel, and have a number where these have a letter; neither reads the other's. Names hold no
/// line's end.
pub(crate) fn messages<'a>(
    sender: &str,
    topics: impl IntoIterator<Item = &'a Topic>,
) -> Vec<String> {
    let mut messages: Vec<String> = Vec::new();
    for topic in topics {
        let line = match topic {
            Topic::Channel(channel) => format!("\nc {channel}"),
            Topic::Stream(stream) => format!("\ns {stream}"),
        };
        match messages.last_mut() {
            Some(message) if message.len() + line.len() <= MESSAGE_BYTES_MAX => {
                message.push_str(&line);
            }
            _ => messages.push(format!("{sender}{line}")),
        }
    }
    messages
}

/// What a message tells.
fn read(message: &str) -> impl Iterator<Item = Topic> {
    message.lines().skip(1).filter_map(|line| match line.split_once(' ')? {
        ("c", name) => Some(Topic::Channel(ChannelName::stored(name))),
        ("s", name) => Some(Topic::Stream(StreamName::stored(name))),
        _ => None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_and_no_message_is_too_long() {
        let long = |n: u32| format!(" {n:03} {}", "é".repeat(117));
        let told: BTreeSet<_> = (0..50)
            .flat_map(|n| {
                let channel = Topic::Channel(ChannelName::new(long(n)).unwrap());
                [channel, Topic::Stream(StreamName::new(long(n)).unwrap())]
            })
            .collect();
        let sent = messages("me", &told);
        assert!(sent.len() > 1 && sent.iter().all(|it| it.len() < 8_000 && it.starts_with("me\n")));
        assert_eq!(sent.iter().flat_map(|message| read(message)).collect::<BTreeSet<_>>(), told);
        let hints = sent.iter().flat_map(|message| crate::notifier::read(message));
        assert_eq!(hints.count(), 0, "no hint of a task");
    }

    #[test]
    fn what_nobody_of_us_said_tells_nothing() {
        for garbage in ["", "x", "x\n", "x\nc", "x\n7 queue", "x\nd name", "c name"] {
            assert_eq!(read(garbage).count(), 0, "{garbage:?}");
        }
    }
}
