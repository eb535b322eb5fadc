//! Transactions: `Commit`, and `Transact` as a stream whose requests are answered in their turn.

use crate::{
    client::{answer, in_time, request},
    convert,
    errors::{Failure, Operation},
    storage::RemoteStorage,
};
use async_trait::async_trait;
use rdq_proto::v1::{
    self, transact_request::Request as Asked, transact_response::Response as Answer,
};
use rdq_spi::{
    Applied, ConsumerName, Operation as Step, ReadParams, Rejected, Result, StorageError,
    StreamEvent, StreamName, Task, TaskId, Transaction, Transactions,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

const COMMIT: Operation = Operation::changing("commit");
/// What it does is rolled back if its answer is lost.
const APPLY: Operation = Operation::reading("apply");
const BEGIN: Operation = Operation::reading("begin");

#[async_trait]
impl Transactions for RemoteStorage {
    async fn commit(&self, mut operations: Vec<Step>) -> Result<Vec<Applied>, Rejected> {
        if let Some(mutation) = Step::observation(&operations)?.cloned() {
            return self.execute(mutation, operations.split_off(1)).await;
        }
        let mut client = self.client()?;
        let asked = request(commit_request(operations.clone())?);
        let response = answer(async move { client.transactions.commit(asked).await }).await;
        let response = response.map_err(|failure| rejected(&failure, COMMIT, &operations))?;
        let applied = convert::applied(&operations, response.results);
        Ok(applied.map_err(|broken| COMMIT.broken(broken))?)
    }

    fn interactive(&self) -> bool {
        self.faculties().interactive
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        let mut client = self.client()?;
        let (requests, sent) = mpsc::channel(1);
        let open = async move {
            Ok(client.transactions.transact(ReceiverStream::new(sent)).await?.into_inner())
        };
        let answers = in_time(open).await.map_err(|failure| failure.error(BEGIN, None))?;
        Ok(Box::new(RemoteTransaction(Some(Open { requests, answers }))))
    }
}

pub(crate) fn commit_request(operations: Vec<Step>) -> Result<v1::CommitRequest, Rejected> {
    let operations = operations.into_iter().enumerate().map(|(index, operation)| {
        convert::operation(operation).map_err(|error| Rejected { index: Some(index), error })
    });
    Ok(v1::CommitRequest { operations: operations.collect::<Result<_, Rejected>>()? })
}

pub(crate) fn rejected(failure: &Failure, operation: Operation, operations: &[Step]) -> Rejected {
    let index = failure.operation_index();
    let task = match index.and_then(|index| operations.get(index)) {
        Some(Step::Enqueue(task)) => Some(&task.id),
        Some(Step::Cancel(task)) => Some(task),
        Some(Step::Resolve(resolution)) => Some(&resolution.claim.task_id),
        _ => None,
    };
    Rejected { index, error: failure.error(operation, task) }
}

/// A transaction at the other server. Gone once it is over.
#[derive(Debug)]
struct RemoteTransaction(Option<Open>);

#[derive(Debug)]
struct Open {
    requests: mpsc::Sender<v1::TransactRequest>,
    answers: Streaming<v1::TransactResponse>,
}

impl Open {
    /// Reads to the stream's end, which the server makes once it has rolled back.
    async fn roll_back(self) {
        let Self { requests, mut answers } = self;
        drop(requests);
        while let Ok(Ok(Some(_))) = in_time(async { Ok(answers.message().await) }).await {}
    }
}

impl Drop for RemoteTransaction {
    fn drop(&mut self) {
        // In order: a stream that is cut counts against its connection.
        if let (Some(open), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(open.roll_back());
        }
    }
}

impl RemoteTransaction {
    /// One request and its answer; an error of the stream ends the transaction.
    async fn turn(&mut self, asked: Asked) -> Result<Answer, Failure> {
        let Some(open) = &mut self.0 else { return Err(Failure::rolled_back()) };
        let asked = v1::TransactRequest { request: Some(asked) };
        let answered = in_time(async {
            // Whoever ended the stream says why in its answers.
            let _ = open.requests.send(asked).await;
            open.answers.message().await
        });
        let answered = answered.await.and_then(|message| message.ok_or_else(Failure::rolled_back));
        if answered.is_err() {
            self.0 = None;
        }
        answered?.response.ok_or_else(Failure::unanswered)
    }

    async fn read_turn(&mut self, asked: Asked, task: Option<&TaskId>) -> Result<Answer> {
        match self.turn(asked).await {
            Ok(Answer::Error(error)) => Err(Failure::from(error).error(APPLY, task)),
            Ok(answer) => Ok(answer),
            Err(failure) => Err(failure.error(APPLY, task)),
        }
    }
}

fn another() -> StorageError {
    APPLY.broken("is one to another request")
}

#[async_trait]
impl Transaction for RemoteTransaction {
    async fn apply(&mut self, operations: Vec<Step>) -> Result<Vec<Applied>, Rejected> {
        let asked = Asked::Apply(commit_request(operations.clone())?);
        let failure = match self.turn(asked).await {
            Ok(Answer::Applied(response)) => {
                let applied = convert::applied(&operations, response.results);
                return Ok(applied.map_err(|broken| APPLY.broken(broken))?);
            }
            Ok(Answer::Error(error)) => Failure::from(error),
            Ok(_) => return Err(another().into()),
            Err(failure) => failure,
        };
        Err(rejected(&failure, APPLY, &operations))
    }

    async fn get(&mut self, task: TaskId) -> Result<Task> {
        let asked = v1::GetRequest { id: task.as_str().to_owned(), outbox: None };
        match self.read_turn(Asked::GetTask(asked), Some(&task)).await? {
            Answer::Task(response) => {
                convert::task(&response.task).map_err(|broken| APPLY.broken(broken))
            }
            _ => Err(another()),
        }
    }

    async fn read(&mut self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        let asked = Asked::ReadStream(convert::read_request(&params));
        match self.read_turn(asked, None).await? {
            Answer::Events(response) => {
                let events = convert::events(response.events, params.bytes_max);
                events.map_err(|broken| APPLY.broken(broken))
            }
            _ => Err(another()),
        }
    }

    async fn offset(&mut self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        let asked = v1::GetOffsetRequest { stream: stream.into(), consumer: consumer.into() };
        match self.read_turn(Asked::GetOffset(asked), None).await? {
            Answer::Offset(response) => Ok(response.offset),
            _ => Err(another()),
        }
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        let committed = self.turn(Asked::Commit(v1::CommitTransaction {})).await;
        match committed.map_err(|failure| failure.error(COMMIT, None))? {
            Answer::Committed(_) => Ok(()),
            Answer::Error(error) => Err(Failure::from(error).error(COMMIT, None)),
            _ => Err(another()),
        }
    }

    async fn rollback(mut self: Box<Self>) -> Result<()> {
        if let Some(open) = self.0.take() {
            open.roll_back().await;
        }
        Ok(())
    }
}
