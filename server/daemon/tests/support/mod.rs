//! A server of one test, and the words that tests share. It asserts nothing by itself.
#![allow(dead_code, clippy::pedantic, reason = "each test binary uses its part")]

use bytes::Bytes;
use prost::Message as _;
use rdq_daemon::{ServeArgs, Server};
use rdq_proto::v1::{
    self, queue_service_client::QueueServiceClient, task_service_client::TaskServiceClient,
};
use tonic::{Status, transport::Channel};
use tonic_types::StatusExt as _;

pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) tasks: TaskServiceClient<Channel>,
    pub(crate) queues: QueueServiceClient<Channel>,
    pub(crate) channel: Channel,
}

pub(crate) async fn serve() -> Served {
    serve_with(ServeArgs::default()).await
}

pub(crate) async fn serve_with(args: ServeArgs) -> Served {
    let free = "127.0.0.1:0".parse().ok();
    let storage = args.storage.clone().or_else(|| Some("memory:".into()));
    let server = Server::start(ServeArgs { listen: free, http: free, storage, ..args }).await;
    let server = server.expect("the server starts");
    let url = format!("http://{}", server.address());
    let channel = Channel::from_shared(url).expect("a URL").connect().await.expect("it answers");
    let tasks = TaskServiceClient::new(channel.clone()).max_decoding_message_size(8 << 20);
    let queues = QueueServiceClient::new(channel.clone());
    Served { server, tasks, queues, channel }
}

/// A task, encoded as the generated code carries it.
pub(crate) fn encoded(task: &v1::Task) -> Bytes {
    task.encode_to_vec().into()
}

pub(crate) fn task(id: &str, queue: &str) -> v1::Task {
    v1::Task {
        id: id.into(),
        queue: queue.into(),
        handler_ref: "handler".into(),
        payload: Bytes::from_static(b"payload"),
        ..v1::Task::default()
    }
}

pub(crate) fn decoded(task: &Bytes) -> v1::Task {
    v1::Task::decode(task.clone()).expect("an answered task decodes")
}

/// The reason of an error, which every error must have.
pub(crate) fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!(info.domain, "rdq", "{status:?}");
    info.reason.clone()
}

pub(crate) fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

pub(crate) fn millis(millis: i32) -> prost_types::Duration {
    prost_types::Duration { seconds: 0, nanos: millis * 1_000_000 }
}

impl Served {
    pub(crate) async fn enqueue(&mut self, task: &v1::Task) -> Result<v1::EnqueueResponse, Status> {
        let request = v1::EnqueueRequest { task: encoded(task) };
        self.tasks.enqueue(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn claim(&mut self, queue: &str, limit: i32) -> Vec<v1::ClaimedTask> {
        let request = v1::ClaimDueRequest {
            queues: vec![queue.into()],
            limit: Some(limit),
            worker_id: "worker".into(),
            ..Default::default()
        };
        let mut stream = self.tasks.claim_due(request).await.expect("claims").into_inner();
        let first = stream.message().await.expect("a message").expect("one message");
        assert!(stream.message().await.expect("an end").is_none(), "one message, then the end");
        first.tasks
    }

    pub(crate) async fn get(&mut self, id: &str) -> v1::Task {
        let response =
            self.tasks.get(v1::GetRequest { id: id.into(), outbox: None }).await.expect("a task");
        decoded(&response.into_inner().task)
    }
}
