//! A gRPC server before a server: it passes calls on, but for methods that it refuses, claims that
//! it makes look late, answers that it cuts short, and a contract that it says to speak.

use axum::Router;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use prost::Message as _;
use rdq_proto::v1;
use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Status,
    body::Body,
    service::Routes,
    transport::{Channel, Endpoint, Server as TonicServer},
};
use tower_service::Service;

/// An interposer that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Interposer {
    address: SocketAddr,
    rules: Arc<Rules>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Rules {
    refused: Mutex<HashMap<String, Status>>,
    refusals: AtomicUsize,
    calls: Mutex<Vec<String>>,
    contract: Mutex<Option<String>>,
    cuts: Mutex<HashMap<String, usize>>,
    late_claim: AtomicBool,
    draining: AtomicBool,
}

impl Rules {
    fn refusal(&self, path: &str) -> Option<Status> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let status = refused.get(path).cloned()?;
        self.refusals.fetch_add(1, Ordering::SeqCst);
        Some(status)
    }
}

impl Rules {
    fn note(&self, path: &str) {
        let method = path.rsplit('/').next().unwrap_or_default().to_owned();
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(method);
    }

    fn cuts_next(&self, path: &str) -> bool {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = cuts.get_mut(path).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }

    /// The answer to `GetCapabilities`, if it is not the server's.
    fn capabilities(&self) -> Option<Response<Body>> {
        let contract = self.contract.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let answer =
            v1::GetCapabilitiesResponse { contract_version: contract, ..Default::default() };
        let mut message = BytesMut::new();
        put_message(&mut message, &answer.encode_to_vec());
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        let frames =
            [Ok::<_, Infallible>(Frame::data(message.freeze())), Ok(Frame::trailers(trailers))];
        let body = http_body_util::StreamBody::new(tokio_stream::iter(frames));
        let response = Response::builder().header("content-type", "application/grpc");
        Some(response.body(Body::new(body)).expect("a response"))
    }
}

impl Interposer {
    /// Starts one before the server at this address.
    pub(crate) async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let endpoint = Endpoint::from_shared(format!("http://{server}")).expect("an address");
        let rules = Arc::<Rules>::default();
        let forward = Forward { server: endpoint.connect_lazy(), rules: Arc::clone(&rules) };
        let routes = Routes::from(Router::new().fallback_service(forward));
        let serving = TonicServer::builder()
            .add_routes(routes)
            .serve_with_incoming(TcpListenerStream::new(listener));
        let serving = tokio::spawn(async move { serving.await.expect("it serves") });
        Self { address, rules, serving }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on this method of `TaskService` is refused so.
    pub(crate) fn refuse(&self, method: &str, status: Status) {
        let path = format!("/rdq.v1.TaskService/{method}");
        self.rules.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(path, status);
    }

    /// From now on this method goes through again.
    pub(crate) fn allow(&self, method: &str) {
        let path = format!("/rdq.v1.TaskService/{method}");
        self.rules.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&path);
    }

    /// How many calls it has refused.
    pub(crate) fn refusals(&self) -> usize {
        self.rules.refusals.load(Ordering::SeqCst)
    }

    /// From now on it says itself which version of the contract is spoken.
    pub(crate) fn speak(&self, version: &str) {
        *self.rules.contract.lock().unwrap_or_else(PoisonError::into_inner) = Some(version.into());
    }

    /// So many answers of this method, whose items' results are its first field, are cut short: only
    /// the first result is left.
    pub(crate) fn cut_short(&self, method: &str, answers: usize) {
        let path = format!("/rdq.v1.TaskService/{method}");
        self.rules.cuts.lock().unwrap_or_else(PoisonError::into_inner).insert(path, answers);
    }

    /// The methods that were called, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.rules.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next claim of `Work` seems to have been long on its way.
    pub(crate) fn delay_next_claim(&self) {
        self.rules.late_claim.store(true, Ordering::SeqCst);
    }

    /// Whether a server has said on `Work` that it drains.
    pub(crate) fn saw_draining(&self) -> bool {
        self.rules.draining.load(Ordering::SeqCst)
    }

    /// Whether that claim has come by.
    pub(crate) fn claim_was_delayed(&self) -> bool {
        !self.rules.late_claim.load(Ordering::SeqCst)
    }
}

