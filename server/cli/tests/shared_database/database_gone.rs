//! The database is killed and started again. Servers say so, and are not restarted.

use super::scene::Scene;
use crate::harness::{Verdict, calls, database::Kind, recorded::Recorded, until};
use rdq_compliance::Random;
use rdq_proto::v1::ErrorReason;
use tonic_health::pb::health_check_response::ServingStatus;

const KILLS: usize = 2;

pub(crate) async fn killed_is_borne(kind: Kind, mut random: Random) -> Verdict {
    let mut scene = Scene::start(kind, &mut random).await?;
    for _ in 0..KILLS {
        scene.works_on().await;
        scene.database.process().kill();
        for (server, client) in scene.servers.iter().zip(&scene.clients) {
            says_that_it_is_gone(client).await;
            until("the server says that it does not serve", async || {
                (server.health().await == Some(ServingStatus::NotServing)).then_some(())
            })
            .await;
        }
        scene.database.process().start_again().expect("the database starts again");
        for server in &scene.servers {
            until("the server serves again", async || {
                (server.health().await == Some(ServingStatus::Serving)).then_some(())
            })
            .await;
        }
    }
    scene.works_on().await;
    scene.ends_well(&[], KILLS).await;
    Ok(())
}

/// A call is told that the database is gone, and nothing else.
async fn says_that_it_is_gone(client: &Recorded) {
    until("the server says that its database is gone", async || {
        // Served a moment ago, it may still have been on its way.
        let refusal = calls::stats(&client.tasks, "none").await.err()?;
        assert_eq!(calls::reason(&refusal), Some(ErrorReason::StorageUnavailable), "{refusal:?}");
        Some(())
    })
    .await;
}
