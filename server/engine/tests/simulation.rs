//! The seeded simulation: producers, workers that crash, stall and lie, cancellations, pauses,
//! redrives, servers that drain, die and come back, and a storage that fails, over paused time. It
//! checks what users rely on: no task is lost, none has two live claims, a stale token changes
//! nothing, every task ends. A failure prints its seed.
//!
//! `RDQ_SEED=n` replays one story, `RDQ_SEEDS=n` tells how many are told.
#![allow(unreachable_pub, reason = "the modules of one test")]
#![allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]

#[path = "simulation/actors.rs"]
mod actors;
#[path = "simulation/history.rs"]
mod history;
mod support;
#[path = "simulation/world.rs"]
mod world;

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

const STORIES: u64 = 2_000;
const THREADS: u64 = 2;

#[test]
fn whatever_happens_every_promise_is_kept() {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("RDQ_SEED") {
        return tell(seed);
    }
    let stories = number("RDQ_SEEDS").unwrap_or(STORIES);
    // New stories each time; the seed of a failed one is printed.
    let (first, told) = (fastrand::u64(..u64::MAX / 2), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let story = told.fetch_add(1, Ordering::Relaxed);
                    if story >= stories {
                        return;
                    }
                    let seed = first + story;
                    if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| tell(seed))) {
                        eprintln!("the story of RDQ_SEED={seed} broke a promise");
                        panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
    if stories >= STORIES {
        history::assert_all_reached();
    }
}

fn tell(seed: u64) {
    // Jitter and the choices of the engine follow the seed too.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(world::story(seed));
}
