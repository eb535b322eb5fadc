//! Measures one worker with a handler that does nothing, beside the bare unary call of the same
//! client.
#![allow(clippy::disallowed_methods, reason = "it measures how long something takes")]

use rdq_client::{Client, HandlerError, NewTask, Worker};
use std::{
    env,
    error::Error,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::JoinSet};

const QUEUE: &str = "bench";
const CONCURRENCY: usize = 256;
const CALLS_AT_ONCE: usize = 64;
const ECHO_FOR: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (mut server, mut tasks) = (None, None);
    let mut arguments = env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match name.as_str() {
            "--server" => server = Some(value),
            "--tasks" => tasks = Some(value.parse()?),
            _ => return Err(format!("{name} is not known").into()),
        }
    }
    let client = Client::connect(server.ok_or("--server HOST:PORT is missing")?).await?;
    let tasks_per_second = work(&client, tasks.ok_or("--tasks N is missing")?).await?;
    let echo_per_second = echo(&client).await?;
    println!(
        r#"{{"language": "rust", "tasks_per_second": {tasks_per_second:.0}, "echo_per_second": {echo_per_second:.0}}}"#
    );
    Ok(())
}

async fn work(client: &Client, count: usize) -> Result<f64, Box<dyn Error>> {
    let tasks = (0..count).map(|_| NewTask::new(QUEUE, "nothing").payload(vec![7; 100]));
    for answer in client.enqueue_many(tasks).await {
        answer?;
    }
    let started = Arc::new(OnceLock::new());
    let (left, all_ran) = (Arc::new(AtomicUsize::new(count)), Arc::new(Notify::new()));
    let (first, ran) = (Arc::clone(&started), Arc::clone(&all_ran));
    let handler = move |_| {
        first.get_or_init(Instant::now);
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            ran.notify_one();
        }
        async { Ok::<_, HandlerError>(()) }
    };
    let worker = Worker::builder(client).queue(QUEUE).concurrency(CONCURRENCY);
    let worker = worker.handler("nothing", handler).build()?.start();
    all_ran.notified().await;
    // Over when every outcome is acknowledged.
    worker.stop().await?;
    let seconds = started.get().ok_or("nothing ran")?.elapsed().as_secs_f64();
    let succeeded = client.stats([QUEUE]).await?[0].succeeded;
    if succeeded < count as u64 {
        return Err(format!("{succeeded} of {count} tasks succeeded").into());
    }
    Ok(per_second(count, seconds))
}

async fn echo(client: &Client) -> Result<f64, Box<dyn Error>> {
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLS_AT_ONCE {
        let client = client.clone();
        callers.spawn(async move {
            let mut calls = 0;
            while started.elapsed() < ECHO_FOR {
                client.capabilities().await?;
                calls += 1;
            }
            Ok::<_, rdq_client::Error>(calls)
        });
    }
    let mut calls: usize = 0;
    while let Some(caller) = callers.join_next().await {
        calls += caller??;
    }
    Ok(per_second(calls, started.elapsed().as_secs_f64()))
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn per_second(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}
