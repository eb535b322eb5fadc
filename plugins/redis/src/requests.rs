//! The arguments of functions: what each unpacks, in its order. It decides nothing.

use crate::{
    packing::{NUMBER_MAX, Packer},
    records, rows,
    token::{self, Token},
};
use bytes::Bytes;
use rdq_spi::{
    Age, Attempt, AttemptReport, ClaimParams, ClaimRef, DlqFilter, DlqListParams, ExtendParams,
    HISTORY_BYTES_MAX, HeldClaim, ListParams, Moment, NewTask, Outcome, PurgeParams, QueueName,
    RedriveParams, Resolution, Selection, SweepParams, TaskStatus, Timestamp, shed,
};

const PART_NONE: u8 = 0;
const PART_FINAL: u8 = 1;
const PART_WHOLE: u8 = 2;

// Of a task's record.
const EXPIRES: u8 = 1;
const FINAL_ERROR: u8 = 2;
const OWN_LEASE: u8 = 8;

// Of a resolution.
const IS_STRICT: u8 = 1;
const FORGETS: u8 = 2;
const HAS_MORE: u8 = 4;

/// The arguments of a call.
pub(crate) type Args = Vec<Bytes>;

/// Tasks to admit.
pub(crate) fn admission(tasks: Vec<NewTask>) -> Args {
    let mut args = Args::with_capacity(3 * tasks.len() + 1);
    for stretch in stretches(tasks) {
        args.extend(stretch);
    }
    args
}

/// Tasks to admit, in stretches of one kind: plain ones of one queue and one priority, or one that has
/// more to say.
pub(crate) fn stretches(tasks: Vec<NewTask>) -> impl Iterator<Item = Args> {
    let mut tasks = tasks.into_iter().peekable();
    std::iter::from_fn(move || {
        let task = tasks.next()?;
        let (queue, priority, is_plain) = (task.queue.clone(), task.priority, is_plain(&task));
        let mut args = vec![Bytes::new()];
        if is_plain {
            plain_task(&mut args, task);
            let goes_on =
                |it: &NewTask| it.priority == priority && it.queue == queue && self::is_plain(it);
            while let Some(task) = tasks.next_if(goes_on) {
                plain_task(&mut args, task);
            }
        } else {
            special_task(&mut args, task);
        }
        args[0] = Packer::default()
            .flag(!is_plain)
            .len32(args.len() - 1)
            .u32(rows::sortable_priority(priority))
            .name(queue.as_str())
            .done();
        Some(args)
    })
}

fn plain_task(args: &mut Args, task: NewTask) {
    let tail = record_tail(Packer::default(), &task, false).done();
    let body = rows::body(&task);
    args.extend([Bytes::from(String::from(task.id)), tail, body]);
}

fn special_task(args: &mut Args, mut task: NewTask) {
    shed(&mut task.attempts, HISTORY_BYTES_MAX);
    let attempts = &task.attempts;
    let final_error = attempts.last().and_then(|attempt| attempt.error.as_ref());
    let error_type = final_error.map_or("", |error| error.error_type.as_str());
    let (due_kind, due) = moment(task.due);
    let (expiry, expires) = task.expires.map_or((0, 0), |expires| {
        let (kind, at) = moment(expires);
        (kind + 1, at)
    });
    let tail = Packer::default()
        .u8(due_kind)
        .i64(due)
        .u8(expiry)
        .i64(expires)
        .flag(task.created_at.is_some())
        .i64(task.created_at.map_or(0, Timestamp::millis))
        .u32(task.attempt_count)
        .u32(task.redrive_count)
        .u32(task.lease_expired_count)
        .u32(attempts.iter().map(|attempt| attempt.attempt_no).max().unwrap_or(0))
        .len32(attempts.len())
        .len32(attempts.iter().map(Attempt::len_bytes).sum())
        .len32(task.progress.len())
        .block(error_type.as_bytes());
    let tail = record_tail(tail, &task, final_error.is_some()).done();
    let attempts: Vec<_> = attempts
        .iter()
        .flat_map(|it| [records::light(it), records::heavy(it.error.as_ref())])
        .collect();
    let body = rows::body(&task);
    args.extend([Bytes::from(String::from(task.id)), tail, body, task.progress]);
    args.extend(attempts);
}

