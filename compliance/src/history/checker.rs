//! Judges a history: sorts it by task and asks each rule. The rules themselves are in `rules`.
//!
//! Sound rather than complete: what an answer that got lost could explain is no violation.

use super::{Event, History, Operation, Outcome, event::Answer, event::Grant, rules};
use rdq_spi::{TaskId, TaskStatus};
use std::collections::HashMap;

/// What was found at the end, after everything was healed and worked off.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Every task that the store holds, and where it stands.
    pub states: HashMap<TaskId, TaskStatus>,
    /// How many attempts each task had, if that was bounded.
    pub max_attempts: Option<u32>,
}

/// What a history can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// C1: an acknowledged task is gone, or never ended.
    Lost,
    /// C2: a task that nobody admitted.
    Phantom,
    /// C3: a claim while another was live.
    DoubleClaim,
    /// C4: a token minted twice, or a generation that did not grow.
    Generation,
    /// C5: a call under a superseded, spent or cancelled claim succeeded.
    StaleAccepted,
    /// C5b: a strict call under a lease that had run out succeeded.
    LapsedAccepted,
    /// C6: a task that ended twice, or went on after its end, or a replay of nothing.
    EndedTwice,
    /// C7: a claim before the task was due.
    Early,
    /// C8: attempts that were not counted one by one, or more than there may be.
    Attempts,
}

/// One breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// The task.
    pub task: TaskId,
    /// What happened, for a person to read.
    pub what: String,
}

/// Judges what was recorded against what was found at the end.
pub fn check(history: &History, truth: &Truth) -> Vec<Violation> {
    let events = history.events();
    let mut tasks: HashMap<&TaskId, TaskHistory> = HashMap::new();
    let mut doubts = Doubts::default();
    for event in events.iter().filter(|event| event.maybe_applied()) {
        sort_in(event, &mut tasks, &mut doubts);
    }
    for task in truth.states.keys() {
        tasks.entry(task).or_default();
    }
    let mut violations = rules::tokens_are_minted_once(&events);
    for (id, mut task) in tasks {
        task.grants.sort_by_key(|granted| (granted.grant.generation, granted.event.invoked));
        let mut report = |rule, what| violations.push(Violation { rule, task: id.clone(), what });
        rules::judge(id, &task, &doubts, truth, &mut report);
    }
    violations.sort_by(|a, b| (a.rule, &a.task, &a.what).cmp(&(b.rule, &b.task, &b.what)));
    violations
}

/// All of a history that concerns one task, without what was refused.
#[derive(Debug, Default)]
pub(super) struct TaskHistory<'a> {
    pub(super) enqueues: Vec<&'a Event>,
    /// By generation.
    pub(super) grants: Vec<Granted<'a>>,
    pub(super) extends: Vec<&'a Event>,
    pub(super) resolves: Vec<&'a Event>,
    pub(super) cancels: Vec<&'a Event>,
    pub(super) removals: Vec<&'a Event>,
}

/// A grant, and the claim that brought it.
#[derive(Debug)]
pub(super) struct Granted<'a> {
    pub(super) grant: &'a Grant,
    pub(super) event: &'a Event,
}

/// What was done to tasks that nobody named.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Something may have been removed.
    pub(super) removals: bool,
    /// Something may have expired, with a record and no claim.
    pub(super) expiries: bool,
    /// A claim got lost: its tasks may lapse, or be released by the server.
    pub(super) claims: bool,
}

fn sort_in<'a>(
    event: &'a Event,
    tasks: &mut HashMap<&'a TaskId, TaskHistory<'a>>,
    doubts: &mut Doubts,
) {
    match (&event.operation, &event.answer) {
        (Operation::Enqueue { task, .. }, _) => tasks.entry(task).or_default().enqueues.push(event),
        (Operation::Claim, Answer::Ok(Outcome::Claimed(grants))) => {
            for grant in grants {
                let granted = Granted { grant, event };
                tasks.entry(&grant.task).or_default().grants.push(granted);
            }
        }
        (Operation::Claim, _) => doubts.claims = true,
        (Operation::Extend { task, .. }, _) => tasks.entry(task).or_default().extends.push(event),
        (Operation::Resolve { task, .. }, _) => tasks.entry(task).or_default().resolves.push(event),
        (Operation::Cancel { task }, _) => tasks.entry(task).or_default().cancels.push(event),
        (Operation::Remove { tasks: Some(removed) }, _) => {
            for task in removed {
                tasks.entry(task).or_default().removals.push(event);
            }
        }
        (Operation::Remove { tasks: None }, _) => doubts.removals = true,
        (Operation::Expire, _) => doubts.expiries = true,
        (Operation::Redrive { .. }, _) => {} // Only dead letters, and no rule is about them.
    }
}
