//! What is measured: a server of its own, a way past the plugin, and what else the section needs of
//! it. A backend joins by one line in [`ALL`].

mod embedded;
mod mongodb;
mod postgres;
mod redis;

use crate::{hand::Failure, load::Hands};
use async_trait::async_trait;
use clap::builder::PossibleValuesParser;
use std::{any::Any, future::ready, pin::Pin};

/// A backend that was started.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// How the table calls it.
    fn name(&self) -> &'static str;

    /// The URL of an empty store of this name.
    fn url(&self, store: &str) -> String;

    /// How many tasks are there to be claimed in one measurement.
    fn supply(&self) -> u64;

    /// What its goal through the server is; none where nothing is measured through it.
    fn wire_goals(&self) -> Option<WireGoals> {
        None
    }

    /// Whether several processes may share a store.
    fn is_shared(&self) -> bool {
        true
    }

    /// So many callers of the bare driver on a store that was opened; none if nothing is bare.
    async fn bare(&self, _store: &str, _count: usize) -> Result<Hands, Failure> {
        Ok(Vec::new())
    }

    /// Does what the database does by itself in a quieter time.
    async fn settle(&self, _store: &str) -> Result<(), Failure> {
        Ok(())
    }

    /// A transaction of somebody else that sees all as it is now, until this is dropped. `None`
    /// where there is no such thing.
    async fn foreign_transaction(
        &self,
        _store: &str,
    ) -> Result<Option<Box<dyn Any + Send>>, Failure> {
        Ok(None)
    }
}

/// What has to be reached through the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireGoals {
    /// More whole lives a second than this.
    pub(crate) lives: f64,
    /// Pick-ups of which half take no longer, in microseconds, if that is a goal.
    pub(crate) pick_up_us: Option<f64>,
}

/// A backend, or why there is none.
type Started = Result<Result<Box<dyn Backend>, String>, Failure>;
type Start = fn() -> Pin<Box<dyn Future<Output = Started>>>;

/// Every backend, by its name.
pub(crate) const ALL: &[(&str, Start)] = &[
    ("postgres", || Box::pin(postgres::start())),
    ("redis-no", || Box::pin(redis::start(redis::Aof::No))),
    ("redis-everysec", || Box::pin(redis::start(redis::Aof::EverySecond))),
    ("redis-always", || Box::pin(redis::start(redis::Aof::Always))),
    ("mongodb", || Box::pin(mongodb::start())),
    ("sqlite", || Box::pin(ready(embedded::start(embedded::Kind::Sqlite)))),
    ("memory", || Box::pin(ready(embedded::start(embedded::Kind::Memory)))),
];

/// Their names.
pub(crate) fn names() -> PossibleValuesParser {
    ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().into()
}
