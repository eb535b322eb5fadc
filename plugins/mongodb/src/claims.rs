//! Claims: candidates are read, and those that nobody else took meanwhile are taken, for all claims
//! of a call by one command, each under a new generation.

use crate::{
    candidates::{Candidate, Front, due, front},
    changes::{Change, FOLDED_AT, apply, fits, folded, number, whole_history},
    database::{Db, TRIES_MAX, literal, pause},
    document::{IN_FLIGHT, TaskDocument, date, millis},
    errors::{Access, Failure, Step},
    history::{LEASE_EXPIRED, LEASE_EXPIRED_MESSAGE},
    numbers::{Drawn, Numbers, draw},
    token::{Held, StoreId},
};
use futures::{future::try_join_all, try_join};
use mongodb::bson::{Bson, Document, doc};
use rdq_spi::{
    AttemptError, CLAIM_ATTEMPTS_MAX, Claim, ClaimParams, ClaimQueue, Claimed, HISTORY_RECORDS_MAX,
    QueueName, Timestamp,
};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// One call never takes more than this, whatever its limits.
const CANDIDATES_MAX: usize = 1_000;

/// Serves claims, each with what is due of each of its queues in turn: one look at the queues, and
/// one command that takes, however many claims and tasks there are.
pub(crate) async fn claim_due(
    db: &Db,
    store_id: StoreId,
    claims: &[ClaimParams],
) -> Step<Vec<Claimed>> {
    let queues: HashSet<_> = claims.iter().flat_map(|it| &it.queues).map(|it| &it.queue).collect();
    let mut tries = 0;
    loop {
        tries += 1;
        let fronts = fronts(db, &queues).await?;
        if !fronts.values().any(Front::is_due) {
            return Ok(claims.iter().map(|params| answer(params, &fronts, Vec::new())).collect());
        }
        let (picked, drawn) =
            try_join!(pick(db, claims, &fronts), draw(db, Numbers::Claims, claims.len()))?;
        let Taken { count, refused } = take(db, claims, &picked, &drawn).await?;
        let late = |failure: Failure| if count > 0 { failure.after_a_write() } else { failure };
        if count > 0 || refused.is_some() {
            let given = read_back(db, store_id, claims, &picked, drawn.first);
            let read = try_join!(given, self::fronts(db, &queues));
            let (mut given, fronts) = read.map_err(late)?;
            if !given.is_empty() {
                let answers = claims.iter().enumerate().map(|(claim, params)| {
                    answer(params, &fronts, given.remove(&claim).unwrap_or_default())
                });
                return Ok(answers.collect());
            }
        }
        match refused {
            Some(failure) if !matches!(failure, Failure::Contention) => return Err(late(failure)),
            _ if tries < TRIES_MAX => pause(tries).await,
            // Others take all that is due; there may be more.
            _ => return Ok(claims.iter().map(|it| answer(it, &fronts, Vec::new())).collect()),
        }
    }
}

/// How each queue stands.
type Fronts<'c> = HashMap<&'c QueueName, Front>;

async fn fronts<'c>(db: &Db, queues: &HashSet<&'c QueueName>) -> Step<Fronts<'c>> {
    let fronts = queues.iter().map(|queue| async { Ok((*queue, front(db, queue).await?)) });
    Ok(try_join_all(fronts).await?.into_iter().collect())
}

fn answer(params: &ClaimParams, fronts: &Fronts<'_>, claims: Vec<Claim>) -> Claimed {
    let fronts = params.queues.iter().filter_map(|from| fronts.get(&from.queue));
    Claimed { claims, next_due_in: fronts.filter_map(Front::due_in).min() }
}

/// A candidate, for which claim of the call, and for which of that claim's queues.
struct Picked {
    candidate: Candidate,
    claim: usize,
    place: usize,
}

