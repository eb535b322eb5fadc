//! A queue's configuration in force: what is stored over what the file says of the queue, over the
//! file's defaults, over what is built in. Pure.

use crate::{
    EngineError,
    classification::Glob,
    limits::{LEASE_MAX, LEASE_MIN, check_attempts, check_lease, check_positive},
    retry::RetryPolicy,
};
use rdq_spi::{
    Classification, Execution, Handler, Limits, QueueConfig, Retention, Retry, VersionMismatch,
};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3_600);
const PAYLOAD_BYTES_DEFAULT: u64 = 1 << 20;
/// What every backend and every message can carry.
const PAYLOAD_BYTES_MAX: u64 = 2 << 20;
const MULTIPLIER_MAX: f64 = 1_000.0;
const GLOBS_MAX: usize = 100;
const GLOB_BYTES_MAX: usize = 255;

/// A queue's configuration with every key decided.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Effective {
    /// The same as it is shown.
    pub(crate) config: QueueConfig,
    pub(crate) retry: RetryPolicy,
    pub(crate) permanent: Vec<Glob>,
    pub(crate) lease: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) strict_leases: bool,
    pub(crate) max_payload_bytes: u64,
    pub(crate) retention_succeeded: Duration,
    pub(crate) retention_cancelled: Duration,
    pub(crate) retention_dead: Option<Duration>,
    pub(crate) version_mismatch: VersionMismatch,
    pub(crate) paused: bool,
}

impl Effective {
    /// Merges layers, the strongest first, over what is built in. A stored value out of range, of a
    /// newer server perhaps, is brought into it.
    pub(crate) fn of(layers: &[&QueueConfig]) -> Self {
        let config =
            layers.iter().fold(QueueConfig::default(), |merged, layer| over(merged, layer));
        let config = over(config, &built_in());
        let or = |duration: Option<Duration>, fallback: Duration| duration.unwrap_or(fallback);
        let retry = RetryPolicy {
            max_attempts: config.retry.max_attempts.unwrap_or(5).max(1),
            initial_backoff: or(config.retry.initial_backoff, Duration::from_secs(1)),
            multiplier: within(config.retry.multiplier, 2.0, 1.0, MULTIPLIER_MAX),
            max_backoff: or(config.retry.max_backoff, Duration::from_secs(600)),
            jitter: within(config.retry.jitter, 0.2, 0.0, 1.0),
        };
        let permanent =
            config.classification.permanent.iter().map(|glob| Glob::new(glob)).collect();
        let payload_bytes = config.limits.max_payload_bytes.unwrap_or(PAYLOAD_BYTES_DEFAULT);
        Self {
            retry,
            permanent,
            lease: or(config.execution.lease, Duration::from_secs(60)).clamp(LEASE_MIN, LEASE_MAX),
            timeout: config.execution.timeout.filter(|timeout| !timeout.is_zero()),
            strict_leases: config.execution.strict_leases.unwrap_or(false),
            max_payload_bytes: payload_bytes.min(PAYLOAD_BYTES_MAX),
            retention_succeeded: or(config.retention.succeeded, DAY),
            retention_cancelled: or(config.retention.cancelled, DAY),
            retention_dead: config.retention.dead,
            version_mismatch: config.handler.version_mismatch.unwrap_or_default(),
            paused: config.paused.unwrap_or(false),
            config,
        }
    }
}

fn within(value: Option<f64>, fallback: f64, min: f64, max: f64) -> f64 {
    value.filter(|value| value.is_finite()).unwrap_or(fallback).clamp(min, max)
}

