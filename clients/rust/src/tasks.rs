//! The operator's calls about tasks: read, listed, cancelled and counted.

use crate::{Client, DlqFilter, Error, Page, Pages, Task, TaskStatus, view::span};
use rdq_proto::v1;
use std::time::Duration;

impl Client {
    /// Reads one task in any status, with its whole history; else `NotFound`.
    pub async fn get(&self, id: impl Into<String>) -> Result<Task, Error> {
        let message = v1::GetRequest { id: id.into(), ..v1::GetRequest::default() };
        let response = self
            .call(|mut rpc, ask| {
                let request = ask.request(message.clone());
                async move { rpc.tasks.get(request).await }
            })
            .await?;
        Task::decode(response.task)
    }

    /// Ends a task that waits or runs, for good; its handler is told. A finished task does not
    /// change.
    pub async fn cancel(&self, id: impl Into<String>) -> Result<Cancelled, Error> {
        let message = v1::CancelRequest { id: id.into() };
        let response = self
            .call(|mut rpc, ask| {
                let request = ask.request(message.clone());
                async move { rpc.tasks.cancel(request).await }
            })
            .await?;
        Ok(Cancelled { status: response.status().into(), cancelled: response.cancelled })
    }

    /// The tasks of a queue, the newest first.
    pub fn list(&self, queue: impl Into<String>) -> ListTasks {
        let request = v1::ListRequest { queue: queue.into(), ..v1::ListRequest::default() };
        ListTasks { client: self.clone(), request }
    }

    /// The dead letters of a queue, the newest first.
    pub fn dlq_list(&self, queue: impl Into<String>) -> ListDeadLetters {
        let request = v1::DlqListRequest { queue: queue.into(), ..v1::DlqListRequest::default() };
        ListDeadLetters { client: self.clone(), request }
    }

    /// Counts the tasks of these queues, up to 64, in their order; of all queues, up to 1,000, if
    /// none is named.
    pub async fn stats<Q: Into<String>>(
        &self,
        queues: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<QueueStats>, Error> {
        let queues = queues.into_iter().map(Into::into).collect();
        let message = v1::StatsRequest { queues, ..v1::StatsRequest::default() };
        let response = self
            .call(|mut rpc, ask| {
                let request = ask.request(message.clone());
                async move { rpc.tasks.stats(request).await }
            })
            .await?;
        Ok(response.queues.into_iter().map(QueueStats::from).collect())
    }
}

/// What `cancel` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled {
    /// The task's status after the call: cancelled, or what it had finished as.
    pub status: TaskStatus,
    /// Whether this call cancelled it.
    pub cancelled: bool,
}

/// Which tasks to list.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked for before `pages`"]
pub struct ListTasks {
    client: Client,
    request: v1::ListRequest,
}

impl ListTasks {
    /// Only tasks in this status.
    pub fn status(mut self, status: TaskStatus) -> Self {
        self.request.status = status.number();
        self
    }

    /// Tasks on a page, up to 1,000; 50 if not set.
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.request.page_size = Some(i32::try_from(page_size).unwrap_or(i32::MAX));
        self
    }

    /// With the history of each, stacks and details included.
    pub fn with_attempts(mut self) -> Self {
        self.request.include_attempts = true;
        self
    }

    /// The list, to take page by page or item by item.
    pub fn pages(self) -> Pages<Task> {
        Pages::new(move |page_token| {
            let Self { client, request } = self.clone();
            async move {
                let message = v1::ListRequest { page_token, ..request };
                let response = client
                    .call(|mut rpc, ask| {
                        let request = ask.request(message.clone());
                        async move { rpc.tasks.list(request).await }
                    })
                    .await?;
                Ok(Page::new(Task::decode_all(response.tasks)?, response.next_page_token))
            }
        })
    }
}

/// Which dead letters to list.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked for before `pages`"]
pub struct ListDeadLetters {
    client: Client,
    request: v1::DlqListRequest,
}

impl ListDeadLetters {
    /// Only those that match.
    pub fn filter(mut self, filter: DlqFilter) -> Self {
        self.request.filter = Some(filter.wire());
        self
    }

    /// Dead letters on a page, up to 1,000; 50 if not set.
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.request.page_size = Some(i32::try_from(page_size).unwrap_or(i32::MAX));
        self
    }

    /// With the history of each, stacks and details included.
    pub fn with_attempts(mut self) -> Self {
        self.request.include_attempts = true;
        self
    }

    /// The list, to take page by page or item by item.
    pub fn pages(self) -> Pages<Task> {
        Pages::new(move |page_token| {
            let Self { client, request } = self.clone();
            async move {
                let message = v1::DlqListRequest { page_token, ..request };
                let response = client
                    .call(|mut rpc, ask| {
                        let request = ask.request(message.clone());
                        async move { rpc.tasks.dlq_list(request).await }
                    })
                    .await?;
                Ok(Page::new(Task::decode_all(response.tasks)?, response.next_page_token))
            }
        })
    }
}

/// The tasks of one queue, counted at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// The queue.
    pub queue: String,
    /// Waiting: those that are due, and those that are due later.
    pub pending: u64,
    /// Waiting, and due.
    pub ready: u64,
    /// Waiting, and due later.
    pub delayed: u64,
    /// Claimed, those with a lapsed lease included.
    pub in_flight: u64,
    /// Claimed, with a lease that ran out and that nobody reclaimed yet.
    pub lapsed: u64,
    /// Dead letters.
    pub dlq_depth: u64,
    /// Succeeded, and kept.
    pub succeeded: u64,
    /// Cancelled, and kept.
    pub cancelled: u64,
    /// For how long the oldest due task has been due.
    pub oldest_pending_age: Option<Duration>,
}

impl From<v1::QueueStats> for QueueStats {
    fn from(stats: v1::QueueStats) -> Self {
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Self {
            queue: stats.queue,
            pending: count(stats.pending),
            ready: count(stats.ready),
            delayed: count(stats.delayed),
            in_flight: count(stats.in_flight),
            lapsed: count(stats.lapsed),
            dlq_depth: count(stats.dlq_depth),
            succeeded: count(stats.succeeded),
            cancelled: count(stats.cancelled),
            oldest_pending_age: span(stats.oldest_pending_age.as_ref()),
        }
    }
}
