//! The front door: what reaches no handler is answered in the words of the contract, health and
//! reflection are on, and a shutdown is orderly.
#![allow(clippy::pedantic, clippy::unwrap_used, reason = "stories of calls, long by nature")]

mod support;

use bytes::{Buf as _, BufMut as _, Bytes};
use rdq_daemon::ServeArgs;
use rdq_proto::v1;
use std::time::Duration;
use support::{encoded, reason, serve, serve_with, task};
use tonic::{
    Code, Request, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Bytes as they are, in place of messages.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

async fn raw_call(
    served: &support::Served,
    path: &'static str,
    body: Bytes,
) -> Result<Bytes, Status> {
    let mut grpc = tonic::client::Grpc::new(served.channel.clone());
    grpc.ready().await.expect("a connection");
    let path = http::uri::PathAndQuery::from_static(path);
    grpc.unary(Request::new(body), path, Raw).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn bytes_that_are_no_message_are_an_invalid_argument() {
    let served = serve().await;
    for path in [
        "/rdq.v1.TaskService/Enqueue",
        "/rdq.v1.TaskService/EnqueueBatch",
        "/rdq.v1.TaskService/Complete",
        "/rdq.v1.TaskService/Get",
        "/rdq.v1.TaskService/DlqList",
        "/rdq.v1.QueueService/PutQueue",
    ] {
        for body in [&[0x0a][..], &[0x0a, 0x7f, 1], &[0xff; 40], &[0x0f], &[0x0c]] {
            let status = raw_call(&served, path, Bytes::copy_from_slice(body)).await.unwrap_err();
            assert_eq!(reason(&status), "INVALID_ARGUMENT", "{path} {body:?}: {status:?}");
        }
    }
    let empty = raw_call(&served, "/rdq.v1.TaskService/Enqueue", Bytes::new()).await.unwrap_err();
    assert_eq!(reason(&empty), "INVALID_NAME", "an unset task names no queue: {empty:?}");
}

#[tokio::test]
async fn an_unknown_method_is_unsupported() {
    let served = serve().await;
    for path in ["/rdq.v1.TaskService/Explode", "/rdq.v2.TaskService/Enqueue", "/"] {
        let status = raw_call(&served, path, Bytes::new()).await.unwrap_err();
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::Unimplemented, "UNSUPPORTED"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_request_above_the_limit_names_it_and_the_connection_lives() {
    let mut served = serve().await;
    let full = v1::Task { payload: vec![1; 1 << 20].into(), ..task("", "q") };
    let tasks = vec![encoded(&full); 8];
    let status = served.tasks.enqueue_batch(v1::EnqueueBatchRequest { tasks }).await.unwrap_err();
    assert_eq!(reason(&status), "MESSAGE_TOO_LARGE", "{status:?}");
    let tasks = vec![encoded(&full); 7];
    served.tasks.enqueue_batch(v1::EnqueueBatchRequest { tasks }).await.expect("7 MiB fit");
    let mut claimed = 0;
    while claimed < 7 {
        let claims = served.claim("q", 70).await;
        assert!(!claims.is_empty(), "all are delivered, in messages that fit");
        claimed += claims.len();
    }
}

/// One call without a gRPC client, which would keep the deadline by itself.
async fn answered_to_a_deadline(
    address: std::net::SocketAddr,
    method: &str,
    message: &[u8],
    timeout: &str,
) -> Status {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake::<_, _, tonic::body::Body>(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(socket),
    );
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = [&[0], &length[..], message].concat();
    let framed = http_body_util::Full::new(Bytes::from(framed));
    let request = http::Request::post(format!("http://{address}/rdq.v1.TaskService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(tonic::body::Body::new(framed))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    Status::from_header_map(response.headers()).unwrap_or_else(|| Status::new(Code::Ok, ""))
}

#[tokio::test]
async fn a_deadline_that_passed_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Some(format!("sqlite:{}", folder.path().join("rdq.db").display()));
    let mut served = serve_with(ServeArgs { storage, ..Default::default() }).await;
    let address = served.server.address();
    // A claim that finds something takes a commit; there is enough to claim for every try.
    let task = v1::Task { queue: "q".into(), handler_ref: "h".into(), ..Default::default() };
    let task: Bytes = prost::Message::encode_to_vec(&task).into();
    let tasks = vec![task; 1_000];
    served.tasks.enqueue_batch(v1::EnqueueBatchRequest { tasks }).await.unwrap();
    let claim = v1::ClaimDueRequest {
        limit: Some(1),
        queues: vec!["q".into()],
        worker_id: "w".into(),
        ..Default::default()
    };
    let claim = prost::Message::encode_to_vec(&claim);
    for (method, message) in [("Stats", &[][..]), ("ClaimDue", &claim)] {
        let answered = answered_to_a_deadline(address, method, message, "1H").await;
        assert_eq!(answered.code(), Code::Ok, "{method}");
        // A nanosecond is not enough, but a call may be done before anybody looks at the time, which
        // ticks in milliseconds. Some try is late.
        let late = loop {
            let status = answered_to_a_deadline(address, method, message, "1n").await;
            if status.code() != Code::Ok {
                break status;
            }
        };
        assert_eq!(late.code(), Code::DeadlineExceeded, "{method}: {late:?}");
        assert_eq!(reason(&late), "DEADLINE_EXCEEDED");
    }
}

#[tokio::test]
async fn health_and_reflection_are_on() {
    use tonic_health::pb::health_check_response::ServingStatus::Serving;
    let served = serve().await;
    let mut health = tonic_health::pb::health_client::HealthClient::new(served.channel.clone());
    for service in ["", "rdq.v1.TaskService", "rdq.v1.QueueService"] {
        let request = tonic_health::pb::HealthCheckRequest { service: service.into() };
        let mut watch = health.watch(request.clone()).await.unwrap().into_inner();
        while watch.message().await.unwrap().expect("it goes on").status() != Serving {}
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, Serving, "{service:?}");
    }
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(served.channel.clone());
    let response = reflection.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
    let message = response.into_inner().message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = message else { panic!("{message:?}") };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(
        names.contains(&"rdq.v1.TaskService") && names.contains(&"rdq.v1.QueueService"),
        "{names:?}"
    );
}

async fn http_get(address: std::net::SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: rdq\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn readiness_follows_the_storage() {
    let served = serve().await;
    let address = served.server.http_address();
    assert!(http_get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    while !http_get(address, "/readyz").await.starts_with("HTTP/1.1 200") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_shutdown_ends_streams_with_closed_and_gives_back_what_was_not_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Some(format!("sqlite:{}", folder.path().join("rdq.db").display()));
    // Much more than it needs on a busy machine: it must not have to cut anybody.
    let shutdown_grace = Some(Duration::from_secs(120));
    let args = ServeArgs { storage, shutdown_grace, ..Default::default() };
    let mut served = serve_with(args.clone()).await;
    let address = served.server.address();
    // A peer that never speaks, one that stops in the middle, and open streams.
    let silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut half = tokio::net::TcpStream::connect(address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut half, b"PRI * HTTP/2.0\r\n").await.unwrap();
    let request = v1::ClaimDueRequest {
        queues: vec!["q".into()],
        worker_id: "w".into(),
        follow: true,
        ..Default::default()
    };
    let mut follow = served.tasks.claim_due(request).await.unwrap().into_inner();
    follow.message().await.unwrap();
    let start = v1::WorkStart { queues: vec!["other".into()], worker_id: "w".into(), lease: None };
    let first = v1::WorkRequest { start: Some(start), credits: Some(1), ..Default::default() };
    let (to_server, requests) = tokio::sync::mpsc::channel(1);
    to_server.send(first).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut work = served.tasks.work(requests).await.unwrap().into_inner();
    work.message().await.unwrap();

    let shutdown = tokio::spawn(served.server.shutdown());
    let status = loop {
        match follow.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the subscription ended without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "CLOSED"));
    let mut draining = false;
    let status = loop {
        match work.message().await {
            Ok(Some(event)) => draining |= event.draining,
            Ok(None) => panic!("the work stream ended without a status"),
            Err(status) => break status,
        }
    };
    assert!(draining, "the worker is told before");
    assert_eq!(reason(&status), "CLOSED");
    drop((silent, half, to_server, work, follow));
    drop((served.tasks, served.queues, served.channel));
    shutdown.await.unwrap().expect("in order");
}

#[tokio::test]
async fn a_shutdown_ends_in_order_although_a_worker_holds_its_claim() {
    // The worker is waited for during a part of it: which part is for the configuration's tests.
    let args = ServeArgs {
        storage: Some("memory:".into()),
        shutdown_grace: Some(Duration::from_secs(60)),
        ..Default::default()
    };
    let mut served = serve_with(args).await;
    let task = v1::Task { queue: "q".into(), handler_ref: "h".into(), ..Default::default() };
    let task = prost::Message::encode_to_vec(&task).into();
    served.tasks.enqueue(v1::EnqueueRequest { task }).await.unwrap();
    let start = v1::WorkStart { queues: vec!["q".into()], worker_id: "w".into(), lease: None };
    let first = v1::WorkRequest { start: Some(start), credits: Some(1), ..Default::default() };
    let (to_server, requests) = tokio::sync::mpsc::channel(1);
    to_server.send(first).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut work = served.tasks.work(requests).await.unwrap().into_inner();
    while work.message().await.unwrap().expect("an event").tasks.is_empty() {}

    let shutdown = tokio::spawn(served.server.shutdown());
    let status = loop {
        match work.message().await {
            Ok(event) => assert!(event.is_some(), "the stream ended without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(reason(&status), "CLOSED");
    drop((served.tasks, served.queues, served.channel));
    shutdown.await.unwrap().expect("in order");
}

#[tokio::test]
async fn a_call_under_way_when_a_shutdown_begins_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Some(format!("sqlite:{}", folder.path().join("rdq.db").display()));
    let shutdown_grace = Some(Duration::from_secs(120));
    let args = ServeArgs { storage, shutdown_grace, ..Default::default() };
    let mut served = serve_with(args.clone()).await;
    let (body, parts) = tokio::sync::mpsc::channel(1);
    let mut grpc = tonic::client::Grpc::new(served.channel.clone());
    grpc.ready().await.unwrap();
    let mut call = Box::pin(async move {
        let parts = Request::new(tokio_stream::wrappers::ReceiverStream::new(parts));
        let path = http::uri::PathAndQuery::from_static("/rdq.v1.TaskService/Enqueue");
        grpc.client_streaming(parts, path, Raw).await
    });
    // Calls of one connection arrive in the order in which they were sent.
    tokio::select! {
        biased;
        answer = &mut call => panic!("{answer:?} to nothing"),
        stats = served.tasks.stats(v1::StatsRequest::default()) => drop(stats.unwrap()),
    }

    let shutdown = tokio::spawn(served.server.shutdown());
    // What nobody holds up has ended by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let request = v1::EnqueueRequest { task: encoded(&task("t", "q")) };
    body.send(prost::Message::encode_to_vec(&request).into()).await.unwrap();
    drop(body);
    call.await.expect("it is served");
    drop((served.tasks, served.queues, served.channel));
    shutdown.await.unwrap().expect("in order");

    assert_eq!(serve_with(args).await.get("t").await.id, "t");
}
