//! Administration of queue configurations.

use crate::{
    Engine, EngineError, configuration, core::Core, limits::EXTENT_MAX, outbox_name,
    page_token::Binding, queues::Snapshot,
};
use rdq_spi::{QueueConfig, QueueName, Storage, Timestamp};
use std::{collections::BTreeSet, sync::Arc};

/// A page of queues.
#[derive(Debug, Clone)]
pub struct ListQueuesRequest {
    /// Cut to 1,000; 0 answers the empty page.
    pub page_size: u32,
    /// The page before's; the first page if empty.
    pub page_token: String,
    /// Who asks: a page token is good for nobody else.
    pub subject: String,
}

/// A page of queues.
#[derive(Debug, Clone, Default)]
pub struct QueuePage {
    /// The queues, by name.
    pub queues: Vec<QueueView>,
    /// For the next page; empty on the last.
    pub next_page_token: String,
}

/// A queue's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueView {
    /// The queue.
    pub queue: QueueName,
    /// What is stored, if anything is.
    pub stored: Option<QueueConfig>,
    /// What is in force: every key is set that has a default.
    pub effective: QueueConfig,
    /// When it was stored, by the storage's clock.
    pub updated_at: Option<Timestamp>,
}

impl QueueView {
    fn of(snapshot: &Snapshot, queue: QueueName) -> Self {
        let record = snapshot.records.get(&queue);
        Self {
            stored: record.map(|record| record.config.clone()),
            effective: snapshot.effective(&queue).config.clone(),
            updated_at: record.map(|record| record.updated_at),
            queue,
        }
    }
}

impl Engine {
    /// Stores a configuration in place of what was stored.
    pub async fn put_queue(
        &self,
        queue: QueueName,
        config: QueueConfig,
    ) -> Result<QueueView, EngineError> {
        configuration::check(&config)?;
        self.core.store_queue(queue, move |_| config).await
    }

    /// Reads a configuration, stored and effective.
    pub async fn get_queue(&self, queue: QueueName) -> Result<QueueView, EngineError> {
        let snapshot = self.core.fresh_queues().await?;
        if self.core.queues.require_declared && !snapshot.is_declared(&queue) {
            return Err(EngineError::QueueNotFound { queue });
        }
        Ok(QueueView::of(&snapshot, queue))
    }

    /// Stops claims from a queue, or lets them go on; the rest of what is stored stays.
    pub async fn pause_queue(
        &self,
        queue: QueueName,
        paused: bool,
    ) -> Result<QueueView, EngineError> {
        if self.core.queues.require_declared {
            self.get_queue(queue.clone()).await?;
        }
        let pause = move |stored| QueueConfig { paused: Some(paused), ..stored };
        self.core.store_queue(queue, pause).await
    }

    /// Removes a stored configuration, only of a queue without tasks; says whether there was one.
    pub async fn delete_queue(&self, queue: QueueName) -> Result<bool, EngineError> {
        let core = Arc::clone(&self.core);
        let delete = async move {
            let existed = core.storage.delete_queue(queue).await?;
            core.queues.refresh(&*core.storage).await?;
            Ok(existed)
        };
        self.core.run("delete_queue", delete).await?
    }

    /// Lists the queues that are configured or hold tasks, by name.
    pub async fn list_queues(&self, request: ListQueuesRequest) -> Result<QueuePage, EngineError> {
        let ListQueuesRequest { page_size, page_token, subject } = request;
        let binding = Binding::of(&[subject.as_bytes(), b"queues"]);
        let after = match self.core.page_tokens.read(&binding, &page_token)? {
            Some(name) => {
                let name = String::from_utf8(name).map_err(|_| EngineError::InvalidCursor)?;
                Some(QueueName::stored(name))
            }
            None => None,
        };
        if page_size == 0 {
            return Ok(QueuePage::default());
        }
        let limit = page_size.min(EXTENT_MAX);
        let snapshot = self.core.fresh_queues().await?;
        let from = after.clone();
        let names = self
            .core
            .call("queue_names", |storage| async move {
                // One more, to know whether another page follows.
                callers_queues(&*storage, from, limit + 1).await
            })
            .await?;
        let in_file = self.core.queues.file.queues.keys();
        let mut names: BTreeSet<_> = names.into_iter().chain(in_file.cloned()).collect();
        if let Some(after) = &after {
            names.retain(|name| name > after);
        }
        let more = names.len() > limit as usize;
        let names: Vec<_> = names.into_iter().take(limit as usize).collect();
        let last = names.last().filter(|_| more);
        let next = last.map(|last| self.core.page_tokens.mint(&binding, last.as_str().as_bytes()));
        let queues = names.into_iter().map(|name| QueueView::of(&snapshot, name)).collect();
        Ok(QueuePage { queues, next_page_token: next.unwrap_or_default() })
    }
}

/// The names of queues, without those of rdq itself.
pub(crate) async fn callers_queues(
    storage: &dyn Storage,
    after: Option<QueueName>,
    limit: u32,
) -> rdq_spi::Result<Vec<QueueName>> {
    let mut names = storage.queue_names(after, limit).await?;
    let full = names.len() >= limit as usize;
    let hidden = names.iter().any(outbox_name::is_internal);
    names.retain(|queue| !outbox_name::is_internal(queue));
    if full && hidden {
        // All of rdq's own stand together.
        let rest = limit - u32::try_from(names.len()).unwrap_or(limit);
        let beyond = names.last().filter(|last| **last > outbox_name::after_internal());
        let after = beyond.cloned().unwrap_or_else(outbox_name::after_internal);
        names.extend(storage.queue_names(Some(after), rest).await?);
    }
    Ok(names)
}

impl Core {
    /// What is stored at this moment, not what was a second ago.
    async fn fresh_queues(self: &Arc<Self>) -> Result<Arc<Snapshot>, EngineError> {
        let core = Arc::clone(self);
        let refresh = async move { core.queues.refresh(&*core.storage).await };
        self.run("queue_records", refresh).await??;
        Ok(self.queues.snapshot())
    }

    /// Stores what `change` makes of the stored configuration, and acts on it at once.
    async fn store_queue(
        self: &Arc<Self>,
        queue: QueueName,
        change: impl FnOnce(QueueConfig) -> QueueConfig + Send + 'static,
    ) -> Result<QueueView, EngineError> {
        let core = Arc::clone(self);
        let store = async move {
            let _turn = core.queues.changing.lock().await;
            core.queues.refresh(&*core.storage).await?;
            let stored = core.queues.snapshot().records.get(&queue).cloned();
            let config = change(stored.map(|record| record.config).unwrap_or_default());
            core.storage.put_queue(queue.clone(), config).await?;
            core.queues.refresh(&*core.storage).await?;
            Ok(QueueView::of(&core.queues.snapshot(), queue))
        };
        self.run("put_queue", store).await?
    }
}
