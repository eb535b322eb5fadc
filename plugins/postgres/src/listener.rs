//! Hears what other servers tell, on a connection of its own, which never is in the pool. A listener
//! that has gone deaf does not know it: it asks for a sign now and then, and begins anew if none
//! comes.

use crate::{
    config::{OpenError, PostgresOptions},
    coordination::Announcer,
    notifier::{self, Notifier},
    pool,
};
use rdq_spi::HintHub;
use sqlx::{
    PgConnection,
    postgres::{PgListener, PgPoolOptions},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

/// How often it asks for a sign.
const SIGN_EVERY: Duration = Duration::from_secs(10);
/// How long it waits for one.
const SIGN_MAX: Duration = Duration::from_secs(10);
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// What a sign begins with: no sender is called so.
const SIGN: &str = "sign";

/// One who listens.
#[derive(Debug)]
pub(crate) struct Listener {
    options: PostgresOptions,
    channel: String,
    /// The first connection, which has heard a sign.
    hearing: Option<PgListener>,
}

impl Listener {
    /// Listens, and proves that it hears: a pooler in transaction mode takes a LISTEN and forgets it.
    pub(crate) async fn start(
        options: PostgresOptions,
        channel: String,
        speaker: &mut PgConnection,
    ) -> Result<Self, OpenError> {
        let mut hearing = connect(&options, &channel).await?;
        sqlx::query("SELECT pg_notify($1, $2)").bind(&channel).bind(SIGN).execute(speaker).await?;
        let heard = tokio::time::timeout(SIGN_MAX, hearing.recv()).await;
        if !matches!(heard, Ok(Ok(_))) {
            return Err(OpenError::Pooler { evidence: "LISTEN hears nothing" });
        }
        Ok(Self { options, channel, hearing: Some(hearing) })
    }

    /// The channel that it listens on.
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// Passes on what it hears, for ever. After anything that may have been missed, `look`.
    pub(crate) async fn run(
        mut self,
        hub: Arc<HintHub>,
        look: Arc<Notify>,
        notifier: Notifier,
        announcer: Announcer,
    ) {
        let mut retry = RETRY_MIN;
        loop {
            let hearing = if let Some(hearing) = self.hearing.take() {
                Ok(hearing)
            } else {
                let hearing = connect(&self.options, &self.channel).await;
                hearing.inspect(|_| announcer.reconnected())
            };
            match hearing {
                Ok(mut hearing) => {
                    retry = RETRY_MIN;
                    look.notify_one();
                    hear(&mut hearing, &hub, &notifier, &announcer).await;
                    tracing::warn!("the connection that hears of due tasks was lost");
                }
                Err(error) => tracing::debug!(%error, "nobody hears of due tasks"),
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }
}

async fn connect(options: &PostgresOptions, channel: &str) -> Result<PgListener, sqlx::Error> {
    // A pool for this connection alone: one that is lost is never met again.
    let own = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(pool::connect_options(&options.connect));
    let mut listener = PgListener::connect_with(&own).await?;
    listener.eager_reconnect(false);
    listener.listen(channel).await?;
    Ok(listener)
}

/// Until the connection is lost or deaf.
async fn hear(hearing: &mut PgListener, hub: &HintHub, notifier: &Notifier, announcer: &Announcer) {
    let mut waits_for_sign = false;
    loop {
        let wait = if waits_for_sign { SIGN_MAX } else { SIGN_EVERY };
        match tokio::time::timeout(wait, hearing.try_recv()).await {
            Ok(Ok(Some(message))) => {
                // Whatever comes is a sign.
                waits_for_sign = false;
                announcer.heard(message.payload());
                if !notifier.sent(message.payload()) {
                    for (queue, due_in) in notifier::read(message.payload()) {
                        hub.hint(&queue, due_in);
                    }
                }
            }
            Ok(Ok(None) | Err(_)) => return,
            Err(_) if waits_for_sign => return,
            Err(_) => {
                // If it cannot be sent, none will come.
                let _ = notifier.send(vec![SIGN.into()]).await;
                waits_for_sign = true;
            }
        }
    }
}
