//! F12: a thousand calls whose callers go away at random moments, and claims whose callers certainly
//! went away before they could be done.

use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    crew::{Crew, Temper, Way},
    recorded::{Held, Recorded},
    server::Server,
    until,
};
use rdq_compliance::{Random, history::History};
use rdq_proto::v1;
use rdq_spi::TaskStatus;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

const QUEUE: &str = "storm";
const CALLS: usize = 1_000;
const AT_ONCE: usize = 20;
const CONNECTIONS: usize = 10;
const LEASE: Duration = Duration::from_secs(4);

/// What callers know of claims.
#[derive(Debug, Default)]
struct Known {
    /// Claims that callers have, for later calls to end.
    held: Mutex<Vec<Held>>,
    /// Calls that ask for claims.
    claim_calls: AtomicUsize,
    /// Those that were answered.
    claim_answers: AtomicUsize,
}

pub(crate) async fn leaves_nothing_behind(mut random: Random) -> Verdict {
    let folder = tempfile::tempdir().expect("a directory");
    let server = Server::on_file(&folder.path().join("rdq.db")).await;
    let history = History::new();
    // Several connections: a server closes one that cancels much of what it has not looked at yet.
    let clients: Vec<_> =
        (0..CONNECTIONS).map(|_| Recorded::new(Tasks::new(server.channel()), &history)).collect();
    let client = &clients[0];
    for number in 0..300 {
        let mut task = calls::task(&format!("first-{number}"), QUEUE, "x");
        task.max_attempts = Some(200);
        client.enqueue(&task).await.expect("admitted");
    }

    let known = Arc::new(Known::default());
    let (mut cancelled, mut answered) = (0, 0);
    // Callers wait for a random part of this: about as long as a call takes here and now.
    let mut patience_micros = 20_000;
    for round in 0..CALLS / AT_ONCE {
        let calls = (0..AT_ONCE).map(|number| {
            let random = Random::seeded(random.next_u64());
            tokio::spawn(one_call(
                clients[number % CONNECTIONS].clone(),
                Arc::clone(&known),
                random,
                patience_micros,
                format!("storm-{round}-{number}"),
            ))
        });
        let (mut left, mut stayed) = (0, 0);
        for call in calls.collect::<Vec<_>>() {
            let end = call.await.expect("the call does not panic");
            left += usize::from(end == CallEnd::Cancelled);
            stayed += usize::from(end == CallEnd::Answered);
        }
        if left > 3 * stayed {
            patience_micros *= 2;
        } else if stayed > 3 * left {
            patience_micros = (patience_micros / 2).max(1_000);
        }
        (cancelled, answered) = (cancelled + left, answered + stayed);
    }
    eprintln!("{cancelled} cancelled, {answered} answered in time");
    assert!(cancelled > CALLS / 10 && answered > CALLS / 20, "the moments were ill chosen");

    for number in 0..100 {
        let fresh = calls::task(&format!("fresh-{number}"), QUEUE, "x");
        client.enqueue(&fresh).await.expect("fresh calls are served");
        calls::get(&client.tasks, &fresh.id).await.expect("fresh calls are served");
    }
    let unanswered = known.claim_calls.load(Relaxed) - known.claim_answers.load(Relaxed);
    eprintln!("{unanswered} claims were cancelled");
    assert!(unanswered > 0, "no claim was cancelled");
    until("no lease is left", async || {
        let stats = calls::stats(&client.tasks, QUEUE).await.expect("stats");
        (stats.in_flight == stats.lapsed).then_some(())
    })
    .await;
    let mut crew = Crew::new(QUEUE, Temper::default(), LEASE);
    crew.worker(client, Way::Unary, Random::seeded(random.next_u64()));
    crew.worker(client, Way::Work, Random::seeded(random.next_u64()));
    crew.drain(client).await;
    let counts = client.judge(&[QUEUE]).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), [&TaskStatus::Succeeded], "{counts:?}");
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum CallEnd {
    Answered,
    Refused,
    Cancelled,
}

