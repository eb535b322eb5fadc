//! Reading tasks: one, or pages of a queue. Page tokens are signed and bound to who asks for what.

use crate::{
    Engine, EngineError, OutboxName,
    core::Core,
    limits::{ANSWER_BYTES_MAX, EXTENT_MAX},
    outbox_name::is_internal,
    page_token::Binding,
    weight,
};
use bytes::Bytes;
use rdq_spi::{
    DlqFilter, DlqListParams, ListParams, Page, Position, QueueName, Task, TaskId, TaskStatus,
    Timestamp,
};

/// Storage pages that one call reads where a filter is evaluated here.
const FILTERED_PAGES_MAX: u32 = 32;

/// A page of a queue's tasks.
#[derive(Debug, Clone)]
pub struct ListRequest {
    /// The queue.
    pub queue: QueueName,
    /// Only this status, if set.
    pub status: Option<TaskStatus>,
    /// Cut to 1,000; 0 answers the empty page.
    pub page_size: u32,
    /// The page before's; the first page if empty.
    pub page_token: String,
    /// With whole histories.
    pub include_attempts: bool,
    /// Who asks: a page token is good for nobody else.
    pub subject: String,
}

/// A page of a queue's dead letters.
#[derive(Debug, Clone)]
pub struct DlqListRequest {
    /// The queue.
    pub queue: QueueName,
    /// Which of them.
    pub filter: DlqFilter,
    /// Cut to 1,000; 0 answers the empty page.
    pub page_size: u32,
    /// The page before's; the first page if empty.
    pub page_token: String,
    /// With whole histories.
    pub include_attempts: bool,
    /// Who asks: a page token is good for nobody else.
    pub subject: String,
}

/// A page of tasks.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// The tasks; fewer than asked for may come.
    pub tasks: Vec<Task>,
    /// For the next page; empty on the last.
    pub next_page_token: String,
}

impl Engine {
    /// Reads a task with its whole history; of one too long for an answer, the oldest text is cut.
    /// A message of an outbox is found if the outbox is named.
    pub async fn get(&self, id: TaskId, outbox: Option<OutboxName>) -> Result<Task, EngineError> {
        let task = self.core.call("get", |storage| async move { storage.get(id).await }).await?;
        as_asked(task, outbox.as_ref())
    }

    /// Lists tasks by admission, newest first.
    pub async fn list(&self, request: ListRequest) -> Result<ListPage, EngineError> {
        let ListRequest { queue, status, page_size, page_token, include_attempts, subject } =
            request;
        let status_key = [status.map_or(0, |status| 1 + status as u8)];
        let binding =
            Binding::of(&[subject.as_bytes(), b"list", queue.as_str().as_bytes(), &status_key]);
        let position = self.core.position(&binding, &page_token)?;
        if page_size == 0 {
            return Ok(ListPage::default());
        }
        let params = ListParams {
            queue,
            status,
            position,
            limit: page_size.min(EXTENT_MAX),
            bytes_max: ANSWER_BYTES_MAX,
            include_attempts,
        };
        let page = self
            .core
            .fitting_page(params.limit, |limit, bytes_max| {
                let params = ListParams { limit, bytes_max, ..params.clone() };
                self.core.call("list", |storage| async move { storage.list(params).await })
            })
            .await?;
        Ok(self.core.answer_page(page, &binding))
    }

    /// Lists dead letters by their death, newest first.
    pub async fn dlq_list(&self, request: DlqListRequest) -> Result<ListPage, EngineError> {
        let DlqListRequest { queue, filter, page_size, page_token, include_attempts, subject } =
            request;
        let filter_key = fingerprint(&filter);
        let binding =
            Binding::of(&[subject.as_bytes(), b"dlq", queue.as_str().as_bytes(), &filter_key]);
        let position = self.core.position(&binding, &page_token)?;
        if page_size == 0 {
            return Ok(ListPage::default());
        }
        let params = DlqListParams {
            queue,
            filter,
            position,
            limit: page_size.min(EXTENT_MAX),
            bytes_max: ANSWER_BYTES_MAX,
            include_attempts,
        };
        let page = if self.core.capabilities.filter_pushdown || params.filter.is_empty() {
            self.core.dlq_page(params).await?
        } else {
            self.core.filtered_page(params).await?
        };
        Ok(self.core.answer_page(page, &binding))
    }
}