/// `strong`, and where it is silent, `weak`.
fn over(strong: QueueConfig, weak: &QueueConfig) -> QueueConfig {
    let lists = |strong: Vec<String>, weak: &Vec<String>| {
        if strong.is_empty() { weak.clone() } else { strong }
    };
    QueueConfig {
        retry: Retry {
            max_attempts: strong.retry.max_attempts.or(weak.retry.max_attempts),
            initial_backoff: strong.retry.initial_backoff.or(weak.retry.initial_backoff),
            multiplier: strong.retry.multiplier.or(weak.retry.multiplier),
            max_backoff: strong.retry.max_backoff.or(weak.retry.max_backoff),
            jitter: strong.retry.jitter.or(weak.retry.jitter),
        },
        classification: Classification {
            retryable: lists(strong.classification.retryable, &weak.classification.retryable),
            permanent: lists(strong.classification.permanent, &weak.classification.permanent),
        },
        execution: Execution {
            lease: strong.execution.lease.or(weak.execution.lease),
            timeout: strong.execution.timeout.or(weak.execution.timeout),
            strict_leases: strong.execution.strict_leases.or(weak.execution.strict_leases),
        },
        limits: Limits {
            max_payload_bytes: strong.limits.max_payload_bytes.or(weak.limits.max_payload_bytes),
        },
        retention: Retention {
            succeeded: strong.retention.succeeded.or(weak.retention.succeeded),
            cancelled: strong.retention.cancelled.or(weak.retention.cancelled),
            dead: strong.retention.dead.or(weak.retention.dead),
        },
        handler: Handler {
            version_mismatch: strong.handler.version_mismatch.or(weak.handler.version_mismatch),
        },
        paused: strong.paused.or(weak.paused),
    }
}

/// The defaults of the contract.
fn built_in() -> QueueConfig {
    QueueConfig {
        retry: Retry {
            max_attempts: Some(5),
            initial_backoff: Some(Duration::from_secs(1)),
            multiplier: Some(2.0),
            max_backoff: Some(Duration::from_secs(600)),
            jitter: Some(0.2),
        },
        classification: Classification::default(),
        execution: Execution {
            lease: Some(Duration::from_secs(60)),
            timeout: None,
            strict_leases: Some(false),
        },
        limits: Limits { max_payload_bytes: Some(PAYLOAD_BYTES_DEFAULT) },
        retention: Retention { succeeded: Some(DAY), cancelled: Some(DAY), dead: None },
        handler: Handler { version_mismatch: Some(VersionMismatch::RunLatest) },
        paused: Some(false),
    }
}

/// Refuses what is out of range, naming the key.
pub(crate) fn check(config: &QueueConfig) -> Result<(), EngineError> {
    let between = |field, value: Option<f64>, min: f64, max: f64| match value {
        Some(value) if !(min..=max).contains(&value) => {
            Err(EngineError::invalid(field, format!("must be from {min} to {max}")))
        }
        _ => Ok(()),
    };
    check_attempts("retry.max_attempts", config.retry.max_attempts)?;
    check_positive("retry.initial_backoff", config.retry.initial_backoff)?;
    between("retry.multiplier", config.retry.multiplier, 1.0, MULTIPLIER_MAX)?;
    check_positive("retry.max_backoff", config.retry.max_backoff)?;
    between("retry.jitter", config.retry.jitter, 0.0, 1.0)?;
    check_globs("classification.retryable", &config.classification.retryable)?;
    check_globs("classification.permanent", &config.classification.permanent)?;
    check_lease("execution.lease", config.execution.lease)?;
    check_positive("execution.timeout", config.execution.timeout)?;
    match config.limits.max_payload_bytes {
        Some(bytes) if bytes > PAYLOAD_BYTES_MAX => {
            let message = format!("must be at most {PAYLOAD_BYTES_MAX}");
            Err(EngineError::invalid("limits.max_payload_bytes", message))
        }
        _ => Ok(()),
    }
}

