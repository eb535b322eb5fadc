//! F31: tasks that kill every worker.

use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    recorded::Recorded,
    server::Server,
    until,
};
use rdq_compliance::{Random, history::History};
use rdq_proto::{time, v1};
use rdq_spi::TaskStatus;
use std::{collections::HashMap, time::Duration};

const QUEUE: &str = "poison";
const MAX_ATTEMPTS: i32 = 3;
const POISON: usize = 6;
const GOOD: usize = 40;
const LEASE: Duration = Duration::from_millis(200);
const SPREAD: Duration = Duration::from_secs(2);

pub(crate) async fn die_alone(_random: Random) -> Verdict {
    let folder = tempfile::tempdir().expect("a directory");
    let server = Server::on_file(&folder.path().join("rdq.db")).await;
    let client = Recorded::new(Tasks::new(server.channel()), &History::new());
    for number in 0..GOOD {
        let task = calls::task(&format!("good-{number}"), QUEUE, "x");
        client.enqueue(&task).await.expect("admitted");
        if number < POISON {
            let mut task = calls::task(&format!("poison-{number}"), QUEUE, "x");
            task.max_attempts = Some(MAX_ATTEMPTS);
            client.enqueue(&task).await.expect("admitted");
        }
    }

    // A worker that dies of each poison task: it never answers. It finishes the others.
    let mut handed_out: HashMap<String, i32> = HashMap::new();
    until("every poison task is dead", async || {
        for held in client.claim(calls::claim(QUEUE, 5, LEASE)).await.expect("a claim") {
            if held.id.starts_with("poison") {
                *handed_out.entry(held.id).or_default() += 1;
            } else {
                client.complete(&held).await.expect("completed");
            }
        }
        let stats = calls::stats(&client.tasks, QUEUE).await.expect("stats");
        (stats.pending == 0 && stats.in_flight == 0).then_some(())
    })
    .await;

    assert_eq!(handed_out.len(), POISON);
    assert!(handed_out.values().all(|times| *times == MAX_ATTEMPTS), "{handed_out:?}");
    let counts = client.judge(&[QUEUE]).await;
    assert_eq!(counts.get(&TaskStatus::Succeeded), Some(&GOOD));
    assert_eq!(counts.get(&TaskStatus::Dead), Some(&POISON));
    let dead = client
        .tasks
        .clone()
        .dlq_list(v1::DlqListRequest {
            queue: QUEUE.to_owned(),
            filter: Some(v1::DlqFilter {
                error_type: Some("rdq.MaxAttemptsExceeded".to_owned()),
                ..v1::DlqFilter::default()
            }),
            ..v1::DlqListRequest::default()
        })
        .await
        .expect("dead letters");
    assert_eq!(dead.into_inner().tasks.len(), POISON);

    redriven_apart(&client).await;
    Ok(())
}

/// All are redriven, spread over a while, with their attempts back; a good worker finishes them.
async fn redriven_apart(client: &Recorded) {
    // Each got one record more than it was handed out: the server's own, when it let it die.
    client.maybe_claimed();
    let count = client.redrive_all(QUEUE, Some(SPREAD)).await.expect("redriven");
    assert_eq!(count, i64::try_from(POISON).expect("small"));
    let mut due = Vec::new();
    for number in 0..POISON {
        let task = calls::get(&client.tasks, &format!("poison-{number}")).await.expect("a task");
        assert_eq!((task.attempt_count, task.redrive_count), (0, 1));
        assert_eq!(task.lease_expired_count, MAX_ATTEMPTS);
        assert!(task.attempts.len() >= 3, "the history is kept");
        due.push(task.next_attempt_at.as_ref().and_then(time::millis).expect("pending"));
    }
    due.sort_unstable();
    let apart: Vec<_> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(apart.iter().all(|millis| *millis >= 100), "not spread: {apart:?}");

    until("a good worker finishes them", async || {
        for held in client.claim(calls::claim(QUEUE, 5, LEASE * 20)).await.expect("a claim") {
            client.complete(&held).await.expect("completed");
        }
        let stats = calls::stats(&client.tasks, QUEUE).await.expect("stats");
        (stats.pending == 0 && stats.in_flight == 0).then_some(())
    })
    .await;
    let counts = client.judge(&[QUEUE]).await;
    assert_eq!(counts.get(&TaskStatus::Succeeded), Some(&(GOOD + POISON)));
}
