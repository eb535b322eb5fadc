//! A database of a test's own.

#![allow(dead_code, reason = "each test uses its own part")]

use rdq_compliance::Random;
use rdq_test_servers::mongodb::MongoServer;

/// A database that no other test uses. It is made by whoever opens it first.
pub(crate) struct Namespace {
    server: String,
    name: String,
}

impl Namespace {
    /// On this server.
    pub(crate) fn new(server: &MongoServer) -> Self {
        let name = format!("kit_{:016x}", Random::any_seed());
        Self { server: server.url().to_owned(), name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What a storage opens.
    pub(crate) fn url(&self) -> String {
        format!("{}&namespace={}", self.server, self.name)
    }
}
