//! A server, or the database, stands still for longer than the leases, and goes on.

use super::scene::{LEASE, Scene, lasting};
use crate::harness::{
    Verdict, calls,
    database::Kind,
    recorded::{Held, Recorded},
    until,
};
use rdq_compliance::Random;
use rdq_proto::v1::ErrorReason;
use rustix::process::Signal;
use std::time::Duration;

/// Queues beside the crew's: of tasks whose worker is too late, and of those that are admitted while
/// something stands still.
const HELD: &str = "held";
const MEANWHILE: &str = "meanwhile";
const ROUNDS: usize = 2;
/// A lease that outlasts a worker's one call, on a busy machine too.
const LONG_LEASE: Duration = Duration::from_secs(60);
/// So long a caller waits for a database that stands still.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) async fn server_is_too_late(kind: Kind, mut random: Random) -> Verdict {
    let scene = Scene::start(kind, &mut random).await?;
    let [stops, goes_on] = &scene.clients;
    for round in 0..ROUNDS {
        let first = hold(stops, &format!("held-{round}")).await;
        scene.servers[0].freeze().await;
        let meanwhile = lasting(&format!("meanwhile-{round}"), MEANWHILE);
        while goes_on.within(PATIENCE).enqueue(&meanwhile).await.is_err() {
            // It stopped with the lock of its file. It would be waited for, which is no takeover.
            scene.servers[0].signal(Signal::CONT);
            scene.servers[0].freeze().await;
        }
        finish_next(goes_on, MEANWHILE).await;
        let late = tokio::spawn({
            let (client, first) = (stops.clone(), first.clone());
            async move { client.complete(&first).await }
        });
        let again = taken_over(goes_on, &first).await;
        scene.works_on().await;
        scene.servers[0].signal(Signal::CONT);

        let answer = late.await.expect("the call does not panic");
        is_stale(&answer.expect_err("another worker has the task"));
        goes_on.complete(&again).await.expect("the claim is good");
        scene.works_on().await;
    }
    scene.ends_well(&[HELD, MEANWHILE], 0).await;
    Ok(())
}

pub(crate) async fn database_is_waited_for(kind: Kind, mut random: Random) -> Verdict {
    let mut scene = Scene::start(kind, &mut random).await?;
    for round in 0..ROUNDS {
        let [one, two] = &scene.clients;
        let first = hold(one, &format!("held-{round}")).await;
        scene.database.process().pause();
        let meanwhile = lasting(&format!("meanwhile-{round}"), MEANWHILE);
        for client in [one, two] {
            // It ends by its deadline, although the database does not answer.
            let error = client.within(PATIENCE).enqueue(&meanwhile).await.expect_err("no answer");
            assert!(calls::outcome_unknown(&error), "it may be admitted yet: {error:?}");
        }
        // The database's clock goes on while it stands still.
        tokio::time::sleep(2 * LEASE).await;
        scene.database.process().resume();

        let again = taken_over(two, &first).await;
        is_stale(&one.complete(&first).await.expect_err("another worker has the task"));
        two.complete(&again).await.expect("the claim is good");
        one.enqueue(&meanwhile).await.expect("whatever became of it before");
        finish_next(two, MEANWHILE).await;
        scene.works_on().await;
    }
    scene.ends_well(&[HELD, MEANWHILE], 0).await;
    Ok(())
}

/// Admits a task and claims it.
async fn hold(client: &Recorded, id: &str) -> Held {
    client.enqueue(&lasting(id, HELD)).await.expect("admitted");
    next(client, HELD, LEASE).await
}

/// Claims the same task through another server, once its lease has ended.
async fn taken_over(client: &Recorded, first: &Held) -> Held {
    let again = next(client, HELD, LONG_LEASE).await;
    assert_eq!((&again.id, again.attempt_no), (&first.id, first.attempt_no + 1));
    again
}

async fn finish_next(client: &Recorded, queue: &str) {
    let held = next(client, queue, LONG_LEASE).await;
    client.complete(&held).await.expect("the claim is good");
}

/// The one task of a queue, once it is due.
async fn next(client: &Recorded, queue: &str, lease: Duration) -> Held {
    until("a task is due", async || {
        // What stood still may have cost it connections.
        client.claim(calls::claim(queue, 1, lease)).await.ok()?.pop()
    })
    .await
}

fn is_stale(refusal: &tonic::Status) {
    assert_eq!(calls::reason(refusal), Some(ErrorReason::StaleClaim), "{refusal:?}");
}
