//! The front door of every call: its deadline, how many may be under way, a panic contained, and
//! what the transport answered by itself put into the words of the contract.

use crate::{
    grpc::REQUEST_BYTES_MAX,
    status::{Refusal, of_the_transport},
};
use futures::FutureExt as _;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Code, Status, body::Body};

/// Unary calls under way at once, on all connections.
const CALLS_MAX: usize = 8_192;
/// Streams open at once, on all connections.
const STREAMS_MAX: usize = 16_384;
/// No unary call takes longer, whatever its caller allows.
const CALL_WITHIN: Duration = Duration::from_secs(60);

/// How the paths of the contract's methods begin.
const CONTRACT: &str = "/rdq.v1.";
/// Methods whose answer is a stream: no deadline here, and a place for as long as it is open.
const STREAMS: [&str; 8] =
    ["ClaimDue", "Work", "WaitDue", "Redrive", "Purge", "Listen", "Subscribe", "Transact"];

/// The places that calls and streams take.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Streams of health and reflection, which no shutdown waits for.
    watches: Arc<Semaphore>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            watches: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }
}

impl Limits {
    /// Whether no call and no stream of the contract is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.available_permits() == CALLS_MAX
            && self.streams.available_permits() == STREAMS_MAX
    }

    /// Serves one call within the limits.
    pub(crate) async fn serve<F>(
        self,
        request: Request<hyper::body::Incoming>,
        call: impl FnOnce(Request<hyper::body::Incoming>) -> F,
    ) -> Response<Body>
    where
        F: Future<Output = Response<Body>>,
    {
        let is_stream = is_stream(request.uri().path());
        let (places, what) = match (is_stream, request.uri().path().starts_with(CONTRACT)) {
            (false, _) => (&self.calls, "calls"),
            (true, true) => (&self.streams, "streams"),
            (true, false) => (&self.watches, "streams"),
        };
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            return refuse(Refusal::Overloaded { what });
        };
        let within = deadline(request.headers());
        let answer = AssertUnwindSafe(call(request)).catch_unwind();
        let answer = if is_stream {
            answer.await
        } else {
            match tokio::time::timeout(within, answer).await {
                Ok(answer) => answer,
                Err(_) => return refuse(Refusal::DeadlineExceeded),
            }
        };
        let Ok(answer) = answer else {
            return refuse(Refusal::internal(&"a handler panicked"));
        };
        let answer = in_our_words(answer);
        if is_stream {
            answer.map(|body| Body::new(Placed { body, _place: place }))
        } else {
            answer
        }
    }
}

fn is_stream(path: &str) -> bool {
    let method = path.rsplit('/').next().unwrap_or_default();
    let is_ours = path.starts_with(CONTRACT);
    if is_ours { STREAMS.contains(&method) } else { !path.ends_with("/Check") }
}

fn refuse(refusal: Refusal) -> Response<Body> {
    Status::from(refusal).into_http()
}

/// How long a call may take: what the caller's `grpc-timeout` says, up to our own bound.
pub(crate) fn deadline(headers: &HeaderMap) -> Duration {
    let header = headers.get("grpc-timeout").and_then(|value| value.to_str().ok());
    header.and_then(grpc_timeout).map_or(CALL_WITHIN, |within| within.min(CALL_WITHIN))
}

/// Reads at most 8 digits and a unit, as the gRPC protocol writes them.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3_600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

/// A status that no handler of ours made says what is wrong in the words of the contract.
fn in_our_words(answer: Response<Body>) -> Response<Body> {
    let Some(status) = Status::from_header_map(answer.headers()) else { return answer };
    if status.code() == Code::Ok {
        return answer;
    }
    let has_details = !status.details().is_empty();
    match of_the_transport(status.code(), has_details, REQUEST_BYTES_MAX) {
        Some(refusal) => refuse(refusal),
        None => answer,
    }
}

/// A body that keeps its stream's place until it ends.
struct Placed {
    body: Body,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for Placed {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_deadline_is_read_and_bounded() {
        for (text, expected) in [
            ("100m", Some(Duration::from_millis(100))),
            ("5S", Some(Duration::from_secs(5))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("", None),
            ("S", None),
            ("123456789m", None),
            ("-1S", None),
            ("1é", None),
        ] {
            assert_eq!(grpc_timeout(text), expected, "{text:?}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(deadline(&headers), CALL_WITHIN);
        headers.insert("grpc-timeout", http::HeaderValue::from_static("1H"));
        assert_eq!(deadline(&headers), CALL_WITHIN);
    }

    #[test]
    fn streams_are_told_from_calls_by_their_path() {
        assert!(is_stream("/rdq.v1.TaskService/Work"));
        assert!(!is_stream("/rdq.v1.TaskService/Enqueue"));
        assert!(is_stream("/grpc.health.v1.Health/Watch"));
        assert!(!is_stream("/grpc.health.v1.Health/Check"));
    }

    #[test]
    fn the_streams_are_those_of_the_contract() {
        let set =
            <prost_types::FileDescriptorSet as prost::Message>::decode(rdq_proto::DESCRIPTOR_SET)
                .expect("the descriptor set decodes");
        let methods = set.file.iter().flat_map(|file| &file.service).flat_map(|each| &each.method);
        let streams = methods
            .filter(|method| method.server_streaming())
            .map(prost_types::MethodDescriptorProto::name);
        let mut expected: Vec<_> = streams.collect();
        let mut ours = STREAMS.to_vec();
        expected.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, expected);
    }
}
