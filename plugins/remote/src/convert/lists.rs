//! Pages, selections and counts. A position is a page token, as it came.

use super::{
    count, on_wire,
    tasks::{instant, status_on_wire},
};
use rdq_proto::{
    time,
    v1::{self, selector::Selection as WireSelection},
};
use rdq_spi::{
    DlqFilter, DlqListParams, ListParams, Position, QueueStats, Result, Selection, StorageError,
    TaskId,
};
use std::time::Duration;

pub(crate) fn list_request(params: &ListParams, page_size: u32) -> Result<v1::ListRequest> {
    Ok(v1::ListRequest {
        queue: params.queue.as_str().to_owned(),
        status: params.status.map_or(v1::TaskStatus::Unspecified, status_on_wire).into(),
        page_size: Some(on_wire(page_size)),
        page_token: page_token(params.position.as_ref())?,
        include_attempts: params.include_attempts,
    })
}

pub(crate) fn dlq_list_request(
    params: &DlqListParams,
    page_size: u32,
) -> Result<v1::DlqListRequest> {
    Ok(v1::DlqListRequest {
        queue: params.queue.as_str().to_owned(),
        filter: Some(filter_on_wire(&params.filter)),
        page_size: Some(on_wire(page_size)),
        page_token: page_token(params.position.as_ref())?,
        include_attempts: params.include_attempts,
        outbox: None,
    })
}

pub(crate) fn page_token(position: Option<&Position>) -> Result<String> {
    let Some(Position(token)) = position else { return Ok(String::new()) };
    match std::str::from_utf8(token) {
        // An empty token would be the first page.
        Ok(token) if !token.is_empty() => Ok(token.to_owned()),
        _ => Err(StorageError::InvalidPosition),
    }
}

fn filter_on_wire(filter: &DlqFilter) -> v1::DlqFilter {
    v1::DlqFilter {
        error_type: filter.error_type.clone(),
        handler_ref: filter.handler_ref.clone(),
        dead_lettered_from: filter.dead_from.map(instant),
        dead_lettered_to: filter.dead_to.map(instant),
    }
}

pub(crate) fn selector(selection: &Selection) -> v1::Selector {
    let ids = |ids: &[TaskId]| ids.iter().map(|id| id.as_str().to_owned()).collect();
    let selection = match selection {
        Selection::Ids(selected) => WireSelection::Ids(v1::TaskIds { ids: ids(selected) }),
        Selection::Filter(filter) => WireSelection::Filter(filter_on_wire(filter)),
        Selection::All => WireSelection::All(true),
    };
    v1::Selector { selection: Some(selection) }
}

/// How many tasks a second fall due with this spacing; `None` is all at once.
pub(crate) fn pace(spacing: Duration) -> Option<f64> {
    (!spacing.is_zero()).then(|| spacing.as_secs_f64().recip())
}

pub(crate) fn stats(stats: &v1::QueueStats) -> QueueStats {
    QueueStats {
        ready: count(stats.ready),
        delayed: count(stats.delayed),
        in_flight: count(stats.in_flight),
        lapsed: count(stats.lapsed),
        dead: count(stats.dlq_depth),
        succeeded: count(stats.succeeded),
        cancelled: count(stats.cancelled),
        oldest_pending_age: stats.oldest_pending_age.as_ref().and_then(time::at_least_zero),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_is_no_page_token_is_refused_here() {
        for bytes in [&b""[..], b"\xff"] {
            let position = Position(bytes::Bytes::from_static(bytes));
            let error = page_token(Some(&position));
            assert!(matches!(error, Err(StorageError::InvalidPosition)), "{error:?}");
        }
        assert_eq!(page_token(None).ok().as_deref(), Some(""));
    }
}
