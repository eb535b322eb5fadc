//! Enqueues one task.

use rdq_client::{Client, Error, NewTask};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let server = std::env::var("RDQ_SERVER").unwrap_or("http://127.0.0.1:7420".into());
    let client = Client::connect(server).await?;
    let task = NewTask::new("mail", "send").payload("a@example.org");
    println!("enqueued {}", client.enqueue(task).await?.id);
    Ok(())
}
