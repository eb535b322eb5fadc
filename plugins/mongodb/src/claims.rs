//! Claims: what is due is found and judged, and taken for all claims of a call by one command, under
//! a new generation. What others took or changed meanwhile is theirs.

use crate::{
    candidates::{Candidate, Front, due, front},
    changes::{Applied, Change, apply, first_error, number},
    database::{Db, TRIES_MAX, pause, random},
    document::{IN_FLIGHT, PENDING, TaskDocument, date, one_more},
    errors::{Access, Failure, Step},
    history::lapsed,
    token::{Held, StoreId},
};
use futures::future::try_join_all;
use mongodb::bson::{Document, doc};
use rdq_spi::{
    AttemptOutcome, CLAIM_ATTEMPTS_MAX, Claim, ClaimParams, ClaimQueue, Claimed, QueueName,
    Timestamp,
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

/// One call never takes more than this, whatever its limits.
pub(crate) const CANDIDATES_MAX: usize = 1_000;

/// Serves claims, each with what is due of each of its queues in turn: one look at the queues, and
/// one command that takes, however many claims and tasks there are.
pub(crate) async fn claim_due(
    db: &Db,
    store_id: StoreId,
    claims: &[ClaimParams],
) -> Step<Vec<Claimed>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut due = look(db, claims, tries).await?;
        let picked = pick(claims, &mut due);
        let mut given = HashMap::new();
        if !picked.is_empty() {
            given = take(db, store_id, claims, picked).await?;
            if given.is_empty() && tries < TRIES_MAX {
                pause(tries).await;
                continue;
            }
        }
        // Where others take all that is due there may be more.
        let waits = waits(db, claims, &due).await;
        let late =
            |failure: Failure| if given.is_empty() { failure } else { failure.after_a_write() };
        let waits = waits.map_err(late)?;
        let answers = claims.iter().enumerate().map(|(claim, params)| {
            let waits = params.queues.iter().filter_map(|from| waits.get(&from.queue).copied());
            let claims = given.remove(&claim).unwrap_or_default();
            Claimed { claims, next_due_in: waits.min() }
        });
        return Ok(answers.collect());
    }
}

/// What is due of each queue, and was not picked.
type Due<'c> = HashMap<&'c QueueName, VecDeque<Candidate>>;

/// As much of each queue as its claims may take, and one more, which tells that more is due. Those
/// that lost all to each other look further from try to try and begin somewhere, as if what others
/// are about to take were not there.
async fn look<'c>(db: &Db, claims: &'c [ClaimParams], tries: u32) -> Step<Due<'c>> {
    let mut limits: HashMap<&QueueName, usize> = HashMap::new();
    for params in claims {
        for from in &params.queues {
            let limit = limits.entry(&from.queue).or_default();
            *limit = limit.saturating_add(params.limit as usize).min(CANDIDATES_MAX);
        }
    }
    let found = limits.into_iter().map(|(queue, limit)| async move {
        let further = limit.saturating_mul(1 << (tries - 1).min(8)).min(CANDIDATES_MAX);
        let mut found = VecDeque::from(due(db, queue, further + 1).await?);
        if tries > 1 {
            let surplus = u64::try_from(found.len().saturating_sub(limit)).unwrap_or_default();
            let skipped = usize::try_from(random() % (surplus + 1)).unwrap_or_default();
            found.drain(..skipped);
        }
        Ok::<_, Failure>((queue, found))
    });
    Ok(try_join_all(found).await?.into_iter().collect())
}

/// How long until something is due, by queue.
async fn waits<'c>(
    db: &Db,
    claims: &'c [ClaimParams],
    due: &Due<'_>,
) -> Step<HashMap<&'c QueueName, Duration>> {
    let queues: HashSet<_> = claims.iter().flat_map(|it| &it.queues).map(|it| &it.queue).collect();
    let waits = queues.into_iter().map(|queue| async move {
        let has_more = due.get(queue).is_some_and(|rest| !rest.is_empty());
        let due_in =
            if has_more { Some(Duration::ZERO) } else { Front::due_in(&front(db, queue).await?) };
        Ok::<_, Failure>(due_in.map(|due_in| (queue, due_in)))
    });
    Ok(try_join_all(waits).await?.into_iter().flatten().collect())
}

/// A candidate, and for which claim of the call.
struct Picked {
    task: TaskDocument,
    is_whole: bool,
    claim: usize,
    lease: Duration,
}

