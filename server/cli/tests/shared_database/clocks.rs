//! F13: the clocks of the servers are hours off, each in its own direction, on a database that has
//! its own. It must not matter at all. libfaketime tells the servers the wrong time.

use super::scene::{Scene, lasting};
use crate::harness::{
    Verdict, calls,
    clock::WrongClock,
    database::{Database, Kind},
    recorded::{Held, Recorded},
    until,
};
use rdq_compliance::Random;
use rdq_proto::{time, v1};
use std::time::Duration;

/// Queues beside the crew's: one without a worker but the test's own, and one that nobody works off.
const OTHER: &str = "other";
const LATER: &str = "later";
const LEASE: Duration = Duration::from_secs(60);
const HOUR_MILLIS: i64 = 60 * 60 * 1_000;

pub(crate) async fn of_servers_do_not_matter(kind: Kind, mut random: Random) -> Verdict {
    let clocks = [WrongClock::off_by("+3h")?, WrongClock::off_by("-2h")?];
    let database = Database::start(kind).await?;
    let environments = clocks.each_ref().map(WrongClock::environment);
    let scene =
        Scene::start_with(database, environments.each_ref().map(|it| &it[..]), &mut random).await;
    let [ahead, behind] = &scene.clients;

    // Due in an hour, by the database's clock: to a server that is three hours ahead, too.
    for (name, client) in [("from-ahead", ahead), ("from-behind", behind)] {
        let delay = Some(time::duration(Duration::from_secs(60 * 60)));
        let task = v1::Task { delay, ..lasting(name, LATER) };
        // Not recorded: it is never done.
        client.tasks.clone().enqueue(calls::enqueue(&task)).await.expect("admitted");
    }
    scene.works_on().await;
    for client in [ahead, behind] {
        let claims = client.claim(calls::claim(LATER, 10, LEASE)).await.expect("the server claims");
        assert!(claims.is_empty(), "claimed an hour early");
    }
    // Admitted and claimed at once through either, under instants of one clock.
    let first = through(ahead, behind, "first").await;
    let second = through(behind, ahead, "second").await;
    let apart = (claimed_at(&second) - claimed_at(&first)).abs();
    assert!(apart < HOUR_MILLIS, "the servers' clocks were asked: {apart} ms apart");
    // A lease that one server granted is no shorter to the other.
    for client in [ahead, behind] {
        let claims = client.claim(calls::claim(OTHER, 10, LEASE)).await.expect("the server claims");
        assert!(claims.is_empty(), "claimed under a lease");
    }
    ahead.complete(&second).await.expect("the claim is good");
    behind.complete(&first).await.expect("the claim is good");
    scene.ends_well(&[OTHER], 0).await;
    Ok(())
}

/// A task that one server admits and the other claims.
async fn through(admits: &Recorded, claims: &Recorded, id: &str) -> Held {
    admits.enqueue(&lasting(id, OTHER)).await.expect("admitted");
    until("the task is due", async || {
        claims.claim(calls::claim(OTHER, 1, LEASE)).await.expect("the server claims").pop()
    })
    .await
}

fn claimed_at(held: &Held) -> i64 {
    held.task.claimed_at.as_ref().and_then(time::millis).expect("a claim says when")
}
