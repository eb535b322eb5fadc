//! The engine: how it starts, and how it ends. What it does stands in the files of the calls.

use crate::{
    ClaimedTask, EngineError, EngineOptions, configuration,
    core::Core,
    faculties::finds_holders,
    keeper,
    page_token::{KEY_BYTES_MIN, PageTokens},
    sweeping,
};
use rdq_spi::{Capabilities, Storage, StorageError};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::DropGuard;

const SHARED_KEY_NAME: &str = "page_token_key";
const SHARED_KEY_BYTES: usize = 32;

/// Everything between callers and a storage. Clones are handles of one engine; when the last is
/// dropped, its streams end as they do in [`Engine::drain`], but nobody waits for it.
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
    _stop: Arc<DropGuard>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("storage", &self.core.storage).finish_non_exhaustive()
    }
}

impl Engine {
    /// Checks the options, reads the stored queue configurations and starts what runs by itself.
    pub async fn start(
        storage: Arc<dyn Storage>,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        check(&options)?;
        let key = match options.page_token_key.clone() {
            Some(key) => key,
            None => shared_key(&*storage).await?,
        };
        let has_outboxes = finds_holders(&*storage).await?;
        let core = Arc::new(Core::new(storage, options, PageTokens::new(key), has_outboxes));
        core.queues.refresh(&*core.storage).await?;
        core.tasks.spawn(Arc::clone(&core).keep_queues_fresh());
        core.tasks.spawn(sweeping::maintain(Arc::clone(&core)));
        core.tasks.spawn(keeper::keep(Arc::clone(&core)));
        core.tasks.spawn(Arc::clone(&core).close_feeds());
        let stop = Arc::new(core.closing.clone().drop_guard());
        Ok(Self { core, _stop: stop })
    }

    /// What the storage offers beyond the contract.
    pub fn capabilities(&self) -> Capabilities {
        self.core.capabilities
    }

    /// Whether the storage answers.
    pub async fn ping(&self) -> Result<(), EngineError> {
        self.core.call("ping", |storage| async move { storage.ping().await }).await
    }

    /// Gives claims back unspent that nobody received. [`Engine::drain`] waits for that.
    pub fn give_back(&self, claims: Vec<ClaimedTask>) {
        self.core.give_back(claims);
    }

    /// Has subscriptions and work streams end, as [`Engine::drain`] does, which is still to come.
    pub fn end_streams(&self) {
        self.core.closing.cancel();
    }

    /// Stops claiming, ends subscriptions and work streams (these hear of it first, and have the
    /// drain's grace to send what they finished), releases what was claimed and not delivered, waits for
    /// the storage calls under way and closes the storage. Calls after it are refused.
    pub async fn drain(&self) {
        self.core.closing.cancel();
        self.core.tasks.close();
        self.core.tasks.wait().await;
        self.core.storage.close().await;
    }
}

fn check(options: &EngineOptions) -> Result<(), EngineError> {
    for (field, interval) in [
        ("poll_interval", options.poll_interval),
        ("maintenance_interval", options.maintenance_interval),
        ("config_refresh", options.config_refresh),
        ("keep_alive", options.keep_alive),
        ("transactions.idle", options.transactions.idle),
        ("transactions.total", options.transactions.total),
    ] {
        if interval < Duration::from_millis(1) {
            return Err(EngineError::invalid(field, "must be at least a millisecond"));
        }
    }
    if options.page_token_key.as_ref().is_some_and(|key| key.len() < KEY_BYTES_MIN) {
        let message = format!("must have at least {KEY_BYTES_MIN} bytes");
        return Err(EngineError::invalid("page_token_key", message));
    }
    configuration::check(&options.file.defaults)?;
    for (queue, config) in &options.file.queues {
        configuration::check(config).map_err(|error| match error {
            EngineError::InvalidArgument { field, message } => EngineError::InvalidArgument {
                field,
                message: format!("of queue {queue:?} {message}"),
            },
            error => error,
        })?;
    }
    Ok(())
}

/// The key that every server on this storage signs page tokens with.
async fn shared_key(storage: &dyn Storage) -> Result<Vec<u8>, EngineError> {
    let mut candidate = vec![0; SHARED_KEY_BYTES];
    getrandom::fill(&mut candidate)
        .map_err(|error| EngineError::internal("page_token_key", error.to_string()))?;
    match storage.shared_secret(SHARED_KEY_NAME, candidate.clone()).await {
        Err(StorageError::Unsupported { .. }) => {
            tracing::warn!(
                "this storage keeps no shared key: page tokens are good on this server only"
            );
            Ok(candidate)
        }
        answer => Ok(answer?),
    }
}
