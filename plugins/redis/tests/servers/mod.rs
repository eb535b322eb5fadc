//! Servers and namespaces for the tests. It judges nothing.

#![allow(dead_code, reason = "each test uses its own part")]

use rdq_redis::{OpenError, RedisConfig, RedisStorage};
use rdq_spi::Storage;
use rdq_test_servers::{
    LocalServer,
    redis::{Flavor, RedisServer},
};
use redis::ConnectionLike as _;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A namespace that nobody else uses, on a server of its own where the program is installed, else
/// on one that all share.
pub(crate) struct Served {
    server: Server,
    namespace: String,
    is_cluster_node: bool,
}

enum Server {
    Own(Box<Mutex<RedisServer>>),
    Shared(&'static RedisServer),
}

impl Served {
    pub(crate) async fn start(flavor: Flavor) -> Self {
        if flavor.missing_locally().is_some() {
            let shared = RedisServer::shared(flavor).await.expect("a server");
            return Self::on(Server::Shared(shared));
        }
        Self::start_with(flavor, &[]).await
    }

    /// A server of its own with these settings.
    pub(crate) async fn start_with(flavor: Flavor, settings: &[&str]) -> Self {
        let server = RedisServer::start_with(flavor, settings).await.expect("a server");
        Self::on(Server::Own(Box::new(Mutex::new(server))))
    }

    /// The only node of a cluster.
    pub(crate) async fn start_cluster_node(flavor: Flavor) -> Self {
        let mut served = Self::start_with(flavor, &["--cluster-enabled", "yes"]).await;
        served.is_cluster_node = true;
        served.ask(redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383));
        served.wait_for_cluster();
        served
    }

    /// A node serves once it has noticed that all slots are its own.
    fn wait_for_cluster(&self) {
        while !self.ask(redis::cmd("CLUSTER").arg("INFO")).contains("cluster_state:ok") {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn on(server: Server) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("test-{}-{number}", std::process::id());
        Self { server, namespace, is_cluster_node: false }
    }

    /// The URL of the server, without the namespace.
    pub(crate) fn address(&self) -> String {
        match &self.server {
            Server::Own(server) => lock(server).url().to_owned(),
            Server::Shared(server) => server.url().to_owned(),
        }
    }

    /// The URL of the storage.
    pub(crate) fn url(&self) -> String {
        self.url_through(&self.address())
    }

    /// The URL of the storage, through another address of the server.
    pub(crate) fn url_through(&self, address: &str) -> String {
        format!("{address}?namespace={}", self.namespace)
    }

    pub(crate) async fn try_open(&self) -> Result<RedisStorage, OpenError> {
        RedisStorage::connect(RedisConfig::from_url(&self.url()).expect("a URL")).await
    }

    pub(crate) async fn open(&self) -> RedisStorage {
        self.try_open().await.expect("the server can be used")
    }

    pub(crate) async fn handle(&self) -> Arc<dyn Storage> {
        Arc::new(self.open().await)
    }

    /// Does something to the process; only with a server of its own.
    pub(crate) fn process<T>(&self, act: impl FnOnce(&mut LocalServer) -> T) -> T {
        let Server::Own(server) = &self.server else { panic!("the server is not the test's") };
        let mut server = lock(server);
        act(server.local().expect("a local server"))
    }

    /// Kills the server and starts it on its data, where it is the test's to kill.
    pub(crate) fn restart(&self) {
        if let Server::Own(_) = self.server {
            self.process(LocalServer::kill);
            self.process(LocalServer::start_again).expect("the server starts again");
        }
        if self.is_cluster_node {
            self.wait_for_cluster();
        }
    }

    /// Asks the server something on a connection of its own.
    pub(crate) fn ask(&self, command: &redis::Cmd) -> String {
        match self.value_of(command) {
            redis::Value::Int(number) => number.to_string(),
            redis::Value::Okay => "OK".to_owned(),
            value => redis::from_redis_value(value).expect("an answer in text"),
        }
    }

    fn value_of(&self, command: &redis::Cmd) -> redis::Value {
        let client = redis::Client::open(self.address()).expect("an address");
        let mut connection = client.get_connection().expect("the server answers");
        let answer = connection.req_command(command).and_then(redis::Value::extract_error);
        answer.expect("the server obeys")
    }

    /// One of the store's keys.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("rdq:{{{}}}:{name}", self.namespace)
    }

    /// Every key of the server.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = self.value_of(redis::cmd("KEYS").arg("*"));
        redis::from_redis_value(keys).expect("names")
    }

    /// Moves the clock that the store remembers, and says where it stands then.
    pub(crate) fn move_clock(&self, millis: i64) -> i64 {
        let stored = self.value_of(redis::cmd("GET").arg(self.key("state")));
        let mut state: Vec<u8> = redis::from_redis_value(stored).expect("bytes");
        let mut now = 0;
        for at in [1, 9] {
            let part: [u8; 8] = state[at..at + 8].try_into().expect("eight bytes");
            let moved = i64::from_be_bytes(part) + millis;
            state[at..at + 8].copy_from_slice(&moved.to_be_bytes());
            now = moved;
        }
        self.value_of(redis::cmd("SET").arg(self.key("state")).arg(state));
        now
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Server::Shared(_) = self.server {
            let mut forget = redis::cmd("UNLINK");
            for name in [
                "state", "tasks", "bodies", "history", "index", "runs", "tallies", "served",
                "queues", "secrets", "locks", "records", "names", "streams", "events",
            ] {
                forget.arg(self.key(name));
            }
            self.ask(&forget);
        }
    }
}

fn lock(server: &Mutex<RedisServer>) -> std::sync::MutexGuard<'_, RedisServer> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}
