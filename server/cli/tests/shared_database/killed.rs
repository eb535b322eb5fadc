//! Claimants and a server are killed while they hold claims; the other server goes on.

use super::scene::{LEASE, QUEUE, Scene, lasting};
use crate::harness::{
    Verdict,
    child::{ChildWorker, Claimed, Job, Orders},
    database::Kind,
    recorded::ClaimsElsewhere,
};
use rdq_compliance::Random;

/// How often. The server that is killed is the one and the other in turn.
const ROUNDS: usize = 4;
/// So many a claimant holds when it is killed.
const HELD: i32 = 5;

pub(crate) async fn loses_nothing(kind: Kind, mut random: Random) -> Verdict {
    let mut scene = Scene::start(kind, &mut random).await?;
    for round in 0..ROUNDS {
        let (dies, lives) = (round % 2, (round + 1) % 2);
        // One of them loses its server first, the other is killed beside a server that lives.
        let (mut of_dead, dead_claims) = claimant(&scene, dies, Job::Follow).await;
        let (mut of_live, live_claims) = claimant(&scene, lives, Job::Work).await;
        scene.servers[dies].kill();
        of_live.kill().await;
        let alone = lasting(&format!("alone-{round}"), QUEUE);
        scene.clients[lives].enqueue(&alone).await.expect("the other server goes on");
        for (child, claims) in [(&mut of_dead, dead_claims), (&mut of_live, live_claims)] {
            // It has ended, or does now that its server is gone.
            let rest = child.last_claims().await;
            claims.learnt(rest.iter().map(Claimed::grant).collect());
        }
        scene.servers[dies].restart().await;
        scene.works_on().await;
    }
    scene.ends_well(&[], ROUNDS).await;
    Ok(())
}

/// A process that holds claims of a server's, and resolves none.
async fn claimant(scene: &Scene, server: usize, job: Job) -> (ChildWorker, ClaimsElsewhere) {
    let claims = scene.clients[server].claiming_elsewhere();
    let mut child = ChildWorker::start(&Orders {
        job,
        server: scene.servers[server].url(),
        queue: QUEUE.to_owned(),
        limit: HELD,
        lease: LEASE,
    });
    let first = child.claims(1).await;
    claims.learnt(first.iter().map(Claimed::grant).collect());
    (child, claims)
}
