//! What was seen, and what must hold of it. Times are the storage's; an error is kept as "may have
//! been applied".

use crate::support::is_stale;
use rdq_engine::{ClaimedTask, EngineError};
use rdq_spi::{Extended, NewTask, StorageError, Task, TaskId, TaskStatus, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Paths that some story must have gone through, else the simulation proves little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    Reclaimed,
    Poisoned,
    Expired,
    StaleRefused,
    Replayed,
    LossTold,
    CancelledInFlight,
    Released,
    ClaimDropped,
    StreamDropped,
    Drained,
    EngineDropped,
    AnswerLost,
    Unavailable,
    Redriven,
    Paused,
    Extended,
    Masked,
    Died,
    Succeeded,
}

const PATHS: usize = Path::Succeeded as usize + 1;
static REACHED: [AtomicU64; PATHS] = [const { AtomicU64::new(0) }; PATHS];

pub fn reached(path: Path) {
    REACHED[path as usize].fetch_add(1, Ordering::Relaxed);
}

pub fn assert_all_reached() {
    use Path::*;
    for path in [
        Reclaimed,
        Poisoned,
        Expired,
        StaleRefused,
        Replayed,
        LossTold,
        CancelledInFlight,
        Released,
        ClaimDropped,
        StreamDropped,
        Drained,
        EngineDropped,
        AnswerLost,
        Unavailable,
        Redriven,
        Paused,
        Extended,
        Masked,
        Died,
        Succeeded,
    ] {
        let count = REACHED[path as usize].load(Ordering::Relaxed);
        println!("{path:?}: {count}");
        assert!(count > 0, "no story reached {path:?}");
    }
}

#[derive(Debug)]
struct Grant {
    claimed_at: Timestamp,
    expires_at: Timestamp,
    attempt_no: u32,
    /// The holder gave the claim up, or may have.
    ended: bool,
}

#[derive(Debug, Default)]
struct Known {
    delay: Duration,
    max_attempts: u32,
    admissions: u32,
    acknowledged: bool,
    grants: BTreeMap<i64, Grant>,
    completed_by: Option<i64>,
    cancelled: bool,
}

/// Everything that clients saw.
#[derive(Debug, Default)]
pub struct History(Mutex<BTreeMap<TaskId, Known>>);

/// What a client did with a claim, at the moment it sent it.
#[derive(Debug, Clone)]
pub struct Sent {
    id: TaskId,
    generation: i64,
    /// A newer claim had been seen by then.
    superseded: bool,
    /// The claim is over if this succeeds.
    ends: bool,
    completes: bool,
}

impl History {
    pub fn enqueued(&self, task: &NewTask, created: Option<bool>) {
        let mut tasks = self.0.lock().unwrap();
        let known = tasks.entry(task.id.clone()).or_default();
        if let rdq_spi::Moment::In(delay) = task.due {
            known.delay = delay;
        }
        known.max_attempts = task.overrides.max_attempts.unwrap();
        known.acknowledged |= created.is_some();
        known.admissions += u32::from(created == Some(true));
        assert!(known.admissions <= 1, "{:?} was admitted twice", task.id);
    }

    pub fn granted(&self, claim: &ClaimedTask) {
        let mut tasks = self.0.lock().unwrap();
        let known = tasks.get_mut(&claim.task.id).expect("only what was enqueued is handed out");
        let claimed_at = claim.task.claimed_at.unwrap();
        assert!(
            claimed_at >= claim.task.created_at.after(known.delay),
            "before it was due: {claim:?}"
        );
        assert!(claim.task.attempt_count < claim.max_attempts, "poison was handed out: {claim:?}");
        let grant = Grant {
            claimed_at,
            expires_at: claim.task.lease_expires_at.unwrap(),
            attempt_no: claim.attempt_no,
            ended: false,
        };
        let twice = known.grants.insert(claim.generation, grant);
        assert!(twice.is_none(), "one claim was handed out twice: {claim:?}");
    }

    pub fn sends(&self, claim: &ClaimedTask, ends: bool, completes: bool) -> Sent {
        let tasks = self.0.lock().unwrap();
        let (id, generation) = (claim.task.id.clone(), claim.generation);
        let newer = (generation + 1)..;
        let superseded = tasks[&id].grants.range(newer).next().is_some();
        Sent { id, generation, superseded, ends, completes }
    }

