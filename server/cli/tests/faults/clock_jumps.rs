//! F13, the part of a storage whose clock is the host's: the host's clock is set back ten minutes
//! and forward an hour between two starts. The stored clock never runs backwards, and a jump forward
//! costs at most a redelivery. libfaketime tells the server the wrong time.

use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    clock::WrongClock,
    recorded::{Held, Recorded},
    server::Server,
    until,
};
use rdq_compliance::{Random, history::History};
use rdq_proto::{time, v1};
use rdq_spi::TaskStatus;
use std::time::Duration;

const QUEUE: &str = "clock";
const LEASE: Duration = Duration::from_secs(60);

pub(crate) async fn cost_at_most_a_redelivery(_random: Random) -> Verdict {
    let [right, set_back, set_forward] = ["+0", "-10m", "+1h"].map(WrongClock::off_by);
    let (right, set_back, set_forward) = (right?, set_back?, set_forward?);
    let folder = tempfile::tempdir().expect("a directory");
    let storage = format!("sqlite:{}", folder.path().join("rdq.db").display());
    let mut server = Server::start_with(storage, &right.environment()).await;
    let client = Recorded::new(Tasks::new(server.channel()), &History::new());
    for number in 0..12 {
        client.enqueue(&calls::task(&format!("t-{number}"), QUEUE, "x")).await.expect("admitted");
    }
    let mut later = calls::task("later", QUEUE, "x");
    later.delay = Some(time::duration(Duration::from_secs(600)));
    client.enqueue(&later).await.expect("admitted");

    let mut latest = 0;
    let first = claim(&client, 2, &mut latest).await;
    server.kill();
    server.restart_with(&set_back.environment()).await;
    // Set back: leases go on, and no new instant is before an old one.
    let second = claim(&client, 2, &mut latest).await;
    let before_the_jump = claimed_at(&second[0]);
    client.extend(&first[0], LEASE).await.expect("the lease has not ended");
    client.complete(&first[0]).await.expect("the claim is good");
    server.kill();
    server.restart_with(&set_forward.environment()).await;
    // Set forward: leases have ended, what was for later is due, and who holds a token may still
    // finish until somebody reclaims the task.
    client.complete(&second[0]).await.expect("nobody has reclaimed it");
    let mut third = claim(&client, 20, &mut latest).await;
    let jumped = claimed_at(&third[0]) - before_the_jump;
    assert!(jumped > 50 * 60 * 1_000, "the clock was not set forward: {jumped} ms");
    third.sort_by_key(|held| held.attempt_no);
    assert_eq!(third.len(), 11, "all but the two that are done");
    let redelivered: Vec<_> = third.iter().filter(|held| held.attempt_no == 2).collect();
    assert_eq!(redelivered.len(), 2, "one of each claim");
    let late = client.complete(&first[1]).await.expect_err("it is with another worker");
    assert_eq!(calls::reason(&late), Some(v1::ErrorReason::StaleClaim));
    server.kill();
    server.restart_with(&right.environment()).await;
    // Set right again: what was stored stays, and time goes on from there.
    for held in &third {
        client.complete(held).await.expect("the claim is good");
    }
    client.enqueue(&calls::task("last", QUEUE, "x")).await.expect("admitted");
    for held in claim(&client, 20, &mut latest).await {
        client.complete(&held).await.expect("completed");
    }
    assert_eq!(client.judge(&[QUEUE]).await.get(&TaskStatus::Succeeded), Some(&14));
    Ok(())
}

/// Claims, and checks that no claim is before the latest.
async fn claim(client: &Recorded, limit: i32, latest: &mut i64) -> Vec<Held> {
    let claims = until("something is due", async || {
        let claims = client.claim(calls::claim(QUEUE, limit, LEASE)).await.expect("a claim");
        (!claims.is_empty()).then_some(claims)
    })
    .await;
    for held in &claims {
        let at = claimed_at(held);
        assert!(at >= *latest, "{at} is before {latest}");
        *latest = at;
    }
    claims
}

fn claimed_at(held: &Held) -> i64 {
    held.task.claimed_at.as_ref().and_then(time::millis).expect("a claim says when")
}
