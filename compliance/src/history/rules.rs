//! The rules C1 to C8, each on the history of one task. They know nothing of how it was recorded.

use super::{
    Event, Operation, Outcome, Rule, Truth, Violation,
    checker::{Doubts, Granted, TaskHistory},
    event::Answer,
};
use rdq_spi::{Call, ClaimToken, TaskId, TaskStatus, Timestamp};
use std::collections::HashMap;

/// Takes what was found.
type Report<'a> = &'a mut dyn FnMut(Rule, String);

/// C4, over all tasks: a token names one claim.
pub(super) fn tokens_are_minted_once(events: &[Event]) -> Vec<Violation> {
    let mut minted: HashMap<&ClaimToken, &TaskId> = HashMap::new();
    let mut violations = Vec::new();
    for event in events {
        let Answer::Ok(Outcome::Claimed(grants)) = &event.answer else { continue };
        for grant in grants {
            if let Some(first) = minted.insert(&grant.token, &grant.task) {
                let what = format!("a token of {first} was minted again");
                violations.push(Violation {
                    rule: Rule::Generation,
                    task: grant.task.clone(),
                    what,
                });
            }
        }
    }
    violations
}

/// Every rule that is about one task.
pub(super) fn judge(
    id: &TaskId,
    task: &TaskHistory<'_>,
    doubts: &Doubts,
    truth: &Truth,
    report: Report<'_>,
) {
    let end = truth.states.get(id).copied();
    let removed = doubts.removals || !task.removals.is_empty();
    not_lost(task, end, removed, report);
    not_a_phantom(task, end, report);
    one_claim_at_a_time(task, report);
    generations_grow(task, report);
    stale_is_refused(task, report);
    lapsed_is_refused(task, report);
    ends_once(task, end, removed, report);
    if !removed {
        never_early(task, doubts, report);
        attempts_are_counted(task, doubts, truth, report);
    }
}

/// C1. An id that was removed may be gone, whatever it was.
fn not_lost(task: &TaskHistory<'_>, end: Option<TaskStatus>, removed: bool, report: Report<'_>) {
    let acknowledged = task.enqueues.iter().any(|it| matches!(it.answer, Answer::Ok(_)));
    match end {
        None if acknowledged && !removed => report(Rule::Lost, "acknowledged, and gone".into()),
        Some(status) if !status.is_terminal() => report(Rule::Lost, format!("still {status:?}")),
        _ => {}
    }
}

/// C2.
fn not_a_phantom(task: &TaskHistory<'_>, end: Option<TaskStatus>, report: Report<'_>) {
    let first_seen = task.grants.iter().filter_map(|granted| granted.event.returned).min();
    let admitted = task.enqueues.iter().map(|event| event.invoked).min();
    match (admitted, first_seen) {
        (None, Some(_)) => report(Rule::Phantom, "claimed, but never admitted".into()),
        (None, None) if end.is_some() => report(Rule::Phantom, "never admitted".into()),
        (Some(admitted), Some(seen)) if seen < admitted => {
            report(Rule::Phantom, "claimed before it was admitted".into());
        }
        _ => {}
    }
}

/// C3. The storage's instants decide: the next claim is not before the lease's end, unless the claim
/// had ended otherwise.
fn one_claim_at_a_time(task: &TaskHistory<'_>, report: Report<'_>) {
    for [first, next] in pairs(&task.grants) {
        let given_up = task.resolves.iter().any(|event| {
            token_of(event) == Some(&first.grant.token)
                && next.event.returned.is_none_or(|returned| event.invoked < returned)
        });
        let ended = task.cancels.iter().chain(&task.removals).next().is_some();
        let lease_end = earliest_lease_end(task, first);
        if !given_up && !ended && next.grant.claimed_at < lease_end {
            let (claimed_at, generation) = (next.grant.claimed_at, next.grant.generation);
            report(
                Rule::DoubleClaim,
                format!(
                    "{generation} claimed at {claimed_at:?}, the lease before ends {lease_end:?}"
                ),
            );
        }
    }
}

