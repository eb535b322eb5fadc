//! What the server examines for a call is what the call is about, whatever waits or is kept beside
//! it: by the server's own profile of the commands that it was sent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;
mod served;

use futures::TryStreamExt as _;
use mongodb::{
    Database,
    bson::{Bson, Document, doc},
};
use rdq_compliance::crew::{claim_from, new_task, queue, resolution};
use rdq_spi::{Call, Moment, NewTask, Operation, PruneParams, Pruned, Storage as _};
use served::{Served, mutation};
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
    assert_little_was_examined(&database, "tasks", 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_reads_nothing_that_is_younger() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    let transactions = store.transactions().unwrap();
    for n in 0..5 {
        let observe = Operation::Observe(mutation(&format!("old-{n}")));
        transactions.commit(vec![observe]).await.unwrap();
    }
    let database = served.database().await;
    let young = (0..BESIDE).map(|n| {
        let at = mongodb::bson::DateTime::from_millis(4_000_000_000_000);
        doc! { "_id": format!("young-{n}"), "observed_at": at }
    });
    database.collection::<Document>("mutations").insert_many(young).await.unwrap();
    // The clock goes on.
    tokio::time::sleep(Duration::from_millis(10)).await;
    database.run_command(doc! { "profile": 2 }).await.unwrap();

    let params = PruneParams { older_than: Duration::ZERO, limit: 10 };
    let pruned = store.ledger().unwrap().prune(params).await.unwrap();

    database.run_command(doc! { "profile": 0 }).await.unwrap();
    assert_eq!(pruned, Pruned { count: 5, more: false });
    assert_little_was_examined(&database, "mutations", 2).await;
}

/// By the profile of the commands about a collection, of which there are so many at least.
async fn assert_little_was_examined(database: &Database, collection: &str, commands_min: usize) {
    let about = doc! { "ns": format!("{}.{collection}", database.name()) };
    let profile = database.collection::<Document>("system.profile").find(about).await.unwrap();
    let profile: Vec<_> = profile.try_collect().await.unwrap();
    assert!(profile.len() >= commands_min, "each command is there: {profile:#?}");
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
