//! The host's monotone clock, for how old a memory is. It decides nothing of tasks: the database's
//! clock does, in the functions of the schema.

use std::time::{Duration, Instant};

/// A moment of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(Instant);

impl Moment {
    /// This one.
    #[allow(clippy::disallowed_methods, reason = "for the age of a memory only")]
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// How long ago it was.
    #[allow(clippy::disallowed_methods, reason = "for the age of a memory only")]
    pub(crate) fn age(self) -> Duration {
        Instant::now().duration_since(self.0)
    }

    /// So much before this one.
    #[cfg(test)]
    pub(crate) fn earlier(self, by: Duration) -> Self {
        Self(self.0.checked_sub(by).unwrap_or(self.0))
    }
}
