//! The end of a worker, and of a server.

use crate::harness::{Interposer, Proxy, QUEUE, Rival, Server, awaited, until, until_status};
use rdq_client::{
    AttemptOutcome, CONTRACT_VERSION, Claim, Client, Code, Error, HandlerError, NewTask, Receive,
    StopReason, TaskStatus, Worker, WorkerBuilder,
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

    assert_eq!(awaited("the worker stops", stopping).await.unwrap().unwrap().unanswered, 0);
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
async fn other_contract_version() {
    let server = Server::start().await;
    let capabilities = server.client().await.capabilities().await.unwrap();
    assert_eq!(capabilities.contract_version, CONTRACT_VERSION);
    let foreign = Interposer::before(server.address()).await;
    foreign.speak("2.7");
    let client = Client::builder(foreign.address()).connect_lazy().unwrap();
    // A producer asks for nothing but what it wants.
    let id = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap().id;
    assert_eq!(foreign.calls(), ["Enqueue"]);

    let idle = |_: Claim| async { Ok::<_, HandlerError>(()) };
    let worker = Worker::builder(&client).queue(QUEUE).handler("h", idle).build().unwrap();
    let working = tokio::spawn(worker.run_until(std::future::pending()));
    let error = awaited("the worker ends", working).await.unwrap().unwrap_err();

    assert!(matches!(error, Error::OtherContractVersion(_)), "{error:?}");
    assert_eq!(error.metadata("client_version"), Some(CONTRACT_VERSION));
    assert_eq!(error.metadata("server_version"), Some("2.7"));
    assert!(error.message().contains(CONTRACT_VERSION) && error.message().contains("2.7"));
    assert_eq!(foreign.calls(), ["Enqueue", "GetCapabilities"], "nothing was claimed");
    assert_eq!(client.get(&id).await.unwrap().status(), TaskStatus::Pending);
}

#[tokio::test]
async fn a_stop_with_nothing_held_does_not_wait_for_a_server_out_of_reach() {
    let server = Server::start().await;
    let client = server.client().await;
    let proxy = Proxy::before(server.address()).await;
    let through = Client::builder(proxy.address()).connect_lazy().unwrap();
    let gate = Gate::closed();
    let worker = gate.worker(&through).grace(LONG).build().unwrap().start();
    let id = client.enqueue(NewTask::new(QUEUE, "h")).await.unwrap().id;
    gate.until_started(1).await;
    // Of a task that is cancelled there is no outcome whose answer could be lost.
    client.cancel(&id).await.unwrap();
    until("the handler stops", async || gate.reasons.lock().unwrap().first().copied()).await;
    proxy.hole();

    let stopped = awaited("the worker stops", worker.stop()).await.unwrap();
    assert_eq!(stopped.unanswered, 0);
}

#[tokio::test]
async fn an_answer_with_fewer_results_than_items_loses_nothing() {
    let server = Server::start().await;
    let client = server.client().await;
    let short = Interposer::before(server.address()).await;
    short.cut_short("EnqueueBatch", 1);
    short.cut_short("ResolveBatch", 1);
    short.cut_short("ExtendLeases", 1_000);
    let through = Client::builder(short.address()).connect_lazy().unwrap();

    let tasks = ["a", "b", "c"].map(|id| NewTask::new(QUEUE, "h").id(id));
    let mut answers = through.enqueue_many(tasks).await.into_iter();
    assert_eq!(answers.next().unwrap().unwrap().id, "a");
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.code(), error.outcome_unknown()), (Code::Internal, true), "{error:?}");
    }

    let gate = Gate::closed();
    let worker = gate.worker(&through).concurrency(3).receive(Receive::ClaimDue);
    let worker = worker.lease(Duration::from_secs(1)).build().unwrap().start();
    gate.until_started(3).await;
    until("leases are extended", async || {
        let extended = short.calls().iter().filter(|method| *method == "ExtendLeases").count();
        (extended >= 3).then_some(())
    })
    .await;
    gate.open.add_permits(3);
    for id in ["a", "b", "c"] {
        let task = until_status(&client, id, TaskStatus::Succeeded).await;
        assert_eq!(task.attempts().len(), 1, "{id}");
    }
    assert_eq!(awaited("the worker stops", worker.stop()).await.unwrap().unanswered, 0);
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
    assert_eq!(awaited("the worker stops", working).await.unwrap().unwrap().unanswered, 0);

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

    assert_eq!(worker.stop().await.unwrap().unanswered, 0);

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

    assert_eq!(worker.stop().await.unwrap().unanswered, 0, "the outcome was acknowledged");
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
    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
    assert!(gate.reasons.lock().unwrap().is_empty());
}
