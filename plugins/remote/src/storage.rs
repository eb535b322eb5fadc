//! `impl Storage`: one method per operation, each over its RPC.

use crate::{
    batches::{Item, send_all},
    claims::{cancel_all, claim_all, enqueued, extended, resolve_batch},
    client::{Client, answer, request, to_its_end},
    convert,
    errors::Operation,
    hints::hints,
    pages::{PAGE_MAX, count_to_the_end, page_within, read_page},
};
use async_trait::async_trait;
use prost::Message as _;
use rdq_proto::v1;
use rdq_spi::{
    Admission, Age, Cancelled, Capabilities, ClaimParams, ClaimRef, Claimed, DlqListParams,
    DueHints, ExtendParams, Extended, Faculties, Ledger, ListParams, Locks, NewTask, Page,
    PurgeParams, QueueConfig, QueueName, QueueRecord, QueueStats, Records, RedriveParams,
    Resolution, Resolved, Result, Signals, Step, Storage, StorageError, Streams, SweepParams,
    Swept, Task, TaskId, Transactions,
};
use std::time::Duration;
use tokio::sync::watch;

/// A request asks after at most so many claims: a tenth of a server's bound.
const LIVE_CLAIMS_AT_ONCE: usize = 1_000;
/// Any queue will do to see whether the storage behind the server answers.
const PING_QUEUE: &str = "ping";

/// Tasks at another server.
#[derive(Debug)]
pub struct RemoteStorage {
    client: Client,
    capabilities: Capabilities,
    faculties: Faculties,
    closed: watch::Sender<bool>,
}

impl RemoteStorage {
    /// Connects to the server at `http://HOST:PORT`. One that does not answer is `Unavailable`; one
    /// that speaks another major version of the contract, and a URL of another kind, is `Refused`.
    pub async fn connect(url: &str) -> Result<Self> {
        let (client, capabilities, faculties) = Client::connect(url).await?;
        Ok(Self { client, capabilities, faculties, closed: watch::Sender::new(false) })
    }

    /// The connection, unless the handle is closed.
    pub(crate) fn client(&self) -> Result<Client> {
        if *self.closed.borrow() { Err(StorageError::Closed) } else { Ok(self.client.clone()) }
    }

    /// Which faculties the server has.
    pub(crate) fn faculties(&self) -> Faculties {
        self.faculties
    }

    /// Turns true when the handle is closed.
    pub(crate) fn closed(&self) -> &watch::Sender<bool> {
        &self.closed
    }

    async fn list_all_queues(
        &self,
        operation: Operation,
        mut take: impl FnMut(v1::Queue) -> bool + Send,
    ) -> Result<()> {
        let client = self.client()?;
        let mut page_token = String::new();
        loop {
            let page_size = i32::try_from(PAGE_MAX).ok();
            let page = v1::ListQueuesRequest { page_size, page_token };
            let mut queues = client.queues.clone();
            let page = answer(async move { queues.list_queues(request(page)).await }).await;
            let page = page.map_err(|failure| failure.error(operation, None))?;
            for queue in page.queues {
                if !take(queue) {
                    return Ok(());
                }
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(());
            }
        }
    }
}

#[async_trait]
impl Storage for RemoteStorage {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn ping(&self) -> Result<()> {
        let ping = Operation::reading("ping");
        let mut client = self.client()?;
        let stats = v1::StatsRequest { queues: vec![PING_QUEUE.to_owned()], outboxes: Vec::new() };
        let stats = answer(async move { client.tasks.stats(request(stats)).await }).await;
        stats.map(drop).map_err(|failure| failure.error(ping, None))
    }

