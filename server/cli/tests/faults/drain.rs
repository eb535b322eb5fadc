//! F26: SIGTERM, with everything open that could hold a server up.

use crate::harness::{
    Verdict, awaited,
    calls::{self, Tasks},
    recorded::{Held, Recorded},
    server::Server,
    until,
    work_session::{End, WorkSession},
};
use rdq_compliance::{Random, history::History};
use rdq_proto::v1::{self, ErrorReason};
use rustix::process::Signal;
use std::{io::Write as _, net::TcpStream, path::Path, time::Duration};
use tonic::Status;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

const QUEUE: &str = "drain";

pub(crate) async fn ends_everything_in_order(mut random: Random) -> Verdict {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("rdq.db");
    let mut server = Server::on_file(&path).await;
    let client = Recorded::new(Tasks::new(server.channel()), &History::new());
    for number in 0..40 {
        client.enqueue(&calls::task(&format!("t-{number}"), QUEUE, "x")).await.expect("admitted");
    }
    let lease = Duration::from_secs(60);
    let mut follow = client.follow(calls::follow(QUEUE, 5, lease)).await.expect("a subscription");
    let mut held = 0;
    while held < 5 {
        held += follow.next().await.expect("a message").expect("claims").len();
    }
    let mut work = client.work(QUEUE, lease, 3).await.expect("a stream");
    let mut worked_on = Vec::new();
    while worked_on.len() < 3 {
        worked_on.extend(work.next().await.expect("a message").expect("claims").tasks);
    }
    let watch = HealthClient::new(server.channel()).watch(HealthCheckRequest::default()).await;
    let mut watch = watch.expect("a watch").into_inner();
    let first = watch.message().await.expect("a message").expect("the first");
    assert_eq!(first.status(), ServingStatus::Serving);
    let silent = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    let mut halting = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    halting.write_all(b"PRI * HTTP/2.0\r\n").expect("half a preface");
    let under_way = batches_under_way(&client, &mut random);
    until("one of them has arrived", async || {
        let stats = calls::stats(&client.tasks, QUEUE).await.expect("stats");
        (stats.pending + stats.in_flight > 40).then_some(())
    })
    .await;

    server.signal(Signal::TERM);

    let health = awaited("news of its health", watch.message()).await;
    let health = health.expect("the watch says it before it ends").expect("a message");
    assert_eq!(health.status(), ServingStatus::NotServing);
    let follow_end = async {
        loop {
            match follow.next().await {
                Ok(Some(claims)) => assert!(claims.is_empty(), "a claim after the signal"),
                Ok(None) => panic!("the subscription ended without a reason"),
                Err(status) => return status,
            }
        }
    };
    is_closed(&awaited("the end of the subscription", follow_end).await);
    let last_outcomes = finish_and_leave(&mut work, worked_on);
    let finished_work = awaited("the end of the work stream", last_outcomes).await;
    assert_eq!(finished_work, 3, "a worker that is told of the drain can still finish");
    let mut finished = 0;
    for call in under_way {
        // One that came too late is refused as a whole or in part, and changed no more than it says.
        let results = call.await.expect("the call does not panic").unwrap_or_default();
        finished += results.iter().filter(|it| is_admitted(it)).count();
    }
    let exit = server.ended().await;
    assert!(exit.success(), "{exit}:\n{}", server.log_text());
    drop((silent, halting));

    assert!(finished > 0);
    let server = Server::on_file(&path).await;
    let stats = calls::stats(&Tasks::new(server.channel()), QUEUE).await.expect("stats");
    let count = |count: i64| usize::try_from(count).expect("a count");
    assert_eq!(count(stats.in_flight), held, "claims that were not delivered are back");
    assert_eq!(count(stats.pending), 40 - held - finished_work + finished);
    Ok(())
}

type Batch = tokio::task::JoinHandle<Result<Vec<v1::EnqueueResult>, Status>>;

/// Unary calls that take a while.
fn batches_under_way(client: &Recorded, random: &mut Random) -> Vec<Batch> {
    let batches = (0..4).map(|batch| {
        let tasks: Vec<_> = (0..1_000)
            .map(|number| {
                let id = format!("batch-{batch}-{number}");
                let mut task = calls::task(&id, QUEUE, random.bytes(2_000));
                task.delay = Some(rdq_proto::time::duration(Duration::from_secs(600)));
                task
            })
            .collect();
        let client = client.clone();
        tokio::spawn(async move { client.enqueue_batch(&tasks).await })
    });
    batches.collect()
}

fn is_admitted(result: &v1::EnqueueResult) -> bool {
    matches!(result.outcome, Some(v1::enqueue_result::Outcome::Enqueued(_)))
}

/// Completes what the worker has once the server says that it drains, and reads to the end; how
/// many outcomes were acknowledged.
async fn finish_and_leave(work: &mut WorkSession, worked_on: Vec<Held>) -> usize {
    let mut left = Some(worked_on);
    let mut acknowledged = 0;
    loop {
        match work.next().await {
            Ok(Some(news)) => {
                assert!(news.tasks.is_empty(), "a claim after the signal");
                acknowledged += news.acknowledged;
                if news.draining
                    && let Some(left) = left.take()
                {
                    let ends = left.into_iter().map(|held| (held, End::Complete));
                    work.send(ends.collect(), 0).await;
                }
            }
            Ok(None) => panic!("the stream ended without a reason"),
            Err(status) => {
                is_closed(&status);
                return acknowledged;
            }
        }
    }
}

fn is_closed(status: &Status) {
    assert_eq!(calls::reason(status), Some(ErrorReason::Closed), "{status:?}");
}

pub(crate) async fn a_second_signal_ends_at_once(_random: Random) -> Verdict {
    let folder = tempfile::tempdir().expect("a directory");
    let mut server = Server::on_file(&folder.path().join("rdq.db")).await;
    let call = an_unfinished_call(&server).await;

    server.signal(Signal::TERM);
    // Else the second would be one with the first.
    until("the signal has come", async || {
        server.log_text().contains("rdq shuts down").then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(server.is_alive(), "a call is under way, and the grace period is not over");
    server.signal(Signal::TERM);
    let status = server.ended().await;
    assert!(!status.success(), "something was cut, and the exit code says so");
    drop(call);

    // Without a second signal, the grace period ends it.
    server.set_grace("1s");
    server.restart().await;
    let call = an_unfinished_call(&server).await;
    server.signal(Signal::TERM);
    let status = server.ended().await;
    assert!(!status.success(), "something was cut, and the exit code says so");
    drop(call);
    whole(&folder.path().join("rdq.db"));
    Ok(())
}

fn whole(path: &Path) {
    super::power_cut::is_sound(path);
}

/// A unary call whose request never ends. It has arrived.
async fn an_unfinished_call(server: &Server) -> tokio::task::JoinHandle<()> {
    let channel = server.channel();
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("the server is there");
    let mut call = Box::pin(async move {
        let never = tokio_stream::pending::<v1::EnqueueRequest>();
        let path = "/rdq.v1.TaskService/Enqueue".parse().expect("a path");
        let codec = tonic_prost::ProstCodec::<_, v1::EnqueueResponse>::default();
        // However it ends: it is there to be in the way.
        let _ = client.streaming(tonic::Request::new(never), path, codec).await;
    });
    let tasks = Tasks::new(channel);
    // Calls of one connection arrive in the order in which they were sent.
    tokio::select! {
        biased;
        () = &mut call => panic!("it ended"),
        stats = calls::stats(&tasks, QUEUE) => stats.expect("stats"),
    };
    tokio::spawn(call)
}
