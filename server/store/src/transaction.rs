//! Transactions in process.

use crate::{
    EnqueueOpts, Job, QueueOpts, Result, StoreError, StreamEvent, encode_payload, error::named,
    outbox, queue, record, stream,
};
use rdq_engine::{OpenTransaction, OutboxName, TransactionOperation};
use rdq_spi::{
    Applied, ChannelName, ConsumerName, QueueName, ReadFrom, SaveOffset, StreamName, TaskId,
};
use serde::Serialize;
use std::time::Duration;

/// A transaction: what it writes happens with its commit, all of it, or never. Its reads see its own
/// writes; nobody else does before. Dropped, it is rolled back.
#[derive(Debug)]
#[must_use = "dropping it rolls it back"]
pub struct TxHandle {
    pub(crate) open: OpenTransaction,
}

impl TxHandle {
    async fn apply(&mut self, operation: TransactionOperation) -> Result<Applied> {
        let applied = self.open.apply(vec![operation]).await?;
        applied.into_iter().next().ok_or(StoreError::Contention)
    }

    /// Enqueues a task with the options of a queue that nobody opened, and answers its id.
    pub async fn enqueue_tx<T: Serialize + ?Sized>(
        &mut self,
        queue: &str,
        opts: EnqueueOpts,
        payload: &T,
    ) -> Result<String> {
        let name = named("queue", QueueName::new(queue))?;
        let payload = encode_payload(payload)?;
        let task = queue::submission(&name, &QueueOpts::default(), opts, &payload)?;
        let id = task.task.id.to_string();
        self.apply(TransactionOperation::Enqueue(task)).await?;
        Ok(id)
    }

    /// Appends an event, and answers its offset.
    pub async fn publish_tx<T: Serialize + ?Sized>(
        &mut self,
        stream: &str,
        payload: &T,
    ) -> Result<i64> {
        self.publish(stream, None, payload).await
    }

    /// The same with a key, which must not be empty.
    pub async fn publish_with_key_tx<T: Serialize + ?Sized>(
        &mut self,
        stream: &str,
        key: &str,
        payload: &T,
    ) -> Result<i64> {
        self.publish(stream, Some(key), payload).await
    }

    async fn publish<T: Serialize + ?Sized>(
        &mut self,
        stream: &str,
        key: Option<&str>,
        payload: &T,
    ) -> Result<i64> {
        let name = named("stream", StreamName::new(stream))?;
        let event = stream::event(&name, key, payload)?;
        match self.apply(TransactionOperation::Publish(event)).await? {
            Applied::Published(offset) => Ok(offset),
            // The engine answers each operation in its own kind.
            _ => Err(StoreError::Contention),
        }
    }

    /// Wakes whoever listens to the channel, once this is committed.
    pub async fn notify_tx<T: Serialize + ?Sized>(
        &mut self,
        channel: &str,
        payload: &T,
    ) -> Result<()> {
        let channel = named("channel", ChannelName::new(channel))?;
        let payload_bytes = encode_payload(payload)?.len();
        self.apply(TransactionOperation::Notify { channel, payload_bytes }).await.map(drop)
    }

    /// Saves what a consumer has read up to.
    pub async fn save_offset_tx(
        &mut self,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> Result<()> {
        let stream = named("stream", StreamName::new(stream))?;
        let consumer = named("consumer", ConsumerName::new(consumer))?;
        let save = SaveOffset { stream, consumer, offset };
        self.apply(TransactionOperation::SaveOffset(save)).await.map(drop)
    }

    /// Enqueues a message of an outbox, and answers its id.
    pub async fn outbox_enqueue_tx<T: Serialize + ?Sized>(
        &mut self,
        outbox: &str,
        delay: Duration,
        payload: &T,
    ) -> Result<String> {
        let name = OutboxName::new(named("outbox", QueueName::new(outbox))?);
        let message = outbox::message(&name, delay, &encode_payload(payload)?);
        let id = message.id.to_string();
        self.apply(TransactionOperation::EnqueueMessage(message)).await?;
        Ok(id)
    }

    /// Sets a record that is at this revision, 0 if it does not exist; answers the new revision.
    pub async fn compare_and_set_tx<T: Serialize + ?Sized>(
        &mut self,
        key: &str,
        value: &T,
        expected_revision: i64,
    ) -> Result<i64> {
        let change = record::changed(key, Some(encode_payload(value)?), expected_revision)?;
        match self.apply(TransactionOperation::ChangeRecord(change)).await? {
            Applied::Recorded(revision) => Ok(revision),
            _ => Err(StoreError::Contention),
        }
    }

    /// Reads a task of a queue.
    pub async fn get_job_tx(&mut self, queue: &str, id: &str) -> Result<Option<Job>> {
        let queue = named("queue", QueueName::new(queue))?;
        let id = named("id", TaskId::new(id))?;
        match self.open.get(id, None).await {
            Ok(task) if task.queue == queue => Ok(Some(Job::of(task))),
            Ok(_) => Ok(None),
            Err(error) if queue::is_not_found(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What a consumer saved; 0 if nothing.
    pub async fn get_offset_tx(&mut self, stream: &str, consumer: &str) -> Result<i64> {
        let stream = named("stream", StreamName::new(stream))?;
        let consumer = named("consumer", ConsumerName::new(consumer))?;
        Ok(self.open.saved_offset(stream, consumer).await?)
    }

    /// Reads events after an offset.
    pub async fn read_since_tx(
        &mut self,
        stream: &str,
        offset: i64,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        self.read(stream, ReadFrom::Offset(offset), limit).await
    }

    /// Reads events after what a consumer saved.
    pub async fn read_from_consumer_tx(
        &mut self,
        stream: &str,
        consumer: &str,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        let consumer = named("consumer", ConsumerName::new(consumer))?;
        self.read(stream, ReadFrom::Consumer(consumer), limit).await
    }

    async fn read(&mut self, stream: &str, from: ReadFrom, limit: i64) -> Result<Vec<StreamEvent>> {
        let name = named("stream", StreamName::new(stream))?;
        let read = self.open.read_stream(name.clone(), from, stream::extent(limit)).await?;
        Ok(stream::events(&name, read))
    }

    /// Makes everything happen.
    pub async fn commit(self) -> Result<()> {
        Ok(self.open.commit().await?)
    }

    /// Makes nothing happen.
    pub async fn rollback(self) -> Result<()> {
        Ok(self.open.rollback().await?)
    }
}
