//! The databases that servers share, for tests that run on each: a file, or a server of the test's
//! own, which can be killed, paused and started again. It speaks to none of them.

use super::{Ignored, disk::Disk};
use rdq_test_servers::{
    LocalServer,
    mongodb::{self, MongoServer},
    postgres::{self, PostgresServer},
    redis::{Flavor, RedisServer},
};
use tempfile::TempDir;

/// Which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file, whose servers are on one machine.
    Sqlite,
    /// A PostgreSQL server.
    Postgres,
    /// A Redis server.
    Redis,
    /// A MongoDB server, a replica set of one.
    Mongodb,
}

impl Kind {
    /// The first part of the names of its tests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Mongodb => "mongodb",
        }
    }

    fn missing(self) -> Option<Ignored> {
        let (is_built, missing) = match self {
            Self::Sqlite => (true, None),
            Self::Postgres => (cfg!(feature = "postgres"), postgres::missing_locally()),
            Self::Redis => (cfg!(feature = "redis"), Flavor::Redis.missing_locally()),
            Self::Mongodb => (cfg!(feature = "mongodb"), mongodb::missing_locally()),
        };
        if !is_built {
            return Some(Ignored::NotAllowed(format!("this rdq is built without {}", self.name())));
        }
        missing.map(Ignored::Missing)
    }
}

/// An empty database of the test's own, which is gone when this is dropped.
#[derive(Debug)]
pub(crate) enum Database {
    File(TempDir),
    Postgres(PostgresServer),
    Redis(RedisServer),
    Mongodb(MongoServer),
}

impl Database {
    /// Starts one. Says why where that cannot be done.
    pub(crate) async fn start(kind: Kind) -> Result<Self, Ignored> {
        if let Some(reason) = kind.missing() {
            return Err(reason);
        }
        Ok(match kind {
            Kind::Sqlite => Self::File(tempfile::tempdir().expect("a directory")),
            Kind::Postgres => {
                Self::Postgres(PostgresServer::start().await.expect("a PostgreSQL server"))
            }
            Kind::Redis => {
                Self::Redis(RedisServer::start(Flavor::Redis).await.expect("a Redis server"))
            }
            Kind::Mongodb => {
                // A killed server leaves its transaction open, and others wait for its end: a minute,
                // unless told otherwise.
                let server = MongoServer::start_with(&["transactionLifetimeLimitSeconds=5"]).await;
                Self::Mongodb(server.expect("a MongoDB server"))
            }
        })
    }

    /// The same with its data on this disk. What it has written until now stays there.
    pub(crate) async fn start_on(disk: &Disk, kind: Kind) -> Result<Self, Ignored> {
        if let Some(reason) = kind.missing() {
            return Err(reason);
        }
        let path = disk.path();
        let database = match kind {
            Kind::Sqlite => Self::File(tempfile::tempdir_in(path).expect("a directory")),
            Kind::Postgres => {
                // Its log does not outgrow the disk.
                let settings = ["max_wal_size=64MB", "min_wal_size=32MB"];
                let server = PostgresServer::start_in(&path, &settings).await;
                Self::Postgres(server.expect("a PostgreSQL server"))
            }
            Kind::Redis => {
                let server = RedisServer::start_in(Flavor::Redis, &path, &[]).await;
                Self::Redis(server.expect("a Redis server"))
            }
            Kind::Mongodb => {
                let server = MongoServer::start_in(&path).await;
                Self::Mongodb(server.expect("a MongoDB server"))
            }
        };
        disk.sync();
        Ok(database)
    }

    /// What `rdq serve --storage` takes.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::File(folder) => format!("sqlite:{}", folder.path().join("rdq.db").display()),
            Self::Postgres(server) => server.url().to_owned(),
            Self::Redis(server) => server.url().to_owned(),
            Self::Mongodb(server) => server.url().to_owned(),
        }
    }

    /// Its process. A file has none.
    pub(crate) fn process(&mut self) -> &mut LocalServer {
        let process = match self {
            Self::File(_) => None,
            Self::Postgres(server) => server.local(),
            Self::Redis(server) => server.local(),
            Self::Mongodb(server) => server.local(),
        };
        process.expect("a server of the test's own")
    }
}
