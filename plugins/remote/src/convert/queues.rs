//! Queue configuration. Every key is on both sides, and unset stays unset.

use super::{
    Broken, on_wire,
    tasks::{at_least_zero, moment},
};
use rdq_proto::{time, v1};
use rdq_spi::{
    Classification, Execution, Handler, Limits, QueueConfig, QueueName, QueueRecord, Result,
    Retention, Retry, Timestamp, VersionMismatch,
};
use std::time::Duration;

pub(crate) fn config_on_wire(config: QueueConfig) -> v1::QueueConfig {
    let duration = |value: Option<Duration>| value.map(time::duration);
    let version_mismatch = match config.handler.version_mismatch {
        None => v1::HandlerVersionMismatch::Unspecified,
        Some(VersionMismatch::RunLatest) => v1::HandlerVersionMismatch::RunLatest,
        Some(VersionMismatch::DeadLetter) => v1::HandlerVersionMismatch::DeadLetter,
    };
    let max_payload_bytes = config.limits.max_payload_bytes;
    v1::QueueConfig {
        retry: Some(v1::RetryConfig {
            max_attempts: config.retry.max_attempts.map(on_wire),
            initial_backoff: duration(config.retry.initial_backoff),
            multiplier: config.retry.multiplier,
            max_backoff: duration(config.retry.max_backoff),
            jitter: config.retry.jitter,
        }),
        classification: Some(v1::ClassificationConfig {
            retryable: config.classification.retryable,
            permanent: config.classification.permanent,
        }),
        execution: Some(v1::ExecutionConfig {
            lease: duration(config.execution.lease),
            timeout: duration(config.execution.timeout),
            strict_leases: config.execution.strict_leases,
        }),
        limits: Some(v1::LimitsConfig {
            max_payload_bytes: max_payload_bytes.map(|max| i64::try_from(max).unwrap_or(i64::MAX)),
        }),
        retention: Some(v1::RetentionConfig {
            succeeded: duration(config.retention.succeeded),
            cancelled: duration(config.retention.cancelled),
            dead: duration(config.retention.dead),
        }),
        handler: Some(v1::HandlerConfig { version_mismatch: version_mismatch.into() }),
        paused: config.paused,
    }
}

/// What is stored of a queue; `None` if nothing is.
pub(crate) fn queue_record(queue: v1::Queue) -> Result<Option<QueueRecord>, Broken> {
    let Some(config) = queue.config else { return Ok(None) };
    Ok(Some(QueueRecord {
        queue: QueueName::stored(queue.name),
        config: config_of(config),
        updated_at: moment(queue.updated_at.as_ref())?.unwrap_or(Timestamp::MIN),
    }))
}

fn config_of(from: v1::QueueConfig) -> QueueConfig {
    let retry = from.retry.unwrap_or_default();
    let classification = from.classification.unwrap_or_default();
    let execution = from.execution.unwrap_or_default();
    let limits = from.limits.unwrap_or_default();
    let retention = from.retention.unwrap_or_default();
    let handler = from.handler.unwrap_or_default();
    let span = |value: Option<prost_types::Duration>| value.as_ref().and_then(time::at_least_zero);
    QueueConfig {
        retry: Retry {
            max_attempts: retry.max_attempts.map(at_least_zero),
            initial_backoff: span(retry.initial_backoff),
            multiplier: retry.multiplier,
            max_backoff: span(retry.max_backoff),
            jitter: retry.jitter,
        },
        classification: Classification {
            retryable: classification.retryable,
            permanent: classification.permanent,
        },
        execution: Execution {
            lease: span(execution.lease),
            timeout: span(execution.timeout),
            strict_leases: execution.strict_leases,
        },
        limits: Limits {
            max_payload_bytes: limits.max_payload_bytes.map(|max| u64::try_from(max).unwrap_or(0)),
        },
        retention: Retention {
            succeeded: span(retention.succeeded),
            cancelled: span(retention.cancelled),
            dead: span(retention.dead),
        },
        handler: Handler {
            version_mismatch: match v1::HandlerVersionMismatch::try_from(handler.version_mismatch) {
                Ok(v1::HandlerVersionMismatch::Unspecified) => None,
                Ok(v1::HandlerVersionMismatch::DeadLetter) => Some(VersionMismatch::DeadLetter),
                // The contract: one that is not known is RUN_LATEST.
                Ok(v1::HandlerVersionMismatch::RunLatest) | Err(_) => {
                    Some(VersionMismatch::RunLatest)
                }
            },
        },
        paused: from.paused,
    }
}
