//! The operator's calls about queues: their configuration, and whether they are paused.

use crate::{
    Client, Error, Page, Pages,
    view::{instant, span},
};
use rdq_proto::{time, v1};
use std::time::{Duration, SystemTime};

/// What a worker does with a task whose version of the handler it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VersionMismatch {
    /// Runs it by the handler at hand.
    RunLatest,
    /// Makes it a dead letter.
    DeadLetter,
}

/// The configuration of a queue. What is not set is inherited: from the server's file, then from its
/// defaults.
///
/// ```
/// use rdq_client::QueueConfig;
/// use std::time::Duration;
///
/// let mut config = QueueConfig::default();
/// config.max_attempts = Some(8);
/// config.lease = Some(Duration::from_secs(300));
/// config.permanent = vec!["http.4??".into()];
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// Attempts that a task has, at least 1; 5 if nothing else is set.
    pub max_attempts: Option<u32>,
    /// The delay after the first failed attempt; 1 s if nothing else is set.
    pub initial_backoff: Option<Duration>,
    /// By how much each delay is longer than the one before; 2 if nothing else is set.
    pub multiplier: Option<f64>,
    /// The longest delay; 10 minutes if nothing else is set.
    pub max_backoff: Option<Duration>,
    /// By how much of itself a delay varies, from 0 to 1; 0.2 if nothing else is set.
    pub jitter: Option<f64>,
    /// Globs on the error types that may run again.
    pub retryable: Vec<String>,
    /// Globs on the error types that may not; they go before `retryable`.
    pub permanent: Vec<String>,
    /// The lease where neither the claim nor the task names one; 60 s if nothing else is set.
    pub lease: Option<Duration>,
    /// No handler runs longer than this; no bound if nothing else is set.
    pub timeout: Option<Duration>,
    /// Refuse every call under a lease that ran out, reclaimed or not.
    pub strict_leases: Option<bool>,
    /// The largest payload, in bytes, up to 2 MiB; 1 MiB if nothing else is set.
    pub max_payload_bytes: Option<u64>,
    /// How long succeeded tasks are kept; 24 hours if nothing else is set.
    pub retention_succeeded: Option<Duration>,
    /// How long cancelled tasks are kept; 24 hours if nothing else is set.
    pub retention_cancelled: Option<Duration>,
    /// How long dead letters are kept; for ever if nothing else is set.
    pub retention_dead: Option<Duration>,
    /// What workers do that have another version of the handler.
    pub version_mismatch: Option<VersionMismatch>,
    /// Whether claims are stopped.
    pub paused: Option<bool>,
}

/// A queue and its configuration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// What is stored, if anything is.
    pub config: Option<QueueConfig>,
    /// What is in force.
    pub effective: QueueConfig,
    /// When the configuration was stored.
    pub updated_at: Option<SystemTime>,
}

impl Client {
    /// Stores the configuration of a queue, in place of what was stored before.
    pub async fn put_queue(
        &self,
        name: impl Into<String>,
        config: QueueConfig,
    ) -> Result<Queue, Error> {
        let message = v1::PutQueueRequest { name: name.into(), config: Some(config.wire()) };
        let response = self
            .call(|mut rpc, ask| {
                let request = ask.request(message.clone());
                async move { rpc.queues.put_queue(request).await }
            })
            .await?;
        Queue::answered(response.queue)
    }

    /// Reads the configuration of a queue, stored and in force.
    pub async fn get_queue(&self, name: impl Into<String>) -> Result<Queue, Error> {
        let message = v1::GetQueueRequest { name: name.into() };
        let response = self
            .call(|mut rpc, ask| {
                let request = ask.request(message.clone());
                async move { rpc.queues.get_queue(request).await }
            })
            .await?;
        Queue::answered(response.queue)
    }

    /// The queues that are configured or hold tasks, by name.
    pub fn list_queues(&self) -> Pages<Queue> {
        self.list_queues_by(None)
    }

    /// The same, with so many on a page, up to 1,000.
    pub fn list_queues_with(&self, page_size: u32) -> Pages<Queue> {
        self.list_queues_by(Some(i32::try_from(page_size).unwrap_or(i32::MAX)))
    }

    fn list_queues_by(&self, page_size: Option<i32>) -> Pages<Queue> {
        let client = self.clone();
        Pages::new(move |page_token| {
            let client = client.clone();
            async move {
                let message = v1::ListQueuesRequest { page_size, page_token };
                let response = client
                    .call(|mut rpc, ask| {
                        let request = ask.request(message.clone());
                        async move { rpc.queues.list_queues(request).await }
                    })
                    .await?;
                let queues = response.queues.into_iter().map(Queue::read).collect();
                Ok(Page::new(queues, response.next_page_token))
            }
        })
    }

    /// Removes the stored configuration of a queue that holds no task in any status, and says
    /// whether there was one; `QueueNotEmpty` if it holds one.
    pub async fn delete_queue(&self, name: impl Into<String>) -> Result<bool, Error> {
        let message = v1::DeleteQueueRequest { name: name.into() };
        let response = self
            .call(|mut rpc, ask| {
                let request = ask.request(message.clone());
                async move { rpc.queues.delete_queue(request).await }
            })
            .await?;
        Ok(response.existed)
    }

