//! Where measurements take place: connections, queues with random names, and their removal.

use super::BenchArgs;
use crate::{connect::Client, errors::CliError, values};
use bytes::Bytes;
use prost::Message as _;
use prost_types::Timestamp;
use rdq_proto::{
    raw,
    v1::{
        CancelRequest, ClaimDueRequest, CompleteRequest, DeleteQueueRequest, ListRequest,
        PurgeRequest, PurgeSucceededRequest, PutQueueRequest, QueueConfig, Resolution,
        ResolveBatchRequest, RetentionConfig, Selector, SweepExpiredRequest, Task, TaskStatus,
        TrimRequest, resolution::Call, selector::Selection,
    },
};
use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Mutex,
    time::Duration,
};
use tonic::{Request, Status};

/// The handler that every task of a measurement names.
const HANDLER: &str = "bench";

/// Tasks in one call of the clean-up.
const BATCH: i32 = 1000;

/// The end of the year 9999: later than any task has finished.
const FOR_EVER: Timestamp = Timestamp { seconds: 253_402_300_799, nanos: 0 };

/// Connections and queues of one run.
#[derive(Debug)]
pub(super) struct Place {
    clients: Vec<Client>,
    /// Concurrent callers.
    pub(super) callers: u32,
    /// Of each task and event.
    pub(super) payload: Bytes,
    retention: Duration,
    run: u64,
    queues: Mutex<Vec<String>>,
    streams: Mutex<Vec<String>>,
}

impl Place {
    /// For one run; at least one connection.
    pub(super) fn new(clients: Vec<Client>, args: &BenchArgs) -> Self {
        Self {
            clients,
            callers: args.callers,
            payload: vec![b'x'; args.payload_bytes].into(),
            retention: args.retention,
            run: RandomState::new().hash_one(()),
            queues: Mutex::default(),
            streams: Mutex::default(),
        }
    }

    /// The connection of the caller or stream with this number.
    pub(super) fn client(&self, number: u32) -> &Client {
        let index = usize::try_from(number).unwrap_or(0) % self.clients.len();
        &self.clients[index]
    }

    /// A name that nobody else uses.
    pub(super) fn name(&self, what: &str) -> String {
        format!("rdq-bench-{:016x}-{what}", self.run)
    }

    /// Makes a queue that nobody else uses.
    pub(super) async fn queue(&self, what: &str) -> Result<String, CliError> {
        let name = self.name(what);
        let none = Some(values::wire(Duration::ZERO));
        let retention = RetentionConfig {
            succeeded: Some(values::wire(self.retention)),
            cancelled: none,
            ..RetentionConfig::default()
        };
        let config = QueueConfig { retention: Some(retention), ..QueueConfig::default() };
        let request = PutQueueRequest { name: name.clone(), config: Some(config) };
        let client = self.client(0);
        client.queues().put_queue(client.request(request)).await?;
        self.queues.lock().expect("nobody panics with it").push(name.clone());
        Ok(name)
    }

    /// A stream that nobody else uses; it is made by what is published.
    pub(super) fn stream(&self, what: &str) -> String {
        let name = self.name(what);
        self.streams.lock().expect("nobody panics with it").push(name.clone());
        name
    }

    /// A task as the wire carries it: encoded once, sent many times.
    pub(super) fn task(&self, queue: &str) -> Bytes {
        let task = Task {
            queue: queue.to_owned(),
            handler_ref: HANDLER.to_owned(),
            payload: self.payload.clone(),
            ..Task::default()
        };
        task.encode_to_vec().into()
    }

    /// Removes the queues and all they hold, and the events; answers those it could not remove.
    pub(super) async fn clean_up(&self) -> Vec<String> {
        let queues = std::mem::take(&mut *self.queues.lock().expect("nobody panics with it"));
        let mut left = Vec::new();
        for queue in queues {
            if self.remove(&queue).await.is_err() {
                left.push(queue);
            }
        }
        let streams = std::mem::take(&mut *self.streams.lock().expect("nobody panics with it"));
        for stream in streams {
            if self.trim(&stream).await.is_err() {
                left.push(stream);
            }
        }
        left
    }

