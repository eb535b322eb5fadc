//! Numbers are nobody else's, and grow: also when draws ended with the server that was killed after
//! them, and when its clock was set back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;
mod served;

use futures::TryStreamExt as _;
use mongodb::{
    Collection,
    bson::{Document, doc},
};
use rdq_compliance::crew::{claim_from, new_task, queue, resolution};
use rdq_mongodb::MongoStorage;
use rdq_spi::{AttemptReport, Call, ListParams, Outcome, Resolution, Storage as _};
use rdq_test_servers::LocalServer;
use served::Served;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const HOUR_MS: i64 = 3_600_000;

async fn numbers(served: &Served) -> (Collection<Document>, Document) {
    let numbers = served.database().await.collection::<Document>("store");
    let now = numbers.find_one(doc! { "_id": "numbers" }).await.unwrap().unwrap();
    (numbers, now)
}

/// As if the host's clock had been set by so much.
async fn set_clock(served: &Served, millis: i64) {
    let (numbers, _) = numbers(served).await;
    let set = vec![doc! { "$set": { "now": { "$add": ["$$NOW", millis] } } }];
    numbers.update_one(doc! { "_id": "numbers" }, set).await.unwrap();
}

async fn all(served: &Served, field: &str) -> Vec<i64> {
    let tasks = served.database().await.collection::<Document>("tasks");
    let tasks: Vec<_> = tasks.find(doc! {}).await.unwrap().try_collect().await.unwrap();
    let mut all: Vec<_> = tasks.iter().filter_map(|task| task.get_i64(field).ok()).collect();
    all.sort_unstable();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_that_was_lost_is_not_handed_out_again() {
    let Some(served) = Served::start().await else { return };
    let stores = [served.open().await, served.open().await];
    // The clock stands still as far as draws see: the numbers alone have to tell them apart.
    set_clock(&served, HOUR_MS).await;
    let (collection, before) = numbers(&served).await;
    let mut number = 0;
    for store in [&stores[0], &stores[1], &stores[0], &stores[1]] {
        let lost = async || {
            // The write is there, and the draw before it is not.
            let of_before = collection.replace_one(doc! { "_id": "numbers" }, &before);
            assert_eq!(of_before.await.unwrap().modified_count, 1, "a draw was made, and is lost");
        };
        number += 1;
        let task = new_task(&format!("t{number}"), &queue("q"));
        store.enqueue(vec![task]).await.unwrap().remove(0).unwrap();
        let claim = claim_from(store, &queue("q"), LONG).await.unwrap().remove(0);
        lost().await;
        let death = resolution(&claim, Call::DeadLetter);
        store.resolve(vec![death]).await.unwrap().remove(0).unwrap();
        lost().await;
    }

    for field in ["seq", "ended", "generation"] {
        let mut all = all(&served, field).await;
        assert_eq!(all.len(), 4, "{field}: {all:?}");
        all.dedup();
        assert_eq!(all.len(), 4, "{field}: {all:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_admitted_after_a_kill_is_above_what_was_drawn_before() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    let admit = async |store: &MongoStorage, id: &str| {
        store.enqueue(vec![new_task(id, &queue("q"))]).await.unwrap().remove(0).unwrap();
    };
    admit(&store, "before").await;
    let (collection, before) = numbers(&served).await;
    admit(&store, "drawn").await;
    let drawn = all(&served, "seq").await.pop().unwrap();
    served.process(LocalServer::kill);
    served.process(LocalServer::start_again).unwrap();

    let store = served.open().await;
    collection.replace_one(doc! { "_id": "numbers" }, &before).await.unwrap();
    admit(&store, "after").await;

    let newest = all(&served, "seq").await.pop().unwrap();
    assert!(newest > drawn, "{newest} {drawn}");
    let page = ListParams {
        queue: queue("q"),
        status: None,
        include_attempts: false,
        limit: 10,
        bytes_max: 1 << 20,
        position: None,
    };
    let page = store.list(page).await.unwrap();
    let ids: Vec<_> = page.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["after", "drawn", "before"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_grow_over_removals_whatever_the_clock_does() {
    let Some(served) = Served::start().await else { return };
    let (queue, task) = (queue("q"), new_task("t", &queue("q")));
    let mut generations = Vec::new();
    for (hour, is_forgotten) in [(1, true), (0, false), (2, true), (-1, true)] {
        let admitting = served.open().await;
        admitting.enqueue(vec![task.clone()]).await.unwrap().remove(0).unwrap();
        set_clock(&served, hour * HOUR_MS).await;
        let store = served.open().await;
        let claim = claim_from(&store, &queue, LONG).await.unwrap().remove(0);
        generations.push(claim.generation);
        let mut end = resolution(&claim, Call::DeadLetter);
        if is_forgotten {
            let attempt = AttemptReport::default();
            let outcome = Outcome::Succeed { attempt, result: "".into(), forget: true };
            end = Resolution { call: Call::Complete, outcome, ..end };
        }
        store.resolve(vec![end]).await.unwrap().remove(0).unwrap();
        let purge = rdq_spi::PurgeParams {
            queue: queue.clone(),
            selection: rdq_spi::Selection::All,
            dry_run: false,
            limit: 10,
            position: None,
        };
        let purged = store.purge(purge).await.unwrap().count;
        assert_eq!(purged, u64::from(!is_forgotten));
        set_clock(&served, -2 * HOUR_MS).await;
    }
    assert!(generations.is_sorted_by(|a, b| a < b), "{generations:?}");
}
