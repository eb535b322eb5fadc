//! Parts that many requests share: names, numbers by kind, selections.

use crate::status::Refusal;
use rdq_engine::Pace;
use rdq_proto::{
    time,
    v1::{self, selector::Selection as WireSelection},
};
use rdq_spi::{DlqFilter, Moment, QueueName, Selection, TaskId, TaskStatus, Timestamp, WorkerId};
use std::{collections::HashSet, time::Duration};

/// A claim or subscription names at most so many queues.
const QUEUES_MAX: usize = 64;
/// A selection names at most so many tasks.
const IDS_MAX: usize = 1_000;

pub(crate) fn name(field: &'static str, text: &str) -> Result<QueueName, Refusal> {
    QueueName::new(text).map_err(|error| Refusal::Name { field, error })
}

pub(crate) fn worker_id(text: &str) -> Result<WorkerId, Refusal> {
    WorkerId::new(text).map_err(|error| Refusal::Name { field: "worker_id", error })
}

pub(crate) fn task_id(text: &str) -> Result<TaskId, Refusal> {
    TaskId::new(text).map_err(|error| Refusal::invalid("id", format!("`id` {error}")))
}

/// The named queues, each once, in their order. `min` says whether naming none is allowed.
pub(crate) fn queues(names: &[String], min: usize) -> Result<Vec<QueueName>, Refusal> {
    if names.len() < min {
        return Err(Refusal::invalid("queues", "`queues` must name at least one queue"));
    }
    if names.len() > QUEUES_MAX {
        let message = format!("`queues` must name at most {QUEUES_MAX} queues");
        return Err(Refusal::invalid("queues", message));
    }
    let mut seen = HashSet::new();
    let distinct = names.iter().filter(|name| seen.insert(name.as_str()));
    distinct.map(|text| name("queues", text)).collect()
}

/// An extent: unset is the default, at or below 0 is the empty answer, above the maximum is cut.
pub(crate) fn extent(value: Option<i32>, default: u32, max: u32) -> u32 {
    value.map_or(default, |value| u32::try_from(value).unwrap_or(0).min(max))
}

pub(crate) fn max_in_flight(value: Option<i32>) -> Result<u32, Refusal> {
    const DEFAULT: i32 = 100;
    const MAX: u32 = 10_000;
    match u32::try_from(value.unwrap_or(DEFAULT)) {
        Ok(value @ 1..) => Ok(value.min(MAX)),
        _ => Err(Refusal::invalid("max_in_flight", "`max_in_flight` must be at least 1")),
    }
}

/// A duration that must be above zero.
pub(crate) fn positive(
    field: &'static str,
    value: &prost_types::Duration,
) -> Result<Duration, Refusal> {
    match time::at_least_zero(value) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(Refusal::invalid(field, format!("`{field}` must be a duration above zero"))),
    }
}

pub(crate) fn lease(value: Option<&prost_types::Duration>) -> Result<Option<Duration>, Refusal> {
    value.map(|value| positive("lease", value)).transpose()
}

/// A boundary: any duration; below zero is zero.
pub(crate) fn delay(
    field: &'static str,
    value: &prost_types::Duration,
) -> Result<Duration, Refusal> {
    let message = || format!("`{field}` is not a valid duration");
    time::at_least_zero(value).ok_or_else(|| Refusal::invalid(field, message()))
}

pub(crate) fn instant(
    field: &'static str,
    value: &prost_types::Timestamp,
) -> Result<Timestamp, Refusal> {
    let message = || format!("`{field}` must be an instant of the years 1 to 9999");
    let millis = time::millis(value).ok_or_else(|| Refusal::invalid(field, message()))?;
    Ok(Timestamp::from_millis(millis))
}

pub(crate) fn required_instant(
    field: &'static str,
    value: Option<&prost_types::Timestamp>,
) -> Result<Timestamp, Refusal> {
    let missing = || Refusal::invalid(field, format!("`{field}` is required"));
    instant(field, value.ok_or_else(missing)?)
}

