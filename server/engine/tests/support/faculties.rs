//! The shell's faculties beside tasks: those of the storage within, with the same troubles.

use super::shell::Shell;
use async_trait::async_trait;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, ConsumerName, HeldLock, Hold, ListRecords, LockName,
    Locks, NewEvent, Operation, ReadParams, Record, RecordKey, RecordPage, Records, Rejected,
    Result, SaveOffset, Signals, Storage as _, StorageError, StreamEvent, StreamName, Streams,
    Topic, Transaction, Transactions, TrimParams, Trimmed, TryLock, Wakes,
};
use std::{sync::atomic::Ordering, time::Duration};

#[async_trait]
impl Signals for Shell {
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        self.call("notify", self.inner.signals().unwrap().notify(channels)).await
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        self.call("listen", self.inner.signals().unwrap().listen(topics)).await
    }
}

/// What a lock that is not had costs.
const JAM: Duration = Duration::from_secs(5);

#[async_trait]
impl Streams for Shell {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        self.publish_calls.fetch_add(1, Ordering::SeqCst);
        let jammed = self.jammed.lock().unwrap().clone();
        if events.iter().any(|event| Some(&event.stream) == jammed.as_ref()) {
            tokio::time::sleep(JAM).await;
            return Err(StorageError::Contention { operation: "publish" });
        }
        self.call("publish", self.inner.streams().unwrap().publish(events)).await
    }

    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        self.call("read", self.inner.streams().unwrap().read(params)).await
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        self.call("save_offsets", self.inner.streams().unwrap().save_offsets(offsets)).await
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        self.call("offset", self.inner.streams().unwrap().offset(stream, consumer)).await
    }

    async fn trim(&self, params: TrimParams) -> Result<Trimmed> {
        self.call("trim", self.inner.streams().unwrap().trim(params)).await
    }
}

#[async_trait]
impl Locks for Shell {
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>> {
        if self.lying_locks.load(Ordering::SeqCst) {
            let TryLock { owner, ttl, .. } = params;
            let expires_at = self.inner.now().await?.after(ttl);
            return Ok(Some(HeldLock { owner, generation: 1, expires_at, remaining: ttl }));
        }
        self.call("try_lock", self.inner.locks().unwrap().try_lock(params)).await
    }

    async fn renew_lock(&self, hold: Hold, ttl: Duration) -> Result<Option<HeldLock>> {
        if self.lying_locks.load(Ordering::SeqCst) {
            return self.try_lock(TryLock { name: hold.name, owner: hold.owner, ttl }).await;
        }
        self.call("renew_lock", self.inner.locks().unwrap().renew_lock(hold, ttl)).await
    }

    async fn release_lock(&self, hold: Hold) -> Result<bool> {
        self.call("release_lock", self.inner.locks().unwrap().release_lock(hold)).await
    }

    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>> {
        self.call("get_lock", self.inner.locks().unwrap().get_lock(name)).await
    }
}

#[async_trait]
impl Records for Shell {
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>> {
        self.call("get_record", self.inner.records().unwrap().get_record(key)).await
    }

    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>> {
        let records = self.inner.records().unwrap();
        self.call("compare_and_set", records.compare_and_set(changes)).await
    }

    async fn list_records(&self, params: ListRecords) -> Result<RecordPage> {
        self.call("list_records", self.inner.records().unwrap().list_records(params)).await
    }
}

#[async_trait]
impl Transactions for Shell {
    async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        let transactions = self.inner.transactions().unwrap();
        // A refusal of the storage within is no trouble of this shell's making.
        let commit = async { Ok::<_, StorageError>(transactions.commit(operations).await) };
        self.call("commit", commit).await?
    }

    fn interactive(&self) -> bool {
        true
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        self.call("begin", self.inner.transactions().unwrap().begin()).await
    }
}
