//! Claimants and a server that are killed while they claim: what they had been handed by then is
//! counted, and none of it may be handed out again.

use crate::{
    Args,
    backends::Backend,
    hand::{Failure, Hand as _, QUEUE, Through},
    load::{Census, now, rate},
    rows::Killed,
    wire::Server,
};
use rdq_spi::{QueueName, Storage};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Claimants of the store itself, each a server of its own to the others; and as many through `rdq`.
const CLAIMANTS: usize = 4;
/// Between two kills.
const PAUSE: Duration = Duration::from_millis(250);
/// Who finds nothing, or nobody who answers, asks again.
const AGAIN: Duration = Duration::from_millis(10);

/// Claims for ever, one task a call, and prints each number.
pub(crate) async fn claim_until_killed(url: &str) {
    loop {
        if let Ok(storage) = rdq_store::open(url).await {
            let mut hand = Through(storage);
            // A claim whose answer got lost is nobody's.
            while let Ok(held) = hand.claim(1).await {
                for held in &held {
                    let printed = writeln!(std::io::stdout(), "{}", held.number);
                    if printed.is_err() {
                        return; // nobody reads it any more
                    }
                }
                if held.is_empty() {
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// A claimant in a process of its own.
struct Claimant {
    process: Child,
    url: String,
}

type Printed = Arc<Mutex<Vec<u64>>>;

impl Claimant {
    fn start(url: &str, printed: &Printed) -> Result<Self, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--claim-from", url])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let printed = Arc::clone(printed);
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                // Killed while it printed: the last line may be a part of one.
                let number = std::str::from_utf8(&line).ok().and_then(|line| line.parse().ok());
                if let Some(number) = number {
                    printed.lock().unwrap_or_else(PoisonError::into_inner).push(number);
                }
            }
        });
        Ok(Self { process, url: url.to_owned() })
    }
}

impl Drop for Claimant {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Kills claimants in turns, and the server halfway; each is started again at once.
pub(crate) async fn measure(
    args: &Args,
    backend: &dyn Backend,
    store: &str,
    storage: &dyn Storage,
) -> Result<Killed, Failure> {
    let url = backend.url(store);
    let mut server = match &args.rdq {
        Some(rdq) => Some(Server::start(rdq, &url).await?),
        None => None,
    };
    let printed = Printed::default();
    let mut claimants = Vec::new();
    for _ in 0..CLAIMANTS {
        claimants.push(Claimant::start(&url, &printed)?);
        if let Some(server) = &server {
            claimants.push(Claimant::start(server.url(), &printed)?);
        }
    }
    let before = storage.stats(QueueName::new(QUEUE)?).await?;
    let (start, lasting) = (now(), Duration::from_secs_f64(args.kill_seconds));
    let (mut kills, mut server_kills) = (0, 0);
    while start.elapsed() < lasting {
        tokio::time::sleep(PAUSE).await;
        let oldest = claimants.remove(0);
        let url = oldest.url.clone();
        drop(oldest);
        claimants.push(Claimant::start(&url, &printed)?);
        kills += 1;
        if let Some(server) = &mut server
            && server_kills == 0
            && start.elapsed() > lasting / 2
        {
            server.kill_and_start_again().await?;
            server_kills += 1;
        }
    }
    let numbers = printed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let per_second = rate(numbers.len(), start);
    drop(claimants);
    drop(server);
    let numbers = printed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut census = Census::default();
    let claims = u64::try_from(numbers.len())?;
    census.count(numbers);
    // What was handed out is in flight: its lease outlasts this.
    let after = storage.stats(QueueName::new(QUEUE)?).await?;
    let taken = after.in_flight.saturating_sub(before.in_flight);
    Ok(Killed {
        backend: backend.name(),
        per_second,
        kills,
        server_kills,
        doubles: census.doubles,
        lost: claims.saturating_sub(census.doubles).saturating_sub(taken),
    })
}