/// For each claim one task of each of its queues in turn, as long as they fit.
async fn pick(db: &Db, claims: &[ClaimParams], fronts: &Fronts<'_>) -> Step<Vec<Picked>> {
    let due = fronts.iter().filter(|(_, front)| front.is_due()).map(|(queue, front)| async {
        let theirs = claims.iter().filter(|it| it.queues.iter().any(|from| from.queue == **queue));
        let limit = theirs.map(|it| it.limit as usize).fold(0, usize::saturating_add);
        let found = due(db, queue, front, limit.min(CANDIDATES_MAX)).await?;
        Ok((*queue, VecDeque::from(found)))
    });
    let mut due: HashMap<_, _> = try_join_all(due).await?.into_iter().collect();
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
                picked.extend(candidates.pop_front().map(|it| Picked {
                    candidate: it,
                    claim,
                    place,
                }));
                count += 1;
                still.push(place);
            }
            turns = still;
        }
    }
    Ok(picked)
}

/// What was taken.
struct Taken {
    count: i64,
    /// A statement that failed has perhaps taken some of its tasks, and they are not counted.
    refused: Option<Failure>,
}

/// Takes those that are still due and unclaimed, each claim under a generation of its own.
async fn take(db: &Db, claims: &[ClaimParams], picked: &[Picked], drawn: &Drawn) -> Step<Taken> {
    let mut of_queue: BTreeMap<(usize, usize), (Vec<&str>, Vec<i64>)> = BTreeMap::new();
    for Picked { candidate, claim, place } in picked {
        let (ids, seqs) = of_queue.entry((*claim, *place)).or_default();
        ids.push(&candidate.id);
        seqs.push(candidate.seq);
    }
    // The server's clock as the command begins, unless it was set back.
    let now = doc! { "$max": ["$$NOW", date(drawn.now)] };
    let statements: Vec<_> = of_queue
        .into_iter()
        .map(|((claim, place), (ids, seqs))| {
            let (params, generation) = (&claims[claim], generation(drawn.first, claim));
            doc! {
                "q": {
                    "_id": { "$in": ids }, "seq": { "$in": seqs }, "live": true,
                    // A later claim is never undone by an earlier one that comes late.
                    "generation": { "$lt": generation },
                    "$expr": { "$lte": ["$at", &now] },
                },
                "u": [{ "$set": taking(params, &params.queues[place], generation, &now) }],
                "multi": true,
            }
        })
        .collect();
    if statements.is_empty() {
        return Ok(Taken { count: 0, refused: None });
    }
    let command = doc! { "update": "tasks", "updates": statements, "ordered": false };
    let reply = db.write(command).await?;
    let refused = reply.get_array("writeErrors").ok().and_then(|errors| errors.first());
    let refused = refused.and_then(Bson::as_document).map(|error| {
        let code = i32::try_from(number(error, "code")).unwrap_or_default();
        let message = error.get_str("errmsg").unwrap_or_default();
        Failure::of_code(code, Access::Write, message.into())
    });
    Ok(Taken { count: number(&reply, "n"), refused })
}

/// What a claim makes of a task. A lapsed claim becomes a record of the history.
fn taking(params: &ClaimParams, from: &ClaimQueue, generation: i64, now: &Document) -> Document {
    let lease = match params.lease {
        Some(lease) => Bson::Int64(millis(lease)),
        None => doc! { "$ifNull": ["$lease_ms", millis(from.lease)] }.into(),
    };
    let lease = doc! { "$min": [lease, millis(from.lease_max)] };
    let ends = doc! { "$min": [{ "$add": [now, lease] }, date(Timestamp::MAX)] };
    let if_lapsed = |then: Bson, otherwise: &str| {
        doc! { "$cond": [{ "$eq": ["$status", IN_FLIGHT] }, then, otherwise] }
    };
    let one_more = |field: &str| -> Bson {
        doc! { "$min": [{ "$add": [field, 1_i64] }, i64::from(u32::MAX)] }.into()
    };
    let text = AttemptError::LEASE_EXPIRED.len() + LEASE_EXPIRED_MESSAGE.len();
    let text = i64::try_from(text).unwrap_or(i64::MAX);
    let weight = doc! { "$toLong": { "$add": [{ "$strLenBytes": "$claimed_by" }, text] } };
    let record = doc! {
        "no": one_more("$last_attempt_no"),
        "started": "$claimed_at",
        "finished": now,
        "outcome": LEASE_EXPIRED,
        "worker": "$claimed_by",
        "error": {
            "type": literal(AttemptError::LEASE_EXPIRED),
            "message": literal(LEASE_EXPIRED_MESSAGE),
            "detail": "",
            "stack": "",
        },
        "folded": 0_i64,
        "bytes": &weight,
        "light_bytes": &weight,
    };
    let is_full = doc! { "$gte": ["$records", i64::from(HISTORY_RECORDS_MAX)] };
    let appended = doc! { "$concatArrays": [
        { "$cond": [&is_full, folded(), "$attempts"] },
        [record],
    ] };
    let gone = doc! { "$cond": [
        &is_full,
        { "$arrayElemAt": ["$attempts.bytes", i64::from(FOLDED_AT)] },
        0_i64,
    ] };
    let records =
        doc! { "$min": [{ "$add": ["$records", 1_i64] }, i64::from(HISTORY_RECORDS_MAX)] };
    let history_bytes = doc! { "$subtract": [{ "$add": ["$history_bytes", &weight] }, gone] };
    doc! {
        "status": IN_FLIGHT,
        "generation": generation,
        "revision": { "$add": ["$revision", 1_i64] },
        "at": ends,
        "claimed_at": now,
        "claimed_by": literal(params.worker_id.as_str()),
        "ending": "$$REMOVE",
        "attempts": if_lapsed(appended.into(), "$attempts"),
        "records": if_lapsed(records.into(), "$records"),
        "history_bytes": if_lapsed(history_bytes.into(), "$history_bytes"),
        "attempt_count": if_lapsed(one_more("$attempt_count"), "$attempt_count"),
        "last_attempt_no": if_lapsed(one_more("$last_attempt_no"), "$last_attempt_no"),
        "lease_expired_count":
            if_lapsed(one_more("$lease_expired_count"), "$lease_expired_count"),
    }
}

