//! Two servers on one database, and a crew at both of them. It does no harm to anybody.

use crate::harness::{
    Ignored,
    calls::{self, Tasks},
    crew::{Crew, Temper, Way},
    database::{Database, Kind},
    recorded::Recorded,
    server::Server,
};
use rdq_compliance::{Random, history::History};
use rdq_proto::{time, v1};
use rdq_spi::TaskStatus;
use std::time::Duration;

/// Where the crew works.
pub(crate) const QUEUE: &str = "crew";
pub(crate) const LEASE: Duration = Duration::from_secs(1);

pub(crate) struct Scene {
    // Servers first: they are dropped before what they stand on.
    pub(crate) servers: [Server; 2],
    /// One for each server.
    pub(crate) clients: [Recorded; 2],
    pub(crate) database: Database,
    pub(crate) crew: Crew,
}

impl Scene {
    /// Starts everything, and returns when both servers have load.
    pub(crate) async fn start(kind: Kind, random: &mut Random) -> Result<Self, Ignored> {
        Ok(Self::start_on(Database::start(kind).await?, random).await)
    }

    /// The same on this database.
    pub(crate) async fn start_on(database: Database, random: &mut Random) -> Self {
        Self::start_with(database, [&[], &[]], random).await
    }

    /// The same with more in the environment of each server.
    pub(crate) async fn start_with(
        database: Database,
        [of_one, of_two]: [&[(&str, &str)]; 2],
        random: &mut Random,
    ) -> Self {
        let servers = [
            Server::start_with(database.url(), of_one).await,
            Server::start_with(database.url(), of_two).await,
        ];
        let history = History::new();
        let clients =
            servers.each_ref().map(|it| Recorded::new(Tasks::new(it.channel()), &history));
        let temper = Temper { fail: 5, release: 3, extend: 10, abandon: 2, ..Temper::default() };
        let mut crew = Crew::new(QUEUE, temper, LEASE);
        for (number, client) in clients.iter().enumerate() {
            let mut seed = || Random::seeded(random.next_u64());
            crew.producer(client, &format!("p{number}"), seed());
            for way in [Way::Unary, Way::Follow, Way::Work] {
                crew.worker(client, way, seed());
            }
        }
        crew.resolved_more_than(20).await;
        Self { servers, clients, database, crew }
    }

    /// Returns when the crew got more done.
    pub(crate) async fn works_on(&self) {
        self.crew.resolved_more_than(self.crew.resolved() + 20).await;
    }

    /// Works everything off, and judges. Every task of the crew has succeeded then, and so has every
    /// one of the other queues.
    pub(crate) async fn ends_well(mut self, other_queues: &[&str], faults: usize) {
        let [client, other] = &self.clients;
        let tally = self.crew.drain(client).await;
        eprintln!("{tally:?}");
        assert!(tally.errors >= faults, "the faults were not noticed");
        let queues: Vec<_> = [QUEUE].iter().chain(other_queues).copied().collect();
        let counts = other.judge(&queues).await;
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&TaskStatus::Succeeded], "{counts:?}");
        assert!(counts[&TaskStatus::Succeeded] >= tally.admitted, "{counts:?} of {tally:?}");
        for server in &mut self.servers {
            assert!(server.is_alive(), "a server ended");
        }
    }
}

/// A task that ends well however often its lease lapses.
pub(crate) fn lasting(id: &str, queue: &str) -> v1::Task {
    v1::Task {
        max_attempts: Some(200),
        initial_backoff: Some(time::duration(Duration::from_millis(50))),
        ..calls::task(id, queue, "x")
    }
}