    async fn close(&self) {
        self.closed.send_replace(true);
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        let enqueue = Operation::changing("enqueue");
        let client = self.client()?;
        let items = tasks
            .into_iter()
            .map(|new| Item { task: new.id.clone(), message: convert::new_task(new) });
        let send = |tasks| {
            let mut client = client.clone();
            async move {
                let batch = request(v1::EnqueueBatchRequest { tasks });
                let results =
                    answer(async move { client.tasks.enqueue_batch(batch).await }).await?.results;
                Ok(results.into_iter().map(enqueued).collect())
            }
        };
        let answers = send_all(enqueue, items.collect(), bytes::Bytes::len, send).await;
        Ok(read_each(enqueue, answers, |response| convert::admission(&response)))
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        Ok(claim_all(&self.client()?, &claims).await)
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        let extend = Operation::changing("extend_leases");
        let client = self.client()?;
        let items = leases.into_iter().map(|params| Item {
            task: params.claim.task_id.clone(),
            message: Ok(convert::extend_request(params)),
        });
        let send = |leases| {
            let mut client = client.clone();
            async move {
                let batch = request(v1::ExtendLeasesRequest { leases });
                let results =
                    answer(async move { client.tasks.extend_leases(batch).await }).await?.results;
                Ok(results.into_iter().map(extended).collect())
            }
        };
        let size = v1::ExtendLeaseRequest::encoded_len;
        let answers = send_all(extend, items.collect(), size, send).await;
        Ok(read_each(extend, answers, |response| convert::extended(&response)))
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        let resolve = Operation::changing("resolve");
        let client = self.client()?;
        let items = resolutions.into_iter().map(|resolution| Item {
            task: resolution.claim.task_id.clone(),
            message: convert::resolution(resolution),
        });
        let send = |resolutions| resolve_batch(client.clone(), resolutions);
        let size = v1::Resolution::encoded_len;
        let answers = send_all(resolve, items.collect(), size, send).await;
        Ok(read_each(resolve, answers, |response| convert::resolved(&response)))
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        let live_claims = Operation::reading("live_claims");
        let client = self.client()?;
        let mut live = Vec::with_capacity(claims.len());
        for claims in claims.chunks(LIVE_CLAIMS_AT_ONCE) {
            let asked = request(convert::live_claims_request(claims));
            let mut tasks = client.tasks.clone();
            let answer = answer(async move { tasks.live_claims(asked).await }).await;
            let answer = answer.map_err(|failure| failure.error(live_claims, None))?.claims;
            if answer.len() != claims.len() {
                return Err(live_claims.broken("does not have an entry for each claim"));
            }
            live.extend(answer.iter().map(convert::live_claim));
        }
        Ok(live)
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        Ok(cancel_all(&self.client()?, tasks).await)
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        let get = Operation::reading("get");
        let mut client = self.client()?;
        let asked = request(v1::GetRequest { id: task.as_str().to_owned(), outbox: None });
        let response = answer(async move { client.tasks.get(asked).await }).await;
        let response = response.map_err(|failure| failure.error(get, Some(&task)))?;
        convert::task(&response.task).map_err(|broken| get.broken(broken))
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        let list = Operation::reading("list");
        let client = self.client()?;
        let page = |page_size| {
            let (mut client, asked) = (client.clone(), convert::list_request(&params, page_size));
            async move {
                let asked = request(asked?);
                let response = answer(async move { client.tasks.list(asked).await }).await;
                let response = response.map_err(|failure| failure.error(list, None))?;
                read_page(list, &response.tasks, response.next_page_token)
            }
        };
        page_within(params.limit, params.bytes_max, page).await
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        let list = Operation::reading("dlq_list");
        let client = self.client()?;
        let page = |page_size| {
            let asked = convert::dlq_list_request(&params, page_size);
            let mut client = client.clone();
            async move {
                let asked = request(asked?);
                let response = answer(async move { client.tasks.dlq_list(asked).await }).await;
                let response = response.map_err(|failure| failure.error(list, None))?;
                read_page(list, &response.tasks, response.next_page_token)
            }
        };
        page_within(params.limit, params.bytes_max, page).await
    }

    async fn redrive(&self, params: RedriveParams) -> Result<Step> {
        let redrive = Operation { name: "redrive", changes: !params.dry_run };
        if !params.delay.is_zero() || params.position.is_some() {
            // One call is the whole selection: there is no later step that a delay could serve.
            return Err(StorageError::Unsupported { operation: "a later step of a redrive" });
        }
        let mut client = self.client()?;
        let asked = v1::RedriveRequest {
            queue: params.queue.as_str().to_owned(),
            selector: Some(convert::selector(&params.selection)),
            dry_run: params.dry_run,
            spread_over: None,
            rate_per_second: convert::pace(params.spacing),
            outbox: None,
        };
        to_its_end(async move {
            let open = client.tasks.redrive(asked);
            count_to_the_end(redrive, open, |message| (message.count, message.done)).await
        })
        .await
    }

