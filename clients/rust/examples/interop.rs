//! Produces and works for clients of other languages, and checks what theirs produced.

use rdq_client::{Claim, Client, HandlerError, NewTask, Permanent, TaskStatus, Worker};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{HashMap, HashSet},
    env,
    error::Error,
    process::ExitCode,
    time::Duration,
};
use tokio::sync::mpsc;

const HANDLER: &str = "interop.echo";
const GREETING: &str = "🚀 ñ مرحبا";
const WITHIN: Duration = Duration::from_secs(60);
const USAGE: &str = "usage: interop produce --server HOST:PORT --queue Q --prefix P --count N
       interop work --server HOST:PORT --queue Q --count N";

#[tokio::main]
async fn main() -> ExitCode {
    let done = match arguments() {
        Ok((command, options)) if command == "produce" => produce(&options).await,
        Ok((command, options)) if command == "work" => work(&options).await,
        Ok(_) => Err(USAGE.into()),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}

type Options = HashMap<String, String>;

fn arguments() -> Result<(String, Options), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let command = arguments.next().ok_or(USAGE)?;
    let mut options = HashMap::new();
    while let Some(name) = arguments.next() {
        let name = name.strip_prefix("--").ok_or(USAGE)?.to_owned();
        options.insert(name, arguments.next().ok_or(USAGE)?);
    }
    Ok((command, options))
}

fn option<'a>(options: &'a Options, name: &str) -> Result<&'a str, Box<dyn Error>> {
    options.get(name).map(String::as_str).ok_or_else(|| format!("--{name} is missing").into())
}

/// The id, a zero byte, text, and every byte.
fn payload(id: &str) -> Vec<u8> {
    let every_byte: Vec<u8> = (0..=255).collect();
    [id.as_bytes(), &[0], GREETING.as_bytes(), &every_byte].concat()
}

async fn produce(options: &Options) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(option(options, "server")?).await?;
    let (queue, prefix) = (option(options, "queue")?, option(options, "prefix")?);
    let count: usize = option(options, "count")?.parse()?;
    let tasks = (1..=count).map(|number| {
        let id = format!("{prefix}-{number}");
        let task = NewTask::new(queue, HANDLER).payload(payload(&id)).id(id);
        task.header("language", "rust").header("greeting", GREETING)
    });
    for answer in client.enqueue_many(tasks).await {
        answer?;
    }
    Ok(())
}

async fn work(options: &Options) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(option(options, "server")?).await?;
    let count: usize = option(options, "count")?.parse()?;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let handler = move |claim: Claim| {
        let checked = check(&claim);
        let _ = ended.send((claim.id().to_owned(), checked.is_ok()));
        async move { checked.map_err(|difference| Permanent(HandlerError::new("interop", difference))) }
    };
    let queue = option(options, "queue")?;
    let worker = Worker::builder(&client).queue(queue).handler(HANDLER, handler).build()?.start();
    let mut ids = HashSet::new();
    let counting = async {
        while ids.len() < count {
            match ends.recv().await {
                Some((id, true)) => drop(ids.insert(id)),
                Some((id, false)) => return Err(format!("{id} is not what was agreed")),
                None => return Err("the worker ended".to_owned()),
            }
        }
        Ok(())
    };
    let counted = tokio::time::timeout(WITHIN, counting).await;
    let unanswered = worker.stop().await?.unanswered;
    counted.map_err(|_| "not all came in time")??;
    if unanswered > 0 {
        return Err(format!("{unanswered} outcomes were not answered").into());
    }
    for id in ids {
        let status = client.get(&id).await?.status();
        if status != TaskStatus::Succeeded {
            return Err(format!("{id} is {status:?}").into());
        }
    }
    Ok(())
}

/// The digest of a payload that is as it was agreed.
fn check(claim: &Claim) -> Result<Vec<u8>, String> {
    if claim.payload() != &payload(claim.id()) {
        return Err(format!("the payload of {} differs", claim.id()));
    }
    if claim.header("greeting") != Some(GREETING) {
        return Err(format!("the greeting of {} differs", claim.id()));
    }
    Ok(Sha256::digest(claim.payload()).to_vec())
}
