//! F3: a worker is stopped or killed in the middle of a task. Its token stays good until somebody
//! reclaims the task.

use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    child::{ChildWorker, Claimed, Job, Line, Orders},
    recorded::{Held, Recorded},
    server::Server,
    until,
};
use rdq_compliance::{
    Random,
    history::{Answer, History, Outcome},
};
use rdq_proto::v1;
use rdq_spi::{Call, TaskStatus};
use rustix::process::Signal;
use std::time::Duration;
use tempfile::TempDir;

const QUEUE: &str = "lost";
const LEASE: Duration = Duration::from_millis(800);

struct Scene {
    client: Recorded,
    child: ChildWorker,
    claimed: Claimed,
    _server: Server,
    _folder: TempDir,
}

/// A worker process has claimed a task, and works on it until it is told to finish.
async fn a_worker_has_a_task() -> Scene {
    let folder = tempfile::tempdir().expect("a directory");
    let server = Server::on_file(&folder.path().join("rdq.db")).await;
    let client = Recorded::new(Tasks::new(server.channel()), &History::new());
    client.enqueue(&calls::task("t", QUEUE, "x")).await.expect("admitted");
    let mut child = ChildWorker::start(&Orders {
        job: Job::Claim,
        server: server.url(),
        queue: QUEUE.to_owned(),
        limit: 1,
        lease: LEASE,
    });
    let claimed = child.claims(1).await.remove(0);
    client.claimed_elsewhere(vec![claimed.grant()]);
    Scene { client, child, claimed, _server: server, _folder: folder }
}

/// Claims until the task comes.
async fn reclaimed(client: &Recorded) -> Held {
    until("the task comes back", async || {
        let claims = client.claim(calls::claim(QUEUE, 1, Duration::from_secs(30))).await;
        claims.expect("a claim").pop()
    })
    .await
}

/// The task was taken over once its lease had ended, not before, at the cost of one attempt.
fn came_back_after_its_lease(first: &Claimed, again: &Held) {
    assert_eq!(again.attempt_no, first.held().attempt_no + 1);
    let lapsed = again.task.attempts.last().map(decoded_attempt).expect("a history");
    assert_eq!(lapsed.outcome(), v1::AttemptOutcome::LeaseExpired);
    let claimed_at = again.task.claimed_at.as_ref().and_then(rdq_proto::time::millis);
    let late = claimed_at.expect("a claim says when") - first.grant().lease_expires_at.millis();
    assert!(late >= 0, "{late} ms after the lease's end");
}

fn decoded_attempt(attempt: &bytes::Bytes) -> v1::Attempt {
    prost::Message::decode(attempt.clone()).expect("the server answers with attempts that decode")
}

pub(crate) async fn stopped_is_too_late(_random: Random) -> Verdict {
    let Scene { client, child, claimed, .. } = &mut a_worker_has_a_task().await;
    child.signal(Signal::STOP);

    let again = reclaimed(client).await;
    let late = client.resolving(&claimed.held(), Call::Complete);
    child.finish();
    child.signal(Signal::CONT);
    let answer = child.line().await;

    let Some(Line::Completed { answer, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(answer, "STALE_CLAIM");
    late.returned(Answer::Refused);
    came_back_after_its_lease(claimed, &again);
    client.complete(&again).await.expect("the task is with its new worker");
    assert_eq!(client.judge(&[QUEUE]).await.get(&TaskStatus::Succeeded), Some(&1));
    Ok(())
}

pub(crate) async fn stopped_may_be_in_time(_random: Random) -> Verdict {
    let Scene { client, child, claimed, .. } = &mut a_worker_has_a_task().await;
    child.signal(Signal::STOP);
    until("the lease runs out", async || {
        let stats = calls::stats(&client.tasks, QUEUE).await.expect("stats");
        (stats.lapsed == 1).then_some(())
    })
    .await;

    let late = client.resolving(&claimed.held(), Call::Complete);
    child.finish();
    child.signal(Signal::CONT);
    let answer = child.line().await;

    let Some(Line::Completed { answer, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(answer, "OK", "nobody has reclaimed the task, and the work is done");
    let (status, next_attempt_at, replayed) = (TaskStatus::Succeeded, None, false);
    late.returned(Answer::Ok(Outcome::Resolved { status, next_attempt_at, replayed }));
    assert_eq!(client.judge(&[QUEUE]).await.get(&TaskStatus::Succeeded), Some(&1));
    Ok(())
}

pub(crate) async fn killed_comes_back(_random: Random) -> Verdict {
    let Scene { client, child, claimed, .. } = &mut a_worker_has_a_task().await;
    child.kill().await;

    let again = reclaimed(client).await;

    came_back_after_its_lease(claimed, &again);
    assert_eq!(again.task.lease_expired_count, 1);
    client.complete(&again).await.expect("the task is with its new worker");
    assert_eq!(client.judge(&[QUEUE]).await.get(&TaskStatus::Succeeded), Some(&1));
    Ok(())
}
