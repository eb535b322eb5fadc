//! The load: callers that each wait for their answer before the next call, for so long; and a census
//! of what they were handed.

use crate::hand::{Failure, Hand, Held};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Calls of each caller before the measurement: connections are made, and plans.
const WARM_UP: usize = 3;
/// Tasks in one call of what is not measured.
const BULK: u64 = 500;

/// Callers.
pub(crate) type Hands = Vec<Box<dyn Hand>>;

/// The clock of the measurements.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures how long something took")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How many in a second.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn rate(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

/// What was handed out, ever: each number once.
#[derive(Debug, Default)]
pub(crate) struct Census {
    seen: HashSet<u64>,
    /// So often one that was seen before.
    pub(crate) doubles: u64,
}

impl Census {
    pub(crate) fn count(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.doubles += u64::from(!self.seen.insert(number));
        }
    }
}

/// What callers did.
pub(crate) struct Done {
    pub(crate) hands: Hands,
    pub(crate) per_second: f64,
    /// What they claimed and still hold.
    pub(crate) held: Vec<Held>,
    /// What they claimed, held or not.
    pub(crate) claimed: Vec<u64>,
}

/// Claims one task a call.
pub(crate) async fn claims(hands: Hands, lasting: Duration) -> Result<Done, Failure> {
    let mut done = claims_until(hands, None).await?;
    let (warm, start) = (done.held, now());
    done = claims_until(done.hands, Some(start + lasting)).await?;
    done.per_second = rate(done.held.len(), start);
    done.held.extend(warm);
    done.claimed = done.held.iter().map(|held| held.number).collect();
    Ok(done)
}

async fn claims_until(hands: Hands, end: Option<Instant>) -> Result<Done, Failure> {
    let mut callers = JoinSet::new();
    for mut hand in hands {
        callers.spawn(async move {
            let (mut held, mut calls) = (Vec::new(), 0);
            while end.map_or(calls < WARM_UP, |end| now() < end) {
                calls += 1;
                let mut claimed = hand.claim(1).await?;
                if claimed.is_empty() {
                    break; // all are taken
                }
                held.append(&mut claimed);
            }
            Ok::<_, Failure>((hand, held))
        });
    }
    let mut done =
        Done { hands: Vec::new(), per_second: 0.0, held: Vec::new(), claimed: Vec::new() };
    while let Some(joined) = callers.join_next().await {
        let (hand, mut held) = joined??;
        done.hands.push(hand);
        done.held.append(&mut held);
    }
    Ok(done)
}

/// Admits, claims and completes, a batch a call.
pub(crate) async fn lives(
    hands: Hands,
    lasting: Duration,
    batch: u32,
    next: &Arc<AtomicU64>,
) -> Result<Done, Failure> {
    let warm = lives_until(hands, None, batch, next).await?;
    let start = now();
    let mut done = lives_until(warm.hands, Some(start + lasting), batch, next).await?;
    done.per_second = rate(done.claimed.len(), start);
    done.claimed.extend(warm.claimed);
    Ok(done)
}

async fn lives_until(
    hands: Hands,
    end: Option<Instant>,
    batch: u32,
    next: &Arc<AtomicU64>,
) -> Result<Done, Failure> {
    let mut callers = JoinSet::new();
    for mut hand in hands {
        let next = Arc::clone(next);
        callers.spawn(async move {
            let (mut claimed, mut calls) = (Vec::new(), 0);
            while end.map_or(calls < WARM_UP, |end| now() < end) {
                calls += 1;
                let first = next.fetch_add(batch.into(), Relaxed);
                hand.admit(first..first + u64::from(batch)).await?;
                let held = hand.claim(batch).await?;
                claimed.extend(held.iter().map(|held| held.number));
                hand.complete(held).await?;
            }
            Ok::<_, Failure>((hand, claimed))
        });
    }
    let mut done =
        Done { hands: Vec::new(), per_second: 0.0, held: Vec::new(), claimed: Vec::new() };
    while let Some(joined) = callers.join_next().await {
        let (hand, mut claimed) = joined??;
        done.hands.push(hand);
        done.claimed.append(&mut claimed);
    }
    Ok(done)
}

/// Admits so many, in bulk.
pub(crate) async fn admit(hands: Hands, count: u64, next: &Arc<AtomicU64>) -> Result<(), Failure> {
    let first = next.fetch_add(count, Relaxed);
    let end = first + count;
    let from = Arc::new(AtomicU64::new(first));
    let mut callers = JoinSet::new();
    for mut hand in hands {
        let from = Arc::clone(&from);
        callers.spawn(async move {
            loop {
                let first = from.fetch_add(BULK, Relaxed);
                if first >= end {
                    return Ok::<_, Failure>(());
                }
                hand.admit(first..end.min(first + BULK)).await?;
            }
        });
    }
    while let Some(joined) = callers.join_next().await {
        joined??;
    }
    Ok(())
}

/// Completes what is held, in bulk.
pub(crate) async fn complete(hand: &mut dyn Hand, held: Vec<Held>) -> Result<(), Failure> {
    for chunk in held.chunks(usize::try_from(BULK)?) {
        hand.complete(chunk.to_vec()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_handed_out_again_is_counted() {
        let mut census = Census::default();
        census.count([1, 2, 3]);
        assert_eq!(census.doubles, 0);
        census.count([4, 2, 2]);
        assert_eq!(census.doubles, 2);
    }
}
