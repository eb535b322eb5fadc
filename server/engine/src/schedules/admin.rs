//! What callers do with schedules. Each change is a compare-and-set of the schedule's record.

use super::{Schedule, ScheduleDefinition, record::Stored, spec::Spec};
use crate::{
    Engine, EngineError,
    core::Core,
    limits::{ANSWER_BYTES_MAX, EXTENT_MAX, check_attempts, check_size},
    page_token::Binding,
};
use bytes::Bytes;
use rdq_spi::{BoxError, Record, ScheduleName, StorageError};

/// How often a change is tried while others change the schedule too.
const TRIES: u32 = 20;

/// A page of schedules.
#[derive(Debug, Clone)]
pub struct ListSchedulesRequest {
    /// Cut to 1,000; 0 answers the empty page.
    pub page_size: u32,
    /// The page before's; the first page if empty.
    pub page_token: String,
    /// Who asks: a page token is good for nobody else.
    pub subject: String,
}

/// A page of schedules.
#[derive(Debug, Clone, Default)]
pub struct SchedulePage {
    /// The schedules, by name.
    pub schedules: Vec<Schedule>,
    /// For the next page; empty on the last.
    pub next_page_token: String,
}

impl Engine {
    /// Whether the storage has what schedules need.
    pub fn has_schedules(&self) -> bool {
        self.core.has_schedules()
    }

    /// Stores a schedule in place of the one of its name, and says whether there was none. An
    /// unchanged spec and time zone keep the next boundary, changed ones start from now.
    pub async fn put_schedule(
        &self,
        definition: ScheduleDefinition,
    ) -> Result<(Schedule, bool), EngineError> {
        let spec = Spec::parse(&definition.spec, &definition.time_zone)?;
        check_attempts("schedule.max_attempts", definition.max_attempts)?;
        self.core.queues.check_declared(&definition.queue)?;
        let limit = self.core.queues.snapshot().effective(&definition.queue).max_payload_bytes;
        check_size("schedule.payload", definition.payload.len() as u64, limit)?;
        let name = definition.name.clone();
        for _ in 0..TRIES {
            let record = self.core.schedule_record(&name).await?;
            let now = self.core.storage_now().await?;
            let first = spec.first_after(now)?;
            let before = record.as_ref().and_then(read);
            let stored = match before {
                Some(before) => {
                    let was = &before.schedule.definition;
                    let is_same =
                        was.spec == definition.spec && was.time_zone == definition.time_zone;
                    let next = match before.schedule.next_boundary_at {
                        Some(next) if is_same => Some(next),
                        None if is_same => spec.next_after(before.anchor, now),
                        _ => Some(first),
                    };
                    let next_boundary_at = next.filter(|_| !definition.paused);
                    let schedule = Schedule {
                        definition: definition.clone(),
                        next_boundary_at,
                        ..before.schedule
                    };
                    let anchor = if is_same { before.anchor } else { now };
                    let catch_up_left = before.catch_up_left.filter(|_| is_same);
                    Stored { schedule, anchor, catch_up_left, ..before }
                }
                None => Stored::new(definition.clone(), now, first)?,
            };
            if self.core.store_schedule(&stored, record.as_ref()).await? {
                return Ok((stored.schedule, record.is_none()));
            }
        }
        Err(contention("put_schedule"))
    }

    /// Removes a schedule, and says whether there was one. Its tasks stay.
    pub async fn delete_schedule(&self, name: ScheduleName) -> Result<bool, EngineError> {
        for _ in 0..TRIES {
            let Some(record) = self.core.schedule_record(&name).await? else { return Ok(false) };
            if self.core.set_schedule(&name, None, record.revision).await? {
                self.core.tell_of_schedules().await;
                return Ok(true);
            }
        }
        Err(contention("delete_schedule"))
    }

    /// Stops a schedule, or lets it go on from now. What passed meanwhile is not caught up.
    pub async fn pause_schedule(
        &self,
        name: ScheduleName,
        paused: bool,
    ) -> Result<Schedule, EngineError> {
        for _ in 0..TRIES {
            let missing = || EngineError::ScheduleNotFound { name: name.clone() };
            let record = self.core.schedule_record(&name).await?.ok_or_else(missing)?;
            let mut stored = Stored::decode(name.clone(), &record.value).map_err(internal)?;
            let schedule = &mut stored.schedule;
            if schedule.definition.paused == paused {
                return Ok(stored.schedule);
            }
            schedule.definition.paused = paused;
            schedule.next_boundary_at = if paused {
                None
            } else {
                let definition = &schedule.definition;
                let spec = Spec::parse(&definition.spec, &definition.time_zone)?;
                spec.next_after(stored.anchor, self.core.storage_now().await?)
            };
            stored.catch_up_left = None;
            if self.core.store_schedule(&stored, Some(&record)).await? {
                return Ok(stored.schedule);
            }
        }
        Err(contention("pause_schedule"))
    }

    /// Lists schedules, by name.
    pub async fn list_schedules(
        &self,
        request: ListSchedulesRequest,
    ) -> Result<SchedulePage, EngineError> {
        let ListSchedulesRequest { page_size, page_token, subject } = request;
        let binding = Binding::of(&[subject.as_bytes(), b"schedules"]);
        let position = self.core.position(&binding, &page_token)?;
        if page_size == 0 {
            return Ok(SchedulePage::default());
        }
        let limit = page_size.min(EXTENT_MAX);
        let page = self.core.schedule_records(position, limit, ANSWER_BYTES_MAX).await?;
        let schedules = page.records.iter().filter_map(read).map(|stored| stored.schedule);
        let next = page.next.map(|position| self.core.page_tokens.mint(&binding, &position.0));
        Ok(SchedulePage {
            schedules: schedules.collect(),
            next_page_token: next.unwrap_or_default(),
        })
    }
}

impl Core {
    /// Stores a schedule in place of this record, and says whether that was still the one.
    async fn store_schedule(
        &self,
        stored: &Stored,
        before: Option<&Record>,
    ) -> Result<bool, EngineError> {
        let value: Bytes = stored.encode().map_err(internal)?;
        let expected = before.map_or(0, |record| record.revision);
        let name = &stored.schedule.definition.name;
        let is_stored = self.set_schedule(name, Some(value), expected).await?;
        if is_stored {
            self.tell_of_schedules().await;
        }
        Ok(is_stored)
    }
}

/// What a record holds. One that this version cannot read does not hold up the others.
pub(super) fn read(record: &Record) -> Option<Stored> {
    let name = ScheduleName::stored(record.name.as_str());
    match Stored::decode(name, &record.value) {
        Ok(stored) => Some(stored),
        Err(error) => {
            tracing::warn!(schedule = %record.name, %error, "this schedule cannot be read");
            None
        }
    }
}

pub(super) fn internal(source: BoxError) -> EngineError {
    EngineError::internal("schedules", source)
}

fn contention(operation: &'static str) -> EngineError {
    StorageError::Contention { operation }.into()
}
