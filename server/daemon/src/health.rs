//! Health: `grpc.health.v1`, `/healthz` and `/readyz`, from one state.

use axum::{Router, http::StatusCode, routing::get};
use rdq_engine::Engine;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};

/// The storage is asked so often whether it is there.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// It answers within this, or is taken for gone.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// The whole server, and its services.
const SERVICES: [&str; 10] = [
    "",
    "rdq.v1.TaskService",
    "rdq.v1.QueueService",
    "rdq.v1.SignalService",
    "rdq.v1.StreamService",
    "rdq.v1.LockService",
    "rdq.v1.RecordService",
    "rdq.v1.LedgerService",
    "rdq.v1.OutboxService",
    "rdq.v1.TransactionService",
];

/// Whether this server takes calls: its storage answers, and it does not drain.
#[derive(Clone)]
pub(crate) struct Health {
    reporter: HealthReporter,
    ready: Arc<AtomicBool>,
    drain: CancellationToken,
}

impl Health {
    /// Not serving yet.
    pub(crate) async fn new(reporter: HealthReporter) -> Self {
        let health = Self { reporter, ready: Arc::default(), drain: CancellationToken::new() };
        health.set(false).await;
        health
    }

    async fn set(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            self.reporter.set_service_status(service, status).await;
        }
    }

    /// Follows the storage until the server drains.
    pub(crate) async fn follow(self, engine: Engine) {
        loop {
            let answer = tokio::time::timeout(ASK_WITHIN, engine.ping()).await;
            let ready = matches!(answer, Ok(Ok(())));
            if self.drain.is_cancelled() {
                return;
            }
            if self.ready.load(Ordering::Acquire) != ready {
                tracing::info!(ready, "the storage {}", if ready { "answers" } else { "is gone" });
                self.set(ready).await;
                if self.drain.is_cancelled() {
                    // The drain began in between, and its word is the last.
                    return self.set(false).await;
                }
            }
            tokio::select! {
                () = self.drain.cancelled() => return,
                () = tokio::time::sleep(ASK_EVERY) => {}
            }
        }
    }

    /// Not serving any more.
    pub(crate) async fn drain(&self) {
        self.drain.cancel();
        self.set(false).await;
    }

    /// Serves `/healthz` (the process lives) and `/readyz` (it takes calls) until it is dropped.
    pub(crate) async fn serve_http(self, listener: TcpListener) -> std::io::Result<()> {
        let ready = self.ready;
        let readyz = move || async move {
            if ready.load(Ordering::Acquire) {
                (StatusCode::OK, "ready\n")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "not ready: draining, or the storage is gone\n")
            }
        };
        let router = Router::new()
            .route("/healthz", get(|| async { "alive\n" }))
            .route("/readyz", get(readyz));
        axum::serve(listener, router).await
    }
}
