//! Claims that last, that are lost, and that come late.

use crate::harness::{Interposer, Proxy, QUEUE, Rival, Server, until, until_status};
use rdq_client::{
    AttemptOutcome, Claim, Client, HandlerError, NewTask, StopReason, TaskStatus, Worker,
    WorkerBuilder,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

const LONG: Duration = Duration::from_secs(600);

fn worker(client: &Client) -> WorkerBuilder {
    Worker::builder(client).queue(QUEUE)
}

/// What handlers were told.
#[derive(Debug, Default)]
struct Told {
    started: AtomicUsize,
    reasons: Mutex<Vec<Option<StopReason>>>,
    go_on: Notify,
}

impl Told {
    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    fn reasons(&self) -> Vec<Option<StopReason>> {
        self.reasons.lock().unwrap().clone()
    }

    /// Runs until it is let go on, or stopped.
    async fn run(&self, claim: &Claim) -> &'static str {
        self.started.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            () = self.go_on.notified() => "ended",
            () = claim.cancellation().cancelled() => {
                self.reasons.lock().unwrap().push(claim.stop_reason());
                "stopped"
            }
        }
    }
}

/// A handler that runs until it is told something.
fn waits(
    told: &Arc<Told>,
) -> impl Fn(Claim) -> futures::future::BoxFuture<'static, Result<&'static str, HandlerError>>
+ Send
+ Sync
+ 'static {
    let told = Arc::clone(told);
    move |claim| {
        let told = Arc::clone(&told);
        Box::pin(async move { Ok(told.run(&claim).await) })
    }
}

#[tokio::test]
async fn lease_extended() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = Server::start().await;
    let client = server.client().await;
    let rival = Rival::at(&server.address());
    let told = Arc::new(Told::default());
    let worker = worker(&client).lease(LEASE).handler("h", waits(&told)).build().unwrap().start();
    let id = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap().id;
    until("it runs", async || (told.started() == 1).then_some(())).await;

    until("the handler has run for several leases", async || {
        assert!(rival.claim(QUEUE, LONG).await.is_none(), "somebody else has the task");
        let task = client.get(&id).await.unwrap();
        let held = task.lease_expires_at()?.duration_since(task.claimed_at()?).unwrap();
        (held > 3 * LEASE).then_some(())
    })
    .await;
    told.go_on.notify_one();

    let task = until_status(&client, &id, TaskStatus::Succeeded).await;
    assert_eq!((task.attempts().len(), told.started()), (1, 1));
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn lease_lost_mid_handler() {
    let server = Server::start().await;
    let client = server.client().await;
    let rival = Rival::at(&server.address());
    let proxy = Proxy::before(server.address()).await;
    let far = Client::connect(proxy.address()).await.unwrap();
    // One handler is stopped; the other has ended by then, and does not know.
    let (stopped, ended) = (Arc::new(Told::default()), Arc::new(Told::default()));
    let worker = worker(&far)
        .lease(Duration::from_secs(1))
        .handler("is-stopped", waits(&stopped))
        .handler("has-ended", waits(&ended))
        .concurrency(2)
        .build()
        .unwrap()
        .start();
    for handler in ["is-stopped", "has-ended"] {
        client.enqueue(NewTask::new(QUEUE, handler).id(handler)).await.unwrap();
    }
    until("both run", async || (stopped.started() + ended.started() == 2).then_some(())).await;

    proxy.hole();
    ended.go_on.notify_one();
    let claims = [rival.claims(QUEUE, LONG).await, rival.claims(QUEUE, LONG).await];
    assert!(claims.iter().all(|claim| claim.attempt_no == 2));
    proxy.forward();

    until("the handler is stopped", async || stopped.reasons().pop()).await;
    assert_eq!(stopped.reasons(), [Some(StopReason::Lost)]);
    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
    for claim in &claims {
        let task = client.get(&claim.id).await.unwrap();
        assert_eq!(task.status(), TaskStatus::InFlight, "the rival's claim stands");
        rival.complete(claim, "the rival's").await.unwrap();
        let task = client.get(&claim.id).await.unwrap();
        assert_eq!((task.status(), task.result()), (TaskStatus::Succeeded, &"the rival's".into()));
        let outcomes: Vec<_> = task.attempts().iter().map(|attempt| attempt.outcome).collect();
        assert_eq!(outcomes, [AttemptOutcome::LeaseExpired, AttemptOutcome::Success]);
    }
}