    /// Stops claims from a queue; admission goes on.
    pub async fn pause_queue(&self, name: impl Into<String>) -> Result<Queue, Error> {
        let message = v1::PauseQueueRequest { name: name.into() };
        let response = self
            .call(|mut rpc, ask| {
                let request = ask.request(message.clone());
                async move { rpc.queues.pause_queue(request).await }
            })
            .await?;
        Queue::answered(response.queue)
    }

    /// Lets claims go on.
    pub async fn resume_queue(&self, name: impl Into<String>) -> Result<Queue, Error> {
        let message = v1::ResumeQueueRequest { name: name.into() };
        let response = self
            .call(|mut rpc, ask| {
                let request = ask.request(message.clone());
                async move { rpc.queues.resume_queue(request).await }
            })
            .await?;
        Queue::answered(response.queue)
    }
}

impl Queue {
    fn answered(queue: Option<v1::Queue>) -> Result<Self, Error> {
        queue.map(Self::read).ok_or_else(|| Error::broken("has no queue"))
    }

    fn read(queue: v1::Queue) -> Self {
        Self {
            name: queue.name,
            config: queue.config.map(QueueConfig::read),
            effective: queue.effective.map(QueueConfig::read).unwrap_or_default(),
            updated_at: instant(queue.updated_at.as_ref()),
        }
    }
}

impl QueueConfig {
    fn wire(self) -> v1::QueueConfig {
        let span = |duration: Option<Duration>| duration.map(time::duration);
        let mismatch = match self.version_mismatch {
            Some(VersionMismatch::RunLatest) => v1::HandlerVersionMismatch::RunLatest,
            Some(VersionMismatch::DeadLetter) => v1::HandlerVersionMismatch::DeadLetter,
            None => v1::HandlerVersionMismatch::Unspecified,
        };
        v1::QueueConfig {
            retry: Some(v1::RetryConfig {
                max_attempts: self.max_attempts.map(|n| i32::try_from(n).unwrap_or(i32::MAX)),
                initial_backoff: span(self.initial_backoff),
                multiplier: self.multiplier,
                max_backoff: span(self.max_backoff),
                jitter: self.jitter,
            }),
            classification: Some(v1::ClassificationConfig {
                retryable: self.retryable,
                permanent: self.permanent,
            }),
            execution: Some(v1::ExecutionConfig {
                lease: span(self.lease),
                timeout: span(self.timeout),
                strict_leases: self.strict_leases,
            }),
            limits: Some(v1::LimitsConfig {
                max_payload_bytes: self
                    .max_payload_bytes
                    .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            }),
            retention: Some(v1::RetentionConfig {
                succeeded: span(self.retention_succeeded),
                cancelled: span(self.retention_cancelled),
                dead: span(self.retention_dead),
            }),
            handler: Some(v1::HandlerConfig { version_mismatch: mismatch.into() }),
            paused: self.paused,
        }
    }

    fn read(config: v1::QueueConfig) -> Self {
        let retry = config.retry.unwrap_or_default();
        let classification = config.classification.unwrap_or_default();
        let execution = config.execution.unwrap_or_default();
        let limits = config.limits.unwrap_or_default();
        let retention = config.retention.unwrap_or_default();
        let handler = config.handler.unwrap_or_default();
        Self {
            max_attempts: retry.max_attempts.and_then(|n| n.try_into().ok()),
            initial_backoff: span(retry.initial_backoff.as_ref()),
            multiplier: retry.multiplier,
            max_backoff: span(retry.max_backoff.as_ref()),
            jitter: retry.jitter,
            retryable: classification.retryable,
            permanent: classification.permanent,
            lease: span(execution.lease.as_ref()),
            timeout: span(execution.timeout.as_ref()),
            strict_leases: execution.strict_leases,
            max_payload_bytes: limits.max_payload_bytes.and_then(|n| n.try_into().ok()),
            retention_succeeded: span(retention.succeeded.as_ref()),
            retention_cancelled: span(retention.cancelled.as_ref()),
            retention_dead: span(retention.dead.as_ref()),
            version_mismatch: match handler.version_mismatch() {
                v1::HandlerVersionMismatch::Unspecified => None,
                v1::HandlerVersionMismatch::RunLatest => Some(VersionMismatch::RunLatest),
                v1::HandlerVersionMismatch::DeadLetter => Some(VersionMismatch::DeadLetter),
            },
            paused: config.paused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_goes_there_and_back() {
        let config = QueueConfig {
            max_attempts: Some(3),
            initial_backoff: Some(Duration::from_millis(1)),
            multiplier: Some(1.5),
            max_backoff: Some(Duration::from_secs(1)),
            jitter: Some(0.0),
            retryable: vec!["a".into()],
            permanent: vec!["b".into()],
            lease: Some(Duration::from_secs(2)),
            timeout: Some(Duration::from_secs(3)),
            strict_leases: Some(true),
            max_payload_bytes: Some(7),
            retention_succeeded: Some(Duration::from_secs(4)),
            retention_cancelled: Some(Duration::from_secs(5)),
            retention_dead: Some(Duration::from_secs(6)),
            version_mismatch: Some(VersionMismatch::DeadLetter),
            paused: Some(false),
        };
        assert_eq!(QueueConfig::read(config.clone().wire()), config);
        assert_eq!(QueueConfig::read(QueueConfig::default().wire()), QueueConfig::default());
    }
}
