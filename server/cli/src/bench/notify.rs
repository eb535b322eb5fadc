//! Notifications: how long an idle listener waits, from before the notifier's call.

use super::{
    load::{Measured, micros_since, now, watched},
    place::Place,
};
use crate::{errors::CliError, output};
use rdq_proto::v1::{ListenRequest, ListenResponse, NotifyRequest};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tonic::Streaming;

/// Between two notifications everything comes to rest.
const REST: Duration = Duration::from_millis(5);

/// Notifications before the measurement, in which connections and caches warm up.
const WARM_UP: u64 = 20;

/// Measures `total` notifications, one after the other. Notifier and listener use two connections.
pub(super) async fn measure(place: &Place, total: u64) -> Result<Measured, CliError> {
    let bar = output::progress("notify", Some(total + WARM_UP));
    let heard = AtomicU64::new(0);
    let start = now();
    let latencies = watched(notifications(place, total + WARM_UP, &heard), &heard, &bar).await;
    bar.finish_and_clear();
    let measured = latencies?.split_off(usize::try_from(WARM_UP).unwrap_or(0));
    Ok(Measured::latency(total, start.elapsed(), measured))
}

async fn notifications(place: &Place, total: u64, heard: &AtomicU64) -> Result<Vec<u32>, CliError> {
    let channel = place.name("notify");
    let listen = ListenRequest { channel: channel.clone() };
    let mut wakes = place.client(0).signals().listen(listen).await?.into_inner();
    // It is attached once it has said something.
    message(&mut wakes).await?;
    let mut notifier = place.client(1).signals();
    let mut latencies = Vec::new();
    for _ in 0..total {
        tokio::time::sleep(REST).await;
        let request = NotifyRequest { channel: channel.clone(), ..NotifyRequest::default() };
        let start = now();
        let wake = async {
            while message(&mut wakes).await?.channel.is_empty() {}
            Ok::<_, CliError>(micros_since(start))
        };
        let (notified, wake) = tokio::join!(notifier.notify(request), wake);
        notified?;
        latencies.push(wake?);
        heard.fetch_add(1, Relaxed);
    }
    Ok(latencies)
}

async fn message(wakes: &mut Streaming<ListenResponse>) -> Result<ListenResponse, CliError> {
    wakes.message().await?.ok_or(CliError::Cut("a Listen stream"))
}
