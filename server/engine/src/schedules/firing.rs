//! What happens at a boundary: one commit enqueues its task and moves the schedule on, so that a
//! boundary gives one task, however many try.

use super::{
    ScheduleDefinition,
    admin::{internal, read},
    plan::plan,
    record::Stored,
    spec::Spec,
    store::key_of,
};
use crate::{EngineError, Submission, clock, core::Core};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use jiff::Timestamp as Instant;
use rdq_spi::{
    CompareAndSet, Moment, NewTask, Operation, Overrides, Rejected, ScheduleName, StorageError,
    TaskId, Timestamp,
};
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeMap, time::Duration};

/// Tries at one schedule that others change too, before the rest have their turn.
const TRIES: u32 = 20;
/// After a commit that another writer was in the way of.
const CONTENTION_PAUSE: Duration = Duration::from_millis(50);
/// What the tasks of one commit weigh, unless it is one alone.
const COMMIT_BYTES_MAX: usize = 4 << 20;
/// What a task weighs beside its payload and its headers, generously.
const TASK_BYTES: usize = 1 << 10;
const COMMIT_TASKS_MAX: usize = 64;

/// A task that a boundary gives, for whoever writes its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundaryTask<'a> {
    /// Its id.
    pub id: &'a TaskId,
    /// The schedule.
    pub definition: &'a ScheduleDefinition,
    /// All its headers: the schedule's, `rdq.schedule` and `rdq.scheduled_for`.
    pub headers: BTreeMap<String, String>,
}

