//! A stored task and [`Task`]: the record that `functions/tasks.lua` packs, and the body, which
//! never changes. It decides nothing.

use crate::{
    packing::{Packer, Unpacker},
    records,
    replies::{Reply, next},
    token::Token,
};
use bytes::Bytes;
use rdq_spi::{
    Attempt, Claim, NewTask, Overrides, QueueName, Task, TaskId, TaskStatus, Timestamp, WorkerId,
};
use redis::Value;
use std::time::Duration;

const BODY_VERSION: u8 = 1;
const MAX_ATTEMPTS: u8 = 1;
const LEASE: u8 = 2;
const BACKOFF: u8 = 4;
const RETENTION: u8 = 8;

// Of a record.
const EXPIRES: u8 = 1;
const LIVED: u8 = 4;

/// A priority as keys have it: higher ones first.
pub(crate) fn sortable_priority(priority: i32) -> u32 {
    priority.cast_unsigned() ^ 0x7fff_ffff
}

fn priority(sortable: u32) -> i32 {
    (sortable ^ 0x7fff_ffff).cast_signed()
}

/// A task's record.
struct Record {
    status: TaskStatus,
    flags: u8,
    due: Timestamp,
    priority: i32,
    token: Token,
    claimed_at: Timestamp,
    queue: QueueName,
    worker: String,
    created_at: Timestamp,
    expires_at: Timestamp,
    handler_ref: QueueName,
    life: Life,
}

/// The third part of a record: what happened after an admission, beside claims.
#[derive(Default)]
struct Life {
    finished_at: Option<Timestamp>,
    attempt_count: u32,
    redrive_count: u32,
    lease_expired_count: u32,
    last_attempt_no: u32,
}

impl Record {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Unpacker(bytes);
        let [status, _ending] = from.array()?;
        let status = TaskStatus::of_number(status)?;
        let (due, claimed_at) = (from.timestamp()?, from.timestamp()?);
        let token = Token { generation: from.i64()?, nonce: from.array()? };
        let _run: [u8; 8] = from.array()?;
        let worker = from.name()?.to_owned();
        let _page: [u8; 8] = from.array()?;
        let created_at = from.timestamp()?;
        let priority = priority(from.u32()?);
        let _admitted = from.i64()?;
        let flags = from.u8()?;
        let _weight = from.u32()?;
        let queue = QueueName::stored(from.name()?);
        let expires_at = from.timestamp()?;
        let (_lease, _retention) = (from.i64()?, from.i64()?);
        let handler_ref = QueueName::stored(from.name()?);
        let life = if flags & LIVED == 0 { Life::default() } else { Life::read(&mut from)? };
        Some(Self {
            status,
            flags,
            due,
            priority,
            token,
            claimed_at,
            queue,
            worker,
            created_at,
            expires_at,
            handler_ref,
            life,
        })
    }
}

impl Life {
    fn read(from: &mut Unpacker<'_>) -> Option<Self> {
        let _finished = from.i64()?;
        let finished_at = Some(from.timestamp()?);
        let _ending_status = from.u8()?;
        let _ending_due = from.i64()?;
        Some(Self {
            finished_at,
            attempt_count: from.u32()?,
            redrive_count: from.u32()?,
            lease_expired_count: from.u32()?,
            last_attempt_no: from.u32()?,
        })
    }
}

/// What of a task never changes: its overrides and its envelope.
pub(crate) fn body(task: &NewTask) -> Bytes {
    let Overrides { max_attempts, lease, initial_backoff, retention_dead } = task.overrides;
    let durations = [(LEASE, lease), (BACKOFF, initial_backoff), (RETENTION, retention_dead)];
    let flags = durations.iter().filter(|(_, it)| it.is_some()).map(|(flag, _)| flag).sum::<u8>()
        + if max_attempts.is_some() { MAX_ATTEMPTS } else { 0 };
    let mut packer = Packer::default().u8(BODY_VERSION).u8(flags);
    if let Some(max_attempts) = max_attempts {
        packer = packer.u32(max_attempts);
    }
    for duration in durations.into_iter().filter_map(|(_, it)| it) {
        packer = packer.raw(&duration.as_secs().to_be_bytes()).u32(duration.subsec_nanos());
    }
    packer.raw(&task.envelope).done()
}

fn read_body(body: &Bytes) -> Option<(Overrides, Bytes)> {
    let mut from = Unpacker(body);
    let [version, flags] = from.array()?;
    (version == BODY_VERSION).then_some(())?;
    let has = |flag| flags & flag != 0;
    let max_attempts = if has(MAX_ATTEMPTS) { Some(from.u32()?) } else { None };
    let mut durations = [None::<Duration>; 3];
    for (duration, flag) in durations.iter_mut().zip([LEASE, BACKOFF, RETENTION]) {
        if has(flag) {
            *duration = Some(from.duration()?);
        }
    }
    let [lease, initial_backoff, retention_dead] = durations;
    let envelope = body.slice_ref(from.0);
    Some((Overrides { max_attempts, lease, initial_backoff, retention_dead }, envelope))
}

