//! Claims that wait, beside the transactions of applications and of our own: nobody waits for them but
//! who is of them, and what they admit is claimed once they are committed.

use crate::given::{LONG, admit, blocks, claim, claim_params, id, is_ignored, store_on, task};
use rdq_postgres::PostgresStorage;
use rdq_spi::{Awaited, Claim, Operation, Result, Storage as _, TaskStatus, Transactions as _};
use rdq_test_servers::postgres::{self, PostgresServer};
use sqlx::{Connection as _, raw_sql};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than anything takes that is not lost.
const LOST: Duration = Duration::from_secs(60);
/// What a call gets to come to where it waits. The stories hold without, too.
const A_WHILE: Duration = Duration::from_millis(50);

async fn shared() -> &'static PostgresServer {
    PostgresServer::shared().await.unwrap()
}

struct Waiting {
    answer: JoinHandle<Result<Awaited>>,
    enough: CancellationToken,
}

/// A claim of ten tasks that waits.
async fn wait(storage: &Arc<PostgresStorage>) -> Waiting {
    let (storage, enough) = (Arc::clone(storage), CancellationToken::new());
    let until = enough.clone();
    let claims = vec![claim_params("q", 10, LONG)];
    let answer = tokio::spawn(async move { storage.claim_when_due(claims, until).await });
    tokio::time::sleep(A_WHILE).await;
    Waiting { answer, enough }
}

impl Waiting {
    async fn claims(self) -> Vec<Claim> {
        let answer = tokio::time::timeout(LOST, self.answer).await.expect("an answer").unwrap();
        answer.unwrap().claims.into_iter().flat_map(|claimed| claimed.unwrap().claims).collect()
    }
}

fn ids(claims: &[Claim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.task.id.as_str()).collect()
}

#[tokio::test]
async fn an_admission_that_a_foreign_transaction_holds_up_holds_up_no_claim_that_waits() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut watcher) = store_on(shared().await).await;
    let storage = Arc::new(storage);
    let mut db = schema.connect().await;
    let mut tx = db.begin().await.unwrap();
    raw_sql("SELECT enqueue('q', 'handler', 'hi', 'contested')").execute(&mut *tx).await.unwrap();
    let waiting = wait(&storage).await;
    let of_contested = Arc::clone(&storage);
    let contested =
        tokio::spawn(async move { of_contested.enqueue(vec![task("contested", "q")]).await });
    blocks(&mut tx, &mut watcher).await;

    admit(&*storage, vec![task("free", "q")]).await;

    let claims = waiting.claims().await;
    assert_eq!(ids(&claims), ["free"]);
    assert!(!contested.is_finished(), "it still waits for the transaction");
    tx.commit().await.unwrap();
    let contested = contested.await.unwrap().unwrap().remove(0).unwrap();
    assert!(!contested.created, "the application was first");
    assert_eq!(ids(&claim(&*storage, "q", 10, LONG).await), ["contested"]);
}

#[tokio::test]
async fn an_admission_that_was_held_up_and_comes_late_loses_nothing() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut watcher) = store_on(shared().await).await;
    let storage = Arc::new(storage);
    let mut db = schema.connect().await;
    let mut tx = db.begin().await.unwrap();
    raw_sql("SELECT enqueue('q', 'handler', 'hi', 'late')").execute(&mut *tx).await.unwrap();
    let waiting = wait(&storage).await;
    let of_late = Arc::clone(&storage);
    let late = tokio::spawn(async move { of_late.enqueue(vec![task("late", "q")]).await });
    blocks(&mut tx, &mut watcher).await;
    waiting.enough.cancel();
    assert_eq!(ids(&waiting.claims().await), [""; 0]);

    // It is admitted now, and was to be handed to a claim that is gone.
    tx.rollback().await.unwrap();

    assert!(late.await.unwrap().unwrap().remove(0).unwrap().created);
    let waiting = wait(&storage).await;
    let claims = waiting.claims().await;
    assert_eq!(ids(&claims), ["late"]);
    assert_eq!((claims[0].task.attempt_count, claims[0].task.lease_expired_count), (0, 0));
}

#[tokio::test]
async fn a_claim_that_is_dropped_while_it_claims_takes_nothing() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut watcher) = store_on(shared().await).await;
    let storage = Arc::new(storage);
    admit(&*storage, vec![task("t", "q")]).await;
    let mut db = schema.connect().await;
    let mut tx = db.begin().await.unwrap();
    raw_sql("LOCK TABLE unfinished").execute(&mut *tx).await.unwrap();
    let waiting = wait(&storage).await;
    blocks(&mut tx, &mut watcher).await;

    waiting.answer.abort();
    assert!(waiting.answer.await.unwrap_err().is_cancelled());
    tx.commit().await.unwrap();

    let again = async {
        loop {
            let claims = claim(&*storage, "q", 10, LONG).await;
            if !claims.is_empty() {
                return claims;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let claims = tokio::time::timeout(LOST, again).await.expect("it is free again");
    assert_eq!((ids(&claims), claims[0].task.attempt_count), (vec!["t"], 0));
}

#[tokio::test]
async fn what_a_transaction_admits_is_claimed_once_it_is_committed_and_never_if_it_is_rolled_back()
{
    if is_ignored(postgres::missing()) {
        return;
    }
    let (_schema, storage, _db) = store_on(shared().await).await;
    let storage = Arc::new(storage);
    let enqueue = |name: &str| Operation::Enqueue(task(name, "q"));
    let waiting = wait(&storage).await;
    let mut undone = storage.begin().await.unwrap();
    undone.apply(vec![enqueue("undone")]).await.unwrap();
    undone.rollback().await.unwrap();
    let refused = vec![enqueue("refused"), Operation::Cancel(id("none"))];
    assert!(storage.commit(refused).await.is_err());
    let mut kept = storage.begin().await.unwrap();
    kept.apply(vec![enqueue("kept")]).await.unwrap();
    assert_eq!(kept.get(id("kept")).await.unwrap().status, TaskStatus::Pending);
    assert!(!waiting.answer.is_finished(), "nothing is due that anybody else sees");

    kept.commit().await.unwrap();

    assert_eq!(ids(&waiting.claims().await), ["kept"]);
    let waiting = wait(&storage).await;
    storage.commit(vec![enqueue("at-once")]).await.unwrap();
    assert_eq!(ids(&waiting.claims().await), ["at-once"]);
    for name in ["undone", "refused"] {
        assert!(storage.get(id(name)).await.is_err(), "{name}");
    }
}
