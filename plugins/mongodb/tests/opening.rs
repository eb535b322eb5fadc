//! How a store is opened: made once whoever comes first, refused where a newer version was, and
//! served with a warning where it is in no replica set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;
mod served;

use mongodb::bson::{Document, doc};
use rdq_compliance::crew::{claim_from, new_task, queue};
use rdq_mongodb::OpenError;
use rdq_spi::{Operation, Storage as _};
use served::{Served, mutation};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

#[tokio::test(flavor = "multi_thread")]
async fn eight_servers_that_start_at_once_on_nothing_share_one_store() {
    let Some(served) = Served::start().await else { return };
    let served = Arc::new(served);
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let served = Arc::clone(&served);
            tokio::spawn(async move { served.open().await })
        })
        .collect();
    let mut stores = Vec::new();
    for opened in opening {
        stores.push(opened.await.unwrap());
    }

    for (n, store) in stores.iter().enumerate() {
        store.enqueue(vec![new_task(&format!("t{n}"), &queue("q"))]).await.unwrap();
    }
    let claims = claim_from(&stores[0], &queue("q"), Duration::from_secs(60)).await.unwrap();
    let theirs = claims.iter().map(rdq_compliance::crew::claim_ref).collect();
    let live = stores[1].live_claims(theirs).await.unwrap();
    assert!(live.iter().all(Option::is_some), "all know each other's tokens: {live:?}");
    assert_eq!(stores[2].stats(queue("q")).await.unwrap().ready, 8 - claims.len() as u64);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_stays_as_it_is() {
    let Some(served) = Served::start().await else { return };
    served.open().await.close().await;
    let store = served.database().await.collection::<Document>("store");
    let newer = doc! { "$set": { "version": 1000 } };
    store.update_one(doc! { "_id": "store" }, newer).await.unwrap();
    let before = store.find_one(doc! { "_id": "store" }).await.unwrap();

    let error = served.try_open().await.unwrap_err();

    assert!(matches!(error, OpenError::NewerSchema { found: 1000, known: 2 }), "{error:?}");
    assert_eq!(store.find_one(doc! { "_id": "store" }).await.unwrap(), before);
}

#[tokio::test]
async fn a_store_without_a_ledger_gets_one_and_keeps_its_version() {
    let Some(served) = Served::start().await else { return };
    served.open().await.close().await;
    let database = served.database().await;
    // As a version left it that had none.
    database.collection::<Document>("mutations").drop().await.unwrap();
    let store = database.collection::<Document>("store");
    let version = store.find_one(doc! { "_id": "store" }).await.unwrap();

    let opened = served.open().await;

    let observe = vec![Operation::Observe(mutation("m"))];
    opened.transactions().unwrap().commit(observe).await.unwrap();
    let recorded = opened.ledger().unwrap().mutation(mutation("m").scope).await.unwrap();
    assert_eq!(recorded.unwrap().first, mutation("m"));
    let indexes = database.collection::<Document>("mutations").list_index_names().await.unwrap();
    assert_eq!(indexes, ["_id_", "age"]);
    assert_eq!(store.find_one(doc! { "_id": "store" }).await.unwrap(), version);
}

#[tokio::test]
async fn a_standalone_server_is_warned_of_and_a_replica_set_is_not() {
    for (served, is_warned_of) in
        [(Served::start_standalone().await, true), (Served::start().await, false)]
    {
        let Some(served) = served else { return };
        let warnings = Arc::new(Warnings::default());
        let listening = tracing::subscriber::set_default(Arc::clone(&warnings));
        let store = served.open().await;
        drop(listening);

        let warnings = warnings.0.lock().unwrap().join("\n");
        assert_eq!(warnings.contains("not a member of a replica set"), is_warned_of, "{warnings}");
        store.enqueue(vec![new_task("t", &queue("q"))]).await.unwrap().remove(0).unwrap();
    }
}

/// Keeps what is warned of.
#[derive(Debug, Default)]
struct Warnings(Mutex<Vec<String>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            self.0.lock().unwrap().push(format!("{value:?}"));
        });
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}