impl Drop for Interposer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[derive(Clone)]
struct Forward {
    server: Channel,
    rules: Arc<Rules>,
}

impl Service<Request<axum::body::Body>> for Forward {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<axum::body::Body>) -> Self::Future {
        let Self { mut server, rules } = self.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            rules.note(&path);
            if let Some(status) = rules.refusal(&path) {
                return Ok(status.into_http());
            }
            if path.ends_with("/GetCapabilities")
                && let Some(answer) = rules.capabilities()
            {
                return Ok(answer);
            }
            if let Err(error) = std::future::poll_fn(|context| server.poll_ready(context)).await {
                return Ok(Status::unavailable(error.to_string()).into_http());
            }
            let answer = match server.call(request.map(Body::new)).await {
                Ok(answer) => answer,
                Err(error) => return Ok(Status::unavailable(error.to_string()).into_http()),
            };
            if path.ends_with("/Work") {
                return Ok(answer.map(|body| with_late_claim(body, rules)));
            }
            if rules.cuts_next(&path) {
                return Ok(answer.map(cut_short));
            }
            Ok(answer)
        })
    }
}

/// An answer of a batch, with the first of its results alone.
fn cut_short(body: Body) -> Body {
    let mut unread = BytesMut::new();
    Body::new(body.map_frame(move |frame| {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return trailers,
        };
        unread.extend_from_slice(&data);
        let mut whole = BytesMut::new();
        while let Some(message) = next_message(&mut unread) {
            // A field of a message is its tag, its length and itself.
            let mut rest = message.clone();
            rest.advance(1);
            let length = prost::decode_length_delimiter(&mut rest).expect("a length");
            put_message(&mut whole, &message[..message.len() - rest.len() + length]);
        }
        Frame::data(whole.freeze())
    }))
}

/// The messages of `Work`; a claim of them loses nearly all of its lease if that is asked.
fn with_late_claim(body: Body, rules: Arc<Rules>) -> Body {
    let mut unread = BytesMut::new();
    Body::new(body.map_frame(move |frame| {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return trailers,
        };
        unread.extend_from_slice(&data);
        let mut whole = BytesMut::new();
        while let Some(message) = next_message(&mut unread) {
            put_message(&mut whole, &changed(message, &rules));
        }
        Frame::data(whole.freeze())
    }))
}

/// The next message, if all of it is there: after a byte for compression and four for the length.
fn next_message(unread: &mut BytesMut) -> Option<Bytes> {
    let length = unread.get(1..5)?.try_into().expect("four bytes");
    let end = 5 + usize::try_from(u32::from_be_bytes(length)).expect("a length");
    if unread.len() < end {
        return None;
    }
    let mut message = unread.split_to(end);
    message.advance(5);
    Some(message.freeze())
}

fn put_message(to: &mut BytesMut, message: &[u8]) {
    to.put_u8(0);
    to.put_u32(u32::try_from(message.len()).expect("a length"));
    to.extend_from_slice(message);
}

fn changed(message: Bytes, rules: &Rules) -> Bytes {
    let mut response = v1::WorkResponse::decode(message.clone()).expect("a message of Work");
    rules.draining.fetch_or(response.draining, Ordering::SeqCst);
    match response.tasks.first_mut() {
        Some(claim) if rules.late_claim.swap(false, Ordering::SeqCst) => {
            claim.lease_remaining = Some(prost_types::Duration { seconds: 0, nanos: 20_000_000 });
            response.encode_to_vec().into()
        }
        _ => message,
    }
}
