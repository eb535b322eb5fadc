//! The connection: which server, whether it speaks this contract, and how long a call may take.

use crate::errors::{Failure, Operation};
use rdq_proto::{
    CONTRACT_VERSION,
    v1::{
        self, ledger_service_client::LedgerServiceClient, lock_service_client::LockServiceClient,
        queue_service_client::QueueServiceClient, record_service_client::RecordServiceClient,
        signal_service_client::SignalServiceClient, stream_service_client::StreamServiceClient,
        task_service_client::TaskServiceClient,
        transaction_service_client::TransactionServiceClient,
    },
};
use rdq_spi::{Capabilities, Durability, Faculties, Result, StorageError};
use std::time::Duration;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint},
};

const CONNECT: Operation = Operation::reading("connect");
/// A call has so long; then its outcome is unknown.
pub(crate) const CALL_WITHIN: Duration = Duration::from_secs(30);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A peer that is gone without a word is found within both of these together.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_WITHIN: Duration = Duration::from_secs(5);
/// Room for several large answers at once; the protocol's own default stalls at 64 KiB.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// No answer exceeds 3.5 MiB; one that does a little should not fail.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The services of the other server, on one connection.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) tasks: TaskServiceClient<Channel>,
    pub(crate) queues: QueueServiceClient<Channel>,
    pub(crate) signals: SignalServiceClient<Channel>,
    pub(crate) streams: StreamServiceClient<Channel>,
    pub(crate) locks: LockServiceClient<Channel>,
    pub(crate) records: RecordServiceClient<Channel>,
    pub(crate) ledger: LedgerServiceClient<Channel>,
    pub(crate) transactions: TransactionServiceClient<Channel>,
}

impl Client {
    fn new(channel: &Channel) -> Self {
        macro_rules! client {
            ($client:ident) => {
                $client::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
            };
        }
        Self {
            tasks: client!(TaskServiceClient),
            queues: client!(QueueServiceClient),
            signals: client!(SignalServiceClient),
            streams: client!(StreamServiceClient),
            locks: client!(LockServiceClient),
            records: client!(RecordServiceClient),
            ledger: client!(LedgerServiceClient),
            transactions: client!(TransactionServiceClient),
        }
    }

    /// Connects, and asks what the server offers.
    pub(crate) async fn connect(url: &str) -> Result<(Self, Capabilities, Faculties)> {
        let client = Self::new(&endpoint(url)?.connect_lazy());
        let mut tasks = client.tasks.clone();
        let asked = request(v1::GetCapabilitiesRequest {});
        let offer = answer(async move { tasks.get_capabilities(asked).await }).await;
        let offer = offer.map_err(|failure| failure.error(CONNECT, None))?;
        check_version(&offer.contract_version)?;
        Ok((client, capabilities(&offer), faculties(&offer)))
    }
}

fn endpoint(url: &str) -> Result<Endpoint> {
    // The URL itself stays out of the message: it may hold credentials.
    let refused = |message: &str| StorageError::Refused {
        operation: CONNECT.name,
        message: message.to_owned(),
    };
    if url.starts_with("https:") {
        return Err(refused("https is not supported yet; use http://HOST:PORT"));
    }
    if !url.starts_with("http://") {
        return Err(refused("the URL of another server is http://HOST:PORT"));
    }
    let endpoint = Endpoint::from_shared(url.to_owned());
    let endpoint = endpoint.map_err(|_| refused("the URL is not one of http://HOST:PORT"))?;
    Ok(endpoint
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_WITHIN)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES))
}

fn check_version(theirs: &str) -> Result<()> {
    let major = |version: &str| version.split('.').next().unwrap_or_default().to_owned();
    if major(theirs) == major(CONTRACT_VERSION) {
        return Ok(());
    }
    let message =
        format!("the server speaks version {theirs:?} of the contract, not {CONTRACT_VERSION}");
    Err(StorageError::Refused { operation: CONNECT.name, message })
}

fn capabilities(offer: &v1::GetCapabilitiesResponse) -> Capabilities {
    let has = |name: &str| offer.capabilities.iter().any(|each| each == name);
    Capabilities {
        durability: match offer.durability() {
            v1::Durability::PowerCut => Durability::PowerCut,
            v1::Durability::Process => Durability::Process,
            // What is not known is not promised.
            v1::Durability::None | v1::Durability::Unspecified => Durability::None,
        },
        notify: has("notify"),
        waiting_claims: false,
        filter_pushdown: has("filter_pushdown"),
        batch_enqueue: has("batch_enqueue"),
    }
}

fn faculties(offer: &v1::GetCapabilitiesResponse) -> Faculties {
    let has = |name: &str| offer.capabilities.iter().any(|each| each == name);
    Faculties {
        signals: has("signals"),
        streams: has("streams"),
        locks: has("locks"),
        records: has("records"),
        transactions: has("transactions"),
        interactive: has("interactive_transactions"),
        ledger: has("ledger"),
    }
}

/// A request with the deadline of every call, which the other server honours too.
pub(crate) fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_WITHIN);
    request
}

/// The answer, if it comes in time. The call runs to its end whatever becomes of its caller.
pub(crate) fn answer<T: Send + 'static>(
    call: impl Future<Output = Result<Response<T>, Status>> + Send + 'static,
) -> impl Future<Output = Result<T, Failure>> + Send {
    to_its_end(in_time(async { Ok(call.await?.into_inner()) }))
}

/// What a step of a call yields, if it does in time.
pub(crate) async fn in_time<T>(
    step: impl Future<Output = Result<T, Status>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(CALL_WITHIN, step).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => Err(Failure::timed_out()),
    }
}

/// Does work in a task of its own, from now on. A caller who goes away would otherwise reset the
/// stream of its call, and a server ends a connection, with all calls on it, that resets too many.
pub(crate) fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send {
    let work = tokio::spawn(work);
    async {
        match work.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_that_are_none_of_a_server_are_refused_without_being_shown() {
        for url in ["https://me:secret@host:1", "ftp://secret", "http://", "http://me:secret@ho st"]
        {
            let error = Client::connect(url).await.unwrap_err();
            assert!(matches!(error, StorageError::Refused { .. }), "{url}: {error:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn nobody_at_the_address_is_unavailable() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let error = Client::connect(&url).await.unwrap_err();
        assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");
    }

    #[test]
    fn another_major_version_is_refused() {
        assert!(check_version("1.0").is_ok() && check_version("1.7").is_ok());
        for theirs in ["2.0", "0.9", "", "11.0"] {
            assert!(check_version(theirs).is_err(), "{theirs}");
        }
    }
}