/// Writes the envelope of a task, as clients would send it.
pub(super) type Envelopes = dyn Fn(BoundaryTask<'_>) -> Bytes + Send + Sync;

impl Core {
    /// Enqueues the tasks of the boundaries that came by `now`, and answers the next boundary; `None` if
    /// the schedule is gone, paused, or never comes again.
    pub(super) async fn fire(
        &self,
        name: &ScheduleName,
        now: Timestamp,
        envelopes: &Envelopes,
    ) -> Result<Option<Timestamp>, EngineError> {
        let mut refused = Refused::default();
        for _ in 0..TRIES {
            let Some(record) = self.schedule_record(name).await? else { return Ok(None) };
            let Some(stored) = read(&record) else { return Ok(None) };
            let Some(next) = stored.schedule.next_boundary_at else { return Ok(None) };
            if next > now {
                return Ok(Some(next));
            }
            let definition = &stored.schedule.definition;
            let spec = Spec::parse(&definition.spec, &definition.time_zone)?;
            let plan = plan(&stored, &spec, now, tasks_max(definition));
            if plan.skips {
                tracing::warn!(schedule = %name, "this schedule passed too many boundaries, and skips forward");
            }
            let mut tasks = Vec::with_capacity(plan.boundaries.len());
            for boundary in &plan.boundaries {
                if !refused.boundaries.contains(boundary) {
                    match self.admissible(submission(&stored, *boundary, envelopes)) {
                        Ok(task) => tasks.push((*boundary, task)),
                        Err(error) => refused.add(name, *boundary, &error),
                    }
                }
            }
            let mut after = stored.clone();
            let last = tasks.last().map(|(boundary, _)| *boundary);
            after.schedule.last_boundary_at = last.or(stored.schedule.last_boundary_at);
            after.schedule.next_boundary_at = plan.next;
            after.catch_up_left = plan.catch_up_left;
            let advance = CompareAndSet {
                key: key_of(name),
                value: Some(after.encode().map_err(internal)?),
                expected_revision: record.revision,
            };
            let enqueues = tasks.iter().map(|(_, task)| Operation::Enqueue(task.clone()));
            let operations = [Operation::CompareAndSet(advance)].into_iter().chain(enqueues);
            match self.commit(operations.collect()).await? {
                Ok(_) => {
                    if !tasks.is_empty() {
                        self.hint_in_process(&definition.queue, Duration::ZERO);
                    }
                    if plan.next.is_none_or(|next| next > now) {
                        return Ok(plan.next);
                    }
                }
                // Somebody else moved it on, or its owner changed it.
                Err(Rejected { error: StorageError::CasConflict { .. }, .. }) => {}
                Err(Rejected { error: StorageError::Contention { .. }, .. }) => {
                    clock::sleep(clock::jittered(CONTENTION_PAUSE, 0.5)).await;
                }
                Err(Rejected { index: Some(index), error }) if is_final(&error) => {
                    let Some((boundary, _)) = index.checked_sub(1).and_then(|at| tasks.get(at))
                    else {
                        return Err(error.into());
                    };
                    refused.add(name, *boundary, &error.into());
                }
                Err(Rejected { error, .. }) => return Err(error.into()),
            }
        }
        // It goes on at once, after the others.
        Ok(Some(now))
    }
}

/// Boundaries whose tasks nothing will admit, which are left out.
#[derive(Default)]
struct Refused {
    boundaries: Vec<Timestamp>,
}

impl Refused {
    fn add(&mut self, name: &ScheduleName, boundary: Timestamp, error: &EngineError) {
        self.boundaries.push(boundary);
        tracing::warn!(
            schedule = %name,
            scheduled_for = rfc_3339(boundary),
            refused = self.boundaries.len(),
            %error,
            "a boundary of this schedule gave no task",
        );
    }
}

/// Whether the task would be refused again and again.
fn is_final(error: &StorageError) -> bool {
    matches!(error, StorageError::IdConflict { .. } | StorageError::Refused { .. })
}

fn tasks_max(definition: &ScheduleDefinition) -> usize {
    let headers = definition.headers.iter().map(|(key, value)| key.len() + value.len());
    let task = TASK_BYTES + definition.payload.len() + headers.sum::<usize>();
    (COMMIT_BYTES_MAX / task).clamp(1, COMMIT_TASKS_MAX)
}

fn submission(stored: &Stored, boundary: Timestamp, envelopes: &Envelopes) -> Submission {
    let definition = &stored.schedule.definition;
    let id = task_id(stored, boundary);
    let mut headers = definition.headers.clone();
    headers.insert("rdq.schedule".to_owned(), definition.name.as_str().to_owned());
    headers.insert("rdq.scheduled_for".to_owned(), rfc_3339(boundary));
    let envelope = envelopes(BoundaryTask { id: &id, definition, headers });
    let overrides = Overrides { max_attempts: definition.max_attempts, ..Overrides::default() };
    Submission {
        payload_bytes: definition.payload.len() as u64,
        task: NewTask {
            id,
            queue: definition.queue.clone(),
            handler_ref: definition.handler_ref.clone(),
            priority: definition.priority,
            due: Moment::At(boundary),
            expires: definition.expires_in.map(|span| Moment::At(boundary.after(span))),
            created_at: None,
            envelope,
            overrides,
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            attempts: Vec::new(),
        },
    }
}

/// The same for whoever derives it, and nobody else's.
fn task_id(stored: &Stored, boundary: Timestamp) -> TaskId {
    let mut digest = Sha256::new();
    digest.update(boundary.millis().to_be_bytes());
    digest.update((stored.salt.len() as u64).to_be_bytes());
    digest.update(&stored.salt);
    digest.update(stored.schedule.definition.name.as_str());
    let digest = URL_SAFE_NO_PAD.encode(&digest.finalize()[..16]);
    TaskId::stored(format!("sched:{digest}:{}", boundary.millis()))
}

fn rfc_3339(boundary: Timestamp) -> String {
    // A boundary is never outside the range: see `spec.rs`.
    Instant::from_millisecond(boundary.millis()).unwrap_or(Instant::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::stored, *};

    #[test]
    fn an_id_is_of_one_schedule_and_one_boundary() {
        let one = stored("@every 1s", 0);
        let again = Stored { salt: stored("@every 1s", 0).salt, ..one.clone() };
        let at = Timestamp::from_millis;
        assert_eq!(task_id(&one, at(1_000)), task_id(&one.clone(), at(1_000)));
        assert_ne!(task_id(&one, at(1_000)), task_id(&one, at(2_000)));
        assert_ne!(task_id(&one, at(1_000)), task_id(&again, at(1_000)), "deleted and made again");
        assert!(task_id(&one, Timestamp::MIN).as_str().len() <= 255);
    }

    #[test]
    fn a_commit_has_as_many_tasks_as_it_can_carry() {
        let mut definition = stored("@every 1s", 0).schedule.definition;
        assert_eq!(tasks_max(&definition), 64);
        definition.payload = vec![0; 1 << 20].into();
        assert_eq!(tasks_max(&definition), 3);
        definition.payload = vec![0; 8 << 20].into();
        assert_eq!(tasks_max(&definition), 1);
    }
}
