//! Short ways to make messages, and to read errors. Nothing is recorded here.

use bytes::Bytes;
use prost::Message as _;
use rdq_proto::{
    time,
    v1::{self, ErrorReason, task_service_client::TaskServiceClient},
};
use std::time::Duration;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

/// The generated client.
pub(crate) type Tasks = TaskServiceClient<Channel>;

/// How tests connect.
pub(crate) fn endpoint(url: &str) -> Endpoint {
    Endpoint::from_shared(url.to_owned())
        .expect("a URL")
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
}

/// A task to be enqueued.
pub(crate) fn task(id: &str, queue: &str, payload: impl Into<Bytes>) -> v1::Task {
    v1::Task {
        id: id.to_owned(),
        queue: queue.to_owned(),
        handler_ref: "test".to_owned(),
        payload: payload.into(),
        ..v1::Task::default()
    }
}

/// The request that admits a task.
pub(crate) fn enqueue(task: &v1::Task) -> v1::EnqueueRequest {
    v1::EnqueueRequest { task: encode(task) }
}

/// A message in its encoded form.
pub(crate) fn encode(message: &impl prost::Message) -> Bytes {
    message.encode_to_vec().into()
}

/// The typed view of a task.
pub(crate) fn decode(task: &Bytes) -> v1::Task {
    v1::Task::decode(task.clone()).expect("the server answers with tasks that decode")
}

/// A claim of tasks that are due now.
pub(crate) fn claim(queue: &str, limit: i32, lease: Duration) -> v1::ClaimDueRequest {
    v1::ClaimDueRequest {
        queues: vec![queue.to_owned()],
        limit: Some(limit),
        lease: Some(time::duration(lease)),
        worker_id: "tester".to_owned(),
        ..v1::ClaimDueRequest::default()
    }
}

/// A subscription.
pub(crate) fn follow(queue: &str, max_in_flight: i32, lease: Duration) -> v1::ClaimDueRequest {
    v1::ClaimDueRequest {
        follow: true,
        max_in_flight: Some(max_in_flight),
        ..claim(queue, max_in_flight.min(1_000), lease)
    }
}

/// An attempt that failed, in its encoded form.
pub(crate) fn failed(error_type: &str, outcome: v1::AttemptOutcome) -> Bytes {
    let error = v1::AttemptError {
        r#type: error_type.to_owned(),
        message: "as the test wants it".to_owned(),
        ..v1::AttemptError::default()
    };
    let (error, outcome) = (encode(&error), outcome.into());
    encode(&v1::Attempt { error, outcome, ..v1::Attempt::default() })
}

/// The reason that an error of the service carries.
pub(crate) fn reason(status: &Status) -> Option<ErrorReason> {
    let info = status.get_details_error_info()?;
    ErrorReason::from_reason(&info.reason)
}

/// Whether the change may stand all the same.
pub(crate) fn outcome_unknown(status: &Status) -> bool {
    match status.get_details_error_info() {
        Some(info) => info.metadata.get("outcome_unknown").is_some_and(|value| value == "true"),
        // The transport, or the caller's own deadline.
        None => true,
    }
}

/// The counts of a queue.
pub(crate) async fn stats(tasks: &Tasks, queue: &str) -> Result<v1::QueueStats, Status> {
    let request = v1::StatsRequest { queues: vec![queue.to_owned()], ..Default::default() };
    let answer = tasks.clone().stats(request).await?.into_inner();
    Ok(answer.queues.into_iter().next().expect("one entry a queue"))
}

/// One task.
pub(crate) async fn get(tasks: &Tasks, id: &str) -> Result<v1::Task, Status> {
    let answer =
        tasks.clone().get(v1::GetRequest { id: id.to_owned(), ..Default::default() }).await?;
    Ok(decode(&answer.into_inner().task))
}

/// Every task of a queue, page by page.
pub(crate) async fn list(tasks: &Tasks, queue: &str) -> Result<Vec<v1::Task>, Status> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListRequest {
            queue: queue.to_owned(),
            page_size: Some(1_000),
            page_token,
            ..v1::ListRequest::default()
        };
        let page = tasks.clone().list(request).await?.into_inner();
        all.extend(page.tasks.iter().map(decode));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(all);
        }
    }
}

/// One unary claim: the tasks of all its messages.
pub(crate) async fn claim_once(
    tasks: &Tasks,
    request: v1::ClaimDueRequest,
) -> Result<Vec<v1::ClaimedTask>, Status> {
    let mut stream = tasks.clone().claim_due(request).await?.into_inner();
    let mut claimed = Vec::new();
    while let Some(message) = stream.message().await? {
        claimed.extend(message.tasks);
    }
    Ok(claimed)
}
