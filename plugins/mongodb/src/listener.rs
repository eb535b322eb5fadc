//! Hears what other servers tell, by a change stream. One that a connection or a primary was lost to
//! is opened anew, and all that may have been missed is looked for, and said to be missed. It is asked
//! for by hand: those of the driver go on by themselves, and do not tell that they were away.

use crate::{
    coordination::Announcer,
    database::Db,
    notifier::{COLLECTION, Notifier},
};
use futures::StreamExt as _;
use mongodb::bson::doc;
use rdq_spi::HintHub;
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Passes on what it hears, for ever. After anything that may have been missed, `look`.
pub(crate) async fn listen(
    db: Db,
    hub: Arc<HintHub>,
    look: Arc<Notify>,
    notifier: Notifier,
    announcer: Announcer,
) {
    // What is removed tells nothing.
    let told = [
        doc! { "$changeStream": {} },
        doc! { "$match": { "operationType": { "$in": ["insert", "replace"] } } },
    ];
    let mut retry = RETRY_MIN;
    loop {
        match db.beside(COLLECTION).aggregate(told.clone()).await {
            Ok(mut hearing) => {
                retry = RETRY_MIN;
                look.notify_one();
                announcer.reconnected();
                while let Some(heard) = hearing.next().await {
                    let event = match heard {
                        Ok(event) => event,
                        Err(error) => {
                            tracing::warn!(%error, "the stream that hears of due tasks and wakes was lost");
                            break;
                        }
                    };
                    let Ok(told) = event.get_document("fullDocument") else { continue };
                    if let Some((queue, due_in)) = notifier.read(told) {
                        hub.hint(&queue, due_in);
                    }
                    announcer.heard(told);
                }
            }
            Err(error) => tracing::debug!(%error, "nobody hears of due tasks"),
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}
