//! Works until it is told to end.

use rdq_client::{Claim, Client, Error, HandlerError, Permanent, Worker, shutdown_signal};

async fn send(claim: Claim) -> Result<String, HandlerError> {
    let to = std::str::from_utf8(claim.payload()).map_err(Permanent)?;
    println!("sending to {to}, attempt {}", claim.attempt_no());
    Ok(format!("sent to {to}"))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let server = std::env::var("RDQ_SERVER").unwrap_or("http://127.0.0.1:7420".into());
    let client = Client::connect(server).await?;
    let worker = Worker::builder(&client).queue("mail").handler("send", send).build()?;
    worker.run_until(shutdown_signal()).await?;
    Ok(())
}
