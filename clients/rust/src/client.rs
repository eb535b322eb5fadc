//! The connection to a server, and how every unary call is made: repeated where that helps, within
//! one deadline. What is called is said elsewhere.

use crate::{
    Error,
    retry::{self, Backoff, wait_after},
};
use rdq_proto::{
    CONTRACT_VERSION,
    v1::{
        GetCapabilitiesRequest, GetCapabilitiesResponse, lock_service_client::LockServiceClient,
        outbox_service_client::OutboxServiceClient, queue_service_client::QueueServiceClient,
        stream_service_client::StreamServiceClient, task_service_client::TaskServiceClient,
    },
};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{
    GrpcMethod, Request, Response, Status,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

/// A call has so long, all its tries together, unless told otherwise.
const DEADLINE: Duration = Duration::from_secs(30);
/// No try has longer.
const TRY_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A peer that is gone without a word is found within both of these together.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// Room for several large answers at once; the protocol's own default stalls at 64 KiB.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// No answer exceeds 3.5 MiB; one that does a little should not fail.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A connection to an rdq server. Cheap to clone; all clones share one connection, which is made
/// again when it breaks.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    /// How the channel was made, if it was made here.
    endpoint: Option<Endpoint>,
    deadline: Duration,
}

/// Settings of a [`Client`].
#[derive(Debug, Clone)]
#[must_use = "nothing is connected before `connect` or `connect_lazy`"]
pub struct ClientBuilder {
    server: String,
    deadline: Duration,
}

impl ClientBuilder {
    /// How long a unary call may take, all its tries together; 30 s if not set. A single try never
    /// takes longer than 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Connects, and checks that the server speaks this version of the contract.
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.connect_lazy()?;
        let capabilities = client.capabilities().await?;
        check_version(&capabilities.contract_version)?;
        Ok(client)
    }

    /// Connects with the first call, so that the server need not be there yet. Fails only if the
    /// address is none. Needs a Tokio runtime.
    pub fn connect_lazy(self) -> Result<Client, Error> {
        let url = if self.server.contains("://") {
            self.server
        } else {
            format!("http://{}", self.server)
        };
        // The address itself stays out of the message: it may hold credentials.
        let refused = || Error::invalid("server", "a server's address is http://HOST:PORT");
        if !url.starts_with("http://") {
            return Err(refused());
        }
        let endpoint = Endpoint::from_shared(url).map_err(|_| refused())?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_WITHIN)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_WITHIN)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let channel = endpoint.connect_lazy();
        Ok(Client { channel, endpoint: Some(endpoint), deadline: self.deadline })
    }
}

impl Client {
    /// Connects to a server, named as `http://HOST:PORT` or `HOST:PORT`, with the default settings.
    pub async fn connect(server: impl Into<String>) -> Result<Self, Error> {
        Self::builder(server).connect().await
    }

    /// Settings for a connection to a server, named as `http://HOST:PORT` or `HOST:PORT`.
    pub fn builder(server: impl Into<String>) -> ClientBuilder {
        ClientBuilder { server: server.into(), deadline: DEADLINE }
    }

    /// A client on a channel of your own, for instance one with TLS.
    pub fn from_channel(channel: Channel) -> Self {
        Self { channel, endpoint: None, deadline: DEADLINE }
    }

    /// The same connection with another deadline of unary calls.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// What the server and its backend offer.
    pub async fn capabilities(&self) -> Result<GetCapabilitiesResponse, Error> {
        self.call(|mut rpc, ask| async move {
            rpc.tasks.get_capabilities(ask.request(GetCapabilitiesRequest {})).await
        })
        .await
    }

    /// This connection for the generated stubs, such as
    /// `StreamServiceClient::new(client.connection())`, for calls that this client has no function
    /// for.
    ///
    /// A unary call has the client's deadline if its request has none. Nothing is repeated, since
    /// not every call may be: a `Publish` or a `Commit` may have happened although its answer was
    /// lost. [`Error`] is made of a [`Status`], by `?` too.
    pub fn connection(&self) -> Connection {
        InterceptedService::new(self.channel.clone(), UnaryDeadline(self.deadline))
    }

    /// The same server by a connection that nobody shares, for a stream that may not be read for a
    /// while; the same connection if the channel is the caller's.
    pub(crate) fn apart(&self) -> Self {
        let channel = match &self.endpoint {
            Some(endpoint) => endpoint.connect_lazy(),
            None => self.channel.clone(),
        };
        Self { channel, ..self.clone() }
    }

    pub(crate) fn rpc(&self) -> Rpc {
        let channel = || self.channel.clone();
        Rpc {
            streams: StreamServiceClient::new(channel())
                .max_decoding_message_size(ANSWER_BYTES_MAX),
            locks: LockServiceClient::new(channel()),
            outboxes: OutboxServiceClient::new(channel())
                .max_decoding_message_size(ANSWER_BYTES_MAX),
            tasks: TaskServiceClient::new(channel()).max_decoding_message_size(ANSWER_BYTES_MAX),
            queues: QueueServiceClient::new(channel()).max_decoding_message_size(ANSWER_BYTES_MAX),
        }
    }

