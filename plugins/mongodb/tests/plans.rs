//! What the server examines for a call is what the call is about, whatever waits or is kept beside
//! it: by the server's own profile of the commands that it was sent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;
mod served;

use futures::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};
use rdq_compliance::crew::{claim_from, new_task, queue, resolution};
use rdq_spi::{Call, Moment, NewTask, Storage as _};
use served::Served;
use std::time::Duration;

/// Five tasks are claimed; beside each lie hundreds that are not.
const BESIDE: usize = 1_000;
const EXAMINED_MAX: i64 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_reads_no_backlog_and_nothing_finished() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    let queue = queue("q");
    let waiting = (0..BESIDE).map(|n| NewTask {
        due: Moment::In(Duration::from_secs(3600)),
        priority: i32::try_from(n % 5).unwrap(),
        ..new_task(&format!("waits-{n}"), &queue)
    });
    store.enqueue(waiting.collect()).await.unwrap();
    let finished: Vec<_> = (0..BESIDE).map(|n| new_task(&format!("ended-{n}"), &queue)).collect();
    let ids = finished.iter().map(|task| task.id.clone()).collect();
    store.enqueue(finished).await.unwrap();
    store.cancel(ids).await.unwrap();
    let due = (0..5).map(|n| new_task(&format!("due-{n}"), &queue));
    store.enqueue(due.collect()).await.unwrap();
    let database = served.database().await;
    database.run_command(doc! { "profile": 2 }).await.unwrap();

    let claims = claim_from(&store, &queue, Duration::from_secs(60)).await.unwrap();
    let ends = claims.iter().map(|claim| resolution(claim, Call::Complete)).collect();
    store.resolve(ends).await.unwrap();
    let none = claim_from(&store, &queue, Duration::from_secs(60)).await.unwrap();

    database.run_command(doc! { "profile": 0 }).await.unwrap();
    assert_eq!((claims.len(), none.len()), (5, 0));
    let about = doc! { "ns": format!("{}.tasks", database.name()) };
    let profile = database.collection::<Document>("system.profile").find(about).await.unwrap();
    let profile: Vec<_> = profile.try_collect().await.unwrap();
    assert!(profile.len() >= 6, "each command is there: {profile:#?}");
    for command in profile {
        let number = |field| match command.get(field) {
            Some(Bson::Int32(number)) => i64::from(*number),
            Some(Bson::Int64(number)) => *number,
            _ => 0,
        };
        let examined = number("keysExamined") + number("docsExamined");
        assert!(examined <= EXAMINED_MAX, "{examined} examined: {command:#?}");
        let plan = command.get_str("planSummary").unwrap_or_default();
        assert!(!plan.contains("COLLSCAN"), "{command:#?}");
    }
}
