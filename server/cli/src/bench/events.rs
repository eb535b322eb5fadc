//! Events: published in commits of many, then read page by page.

use super::{
    load::{Measured, closed_loop, micros_since, now, watched},
    place::Place,
};
use crate::{errors::CliError, output};
use rdq_proto::v1::{
    CommitRequest, Operation, PublishRequest, ReadRequest, operation::Operation as Kind,
    read_request::Start,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PUBLISHERS: u32 = 4;
const COMMIT_EVENTS: u64 = 500;
/// The contract's bound of a page.
const PAGE_EVENTS: i32 = 1000;

/// Measures the publication of `total` events, rounded up to whole commits; a latency is that of
/// one commit.
pub(super) async fn publish(place: &Place, stream: &str, total: u64) -> Result<Measured, CliError> {
    let commits = total.div_ceil(COMMIT_EVENTS);
    let bar = output::progress("publish", Some(commits));
    let event = PublishRequest {
        stream: stream.to_owned(),
        payload: place.payload.clone(),
        ..PublishRequest::default()
    };
    let events = COMMIT_EVENTS.min(total);
    let operation = Operation { operation: Some(Kind::Publish(event)) };
    let operations = vec![operation; usize::try_from(events).unwrap_or(usize::MAX)];
    let request = CommitRequest { operations };
    let clients: Vec<_> = (0..PUBLISHERS).map(|number| place.client(number).clone()).collect();
    let measured = closed_loop(PUBLISHERS, commits, events, &bar, move |caller| {
        let mut service = clients[caller as usize].transactions();
        let request = request.clone();
        async move {
            service.commit(request).await?;
            Ok(())
        }
    })
    .await;
    bar.finish_and_clear();
    measured
}

/// Measures one reader of all that is there; a latency is that of one page.
pub(super) async fn read(place: &Place, stream: &str) -> Result<Measured, CliError> {
    let bar = output::progress("read", None);
    let read = AtomicU64::new(0);
    let start = now();
    let latencies = watched(pages(place, stream, &read), &read, &bar).await;
    bar.finish_and_clear();
    Ok(Measured::rate(read.load(Relaxed), start.elapsed(), latencies?))
}

async fn pages(place: &Place, stream: &str, read: &AtomicU64) -> Result<Vec<u32>, CliError> {
    let mut service = place.client(0).streams();
    let mut latencies = Vec::new();
    let mut offset = 0;
    loop {
        let request = ReadRequest {
            stream: stream.to_owned(),
            start: Some(Start::Offset(offset)),
            limit: Some(PAGE_EVENTS),
        };
        let start = now();
        let events = service.read(request).await?.into_inner().events;
        let Some(last) = events.last() else { return Ok(latencies) };
        offset = last.offset;
        latencies.push(micros_since(start));
        read.fetch_add(events.len() as u64, Relaxed);
    }
}