/// For each claim one task of each of its queues in turn, as long as they fit.
fn pick(claims: &[ClaimParams], due: &mut Due<'_>) -> Vec<Picked> {
    let mut picked = Vec::new();
    for (claim, params) in claims.iter().enumerate() {
        let (mut count, mut bytes) = (0, 0_usize);
        let mut turns: Vec<&ClaimQueue> = params.queues.iter().collect();
        'full: while !turns.is_empty() {
            let mut still = Vec::with_capacity(turns.len());
            for from in turns {
                let Some(candidates) = due.get_mut(&from.queue) else { continue };
                let Some(first) = candidates.front() else { continue };
                bytes = bytes.saturating_add(usize::try_from(first.bytes).unwrap_or(usize::MAX));
                let is_full = count == params.limit || (count > 0 && bytes > params.bytes_max);
                if is_full || picked.len() == CANDIDATES_MAX {
                    break 'full;
                }
                picked.extend(candidates.pop_front().map(
                    |Candidate { task, is_whole, .. }| {
                        let lease = lease_of(&task, params, from);
                        Picked { task, is_whole, claim, lease }
                    },
                ));
                count += 1;
                still.push(from);
            }
            turns = still;
        }
    }
    picked
}

/// The lease that the worker asks for; else the task's own, else the queue's.
fn lease_of(task: &TaskDocument, params: &ClaimParams, from: &ClaimQueue) -> Duration {
    let lease = params.lease.or(task.overrides.read().lease).unwrap_or(from.lease);
    lease.min(from.lease_max)
}

/// What the claims of one call have in common.
struct Call {
    /// Above that of each earlier claim of each task.
    generation: i64,
    /// Tells its claims from others' of the same generation.
    mark: i64,
    now: Timestamp,
}

/// A task that was taken, as it is then.
struct Taken {
    task: TaskDocument,
    lease: Duration,
}

/// Takes those that nobody changes meanwhile; answers them by claim, in the order in which they were
/// picked.
async fn take(
    db: &Db,
    store_id: StoreId,
    claims: &[ClaimParams],
    picked: Vec<Picked>,
) -> Step<HashMap<usize, Vec<Claim>>> {
    let now = db.clock.latest();
    let above = picked.iter().map(|it| it.task.generation.max(it.task.seq)).max();
    let generation = db.numbering.claim(now, above.unwrap_or_default());
    let call = Call { generation, mark: random().cast_signed(), now };
    let order: Vec<_> = picked.iter().map(|it| (it.task.id.clone(), it.claim)).collect();
    let (alike, rest): (Vec<_>, Vec<_>) =
        picked.into_iter().partition(|it| it.task.status == PENDING);
    let mut taken = HashMap::new();
    if !alike.is_empty() {
        take_alike(db, claims, &call, alike, &mut taken).await?;
    }
    if !rest.is_empty() {
        let late =
            |failure: Failure| if taken.is_empty() { failure } else { failure.after_a_write() };
        let more = take_each(db, claims, &call, rest).await.map_err(late)?;
        taken.extend(more);
    }
    let mut given: HashMap<usize, Vec<Claim>> = HashMap::new();
    for (id, claim) in order {
        let Some(Taken { task, lease }) = taken.remove(&id) else { continue };
        let proof = store_id.token(Held { seq: task.seq, generation });
        let task = task.into_task().map_err(Failure::after_a_write)?;
        given.entry(claim).or_default().push(Claim { task, token: proof, generation, lease });
    }
    Ok(given)
}

