//! Claims: what is due is found, read and judged, and taken for all claims of a call by one command,
//! each under a new generation. What others took or changed meanwhile is theirs.

use crate::{
    candidates::{Candidate, Front, due, front},
    changes::{Applied, Change, apply, first_error},
    database::{Db, TRIES_MAX, pause, random},
    document::{IN_FLIGHT, PENDING, TaskDocument, date, one_more},
    errors::{Failure, Step},
    history::lapsed,
    numbers::{Drawn, Numbers, draw},
    token::{Held, StoreId},
};
use futures::future::try_join_all;
use mongodb::bson::doc;
use rdq_spi::{
    AttemptOutcome, CLAIM_ATTEMPTS_MAX, Claim, ClaimParams, ClaimQueue, Claimed, QueueName,
    Timestamp,
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

/// One call never takes more than this, whatever its limits.
const CANDIDATES_MAX: usize = 1_000;

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

/// A candidate, for which claim of the call, and for which of that claim's queues.
struct Picked {
    id: String,
    claim: usize,
    place: usize,
    /// It was pending, and its lease will be what the claim or the queue says: then its claim is the
    /// same change as that of all others like it.
    is_plain: bool,
}

/// For each claim one task of each of its queues in turn, as long as they fit.
fn pick(claims: &[ClaimParams], due: &mut Due<'_>) -> Vec<Picked> {
    let mut picked = Vec::new();
    for (claim, params) in claims.iter().enumerate() {
        let (mut count, mut bytes) = (0, 0_usize);
        let mut turns: Vec<usize> = (0..params.queues.len()).collect();
        'full: while !turns.is_empty() {
            let mut still = Vec::with_capacity(turns.len());
            for place in turns {
                let candidates = due.get_mut(&params.queues[place].queue);
                let Some(candidates) = candidates.filter(|it| !it.is_empty()) else { continue };
                let next = usize::try_from(candidates[0].bytes).unwrap_or(usize::MAX);
                bytes = bytes.saturating_add(next);
                let is_full = count == params.limit || (count > 0 && bytes > params.bytes_max);
                if is_full || picked.len() == CANDIDATES_MAX {
                    break 'full;
                }
                let first = candidates.pop_front();
                picked.extend(first.map(|it| {
                    let is_plain =
                        it.status == PENDING && (params.lease.is_some() || !it.has_lease);
                    Picked { id: it.id, claim, place, is_plain }
                }));
                count += 1;
                still.push(place);
            }
            turns = still;
        }
    }
    picked
}

/// Takes those that nobody changes meanwhile; answers them by claim, in the order in which they were
/// picked.
async fn take(
    db: &Db,
    store_id: StoreId,
    claims: &[ClaimParams],
    picked: Vec<Picked>,
) -> Step<HashMap<usize, Vec<Claim>>> {
    let drawn = draw(db, Numbers::Claims, claims.len()).await?;
    let order: Vec<_> = picked.iter().map(|it| (it.id.clone(), it.claim)).collect();
    let (plain, rest): (Vec<_>, Vec<_>) = picked.into_iter().partition(|it| it.is_plain);
    let mut taken = HashMap::new();
    if !plain.is_empty() {
        take_alike(db, claims, plain, drawn, &mut taken).await?;
    }
    if !rest.is_empty() {
        let late =
            |failure: Failure| if taken.is_empty() { failure } else { failure.after_a_write() };
        let more = take_each(db, claims, rest, drawn).await.map_err(late)?;
        taken.extend(more);
    }
    let mut given: HashMap<usize, Vec<Claim>> = HashMap::new();
    for (id, claim) in order {
        let Some(Taken { task, generation, lease }) = taken.remove(&id) else { continue };
        let proof = store_id.token(Held { seq: task.seq, generation });
        let task = task.into_task().map_err(Failure::after_a_write)?;
        given.entry(claim).or_default().push(Claim { task, token: proof, generation, lease });
    }
    Ok(given)
}

/// A task that was taken, as it is then.
struct Taken {
    task: TaskDocument,
    generation: i64,
    lease: Duration,
}

/// The generation of one of the claims of a call.
fn generation_of(drawn: Drawn, claim: usize) -> i64 {
    drawn.first.saturating_add(i64::try_from(claim).unwrap_or(i64::MAX))
}

