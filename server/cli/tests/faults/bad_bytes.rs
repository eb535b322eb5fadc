//! F23: bytes that are not what a method expects, for every method, over a plain HTTP/2 stream.

use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    server::Server,
};
use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use rdq_compliance::Random;
use rdq_proto::v1::{self, ErrorReason};
use std::time::Duration;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::Channel,
};

const QUEUE: &str = "bad";
const RANDOM_MESSAGES: usize = 40;
const TRUNCATED_MESSAGES: usize = 20;
/// A stream that says nothing for so long is open, and waits for more. One that was about to refuse
/// its request is left too soon then, which proves less and breaks nothing.
const OPEN_AFTER: Duration = Duration::from_millis(300);

pub(crate) async fn get_typed_errors(mut random: Random) -> Verdict {
    let mut server = Server::start("memory:").await;
    let channel = server.channel();
    let methods = methods();
    assert!(methods.len() > 25, "{methods:?}");
    // A field with a length that the message does not have, a group without an end, a varint
    // without one, a wire type that there is not.
    let malformed: [&[u8]; 5] =
        [&[0x0a, 0x7f], &[0x0b], &[0xff; 11], &[0x0f], &[0x0a, 0x05, b'a', b'b']];
    for method in &methods {
        for bytes in malformed {
            let answer = call(&channel, &method.path, Bytes::from_static(bytes)).await;
            let status = answer.expect_err("malformed");
            let method = &method.path;
            assert_eq!(status.code(), Code::InvalidArgument, "{method} {bytes:?}: {status:?}");
            is_typed(method, bytes, &status);
        }
        for _ in 0..RANDOM_MESSAGES {
            let len = random.below(60);
            any_answer(&channel, method, random.bytes(len)).await;
        }
        let whole = plausible();
        for _ in 0..TRUNCATED_MESSAGES {
            let mut bytes = whole[..random.below(whole.len())].to_vec();
            if let Some(last) = bytes.last_mut() {
                *last ^= u8::try_from(random.below(256)).expect("a byte");
            }
            any_answer(&channel, method, bytes).await;
        }
    }
    assert!(server.is_alive());
    let tasks = Tasks::new(channel);
    let stats = tasks.clone().stats(v1::StatsRequest::default()).await.expect("stats").into_inner();
    let stored = |it: &v1::QueueStats| it.pending + it.in_flight + it.succeeded + it.dlq_depth > 0;
    assert!(!stats.queues.iter().any(stored), "something was stored: {stats:?}");
    tasks.clone().enqueue(calls::enqueue(&calls::task("t", QUEUE, "x"))).await.expect("it serves");
    Ok(())
}

#[derive(Debug)]
struct Method {
    /// Of a call.
    path: String,
    /// It may answer for as long as it is open.
    is_stream: bool,
}

/// Every method of our services.
fn methods() -> Vec<Method> {
    let set = FileDescriptorSet::decode(rdq_proto::DESCRIPTOR_SET).expect("the contract");
    let services = set.file.iter().flat_map(|file| &file.service);
    services
        .flat_map(|service| {
            let name = service.name();
            service.method.iter().map(move |method| Method {
                path: format!("/rdq.v1.{name}/{}", method.name()),
                is_stream: method.server_streaming(),
            })
        })
        .collect()
}

/// A message with nested ones, to be cut at random places.
fn plausible() -> Bytes {
    let mut task = calls::task("t", QUEUE, "payload");
    task.headers.insert("key".into(), "value".into());
    task.attempts = vec![calls::failed("type", v1::AttemptOutcome::RetryableFailure)];
    calls::encode(&calls::enqueue(&task))
}

/// Bytes may happen to be a message; if they are not taken, the error is one of the contract's.
async fn any_answer(channel: &Channel, method: &Method, bytes: Vec<u8>) {
    let Method { path, is_stream } = method;
    let mut answer = std::pin::pin!(call(channel, path, bytes.clone().into()));
    let answer = match is_stream {
        true => tokio::time::timeout(OPEN_AFTER, answer.as_mut()).await.unwrap_or(Ok(())),
        false => answer.await,
    };
    if let Err(status) = answer {
        let method = path;
        let of_the_caller =
            [Code::InvalidArgument, Code::NotFound, Code::FailedPrecondition, Code::Unimplemented];
        assert!(of_the_caller.contains(&status.code()), "{method} {bytes:?}: {status:?}");
        is_typed(method, &bytes, &status);
    }
}

fn is_typed(method: &str, bytes: &[u8], status: &Status) {
    let reason = calls::reason(status);
    let is_known = reason.is_some_and(|reason| reason != ErrorReason::Unspecified);
    assert!(is_known, "{method} {bytes:?}: {status:?}");
}

/// One message up, and what comes down to its end.
async fn call(channel: &Channel, method: &str, bytes: Bytes) -> Result<(), Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.expect("the server is there");
    let path = method.parse().expect("a path");
    let request = Request::new(tokio_stream::once(bytes));
    let mut answers = client.streaming(request, path, RawCodec).await?.into_inner();
    while answers.message().await?.is_some() {}
    Ok(())
}

/// Passes bytes on as they are.
#[derive(Debug, Clone, Copy)]
struct RawCodec;

impl Codec for RawCodec {
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

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let len = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(len)))
    }
}
