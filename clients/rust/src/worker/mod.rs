//! Workers: how one is set up, started and stopped.

mod driver; // start here
mod claims;
mod link;
mod run;
mod handlers;

pub use handlers::Returned;

use crate::{Claim, Client, Error, HandlerError, Outcome, outcome::boundary};
use driver::Driver;
use handlers::Handlers;
use run::Mapper;
use std::{fmt, sync::Arc, time::Duration};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const CONCURRENCY: usize = 10;
/// The server grants no worker more credits.
const CONCURRENCY_MAX: usize = 10_000;
const GRACE: Duration = Duration::from_secs(30);
const CLEANUP: Duration = Duration::from_secs(1);
/// The server takes 240 bytes.
const HOST_BYTES_MAX: usize = 200;

/// By which call a worker receives tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Receive {
    /// By `Work`, and by `ClaimDue` if the server, or something before it, does not know `Work`.
    #[default]
    Auto,
    /// By `Work` alone.
    Work,
    /// By `ClaimDue` alone.
    ClaimDue,
}

/// What a worker is to do.
struct Settings {
    queues: Vec<String>,
    handlers: Handlers,
    mapper: Option<Mapper>,
    concurrency: usize,
    lease: Option<Duration>,
    grace: Duration,
    cleanup: Duration,
    worker_id: String,
    receive: Receive,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("queues", &self.queues)
            .field("handlers", &self.handlers)
            .field("concurrency", &self.concurrency)
            .field("worker_id", &self.worker_id)
            .field("receive", &self.receive)
            .finish_non_exhaustive()
    }
}

/// Settings of a [`Worker`].
#[derive(Debug)]
#[must_use = "nothing works before `start` or `run_until`"]
pub struct WorkerBuilder {
    client: Client,
    settings: Settings,
}

impl WorkerBuilder {
    /// Takes from this queue too; from all of them fairly. At least one is needed, and at most 64.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.settings.queues.push(queue.into());
        self
    }

    /// Takes from these queues too.
    pub fn queues<Q: Into<String>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        self.settings.queues.extend(queues.into_iter().map(Into::into));
        self
    }

    /// Runs the tasks of this handler's name: those that name no version, and those whose version
    /// has no handler of its own. A second handler of the same name makes [`build`](Self::build)
    /// fail.
    ///
    /// What it returns ends the task: see [`Outcome`] and [`HandlerError`]. A panic is a failure
    /// with the error type `panic`.
    pub fn handler<H, F, T, E>(mut self, handler_ref: impl Into<String>, handler: H) -> Self
    where
        H: Fn(Claim) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Outcome>,
        E: Into<HandlerError>,
    {
        self.settings.handlers.add(handler_ref.into(), None, handler);
        self
    }

    /// Runs the tasks that name this version of the handler; at most one is registered for it.
    pub fn handler_version<H, F, T, E>(
        mut self,
        handler_ref: impl Into<String>,
        version: impl Into<String>,
        handler: H,
    ) -> Self
    where
        H: Fn(Claim) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Outcome>,
        E: Into<HandlerError>,
    {
        self.settings.handlers.add(handler_ref.into(), Some(version.into()), handler);
        self
    }

    /// Sees first what a handler returned, and says how the attempt ends.
    pub fn outcome_mapper<M>(mut self, mapper: M) -> Self
    where
        M: Fn(&Claim, Returned) -> Outcome + Send + Sync + 'static,
    {
        self.settings.mapper = Some(Arc::new(mapper));
        self
    }

    /// How many handlers run at once, from 1 to 10,000; 10 if not set. No more tasks are claimed than
    /// that.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// How long a claim lasts before it is extended, from 10 ms to 12 h; the task's or the queue's
    /// if not set. It is extended at a third of it, for as long as the handler runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = Some(lease);
        self
    }

    /// How long running handlers have to end once the worker is told to stop; 30 s if not set.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long a handler whose work must stop has between that word and being dropped; 1 s if not
    /// set.
    pub fn cleanup(mut self, cleanup: Duration) -> Self {
        self.settings.cleanup = cleanup;
        self
    }

    /// Names the worker in attempts and listings, up to 240 bytes; host, process id and random
    /// letters if not set.
    pub fn worker_id(mut self, worker_id: impl Into<String>) -> Self {
        self.settings.worker_id = worker_id.into();
        self
    }

    /// By which call to receive tasks; [`Receive::Auto`] if not set.
    pub fn receive(mut self, receive: Receive) -> Self {
        self.settings.receive = receive;
        self
    }

    /// The worker, unless it has no queue, no handler or one of them twice, or a concurrency that is
    /// not 1 to 10,000.
    pub fn build(self) -> Result<Worker, Error> {
        let Settings { queues, handlers, concurrency, .. } = &self.settings;
        if queues.is_empty() {
            return Err(Error::invalid("queues", "a worker needs a queue"));
        }
        if handlers.is_empty() {
            return Err(Error::invalid("handlers", "a worker needs a handler"));
        }
        if let Some(repeated) = handlers.repeated() {
            let message = format!("the handler {repeated} is registered twice");
            return Err(Error::invalid("handlers", message));
        }
        if !(1..=CONCURRENCY_MAX).contains(concurrency) {
            let message = format!("a worker runs 1 to {CONCURRENCY_MAX} handlers at once");
            return Err(Error::invalid("concurrency", message));
        }
        Ok(Worker { client: self.client, settings: Arc::new(self.settings) })
    }
}

