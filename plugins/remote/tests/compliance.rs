//! The compliance kit through a real server, once with each storage behind it. No case is here.

use rdq_compliance::{Fixture, Random, check, check_unless};
use rdq_daemon::{ServeArgs, Server};
use rdq_remote::RemoteStorage;
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use rdq_test_servers::{
    mongodb::{self, MongoServer},
    postgres::{self, PostgresServer},
    redis::{Flavor, RedisServer},
};
use std::{path::PathBuf, sync::Arc};
use tokio::sync::Mutex;

/// A server of its own on free ports. It ends with the fixture.
struct Served {
    storage: String,
    server: Mutex<Option<Server>>,
}

impl Served {
    async fn start(storage: String) -> Self {
        let server = Mutex::new(Some(serve(&storage).await));
        Self { storage, server }
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let server = self.server.lock().await;
        let address = server.as_ref().expect("the server runs").address();
        let storage = RemoteStorage::connect(&format!("http://{address}")).await;
        Arc::new(storage.expect("the server answers"))
    }

    async fn restart(&self) {
        let mut server = self.server.lock().await;
        if let Some(running) = server.take() {
            running.shutdown().await.expect("the server ends in order");
        }
        *server = Some(serve(&self.storage).await);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.server.get_mut().take() {
            tokio::spawn(server.shutdown());
        }
    }
}

async fn serve(storage: &str) -> Server {
    let free = "127.0.0.1:0".parse().ok();
    let storage = Some(storage.to_owned());
    let args = ServeArgs { listen: free, http: free, storage, ..ServeArgs::default() };
    Server::start(args).await.expect("the server starts")
}

const MEMORY: Capabilities = Capabilities {
    durability: Durability::None,
    notify: true,
    waiting_claims: false,
    filter_pushdown: true,
    batch_enqueue: true,
};

struct MemoryBehind(Served);

impl Fixture for MemoryBehind {
    const CAPABILITIES: Capabilities = MEMORY;
    const FACULTIES: Faculties = Faculties::ALL;
    const THROUGH_ENGINE: bool = true;

    async fn create() -> Self {
        Self(Served::start("memory:".to_owned()).await)
    }

    async fn open(&self) -> Arc<dyn Storage> {
        self.0.open().await
    }
}

struct SqliteBehind {
    served: Served,
    _directory: tempfile::TempDir,
}

impl Fixture for SqliteBehind {
    const CAPABILITIES: Capabilities = Capabilities { durability: Durability::PowerCut, ..MEMORY };
    const FACULTIES: Faculties = Faculties::ALL;
    const THROUGH_ENGINE: bool = true;

    async fn create() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path: PathBuf = directory.path().join("rdq.db");
        let served = Served::start(format!("sqlite:{}", path.display())).await;
        Self { served, _directory: directory }
    }

    async fn open(&self) -> Arc<dyn Storage> {
        self.served.open().await
    }

    async fn restart(&self) {
        self.served.restart().await;
    }
}

/// A schema of its own on a database that all cases share.
struct PostgresBehind(Served);

impl Fixture for PostgresBehind {
    const CAPABILITIES: Capabilities = Capabilities { durability: Durability::PowerCut, ..MEMORY };
    const FACULTIES: Faculties = Faculties::ALL;
    const THROUGH_ENGINE: bool = true;

    async fn create() -> Self {
        let database = PostgresServer::shared().await.expect("a PostgreSQL server");
        let namespace = format!("kit_{:016x}", Random::any_seed());
        Self(Served::start(format!("{}?namespace={namespace}", database.url())).await)
    }

    async fn open(&self) -> Arc<dyn Storage> {
        self.0.open().await
    }

    async fn restart(&self) {
        self.0.restart().await;
    }
}

/// A namespace of its own on a server that all cases share; what is restarted is rdq.
struct RedisBehind(Served);

impl Fixture for RedisBehind {
    const CAPABILITIES: Capabilities = Capabilities { durability: Durability::PowerCut, ..MEMORY };
    const FACULTIES: Faculties = Faculties { interactive: false, ..Faculties::ALL };
    const THROUGH_ENGINE: bool = true;

    async fn create() -> Self {
        let database = RedisServer::shared(Flavor::Redis).await.expect("a Redis server");
        let namespace = format!("kit_{:016x}", Random::any_seed());
        Self(Served::start(format!("{}?namespace={namespace}", database.url())).await)
    }

    async fn open(&self) -> Arc<dyn Storage> {
        self.0.open().await
    }

    async fn restart(&self) {
        self.0.restart().await;
    }
}

/// A database of its own on a server that all cases share.
struct MongoBehind(Served);

impl Fixture for MongoBehind {
    const CAPABILITIES: Capabilities =
        Capabilities { durability: Durability::PowerCut, filter_pushdown: false, ..MEMORY };
    const FACULTIES: Faculties = Faculties::ALL;
    const THROUGH_ENGINE: bool = true;

    async fn create() -> Self {
        let database = MongoServer::shared().await.expect("a MongoDB server");
        let namespace = format!("kit_{:016x}", Random::any_seed());
        Self(Served::start(format!("{}&namespace={namespace}", database.url())).await)
    }

    async fn open(&self) -> Arc<dyn Storage> {
        self.0.open().await
    }

    async fn restart(&self) {
        self.0.restart().await;
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let mut failed = 0;
    println!("through a server with `memory:` behind it");
    failed += check::<MemoryBehind>(arguments.clone()).failed;
    println!("through a server with `sqlite:` behind it");
    failed += check::<SqliteBehind>(arguments.clone()).failed;
    println!("through a server with `postgres:` behind it");
    failed += check_unless::<PostgresBehind>(postgres::missing(), arguments.clone()).failed;
    println!("through a server with `redis:` behind it");
    failed += check_unless::<RedisBehind>(Flavor::Redis.missing(), arguments.clone()).failed;
    println!("through a server with `mongodb:` behind it");
    failed += check_unless::<MongoBehind>(mongodb::missing(), arguments).failed;
    std::process::exit(if failed > 0 { 101 } else { 0 });
}
