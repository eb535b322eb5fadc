//! Coordination over the wire, as a client sees it: the answers, and what they leave behind.
#![allow(clippy::pedantic, clippy::unwrap_used, reason = "stories of calls, long by nature")]

#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod events;
mod ledger;
mod locks;
mod outboxes;
mod records;
mod transactions;

use rdq_proto::v1::{
    self, ledger_service_client::LedgerServiceClient, lock_service_client::LockServiceClient,
    operation::Operation as Op, operation_result::Result as Done,
    outbox_service_client::OutboxServiceClient, read_request::Start,
    record_service_client::RecordServiceClient, selector::Selection,
    signal_service_client::SignalServiceClient, stream_service_client::StreamServiceClient,
    transact_request::Request as Ask, transact_response::Response as Answer,
    transaction_service_client::TransactionServiceClient,
};
use std::time::Duration;
use support::{Served, encoded, millis, reason, seconds, serve, task};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt as _;

const MIB: usize = 1 << 20;

struct Clients {
    served: Served,
    signals: SignalServiceClient<Channel>,
    streams: StreamServiceClient<Channel>,
    locks: LockServiceClient<Channel>,
    records: RecordServiceClient<Channel>,
    outboxes: OutboxServiceClient<Channel>,
    transactions: TransactionServiceClient<Channel>,
    ledger: LedgerServiceClient<Channel>,
}

async fn clients() -> Clients {
    let served = serve().await;
    let channel = || served.channel.clone();
    Clients {
        signals: SignalServiceClient::new(channel()),
        streams: StreamServiceClient::new(channel()),
        locks: LockServiceClient::new(channel()),
        records: RecordServiceClient::new(channel()),
        outboxes: OutboxServiceClient::new(channel()),
        transactions: TransactionServiceClient::new(channel()),
        ledger: LedgerServiceClient::new(channel()),
        served,
    }
}

fn metadata(status: &Status, key: &str) -> String {
    let details = status.get_error_details();
    details.error_info().and_then(|info| info.metadata.get(key).cloned()).unwrap_or_default()
}

fn publish(stream: &str, payload: impl Into<bytes::Bytes>) -> v1::PublishRequest {
    v1::PublishRequest { stream: stream.into(), key: None, payload: payload.into() }
}

fn read(stream: &str, start: Option<Start>, limit: Option<i32>) -> v1::ReadRequest {
    v1::ReadRequest { stream: stream.into(), start, limit }
}

fn subscribe(stream: &str) -> v1::SubscribeRequest {
    v1::SubscribeRequest { stream: stream.into(), consumer: "reader".into(), limit: None }
}

fn message(outbox: &str, id: &str) -> v1::OutboxServiceEnqueueRequest {
    v1::OutboxServiceEnqueueRequest {
        outbox: outbox.into(),
        id: id.into(),
        payload: "hello".into(),
        ..Default::default()
    }
}

fn commit(operations: Vec<Op>) -> v1::CommitRequest {
    let operation = |operation| v1::Operation { operation: Some(operation) };
    v1::CommitRequest { operations: operations.into_iter().map(operation).collect() }
}

impl Clients {
    async fn publish(&mut self, stream: &str, text: &str) -> i64 {
        let request = publish(stream, text.to_owned());
        self.streams.publish(request).await.unwrap().into_inner().offset
    }

    async fn read_all(&mut self, stream: &str) -> Vec<String> {
        let request = read(stream, Some(Start::Offset(0)), Some(1_000));
        let events = self.streams.read(request).await.unwrap().into_inner().events;
        events.iter().map(|event| String::from_utf8_lossy(&event.payload).into()).collect()
    }

    async fn save(&mut self, stream: &str, consumer: &str, offset: i64) -> i64 {
        let (stream, consumer) = (stream.into(), consumer.into());
        let request = v1::SaveOffsetRequest { stream, consumer, offset };
        self.streams.save_offset(request).await.unwrap().into_inner().offset
    }

    async fn claim(&mut self, outbox: Option<&str>, limit: i32) -> Vec<v1::OutboxMessage> {
        let request = v1::ClaimBatchRequest {
            outbox: outbox.map(Into::into),
            limit: Some(limit),
            lease: None,
            worker_id: "relay".into(),
        };
        self.outboxes.claim_batch(request).await.unwrap().into_inner().messages
    }

    async fn claim_one(&mut self, outbox: &str) -> v1::OutboxMessage {
        let mut claimed = self.claim(Some(outbox), 1).await;
        assert_eq!(claimed.len(), 1, "a message is available");
        claimed.remove(0)
    }

    async fn mark(&mut self, message: &v1::OutboxMessage) -> Result<bool, Status> {
        let request = v1::MarkProjectedRequest {
            id: message.id.clone(),
            worker_id: message.worker_id.clone(),
            generation: message.generation,
        };
        Ok(self.outboxes.mark_projected(request).await?.into_inner().replayed)
    }

    async fn unprojected(&mut self, outbox: &str) -> i64 {
        let request = v1::CountUnprojectedRequest { outbox: Some(outbox.into()) };
        let counts = self.outboxes.count_unprojected(request).await.unwrap().into_inner().counts;
        assert_eq!(counts.len(), 1);
        counts[0].unprojected
    }

    async fn transact(&mut self) -> Turns {
        let (asks, requests) = mpsc::channel(4);
        let answers = self.transactions.transact(ReceiverStream::new(requests)).await.unwrap();
        Turns { asks, answers: answers.into_inner() }
    }
}

/// An interactive transaction.
struct Turns {
    asks: mpsc::Sender<v1::TransactRequest>,
    answers: Streaming<v1::TransactResponse>,
}

impl Turns {
    async fn ask(&mut self, request: Option<Ask>) -> Answer {
        self.asks.send(v1::TransactRequest { request }).await.unwrap();
        self.answers.message().await.unwrap().unwrap().response.unwrap()
    }

    async fn apply(&mut self, operations: Vec<Op>) -> Answer {
        self.ask(Some(Ask::Apply(commit(operations)))).await
    }

    async fn texts(&mut self, stream: &str) -> Vec<String> {
        let request = read(stream, Some(Start::Offset(0)), None);
        let Answer::Events(response) = self.ask(Some(Ask::ReadStream(request))).await else {
            panic!("no events");
        };
        let text = |event: &v1::StreamEvent| String::from_utf8_lossy(&event.payload).into();
        response.events.iter().map(text).collect()
    }

    async fn commit(mut self) {
        let answer = self.ask(Some(Ask::Commit(v1::CommitTransaction {}))).await;
        assert!(matches!(answer, Answer::Committed(_)), "{answer:?}");
        assert!(self.answers.message().await.unwrap().is_none(), "it is the last message");
    }
}

fn refused(answer: Answer) -> (String, Option<i32>) {
    let Answer::Error(v1::TransactError { error: Some(error), operation_index }) = answer else {
        panic!("not refused: {answer:?}");
    };
    (error.reason().reason().to_owned(), operation_index)
}
