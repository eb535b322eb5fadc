//! A schedule as its record keeps it: a version, the length of the head, the head as JSON, the payload.

use super::{Schedule, ScheduleDefinition};
use crate::{EngineError, random};
use bytes::{BufMut as _, Bytes, BytesMut};
use rdq_spi::{BoxError, QueueName, ScheduleName, Timestamp};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

const VERSION: u8 = 1;

/// What is kept of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) schedule: Schedule,
    /// Goes into the ids of its tasks, so that nobody else has or guesses them: neither a caller nor a
    /// schedule of the same name, deleted before.
    pub(crate) salt: String,
    /// When its spec came into force.
    pub(crate) anchor: Timestamp,
    /// While boundaries are caught up, how many more may be.
    pub(crate) catch_up_left: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    spec: String,
    time_zone: String,
    queue: QueueName,
    handler_ref: QueueName,
    headers: BTreeMap<String, String>,
    priority: i32,
    max_attempts: Option<u32>,
    expires_in: Option<Duration>,
    paused: bool,
    salt: String,
    /// Instants are milliseconds since the epoch.
    anchor: i64,
    next: Option<i64>,
    last: Option<i64>,
    created: i64,
    catch_up_left: Option<u32>,
}

impl Stored {
    /// A schedule that is stored for the first time, at this instant.
    pub(crate) fn new(
        definition: ScheduleDefinition,
        now: Timestamp,
        next: Timestamp,
    ) -> Result<Self, EngineError> {
        let next_boundary_at = (!definition.paused).then_some(next);
        let schedule =
            Schedule { definition, next_boundary_at, last_boundary_at: None, created_at: now };
        Ok(Self { schedule, salt: random::unique()?, anchor: now, catch_up_left: None })
    }

    pub(crate) fn encode(&self) -> Result<Bytes, BoxError> {
        let Schedule { definition, next_boundary_at, last_boundary_at, created_at } =
            self.schedule.clone();
        let head = serde_json::to_vec(&Head {
            spec: definition.spec,
            time_zone: definition.time_zone,
            queue: definition.queue,
            handler_ref: definition.handler_ref,
            headers: definition.headers,
            priority: definition.priority,
            max_attempts: definition.max_attempts,
            expires_in: definition.expires_in,
            paused: definition.paused,
            salt: self.salt.clone(),
            anchor: self.anchor.millis(),
            next: next_boundary_at.map(Timestamp::millis),
            last: last_boundary_at.map(Timestamp::millis),
            created: created_at.millis(),
            catch_up_left: self.catch_up_left,
        })?;
        let mut value = BytesMut::with_capacity(5 + head.len() + definition.payload.len());
        value.put_u8(VERSION);
        value.put_u32(u32::try_from(head.len())?);
        value.put_slice(&head);
        value.put_slice(&definition.payload);
        Ok(value.freeze())
    }

    pub(crate) fn decode(name: ScheduleName, value: &Bytes) -> Result<Self, BoxError> {
        let (version, rest) = value.split_first().ok_or("it is empty")?;
        if *version != VERSION {
            return Err(format!("its format is {version}, not {VERSION}").into());
        }
        let (length, rest) = rest.split_first_chunk().ok_or("it is cut")?;
        let length = usize::try_from(u32::from_be_bytes(*length))?;
        let (head, payload) = rest.split_at_checked(length).ok_or("it is cut")?;
        let head: Head = serde_json::from_slice(head)?;
        let definition = ScheduleDefinition {
            name,
            spec: head.spec,
            time_zone: head.time_zone,
            queue: head.queue,
            handler_ref: head.handler_ref,
            payload: value.slice_ref(payload),
            headers: head.headers,
            priority: head.priority,
            max_attempts: head.max_attempts,
            expires_in: head.expires_in,
            paused: head.paused,
        };
        let schedule = Schedule {
            definition,
            next_boundary_at: head.next.map(Timestamp::from_millis),
            last_boundary_at: head.last.map(Timestamp::from_millis),
            created_at: Timestamp::from_millis(head.created),
        };
        let anchor = Timestamp::from_millis(head.anchor);
        Ok(Self { schedule, salt: head.salt, anchor, catch_up_left: head.catch_up_left })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::schedules) fn stored(spec: &str, at: i64) -> Stored {
        let queue = || QueueName::new("q").unwrap();
        let definition = ScheduleDefinition {
            name: ScheduleName::new("s").unwrap(),
            spec: spec.into(),
            time_zone: String::new(),
            queue: queue(),
            handler_ref: queue(),
            payload: Bytes::from_static(&[0, 255, 1]),
            headers: [("é\"".to_owned(), "\n".to_owned())].into(),
            priority: -7,
            max_attempts: Some(3),
            expires_in: Some(Duration::from_nanos(1_500_000_001)),
            paused: false,
        };
        let at = Timestamp::from_millis(at);
        let next = super::super::spec::Spec::parse(spec, "").unwrap().first_after(at).unwrap();
        Stored::new(definition, at, next).unwrap()
    }

    #[test]
    fn a_schedule_comes_back_as_it_was_kept() {
        let mut stored = stored("@every 1s", 5);
        for left in [None, Some(3)] {
            stored.catch_up_left = left;
            stored.schedule.last_boundary_at = left.map(|_| Timestamp::MIN);
            let name = stored.schedule.definition.name.clone();
            let value = stored.encode().unwrap();
            assert_eq!(Stored::decode(name.clone(), &value).unwrap(), stored);
            for length in 0..value.len() - 3 {
                assert!(Stored::decode(name.clone(), &value.slice(..length)).is_err(), "{length}");
            }
            let newer = [&[VERSION + 1], &value[1..]].concat().into();
            assert!(Stored::decode(name, &newer).is_err(), "a format of a later version");
        }
    }

    #[test]
    fn no_two_schedules_share_a_salt() {
        assert_ne!(stored("@daily", 0).salt, stored("@daily", 0).salt);
    }
}