/// The least that the heartbeats of a claim leave of its lease, whichever came last.
fn earliest_lease_end(task: &TaskHistory<'_>, granted: &Granted<'_>) -> Timestamp {
    let mine = |event: &&&Event| token_of(event) == Some(&granted.grant.token);
    let extends: Vec<_> = task.extends.iter().filter(mine).collect();
    let superseded = |event: &Event| {
        event.returned.is_some_and(|returned| {
            extends
                .iter()
                .any(|later| later.invoked > returned && matches!(later.answer, Answer::Ok(_)))
        })
    };
    let last = extends.iter().filter(|event| !superseded(event));
    let ends = last.map(|event| match (&event.answer, &event.operation) {
        (Answer::Ok(Outcome::Extended { lease_expires_at }), _) => *lease_expires_at,
        // It may have shortened the lease, to no less than this.
        (_, Operation::Extend { lease, .. }) => {
            granted.grant.claimed_at.after(*lease).min(granted.grant.lease_expires_at)
        }
        _ => granted.grant.lease_expires_at,
    });
    ends.min().unwrap_or(granted.grant.lease_expires_at)
}

/// C4, of one task: in the order of claims, and in the storage's time.
fn generations_grow(task: &TaskHistory<'_>, report: Report<'_>) {
    for [first, next] in pairs(&task.grants) {
        let (low, high) = (first.grant.generation, next.grant.generation);
        if low == high {
            report(Rule::Generation, format!("generation {low} twice"));
        } else if next.event.precedes(first.event.invoked) {
            report(Rule::Generation, format!("{low} was claimed after {high}"));
        } else if first.grant.claimed_at > next.grant.claimed_at {
            report(Rule::Generation, format!("{high} is before {low} in the storage's time"));
        }
    }
}

/// C5.
fn stale_is_refused(task: &TaskHistory<'_>, report: Report<'_>) {
    let good = |it: &&&Event| matches!(it.answer, Answer::Ok(_));
    for event in task.extends.iter().chain(&task.resolves).filter(good) {
        let Some(granted) = task.grants.iter().find(|it| Some(&it.grant.token) == token_of(event))
        else {
            continue; // Its claim got lost; somebody else used the token.
        };
        let generation = granted.grant.generation;
        let superseded = task.grants.iter().any(|newer| {
            newer.grant.generation > generation && newer.event.precedes(event.invoked)
        });
        if superseded {
            report(Rule::StaleAccepted, format!("{:?} under {generation}", event.operation));
        }
        let cancelled = task.cancels.iter().any(|cancel| {
            matches!(cancel.answer, Answer::Ok(Outcome::Cancelled { changed: true, .. }))
                && cancel.precedes(event.invoked)
                && !cancel.precedes(granted.event.invoked)
                && !is_replay(event)
        });
        if cancelled {
            report(Rule::StaleAccepted, format!("{:?} after the cancellation", event.operation));
        }
        let spent = matches!(event.operation, Operation::Extend { .. })
            && task.resolves.iter().any(|resolve| {
                good(&resolve)
                    && token_of(resolve) == token_of(event)
                    && resolve.precedes(event.invoked)
            });
        if spent {
            report(Rule::StaleAccepted, format!("{generation} extended after its end"));
        }
    }
}

/// C5b, where the storage's instant of a call is known: a heartbeat's is its lease's end less the
/// lease.
fn lapsed_is_refused(task: &TaskHistory<'_>, report: Report<'_>) {
    for event in &task.extends {
        let Operation::Extend { token, lease, strict: true, .. } = &event.operation else {
            continue;
        };
        let Answer::Ok(Outcome::Extended { lease_expires_at }) = &event.answer else { continue };
        let Some(granted) = task.grants.iter().find(|it| it.grant.token == *token) else {
            continue;
        };
        let others = task.extends.iter().filter(|other| {
            other.invoked != event.invoked
                && token_of(other) == Some(token)
                && event.returned.is_none_or(|returned| other.invoked < returned)
        });
        let mut latest = granted.grant.lease_expires_at;
        let mut known = true;
        for other in others {
            match &other.answer {
                Answer::Ok(Outcome::Extended { lease_expires_at }) => {
                    latest = latest.max(*lease_expires_at);
                }
                _ => known = false,
            }
        }
        if known && latest.after(*lease) < *lease_expires_at {
            report(Rule::LapsedAccepted, format!("extended after {latest:?}"));
        }
    }
}

