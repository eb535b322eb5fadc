//! A server of a test's own, to be killed, paused, demoted and asked. It judges nothing.

#![allow(dead_code, reason = "each test uses its own part")]

use crate::namespace::Namespace;
use mongodb::{
    Client, Database,
    bson::{Document, doc},
};
use rdq_mongodb::{MongoOptions, MongoStorage, OpenError};
use rdq_spi::{
    MutationKey, MutationKind, MutationScope, MutationStatus, NewMutation, OperationName, Storage,
    SubjectName,
};
use rdq_test_servers::{
    LocalServer,
    mongodb::{self as servers, MongoServer},
};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Served {
    server: Mutex<MongoServer>,
    namespace: Namespace,
}

impl Served {
    /// The server, unless it is not installed and need not be.
    pub(crate) async fn start() -> Option<Self> {
        Self::of(MongoServer::start).await
    }

    /// One that is in no replica set.
    pub(crate) async fn start_standalone() -> Option<Self> {
        Self::of(MongoServer::start_standalone).await
    }

    async fn of<E: std::fmt::Debug>(
        start: impl AsyncFnOnce() -> Result<MongoServer, E>,
    ) -> Option<Self> {
        if let Some(reason) = servers::missing_locally() {
            eprintln!("ignored: {reason}");
            return None;
        }
        let server = start().await.expect("a MongoDB server");
        let namespace = Namespace::new(&server);
        Some(Self { server: Mutex::new(server), namespace })
    }

    pub(crate) async fn try_open(&self) -> Result<MongoStorage, OpenError> {
        open_at(&self.namespace.url()).await
    }

    pub(crate) async fn open(&self) -> MongoStorage {
        self.try_open().await.expect("the server can be used")
    }

    pub(crate) async fn handle(&self) -> Arc<dyn Storage> {
        Arc::new(self.open().await)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        self.process(|server| format!("127.0.0.1:{}", server.port()))
    }

    /// A handle that comes through another address.
    pub(crate) async fn open_through(&self, address: impl std::fmt::Display) -> MongoStorage {
        // It would go where the set says that it is.
        let direct = format!("mongodb://{address}/?directConnection=true");
        let url = format!("{direct}&namespace={}", self.namespace.name());
        open_at(&url).await.expect("the server can be used")
    }

    /// The same, as a storage.
    pub(crate) async fn handle_through(&self, address: impl std::fmt::Display) -> Arc<dyn Storage> {
        Arc::new(self.open_through(address).await)
    }

    /// Does something to the process.
    pub(crate) fn process<T>(&self, act: impl FnOnce(&mut LocalServer) -> T) -> T {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        act(server.local().expect("a server of our own"))
    }

    async fn client(&self) -> Client {
        let url = format!("mongodb://{}/?directConnection=true", self.address());
        Client::with_uri_str(url).await.expect("an address")
    }

    /// The database, as somebody else sees it.
    pub(crate) async fn database(&self) -> Database {
        self.client().await.database(self.namespace.name())
    }

    /// Asks the server something.
    pub(crate) async fn ask(&self, command: Document) -> Document {
        let asked = self.client().await.database("admin").run_command(command).await;
        asked.expect("the server obeys")
    }

    /// Ends its time as a primary. It would be one again in a minute.
    pub(crate) async fn step_down(&self) {
        self.ask(doc! { "replSetStepDown": 60, "force": true }).await;
    }

    /// Makes it the primary again.
    pub(crate) async fn step_up(&self) {
        self.ask(doc! { "replSetFreeze": 0 }).await;
    }
}

/// A mutation whose key is this.
pub(crate) fn mutation(key: &str) -> NewMutation {
    let scope = MutationScope {
        subject: SubjectName::new("subject").expect("a name"),
        operation: OperationName::new("operation").expect("a name"),
        key: MutationKey::new(key).expect("a name"),
    };
    NewMutation {
        scope,
        kind: MutationKind::new("kind").expect("a name"),
        eligibility_claim: "claim".into(),
        fingerprint: [7; 32],
        status: MutationStatus::Accepted,
        response: key.to_owned().into(),
    }
}

async fn open_at(url: &str) -> Result<MongoStorage, OpenError> {
    MongoStorage::open(MongoOptions::from_url(url).expect("a URL")).await
}
