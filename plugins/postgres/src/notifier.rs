//! Tells other servers what is due, after the commit and beside it: a NOTIFY within a transaction
//! makes all commits of the database wait for each other. What is told at once is one message.

use crate::{errors::Sql, pool::Pool};
use futures::FutureExt as _;
use rdq_spi::QueueName;
use sqlx::PgConnection;
use std::{
    collections::HashMap,
    fmt::Write as _,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// What is due later is found in time by whoever looks once a second.
pub(crate) const WORTH_TELLING: Duration = Duration::from_millis(1_500);
/// Between two messages, so that many calls share one.
const PAUSE: Duration = Duration::from_millis(2);
/// PostgreSQL takes less than 8,000 bytes in one.
const MESSAGE_BYTES_MAX: usize = 7_500;

/// What is to be told. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    channel: String,
    /// Tells this handle's messages from others'.
    sender: String,
    soonest: Mutex<HashMap<QueueName, Duration>>,
    more: Notify,
}

impl Notifier {
    /// Tells on this channel.
    pub(crate) fn new(pool: Arc<Pool>, channel: String) -> Self {
        let sender = format!("{:016x}", RandomState::new().build_hasher().finish());
        let (soonest, more) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { pool, channel, sender, soonest, more }))
    }

    /// Tells others that something of the queue is due then.
    pub(crate) fn tell(&self, queue: &QueueName, due_in: Duration) {
        let mut waiting = self.0.soonest.lock().unwrap_or_else(PoisonError::into_inner);
        let soonest = waiting.entry(queue.clone()).or_insert(due_in);
        *soonest = due_in.min(*soonest);
        drop(waiting);
        self.0.more.notify_one();
    }

    /// Whether a message is from here.
    pub(crate) fn sent(&self, message: &str) -> bool {
        message.strip_prefix(&self.0.sender).is_some_and(|rest| rest.starts_with('\n'))
    }

    /// Sends what there is to tell, for ever.
    pub(crate) async fn run(self) {
        loop {
            self.0.more.notified().await;
            let told =
                std::mem::take(&mut *self.0.soonest.lock().unwrap_or_else(PoisonError::into_inner));
            let messages = messages(&self.0.sender, &told);
            if let Err(error) = self.send(messages).await {
                // Others look once a second.
                tracing::debug!(%error, "other servers were not told what is due");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends messages on the channel.
    pub(crate) async fn send(&self, messages: Vec<String>) -> rdq_spi::Result<()> {
        let (channel, messages) = (self.0.channel.clone(), Arc::new(messages));
        let send = self.0.pool.read("wait_due", move |db| {
            let (channel, messages) = (channel.clone(), Arc::clone(&messages));
            async move { notify(db, &channel, &messages).await }.boxed()
        });
        send.await
    }
}

async fn notify(db: &mut PgConnection, channel: &str, messages: &[String]) -> Sql<()> {
    let notify =
        sqlx::query("SELECT pg_notify($1, message) FROM unnest($2::text[]) AS m (message)");
    notify.bind(channel).bind(messages).execute(db).await?;
    Ok(())
}

/// A first line that says who tells, and a line for each queue: how many milliseconds until
/// something is due there, and the queue, which holds no line's end.
pub(crate) fn messages(sender: &str, told: &HashMap<QueueName, Duration>) -> Vec<String> {
    let mut messages = Vec::new();
    let mut message = String::new();
    for (queue, due_in) in told {
        if message.len() > MESSAGE_BYTES_MAX - 300 {
            messages.push(std::mem::take(&mut message));
        }
        if message.is_empty() {
            message.push_str(sender);
        }
        // Writing to a string does not fail.
        let _ = write!(message, "\n{} {queue}", due_in.as_millis());
    }
    if !message.is_empty() {
        messages.push(message);
    }
    messages
}

/// What a message tells.
pub(crate) fn read(message: &str) -> impl Iterator<Item = (QueueName, Duration)> {
    message.lines().skip(1).filter_map(|line| {
        let (due_in, queue) = line.split_once(' ')?;
        Some((QueueName::stored(queue), Duration::from_millis(due_in.parse().ok()?)))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_and_no_message_is_too_long() {
        let long = |n: u32| QueueName::new(format!("{n:03} {}", "é".repeat(118))).unwrap();
        let told: HashMap<_, _> =
            (0..100).map(|n| (long(n), Duration::from_millis(n.into()))).collect();
        let sent = messages("me", &told);
        assert!(sent.len() > 1 && sent.iter().all(|it| it.len() < 8_000 && it.starts_with("me\n")));
        let heard: HashMap<_, _> = sent.iter().flat_map(|message| read(message)).collect();
        assert_eq!(heard, told);
    }

    #[test]
    fn what_nobody_of_us_said_tells_nothing() {
        for garbage in ["", "x", "x\n", "x\ny z", "x\n-1 q", "x\n\n"] {
            assert_eq!(read(garbage).count(), 0, "{garbage:?}");
        }
    }
}
