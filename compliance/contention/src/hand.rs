//! Who claims: through the storage trait, or past it. What is measured is the same for both.

use async_trait::async_trait;
use bytes::Bytes;
use rdq_spi::{
    AttemptReport, Call, ClaimParams, ClaimQueue, ClaimRef, ClaimToken, Moment, NewTask, Outcome,
    Overrides, QueueName, Resolution, Storage, TaskId, WorkerId,
};
use std::{error::Error, ops::Range, sync::Arc, time::Duration};

/// Why nothing was measured.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

pub(crate) const QUEUE: &str = "contention";
pub(crate) const HANDLER: &str = "handler";
pub(crate) const WORKER: &str = "bench";
/// Longer than any measurement: whoever claims a task that was claimed before claims it twice.
pub(crate) const LEASE: Duration = Duration::from_secs(12 * 3600);
pub(crate) const BYTES_MAX: u32 = 16 << 20;
/// What a client sends: a payload of 100 bytes and a little beside it.
pub(crate) static ENVELOPE: [u8; 120] = [7; 120];

/// A claimed task.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// Which.
    pub(crate) number: u64,
    /// What ends the claim.
    pub(crate) proof: Bytes,
}

/// One caller, who waits for each answer.
#[async_trait]
pub(crate) trait Hand: Send {
    /// Admits the tasks of these numbers, in one call.
    async fn admit(&mut self, numbers: Range<u64>) -> Result<(), Failure>;
    /// Claims up to so many tasks.
    async fn claim(&mut self, limit: u32) -> Result<Vec<Held>, Failure>;
    /// Completes claims and removes their tasks, in one call.
    async fn complete(&mut self, held: Vec<Held>) -> Result<(), Failure>;
}

/// The id of a task, as long as those that rdq gives.
pub(crate) fn id_of(number: u64) -> String {
    format!("{number:026}")
}

/// The number of a task.
pub(crate) fn number_of(id: &str) -> Result<u64, Failure> {
    Ok(id.parse()?)
}

/// A caller of a storage.
pub(crate) struct Through(pub(crate) Arc<dyn Storage>);

#[async_trait]
impl Hand for Through {
    async fn admit(&mut self, numbers: Range<u64>) -> Result<(), Failure> {
        let tasks = numbers.map(task).collect::<Result<_, _>>()?;
        for admission in self.0.enqueue(tasks).await? {
            if !admission?.created {
                return Err("a task was there already".into());
            }
        }
        Ok(())
    }

    async fn claim(&mut self, limit: u32) -> Result<Vec<Held>, Failure> {
        let from = ClaimQueue { queue: QueueName::new(QUEUE)?, lease: LEASE, lease_max: LEASE };
        let claim = ClaimParams {
            queues: vec![from],
            limit,
            bytes_max: BYTES_MAX as usize,
            lease: Some(LEASE),
            worker_id: WorkerId::new(WORKER)?,
        };
        let answer = self.0.claim_due(vec![claim]).await?.pop().ok_or("no answer")??;
        let held = |claim: rdq_spi::Claim| {
            Ok::<_, Failure>(Held {
                number: number_of(claim.task.id.as_str())?,
                proof: claim.token.0,
            })
        };
        answer.claims.into_iter().map(held).collect()
    }

    async fn complete(&mut self, held: Vec<Held>) -> Result<(), Failure> {
        let resolution = |held: Held| {
            let task_id = TaskId::new(id_of(held.number))?;
            Ok::<_, Failure>(Resolution {
                claim: ClaimRef { task_id, token: ClaimToken(held.proof) },
                call: Call::Complete,
                outcome: Outcome::Succeed {
                    attempt: AttemptReport::default(),
                    result: Bytes::new(),
                    forget: true,
                },
                strict: false,
            })
        };
        let resolutions = held.into_iter().map(resolution).collect::<Result<_, _>>()?;
        for resolved in self.0.resolve(resolutions).await? {
            resolved?;
        }
        Ok(())
    }
}

fn task(number: u64) -> Result<NewTask, Failure> {
    Ok(NewTask {
        id: TaskId::new(id_of(number))?,
        queue: QueueName::new(QUEUE)?,
        handler_ref: QueueName::new(HANDLER)?,
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: Bytes::from_static(&ENVELOPE),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    })
}
