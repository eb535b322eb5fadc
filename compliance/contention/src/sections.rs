//! What is measured of a backend, in order: through the server, then the storage on growing backlogs,
//! under a foreign transaction, and while claimants are killed.

use crate::{
    Args,
    backends::Backend,
    hand::{Failure, Through},
    killing,
    load::{self, Census, Done, Hands},
    rows::{Report, Row},
    wire,
};
use rdq_spi::Storage;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The one store that is measured below the server.
const STORE: &str = "contention";
/// Callers of what is not measured.
const BULK_CALLERS: usize = 4;

/// Measures one backend.
pub(crate) async fn measure(
    args: &Args,
    backend: &dyn Backend,
    report: &mut Report,
) -> Result<(), Failure> {
    if let (Some(rdq), Some(goals)) = (&args.rdq, backend.wire_goals()) {
        eprintln!("{}: through the server", backend.name());
        report.wire.push(wire::measure(args, rdq, backend, goals).await?);
    }
    let storage = rdq_store::open(&backend.url(STORE)).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut bench = Bench { args, backend, storage, next, pending: 0, census: Census::default() };
    for &backlog in &args.backlogs {
        bench.section(backlog, false, report).await?;
        if backlog == args.foreign_backlog {
            bench.under_foreign_transaction(report).await?;
        }
    }
    report.doubles += bench.census.doubles;
    if backend.is_shared() {
        bench.fill(bench.pending.max(bench.supply())).await?;
        eprintln!("{}: claimants are killed", backend.name());
        report.killed.push(killing::measure(args, backend, STORE, bench.storage.as_ref()).await?);
    }
    bench.storage.close().await;
    Ok(())
}

struct Bench<'a> {
    args: &'a Args,
    backend: &'a dyn Backend,
    storage: Arc<dyn Storage>,
    /// The number of the next task to be admitted.
    next: Arc<AtomicU64>,
    pending: u64,
    census: Census,
}

/// Two kinds of callers.
struct Callers {
    rdq: Option<Hands>,
    bare: Option<Hands>,
}

/// What is measured of callers.
#[derive(Debug, Clone, Copy)]
enum What {
    Claims,
    Lives,
}

impl Bench<'_> {
    fn through(&self, count: usize) -> Hands {
        (0..count).map(|_| Box::new(Through(Arc::clone(&self.storage))) as _).collect()
    }

    /// How many tasks are there to be claimed in one measurement.
    fn supply(&self) -> u64 {
        self.args.supply.unwrap_or_else(|| self.backend.supply())
    }

    /// Sees to it that so many tasks are pending.
    async fn fill(&mut self, pending: u64) -> Result<(), Failure> {
        let missing = pending.saturating_sub(self.pending);
        load::admit(self.through(BULK_CALLERS), missing, &self.next).await?;
        self.pending += missing;
        Ok(())
    }

    async fn under_foreign_transaction(&mut self, report: &mut Report) -> Result<(), Failure> {
        let Some(open) = self.backend.foreign_transaction(STORE).await? else { return Ok(()) };
        let batch = u64::from(self.args.batch);
        for _ in 0..self.args.foreign_lives / batch {
            let mut hands = self.through(1);
            let hand = &mut hands[0];
            let first = self.next.fetch_add(batch, Relaxed);
            hand.admit(first..first + batch).await?;
            let held = hand.claim(self.args.batch).await?;
            self.census.count(held.iter().map(|held| held.number));
            hand.complete(held).await?;
        }
        self.section(self.args.foreign_backlog, true, report).await?;
        drop(open);
        self.backend.settle(STORE).await
    }

    /// All that is measured on top of one backlog.
    async fn section(
        &mut self,
        backlog: u64,
        foreign: bool,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let whats = (self.args.claimants.iter().map(|&count| (What::Claims, count)))
            .chain([(What::Lives, self.args.workers)]);
        for (what, count) in whats {
            let bare = self.backend.bare(STORE, count).await?;
            let has_bare = !bare.is_empty();
            let mut callers =
                Callers { rdq: Some(self.through(count)), bare: has_bare.then_some(bare) };
            let (mut rdq, mut bare) = (0.0_f64, 0.0_f64);
            for round in 0..self.args.rounds {
                // In turns, and neither always first.
                for of_rdq in [round % 2 == 0, round % 2 == 1] {
                    let best = if of_rdq { &mut rdq } else { &mut bare };
                    let hands = if of_rdq { &mut callers.rdq } else { &mut callers.bare };
                    let Some(measured) = hands.take() else { continue };
                    let done = self.round(what, backlog, measured).await?;
                    *best = best.max(done.per_second);
                    *hands = Some(done.hands);
                }
            }
            let what = match what {
                What::Claims if count == 1 => "claims, 1 claimant".into(),
                What::Claims => format!("claims, {count} claimants"),
                What::Lives => format!("lives, {count} callers x {}", self.args.batch),
            };
            let backend = self.backend.name();
            let row =
                Row::new(backend, what, backlog, foreign, rdq, has_bare.then_some(bare), report);
            eprintln!("{row}");
            report.rows.push(row);
        }
        Ok(())
    }

    async fn round(&mut self, what: What, backlog: u64, hands: Hands) -> Result<Done, Failure> {
        let lasting = Duration::from_secs_f64(self.args.seconds);
        let mut done = match what {
            What::Claims => {
                self.fill(backlog + self.supply()).await?;
                self.backend.settle(STORE).await?;
                load::claims(hands, lasting).await?
            }
            What::Lives => {
                self.fill(backlog).await?;
                self.backend.settle(STORE).await?;
                load::lives(hands, lasting, self.args.batch, &self.next).await?
            }
        };
        self.census.count(done.claimed.iter().copied());
        if let What::Claims = what {
            self.pending -= u64::try_from(done.claimed.len())?;
        }
        let held = std::mem::take(&mut done.held);
        if let Some(hand) = done.hands.first_mut() {
            load::complete(hand.as_mut(), held).await?;
        }
        Ok(done)
    }
}