/// C6.
fn ends_once(task: &TaskHistory<'_>, end: Option<TaskStatus>, removed: bool, report: Report<'_>) {
    let first_ends: Vec<_> = task
        .resolves
        .iter()
        .filter(|it| matches!(it.answer, Answer::Ok(_)) && !is_replay(it))
        .collect();
    for (i, event) in first_ends.iter().enumerate() {
        if first_ends[..i].iter().any(|earlier| token_of(earlier) == token_of(event)) {
            report(Rule::EndedTwice, format!("{:?} with a spent token", event.operation));
        }
    }
    for replay in task.resolves.iter().filter(|event| is_replay(event)) {
        let first = task.resolves.iter().any(|other| {
            other.invoked != replay.invoked
                && call_of(other) == call_of(replay)
                && token_of(other) == token_of(replay)
                && !is_replay(other)
        });
        if !first {
            report(Rule::EndedTwice, format!("{:?} replays nothing", replay.operation));
        }
    }
    if removed {
        return; // The id may have had several lives.
    }
    for cancel in &task.cancels {
        let done = matches!(cancel.answer, Answer::Ok(Outcome::Cancelled { changed: true, .. }));
        if done && task.grants.iter().any(|granted| cancel.precedes(granted.event.invoked)) {
            report(Rule::EndedTwice, "claimed after its cancellation".into());
        }
    }
    let completions: Vec<_> =
        first_ends.iter().filter(|event| call_of(event) == Some(Call::Complete)).collect();
    if completions.len() > 1 {
        report(Rule::EndedTwice, format!("completed {} times", completions.len()));
    }
    for completion in completions {
        for granted in task.grants.iter().filter(|it| completion.precedes(it.event.invoked)) {
            let generation = granted.grant.generation;
            report(Rule::EndedTwice, format!("claimed as {generation} after its completion"));
        }
        if let Some(other) = end.filter(|status| *status != TaskStatus::Succeeded) {
            report(Rule::EndedTwice, format!("completed, and at the end {other:?}"));
        }
    }
}

/// C7.
fn never_early(task: &TaskHistory<'_>, doubts: &Doubts, report: Report<'_>) {
    let due = task.enqueues.iter().map(|event| match event.operation {
        Operation::Enqueue { due, .. } => due.unwrap_or(Timestamp::MIN),
        _ => Timestamp::MIN,
    });
    if let (Some(first), Some(due)) = (task.grants.first(), due.min())
        && first.grant.claimed_at < due
    {
        report(Rule::Early, format!("claimed at {:?}, due {due:?}", first.grant.claimed_at));
    }
    if doubts.expiries {
        return; // It may have died and been redriven in between.
    }
    for [first, next] in pairs(&task.grants) {
        let again = task.resolves.iter().find_map(|event| match &event.answer {
            Answer::Ok(Outcome::Resolved { next_attempt_at, .. })
                if token_of(event) == Some(&first.grant.token) =>
            {
                *next_attempt_at
            }
            _ => None,
        });
        if let Some(due) = again.filter(|due| next.grant.claimed_at < *due) {
            report(Rule::Early, format!("claimed at {:?}, due {due:?}", next.grant.claimed_at));
        }
    }
}

/// C8.
fn attempts_are_counted(
    task: &TaskHistory<'_>,
    doubts: &Doubts,
    truth: &Truth,
    report: Report<'_>,
) {
    for granted in &task.grants {
        let spent = granted.grant.attempt_count;
        if truth.max_attempts.is_some_and(|max| spent >= max) {
            report(Rule::Attempts, format!("claimed after {spent} attempts"));
        }
    }
    for [first, next] in pairs(&task.grants) {
        let released = task.resolves.iter().any(|event| {
            call_of(event) == Some(Call::Release) && token_of(event) == Some(&first.grant.token)
        });
        let (low, high) = (first.grant.attempt_no, next.grant.attempt_no);
        let grown = high > low || (high == low && released);
        let by_one = high <= low + 1 || doubts.claims || doubts.expiries;
        if !grown || !by_one {
            report(Rule::Attempts, format!("attempt {low}, then {high}"));
        }
    }
}

fn pairs<'a, 'b>(grants: &'a [Granted<'b>]) -> impl Iterator<Item = [&'a Granted<'b>; 2]> {
    grants.windows(2).map(|pair| [&pair[0], &pair[1]])
}

fn token_of(event: &Event) -> Option<&ClaimToken> {
    match &event.operation {
        Operation::Extend { token, .. } | Operation::Resolve { token, .. } => Some(token),
        _ => None,
    }
}

fn call_of(event: &Event) -> Option<Call> {
    match event.operation {
        Operation::Resolve { call, .. } => Some(call),
        _ => None,
    }
}

fn is_replay(event: &Event) -> bool {
    matches!(event.answer, Answer::Ok(Outcome::Resolved { replayed: true, .. }))
}
