//! Claims: candidates are read, and those that nobody else took meanwhile are taken, all by one
//! command, under one new generation.

use crate::{
    candidates::{Candidate, Front, due, front},
    changes::{Change, apply, fits, number, whole_history},
    database::{Db, TRIES_MAX, literal, pause},
    document::{IN_FLIGHT, TaskDocument, date, millis},
    errors::{Failure, Step},
    history::{LEASE_EXPIRED, LEASE_EXPIRED_MESSAGE},
    numbers::{Numbers, draw},
    token::{Held, StoreId},
};
use futures::{future::try_join_all, try_join};
use mongodb::bson::{Bson, Document, doc};
use rdq_spi::{
    AttemptError, CLAIM_ATTEMPTS_MAX, Claim, ClaimParams, ClaimQueue, Claimed, HISTORY_RECORDS_MAX,
    Timestamp,
};
use std::{collections::HashMap, time::Duration};

/// One claim never reads more candidates than this, whatever its limit.
const CANDIDATES_MAX: usize = 1_000;

/// Takes what is due, one task of each queue in turn.
pub(crate) async fn claim_due(db: &Db, store_id: StoreId, params: &ClaimParams) -> Step<Claimed> {
    let mut tries = 0;
    loop {
        tries += 1;
        let fronts = fronts(db, params).await?;
        if !fronts.iter().any(Front::is_due) {
            return Ok(Claimed { claims: Vec::new(), next_due_in: next(&fronts) });
        }
        let (picked, drawn) = try_join!(pick(db, params, &fronts), draw(db, Numbers::Claims, 1))?;
        let taken = take(db, params, &picked, drawn.first, drawn.now).await?;
        if taken == 0 {
            if tries < TRIES_MAX {
                pause(tries).await;
                continue;
            }
            // Others take all that is due; there may be more.
            return Ok(Claimed { claims: Vec::new(), next_due_in: Some(Duration::ZERO) });
        }
        let claims = read_back(db, store_id, params, &picked, drawn.first);
        let (claims, fronts) =
            try_join!(claims, self::fronts(db, params)).map_err(Failure::after_a_write)?;
        return Ok(Claimed { claims, next_due_in: next(&fronts) });
    }
}

async fn fronts(db: &Db, params: &ClaimParams) -> Step<Vec<Front>> {
    try_join_all(params.queues.iter().map(|from| front(db, &from.queue))).await
}

fn next(fronts: &[Front]) -> Option<Duration> {
    fronts.iter().filter_map(Front::due_in).min()
}

/// A candidate and the place of its queue in the claim.
type Picked = (Candidate, usize);

/// One task of each queue in turn, as long as they fit.
async fn pick(db: &Db, params: &ClaimParams, fronts: &[Front]) -> Step<Vec<Picked>> {
    let limit = (params.limit as usize).min(CANDIDATES_MAX);
    let with_due: Vec<_> = fronts.iter().enumerate().filter(|(_, front)| front.is_due()).collect();
    // Of many queues with something due, each gives no more than its turns.
    let found = with_due.iter().map(|(place, front)| async move {
        let found = due(db, &params.queues[*place].queue, front, limit).await?;
        Ok::<_, Failure>((*place, found.into_iter()))
    });
    let mut turns = try_join_all(found).await?;
    let mut picked: Vec<Picked> = Vec::new();
    let mut bytes: usize = 0;
    while !turns.is_empty() {
        let mut still = Vec::with_capacity(turns.len());
        for (place, mut candidates) in turns {
            let Some(candidate) = candidates.next() else { continue };
            bytes = bytes.saturating_add(usize::try_from(candidate.bytes).unwrap_or(usize::MAX));
            if picked.len() >= limit || (bytes > params.bytes_max && !picked.is_empty()) {
                return Ok(picked);
            }
            picked.push((candidate, place));
            still.push((place, candidates));
        }
        turns = still;
    }
    Ok(picked)
}

