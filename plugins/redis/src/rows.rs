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
use std::time::Duration;

const RECORD_VERSION: u8 = 1;
const BODY_VERSION: u8 = 1;
const EXPIRES: u8 = 1;
const MAX_ATTEMPTS: u8 = 1;
const LEASE: u8 = 2;
const BACKOFF: u8 = 4;
const RETENTION: u8 = 8;

/// A task's record.
struct Record {
    status: TaskStatus,
    flags: u8,
    priority: i32,
    token: Token,
    due: Timestamp,
    claimed_at: Timestamp,
    expires_at: Timestamp,
    created_at: Timestamp,
    finished_at: Timestamp,
    attempt_count: u32,
    redrive_count: u32,
    lease_expired_count: u32,
    last_attempt_no: u32,
    queue: QueueName,
    handler_ref: QueueName,
    worker: String,
}

impl Record {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Unpacker(bytes);
        let [version, status, _ending, _ending_status, flags] = from.array()?;
        (version == RECORD_VERSION).then_some(())?;
        let _ending_due = from.i64()?;
        let priority = from.i32()?;
        let (_admitted, _finished) = (from.i64()?, from.i64()?);
        let token = Token { generation: from.i64()?, nonce: from.array()? };
        let (due, claimed_at) = (from.timestamp()?, from.timestamp()?);
        let expires_at = from.timestamp()?;
        let (created_at, finished_at) = (from.timestamp()?, from.timestamp()?);
        let (_lease, _retention) = (from.i64()?, from.i64()?);
        let (attempt_count, redrive_count) = (from.u32()?, from.u32()?);
        let (lease_expired_count, last_attempt_no) = (from.u32()?, from.u32()?);
        let _history: [u32; 7] = from.numbers()?;
        let _lens: [u32; 3] = from.numbers()?;
        let queue = QueueName::stored(from.name()?);
        let handler_ref = QueueName::stored(from.name()?);
        let worker = from.name()?.to_owned();
        let status = TaskStatus::of_number(status)?;
        Some(Self {
            status,
            flags,
            priority,
            token,
            due,
            claimed_at,
            expires_at,
            created_at,
            finished_at,
            attempt_count,
            redrive_count,
            lease_expired_count,
            last_attempt_no,
            queue,
            handler_ref,
            worker,
        })
    }
}

impl Unpacker<'_> {
    fn numbers<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.u32()?;
        }
        Some(numbers)
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

/// A task as it is answered.
pub(crate) fn task(reply: Reply) -> Option<Task> {
    Some(claim(reply)?.task)
}

/// A claim as it is answered. Of a task that was not claimed, only the task says something.
pub(crate) fn claim(reply: Reply) -> Option<Claim> {
    let mut parts = reply.list()?;
    let id = TaskId::stored(next(&mut parts)?.text()?);
    let record = Record::read(&next(&mut parts)?.bytes()?)?;
    let (overrides, envelope) = read_body(&next(&mut parts)?.bytes()?)?;
    let progress = next(&mut parts)?.bytes_or_none()?;
    let result = next(&mut parts)?.bytes_or_none()?;
    let lights = next(&mut parts)?.each(Reply::bytes)?;
    let heavies = next(&mut parts)?.each(Reply::bytes)?;
    let lease = next(&mut parts)?.count()?;
    let none = Bytes::new();
    let heavies = heavies.iter().chain(std::iter::repeat(&none));
    let attempts: Vec<Attempt> = lights
        .iter()
        .zip(heavies)
        .map(|(light, heavy)| records::decode(light, heavy))
        .collect::<Option<_>>()?;
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
        attempt_count: record.attempt_count,
        redrive_count: record.redrive_count,
        lease_expired_count: record.lease_expired_count,
        progress,
        result,
        claimed_at: is_in_flight.then_some(record.claimed_at),
        claimed_by: is_in_flight.then(|| WorkerId::stored(record.worker)),
        next_attempt_at: is_pending.then_some(record.due),
        lease_expires_at: is_in_flight.then_some(record.due),
        expires_at: (record.flags & EXPIRES != 0).then_some(record.expires_at),
        created_at: record.created_at,
        finished_at: record.status.is_terminal().then_some(record.finished_at),
        attempts,
        last_attempt_no: record.last_attempt_no,
    };
    Some(Claim {
        task,
        token: record.token.encode(),
        generation: record.token.generation,
        lease: Duration::from_millis(lease),
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