    pub fn answered<T>(&self, sent: &Sent, answer: &Result<T, EngineError>, replayed: bool) {
        let mut tasks = self.0.lock().unwrap();
        let known = tasks.get_mut(&sent.id).unwrap();
        let grant = known.grants.get_mut(&sent.generation).unwrap();
        match answer {
            Ok(_) => {
                assert!(!sent.superseded, "a stale token changed something: {sent:?}");
                grant.ended |= sent.ends;
                if sent.completes && !replayed {
                    let before = known.completed_by.replace(sent.generation);
                    assert_eq!(before, None, "completed twice: {sent:?}");
                }
                if replayed {
                    reached(Path::Replayed);
                }
            }
            Err(error) if is_stale(error) => reached(Path::StaleRefused),
            Err(error) => {
                grant.ended |= sent.ends;
                expected(error);
            }
        }
    }

    pub fn extended(&self, sent: &Sent, extended: &Extended) {
        let mut tasks = self.0.lock().unwrap();
        let known = tasks.get_mut(&sent.id).unwrap();
        known.grants.get_mut(&sent.generation).unwrap().expires_at = extended.lease_expires_at;
        reached(Path::Extended);
    }

    pub fn cancelled(&self, id: &TaskId) {
        let mut tasks = self.0.lock().unwrap();
        tasks.get_mut(id).unwrap().cancelled = true;
    }

    /// Ids of what was enqueued and acknowledged.
    pub fn acknowledged(&self) -> Vec<TaskId> {
        let tasks = self.0.lock().unwrap();
        tasks.iter().filter(|(_, known)| known.acknowledged).map(|(id, _)| id.clone()).collect()
    }

    /// Compares the end of a task with what was seen of it.
    pub fn check_end(&self, task: &Task) {
        let tasks = self.0.lock().unwrap();
        let known = &tasks[&task.id];
        let mut before: Option<(&i64, &Grant)> = None;
        for (generation, grant) in &known.grants {
            if let Some((earlier, previous)) = before {
                assert!(
                    previous.ended || grant.claimed_at >= previous.expires_at,
                    "two live claims of {:?}, {earlier} and {generation}: {known:#?}",
                    task.id,
                );
                assert!(grant.attempt_no >= previous.attempt_no, "{known:#?}");
            }
            before = Some((generation, grant));
        }
        if let Some(generation) = known.completed_by {
            let later = known.grants.range((generation + 1)..).next();
            assert!(later.is_none(), "handed out after it succeeded: {known:#?}");
            assert_eq!(task.status, TaskStatus::Succeeded, "{known:#?}");
        }
        if known.cancelled {
            assert_eq!(task.status, TaskStatus::Cancelled, "{known:#?}");
        }
        // Releases apart, which give a number out again.
        let handed_out: BTreeSet<_> = known.grants.values().map(|grant| grant.attempt_no).collect();
        let allowed = known.max_attempts * (task.redrive_count + 1);
        assert!(handed_out.len() <= allowed as usize, "{known:#?}");
        let numbers: Vec<_> = task.attempts.iter().map(|attempt| attempt.attempt_no).collect();
        let expected: Vec<_> = (1..=u32::try_from(numbers.len()).unwrap()).collect();
        assert_eq!(numbers, expected, "attempts are numbered for life");
        note_paths(task);
    }
}

fn note_paths(task: &Task) {
    let types = task.attempts.iter().filter_map(|attempt| attempt.error.as_ref());
    for error in types {
        match error.error_type.as_str() {
            "rdq.LeaseExpired" => reached(Path::Reclaimed),
            "rdq.MaxAttemptsExceeded" => reached(Path::Poisoned),
            "rdq.Expired" => reached(Path::Expired),
            _ => {}
        }
    }
    match task.status {
        TaskStatus::Succeeded => reached(Path::Succeeded),
        TaskStatus::Dead => reached(Path::Died),
        TaskStatus::Cancelled if !task.attempts.is_empty() => reached(Path::CancelledInFlight),
        _ => {}
    }
    if task.redrive_count > 0 {
        reached(Path::Redriven);
    }
}

/// Errors that the storage's trouble and the servers' restarts explain; anything else is a bug.
pub fn expected(error: &EngineError) {
    match error {
        EngineError::Closed | EngineError::Overloaded { .. } => {}
        EngineError::Storage(error) => match **error {
            StorageError::Unavailable { .. } => reached(Path::Unavailable),
            StorageError::OutcomeUnknown { .. } => reached(Path::AnswerLost),
            StorageError::StaleClaim { .. } | StorageError::NotFound { .. } => {}
            _ => panic!("unexpected: {error:?}"),
        },
        _ => panic!("unexpected: {error:?}"),
    }
}

/// The lease of every claim in the simulation that names one.
pub const LEASE: Duration = Duration::from_millis(900);
