//! tonic's bare unary echo of 100 bytes, in two processes as rdq and its callers are.

use crate::measure::{Measured, REST, micros_since, now};
use bytes::Bytes;
use std::{
    convert::Infallible,
    error::Error,
    future::{Ready, ready},
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};
use tokio::{net::TcpListener, runtime::Runtime, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::NamedService,
    transport::{Channel, Endpoint, Server},
};
use tonic_prost::ProstCodec;

/// The argument that makes this program the server of the echo.
pub(crate) const SERVER: &str = "--echo-server";

const PATH: &str = "/bench.Echo/Echo";
const PAYLOAD: [u8; 100] = [b'x'; 100];
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Serves until the process ends; prints the address first.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}", listener.local_addr()?);
        Server::builder()
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .add_service(Echo)
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await?;
        Ok(())
    })
}

/// Measures `callers` on `connections` that each wait for their answer.
pub(crate) fn measure(
    callers: usize,
    connections: usize,
    total: usize,
) -> Result<Measured, Box<dyn Error>> {
    let server = EchoServer::start()?;
    Runtime::new()?.block_on(async {
        let mut channels = Vec::new();
        for _ in 0..connections {
            channels.push(server.connect().await?);
        }
        // Connections, buffers and caches are warm before the clock starts.
        closed_loop(callers, &channels, total / 10).await?;
        let start = now();
        let latencies = closed_loop(callers, &channels, total).await?;
        Ok(Measured::new(total, start, latencies, false))
    })
}

/// Measures one caller that rests before each call.
pub(crate) fn rested(total: usize) -> Result<Measured, Box<dyn Error>> {
    let server = EchoServer::start()?;
    Runtime::new()?.block_on(async {
        let channel = server.connect().await?;
        closed_loop(1, std::slice::from_ref(&channel), total).await?;
        let start = now();
        let mut latencies = Vec::new();
        for _ in 0..total {
            tokio::time::sleep(REST).await;
            let start = now();
            echo(&channel).await?;
            latencies.push(micros_since(start));
        }
        Ok(Measured::new(total, start, latencies, true))
    })
}

async fn closed_loop(
    callers: usize,
    channels: &[Channel],
    total: usize,
) -> Result<Vec<u32>, Box<dyn Error>> {
    let started = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let channel = channels[caller % channels.len()].clone();
        let started = started.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while started.fetch_add(1, Relaxed) < total {
                let start = now();
                echo(&channel).await?;
                latencies.push(micros_since(start));
            }
            Ok::<_, Status>(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(joined) = tasks.join_next().await {
        latencies.extend(joined??);
    }
    Ok(latencies)
}

async fn echo(channel: &Channel) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = Request::new(Bytes::from_static(&PAYLOAD));
    let codec = ProstCodec::<Bytes, Bytes>::default();
    let answer: Response<Bytes> =
        client.unary(request, http::uri::PathAndQuery::from_static(PATH), codec).await?;
    assert_eq!(answer.get_ref().len(), PAYLOAD.len(), "the echo is what was said");
    Ok(())
}

/// The server as a process of its own, ended when dropped.
struct EchoServer {
    process: Child,
    address: String,
}

impl EchoServer {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut process =
            Command::new(std::env::current_exe()?).arg(SERVER).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        let stdout = process.stdout.take().ok_or("the server has no output")?;
        BufReader::new(stdout).read_line(&mut address)?;
        Ok(Self { process, address: address.trim().to_owned() })
    }

    async fn connect(&self) -> Result<Channel, Box<dyn Error>> {
        let endpoint = Endpoint::from_shared(self.address.clone())?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        Ok(endpoint.connect().await?)
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        // It has nothing to lose, and may be gone already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// What tonic generates for a service of one unary method, by hand.
#[derive(Debug, Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Bytes, Bytes>::default());
            Ok(grpc.unary(Method, request).await)
        })
    }
}

/// The method.
struct Method;

impl tonic::server::UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}
