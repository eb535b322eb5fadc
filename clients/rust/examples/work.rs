//! Works until it is told to end.

use rdq_client::{Client, Error, HandlerError, Job, Permanent, Worker, shutdown_signal};

async fn send(job: Job) -> Result<String, HandlerError> {
    let to = std::str::from_utf8(job.payload()).map_err(Permanent)?;
    println!("sending to {to}, attempt {}", job.attempt_no());
    Ok(format!("sent to {to}"))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let server = std::env::var("RDQ_SERVER").unwrap_or("http://127.0.0.1:7420".into());
    let client = Client::connect(server).await?;
    let worker = Worker::builder(&client).queue("mail").handler("send", send).build()?;
    worker.run_until(shutdown_signal()).await;
    Ok(())
}