    /// Makes a unary call: `once` is one try of it.
    pub(crate) async fn call<T, F>(&self, once: impl Fn(Rpc, Try) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut calling = self.calling();
        loop {
            let ask = calling.next_try();
            match calling.within(ask, once(self.rpc(), ask)).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(error) => calling.wait_after(error).await?,
            }
        }
    }

    pub(crate) fn calling(&self) -> Calling {
        Calling {
            until: now() + self.deadline,
            backoff: Backoff::new(retry::CALLS),
            outcome_unknown: false,
        }
    }
}

/// The generated clients.
#[derive(Debug, Clone)]
pub(crate) struct Rpc {
    pub(crate) tasks: TaskServiceClient<Channel>,
    pub(crate) queues: QueueServiceClient<Channel>,
    pub(crate) streams: StreamServiceClient<Channel>,
    pub(crate) locks: LockServiceClient<Channel>,
    pub(crate) outboxes: OutboxServiceClient<Channel>,
}

/// A [`Client`]'s connection, for generated stubs: see [`Client::connection`].
pub type Connection = InterceptedService<Channel, UnaryDeadline>;

/// Methods whose answer is a stream, which may last.
const STREAMING: [&str; 8] =
    ["Work", "ClaimDue", "WaitDue", "Redrive", "Purge", "Subscribe", "Listen", "Transact"];

/// Gives a unary call a deadline where its request has none.
#[derive(Debug, Clone)]
pub struct UnaryDeadline(Duration);

impl Interceptor for UnaryDeadline {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let is_streaming = request
            .extensions()
            .get::<GrpcMethod<'static>>()
            .is_some_and(|method| STREAMING.contains(&method.method()));
        if !is_streaming && !request.metadata().contains_key("grpc-timeout") {
            request.set_timeout(self.0);
        }
        Ok(request)
    }
}

/// One try of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Try {
    within: Duration,
}

impl Try {
    /// One that has as long as any, for calls that are repeated elsewhere.
    pub(crate) const ONLY: Self = Self { within: TRY_WITHIN };

    /// A request that tells the server how long it has.
    pub(crate) fn request<T>(self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.within);
        request
    }

    /// The answer, if it comes in time.
    pub(crate) async fn answer<T>(
        self,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.within, answer).await {
            Ok(answer) => answer.map_err(Error::from),
            Err(_) => Err(Error::timed_out()),
        }
    }
}

/// A call with what is left of its time.
#[derive(Debug)]
pub(crate) struct Calling {
    until: Instant,
    backoff: Backoff,
    /// An earlier try may have changed something.
    outcome_unknown: bool,
}

impl Calling {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(now())
    }

    pub(crate) fn next_try(&self) -> Try {
        Try { within: self.left().min(TRY_WITHIN) }
    }

    pub(crate) async fn within<T>(
        &self,
        ask: Try,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Error> {
        ask.answer(answer).await
    }

    /// Waits until the call may be repeated; the error, if it may not.
    pub(crate) async fn wait_after(&mut self, error: Error) -> Result<(), Error> {
        let left = self.left();
        let is_given_up = error.is_retryable();
        self.outcome_unknown |= error.outcome_unknown();
        match wait_after(&error, &mut self.backoff, left) {
            None if is_given_up && self.outcome_unknown => Err(error.with_outcome_unknown()),
            None => Err(error),
            Some(wait) => {
                tracing::debug!(code = ?error.code(), reason = error.reason(), ?wait, "once more");
                tokio::time::sleep(wait).await;
                Ok(())
            }
        }
    }
}

/// The monotonic clock, for waiting alone: what is due is decided by the storage's.
#[allow(clippy::disallowed_methods, reason = "deadlines of calls and what is left of leases")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn check_version(theirs: &str) -> Result<(), Error> {
    let major = |version: &str| version.split('.').next().unwrap_or_default().to_owned();
    if major(theirs) == major(CONTRACT_VERSION) {
        return Ok(());
    }
    Err(Error::other_contract(theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[tokio::test]
    async fn an_address_that_is_none_is_refused_without_being_shown() {
        for server in ["ftp://secret", "http://", "http://me:secret@ho st", "https://secret"] {
            let error = Client::builder(server).connect_lazy().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{server}: {error:?}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        assert!(Client::builder("localhost:7420").connect_lazy().is_ok());
    }

    #[tokio::test]
    async fn nobody_at_the_address_is_asked_until_the_deadline() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let client = Client::builder(address).deadline(Duration::from_millis(300));
        let error = client.connect().await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{error:?}");
        assert!(!error.outcome_unknown());
    }

    #[test]
    fn the_methods_that_stream_are_those_of_the_contract() {
        use prost::Message as _;
        let contract = prost_types::FileDescriptorSet::decode(rdq_proto::DESCRIPTOR_SET).unwrap();
        let services = contract.file.into_iter().flat_map(|file| file.service);
        for method in services.flat_map(|service| service.method) {
            let name = method.name();
            assert_eq!(STREAMING.contains(&name), method.server_streaming(), "{name}");
        }
    }

    #[test]
    fn another_major_version_is_refused() {
        assert!(check_version("1.0").is_ok() && check_version("1.7").is_ok());
        for theirs in ["2.0", "0.9", "", "11.0"] {
            let error = check_version(theirs).unwrap_err();
            assert!(matches!(error, Error::OtherContractVersion(_)), "{error:?}");
            assert_eq!(error.metadata("server_version"), Some(theirs));
        }
    }
}
