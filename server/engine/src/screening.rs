//! What a claimed task goes through before a worker sees it: one that outlived its time or spent
//! its attempts is dead, and never handed out.

use crate::{ClaimedTask, queues::Snapshot, token::ClaimContext};
use rdq_spi::{AttemptError, AttemptReport, Call, Claim, ClaimRef, Outcome, Resolution};

#[expect(clippy::large_enum_variant, reason = "almost every one is the large one, and short-lived")]
pub(crate) enum Screened {
    Good(ClaimedTask),
    Dead(Resolution),
}

pub(crate) fn screen(claim: Claim, snapshot: &Snapshot, holder: u64) -> Screened {
    let Claim { task, token, generation, lease } = claim;
    let effective = snapshot.effective(&task.queue);
    let max_attempts = task.overrides.max_attempts.unwrap_or(effective.retry.max_attempts);
    // Both by the storage's clock.
    let expired = task.expires_at.zip(task.claimed_at).is_some_and(|(end, now)| end <= now);
    let error = if expired {
        Some(AttemptError::new(AttemptError::EXPIRED, "the task outlived its expires_at"))
    } else if task.attempt_count >= max_attempts {
        let message = format!("{} of {max_attempts} attempts are spent", task.attempt_count);
        Some(AttemptError::new(AttemptError::MAX_ATTEMPTS_EXCEEDED, message))
    } else {
        None
    };
    if error.is_some() {
        return Screened::Dead(Resolution {
            claim: ClaimRef { task_id: task.id, token },
            call: Call::DeadLetter,
            outcome: Outcome::Die { attempt: AttemptReport { error, ..AttemptReport::default() } },
            strict: false,
        });
    }
    let attempt_no = task.last_attempt_no.saturating_add(1);
    let context = ClaimContext {
        storage_token: token,
        holder,
        generation,
        queue: task.queue.clone(),
        attempt_count: task.attempt_count,
        attempt_no,
        lease,
        max_attempts: task.overrides.max_attempts,
        initial_backoff: task.overrides.initial_backoff,
    };
    Screened::Good(ClaimedTask {
        token: context.encode(),
        generation,
        attempt_no,
        lease_remaining: lease,
        execution_timeout: effective.timeout,
        max_attempts,
        version_mismatch: effective.version_mismatch,
        task,
    })
}