    async fn purge(&self, params: PurgeParams) -> Result<Step> {
        let purge = Operation { name: "purge", changes: !params.dry_run };
        if params.position.is_some() {
            return Err(StorageError::Unsupported { operation: "a later step of a purge" });
        }
        let mut client = self.client()?;
        let asked = v1::PurgeRequest {
            queue: params.queue.as_str().to_owned(),
            selector: Some(convert::selector(&params.selection)),
            dry_run: params.dry_run,
            outbox: None,
        };
        to_its_end(async move {
            let open = client.tasks.purge(asked);
            count_to_the_end(purge, open, |message| (message.count, message.done)).await
        })
        .await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        let operation = Operation::reading("stats");
        let mut client = self.client()?;
        let asked =
            v1::StatsRequest { queues: vec![queue.as_str().to_owned()], outboxes: Vec::new() };
        let response = answer(async move { client.tasks.stats(request(asked)).await }).await;
        let response = response.map_err(|failure| failure.error(operation, None))?;
        let stats = response.queues.first().map(convert::stats);
        stats.ok_or_else(|| operation.broken("does not have the queue"))
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        let sweep = Operation::changing("sweep");
        let client = self.client()?;
        let mut swept = Swept::default();
        if let Some(Age::Before(older_than)) = params.succeeded_older_than {
            let asked = v1::PurgeSucceededRequest {
                queue: params.queue.as_str().to_owned(),
                older_than: Some(rdq_proto::time::timestamp(older_than.millis())),
            };
            let mut tasks = client.tasks.clone();
            let purged = answer(async move { tasks.purge_succeeded(request(asked)).await }).await;
            let purged = purged.map_err(|failure| failure.error(sweep, None))?;
            swept.removed += u64::try_from(purged.purged).unwrap_or(0);
            swept.more |= purged.more;
        }
        let removes = matches!(params.succeeded_older_than, Some(Age::LongerThan(_)))
            || params.cancelled_older_than.is_some()
            || params.dead.is_some();
        if params.expire {
            let asked = v1::SweepExpiredRequest { queue: params.queue.as_str().to_owned() };
            let mut tasks = client.tasks.clone();
            let step = answer(async move { tasks.sweep_expired(request(asked)).await }).await;
            let step = step.map_err(|failure| failure.error(sweep, None))?;
            swept.expired += u64::try_from(step.expired).unwrap_or(0);
            swept.removed += u64::try_from(step.removed).unwrap_or(0);
            swept.more |= step.more;
        } else if removes {
            return Err(StorageError::Unsupported { operation: "a sweep that expires nothing" });
        }
        Ok(swept)
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        let mut names = Vec::new();
        self.list_all_queues(Operation::reading("queue_names"), |queue| {
            let name = QueueName::stored(queue.name);
            if after.as_ref().is_none_or(|after| name > *after) && names.len() < limit as usize {
                names.push(name);
            }
            names.len() < limit as usize
        })
        .await?;
        Ok(names)
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        let put_queue = Operation::changing("put_queue");
        let mut client = self.client()?;
        let config = Some(convert::config_on_wire(config));
        let asked = v1::PutQueueRequest { name: queue.as_str().to_owned(), config };
        let response = answer(async move { client.queues.put_queue(request(asked)).await }).await;
        let response = response.map_err(|failure| failure.error(put_queue, None))?;
        let stored = response.queue.map(convert::queue_record).transpose();
        let stored = stored.map_err(|broken| put_queue.broken(broken))?.flatten();
        stored.ok_or_else(|| put_queue.broken("does not have what was stored"))
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        let operation = Operation::reading("queue_records");
        let mut records = Vec::new();
        self.list_all_queues(operation, |queue| {
            records.push(convert::queue_record(queue));
            true
        })
        .await?;
        let stored = records.into_iter().filter_map(Result::transpose);
        stored.collect::<Result<_, _>>().map_err(|broken| operation.broken(broken))
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        let delete_queue = Operation::changing("delete_queue");
        let mut client = self.client()?;
        let asked = v1::DeleteQueueRequest { name: queue.as_str().to_owned() };
        let response =
            answer(async move { client.queues.delete_queue(request(asked)).await }).await;
        let response = response.map_err(|failure| failure.error(delete_queue, None))?;
        Ok(response.existed)
    }

    fn signals(&self) -> Option<&dyn Signals> {
        self.faculties.signals.then_some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        self.faculties.streams.then_some(self)
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.faculties.locks.then_some(self)
    }

    fn records(&self) -> Option<&dyn Records> {
        self.faculties.records.then_some(self)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.faculties.transactions.then_some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        self.faculties.ledger.then_some(self)
    }

    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        let wait_due = Operation::reading("wait_due");
        let hints = hints(&self.client()?, &queues, &self.closed).await;
        hints.map_err(|failure| failure.error(wait_due, None))
    }
}

/// Reads the answer of each item.
fn read_each<A, B>(
    operation: Operation,
    answers: Vec<Result<A>>,
    read: impl Fn(A) -> Result<B, convert::Broken>,
) -> Vec<Result<B>> {
    let read = |answer: Result<A>| read(answer?).map_err(|broken| operation.broken(broken));
    answers.into_iter().map(read).collect()
}
