//! `Transact`: requests going up, each answered in its turn. Whatever ends the stream before the
//! commit rolls back.

use super::REQUEST_BYTES_MAX;
use crate::{
    convert,
    status::{Refusal, engine_status, of_request_stream, transact_error},
};
use futures::Stream;
use rdq_engine::{EngineError, OpenTransaction};
use rdq_proto::v1::{
    self, transact_request::Request as Asked, transact_response::Response as Answer,
};
use std::pin::Pin;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, Streaming};

/// Answers that wait for a client who does not read: it is not read either then, and so is idle.
const ANSWERS: usize = 1;

type Sent = Result<v1::TransactResponse, Status>;

/// Serves one transaction. It lives as long as the answers do.
pub(super) fn serve(
    transaction: OpenTransaction,
    requests: Streaming<v1::TransactRequest>,
) -> Pin<Box<dyn Stream<Item = Sent> + Send>> {
    let (answers, sent) = mpsc::channel(ANSWERS);
    let turns = AbortOnDropHandle::new(tokio::spawn(take_turns(transaction, requests, answers)));
    Box::pin(ReceiverStream::new(sent).map(move |answer| {
        let _ = &turns;
        answer
    }))
}

async fn take_turns(
    mut transaction: OpenTransaction,
    mut requests: Streaming<v1::TransactRequest>,
    answers: mpsc::Sender<Sent>,
) {
    loop {
        let next = tokio::select! {
            biased;
            next = requests.message() => next,
            error = transaction.out_of_time() => return end(transaction, &answers, error).await,
        };
        let request = match next {
            Ok(Some(message)) => {
                transaction.heard();
                message.request
            }
            // The client left, and with it the transaction.
            Ok(None) => return roll_back(transaction).await,
            Err(status) => {
                roll_back(transaction).await;
                let _ = answers.send(Err(of_request_stream(status, REQUEST_BYTES_MAX))).await;
                return;
            }
        };
        if let Some(Asked::Commit(_)) = request {
            let committed = transaction.commit().await.map_err(engine_status);
            let answer = |()| Answer::Committed(v1::CommittedTransaction {});
            let _ = answers.send(committed.map(answer).map(respond)).await;
            return;
        }
        let answer = match answer(&mut transaction, request).await {
            Ok(answer) => answer,
            Err(refusal) if transaction.is_over() => {
                let _ = answers.send(Err(refusal.into())).await;
                return;
            }
            Err(refusal) => Answer::Error(transact_error(&refusal)),
        };
        let is_sent = tokio::select! {
            biased;
            sent = answers.send(Ok(respond(answer))) => sent.is_ok(),
            error = transaction.out_of_time() => return end(transaction, &answers, error).await,
        };
        if !is_sent {
            return roll_back(transaction).await;
        }
    }
}

fn respond(answer: Answer) -> v1::TransactResponse {
    v1::TransactResponse { response: Some(answer) }
}

/// Rolls back, and then says why.
async fn end(transaction: OpenTransaction, answers: &mpsc::Sender<Sent>, error: EngineError) {
    roll_back(transaction).await;
    let _ = answers.send(Err(engine_status(error))).await;
}

async fn roll_back(transaction: OpenTransaction) {
    if let Err(error) = transaction.rollback().await {
        // It goes when the storage finds it abandoned.
        tracing::warn!(%error, "a transaction was not rolled back in order");
    }
}

async fn answer(
    transaction: &mut OpenTransaction,
    request: Option<Asked>,
) -> Result<Answer, Refusal> {
    Ok(match request {
        Some(Asked::Apply(request)) => {
            let (operations, asked) = convert::operations(request)?;
            match transaction.apply(operations).await {
                Ok(applied) => Answer::Applied(convert::commit_response(asked, applied)?),
                Err(error) => return Err(convert::operation_refusal(error, &asked)),
            }
        }
        Some(Asked::GetTask(request)) => {
            let outbox = convert::optional_outbox(request.outbox.as_ref())?;
            let id = convert::task_id(&request.id)?;
            let task = transaction.get(id, outbox.as_ref()).await?;
            Answer::Task(v1::GetResponse { task: convert::task_bytes(task)? })
        }
        Some(Asked::GetOffset(request)) => {
            let stream = convert::stream(&request.stream)?;
            let consumer = convert::consumer(&request.consumer)?;
            let offset = transaction.saved_offset(stream, consumer).await?;
            Answer::Offset(v1::GetOffsetResponse { offset })
        }
        Some(Asked::ReadStream(request)) => {
            let (stream, from, limit) = convert::read(request)?;
            let events = transaction.read_stream(stream.clone(), from, limit).await?;
            Answer::Events(v1::ReadResponse { events: convert::events(&stream, events) })
        }
        Some(Asked::Commit(_)) | None => {
            return Err(Refusal::invalid("request", "a message must have exactly one request"));
        }
    })
}
