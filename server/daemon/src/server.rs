//! The process: from its configuration to its end.

use crate::{
    config::{Config, ConfigError, ServeArgs},
    connections::{Connections, bind},
    grpc::{self, KeepAlive},
    health::Health,
    schedules,
};
use rdq_engine::{Engine, EngineError};
use rdq_spi::StorageError;
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};

/// After a shutdown whose peers had to be cut, the storage is closed within this, or left.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// Why the server could not serve, or the storage could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration is not one to serve with.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The storage could not be opened.
    #[error("cannot open the storage: {0}")]
    Storage(#[from] rdq_store::OpenError),
    /// The engine could not start.
    #[error("cannot start: {}", causes(.0))]
    Engine(#[from] EngineError),
    /// An address could not be had, or the process's signals.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The reflection service could not be built.
    #[error("cannot build the reflection service: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// Calls were still under way when the grace period ended.
    #[error("the grace period is over; {connections} connections were cut")]
    Cut {
        /// How many connections were still open.
        connections: usize,
    },
}

fn causes(error: &EngineError) -> String {
    match error {
        EngineError::Storage(error) => match &**error {
            StorageError::Unavailable { source, .. } | StorageError::Internal { source, .. } => {
                format!("{error}: {source}")
            }
            error => error.to_string(),
        },
        error => error.to_string(),
    }
}

/// A server that serves.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    http_address: SocketAddr,
    storage: String,
    grace: Duration,
    engine: Engine,
    health: HealthHandle,
    connections: Connections,
    tasks: Vec<JoinHandle<()>>,
}

struct HealthHandle(Health);

impl std::fmt::Debug for HealthHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Health")
    }
}

impl Server {
    /// Opens the storage, and serves. Port 0 takes a free port.
    pub async fn start(args: ServeArgs) -> Result<Self, ServeError> {
        let config = Config::resolve(args)?;
        // Addresses first: a port that is taken should not cost a storage that was opened.
        let listener = bind(config.listen).await?;
        let http = bind(config.http).await?;
        let (address, http_address) = (listener.local_addr()?, http.local_addr()?);
        let storage = rdq_store::open(&config.storage).await?;
        let keep_alive = KeepAlive(config.engine.keep_alive);
        let engine = Engine::start(storage, config.engine).await?;

        let (reporter, health_service) = tonic_health::server::health_reporter();
        let health = Health::new(reporter).await;
        let reflection = |builder: tonic_reflection::server::Builder<'static>| {
            builder
                .register_encoded_file_descriptor_set(rdq_proto::DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let builder = tonic_reflection::server::Builder::configure;
        let tasks = grpc::task_service(&engine, keep_alive);
        let routes = grpc::routes(&engine)
            .add_service(health_service)
            .add_service(reflection(builder()).build_v1()?)
            .add_service(reflection(builder()).build_v1alpha()?);

        let connections = Connections::new(tasks, routes);
        let accepting = connections.clone();
        let tasks = vec![
            tokio::spawn(async move { accepting.accept(listener).await }),
            tokio::spawn(health.clone().follow(engine.clone())),
            tokio::spawn(schedules::run(engine.clone())),
            tokio::spawn({
                let health = health.clone();
                async move {
                    if let Err(error) = health.serve_http(http).await {
                        tracing::error!(%error, "/healthz and /readyz are not served any more");
                    }
                }
            }),
        ];
        Ok(Self {
            address,
            http_address,
            storage: config.storage,
            grace: config.shutdown_grace,
            engine,
            health: HealthHandle(health),
            connections,
            tasks,
        })
    }

    /// Where the gRPC services are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `/healthz` and `/readyz` are.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Ends it in order: not ready; no new connection, and every peer told; no new claim, streams
    /// ended, what was not delivered given back; calls under way finished. Within the grace period,
    /// whatever the peers do.
    pub async fn shutdown(self) -> Result<(), ServeError> {
        let deadline = tokio::time::sleep(self.grace);
        self.health.0.drain().await;
        self.connections.drain();
        self.engine.end_streams();
        // Calls under way need the storage to their end, and so does what they give back then.
        let orderly = async {
            self.connections.ended().await;
            self.engine.drain().await;
        };
        let result = tokio::select! {
            () = orderly => Ok(()),
            () = deadline => Err(ServeError::Cut { connections: self.connections.count() }),
        };
        if result.is_err() {
            // Who was cut holds up nobody's storage.
            let _ = tokio::time::timeout(CLOSE_WITHIN, self.engine.drain()).await;
        }
        for task in &self.tasks {
            task.abort();
        }
        result
    }
}

/// Serves until SIGTERM or SIGINT, then shuts down in order. A second signal ends it at once.
pub async fn serve(args: ServeArgs) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = Server::start(args).await?;
    tracing::info!(
        listen = %server.address,
        http = %server.http_address,
        storage = %rdq_store::redact(&server.storage),
        version = env!("CARGO_PKG_VERSION"),
        "rdq serves",
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let grace = server.grace;
    tracing::info!(grace = %humantime::format_duration(grace), "rdq shuts down");
    let connections = server.connections.clone();
    let result = tokio::select! {
        result = server.shutdown() => result,
        _ = terminate.recv() => Err(ServeError::Cut { connections: connections.count() }),
        _ = interrupt.recv() => Err(ServeError::Cut { connections: connections.count() }),
    };
    if result.is_ok() {
        tracing::info!("rdq ended in order");
    }
    result
}
