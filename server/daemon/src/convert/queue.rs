//! Queue configuration.

use super::{answer::version_mismatch, request::positive};
use crate::status::Refusal;
use rdq_engine::QueueView;
use rdq_proto::{time, v1};
use rdq_spi::{
    Classification, Execution, Handler, Limits, QueueConfig, Retention, Retry, VersionMismatch,
};
use std::time::Duration;

pub(crate) fn queue_config(from: v1::QueueConfig) -> Result<QueueConfig, Refusal> {
    let retry = from.retry.unwrap_or_default();
    let classification = from.classification.unwrap_or_default();
    let execution = from.execution.unwrap_or_default();
    let retention = from.retention.unwrap_or_default();
    let max_attempts = retry.max_attempts.map(|max| {
        u32::try_from(max).map_err(|_| {
            Refusal::invalid("retry.max_attempts", "`retry.max_attempts` must be at least 1")
        })
    });
    Ok(QueueConfig {
        retry: Retry {
            max_attempts: max_attempts.transpose()?,
            initial_backoff: span("retry.initial_backoff", retry.initial_backoff.as_ref())?,
            multiplier: retry.multiplier,
            max_backoff: span("retry.max_backoff", retry.max_backoff.as_ref())?,
            jitter: retry.jitter,
        },
        classification: Classification {
            retryable: classification.retryable,
            permanent: classification.permanent,
        },
        execution: Execution {
            lease: span("execution.lease", execution.lease.as_ref())?,
            timeout: span("execution.timeout", execution.timeout.as_ref())?,
            strict_leases: execution.strict_leases,
        },
        limits: limits(from.limits.unwrap_or_default())?,
        retention: Retention {
            succeeded: kept("retention.succeeded", retention.succeeded.as_ref())?,
            cancelled: kept("retention.cancelled", retention.cancelled.as_ref())?,
            dead: kept("retention.dead", retention.dead.as_ref())?,
        },
        handler: Handler { version_mismatch: mismatch(from.handler.unwrap_or_default())? },
        paused: from.paused,
    })
}

fn limits(from: v1::LimitsConfig) -> Result<Limits, Refusal> {
    const FIELD: &str = "limits.max_payload_bytes";
    let below = |_| Refusal::invalid(FIELD, format!("`{FIELD}` must not be below 0"));
    let max_payload_bytes = from.max_payload_bytes.map(|max| u64::try_from(max).map_err(below));
    Ok(Limits { max_payload_bytes: max_payload_bytes.transpose()? })
}

fn mismatch(from: v1::HandlerConfig) -> Result<Option<VersionMismatch>, Refusal> {
    const FIELD: &str = "handler.version_mismatch";
    let value = from.version_mismatch;
    match v1::HandlerVersionMismatch::try_from(value) {
        Ok(v1::HandlerVersionMismatch::Unspecified) => Ok(None),
        Ok(v1::HandlerVersionMismatch::RunLatest) => Ok(Some(VersionMismatch::RunLatest)),
        Ok(v1::HandlerVersionMismatch::DeadLetter) => Ok(Some(VersionMismatch::DeadLetter)),
        Err(_) => Err(Refusal::invalid(FIELD, format!("{value} is not a value of `{FIELD}`"))),
    }
}

fn span(
    field: &'static str,
    value: Option<&prost_types::Duration>,
) -> Result<Option<Duration>, Refusal> {
    value.map(|value| positive(field, value)).transpose()
}

/// A retention: zero keeps nothing, below zero is an error.
fn kept(
    field: &'static str,
    value: Option<&prost_types::Duration>,
) -> Result<Option<Duration>, Refusal> {
    let refuse = || Refusal::invalid(field, format!("`{field}` must not be below zero"));
    let read = |value: &prost_types::Duration| {
        if time::nanos(value).is_none_or(|nanos| nanos < 0) {
            return Err(refuse());
        }
        time::at_least_zero(value).ok_or_else(refuse)
    };
    value.map(read).transpose()
}

pub(crate) fn queue_view(view: QueueView) -> v1::Queue {
    v1::Queue {
        name: view.queue.into(),
        config: view.stored.map(config_on_wire),
        effective: Some(config_on_wire(view.effective)),
        updated_at: view.updated_at.map(|at| time::timestamp(at.millis())),
    }
}

fn config_on_wire(config: QueueConfig) -> v1::QueueConfig {
    let duration = |value: Option<Duration>| value.map(time::duration);
    v1::QueueConfig {
        retry: Some(v1::RetryConfig {
            max_attempts: config.retry.max_attempts.map(super::task::clamp),
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
            max_payload_bytes: config
                .limits
                .max_payload_bytes
                .map(|max| i64::try_from(max).unwrap_or(i64::MAX)),
        }),
        retention: Some(v1::RetentionConfig {
            succeeded: duration(config.retention.succeeded),
            cancelled: duration(config.retention.cancelled),
            dead: duration(config.retention.dead),
        }),
        handler: Some(v1::HandlerConfig {
            version_mismatch: (config.handler.version_mismatch)
                .map_or(v1::HandlerVersionMismatch::Unspecified, version_mismatch)
                .into(),
        }),
        paused: config.paused,
    }
}
