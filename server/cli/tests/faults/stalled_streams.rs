//! F21: streams whose clients stop reading, are stopped, or die. The server claims no more than the
//! stream will take, keeps its memory, and gives back what it did not deliver.

use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    child::{ChildWorker, Claimed, Job, Line, Orders},
    crew::{Crew, Temper, Way},
    recorded::Recorded,
    server::Server,
    until,
};
use rdq_compliance::{Random, history::History};
use rdq_proto::v1;
use rdq_spi::TaskStatus;
use rustix::process::Signal;
use std::time::Duration;
use tempfile::TempDir;

const QUEUE: &str = "stalled";
const LEASE: Duration = Duration::from_secs(4);
/// A number of claims that stands for so long does not change any more.
const SETTLED_FOR: Duration = Duration::from_secs(2);
/// What the server may need in addition, whatever a client does.
const MEMORY_KIB_MAX: u64 = 64 << 10;

struct Scene {
    server: Server,
    client: Recorded,
    memory_kib: u64,
    _folder: TempDir,
}

impl Scene {
    /// A queue with so many tasks of such a size.
    async fn with_tasks(count: usize, payload_bytes: usize, random: &mut Random) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let server = Server::on_file(&folder.path().join("rdq.db")).await;
        let client = Recorded::new(Tasks::new(server.channel()), &History::new());
        for batch in (0..count).collect::<Vec<_>>().chunks((4 << 20) / payload_bytes) {
            let tasks: Vec<_> = batch
                .iter()
                .map(|number| {
                    let payload = random.bytes(payload_bytes);
                    // However often a lease lapses, the task does not die of it.
                    v1::Task {
                        max_attempts: Some(200),
                        ..calls::task(&format!("t-{number}"), QUEUE, payload)
                    }
                })
                .collect();
            client.enqueue_batch(&tasks).await.expect("admitted");
        }
        let memory_kib = server.memory_kib();
        Self { server, client, memory_kib, _folder: folder }
    }

    fn child(&self, job: Job, limit: i32, lease: Duration) -> ChildWorker {
        let (server, queue) = (self.server.url(), QUEUE.to_owned());
        // What it is handed out and never prints may have been claimed all the same.
        self.client.maybe_claimed();
        ChildWorker::start(&Orders { job, server, queue, limit, lease })
    }

    async fn stats(&self) -> v1::QueueStats {
        calls::stats(&self.client.tasks, QUEUE).await.expect("stats")
    }

    /// The number of claims once it does not change any more.
    async fn settled_in_flight(&self) -> i64 {
        let (mut settled, mut looks) = (0, 0);
        while looks < 5 || settled == 0 {
            tokio::time::sleep(SETTLED_FOR / 5).await;
            let now = self.stats().await.in_flight;
            looks = if now == settled { looks + 1 } else { 0 };
            settled = now;
        }
        settled
    }

    /// Somebody else works off what is there; all of it, once the leases have ended.
    async fn others_do_the_rest(self, random: &mut Random) {
        let memory_kib = self.server.memory_kib().saturating_sub(self.memory_kib);
        assert!(memory_kib < MEMORY_KIB_MAX, "the server took {memory_kib} KiB more");
        let mut crew = Crew::new(QUEUE, Temper::default(), LEASE);
        crew.worker(&self.client, Way::Unary, Random::seeded(random.next_u64()));
        crew.worker(&self.client, Way::Work, Random::seeded(random.next_u64()));
        crew.drain(&self.client).await;
        let counts = self.client.judge(&[QUEUE]).await;
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&TaskStatus::Succeeded], "{counts:?}");
    }
}

pub(crate) async fn unread_is_bounded(mut random: Random) -> Verdict {
    const COUNT: usize = 200;
    let scene = Scene::with_tasks(COUNT, 256 << 10, &mut random).await;
    let mut child = scene.child(Job::FollowUnread, 200, LEASE);
    assert!(matches!(child.line().await, Some(Line::Open)));

    let in_flight = scene.settled_in_flight().await;
    eprintln!("{in_flight} of {COUNT} tasks of 256 KiB claimed for a client that does not read");
    // What the windows of the connection take, and a message or two.
    assert!(in_flight < 80, "{in_flight} claims for a client that does not read");
    child.kill().await;
    // A lapsed claim counts as in flight until somebody takes it over, and nobody does so here.
    let after = until("claims are given back", async || {
        let now = scene.stats().await.in_flight;
        (now < in_flight).then_some(now)
    })
    .await;
    eprintln!("{after} were on their way when the client died");
    scene.others_do_the_rest(&mut random).await;
    Ok(())
}

pub(crate) async fn stopped_is_bounded(mut random: Random) -> Verdict {
    const MAX_IN_FLIGHT: i32 = 20;
    let scene = Scene::with_tasks(100, 1 << 10, &mut random).await;
    let mut child = scene.child(Job::Follow, MAX_IN_FLIGHT, LEASE);
    let claims = child.claims(20).await;
    scene.client.claimed_elsewhere(claims.iter().map(Claimed::grant).collect());
    child.signal(Signal::STOP);

    // Two leases: each time they end, a place is free, and no more than there are places.
    for _ in 0..8 {
        tokio::time::sleep(LEASE / 4).await;
        let stats = scene.stats().await;
        let live = stats.in_flight - stats.lapsed;
        assert!(live <= i64::from(MAX_IN_FLIGHT), "{stats:?}");
    }
    child.kill().await;
    scene.others_do_the_rest(&mut random).await;
    Ok(())
}

pub(crate) async fn stopped_is_found_dead(mut random: Random) -> Verdict {
    let hour = Duration::from_secs(3_600);
    let scene = Scene::with_tasks(200, 256 << 10, &mut random).await;
    let mut child = scene.child(Job::FollowUnread, 200, hour);
    assert!(matches!(child.line().await, Some(Line::Open)));
    let in_flight = scene.settled_in_flight().await;
    child.signal(Signal::STOP);

    // Its connection stands, and nobody answers on it: after a while, the server asks.
    let after = until("what was not delivered is back", async || {
        let now = scene.stats().await.in_flight;
        (now < in_flight).then_some(now)
    })
    .await;
    eprintln!("{in_flight} claims, {after} of them were on their way to the stopped client");
    child.kill().await;
    Ok(())
}

pub(crate) async fn dead_work_is_bounded(mut random: Random) -> Verdict {
    const CREDITS: i32 = 15;
    let scene = Scene::with_tasks(100, 1 << 10, &mut random).await;
    let mut child = scene.child(Job::Work, CREDITS, LEASE);
    let claims = child.claims(15).await;
    scene.client.claimed_elsewhere(claims.iter().map(Claimed::grant).collect());
    let more = child.further_claims(Duration::from_millis(500)).await;
    assert!(more.is_empty(), "{} claims beyond the credits", more.len());
    assert_eq!(scene.stats().await.in_flight, i64::from(CREDITS));

    child.kill().await;
    // The rest is for others at once; what was delivered comes back with the end of its lease, which
    // may be over on a busy machine.
    let others = scene.client.claim(calls::claim(QUEUE, 100, LEASE)).await.expect("a claim");
    let fresh = others.iter().filter(|held| held.attempt_no == 1).count();
    assert_eq!(fresh, 85);
    assert!(
        claims.iter().all(|it| others.iter().all(|held| held.id != it.id || held.attempt_no == 2))
    );
    for held in &others {
        scene.client.complete(held).await.expect("completed");
    }
    scene.others_do_the_rest(&mut random).await;
    Ok(())
}
