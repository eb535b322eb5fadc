//! What became of a store's schema when it was prepared. How that is done is each plugin's own.

/// A schema that was prepared: which version was found, and which is there now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version that was found; `None` where there was nothing.
    pub from: Option<u32>,
    /// The version that is there now: the newest that this build knows.
    pub to: u32,
}

impl Migrated {
    /// Whether anything was done.
    pub fn changed(self) -> bool {
        self.from != Some(self.to)
    }
}