#[tokio::test]
async fn lease_all_but_gone() {
    let server = Server::start().await;
    let client = server.client().await;
    let before = Interposer::before(server.address()).await;
    before.delay_next_claim();
    let far = Client::connect(before.address()).await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let claims = Arc::clone(&seen);
    let worker = worker(&far)
        .lease(LONG)
        .handler("h", move |claim: Claim| {
            claims.lock().unwrap().push((claim.attempt_no(), claim.generation()));
            async { Ok::<_, HandlerError>(()) }
        })
        .build()
        .unwrap()
        .start();
    let id = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap().id;

    let task = until_status(&client, &id, TaskStatus::Succeeded).await;

    assert!(before.claim_was_delayed());
    // The first claim was given back without a handler and without an attempt.
    assert_eq!(*seen.lock().unwrap(), [(1, 2)]);
    assert_eq!((task.attempts().len(), task.lease_expired_count()), (1, 0));
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn cancel_mid_handler() {
    let server = Server::start().await;
    let client = server.client().await;
    let told = Arc::new(Told::default());
    let dropped = Arc::new(Notify::new());
    let is_dropped = Arc::clone(&dropped);
    let worker = worker(&client)
        .lease(LONG)
        .cleanup(Duration::from_millis(10))
        .handler("listens", waits(&told))
        .handler("does-not-listen", move |_| {
            struct OnDrop(Arc<Notify>);
            impl Drop for OnDrop {
                fn drop(&mut self) {
                    self.0.notify_one();
                }
            }
            let on_drop = OnDrop(Arc::clone(&is_dropped));
            async move {
                let _on_drop = on_drop;
                std::future::pending::<Result<(), HandlerError>>().await
            }
        })
        .build()
        .unwrap()
        .start();
    let id = client.enqueue(NewTask::new(QUEUE, "listens")).await.unwrap().id;
    until("it runs", async || (told.started() == 1).then_some(())).await;
    assert!(client.cancel(&id).await.unwrap().cancelled);
    until("it is told", async || told.reasons().pop()).await;
    assert_eq!(told.reasons(), [Some(StopReason::Cancelled)]);

    let id = client.enqueue(NewTask::new(QUEUE, "does-not-listen")).await.unwrap().id;
    until_status(&client, &id, TaskStatus::InFlight).await;
    client.cancel(&id).await.unwrap();
    crate::harness::awaited("its future is dropped", dropped.notified()).await;

    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
    let task = client.get(&id).await.unwrap();
    assert_eq!(task.status(), TaskStatus::Cancelled);
    assert_eq!(task.attempts()[0].outcome, AttemptOutcome::Cancelled);
    let again = client.cancel(&id).await.unwrap();
    assert_eq!((again.status, again.cancelled), (TaskStatus::Cancelled, false));
}

#[tokio::test]
async fn redelivery() {
    let server = Server::start().await;
    let client = server.client().await;
    let proxy = Proxy::before(server.address()).await;
    let far = Client::connect(proxy.address()).await.unwrap();
    let first = Arc::new(Told::default());
    let told = Arc::clone(&first);
    let worker = worker(&far)
        .concurrency(2)
        .lease(Duration::from_secs(1))
        .handler("h", move |claim: Claim| {
            let told = Arc::clone(&told);
            async move {
                match claim.attempt_no() {
                    1 => Ok::<_, HandlerError>(told.run(&claim).await),
                    _ => Ok("second"),
                }
            }
        })
        .build()
        .unwrap()
        .start();
    let id = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap().id;
    until("it runs", async || (first.started() == 1).then_some(())).await;

    // The server claims the task again, for the same stream, which has room for one more.
    proxy.hole();
    until("the task is claimed again", async || {
        (client.get(&id).await.unwrap().lease_expired_count() > 0).then_some(())
    })
    .await;
    proxy.forward();

    let task = until_status(&client, &id, TaskStatus::Succeeded).await;
    assert_eq!(task.result(), "second");
    until("the first is told", async || first.reasons().pop()).await;
    assert_eq!(first.reasons(), [Some(StopReason::Lost)]);
    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
    assert_eq!(client.get(&id).await.unwrap().result(), "second");
}
