//! Many who want one lock, on two handles, as two servers would have them, and what it protects.
//! Some stop for longer than they hold it, and go on as if they still did. What happens to the
//! storage meanwhile is the test's own.

use crate::{
    Random,
    fenced::{Counts, FencedRegister},
    given::{hold, lapse, locks, owner, some_lock},
    hands::{End, Hands},
};
use rdq_spi::{LockName, OwnerName, Result, Storage, StorageError, TryLock};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How long a hold lasts: short, so that some end while their holder believes in them.
pub const TTL: Duration = Duration::from_millis(100);
const HOLDERS_PER_HANDLE: u64 = 3;

/// What holders did.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    /// What became of their increments.
    pub counts: Counts,
    /// Calls that failed.
    pub failed: usize,
}

/// Holders under way.
#[derive(Debug)]
pub struct Holders {
    name: LockName,
    register: Arc<FencedRegister>,
    failed: Arc<AtomicUsize>,
    hands: Hands,
}

impl Holders {
    /// Starts them, on handles that it opens.
    pub async fn start(open: impl AsyncFn() -> Arc<dyn Storage>) -> Self {
        let (register, failed) = (Arc::<FencedRegister>::default(), Arc::default());
        let mut hands = Hands::default();
        let (name, seed) = (some_lock(), Random::any_seed());
        eprintln!("seed {seed}");
        for handle in 0..2_u64 {
            let store = open().await;
            for holder in 0..HOLDERS_PER_HANDLE {
                let number = handle * HOLDERS_PER_HANDLE + holder;
                let holder = Holder {
                    store: store.clone(),
                    name: name.clone(),
                    me: owner(&number.to_string()),
                    register: Arc::clone(&register),
                    failed: Arc::clone(&failed),
                    random: Random::seeded(seed ^ number),
                };
                hands.put_to_work(holder.work(hands.end()));
            }
        }
        Self { name, register, failed, hands }
    }

    /// The lock, for one more who wants it.
    pub fn lock(&self) -> &LockName {
        &self.name
    }

    /// What it protects.
    pub fn register(&self) -> &FencedRegister {
        &self.register
    }

    /// Returns when more was written.
    pub async fn works_on(&self) {
        let enough = self.register.counts().written + 20;
        self.hands.work_until(|| self.register.counts().written >= enough).await;
    }

    /// Lets them end once somebody was fenced off, and judges.
    pub async fn finish(self) -> Tally {
        self.works_on().await;
        self.hands.work_until(|| self.register.counts().fenced_off > 0).await;
        self.hands.finish().await;
        let counts = self.register.counts();
        let tally = Tally { counts, failed: self.failed.load(Ordering::Relaxed) };
        eprintln!("{tally:?}");
        self.register.judge();
        tally
    }
}

struct Holder {
    store: Arc<dyn Storage>,
    name: LockName,
    me: OwnerName,
    register: Arc<FencedRegister>,
    failed: Arc<AtomicUsize>,
    random: Random,
}

impl Holder {
    async fn work(mut self, end: End) {
        while !end.has_come() {
            match self.take_a_turn().await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => tokio::time::sleep(Duration::from_millis(2)).await,
                Err(
                    StorageError::Unavailable { .. }
                    | StorageError::OutcomeUnknown { .. }
                    | StorageError::Contention { .. },
                ) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// Whether it had the lock.
    async fn take_a_turn(&mut self) -> Result<bool> {
        let locks = locks(&*self.store);
        let wanted = TryLock { name: self.name.clone(), owner: self.me.clone(), ttl: TTL };
        let Some(held) = locks.try_lock(wanted).await? else { return Ok(false) };
        assert_eq!(held.owner, self.me, "its own hold");
        let Some(seen) = self.register.read(&held) else { return Ok(true) };
        if self.random.percent(20) {
            lapse(TTL).await;
        }
        let mine = hold(&self.name, &held);
        if self.register.write_after(&held, seen) {
            locks.release_lock(mine).await?;
            return Ok(true);
        }
        let has_it = if self.random.percent(50) {
            locks.release_lock(mine).await?
        } else {
            locks.renew_lock(mine, TTL).await?.is_some()
        };
        assert!(!has_it, "{held:?} was over: a later one was seen");
        Ok(true)
    }
}
