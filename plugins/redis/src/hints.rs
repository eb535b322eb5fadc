//! Wake-up: what the functions publish, spread to those who wait in this process. Messages get lost
//! with a connection, so each new one, and each timer that ends, begins with a look at the store; a
//! look every few seconds bounds what any other loss may cost. Who listens to topics is told by each
//! new connection that something may have been missed.

use crate::{
    config::RedisConfig,
    connections::Connections,
    coordination::read_wakes,
    errors::{self, Access},
    packing::Unpacker,
};
use bytes::Bytes;
use futures::StreamExt as _;
use rdq_spi::{DueHints, HintHub, QueueName, Result, Topic, WakeHub, Wakes};
use redis::{Client, RedisError};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, OnceCell, watch},
    task::AbortHandle,
    time::{Sleep, sleep, timeout},
};

/// A connection that says nothing is asked for an answer so often, and the store looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// So long one waits for the connection before it is told that there is none.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);
/// One look asks for so many queues at once.
const QUEUES_AT_ONCE: usize = 200;

/// The hints and wakes of one handle. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Hints {
    hub: Arc<HintHub>,
    wakes: Arc<WakeHub>,
    /// Whether the connection hears, as far as it is known here.
    hears: watch::Sender<bool>,
    /// Somebody new waits.
    news: Arc<Notify>,
    listener: OnceCell<AbortHandle>,
}

impl Hints {
    pub(crate) fn new() -> Self {
        Self {
            hub: Arc::default(),
            wakes: Arc::default(),
            hears: watch::Sender::new(false),
            news: Arc::default(),
            listener: OnceCell::new(),
        }
    }

    /// Hints for these queues, from now on.
    pub(crate) async fn subscribe(
        &self,
        config: &RedisConfig,
        connections: &Arc<Connections>,
        queues: &[QueueName],
    ) -> DueHints {
        // Subscribed before the look, so that nothing falls in between.
        let hints = self.hub.subscribe(queues);
        self.start(config, connections).await;
        self.news.notify_one();
        hints
    }

    /// Wakes of these topics, from now on.
    pub(crate) async fn listen(
        &self,
        config: &RedisConfig,
        connections: &Arc<Connections>,
        topics: &[Topic],
    ) -> Result<Wakes> {
        // Whoever is known to the hub is told of a connection that breaks and is made again.
        let wakes = self.wakes.listen(topics);
        self.start(config, connections).await;
        let mut hears = self.hears.subscribe();
        let heard = timeout(LISTEN_TIMEOUT, hears.wait_for(|hears| *hears)).await;
        connections.check_open()?;
        match heard {
            Ok(_) => Ok(wakes),
            Err(elapsed) => Err(errors::unreachable("listen", elapsed)),
        }
    }

    async fn start(&self, config: &RedisConfig, connections: &Arc<Connections>) {
        let listen = async || {
            let listener = Listener {
                config: config.clone(),
                connections: connections.clone(),
                hub: self.hub.clone(),
                wakes: self.wakes.clone(),
                hears: self.hears.clone(),
                news: self.news.clone(),
            };
            tokio::spawn(listener.run()).abort_handle()
        };
        self.listener.get_or_init(listen).await;
    }

    /// Ends every subscription.
    pub(crate) fn close(&self) {
        if let Some(listener) = self.listener.get() {
            listener.abort();
        }
        self.hub.close();
        self.wakes.close();
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // Those who wait would wait for ever.
        self.close();
    }
}

struct Listener {
    config: RedisConfig,
    connections: Arc<Connections>,
    hub: Arc<HintHub>,
    wakes: Arc<WakeHub>,
    hears: watch::Sender<bool>,
    news: Arc<Notify>,
}

impl Listener {
    async fn run(self) {
        let mut retry_after = RETRY_AFTER;
        let mut is_first = true;
        loop {
            let heard = self.listen(&mut retry_after, &mut is_first).await;
            self.hears.send_replace(false);
            let error = match heard {
                Ok(()) => continue,
                Err(error) => error,
            };
            tracing::warn!(%error, "the connection for hints was lost; it is made again");
            sleep(retry_after).await;
            retry_after = (retry_after * 2).min(RETRY_AFTER_MAX);
        }
    }

