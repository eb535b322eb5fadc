//! F12: a thousand calls whose callers go away at random moments.

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
    /// Claims that are or were a caller's, and that nobody ended for certain.
    open: AtomicUsize,
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
    for round in 0..CALLS / AT_ONCE {
        let calls = (0..AT_ONCE).map(|number| {
            let random = Random::seeded(random.next_u64());
            tokio::spawn(one_call(
                clients[number % CONNECTIONS].clone(),
                Arc::clone(&known),
                random,
                format!("storm-{round}-{number}"),
            ))
        });
        for call in calls.collect::<Vec<_>>() {
            let end = call.await.expect("the call does not panic");
            cancelled += usize::from(end == CallEnd::Cancelled);
            answered += usize::from(end == CallEnd::Answered);
        }
    }
    eprintln!("{cancelled} cancelled, {answered} answered in time");
    assert!(cancelled > CALLS / 10 && answered > CALLS / 20, "the moments were ill chosen");

    for number in 0..100 {
        let fresh = calls::task(&format!("fresh-{number}"), QUEUE, "x");
        client.enqueue(&fresh).await.expect("fresh calls are served");
        calls::get(&client.tasks, &fresh.id).await.expect("fresh calls are served");
    }
    // Of the claims that callers never saw, only those that were on their way to them are left: most
    // went back at once. Each call asked for three.
    let stats = calls::stats(&client.tasks, QUEUE).await.expect("stats");
    let in_flight = usize::try_from(stats.in_flight).expect("a count");
    let unseen = in_flight.saturating_sub(known.open.load(Relaxed));
    let unanswered = known.claim_calls.load(Relaxed) - known.claim_answers.load(Relaxed);
    eprintln!("{in_flight} claims, {unseen} of them unseen; {unanswered} claims were cancelled");
    assert!(unanswered > 30, "too few claims were cancelled");
    assert!(unseen < unanswered, "claims that were cancelled were not given back");
    until(LEASE * 2, "no lease is left", async || {
        let stats = calls::stats(&client.tasks, QUEUE).await.expect("stats");
        (stats.in_flight == stats.lapsed).then_some(())
    })
    .await;
    let mut crew = Crew::new(QUEUE, Temper::default(), LEASE);
    crew.worker(client, Way::Unary, Random::seeded(random.next_u64()));
    crew.worker(client, Way::Work, Random::seeded(random.next_u64()));
    crew.drain(client, Duration::from_secs(30)).await;
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
async fn one_call(client: Recorded, known: Arc<Known>, mut random: Random, id: String) -> CallEnd {
    let moment = Duration::from_micros(u64::try_from(random.below(20_000)).expect("small"));
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
            if kind > 3 {
                known.open.fetch_sub(1, Relaxed);
            }
        }
        _ => {
            known.claim_calls.fetch_add(1, Relaxed);
            let claims = client.claim(calls::claim(QUEUE, 3, LEASE)).await?;
            known.claim_answers.fetch_add(1, Relaxed);
            known.open.fetch_add(claims.len(), Relaxed);
            known.held.lock().expect("nobody panicked").extend(claims);
        }
    }
    Ok(())
}
