//! Learns which open claims are over: of full subscriptions by their leases and by asking the
//! storage, at most once a second and for all of them together; of work streams when tasks expire.

use crate::{
    clock::{self, Instant},
    core::Core,
    feed::Feed,
    limits::LEASE_MAX,
};
use rdq_spi::StaleDetail;
use std::{sync::Arc, time::Duration};

const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// Subscriptions come and go from full; not each of these moments is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Claims that one storage call asks for.
const ASK_CLAIMS_MAX: usize = 10_000;

/// Runs until the engine closes.
pub(crate) async fn keep(core: Arc<Core>) {
    let mut asked: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = core.closing.cancelled() => return,
            () = core.full.notified() => {}
        }
        let mut pause = LOOK_INTERVAL;
        loop {
            tokio::select! {
                biased;
                () = core.closing.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
            if full(&core).is_empty() {
                break;
            }
            if asked.is_none_or(|asked| clock::now() - asked >= ASK_INTERVAL) {
                asked = Some(clock::now());
                let feeds = full(&core).into_iter().map(|(feed, _)| feed).collect();
                settle_what_is_over(&core, feeds).await;
            }
            let now = clock::now();
            let next_lapse = full(&core).into_iter().map(|(_, until)| until - now).min();
            pause = next_lapse.unwrap_or_default().clamp(LOOK_INTERVAL, ASK_INTERVAL);
        }
    }
}

fn full(core: &Core) -> Vec<(Arc<Feed>, Instant)> {
    let feeds = core.feeds.all().into_iter();
    feeds.filter_map(|feed| feed.full_until().map(|until| (feed, until))).collect()
}

async fn settle_what_is_over(core: &Arc<Core>, feeds: Vec<Arc<Feed>>) {
    let open: Vec<_> = feeds
        .iter()
        .flat_map(|feed| feed.open_claims(false).into_iter().map(|claim| (feed.id, claim)))
        .collect();
    for claims in open.chunks(ASK_CLAIMS_MAX) {
        let names = claims.iter().map(|(_, (id, token, _))| (id.clone(), token.clone())).collect();
        let asked = clock::now();
        match core.live(names).await {
            Ok(alive) => {
                for ((holder, (id, _, generation)), alive) in claims.iter().zip(alive) {
                    let claim = (*holder, id.clone(), *generation);
                    match alive {
                        Some(remaining) => {
                            core.feeds.extended(&claim, asked + remaining.min(LEASE_MAX));
                        }
                        None => core.feeds.settle(&[claim]),
                    }
                }
            }
            // Their leases end all the same.
            Err(error) => tracing::debug!(%error, "open claims were not looked up"),
        }
    }
}

/// Tells work streams which of their claims expired with the sweep just done.
pub(crate) async fn tell_expired(core: &Arc<Core>) {
    for feed in core.feeds.all().into_iter().filter(|feed| feed.has_credits()) {
        let open = feed.open_claims(true);
        for claims in open.chunks(ASK_CLAIMS_MAX) {
            let names = claims.iter().map(|(id, token, _)| (id.clone(), token.clone())).collect();
            let Ok(alive) = core.live(names).await else { return };
            for ((id, _, generation), alive) in claims.iter().zip(alive) {
                // Neither resolved nor lapsed, as far as is known here, and yet over.
                if alive.is_none() && feed.believes(id, *generation) {
                    feed.lose(id, StaleDetail::Expired);
                }
            }
        }
    }
}
