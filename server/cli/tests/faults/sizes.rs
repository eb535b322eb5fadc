//! F24: sizes at the limits and one beyond, in both directions.

use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    recorded::{Held, Recorded},
    server::Server,
};
use rdq_compliance::{Random, history::History};
use rdq_proto::v1::{self, ErrorReason, enqueue_result};
use rdq_spi::TaskStatus;
use std::{collections::HashMap, time::Duration};
use tempfile::TempDir;

const QUEUE: &str = "sizes";
const LEASE: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;
/// Of a request.
const REQUEST_BYTES_MAX: usize = 8 * MIB;

async fn scene() -> (Server, Recorded, TempDir) {
    let folder = tempfile::tempdir().expect("a directory");
    let server = Server::on_file(&folder.path().join("rdq.db")).await;
    let client = Recorded::new(Tasks::new(server.channel()), &History::new());
    (server, client, folder)
}

pub(crate) async fn at_and_beyond_the_limits(mut random: Random) -> Verdict {
    let (_server, client, _folder) = scene().await;
    for (id, len) in [("empty", 0), ("one", 1), ("limit", MIB)] {
        client.enqueue(&calls::task(id, QUEUE, random.bytes(len))).await.expect("admitted");
    }
    let beyond = calls::task("beyond", QUEUE, random.bytes(MIB + 1));
    let refused = client.enqueue(&beyond).await.expect_err("too large");
    assert_eq!(calls::reason(&refused), Some(ErrorReason::PayloadTooLarge), "{refused:?}");

    // In a batch, one that is too large holds back no other.
    let small = calls::task("beside", QUEUE, "x");
    let results = client.enqueue_batch(&[beyond, small]).await.expect("a result for each");
    let is_refused = |result: &v1::EnqueueResult| match &result.outcome {
        Some(enqueue_result::Outcome::Error(error)) => {
            assert_eq!(error.reason(), ErrorReason::PayloadTooLarge);
            true
        }
        _ => false,
    };
    assert_eq!(results.iter().map(is_refused).collect::<Vec<_>>(), [true, false]);

    let near = batch_of(REQUEST_BYTES_MAX - 1_000, &mut random);
    let results = client.enqueue_batch(&near).await.expect("a batch below the limit");
    assert!(!results.iter().any(is_refused));
    let above = batch_of(REQUEST_BYTES_MAX + 1_000, &mut random);
    let refused = client.enqueue_batch(&above).await.expect_err("too large");
    assert_eq!(calls::reason(&refused), Some(ErrorReason::MessageTooLarge), "{refused:?}");

    let mut claimed = 0;
    loop {
        let claims = client.claim(calls::claim(QUEUE, 1_000, LEASE)).await.expect("a claim");
        if claims.is_empty() {
            break;
        }
        for held in &claims {
            client.complete(held).await.expect("completed");
        }
        claimed += claims.len();
    }
    assert_eq!(claimed, 3 + 1 + near.len());
    assert_eq!(client.judge(&[QUEUE]).await.get(&TaskStatus::Succeeded), Some(&claimed));
    Ok(())
}

/// Tasks of nearly 1 MiB, so that their request has about so many bytes.
fn batch_of(bytes: usize, random: &mut Random) -> Vec<v1::Task> {
    let each = bytes / 10;
    let name = random.next_u64();
    let task =
        |number| calls::task(&format!("{name:016x}-{number}"), QUEUE, random.bytes(each - 60));
    let mut batch: Vec<_> = (0..10).map(task).collect();
    let tasks = batch.iter().map(calls::encode).collect();
    let request = calls::encode(&v1::EnqueueBatchRequest { tasks });
    // The last one makes up for what the fields around the payloads take.
    let last = batch.last_mut().expect("ten");
    let len = last.payload.len() + bytes - request.len();
    last.payload = vec![b'x'; len].into();
    batch
}

pub(crate) async fn large_answers_are_split(mut random: Random) -> Verdict {
    const COUNT: usize = 70;
    let (_server, client, _folder) = scene().await;
    let mut payloads = HashMap::new();
    for number in 0..COUNT {
        let task = calls::task(&format!("t-{number}"), QUEUE, random.bytes(MIB));
        client.enqueue(&task).await.expect("admitted");
        payloads.insert(task.id, task.payload);
    }

    // The first half by calls, the second by a subscription; both clients take 4 MiB in a message,
    // as every client does that nobody told otherwise.
    let mut held = Vec::new();
    let mut calls_made = 0;
    while held.len() < COUNT / 2 {
        let claims = client.claim(calls::claim(QUEUE, 70, LEASE)).await.expect("a claim");
        assert!(!claims.is_empty() && claims.len() <= 3, "{} of 1 MiB", claims.len());
        held.extend(claims);
        calls_made += 1;
        let stats = calls::stats(&client.tasks, QUEUE).await.expect("stats");
        assert_eq!(stats.in_flight, i64::try_from(held.len()).expect("small"), "claims leaked");
    }
    let mut stream = client.follow(calls::follow(QUEUE, 70, LEASE)).await.expect("a subscription");
    while held.len() < COUNT {
        let news = tokio::time::timeout(Duration::from_secs(20), stream.next()).await;
        let claims = news.expect("tasks are left").expect("a message").expect("one more");
        assert!(claims.len() <= 3, "{} of 1 MiB", claims.len());
        held.extend(claims);
    }

    eprintln!("{calls_made} calls for the first half");
    let whole = |held: &Held| payloads[&held.id] == held.task.payload;
    assert!(held.iter().all(whole), "a payload came back otherwise than it was sent");
    for held in &held {
        client.complete(held).await.expect("completed");
    }
    assert_eq!(client.judge(&[QUEUE]).await.get(&TaskStatus::Succeeded), Some(&COUNT));
    Ok(())
}