/// What admission settles at the end of a record. What the functions know is left open.
fn record_tail(packer: Packer, task: &NewTask, has_final_error: bool) -> Packer {
    let mut flags = 0;
    for (flag, is_set) in [
        (EXPIRES, task.expires.is_some()),
        (FINAL_ERROR, has_final_error),
        (OWN_LEASE, task.overrides.lease.is_some()),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    packer
        .u8(flags)
        .len32(task.envelope.len() + task.progress.len())
        .name(task.queue.as_str())
        .i64(0) // expires_at
        .optional_millis(task.overrides.lease)
        .optional_millis(task.overrides.retention_dead)
        .name(task.handler_ref.as_str())
}

/// Whether it is due at once and begins its life here, as most do.
fn is_plain(task: &NewTask) -> bool {
    task.due == Moment::NOW
        && task.expires.is_none()
        && task.created_at.is_none()
        && task.progress.is_empty()
        && task.attempts.is_empty()
        && (task.attempt_count, task.redrive_count, task.lease_expired_count) == (0, 0, 0)
}

/// Whether it is a delay, and the instant or the delay.
fn moment(moment: Moment) -> (u8, i64) {
    match moment {
        Moment::At(at) => (0, at.millis()),
        Moment::In(delay) => {
            let start = Timestamp::MIN;
            (1, start.after(delay).millis() - start.millis())
        }
    }
}

pub(crate) fn claim(args: &mut Args, params: &ClaimParams) {
    let call = Packer::default()
        .u32(params.limit)
        .len(params.bytes_max)
        .optional_millis(params.lease)
        .raw(&token::draw_nonce())
        .len32(params.queues.len())
        .name(params.worker_id.as_str());
    args.push(call.done());
    for from in &params.queues {
        let queue =
            Packer::default().millis(from.lease).millis(from.lease_max).name(from.queue.as_str());
        args.push(queue.done());
    }
}

fn with_claim(packer: Packer, claim: &ClaimRef) -> Packer {
    let Token { generation, nonce } = Token::decode(&claim.token, &claim.task_id);
    packer.i64(generation).raw(&nonce).name(claim.task_id.as_str())
}

pub(crate) fn claim_ref(claim: &ClaimRef) -> Bytes {
    with_claim(Packer::default(), claim).done()
}

pub(crate) fn held_claim(claim: &HeldClaim) -> Bytes {
    let HeldClaim { task_id, worker_id, generation } = claim;
    Packer::default()
        .raw(&generation.to_be_bytes())
        .name(worker_id.as_str())
        .name(task_id.as_str())
        .done()
}

pub(crate) fn extend(args: &mut Args, params: ExtendParams) {
    let ExtendParams { claim, lease, held_max, progress, strict } = params;
    let call = Packer::default()
        .millis(lease)
        .optional_millis(held_max)
        .flag(strict)
        .flag(progress.is_some());
    args.extend([with_claim(call, &claim).done(), progress.unwrap_or_default()]);
}

pub(crate) fn resolution(args: &mut Args, resolution: Resolution) {
    let Resolution { claim, call, outcome, strict } = resolution;
    let none = AttemptReport::default;
    let (number, report, result, forget, due) = match outcome {
        Outcome::Succeed { attempt, result, forget } => (0, attempt, result, forget, Moment::NOW),
        Outcome::Retry { attempt, due } => (1, attempt, Bytes::new(), false, due),
        Outcome::Die { attempt } => (2, attempt, Bytes::new(), false, Moment::NOW),
        Outcome::GiveBack { due } => (3, none(), Bytes::new(), false, due),
    };
    let error = report.error.as_ref();
    let is_wordless = error.is_none() && report.extra.is_empty() && result.is_empty();
    let has_more = !is_wordless || due != Moment::NOW;
    let mut flags = 0;
    for (flag, is_set) in [(IS_STRICT, strict), (FORGETS, forget), (HAS_MORE, has_more)] {
        flags |= if is_set { flag } else { 0 };
    }
    let head = Packer::default().u8(call.number()).u8(number).u8(flags);
    args.push(with_claim(head, &claim).done());
    if has_more {
        let weight = report.extra.len() + error.map_or(0, rdq_spi::AttemptError::len_bytes);
        let (is_delay, due) = moment(due);
        let more = Packer::default()
            .u8(is_delay)
            .i64(due)
            .flag(error.is_some())
            .len32(weight)
            .block(error.map_or("", |error| error.error_type.as_str()).as_bytes());
        let (light, heavy) = (records::report_light(&report), records::heavy(error));
        args.extend([more.done(), light, heavy, result]);
    }
}

pub(crate) fn list(params: &ListParams, before: i64) -> Args {
    let status = params.status.map_or(u8::MAX, TaskStatus::number); // -1 as it is read
    let call = Packer::default()
        .u8(status)
        .i64(before)
        .u32(params.limit)
        .len(params.bytes_max)
        .u8(if params.include_attempts { PART_WHOLE } else { PART_NONE })
        .name(params.queue.as_str());
    vec![call.done()]
}

pub(crate) fn dlq_list(params: &DlqListParams, before: i64) -> Args {
    let part = if params.include_attempts { PART_WHOLE } else { PART_FINAL };
    let walk = Walk { before, limit: params.limit, bytes_max: params.bytes_max, part };
    vec![dead(&params.queue, &walk, &params.filter, true, false)]
}

pub(crate) fn redrive(params: &RedriveParams, before: i64) -> Args {
    let mut args =
        selection(&params.queue, &params.selection, params.dry_run, before, params.limit);
    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days, and never off by 1 ms")]
    let millis = |duration: std::time::Duration| duration.as_nanos() as f64 / 1e6;
    let times = Packer::default().f64(millis(params.delay)).f64(millis(params.spacing));
    args.insert(1, times.done());
    args
}

pub(crate) fn purge(params: &PurgeParams, before: i64) -> Args {
    selection(&params.queue, &params.selection, params.dry_run, before, params.limit)
}

fn selection(
    queue: &QueueName,
    selection: &Selection,
    dry_run: bool,
    before: i64,
    limit: u32,
) -> Args {
    let walk = Walk { before, limit, bytes_max: 0, part: PART_NONE };
    let everything = DlqFilter::default();
    match selection {
        Selection::Ids(ids) => {
            let call = dead(queue, &walk, &everything, false, dry_run);
            let ids = ids.iter().map(|id| Bytes::copy_from_slice(id.as_str().as_bytes()));
            std::iter::once(call).chain(ids).collect()
        }
        Selection::Filter(filter) => vec![dead(queue, &walk, filter, true, dry_run)],
        Selection::All => vec![dead(queue, &walk, &everything, true, dry_run)],
    }
}

/// How far a walk over dead letters goes, and what it shows of each.
struct Walk {
    before: i64,
    limit: u32,
    bytes_max: usize,
    part: u8,
}

fn dead(queue: &QueueName, walk: &Walk, filter: &DlqFilter, by_filter: bool, dry: bool) -> Bytes {
    let DlqFilter { error_type, handler_ref, dead_from, dead_to } = filter;
    let mut flags = 0;
    for (flag, is_set) in [
        (1, error_type.is_some()),
        (2, handler_ref.is_some()),
        (4, dead_from.is_some()),
        (8, dead_to.is_some()),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    Packer::default()
        .i64(walk.before.min(NUMBER_MAX))
        .u32(walk.limit)
        .len(walk.bytes_max)
        .u8(walk.part)
        .u8(flags)
        .i64(dead_from.map_or(0, Timestamp::millis))
        .i64(dead_to.map_or(0, Timestamp::millis))
        .flag(by_filter)
        .flag(dry)
        .block(error_type.as_deref().unwrap_or_default().as_bytes())
        .block(handler_ref.as_deref().unwrap_or_default().as_bytes())
        .name(queue.as_str())
        .done()
}

pub(crate) fn sweep(params: &SweepParams) -> Args {
    let dead_age = params.dead.and_then(|dead| dead.queue).map(Age::LongerThan);
    let mut call = Packer::default().flag(params.expire).u32(params.limit);
    for age in [params.succeeded_older_than, params.cancelled_older_than] {
        call = with_age(call, age);
    }
    call = with_age(call.flag(params.dead.is_some()), dead_age);
    vec![call.name(params.queue.as_str()).done()]
}

fn with_age(packer: Packer, age: Option<Age>) -> Packer {
    match age {
        None => packer.u8(0).i64(0),
        Some(Age::LongerThan(age)) => packer.u8(1).millis(age),
        Some(Age::Before(instant)) => packer.u8(2).i64(instant.millis()),
    }
}