    /// Of a stream its counter stays, by contract: a few bytes.
    async fn trim(&self, stream: &str) -> Result<(), Status> {
        let client = self.client(0);
        let request = TrimRequest { stream: stream.to_owned(), horizon: i64::MAX };
        client.streams().trim(client.request(request)).await?;
        Ok(())
    }

    async fn remove(&self, queue: &str) -> Result<(), Status> {
        let client = self.client(0);
        let mut tasks = client.tasks();
        self.drain(queue).await?;
        // What a failed measurement claimed and never ended is held by nobody now.
        loop {
            let list = ListRequest {
                queue: queue.to_owned(),
                status: TaskStatus::InFlight.into(),
                page_size: Some(BATCH),
                ..ListRequest::default()
            };
            let page = tasks.list(client.request(list)).await?.into_inner();
            for task in &page.tasks {
                let id = task_id(task).unwrap_or_default();
                tasks.cancel(client.request(CancelRequest { id })).await?;
            }
            if page.tasks.is_empty() {
                break;
            }
        }
        let selector = Some(Selector { selection: Some(Selection::All(true)) });
        let purge = PurgeRequest { queue: queue.to_owned(), selector, ..PurgeRequest::default() };
        let mut stream = tasks.purge(Request::new(purge)).await?.into_inner();
        while stream.message().await?.is_some() {}
        loop {
            let purge =
                PurgeSucceededRequest { queue: queue.to_owned(), older_than: Some(FOR_EVER) };
            if !tasks.purge_succeeded(client.request(purge)).await?.into_inner().more {
                break;
            }
        }
        // Cancelled tasks are kept for no time at all, but a sweep has to come by.
        loop {
            let sweep = SweepExpiredRequest { queue: queue.to_owned() };
            if !tasks.sweep_expired(client.request(sweep)).await?.into_inner().more {
                break;
            }
        }
        let delete = DeleteQueueRequest { name: queue.to_owned() };
        client.queues().delete_queue(client.request(delete)).await?;
        Ok(())
    }

    /// Works off what nobody has claimed, in batches.
    async fn drain(&self, queue: &str) -> Result<(), Status> {
        let client = self.client(0);
        let mut tasks = client.tasks();
        loop {
            let claim = ClaimDueRequest {
                queues: vec![queue.to_owned()],
                limit: Some(BATCH),
                worker_id: "bench-clean-up".to_owned(),
                ..ClaimDueRequest::default()
            };
            let mut stream = tasks.claim_due(client.request(claim)).await?.into_inner();
            let mut resolutions = Vec::new();
            while let Some(response) = stream.message().await? {
                resolutions.extend(response.tasks.into_iter().map(|claimed| {
                    let complete = CompleteRequest {
                        id: task_id(&claimed.task).unwrap_or_default(),
                        claim_token: claimed.claim_token,
                        ..CompleteRequest::default()
                    };
                    Resolution { call: Some(Call::Complete(complete)), ..Resolution::default() }
                }));
            }
            if resolutions.is_empty() {
                return Ok(());
            }
            let resolve = ResolveBatchRequest { resolutions };
            tasks.resolve_batch(client.request(resolve)).await?;
        }
    }
}

/// The id of a task, without decoding the rest of it.
pub(super) fn task_id(task: &Bytes) -> Result<String, CliError> {
    const ID: u32 = 2; // `Task.id`
    let id = raw::fields(task.clone()).flatten().find(|field| field.number == ID);
    id.and_then(|field| field.value)
        .and_then(|id| String::from_utf8(id.into()).ok())
        .ok_or_else(|| CliError::Malformed("a task came without its id".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_without_decoding() {
        let task = Task { id: "a".into(), queue: "q".into(), ..Task::default() };
        assert_eq!(task_id(&task.encode_to_vec().into()).unwrap(), "a");
        assert!(task_id(&Bytes::new()).is_err());
    }
}
