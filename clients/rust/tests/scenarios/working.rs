//! What a handler's end becomes.

use crate::harness::{
    Interposer, Proxy, QUEUE, Server, awaited, until, until_status, until_succeeded,
};
use rdq_client::{
    AttemptOutcome, Claim, Client, Code, HandlerError, NewTask, Outcome, Permanent, QueueConfig,
    Receive, RetryAfter, Retryable, Snooze, StopReason, TaskStatus, Typed, Worker, WorkerBuilder,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Barrier, Notify};
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

/// Soon enough for a test, and a delay all the same.
const SOON: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
#[error("the mail server is down: attempt {0}")]
struct MailError(i32);

fn worker(client: &Client) -> WorkerBuilder {
    Worker::builder(client).queue(QUEUE)
}

#[tokio::test]
async fn happy_path() {
    let server = Server::start().await;
    let client = server.client().await;
    let worker = worker(&client)
        .handler("double", |claim: Claim| async move {
            Ok::<_, HandlerError>(claim.payload().repeat(2))
        })
        .build()
        .unwrap()
        .start();
    let one = client.enqueue(NewTask::new(QUEUE, "double").payload("ab")).await.unwrap();
    let many = (0..30).map(|index| NewTask::new(QUEUE, "double").payload(index.to_string()));
    let many = client.enqueue_many(many).await;

    let task = until_status(&client, &one.id, TaskStatus::Succeeded).await;
    assert_eq!(task.result(), "abab");
    assert_eq!(task.attempts().len(), 1);
    assert_eq!(task.attempts()[0].outcome, AttemptOutcome::Success);
    assert_eq!(task.attempts()[0].worker_id, worker.worker_id());
    for (index, answer) in many.into_iter().enumerate() {
        let task = until_status(&client, &answer.unwrap().id, TaskStatus::Succeeded).await;
        assert_eq!(task.result(), &index.to_string().repeat(2));
    }
    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
}

