//! Learns which open claims are over, by asking the storage: of full subscriptions at most once a second
//! and for all of them together, and for those whose leases seem to have ended; of work streams when
//! tasks expire.

use crate::{
    clock::{self, Instant},
    core::Core,
    feed::{Feed, Which},
    limits::LEASE_MAX,
};
use rdq_spi::{StaleDetail, Timestamp};
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
            let feeds = full(&core);
            let Some(next) = next_lapse(&feeds) else { break };
            let now = clock::now();
            let which = if asked.is_none_or(|asked| now - asked >= ASK_INTERVAL) {
                asked = Some(now);
                Some(Which::All)
            } else {
                (next <= now).then_some(Which::LapsedBy(now))
            };
            if let Some(which) = which
                && !settle_what_is_over(&core, feeds, which).await
            {
                pause = ASK_INTERVAL;
                continue;
            }
            let next = next_lapse(&full(&core)).map(|next| next - clock::now());
            pause = next.unwrap_or_default().clamp(LOOK_INTERVAL, ASK_INTERVAL);
        }
    }
}

fn next_lapse(feeds: &[(Arc<Feed>, Instant)]) -> Option<Instant> {
    feeds.iter().map(|(_, until)| *until).min()
}

fn full(core: &Core) -> Vec<(Arc<Feed>, Instant)> {
    let feeds = core.feeds.all().into_iter();
    feeds.filter_map(|feed| feed.full_until().map(|until| (feed, until))).collect()
}

/// Says whether the storage answered.
async fn settle_what_is_over(
    core: &Arc<Core>,
    feeds: Vec<(Arc<Feed>, Instant)>,
    which: Which,
) -> bool {
    let open: Vec<_> = feeds
        .iter()
        .flat_map(|(feed, _)| feed.open_claims(which).into_iter().map(|claim| (feed.id, claim)))
        .collect();
    // A feed that nobody reads any more can go.
    drop(feeds);
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
            // Where nothing can be looked up, nothing can be claimed: they keep their places.
            Err(error) => {
                tracing::debug!(%error, "open claims were not looked up");
                return false;
            }
        }
    }
    true
}

/// Tells work streams which of their claims expired, with a sweep of this server or another.
pub(crate) async fn tell_expired(core: &Arc<Core>) {
    let feeds: Vec<_> = core.feeds.all().into_iter().filter(|feed| feed.has_credits()).collect();
    if feeds.is_empty() {
        return;
    }
    // A storage that does not tell the time is asked about every claim.
    let now = core.storage_now().await.unwrap_or(Timestamp::MAX);
    for feed in feeds {
        let open = feed.open_claims(Which::ExpiredBy(now));
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