/// Takes pending tasks, all of one claim and queue by one statement: a statement for each would take
/// the server several times as long. Which it took, the generation tells, which nobody else has.
async fn take_alike(
    db: &Db,
    claims: &[ClaimParams],
    picked: Vec<Picked>,
    drawn: Drawn,
    taken: &mut HashMap<String, Taken>,
) -> Step<()> {
    let mut groups: HashMap<(usize, usize), Vec<&str>> = HashMap::new();
    for it in &picked {
        groups.entry((it.claim, it.place)).or_default().push(&it.id);
    }
    let lease_of = |claim: usize, place: usize| {
        let (params, from) = (&claims[claim], &claims[claim].queues[place]);
        params.lease.unwrap_or(from.lease).min(from.lease_max)
    };
    let statement = |((claim, place), ids): (&(usize, usize), &Vec<&str>)| {
        let now = date(drawn.now);
        doc! {
            "q": {
                "_id": { "$in": ids }, "queue": claims[*claim].queues[*place].queue.as_str(),
                "status": PENDING, "at": { "$lte": now },
                // Another claim may have drawn its generation later, and be over already.
                "generation": { "$lt": generation_of(drawn, *claim) },
            },
            "u": {
                "$set": {
                    "status": IN_FLIGHT,
                    "generation": generation_of(drawn, *claim),
                    "at": date(drawn.now.after(lease_of(*claim, *place))),
                    "claimed_at": now,
                    "claimed_by": claims[*claim].worker_id.as_str(),
                },
                "$inc": { "revision": 1_i64 },
                "$unset": { "ending": "" },
            },
            "multi": true,
        }
    };
    let statements: Vec<_> = groups.iter().map(statement).collect();
    let command = doc! { "update": "tasks", "updates": statements, "ordered": false };
    let reply = db.write(command).await?;
    if let Some(error) = first_error(&reply) {
        return Err(error.after_a_write());
    }
    let mut found = read(db, &picked).await.map_err(Failure::after_a_write)?;
    for Picked { id, claim, place, .. } in picked {
        let generation = generation_of(drawn, claim);
        let is_ours =
            |task: &TaskDocument| task.generation == generation && task.status == IN_FLIGHT;
        if let Some(task) = found.remove(&id).filter(is_ours) {
            taken.insert(id, Taken { task, generation, lease: lease_of(claim, place) });
        }
    }
    Ok(())
}

/// Takes tasks of which each becomes something of its own.
async fn take_each(
    db: &Db,
    claims: &[ClaimParams],
    picked: Vec<Picked>,
    drawn: Drawn,
) -> Step<HashMap<String, Taken>> {
    let mut tasks = read(db, &picked).await?;
    let (mut changes, mut becoming) = (Vec::new(), Vec::new());
    for Picked { id, claim, place, .. } in picked {
        let Some(task) = tasks.remove(&id).filter(|it| it.live && it.has_lapsed(drawn.now)) else {
            continue;
        };
        let generation = generation_of(drawn, claim);
        let (params, from) = (&claims[claim], &claims[claim].queues[place]);
        let (change, task, lease) = taking(task, params, from, generation, drawn.now)?;
        changes.push(change);
        becoming.push((id, Taken { task, generation, lease }));
    }
    let applied = apply(db, changes).await?;
    let done = becoming.into_iter().zip(applied).filter(|(_, applied)| *applied == Applied::Done);
    Ok(done.map(|(taken, _)| taken).collect())
}

/// The picked as they are, with as much of their histories as a claim has.
async fn read(db: &Db, picked: &[Picked]) -> Step<HashMap<String, TaskDocument>> {
    let ids: Vec<_> = picked.iter().map(|it| it.id.as_str()).collect();
    let newest = i64::try_from(CLAIM_ATTEMPTS_MAX).unwrap_or(i64::MAX);
    let pipeline = vec![
        doc! { "$match": { "_id": { "$in": ids } } },
        doc! { "$set": { "attempts": { "$slice": ["$attempts", -newest] } } },
        doc! { "$unset": ["attempts.error.stack", "attempts.error.detail"] },
    ];
    let found: Vec<TaskDocument> = db.read_recent(pipeline).await?;
    Ok(found.into_iter().map(|task| (task.id.clone(), task)).collect())
}

/// The claim of a task: its change, what the task is then, and the lease. A claim that lapsed becomes
/// a record of the history.
fn taking(
    mut task: TaskDocument,
    params: &ClaimParams,
    from: &ClaimQueue,
    generation: i64,
    now: Timestamp,
) -> Step<(Change, TaskDocument, Duration)> {
    let lease = params.lease.or(task.overrides.read().lease).unwrap_or(from.lease);
    let lease = lease.min(from.lease_max);
    let mut change = Change::of(&task);
    change.while_unkept(&task);
    if task.status == IN_FLIGHT {
        let record = change.append(&task, AttemptOutcome::LeaseExpired, lapsed(), now)?;
        task.attempts.push(record);
        let surplus = task.attempts.len().saturating_sub(CLAIM_ATTEMPTS_MAX);
        task.attempts.drain(..surplus);
        task.attempt_count = one_more(task.attempt_count);
        task.last_attempt_no = one_more(task.last_attempt_no);
        task.lease_expired_count = one_more(task.lease_expired_count);
        change.set("lease_expired_count", task.lease_expired_count);
    }
    task.status = IN_FLIGHT;
    task.at = Some(date(now.after(lease)));
    task.claimed_at = Some(date(now));
    task.claimed_by = Some(params.worker_id.as_str().to_owned());
    change.set("status", task.status);
    change.set("generation", generation);
    change.set("at", task.at);
    change.set("claimed_at", task.claimed_at);
    change.set("claimed_by", params.worker_id.as_str());
    change.unset("ending");
    Ok((change, task, lease))
}
