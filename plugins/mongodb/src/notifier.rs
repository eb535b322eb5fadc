//! Tells other servers what is due, after the write and beside it, by small documents that they
//! watch. What is told at once is one command.

use crate::{database::Db, errors::Step};
use mongodb::bson::{Document, doc};
use rdq_spi::QueueName;
use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// What is due later is found in time by whoever looks once a second.
pub(crate) const WORTH_TELLING: Duration = Duration::from_millis(1_500);
/// Between two commands, so that many calls share one.
const PAUSE: Duration = Duration::from_millis(10);
/// The collection that is watched: a document for each queue that somebody told of.
pub(crate) const COLLECTION: &str = "wakeups";

/// What is to be told. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    db: Db,
    /// Tells this handle's messages from others'.
    sender: i64,
    soonest: Mutex<HashMap<QueueName, Duration>>,
    more: Notify,
}

impl Notifier {
    /// Tells nothing until it runs.
    pub(crate) fn new(db: Db) -> Self {
        let sender = RandomState::new().build_hasher().finish().cast_signed();
        let (soonest, more) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { db, sender, soonest, more }))
    }

    /// Tells others that something of the queue is due then.
    pub(crate) fn tell(&self, queue: &QueueName, due_in: Duration) {
        let mut waiting = self.0.soonest.lock().unwrap_or_else(PoisonError::into_inner);
        let soonest = waiting.entry(queue.clone()).or_insert(due_in);
        *soonest = due_in.min(*soonest);
        drop(waiting);
        self.0.more.notify_one();
    }

    /// Sends what there is to tell, for ever.
    pub(crate) async fn run(self) {
        // No two documents are the same, so that each is a change.
        let mut number = 0;
        loop {
            self.0.more.notified().await;
            let told =
                std::mem::take(&mut *self.0.soonest.lock().unwrap_or_else(PoisonError::into_inner));
            number += 1;
            if let Err(failure) = self.send(&told, number).await {
                // Others look once a second.
                tracing::debug!(?failure, "other servers were not told what is due");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn send(&self, told: &HashMap<QueueName, Duration>, number: i64) -> Step<()> {
        let told: Vec<_> = told.iter().collect();
        for part in told.chunks(1_000) {
            let updates: Vec<_> = part
                .iter()
                .map(|(queue, due_in)| {
                    let due_in = i64::try_from(due_in.as_millis()).unwrap_or(i64::MAX);
                    let sender = self.0.sender;
                    let told = doc! { "sender": sender, "number": number, "due_in": due_in };
                    doc! { "q": { "_id": queue.as_str() }, "u": told, "upsert": true }
                })
                .collect();
            let command = doc! { "update": COLLECTION, "updates": updates, "ordered": false };
            self.0.db.write_ahead(command).await?;
        }
        Ok(())
    }

    /// What a document of another handle tells.
    pub(crate) fn read(&self, told: &Document) -> Option<(QueueName, Duration)> {
        if told.get_i64("sender").ok()? == self.0.sender {
            return None;
        }
        let due_in = u64::try_from(told.get_i64("due_in").ok()?).ok()?;
        Some((QueueName::stored(told.get_str("_id").ok()?), Duration::from_millis(due_in)))
    }
}
