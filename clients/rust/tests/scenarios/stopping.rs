//! The end of a worker, and of a server.

use crate::harness::{Interposer, QUEUE, Rival, Server, awaited, until, until_status};
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
use tokio::sync::Semaphore;

const LONG: Duration = Duration::from_secs(600);

/// Handlers that wait at a gate.
#[derive(Debug)]
struct Gate {
    started: AtomicUsize,
    open: Semaphore,
    reasons: Mutex<Vec<Option<StopReason>>>,
}

impl Gate {
    fn closed() -> Arc<Self> {
        let (started, open, reasons) = (AtomicUsize::new(0), Semaphore::new(0), Mutex::default());
        Arc::new(Self { started, open, reasons })
    }

    async fn until_started(&self, count: usize) {
        until("handlers run", async || {
            (self.started.load(Ordering::SeqCst) >= count).then_some(())
        })
        .await;
    }

    fn worker(self: &Arc<Self>, client: &Client) -> WorkerBuilder {
        let gate = Arc::clone(self);
        Worker::builder(client).queue(QUEUE).handler("h", move |claim: Claim| {
            let gate = Arc::clone(&gate);
            async move {
                gate.started.fetch_add(1, Ordering::SeqCst);
                tokio::select! {
                    permit = gate.open.acquire() => permit.expect("never closed").forget(),
                    () = claim.cancellation().cancelled() => {
                        gate.reasons.lock().unwrap().push(claim.stop_reason());
                        return Err(HandlerError::new("stopped", "it is to run again"));
                    }
                }
                Ok("done")
            }
        })
    }
}

#[tokio::test]
async fn drain() {
    let server = Server::start().await;
    let client = server.client().await;
    let gate = Gate::closed();
    let worker = gate.worker(&client).concurrency(4).lease(Duration::from_secs(1));
    let worker = worker.build().unwrap().start();
    let running = ["a", "b"];
    for id in running {
        client.enqueue(NewTask::new(QUEUE, "h").id(id)).await.unwrap();
    }
    gate.until_started(2).await;
    let before = client.get("a").await.unwrap().lease_expires_at();

    let stopping = tokio::spawn(worker.stop());
    let later: Vec<_> = (0..5).map(|index| format!("later-{index}")).collect();
    for id in &later {
        client.enqueue(NewTask::new(QUEUE, "h").id(id)).await.unwrap();
    }
    // Longer than a lease: those of the running handlers are kept.
    until("the leases are kept", async || {
        let after = client.get("a").await.unwrap().lease_expires_at();
        (after? > before? + Duration::from_secs(1)).then_some(())
    })
    .await;
    gate.open.add_permits(2);

    assert_eq!(awaited("the worker stops", stopping).await.unwrap().unanswered, 0);
    assert_eq!(gate.started.load(Ordering::SeqCst), 2, "nothing new was started");
    for id in running {
        let task = client.get(id).await.unwrap();
        assert_eq!((task.status(), task.attempts().len()), (TaskStatus::Succeeded, 1));
    }
    for id in &later {
        let task = client.get(id).await.unwrap();
        assert_eq!((task.status(), task.attempt_count()), (TaskStatus::Pending, 0), "{id}");
    }
    assert!(gate.reasons.lock().unwrap().is_empty(), "nobody was stopped");
}

#[tokio::test]
async fn drain_grace_over() {
    let server = Server::start().await;
    let client = server.client().await;
    let gate = Gate::closed();
    let worker = gate.worker(&client).grace(Duration::from_millis(50)).build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    let id = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap().id;
    gate.until_started(1).await;

    stop.send(()).unwrap();
    assert_eq!(awaited("the worker stops", working).await.unwrap().unanswered, 0);

    assert_eq!(*gate.reasons.lock().unwrap(), [Some(StopReason::Shutdown)]);
    let task = client.get(&id).await.unwrap();
    assert_eq!((task.status(), task.attempts().len()), (TaskStatus::Pending, 0));
    // Due at once: not after its lease of a minute, nor with backoff.
    let claim = Rival::at(&server.address()).claim(QUEUE, LONG).await.expect("it is due");
    assert_eq!((claim.id, claim.attempt_no), (id, 1));
}

#[tokio::test]
async fn a_success_after_the_grace_counts() {
    let server = Server::start().await;
    let client = server.client().await;
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let worker = Worker::builder(&client)
        .queue(QUEUE)
        .grace(Duration::ZERO)
        .handler("h", move |claim: Claim| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                claim.cancellation().cancelled().await;
                Ok::<_, HandlerError>("all the same")
            }
        })
        .build()
        .unwrap()
        .start();
    let id = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap().id;
    until("it runs", async || (started.load(Ordering::SeqCst) == 1).then_some(())).await;

    assert_eq!(worker.stop().await.unanswered, 0);

    let task = client.get(&id).await.unwrap();
    assert_eq!((task.status(), task.result()), (TaskStatus::Succeeded, &"all the same".into()));
}

#[tokio::test]
async fn a_server_that_drains_takes_the_outcomes_of_what_runs() {
    let mut server = Server::start().await;
    let client = server.client().await;
    let before = Interposer::before(server.address()).await;
    let far = Client::connect(before.address()).await.unwrap();
    let gate = Gate::closed();
    // What is not answered soon is not answered by this server.
    let worker = gate.worker(&far).grace(Duration::ZERO).build().unwrap().start();
    let id = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap().id;
    gate.until_started(1).await;

    server.terminate();
    until("the worker is told", async || before.saw_draining().then_some(())).await;
    gate.open.add_permits(1);
    server.ended().await;

    assert_eq!(worker.stop().await.unanswered, 0, "the outcome was acknowledged");
    server.restart().await;
    let task = client.get(&id).await.unwrap();
    assert_eq!((task.status(), task.attempts().len()), (TaskStatus::Succeeded, 1));
    assert_eq!(gate.started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn server_restart() {
    let mut server = Server::start().await;
    let client = server.client().await;
    let gate = Gate::closed();
    let worker = gate.worker(&client).concurrency(3).build().unwrap().start();
    let tasks = (0..12).map(|index| NewTask::new(QUEUE, "h").id(format!("task-{index}")));
    assert!(client.enqueue_many(tasks).await.iter().all(Result::is_ok));
    gate.until_started(3).await;

    server.kill();
    // One ends while there is no server.
    gate.open.add_permits(1);
    server.restart().await;
    gate.open.add_permits(11);

    for index in 0..12 {
        let id = format!("task-{index}");
        let task = until_status(&client, &id, TaskStatus::Succeeded).await;
        let outcomes: Vec<_> = task.attempts().iter().map(|attempt| attempt.outcome).collect();
        assert_eq!(outcomes, [AttemptOutcome::Success], "{id}");
    }
    assert_eq!(gate.started.load(Ordering::SeqCst), 12, "each ran once");
    assert_eq!(worker.stop().await.unanswered, 0);
    assert!(gate.reasons.lock().unwrap().is_empty());
}