/// A moment given as a delay, which wins, or an instant.
pub(crate) fn moment(
    delay_of: (&'static str, Option<&prost_types::Duration>),
    instant_of: (&'static str, Option<&prost_types::Timestamp>),
) -> Result<Option<Moment>, Refusal> {
    match (delay_of, instant_of) {
        ((field, Some(value)), _) => Ok(Some(Moment::In(delay(field, value)?))),
        (_, (field, Some(value))) => Ok(Some(Moment::At(instant(field, value)?))),
        _ => Ok(None),
    }
}

/// A status to list by; `None` is every one.
pub(crate) fn status_filter(value: i32) -> Result<Option<TaskStatus>, Refusal> {
    match v1::TaskStatus::try_from(value) {
        Ok(v1::TaskStatus::Unspecified) => Ok(None),
        Ok(v1::TaskStatus::Pending) => Ok(Some(TaskStatus::Pending)),
        Ok(v1::TaskStatus::InFlight) => Ok(Some(TaskStatus::InFlight)),
        Ok(v1::TaskStatus::Succeeded) => Ok(Some(TaskStatus::Succeeded)),
        Ok(v1::TaskStatus::Dead) => Ok(Some(TaskStatus::Dead)),
        Ok(v1::TaskStatus::Cancelled) => Ok(Some(TaskStatus::Cancelled)),
        Err(_) => Err(Refusal::invalid("status", format!("{value} is not a task status"))),
    }
}

pub(crate) fn dlq_filter(filter: Option<v1::DlqFilter>) -> Result<DlqFilter, Refusal> {
    let filter = filter.unwrap_or_default();
    let bound = |field, value: Option<prost_types::Timestamp>| {
        value.as_ref().map(|value| instant(field, value)).transpose()
    };
    Ok(DlqFilter {
        error_type: filter.error_type,
        handler_ref: filter.handler_ref,
        dead_from: bound("filter.dead_lettered_from", filter.dead_lettered_from)?,
        dead_to: bound("filter.dead_lettered_to", filter.dead_lettered_to)?,
    })
}

/// A selection: exactly one kind, and one that selects on purpose.
pub(crate) fn selection(selector: Option<v1::Selector>) -> Result<Selection, Refusal> {
    let refuse = |message: &str| Err(Refusal::invalid("selector", message));
    match selector.and_then(|selector| selector.selection) {
        None => refuse("`selector` must have exactly one of `ids`, `filter` and `all`"),
        Some(WireSelection::All(true)) => Ok(Selection::All),
        Some(WireSelection::All(false)) => refuse("`selector.all` must be true to select all"),
        Some(WireSelection::Filter(filter)) => {
            let filter = dlq_filter(Some(filter))?;
            if filter.is_empty() {
                return refuse("`selector.filter` constrains nothing; say `all` to select all");
            }
            Ok(Selection::Filter(filter))
        }
        Some(WireSelection::Ids(v1::TaskIds { ids })) => {
            if ids.is_empty() || ids.len() > IDS_MAX {
                return refuse("`selector.ids` must name 1 to 1,000 tasks");
            }
            let mut seen = HashSet::new();
            let distinct = ids.iter().filter(|id| seen.insert(id.as_str()));
            Ok(Selection::Ids(distinct.map(|id| task_id(id)).collect::<Result<_, _>>()?))
        }
    }
}

/// How the due times of a redrive are spread.
pub(crate) fn pace(
    spread_over: Option<&prost_types::Duration>,
    rate_per_second: Option<f64>,
) -> Result<Option<Pace>, Refusal> {
    match (spread_over, rate_per_second) {
        (None, None) => Ok(None),
        (Some(spread), None) => Ok(Some(Pace::SpreadOver(positive("spread_over", spread)?))),
        (None, Some(rate)) if rate.is_finite() && rate > 0.0 => Ok(Some(Pace::PerSecond(rate))),
        (None, Some(_)) => {
            Err(Refusal::invalid("rate_per_second", "`rate_per_second` must be above 0"))
        }
        (Some(_), Some(_)) => Err(Refusal::invalid(
            "rate_per_second",
            "`spread_over` and `rate_per_second` exclude each other",
        )),
    }
}
