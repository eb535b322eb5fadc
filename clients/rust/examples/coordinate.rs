//! An event, a task and a message of an outbox at once; a lock; and who reads and carries them.

use rdq_client::{
    Client, Error, HandlerError, Message as _,
    v1::{
        CommitRequest, EnqueueRequest, Operation, OutboxServiceEnqueueRequest, PublishRequest,
        Task, operation::Operation as Op, transaction_service_client::TransactionServiceClient,
    },
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::var("RDQ_SERVER").unwrap_or("http://127.0.0.1:7420".into());
    let client = Client::connect(server).await?;

    // All of these, or none.
    let task = Task {
        id: "ship-1".into(),
        queue: "shipping".into(),
        handler_ref: "ship".into(),
        ..Task::default()
    };
    let operations = [
        Op::Publish(PublishRequest {
            stream: "orders".into(),
            payload: "order 1".into(),
            ..PublishRequest::default()
        }),
        Op::Enqueue(EnqueueRequest { task: task.encode_to_vec().into() }),
        Op::OutboxEnqueue(OutboxServiceEnqueueRequest {
            outbox: "invoices".into(),
            payload: "invoice 1".into(),
            ..OutboxServiceEnqueueRequest::default()
        }),
    ];
    let operations = operations.map(|operation| Operation { operation: Some(operation) }).into();
    let mut transactions = TransactionServiceClient::new(client.connection());
    // Of an error, the metadata name the `operation_index`.
    transactions.commit(CommitRequest { operations }).await.map_err(Error::from)?;

    // One process at a time reads the stream.
    let Some(lock) = client.lock("orders-reader").acquire().await? else { return Ok(()) };
    let seen = tokio::sync::Notify::new();
    let reading =
        client.subscription("orders", "reader").run_until(seen.notified(), async |event| {
            println!(
                "{}, generation {}",
                String::from_utf8_lossy(&event.payload),
                lock.generation()
            );
            seen.notify_one(); // a service would go on
            Ok::<_, std::io::Error>(())
        });
    lock.guard(reading).await??;
    lock.release().await;

    let relay = client.outbox_relay().outbox("invoices");
    let deliver = async |message: rdq_client::v1::OutboxMessage| {
        let payload = String::from_utf8_lossy(&message.payload).into_owned();
        println!("{payload}, attempt {}", message.attempt_count);
        Ok::<_, HandlerError>(())
    };
    println!("{}", relay.run_once("relay", deliver).await?);
    Ok(())
}