/// Tasks as they are answered.
pub(crate) fn tasks(reply: Reply) -> Option<Vec<Task>> {
    Some(claims(reply)?.into_iter().map(|claim| claim.task).collect())
}

/// Claims as they are answered. Of tasks that were not claimed, only the tasks say something.
pub(crate) fn claims(reply: Reply) -> Option<Vec<Claim>> {
    let mut parts = reply.list()?;
    let mut claims = Vec::with_capacity(parts.len() / 3);
    while let Some(id) = next(&mut parts) {
        claims.push(claim(TaskId::stored(id.text()?), &mut parts)?);
    }
    Some(claims)
}

/// What an answer has of a task that lived: progress, result and history.
#[derive(Default)]
struct More {
    progress: Bytes,
    result: Bytes,
    attempts: Vec<Attempt>,
}

fn more(reply: Reply) -> Option<More> {
    let mut parts = reply.list()?;
    let progress = next(&mut parts)?.bytes_or_none()?;
    let result = next(&mut parts)?.bytes_or_none()?;
    let lights = next(&mut parts)?.each(Reply::bytes)?;
    let heavies = next(&mut parts)?.each(Reply::bytes)?;
    let none = Bytes::new();
    let heavies = heavies.iter().chain(std::iter::repeat(&none));
    let attempts = lights.iter().zip(heavies);
    let attempts =
        attempts.map(|(light, heavy)| records::decode(light, heavy)).collect::<Option<_>>()?;
    Some(More { progress, result, attempts })
}

fn claim(id: TaskId, parts: &mut std::vec::IntoIter<Value>) -> Option<Claim> {
    let record = Record::read(&next(parts)?.bytes()?)?;
    let (overrides, envelope) = read_body(&next(parts)?.bytes()?)?;
    let More { progress, result, attempts } =
        if record.flags & LIVED == 0 { More::default() } else { more(next(parts)?)? };
    let is_pending = record.status == TaskStatus::Pending;
    let is_in_flight = record.status == TaskStatus::InFlight;
    let task = Task {
        id,
        queue: record.queue,
        handler_ref: record.handler_ref,
        priority: record.priority,
        envelope,
        overrides,
        status: record.status,
        attempt_count: record.life.attempt_count,
        redrive_count: record.life.redrive_count,
        lease_expired_count: record.life.lease_expired_count,
        progress,
        result,
        claimed_at: is_in_flight.then_some(record.claimed_at),
        claimed_by: is_in_flight.then(|| WorkerId::stored(record.worker)),
        next_attempt_at: is_pending.then_some(record.due),
        lease_expires_at: is_in_flight.then_some(record.due),
        expires_at: (record.flags & EXPIRES != 0).then_some(record.expires_at),
        created_at: record.created_at,
        finished_at: record.life.finished_at.filter(|_| record.status.is_terminal()),
        attempts,
        last_attempt_no: record.life.last_attempt_no,
    };
    let token = record.token.encode(&task.id);
    Some(Claim {
        task,
        token,
        generation: record.token.generation,
        lease: record.due.since(record.claimed_at),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use rdq_spi::Moment;

    fn new_task(overrides: Overrides) -> NewTask {
        NewTask {
            id: TaskId::stored("id"),
            queue: QueueName::stored("q"),
            handler_ref: QueueName::stored("h"),
            priority: 0,
            due: Moment::NOW,
            expires: None,
            created_at: None,
            envelope: Bytes::from_static(b"\0\xff envelope"),
            overrides,
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            attempts: Vec::new(),
        }
    }

    #[test]
    fn priorities_sort_from_the_highest_and_come_back() {
        let priorities = [i32::MAX, 1, 0, -1, i32::MIN];
        assert!(priorities.map(sortable_priority).is_sorted());
        assert_eq!(priorities.map(sortable_priority).map(priority), priorities);
    }

    #[test]
    fn a_body_comes_back_to_the_nanosecond() {
        let full = Overrides {
            max_attempts: Some(7),
            lease: Some(Duration::new(1, 999_999_999)),
            initial_backoff: Some(Duration::MAX),
            retention_dead: Some(Duration::ZERO),
        };
        for overrides in [full, Overrides { max_attempts: None, ..full }, Overrides::default()] {
            let body = body(&new_task(overrides));
            let read = read_body(&body).unwrap();
            assert_eq!(read, (overrides, Bytes::from_static(b"\0\xff envelope")));
        }
    }

    #[test]
    fn damaged_bodies_are_none() {
        let overrides = Overrides { lease: Some(Duration::ZERO), ..Overrides::default() };
        let body = body(&new_task(overrides));
        for len in 0..14 {
            assert_eq!(read_body(&body.slice(..len)), None, "{len}");
        }
    }
}