/// The generation of a claim of the call whose first is of this one.
fn generation(first: i64, claim: usize) -> i64 {
    first.saturating_add(i64::try_from(claim).unwrap_or(i64::MAX))
}

/// The tasks that are now of these generations, by claim, in the order in which they were picked.
async fn read_back(
    db: &Db,
    store_id: StoreId,
    claims: &[ClaimParams],
    picked: &[Picked],
    first: i64,
) -> Step<HashMap<usize, Vec<Claim>>> {
    let ids: Vec<_> = picked.iter().map(|it| it.candidate.id.as_str()).collect();
    let newest = i64::try_from(CLAIM_ATTEMPTS_MAX).unwrap_or(i64::MAX);
    let generations = doc! { "$gte": first, "$lt": generation(first, claims.len()) };
    let pipeline = vec![
        doc! { "$match": { "_id": { "$in": ids }, "generation": generations } },
        doc! { "$set": { "attempts": { "$slice": ["$attempts", -newest] } } },
        doc! { "$unset": ["attempts.error.stack", "attempts.error.detail"] },
    ];
    let taken: Vec<TaskDocument> = db.read(pipeline).await?;
    bound_histories(db, &taken).await;
    let mut taken: HashMap<_, _> = taken.into_iter().map(|task| (task.id.clone(), task)).collect();
    let mut given: HashMap<usize, Vec<Claim>> = HashMap::new();
    for Picked { candidate, claim, place } in picked {
        let generation = generation(first, *claim);
        let Some(task) = taken.remove(&candidate.id) else { continue };
        // Its holder is not known to anybody yet: only a sweep or a cancellation can have ended it.
        if task.status != IN_FLIGHT || task.generation != generation {
            continue;
        }
        let (params, from) = (&claims[*claim], &claims[*claim].queues[*place]);
        let lease = params.lease.or(task.overrides.read().lease).unwrap_or(from.lease);
        let token = store_id.token(Held { seq: task.seq, generation });
        let (task, lease) = (task.into_task()?, lease.min(from.lease_max));
        given.entry(*claim).or_default().push(Claim { task, token, generation, lease });
    }
    Ok(given)
}

/// A record of a lapsed lease is small, but a history may have been full. If this fails, the next
/// transition does it.
async fn bound_histories(db: &Db, taken: &[TaskDocument]) {
    for task in taken.iter().filter(|task| !fits(task.history_bytes)) {
        let bound = async {
            let mut change = Change::in_place(task);
            change.replace_history(whole_history(db, &task.id, task.seq).await?)?;
            apply(db, vec![change]).await
        };
        if let Err(failure) = bound.await {
            tracing::debug!(?failure, "a history is a little over its bound");
        }
    }
}