fn check_globs(field: &'static str, globs: &[String]) -> Result<(), EngineError> {
    if globs.len() > GLOBS_MAX {
        return Err(EngineError::invalid(field, format!("must have at most {GLOBS_MAX} globs")));
    }
    if globs.iter().any(|glob| glob.len() > GLOB_BYTES_MAX) {
        let message = format!("must have globs of at most {GLOB_BYTES_MAX} bytes");
        return Err(EngineError::invalid(field, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: impl FnOnce(&mut QueueConfig)) -> QueueConfig {
        let mut config = QueueConfig::default();
        change(&mut config);
        config
    }

    #[test]
    fn layers_merge_key_by_key_and_an_empty_list_is_unset() {
        let stored = config(|config| config.retry.max_attempts = Some(9));
        let file = config(|config| {
            config.retry.max_attempts = Some(7);
            config.retry.jitter = Some(0.0);
            config.classification.permanent = vec!["Bug".into()];
        });
        let defaults = config(|config| {
            config.retry.jitter = Some(1.0);
            config.execution.timeout = Some(DAY);
            config.classification.permanent = vec!["*".into()];
        });
        let effective = Effective::of(&[&stored, &file, &defaults]);
        assert_eq!(effective.retry.max_attempts, 9);
        assert!(effective.retry.jitter.abs() < f64::EPSILON);
        assert_eq!(effective.permanent, [Glob::new("Bug")]);
        assert_eq!(effective.timeout, Some(DAY));
        assert_eq!(effective.config.limits.max_payload_bytes, Some(PAYLOAD_BYTES_DEFAULT));
        assert_eq!(effective.config.retention.dead, None);
    }

    #[test]
    fn a_stored_value_out_of_range_is_brought_into_it() {
        let stored = config(|config| {
            config.retry.max_attempts = Some(0);
            config.retry.multiplier = Some(f64::NAN);
            config.retry.jitter = Some(7.0);
            config.execution.lease = Some(Duration::ZERO);
            config.execution.timeout = Some(Duration::ZERO);
            config.limits.max_payload_bytes = Some(u64::MAX);
        });
        let effective = Effective::of(&[&stored]);
        assert_eq!(effective.retry.max_attempts, 1);
        assert!((effective.retry.multiplier - 2.0).abs() < f64::EPSILON);
        assert!((effective.retry.jitter - 1.0).abs() < f64::EPSILON);
        assert_eq!((effective.lease, effective.timeout), (LEASE_MIN, None));
        assert_eq!(effective.max_payload_bytes, PAYLOAD_BYTES_MAX);
    }

    #[test]
    fn each_key_out_of_range_is_refused_by_its_name() {
        type Case = (&'static str, fn(&mut QueueConfig));
        let cases: [Case; 12] = [
            ("retry.max_attempts", |config| config.retry.max_attempts = Some(0)),
            ("retry.initial_backoff", |config| config.retry.initial_backoff = Some(Duration::ZERO)),
            ("retry.multiplier", |config| config.retry.multiplier = Some(0.99)),
            ("retry.multiplier", |config| config.retry.multiplier = Some(f64::NAN)),
            ("retry.max_backoff", |config| config.retry.max_backoff = Some(Duration::ZERO)),
            ("retry.jitter", |config| config.retry.jitter = Some(1.01)),
            ("classification.retryable", |config| {
                config.classification.retryable = vec!["x".into(); 101];
            }),
            ("classification.permanent", |config| {
                config.classification.permanent = vec!["x".repeat(256)];
            }),
            ("execution.lease", |config| config.execution.lease = Some(Duration::from_millis(9))),
            ("execution.lease", |config| config.execution.lease = Some(DAY)),
            ("execution.timeout", |config| config.execution.timeout = Some(Duration::ZERO)),
            ("limits.max_payload_bytes", |config| {
                config.limits.max_payload_bytes = Some(PAYLOAD_BYTES_MAX + 1);
            }),
        ];
        for (key, change) in cases {
            match check(&config(change)) {
                Err(EngineError::InvalidArgument { field, .. }) => assert_eq!(field, key),
                other => panic!("{key}: {other:?}"),
            }
        }
        assert!(check(&built_in()).is_ok());
    }
}
