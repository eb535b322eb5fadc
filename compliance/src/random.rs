//! Random numbers for names, data and histories: seeded, so that a failure can be replayed. Not for
//! secrets.

use std::{
    cell::RefCell,
    hash::{BuildHasher as _, Hasher as _, RandomState},
};

tokio::task_local! {
    /// Where seeds come from in a story that is told by a seed of its own.
    static SEEDS: RefCell<Random>;
}

/// A small generator (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Another seed each time, without a clock: the standard library seeds its hashers so.
    pub fn any_seed() -> u64 {
        let told = SEEDS.try_with(|seeds| seeds.borrow_mut().next_u64());
        told.unwrap_or_else(|_| RandomState::new().build_hasher().finish())
    }

    /// Within this story, the seeds of [`Random::any_seed`] follow from this one; but for what it spawns.
    pub(crate) async fn tell<T>(seed: u64, story: impl Future<Output = T>) -> T {
        SEEDS.scope(RefCell::new(Self::seeded(seed)), story).await
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("usize fits");
        usize::try_from(self.next_u64() % end).expect("below a usize")
    }

    /// True so often in a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next_u64().to_le_bytes()[0]).collect()
    }
}