/// Takes pending tasks, all of one worker and lease by one statement: a statement for each would take
/// the server several times as long. If the server counts as many as were picked, all were taken; if
/// not, the mark tells which.
async fn take_alike(
    db: &Db,
    claims: &[ClaimParams],
    call: &Call,
    picked: Vec<Picked>,
    taken: &mut HashMap<String, Taken>,
) -> Step<()> {
    let mut groups: HashMap<(&str, Duration, bool), Vec<&TaskDocument>> = HashMap::new();
    for Picked { task, is_whole, claim, lease } in &picked {
        let worker = claims[*claim].worker_id.as_str();
        groups.entry((worker, *lease, *is_whole)).or_default().push(task);
    }
    let statements: Vec<_> = groups
        .iter()
        .map(|((worker, lease, is_whole), tasks)| statement(call, worker, *lease, *is_whole, tasks))
        .collect();
    let command = doc! { "update": "tasks", "updates": statements, "ordered": false };
    let reply = db.write(command).await?;
    match first_error(&reply, Access::Write) {
        // It may have taken some before it met another writer.
        None | Some(Failure::Contention) => {}
        Some(error) => return Err(error.after_a_write()),
    }
    let are_all = usize::try_from(number(&reply, "n")).is_ok_and(|count| count == picked.len());
    let (known, unknown): (Vec<_>, Vec<_>) =
        picked.into_iter().partition(|it| are_all && it.is_whole);
    for Picked { mut task, claim, lease, .. } in known {
        become_held(&mut task, call, claims[claim].worker_id.as_str(), lease);
        taken.insert(task.id.clone(), Taken { task, lease });
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let mut found = read(db, &unknown).await.map_err(Failure::after_a_write)?;
    for Picked { task: TaskDocument { id, .. }, lease, .. } in unknown {
        let is_ours = |task: &TaskDocument| {
            (task.generation, task.mark) == (call.generation, Some(call.mark))
                && task.status == IN_FLIGHT
        };
        if let Some(task) = found.remove(&id).filter(is_ours) {
            taken.insert(id, Taken { task, lease });
        }
    }
    Ok(())
}

/// Takes the pending ones of these tasks, if they are still those that were seen: what the answer has
/// of a whole one has not changed either.
fn statement(
    call: &Call,
    worker: &str,
    lease: Duration,
    is_whole: bool,
    tasks: &[&TaskDocument],
) -> Document {
    let ids: Vec<_> = tasks.iter().map(|task| task.id.as_str()).collect();
    let admissions: Vec<_> = tasks.iter().map(|task| task.seq).collect();
    let mut wanted = doc! {
        "_id": { "$in": ids }, "seq": { "$in": admissions },
        "status": PENDING, "at": { "$lte": date(call.now) },
        // Another claim may have had its generation later, and be over already.
        "generation": { "$lt": call.generation },
    };
    if is_whole {
        wanted.insert("revision", 0_i64);
    }
    let change = doc! {
        "$set": {
            "status": IN_FLIGHT,
            "generation": call.generation,
            "mark": call.mark,
            "at": date(call.now.after(lease)),
            "claimed_at": date(call.now),
            "claimed_by": worker,
        },
        "$inc": { "revision": 1_i64 },
        "$unset": { "ending": "" },
    };
    doc! { "q": wanted, "u": change, "multi": true, "hint": { "_id": 1 } }
}

fn become_held(task: &mut TaskDocument, call: &Call, worker: &str, lease: Duration) {
    task.status = IN_FLIGHT;
    task.generation = call.generation;
    task.at = Some(date(call.now.after(lease)));
    task.claimed_at = Some(date(call.now));
    task.claimed_by = Some(worker.to_owned());
}

/// Takes tasks of which each becomes something of its own: a claim that lapsed is a record of their
/// history.
async fn take_each(
    db: &Db,
    claims: &[ClaimParams],
    call: &Call,
    picked: Vec<Picked>,
) -> Step<HashMap<String, Taken>> {
    let mut tasks = read(db, &picked).await?;
    let (mut changes, mut becoming) = (Vec::new(), Vec::new());
    for Picked { task: seen, claim, lease, .. } in picked {
        let is_due = |it: &TaskDocument| {
            it.seq == seen.seq
                && it.live
                && it.has_lapsed(call.now)
                && it.generation < call.generation
        };
        let Some(mut task) = tasks.remove(&seen.id).filter(is_due) else { continue };
        let worker = claims[claim].worker_id.as_str();
        changes.push(taking(&mut task, call, worker, lease)?);
        becoming.push((seen.id, Taken { task, lease }));
    }
    let applied = apply(db, changes).await?;
    let done = becoming.into_iter().zip(applied).filter(|(_, applied)| *applied == Applied::Done);
    Ok(done.map(|(taken, _)| taken).collect())
}

/// The picked as they are, with as much of their histories as a claim has.
async fn read(db: &Db, picked: &[Picked]) -> Step<HashMap<String, TaskDocument>> {
    let ids: Vec<_> = picked.iter().map(|it| it.task.id.as_str()).collect();
    let newest = i64::try_from(CLAIM_ATTEMPTS_MAX).unwrap_or(i64::MAX);
    let pipeline = vec![
        doc! { "$match": { "_id": { "$in": ids } } },
        doc! { "$set": { "attempts": { "$slice": ["$attempts", -newest] } } },
        doc! { "$unset": ["attempts.error.stack", "attempts.error.detail"] },
    ];
    let found: Vec<TaskDocument> = db.read_recent(pipeline).await?;
    Ok(found.into_iter().map(|task| (task.id.clone(), task)).collect())
}

/// The claim of a task that may have lapsed: the change, which the task becomes as well.
fn taking(task: &mut TaskDocument, call: &Call, worker: &str, lease: Duration) -> Step<Change> {
    let mut change = Change::of(task);
    change.while_unkept(task);
    if task.status == IN_FLIGHT {
        let record = change.append(task, AttemptOutcome::LeaseExpired, lapsed(), call.now)?;
        task.attempts.push(record);
        let surplus = task.attempts.len().saturating_sub(CLAIM_ATTEMPTS_MAX);
        task.attempts.drain(..surplus);
        task.attempt_count = one_more(task.attempt_count);
        task.last_attempt_no = one_more(task.last_attempt_no);
        task.lease_expired_count = one_more(task.lease_expired_count);
        change.set("lease_expired_count", task.lease_expired_count);
    }
    become_held(task, call, worker, lease);
    change.set("status", task.status);
    change.set("generation", task.generation);
    change.set("at", task.at);
    change.set("claimed_at", task.claimed_at);
    change.set("claimed_by", worker);
    change.unset("ending");
    Ok(change)
}
