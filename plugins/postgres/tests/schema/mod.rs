//! A schema of a test's own.

use rdq_compliance::Random;
use rdq_test_servers::postgres::PostgresServer;

/// A schema that no other test uses. It is made by whoever opens it first.
pub(crate) struct Schema {
    server: String,
    name: String,
}

#[allow(dead_code, reason = "each test binary uses its part")]
impl Schema {
    /// On this server.
    pub(crate) fn new(server: &PostgresServer) -> Self {
        Self::at(server.url())
    }

    /// On the server at this address.
    pub(crate) fn at(server: &str) -> Self {
        let name = format!("kit_{:016x}", Random::any_seed());
        Self { server: server.to_owned(), name }
    }

    /// What a storage opens.
    pub(crate) fn url(&self) -> String {
        self.url_through(&self.server)
    }

    /// What a storage opens that reaches the server by another address.
    pub(crate) fn url_through(&self, server: &str) -> String {
        format!("{server}?namespace={}", self.name)
    }

    /// The server's address.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
