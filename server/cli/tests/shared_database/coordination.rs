//! F28 and F30: many want one lock, and transfers are made, through both servers, while the one and
//! the other is killed or stands still. What they do and how it is judged is the kit's.

use crate::harness::{
    Verdict,
    child::{ChildWorker, Job, Line, Orders},
    database::{Database, Kind},
    server::Server,
};
use rdq_compliance::{
    Random,
    holders::{self, Holders},
    tellers::Tellers,
};
use rdq_remote::RemoteStorage;
use rdq_spi::Storage;
use rustix::process::Signal;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How often. The server that is hit is the one and the other in turn.
const ROUNDS: usize = 4;
/// So long a process of its own has the lock: it has read by then, on a busy machine too.
const CHILDS_TTL: Duration = Duration::from_secs(1);

pub(crate) async fn late_holders_are_fenced_off(kind: Kind, _random: Random) -> Verdict {
    let mut pair = Pair::start(kind).await?;
    let holders = Holders::start(pair.handles()).await;
    for round in 0..ROUNDS {
        holders.works_on().await;
        stop_a_holder(&holders, &pair.servers[round % 2]).await;
        let mut dies = holder(&holders, &pair.servers[round % 2]);
        dies.hold().await;
        dies.kill().await;
        holders.works_on().await;
        pair.hit(round, async || holders.works_on().await).await;
    }
    let tally = holders.finish().await;
    assert!(tally.failed > 0, "the kills were not noticed: {tally:?}");
    Ok(())
}

pub(crate) async fn transfers_keep_the_sum(kind: Kind, _random: Random) -> Verdict {
    let mut pair = Pair::start(kind).await?;
    let tellers = Tellers::start(pair.handles()).await;
    for round in 0..ROUNDS {
        tellers.works_on().await;
        pair.hit(round, async || tellers.works_on().await).await;
    }
    let tally = tellers.finish(through(&pair.servers[0]).await).await;
    assert!(tally.unavailable + tally.unknown > 0, "the kills were not noticed: {tally:?}");
    Ok(())
}

/// Two servers on one database.
struct Pair {
    // Servers first: they are dropped before what they stand on.
    servers: [Server; 2],
    _database: Database,
}

impl Pair {
    async fn start(kind: Kind) -> Result<Self, crate::harness::Ignored> {
        let database = Database::start(kind).await?;
        let servers = [Server::start(database.url()).await, Server::start(database.url()).await];
        Ok(Self { servers, _database: database })
    }

    /// Opens handles through the one and the other in turn.
    fn handles(&self) -> impl AsyncFn() -> Arc<dyn Storage> {
        let opened = AtomicUsize::new(0);
        async move || through(&self.servers[opened.fetch_add(1, Ordering::Relaxed) % 2]).await
    }

    /// One stands still for longer than a hold, then the other is killed, which work goes on without.
    async fn hit(&mut self, round: usize, work: impl AsyncFn()) {
        let (stops, dies) = (round % 2, (round + 1) % 2);
        self.servers[stops].freeze().await;
        tokio::time::sleep(3 * holders::TTL).await;
        self.servers[stops].signal(Signal::CONT);
        self.servers[dies].kill();
        work().await;
        self.servers[dies].restart().await;
    }
}

async fn through(server: &Server) -> Arc<dyn Storage> {
    Arc::new(RemoteStorage::connect(&server.url()).await.expect("the server answers"))
}

/// A process that holds the lock, or will.
fn holder(holders: &Holders, server: &Server) -> ChildWorker {
    ChildWorker::start(&Orders {
        job: Job::Lock,
        server: server.url(),
        queue: holders.lock().as_str().to_owned(),
        limit: 0,
        lease: CHILDS_TTL,
    })
}

/// A process that has read is stopped until the lock has passed on. It goes on as if it still had it,
/// and writes nothing.
async fn stop_a_holder(holders: &Holders, server: &Server) {
    loop {
        let mut late = holder(holders, server);
        let held = late.hold().await;
        late.signal(Signal::STOP);
        // On a machine that is busy beyond measure it may have been too late for that already.
        let Some(seen) = holders.register().read(&held) else { continue };
        holders.works_on().await;
        late.finish();
        late.signal(Signal::CONT);
        assert!(!holders.register().write_after(&held, seen), "{held:?} was to be fenced off");
        let answer = late.line().await;
        assert!(matches!(answer, Some(Line::Renewed(false))), "{answer:?}");
        return;
    }
}