    /// Listens on one connection until it fails.
    async fn listen(
        &self,
        retry_after: &mut Duration,
        is_first: &mut bool,
    ) -> Result<(), RedisError> {
        let client = Client::open(self.config.address.clone())?;
        let pubsub = in_time(client.get_async_pubsub()).await?;
        let (mut sink, mut messages) = pubsub.split();
        let wakes_channel = self.connections.wakes_channel();
        in_time(sink.subscribe(&[self.connections.channel(), wakes_channel])).await?;
        *retry_after = RETRY_AFTER;
        if !std::mem::replace(is_first, false) {
            self.wakes.reconnected();
        }
        self.hears.send_replace(true);
        let mut timer = Box::pin(sleep(self.look().await));
        let mut check = Box::pin(sleep(LOOK_EVERY));
        loop {
            tokio::select! {
                message = messages.next() => {
                    let Some(message) = message else { return Err(lost()) };
                    if message.get_channel_name() == wakes_channel {
                        for topic in read_wakes(message.get_payload_bytes()) {
                            self.wakes.wake(&topic);
                        }
                        continue;
                    }
                    for (queue, due_in) in read(message.get_payload_bytes()) {
                        self.hub.hint(&queue, due_in);
                        soonest(&mut timer, due_in);
                    }
                }
                () = self.news.notified() => timer.set(sleep(self.look().await)),
                () = &mut timer => timer.set(sleep(self.look().await)),
                () = &mut check => {
                    in_time(sink.ping::<redis::Value>()).await?;
                    timer.set(sleep(self.look().await));
                    check.set(sleep(LOOK_EVERY));
                }
            }
        }
    }

    /// Hints the queues that somebody waits for, by what stands in the store. Answers when to look
    /// again: when something more of them is due.
    async fn look(&self) -> Duration {
        let mut again = LOOK_EVERY;
        for queues in self.hub.watched().chunks(QUEUES_AT_ONCE) {
            let args = queues.iter().map(|it| Bytes::copy_from_slice(it.as_str().as_bytes()));
            let reply = self.connections.call("due_times", Access::Reads, args.collect()).await;
            let Some(times) = reply.ok().and_then(|it| it.each(|it| it.number())) else {
                // The connection's own trouble shows as that of this one; else the next look helps.
                return RETRY_AFTER_MAX;
            };
            for (queue, times) in queues.iter().zip(times.chunks(2)) {
                let [due, later] = [0, 1].map(|at| times.get(at).copied().and_then(millis));
                if let Some(due_in) = due {
                    self.hub.hint(queue, due_in);
                }
                if let Some(later) = later {
                    // The clock there need not have ticked when the timer here ends.
                    again = again.min(later + Duration::from_millis(1));
                }
            }
        }
        again
    }
}

fn millis(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

/// Makes the timer end after `due_in` unless it ends sooner.
fn soonest(timer: &mut Pin<Box<Sleep>>, due_in: Duration) {
    if due_in.is_zero() {
        return; // It is known now.
    }
    let other = sleep(due_in + Duration::from_millis(1));
    if other.deadline() < timer.deadline() {
        timer.set(other);
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| Err(lost()))
}

fn lost() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into()
}

/// The queues of a message, and how soon a task of each is due.
fn read(message: &[u8]) -> Vec<(QueueName, Duration)> {
    let mut from = Unpacker(message);
    let mut hints = Vec::new();
    while let Some(due_in) = from.i64().and_then(millis) {
        let Some(queue) = from.name() else { break };
        hints.push((QueueName::stored(queue), due_in));
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::Packer;

    #[test]
    fn a_message_names_queues_and_how_soon() {
        let message = Packer::default().i64(0).name("a").i64(7).name("b").done();
        let (a, b) = (QueueName::stored("a"), QueueName::stored("b"));
        let expected = [(a, Duration::ZERO), (b, Duration::from_millis(7))];
        assert_eq!(read(&message), expected);
        assert_eq!(read(&message[..message.len() - 1]), expected[..1]);
    }
}
