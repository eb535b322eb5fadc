//! Queue configuration, as it is stored, and queue counts. A plugin interprets none of it.

use crate::{QueueName, Timestamp, human_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A queue's configuration; what is unset is inherited. Its names are those of the YAML file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// When and how often a failed task runs again.
    pub retry: Retry,
    /// Which failures may run again.
    pub classification: Classification,
    /// How long a worker holds a task.
    pub execution: Execution,
    /// Sizes.
    pub limits: Limits,
    /// How long finished tasks are kept.
    pub retention: Retention,
    /// What handlers do.
    pub handler: Handler,
    /// Whether claims stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// `retry.*`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Above zero.
    #[serde(with = "human_duration", skip_serializing_if = "Option::is_none")]
    pub initial_backoff: Option<Duration>,
    /// From 1 to 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    /// Above zero.
    #[serde(with = "human_duration", skip_serializing_if = "Option::is_none")]
    pub max_backoff: Option<Duration>,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
}

/// `classification.*`: globs on error types. An empty list is unset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Classification {
    /// Failures that may run again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retryable: Vec<String>,
    /// Failures that may not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permanent: Vec<String>,
}

/// `execution.*`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Execution {
    /// From 10 ms to 12 h.
    #[serde(with = "human_duration", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// Above zero.
    #[serde(with = "human_duration", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Whether a lease that ran out refuses every call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_leases: Option<bool>,
}

/// `limits.*`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// At most 2 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_payload_bytes: Option<u64>,
}

/// `retention.*`: from `finished_at`; zero keeps nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// For tasks that succeeded.
    #[serde(with = "human_duration", skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<Duration>,
    /// For tasks that were cancelled.
    #[serde(with = "human_duration", skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Duration>,
    /// For dead letters.
    #[serde(with = "human_duration", skip_serializing_if = "Option::is_none")]
    pub dead: Option<Duration>,
}

/// `handler.*`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Handler {
    /// What a worker does with a task of another handler version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_mismatch: Option<VersionMismatch>,
}

/// What a worker does with a task of another handler version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionMismatch {
    /// Run the version at hand.
    #[default]
    RunLatest,
    /// Dead-letter the task.
    DeadLetter,
}

/// A stored configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueRecord {
    /// The queue.
    pub queue: QueueName,
    /// What is stored.
    pub config: QueueConfig,
    /// When it was stored, by the storage's clock.
    pub updated_at: Timestamp,
}

/// A queue's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Pending and due.
    pub ready: u64,
    /// Pending and due later.
    pub delayed: u64,
    /// In flight, lapsed ones included.
    pub in_flight: u64,
    /// In flight with a lapsed lease.
    pub lapsed: u64,
    /// Dead letters.
    pub dead: u64,
    /// Succeeded and kept.
    pub succeeded: u64,
    /// Cancelled and kept.
    pub cancelled: u64,
    /// How long the oldest ready task has been due.
    pub oldest_pending_age: Option<Duration>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_stored_sparsely_and_unknown_keys_are_refused_by_name() {
        let mut config = QueueConfig::default();
        config.retry.initial_backoff = Some(Duration::from_millis(1_500));
        config.paused = Some(true);
        let json = serde_json::to_string(&config).unwrap();
        assert!(json.contains(r#""initial_backoff":"1s 500ms""#), "{json}");
        assert!(!json.contains("max_attempts"), "{json}");
        assert_eq!(serde_json::from_str::<QueueConfig>(&json).unwrap(), config);
        let error =
            serde_json::from_str::<QueueConfig>(r#"{"retry":{"max_atempts":1}}"#).unwrap_err();
        assert!(error.to_string().contains("max_atempts"), "{error}");
    }
}
