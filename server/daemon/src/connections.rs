//! Connections: accepted up to a limit, spoken to within limits, and ended in time.

use futures::{FutureExt as _, future::Either};
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{body::Body, service::Routes};
use tower::{Service as _, ServiceExt as _};

use crate::{grpc::TaskServer, limits::Limits};

/// How the paths of its methods begin.
const TASK_SERVICE: &str = "/rdq.v1.TaskService/";

/// Connections at once.
const CONNECTIONS_MAX: usize = 4_096;
/// Streams at once on one connection.
const STREAMS_PER_CONNECTION: u32 = 256;
/// A peer that connected says something within this.
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(10);
/// A quiet peer is asked so often whether it is there …
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
/// … and found dead after this.
const KEEP_ALIVE_WITHIN: Duration = Duration::from_secs(10);
const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;
/// A caller may give up all that it has open at once; who resets more than that is cut off.
const PENDING_RESETS_MAX: usize = STREAMS_PER_CONNECTION as usize;
const LOCAL_RESETS_MAX: usize = 256;
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// What one connection's answers may hold back at the most, a stream.
const SEND_BUFFER_BYTES_MAX: usize = 1 << 20;
/// While a shutdown waits for calls under way.
const IDLE_ASK_EVERY: Duration = Duration::from_millis(10);
/// Peers that were told to leave do so within this, or are left.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// After an error of `accept` that may be a lack of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Serves connections until told to stop.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    tasks: TaskServer,
    routes: Routes,
    limits: Limits,
    places: Arc<Semaphore>,
    open: TaskTracker,
    drain: CancellationToken,
}

impl Connections {
    /// Of the services, `tasks` is the one whose calls count by the thousand: it needs no routes.
    pub(crate) fn new(tasks: TaskServer, routes: Routes) -> Self {
        Self {
            tasks,
            routes: routes.prepare(),
            limits: Limits::default(),
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            open: TaskTracker::new(),
            drain: CancellationToken::new(),
        }
    }

    /// Accepts until [`Connections::drain`].
    pub(crate) async fn accept(&self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.drain.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => self.take(socket, peer),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    fn take(&self, socket: TcpStream, peer: SocketAddr) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!(%peer, "refused: {CONNECTIONS_MAX} connections are open");
            return; // dropped, and so closed
        };
        let this = self.clone();
        self.open.spawn(async move {
            if let Err(error) = this.serve(socket).await {
                tracing::debug!(%peer, %error, "a connection ended with an error");
            }
            drop(place);
        });
    }

    async fn serve(
        &self,
        socket: TcpStream,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        socket.set_nodelay(true)?;
        let mut first_byte = [0];
        tokio::select! {
            // A peer that says nothing keeps nobody from leaving.
            () = self.drain.cancelled() => return Ok(()),
            first = tokio::time::timeout(FIRST_BYTE_WITHIN, socket.peek(&mut first_byte)) => {
                if first?? == 0 {
                    return Ok(());
                }
            }
        }
        let service = service_fn(|request: Request<Incoming>| {
            let (tasks, routes) = (self.tasks.clone(), self.routes.clone());
            let call = |request| dispatch(tasks, routes, request);
            self.limits.clone().serve(request, call).map(Ok::<_, Infallible>)
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(LOCAL_RESETS_MAX)
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER_BYTES_MAX)
            .keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_WITHIN)
            .serve_connection(TokioIo::new(socket), service);
        tokio::pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            () = self.drain.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        Ok(connection.await?)
    }

    /// Accepts no more, and tells every peer that no new call is taken.
    pub(crate) fn drain(&self) {
        self.drain.cancel();
        self.open.close();
    }

    /// Waits until every call and stream of the contract has ended, and a moment for peers to leave.
    /// One that only watches health, or never finished its greeting, keeps nobody.
    pub(crate) async fn ended(&self) {
        while !self.limits.is_idle() {
            tokio::time::sleep(IDLE_ASK_EVERY).await;
        }
        let _ = tokio::time::timeout(LEAVE_WITHIN, self.open.wait()).await;
    }

    /// Connections that are open.
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }
}

/// To the service that it names.
fn dispatch(
    mut tasks: TaskServer,
    routes: Routes,
    request: Request<Incoming>,
) -> impl Future<Output = Response<Body>> {
    let answer = if request.uri().path().starts_with(TASK_SERVICE) {
        Either::Left(tasks.call(request))
    } else {
        Either::Right(routes.oneshot(request))
    };
    answer.map(|Ok(response)| response)
}

/// Binds an address, with an error that names it.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}