/// One call, whose caller goes away, or names a deadline that is too short, at a random moment.
async fn one_call(
    client: Recorded,
    known: Arc<Known>,
    mut random: Random,
    patience_micros: usize,
    id: String,
) -> CallEnd {
    let moment =
        Duration::from_micros(u64::try_from(random.below(patience_micros)).expect("small"));
    let dropped = random.percent(50);
    let client = if dropped { client } else { client.within(moment) };
    let call = call(&client, &known, &mut random, id);
    if !dropped {
        return match call.await {
            Ok(()) => CallEnd::Answered,
            Err(status) if calls::outcome_unknown(&status) => CallEnd::Cancelled,
            Err(_) => CallEnd::Refused,
        };
    }
    match tokio::time::timeout(moment, call).await {
        Ok(Ok(())) => CallEnd::Answered,
        Ok(Err(_)) => CallEnd::Refused,
        Err(_) => CallEnd::Cancelled,
    }
}

async fn call(
    client: &Recorded,
    known: &Known,
    random: &mut Random,
    id: String,
) -> Result<(), tonic::Status> {
    let one_held = |random: &mut Random| {
        let mut held = known.held.lock().expect("nobody panicked");
        let at = random.below(held.len().max(1));
        (!held.is_empty()).then(|| held.swap_remove(at))
    };
    let kind = random.below(10);
    match kind {
        0..=1 => {
            let mut task = calls::task(&id, QUEUE, random.bytes(200));
            task.max_attempts = Some(200);
            client.enqueue(&task).await?;
        }
        2 => drop(calls::list(&client.tasks, QUEUE).await?),
        3..=6 => {
            let Some(held) = one_held(random) else { return Ok(()) };
            match kind {
                3 => drop(client.extend(&held, LEASE).await?),
                4 => drop(client.fail(&held, v1::AttemptOutcome::RetryableFailure).await?),
                _ => drop(client.complete(&held).await?),
            }
        }
        _ => {
            known.claim_calls.fetch_add(1, Relaxed);
            let claims = client.claim(calls::claim(QUEUE, 3, LEASE)).await?;
            known.claim_answers.fetch_add(1, Relaxed);
            known.held.lock().expect("nobody panicked").extend(claims);
        }
    }
    Ok(())
}

/// Claims wait for a lock, and their callers are gone before it is let go: whatever is claimed for them
/// goes back at once, unspent.
pub(crate) async fn claims_of_the_gone_go_back(_random: Random) -> Verdict {
    const TASKS: usize = 30;
    const HOUR: Duration = Duration::from_secs(3_600);
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("rdq.db");
    let server = Server::on_file(&path).await;
    let tasks = Tasks::new(server.channel());
    for number in 0..TASKS {
        let task = calls::task(&format!("t-{number}"), QUEUE, "x");
        tasks.clone().enqueue(calls::enqueue(&task)).await.expect("admitted");
    }
    let lock = rusqlite::Connection::open(&path).expect("the database opens");
    lock.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes for long");

    let mut claims: Vec<_> = (0..TASKS / 3)
        .map(|_| Box::pin(calls::claim_once(&tasks, calls::claim(QUEUE, 3, HOUR))))
        .collect();
    for claim in &mut claims {
        arrives_before_a_look(&tasks, claim).await;
    }
    drop(claims);
    // What is sent on one connection arrives in its order: so that they left, too.
    arrives_before_a_look(&tasks, std::future::pending::<()>()).await;
    lock.execute_batch("ROLLBACK").expect("it was begun");

    let mut again = Vec::new();
    until("every task is there to be claimed", async || {
        let request = calls::claim(QUEUE, 100, HOUR);
        again.extend(calls::claim_once(&tasks, request).await.expect("a claim"));
        (again.len() == TASKS).then_some(())
    })
    .await;
    assert!(again.iter().all(|claimed| claimed.attempt_no == 1), "an attempt was spent");
    Ok(())
}

/// Sends a call, and then one that only reads, until that is answered.
async fn arrives_before_a_look<T>(tasks: &Tasks, mut call: impl Future<Output = T> + Unpin) {
    for _ in 0..3 {
        tokio::select! {
            biased;
            _ = &mut call => panic!("nothing can be claimed now"),
            stats = calls::stats(tasks, QUEUE) => stats.expect("one can read"),
        };
    }
}
