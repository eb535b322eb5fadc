//! Hears what other servers tell, by a change stream. The driver resumes one that a connection or a
//! primary was lost to; where it cannot, it is opened anew, and all that may have been missed is
//! looked for.

use crate::{
    database::Db,
    notifier::{COLLECTION, Notifier},
};
use futures::StreamExt as _;
use rdq_spi::HintHub;
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Passes on what it hears, for ever. After anything that may have been missed, `look`.
pub(crate) async fn listen(db: Db, hub: Arc<HintHub>, look: Arc<Notify>, notifier: Notifier) {
    let mut retry = RETRY_MIN;
    loop {
        match db.beside(COLLECTION).watch().await {
            Ok(mut hearing) => {
                retry = RETRY_MIN;
                look.notify_one();
                while let Some(heard) = hearing.next().await {
                    let event = match heard {
                        Ok(event) => event,
                        Err(error) => {
                            tracing::warn!(%error, "the stream that hears of due tasks was lost");
                            break;
                        }
                    };
                    let told = event.full_document.as_ref().and_then(|it| notifier.read(it));
                    if let Some((queue, due_in)) = told {
                        hub.hint(&queue, due_in);
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "nobody hears of due tasks"),
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}