/// Receives tasks and runs their handlers.
///
/// ```no_run
/// # async fn example() -> Result<(), rdq_client::Error> {
/// use rdq_client::{Claim, Client, HandlerError, Worker, shutdown_signal};
///
/// let client = Client::connect("http://127.0.0.1:7420").await?;
/// Worker::builder(&client)
///     .queue("mail")
///     .handler("send", |claim: Claim| async move {
///         let text = std::str::from_utf8(claim.payload())?;
///         Ok::<_, HandlerError>(format!("sent {text}"))
///     })
///     .build()?
///     .run_until(shutdown_signal())
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing works before `start` or `run_until`"]
pub struct Worker {
    client: Client,
    settings: Arc<Settings>,
}

impl Worker {
    /// Settings for a worker of this client's server.
    pub fn builder(client: &Client) -> WorkerBuilder {
        let settings = Settings {
            queues: Vec::new(),
            handlers: Handlers::default(),
            mapper: None,
            concurrency: CONCURRENCY,
            lease: None,
            grace: GRACE,
            cleanup: CLEANUP,
            worker_id: worker_id(),
            receive: Receive::default(),
        };
        WorkerBuilder { client: client.clone(), settings }
    }

    /// Names it in attempts and listings.
    pub fn worker_id(&self) -> &str {
        &self.settings.worker_id
    }

    /// Starts it on the current Tokio runtime.
    pub fn start(self) -> RunningWorker {
        let stop = CancellationToken::new();
        let worker_id = self.settings.worker_id.clone();
        let driver = Driver::new(self.client, self.settings);
        let task = tokio::spawn(driver.drive(stop.clone()));
        RunningWorker { stop, task: Some(task), worker_id }
    }

    /// Works until `shutdown` is over, then stops in order: see [`RunningWorker::stop`]. Dropping
    /// this future drops the handlers with it; their claims come back when their leases run out.
    ///
    /// Fails with [`Error::OtherContractVersion`], having claimed nothing, if the server's contract
    /// has another major version.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Stopped, Error> {
        let stop = CancellationToken::new();
        let working = Driver::new(self.client, self.settings).drive(stop.clone());
        tokio::pin!(working);
        tokio::select! {
            // It ended by itself.
            stopped = &mut working => return stopped,
            () = shutdown => stop.cancel(),
        }
        working.await
    }
}

/// A worker at work. Dropping it tells it to stop, and does not wait for that.
#[derive(Debug)]
pub struct RunningWorker {
    stop: CancellationToken,
    task: Option<JoinHandle<Result<Stopped, Error>>>,
    worker_id: String,
}

impl RunningWorker {
    /// Names it in attempts and listings.
    pub fn worker_id(&self) -> &str {
        &self.worker_id
    }

    /// Stops it in order: nothing more is claimed, and what has not started is given back. Running
    /// handlers go on, their leases kept, until they end or the grace is over; then they are
    /// stopped, and their tasks are due again at once with no attempt spent. Returns when every
    /// outcome is answered, or 5 s after the grace.
    ///
    /// Fails as [`Worker::run_until`] does.
    pub async fn stop(mut self) -> Result<Stopped, Error> {
        self.stop.cancel();
        let Some(task) = self.task.take() else { return Ok(Stopped::default()) };
        match task.await {
            Ok(stopped) => stopped,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime ends, and the worker with it.
            Err(_) => Ok(Stopped::default()),
        }
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How a worker stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stopped {
    /// Claims whose outcome nobody confirmed in time. Their tasks come back when their leases run
    /// out, unless the outcome arrived all the same.
    pub unanswered: usize,
}

/// Over when the process is told to end, by SIGTERM or Ctrl-C.
pub async fn shutdown_signal() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}

pub(crate) fn worker_id() -> String {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let host = &host[..boundary(&host, HOST_BYTES_MAX)];
    let letters: String = std::iter::repeat_with(fastrand::lowercase).take(6).collect();
    format!("{host}-{}-{letters}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_cannot_work_is_refused_at_once() {
        let client = Client::builder("localhost:1").connect_lazy().unwrap();
        let worker = || Worker::builder(&client).queue("q").handler("h", idle);
        assert!(worker().build().is_ok());
        assert!(
            worker().handler_version("h", "1", idle).concurrency(CONCURRENCY_MAX).build().is_ok()
        );
        for (field, builder) in [
            ("queues", Worker::builder(&client).handler("h", idle)),
            ("handlers", Worker::builder(&client).queue("q")),
            ("handlers", worker().handler("h", idle)),
            ("concurrency", worker().concurrency(0)),
            ("concurrency", worker().concurrency(CONCURRENCY_MAX + 1)),
        ] {
            assert_eq!(builder.build().unwrap_err().metadata("field"), Some(field));
        }
    }

    async fn idle(_: Claim) -> Result<(), HandlerError> {
        Ok(())
    }
}