#[tokio::test]
async fn retry_then_success() {
    let server = Server::start().await;
    let client = server.client().await;
    let worker = worker(&client)
        .handler("flaky", |claim: Claim| async move {
            match claim.attempt_no() {
                1 => Err(HandlerError::from(MailError(1))),
                2 => Err(Typed("http.503", MailError(2)).into()),
                _ => Ok("sent"),
            }
        })
        .build()
        .unwrap()
        .start();
    let task = NewTask::new(QUEUE, "flaky").initial_backoff(SOON);
    let id = client.enqueue(task).await.unwrap().id;

    let task = until_status(&client, &id, TaskStatus::Succeeded).await;

    assert_eq!((&task.result()[..], task.attempt_count()), (&b"sent"[..], 3));
    let outcomes: Vec<_> = task.attempts().iter().map(|attempt| attempt.outcome).collect();
    let failed = AttemptOutcome::RetryableFailure;
    assert_eq!(outcomes, [failed, failed, AttemptOutcome::Success]);
    let errors: Vec<_> =
        task.attempts().iter().filter_map(|attempt| attempt.error.as_ref()).collect();
    assert!(errors[0].error_type.ends_with("::MailError"), "{}", errors[0].error_type);
    assert_eq!(errors[1].error_type, "http.503");
    for (error, number) in errors.iter().zip(1..) {
        assert_eq!(error.message, MailError(number).to_string());
        assert!(error.stack.contains(&error.message), "{}", error.stack);
    }
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn retry_after_and_snooze() {
    let server = Server::start().await;
    let client = server.client().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let worker = worker(&client)
        .handler("later", move |claim: Claim| {
            let run = count.fetch_add(1, Ordering::SeqCst);
            async move {
                match run {
                    0 => Err(HandlerError::from(Snooze(SOON))),
                    1 => {
                        assert_eq!(claim.attempt_no(), 1, "a snooze spends no attempt");
                        Err(RetryAfter(SOON, MailError(1)).into())
                    }
                    _ => Ok(()),
                }
            }
        })
        .build()
        .unwrap()
        .start();
    // The queue's own backoff would never end.
    let hour = Duration::from_secs(3_600);
    let task = NewTask::new(QUEUE, "later").initial_backoff(hour);
    let id = client.enqueue(task).await.unwrap().id;

    let task = until_status(&client, &id, TaskStatus::Succeeded).await;

    assert_eq!((runs.load(Ordering::SeqCst), task.attempt_count()), (3, 2));
    assert_eq!(task.attempts()[0].outcome, AttemptOutcome::RetryableFailure);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn permanent_failure() {
    let server = Server::start().await;
    let client = server.client().await;
    let mut config = QueueConfig::default();
    config.permanent = vec!["*MailError".into()];
    client.put_queue(QUEUE, config).await.unwrap();
    let worker = worker(&client)
        .handler("permanent", |_| async { Err::<(), _>(Permanent(Typed("gone", MailError(1)))) })
        .handler("by-glob", |_| async { Err::<(), _>(MailError(1)) })
        .handler("retryable", |_| async { Err::<(), _>(Retryable(MailError(1))) })
        .handler("panics", |claim: Claim| async move {
            assert!(claim.attempt_no() > 1, "broken");
            Ok::<_, HandlerError>(())
        })
        .build()
        .unwrap()
        .start();
    let enqueue = async |handler: &str| {
        let task = NewTask::new(QUEUE, handler).initial_backoff(SOON).max_attempts(2);
        client.enqueue(task).await.unwrap().id
    };

    for (handler, error_type) in [("permanent", "gone"), ("by-glob", "MailError")] {
        let task = until_status(&client, &enqueue(handler).await, TaskStatus::Dead).await;
        assert_eq!(task.attempts().len(), 1, "{handler}");
        assert_eq!(task.attempts()[0].outcome, AttemptOutcome::PermanentFailure);
        let error = task.attempts()[0].error.as_ref().unwrap();
        assert!(error.error_type.ends_with(error_type), "{}", error.error_type);
    }
    // What the handler calls retryable, no glob overrides.
    let task = until_status(&client, &enqueue("retryable").await, TaskStatus::Dead).await;
    assert_eq!(task.attempts().len(), 2);
    let task = until_status(&client, &enqueue("panics").await, TaskStatus::Succeeded).await;
    let error = task.attempts()[0].error.as_ref().unwrap();
    assert_eq!((error.error_type.as_str(), error.message.as_str()), ("panic", "broken"));
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn outcome_mapper() {
    let server = Server::start().await;
    let client = server.client().await;
    let worker = worker(&client)
        .handler("answers", |claim: Claim| async move {
            if claim.payload() == "fail" { Err(MailError(1)) } else { Ok("404") }
        })
        .outcome_mapper(|claim, returned| match returned {
            Ok(Outcome::Complete(status)) if status == "404" => {
                HandlerError::from(Permanent(HandlerError::new("http.404", "not there"))).into()
            }
            Err(error)
                if error.cause().is_some_and(|it| it.downcast_ref::<MailError>().is_some()) =>
            {
                format!("{} is good enough", claim.attempt_no()).into()
            }
            other => other.unwrap_or_else(Outcome::from),
        })
        .build()
        .unwrap()
        .start();
    let value = client.enqueue(NewTask::new(QUEUE, "answers")).await.unwrap().id;
    let error = client.enqueue(NewTask::new(QUEUE, "answers").payload("fail")).await.unwrap().id;

    let task = until_status(&client, &value, TaskStatus::Dead).await;
    assert_eq!(task.attempts()[0].error.as_ref().unwrap().error_type, "http.404");
    let task = until_status(&client, &error, TaskStatus::Succeeded).await;
    assert_eq!(task.result(), "1 is good enough");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn unroutable() {
    let server = Server::start().await;
    let client = server.client().await;
    let worker = worker(&client)
        .handler("known", |_| async { Ok::<_, HandlerError>(()) })
        .build()
        .unwrap()
        .start();
    let id = client.enqueue(NewTask::new(QUEUE, "unknown")).await.unwrap().id;
    let task = until_status(&client, &id, TaskStatus::Dead).await;
    assert_eq!(task.attempts().len(), 1);
    assert_eq!(task.attempts()[0].error.as_ref().unwrap().error_type, "rdq.Unroutable");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn execution_timeout() {
    let server = Server::start().await;
    let client = server.client().await;
    let mut config = QueueConfig::default();
    config.timeout = Some(Duration::from_millis(200));
    client.put_queue(QUEUE, config).await.unwrap();
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reasons);
    // No handler is free to take the task again: the lease ends with the timeout, and the word of it
    // may come a little later on a busy machine.
    let worker = worker(&client)
        .concurrency(1)
        .handler("hangs", move |claim: Claim| {
            let seen = Arc::clone(&seen);
            async move {
                claim.cancellation().cancelled().await;
                seen.lock().unwrap().push(claim.stop_reason());
                Ok::<_, HandlerError>("too late")
            }
        })
        .build()
        .unwrap()
        .start();
    let id = client.enqueue(NewTask::new(QUEUE, "hangs").max_attempts(1)).await.unwrap().id;

    let task = until_status(&client, &id, TaskStatus::Dead).await;

    assert_eq!(task.attempts()[0].error.as_ref().unwrap().error_type, "rdq.Timeout");
    assert_eq!(*reasons.lock().unwrap(), [Some(StopReason::Timeout)]);
    worker.stop().await.unwrap();
}

/// What panics when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[tokio::test]
async fn a_handler_that_panics_while_it_is_dropped_has_failed() {
    let server = Server::start().await;
    let client = server.client().await;
    let mut config = QueueConfig::default();
    config.timeout = Some(Duration::from_millis(200));
    client.put_queue(QUEUE, config).await.unwrap();
    let worker = worker(&client)
        .concurrency(1)
        .handler("hangs", |_| async {
            let _fragile = Fragile;
            std::future::pending::<Result<(), MailError>>().await
        })
        .handler("next", |_| async { Ok::<_, HandlerError>("its place is free") })
        .build()
        .unwrap()
        .start();
    let id = client.enqueue(NewTask::new(QUEUE, "hangs").max_attempts(1)).await.unwrap().id;
    let next = client.enqueue(NewTask::new(QUEUE, "next")).await.unwrap().id;

    let task = until_status(&client, &id, TaskStatus::Dead).await;
    let error = task.attempts()[0].error.as_ref().unwrap();
    assert_eq!((error.error_type.as_str(), error.message.as_str()), ("panic", "dropped"));
    until_status(&client, &next, TaskStatus::Succeeded).await;
    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
}

#[tokio::test]
async fn bounded_concurrency() {
    const CONCURRENCY: usize = 4;
    let server = Server::start().await;
    let client = server.client().await;
    let proxy = Proxy::before(server.address()).await;
    let far = Client::connect(proxy.address()).await.unwrap();
    let tasks = (0..50).map(|_| NewTask::new(QUEUE, "h"));
    assert!(client.enqueue_many(tasks).await.iter().all(Result::is_ok));
    // Running, most running, and started.
    let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let all_at_once = Arc::new(Barrier::new(CONCURRENCY + 1));
    let (seen, gate) = (Arc::clone(&counts), Arc::clone(&all_at_once));
    let worker = worker(&far)
        .concurrency(CONCURRENCY)
        .handler("h", move |_| {
            let (seen, gate) = (Arc::clone(&seen), Arc::clone(&gate));
            async move {
                let [running, most, started] = &*seen;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if started.fetch_add(1, Ordering::SeqCst) < CONCURRENCY {
                    gate.wait().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, HandlerError>(())
            }
        })
        .build()
        .unwrap()
        .start();
    // Asks the server all the time, beside the worker and its handlers.
    let most_in_flight = Arc::new(AtomicUsize::new(0));
    let (asking, in_flight) = (client.clone(), Arc::clone(&most_in_flight));
    let polling = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let claimed = asking.stats([QUEUE]).await.unwrap()[0].in_flight;
            in_flight.fetch_max(claimed.try_into().unwrap(), Ordering::SeqCst);
        }
    }));
    until("as many run as may, and the server says so", async || {
        let at = [&counts[2], &*most_in_flight].map(|count| count.load(Ordering::SeqCst));
        (at == [CONCURRENCY; 2]).then_some(())
    })
    .await;

    // The outcomes of the first arrive, and their acknowledgements do not: so no credits come back.
    proxy.hold();
    awaited("the first run", all_at_once.wait()).await;
    until_succeeded(&client, QUEUE, CONCURRENCY.try_into().unwrap()).await;
    for _ in 0..20 {
        let stats = &client.stats([QUEUE]).await.unwrap()[0];
        assert_eq!((stats.in_flight, stats.pending), (0, 46), "claimed before the acknowledgement");
    }
    proxy.forward();
    until_succeeded(&client, QUEUE, 50).await;

    assert!(!polling.is_finished(), "the poller went on");
    let [_, most, started] = &*counts;
    assert_eq!(started.load(Ordering::SeqCst), 50);
    assert_eq!(most.load(Ordering::SeqCst), CONCURRENCY);
    assert_eq!(most_in_flight.load(Ordering::SeqCst), CONCURRENCY);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn progress_and_result() {
    let server = Server::start().await;
    let client = server.client().await;
    let largest = vec![0xa5; 64 << 10];
    let every_byte: Vec<u8> = (0..=255).collect();
    let results = [vec![], every_byte.clone(), largest.clone()];
    let sent = results.clone();
    let worker = worker(&client)
        .handler("resumes", move |claim: Claim| {
            let every_byte = every_byte.clone();
            async move {
                if claim.attempt_no() == 1 {
                    claim.set_progress("overwritten")?;
                    claim.set_progress(every_byte)?;
                    return Err(MailError(1).into());
                }
                assert!(claim.set_progress(vec![0; (64 << 10) + 1]).is_err(), "too large");
                Ok::<_, HandlerError>(claim.progress().to_vec())
            }
        })
        .handler("returns", move |claim: Claim| {
            let result = sent[usize::from(claim.payload()[0])].clone();
            async { Ok::<_, HandlerError>(result) }
        })
        .build()
        .unwrap()
        .start();
    let task = NewTask::new(QUEUE, "resumes").initial_backoff(SOON);
    let id = client.enqueue(task).await.unwrap().id;
    let task = until_status(&client, &id, TaskStatus::Succeeded).await;
    assert_eq!((task.attempts().len(), &task.result()[..]), (2, &results[1][..]));
    assert_eq!(&task.progress()[..], &results[1][..]);

    for (index, result) in results.iter().enumerate() {
        let payload = vec![u8::try_from(index).unwrap()];
        let id = client.enqueue(NewTask::new(QUEUE, "returns").payload(payload)).await.unwrap().id;
        let task = until_status(&client, &id, TaskStatus::Succeeded).await;
        assert_eq!(&task.result()[..], &result[..]);
    }
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn result_too_large() {
    let server = Server::start().await;
    let client = server.client().await;
    let worker = worker(&client)
        .handler("returns", |claim: Claim| async move {
            let size: usize = std::str::from_utf8(claim.payload())?.parse()?;
            Ok::<_, HandlerError>(vec![1; size])
        })
        .build()
        .unwrap()
        .start();
    // More than a task keeps, and more than the server reads at once.
    for size in [(64 << 10) + 1, 9 << 20] {
        let task = NewTask::new(QUEUE, "returns").payload(size.to_string()).max_attempts(1);
        let id = client.enqueue(task).await.unwrap().id;
        let task = until_status(&client, &id, TaskStatus::Dead).await;
        let error = task.attempts()[0].error.as_ref().unwrap();
        assert_eq!(error.error_type, "rdq.OutcomeRefused");
        assert!(error.message.contains("bytes"), "{}", error.message);
    }
    // The worker goes on.
    let id = client.enqueue(NewTask::new(QUEUE, "returns").payload("1")).await.unwrap().id;
    until_status(&client, &id, TaskStatus::Succeeded).await;
    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
}

#[tokio::test]
async fn a_call_that_fails_takes_no_success_away_and_one_outcome_that_is_refused_ends() {
    let server = Server::start().await;
    let client = server.client().await;
    let before = Interposer::before(server.address()).await;
    let refusal = |code, reason| {
        Status::with_error_details(
            code,
            "",
            ErrorDetails::with_error_info(reason, rdq_proto::ERROR_DOMAIN, []),
        )
    };
    let far = Client::connect(before.address()).await.unwrap();
    let worker = worker(&far)
        .receive(Receive::ClaimDue)
        .handler("h", |_| async { Ok::<_, HandlerError>("done") })
        .build()
        .unwrap()
        .start();
    let enqueue =
        async || client.enqueue(NewTask::new(QUEUE, "h").max_attempts(1)).await.unwrap().id;

    before.refuse("ResolveBatch", refusal(Code::Internal, "INTERNAL"));
    let id = enqueue().await;
    until("the call has failed", async || (before.refusals() >= 2).then_some(())).await;
    before.allow("ResolveBatch");
    let task = until_status(&client, &id, TaskStatus::Succeeded).await;
    assert_eq!((task.attempts().len(), &task.result()[..]), (1, &b"done"[..]));

    // Nothing that it sends for this claim can be taken: the worker gives up, and says so.
    before.refuse("ResolveBatch", refusal(Code::InvalidArgument, "INVALID_ARGUMENT"));
    let refused = before.refusals();
    let id = enqueue().await;
    until("both words are refused", async || (before.refusals() >= refused + 2).then_some(()))
        .await;
    assert_eq!(worker.stop().await.unwrap().unanswered, 0);
    assert_eq!(client.get(&id).await.unwrap().status(), TaskStatus::InFlight);
}

#[tokio::test]
async fn claim_due_fallback() {
    let server = Server::start().await;
    let client = server.client().await;
    let before = Interposer::before(server.address()).await;
    before.refuse("Work", Status::new(Code::Unimplemented, "unknown method"));
    let older = Client::connect(before.address()).await.unwrap();
    let gate = Arc::new(Notify::new());
    let started = Arc::new(AtomicUsize::new(0));
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let (held, begun, told) = (Arc::clone(&gate), Arc::clone(&started), Arc::clone(&reasons));
    let running = worker(&older)
        .concurrency(2)
        .handler(
            "echoes",
            |claim: Claim| async move { Ok::<_, HandlerError>(claim.payload().clone()) },
        )
        .handler("fails", |_| async { Err::<(), _>(Permanent(MailError(1))) })
        .handler("waits", move |claim: Claim| {
            let (held, begun, told) = (Arc::clone(&held), Arc::clone(&begun), Arc::clone(&told));
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                tokio::select! {
                    () = held.notified() => Ok::<_, HandlerError>("ended"),
                    () = claim.cancellation().cancelled() => {
                        told.lock().unwrap().push(claim.stop_reason());
                        Ok("stopped")
                    }
                }
            }
        })
        .lease(Duration::from_secs(3))
        .build()
        .unwrap()
        .start();

    // More than the worker runs at once.
    let many = (0..20).map(|index| NewTask::new(QUEUE, "echoes").payload(index.to_string()));
    for (index, answer) in client.enqueue_many(many).await.into_iter().enumerate() {
        let task = until_status(&client, &answer.unwrap().id, TaskStatus::Succeeded).await;
        assert_eq!(task.result(), &index.to_string());
    }
    let id = client.enqueue(NewTask::new(QUEUE, "fails")).await.unwrap().id;
    until_status(&client, &id, TaskStatus::Dead).await;

    let id = client.enqueue(NewTask::new(QUEUE, "waits")).await.unwrap().id;
    until("it runs", async || (started.load(Ordering::SeqCst) == 1).then_some(())).await;
    client.cancel(&id).await.unwrap();
    until("it is told", async || reasons.lock().unwrap().first().copied()).await;
    assert_eq!(*reasons.lock().unwrap(), [Some(StopReason::Cancelled)]);

    let id = client.enqueue(NewTask::new(QUEUE, "waits")).await.unwrap().id;
    until("it runs", async || (started.load(Ordering::SeqCst) == 2).then_some(())).await;
    let claimed_until = client.get(&id).await.unwrap().lease_expires_at();
    let stopping = tokio::spawn(running.stop());
    until("its lease is kept", async || {
        (client.get(&id).await.unwrap().lease_expires_at() > claimed_until).then_some(())
    })
    .await;
    gate.notify_one();
    assert_eq!(awaited("the worker stops", stopping).await.unwrap().unwrap().unanswered, 0);
    let task = client.get(&id).await.unwrap();
    assert_eq!((task.status(), &task.result()[..]), (TaskStatus::Succeeded, &b"ended"[..]));

    // Forced, it says what the server says, and claims nothing.
    let forced = worker(&older)
        .receive(Receive::Work)
        .handler("echoes", |_| async { Ok::<_, HandlerError>(()) })
        .build()
        .unwrap()
        .start();
    let id = client.enqueue(NewTask::new(QUEUE, "echoes")).await.unwrap().id;
    assert_eq!(forced.stop().await.unwrap().unanswered, 0);
    assert_eq!(client.get(&id).await.unwrap().status(), TaskStatus::Pending);
    let forced = worker(&client)
        .receive(Receive::ClaimDue)
        .handler("echoes", |_| async { Ok::<_, HandlerError>(()) })
        .build()
        .unwrap()
        .start();
    until_status(&client, &id, TaskStatus::Succeeded).await;
    forced.stop().await.unwrap();
}