/// The task, if it is where it was looked for; fit for an answer.
pub(crate) fn as_asked(mut task: Task, outbox: Option<&OutboxName>) -> Result<Task, EngineError> {
    let is_there = match outbox {
        Some(outbox) => task.queue == outbox.queue(),
        None => !is_internal(&task.queue),
    };
    if !is_there {
        return Err(EngineError::not_found(task.id));
    }
    weight::fit(&mut task, ANSWER_BYTES_MAX);
    Ok(task)
}

impl Core {
    pub(crate) fn position(
        &self,
        binding: &Binding,
        page_token: &str,
    ) -> Result<Option<Position>, EngineError> {
        let position = self.page_tokens.read(binding, page_token)?;
        Ok(position.map(|position| Position(Bytes::from(position))))
    }

    fn answer_page(&self, page: Page, binding: &Binding) -> ListPage {
        let Page { mut tasks, next } = page;
        if let [task] = &mut tasks[..] {
            weight::fit(task, ANSWER_BYTES_MAX);
        }
        let next = next.map(|position| self.page_tokens.mint(binding, &position.0));
        ListPage { tasks, next_page_token: next.unwrap_or_default() }
    }

    /// Reads a page, and reads it again with fewer tasks if it turns out too large for an answer: a
    /// storage does not count what surrounds the tasks' own bytes.
    async fn fitting_page<F: Future<Output = Result<Page, EngineError>>>(
        &self,
        limit: u32,
        read: impl Fn(u32, usize) -> F,
    ) -> Result<Page, EngineError> {
        let page = read(limit, weight::storage_bytes(ANSWER_BYTES_MAX, limit)).await?;
        let fitting = weight::fitting(page.tasks.iter(), ANSWER_BYTES_MAX);
        if fitting == page.tasks.len() {
            return Ok(page);
        }
        read(u32::try_from(fitting).unwrap_or(1), ANSWER_BYTES_MAX).await
    }

    async fn dlq_page(&self, params: DlqListParams) -> Result<Page, EngineError> {
        self.fitting_page(params.limit, |limit, bytes_max| {
            let params = DlqListParams { limit, bytes_max, ..params.clone() };
            self.call("dlq_list", |storage| async move { storage.dlq_list(params).await })
        })
        .await
    }

    /// A page whose filter is evaluated here. A page of the storage is taken whole or not at all,
    /// since positions lie between them; so it may be short.
    async fn filtered_page(&self, params: DlqListParams) -> Result<Page, EngineError> {
        let DlqListParams { filter, limit: wanted, mut position, .. } = params.clone();
        let mut tasks: Vec<Task> = Vec::new();
        for _ in 0..FILTERED_PAGES_MAX {
            let limit = wanted - u32::try_from(tasks.len()).unwrap_or(wanted);
            let filter_none = DlqFilter::default();
            let page = self
                .dlq_page(DlqListParams { filter: filter_none, position, limit, ..params.clone() })
                .await?;
            position = page.next;
            tasks.extend(page.tasks.into_iter().filter(|task| matches(&filter, task)));
            let half_full = tasks.len() * 2 >= wanted as usize;
            let bytes: usize = tasks.iter().map(weight::weight).sum();
            // The next page of the storage could fill an answer by itself.
            if position.is_none() || half_full || bytes > 0 && params.include_attempts {
                break;
            }
        }
        Ok(Page { tasks, next: position })
    }
}

/// Whether a dead letter passes a filter, where the storage does not evaluate it.
pub(crate) fn matches(filter: &DlqFilter, task: &Task) -> bool {
    let DlqFilter { error_type, handler_ref, dead_from, dead_to } = filter;
    let final_error = || task.attempts.last().and_then(|attempt| attempt.error.as_ref());
    error_type
        .as_ref()
        .is_none_or(|wanted| final_error().is_some_and(|error| error.error_type == *wanted))
        && handler_ref.as_ref().is_none_or(|wanted| wanted == task.handler_ref.as_str())
        && dead_from.is_none_or(|from| task.finished_at.is_some_and(|dead| dead >= from))
        && dead_to.is_none_or(|to| task.finished_at.is_some_and(|dead| dead < to))
}

/// The filter as bytes, each of its parts apart from the others.
fn fingerprint(filter: &DlqFilter) -> Vec<u8> {
    let DlqFilter { error_type, handler_ref, dead_from, dead_to } = filter;
    let mut bytes = Vec::new();
    for text in [error_type, handler_ref] {
        bytes.push(u8::from(text.is_some()));
        let text = text.as_deref().unwrap_or("");
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    for instant in [dead_from, dead_to] {
        bytes.push(u8::from(instant.is_some()));
        bytes.extend_from_slice(&instant.map_or(0, Timestamp::millis).to_be_bytes());
    }
    bytes
}
