//! The way to a server: its address, a deadline for each call, and a channel. No command is here.

use crate::{errors::CliError, output::Format, values};
use rdq_proto::v1::{
    lock_service_client::LockServiceClient, queue_service_client::QueueServiceClient,
    schedule_service_client::ScheduleServiceClient, signal_service_client::SignalServiceClient,
    stream_service_client::StreamServiceClient, task_service_client::TaskServiceClient,
    transaction_service_client::TransactionServiceClient,
};
use std::time::Duration;
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

/// Options of every command that talks to a server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ClientArgs {
    /// The server to talk to
    #[arg(
        long,
        value_name = "URL",
        env = "RDQ_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7420",
        global = true,
        help_heading = "Connection and output"
    )]
    pub(crate) server: String,
    /// Who reads the output: people (table) or programs (json)
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        global = true,
        help_heading = "Connection and output"
    )]
    pub(crate) output: Format,
    /// Give up a call after this; streams last as long as they need
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = values::duration,
        default_value = "30s",
        global = true,
        help_heading = "Connection and output"
    )]
    pub(crate) timeout: Duration,
}

/// Windows as wide as a busy stream needs: a small one stalls batches on every round trip.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// A silent peer is asked this often, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A connection to a server.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    channel: Channel,
    timeout: Duration,
    /// Who reads the output.
    pub(crate) format: Format,
}

impl Client {
    /// Connects, so that a wrong address is told at once.
    pub(crate) async fn connect(args: &ClientArgs) -> Result<Self, CliError> {
        let server = address(&args.server)?;
        let channel = Endpoint::from_shared(server.clone())
            .map_err(|_| CliError::Usage(format!("not a URL: {server}")))?
            .connect_timeout(args.timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .connect()
            .await
            .map_err(|source| CliError::Unreachable { server, source })?;
        Ok(Self { channel, timeout: args.timeout, format: args.output })
    }

    /// The service of tasks.
    pub(crate) fn tasks(&self) -> TaskServiceClient<Channel> {
        TaskServiceClient::new(self.channel.clone())
    }

    /// The service of queues.
    pub(crate) fn queues(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel.clone())
    }

    /// The service of streams.
    pub(crate) fn streams(&self) -> StreamServiceClient<Channel> {
        StreamServiceClient::new(self.channel.clone())
    }

    /// The service of locks.
    pub(crate) fn locks(&self) -> LockServiceClient<Channel> {
        LockServiceClient::new(self.channel.clone())
    }

    /// The service of schedules.
    pub(crate) fn schedules(&self) -> ScheduleServiceClient<Channel> {
        ScheduleServiceClient::new(self.channel.clone())
    }

    /// The service of signals.
    pub(crate) fn signals(&self) -> SignalServiceClient<Channel> {
        SignalServiceClient::new(self.channel.clone())
    }

    /// The service of transactions.
    pub(crate) fn transactions(&self) -> TransactionServiceClient<Channel> {
        TransactionServiceClient::new(self.channel.clone())
    }

    /// A request with the deadline of one call.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }
}

/// An address as people type it, as a URL.
pub(crate) fn address(text: &str) -> Result<String, CliError> {
    match text.split_once("://") {
        None => Ok(format!("http://{text}")),
        Some(("http", _)) => Ok(text.to_owned()),
        Some((scheme, _)) => Err(CliError::Usage(format!(
            "--server {text}: {scheme} is not spoken here; use http://HOST:PORT"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_the_scheme_and_no_other_is_spoken() {
        assert_eq!(address("localhost:7420").ok().as_deref(), Some("http://localhost:7420"));
        assert_eq!(address("http://[::1]:1").ok().as_deref(), Some("http://[::1]:1"));
        assert!(matches!(address("ftp://x"), Err(CliError::Usage(_))));
    }
}
