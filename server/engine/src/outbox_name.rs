//! Which queues are outboxes, and the policy of all of them. Pure.

use rdq_spi::{Execution, Limits, QueueConfig, QueueName, Retention, Retry};
use std::{fmt, time::Duration};

use crate::{limits::COORDINATED_BYTES_MAX, retry::RetryPolicy};

/// Queues of rdq itself: no caller names one.
const RESERVED: &str = "__rdq_";
/// A queue that is an outbox.
const PREFIX: &str = "__rdq_outbox:";
/// The handler of every message: no worker has it.
const HANDLER: &str = "__rdq_outbox";

/// How a failed delivery goes on.
pub(crate) const POLICY: RetryPolicy = RetryPolicy {
    max_attempts: 5,
    initial_backoff: Duration::from_secs(5),
    multiplier: 2.0,
    max_backoff: Duration::from_secs(600),
    jitter: 0.2,
};
/// How long a message is claimed where the claim does not say.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// How long a projected message is known.
const RETENTION: Duration = Duration::from_secs(24 * 3_600);

/// An outbox, by the name that callers know it by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxName(QueueName);

impl OutboxName {
    /// The outbox of this name, which has the grammar of a queue's.
    pub fn new(name: QueueName) -> Self {
        Self(name)
    }

    /// The queue that is this outbox.
    pub fn queue(&self) -> QueueName {
        QueueName::stored(format!("{PREFIX}{}", self.0))
    }

    /// The outbox that this queue is, if it is one.
    pub fn of_queue(queue: &QueueName) -> Option<Self> {
        queue.as_str().strip_prefix(PREFIX).map(|name| Self(QueueName::stored(name)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The handler of every outbox's messages.
    pub fn handler() -> QueueName {
        QueueName::stored(HANDLER)
    }
}

impl fmt::Display for OutboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a queue is one of rdq's own, which callers do not see.
pub(crate) fn is_internal(queue: &QueueName) -> bool {
    queue.as_str().starts_with(RESERVED)
}

/// The name that all outboxes' queues come after.
pub(crate) fn before_all() -> QueueName {
    QueueName::stored(PREFIX)
}

/// A name that is above those of all internal queues, and of none that callers may name.
pub(crate) fn after_internal() -> QueueName {
    QueueName::stored(format!("{RESERVED}{}", char::MAX))
}

/// Every outbox's configuration. No file and no stored configuration changes it: claims never end a
/// message, and its failures follow [`POLICY`].
pub(crate) fn configuration() -> QueueConfig {
    QueueConfig {
        retry: Retry { max_attempts: Some(u32::MAX), ..Retry::default() },
        execution: Execution { lease: Some(LEASE), ..Execution::default() },
        limits: Limits { max_payload_bytes: Some(COORDINATED_BYTES_MAX) },
        retention: Retention { succeeded: Some(RETENTION), cancelled: Some(RETENTION), dead: None },
        ..QueueConfig::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_is_a_queue_that_no_caller_can_name() {
        let outbox = OutboxName::new(QueueName::new("orders").unwrap());
        let queue = outbox.queue();
        assert!(is_internal(&queue) && QueueName::new(queue.as_str()).is_err());
        assert_eq!(OutboxName::of_queue(&queue), Some(outbox));
        assert_eq!(OutboxName::of_queue(&QueueName::new("orders").unwrap()), None);
        assert!(before_all() < queue && queue < after_internal());
        let crab = OutboxName::new(QueueName::new("\u{10ffff}").unwrap()).queue();
        assert!(crab < after_internal());
        for name in ["__rdq", "__rdq`", "a"] {
            let queue = QueueName::new(name).unwrap();
            assert!(!is_internal(&queue));
            assert!(queue < before_all() || queue > after_internal(), "{name}");
        }
    }
}
