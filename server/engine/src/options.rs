//! What a server decides before it starts. Reading files and flags is the daemon's matter.

use rdq_spi::{QueueConfig, QueueName};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// The queues as a configuration file declares them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueFile {
    /// For every queue, where neither the store nor the file says more.
    pub defaults: QueueConfig,
    /// Queue by queue. What is stored wins, key by key.
    pub queues: BTreeMap<QueueName, QueueConfig>,
}

/// How an engine runs.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Queues declared by file.
    pub file: QueueFile,
    /// Refuse queues that nobody declared.
    pub require_declared_queues: bool,
    /// Signs page tokens, at least 16 bytes; if unset, a key that the servers share in the storage.
    pub page_token_key: Option<Vec<u8>>,
    /// How often to look for due tasks, only where the storage gives no hints.
    pub poll_interval: Duration,
    /// How often finished tasks are swept.
    pub maintenance_interval: Duration,
    /// How often stored queue configurations are read.
    pub config_refresh: Duration,
    /// After how much silence a stream carries an empty item.
    pub keep_alive: Duration,
    /// How long a drain lets work streams send what they finished.
    pub drain_grace: Duration,
    /// What bounds interactive transactions.
    pub transactions: TransactionLimits,
}

/// What bounds interactive transactions.
#[derive(Debug, Clone, Copy)]
pub struct TransactionLimits {
    /// One that is asked nothing for so long is rolled back.
    pub idle: Duration,
    /// One that is open for so long is rolled back.
    pub total: Duration,
    /// So many of one caller are open at once.
    pub per_subject: usize,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        Self { idle: Duration::from_secs(10), total: Duration::from_secs(60), per_subject: 16 }
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            file: QueueFile::default(),
            require_declared_queues: false,
            page_token_key: None,
            poll_interval: Duration::from_millis(250),
            maintenance_interval: Duration::from_secs(60),
            config_refresh: Duration::from_secs(1),
            keep_alive: Duration::from_secs(15),
            drain_grace: Duration::from_secs(5),
            transactions: TransactionLimits::default(),
        }
    }
}