/// Takes those that are still due and unclaimed; answers how many.
async fn take(
    db: &Db,
    params: &ClaimParams,
    picked: &[Picked],
    generation: i64,
    now: Timestamp,
) -> Step<i64> {
    let mut of_queue: HashMap<usize, (Vec<&str>, Vec<i64>)> = HashMap::new();
    for (candidate, place) in picked {
        let (ids, seqs) = of_queue.entry(*place).or_default();
        ids.push(&candidate.id);
        seqs.push(candidate.seq);
    }
    // The server's clock as the command begins, unless it was set back.
    let now = doc! { "$max": ["$$NOW", date(now)] };
    let statements: Vec<_> = of_queue
        .into_iter()
        .map(|(place, (ids, seqs))| {
            let from = &params.queues[place];
            doc! {
                "q": {
                    "_id": { "$in": ids }, "seq": { "$in": seqs }, "live": true,
                    // A later claim is never undone by an earlier one that comes late.
                    "generation": { "$lt": generation },
                    "$expr": { "$lte": ["$at", &now] },
                },
                "u": [{ "$set": taking(params, from, generation, &now) }],
                "multi": true,
            }
        })
        .collect();
    let mut open = statements;
    if open.is_empty() {
        return Ok(0);
    }
    let (mut taken, mut tries) = (0, 0);
    loop {
        tries += 1;
        let command = doc! { "update": "tasks", "updates": &open, "ordered": false };
        let reply = db.write(command).await;
        let reply = reply.map_err(|it| if taken > 0 { it.after_a_write() } else { it })?;
        taken += number(&reply, "n");
        let errors = reply.get_array("writeErrors").map_or(0, Vec::len);
        if errors == 0 || taken > 0 {
            return Ok(taken);
        }
        if tries == TRIES_MAX {
            return Err(Failure::Contention);
        }
        // A statement that met another writer has perhaps taken some of its tasks: they are not
        // due any more, and are found by their generation all the same.
        open.rotate_left(1);
        pause(tries).await;
    }
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
        { "$arrayElemAt": ["$attempts.bytes", i64::from(HISTORY_RECORDS_MAX / 2)] },
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

/// A full history with room for one more: its middle record is folded into the one before.
fn folded() -> Document {
    let half = HISTORY_RECORDS_MAX / 2;
    let at = |place: u32| doc! { "$arrayElemAt": ["$attempts", i64::from(place)] };
    let stands_for = |record: &str| doc! { "$max": [format!("{record}.folded"), 1_i64] };
    let sum = doc! { "$add": [stands_for("$$kept"), stands_for("$$gone")] };
    let sum = doc! { "$min": [sum, i64::from(u32::MAX)] };
    let both = doc! { "$mergeObjects": [
        "$$kept", { "folded": sum, "finished": "$$gone.finished" },
    ] };
    doc! { "$let": {
        "vars": { "kept": at(half - 1), "gone": at(half) },
        "in": { "$concatArrays": [
            { "$slice": ["$attempts", i64::from(half - 1)] },
            [both],
            { "$slice": ["$attempts", i64::from(half + 1), i64::from(HISTORY_RECORDS_MAX)] },
        ] },
    } }
}

/// The tasks that are now of this generation, in the order in which they were picked.
async fn read_back(
    db: &Db,
    store_id: StoreId,
    params: &ClaimParams,
    picked: &[Picked],
    generation: i64,
) -> Step<Vec<Claim>> {
    let ids: Vec<_> = picked.iter().map(|(candidate, _)| candidate.id.as_str()).collect();
    let newest = i64::try_from(CLAIM_ATTEMPTS_MAX).unwrap_or(i64::MAX);
    let pipeline = vec![
        doc! { "$match": { "_id": { "$in": ids }, "generation": generation } },
        doc! { "$set": { "attempts": { "$slice": ["$attempts", -newest] } } },
        doc! { "$unset": ["attempts.error.stack", "attempts.error.detail"] },
    ];
    let taken: Vec<TaskDocument> = db.read(pipeline).await?;
    bound_histories(db, &taken).await;
    let mut taken: HashMap<_, _> = taken.into_iter().map(|task| (task.id.clone(), task)).collect();
    let mut claims = Vec::with_capacity(taken.len());
    for (candidate, place) in picked {
        let Some(task) = taken.remove(&candidate.id) else { continue };
        // Its holder is not known to anybody yet: only a sweep or a cancellation can have ended it.
        if task.status != IN_FLIGHT {
            continue;
        }
        let from = &params.queues[*place];
        let lease = params.lease.or(task.overrides.read().lease).unwrap_or(from.lease);
        let token = store_id.token(Held { seq: task.seq, generation });
        let task = task.into_task()?;
        claims.push(Claim { task, token, generation, lease: lease.min(from.lease_max) });
    }
    Ok(claims)
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
