//! Runs the schedules: one server at a time, by lock. It knows by name which boundary comes when, sleeps
//! until the first, and reads everything anew when told of a change, or soon.

use super::{admin::read, changes, firing::Envelopes};
use crate::{
    BoundaryTask, Engine, EngineError, clock, core::Core, leadership::Candidate,
    limits::ANSWER_BYTES_MAX,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use rdq_spi::{ScheduleName, StorageError, Timestamp, Topic, Wakes};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

const LOCK: &str = "__rdq_scheduler";
/// A runner that died is replaced after this.
const LEAD_TTL: Duration = Duration::from_secs(10);
/// Everything is read so often, whatever was heard.
const READ_EVERY: Duration = Duration::from_secs(5);
/// Changes within this are read together.
const READ_PAUSE: Duration = Duration::from_millis(50);
const READ_PAGE: u32 = 1_000;
/// Schedules whose boundary came and that are under way at once.
const FIRING_AT_ONCE: usize = 16;

/// Why schedules are run no longer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RunSchedulesError {
    /// Somebody else runs them now, or may. Call again to stand by.
    #[error("the schedules are run by somebody else")]
    LeadershipLost,
    /// The storage failed. Call again after a while.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Engine {
    /// Runs the schedules of this storage until told to stop, or until the engine ends. Any number of
    /// servers may: one does, the others stand by. `envelope` writes a task as clients would send it.
    pub async fn run_schedules(
        &self,
        envelope: impl Fn(BoundaryTask<'_>) -> Bytes + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<(), RunSchedulesError> {
        // A drain waits until the lock is released.
        let tasks = self.core.tasks.clone();
        tasks.track_future(run(Arc::clone(&self.core), &envelope, stop)).await
    }
}

async fn run(
    core: Arc<Core>,
    envelopes: &Envelopes,
    stop: CancellationToken,
) -> Result<(), RunSchedulesError> {
    if !core.has_schedules() {
        return Err(EngineError::from(StorageError::Unsupported { operation: "schedules" }).into());
    }
    let candidate = Candidate::new(Arc::clone(&core), LOCK, LEAD_TTL)?;
    let stopped = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = core.closing.cancelled() => {}
        }
    };
    tokio::pin!(stopped);
    let mut lead = tokio::select! {
        biased;
        () = &mut stopped => return Ok(()),
        lead = candidate.lead() => lead?,
    };
    let ended = tokio::select! {
        biased;
        () = &mut stopped => Ok(()),
        () = lead.until_lost() => return Err(RunSchedulesError::LeadershipLost),
        error = keep_time(&core, envelopes) => Err(error.into()),
    };
    lead.release().await;
    ended
}

/// Goes on until the storage fails.
async fn keep_time(core: &Core, envelopes: &Envelopes) -> EngineError {
    let mut wakes = None;
    loop {
        // Before anything is read, so that no change is missed.
        if wakes.is_none() {
            wakes = listen(core).await;
        }
        if let Err(error) = keep_time_for_a_while(core, envelopes, &mut wakes).await {
            return error;
        }
    }
}

/// Reads every schedule, and fires what comes until it is time to read again.
async fn keep_time_for_a_while(
    core: &Core,
    envelopes: &Envelopes,
    wakes: &mut Option<Wakes>,
) -> Result<(), EngineError> {
    let read_at = clock::now() + READ_EVERY;
    let mut agenda = read_all(core).await?;
    loop {
        let asked = clock::now();
        let now = core.storage_now().await?;
        let mut due = Vec::new();
        while agenda.first().is_some_and(|(next, _)| *next <= now) {
            due.extend(agenda.pop_first());
        }
        let firing = due.into_iter().map(|(_, name)| async move {
            let next = core.fire(&name, now, envelopes).await;
            (name, next)
        });
        let mut firing = stream::iter(firing).buffer_unordered(FIRING_AT_ONCE);
        while let Some((name, next)) = firing.next().await {
            match next {
                Ok(next) => agenda.extend(next.map(|next| (next, name))),
                Err(error) if is_of_the_storage(&error) => return Err(error),
                // Of this schedule alone, and the others do not wait for it: it is tried again when it
                // is read again.
                Err(error) => tracing::warn!(schedule = %name, %error, "this schedule failed"),
            }
        }
        // Not after the boundary, since the storage was asked the time after we were.
        let next = agenda.first().map(|(next, _)| asked + next.since(now).min(READ_EVERY));
        let until = next.map_or(read_at, |next| next.min(read_at));
        tokio::select! {
            biased;
            () = heard(wakes) => {
                clock::sleep(READ_PAUSE).await;
                return Ok(());
            }
            () = clock::sleep_until(until) => {}
        }
        if until == read_at {
            return Ok(());
        }
    }
}

/// Which schedule's boundary comes when.
async fn read_all(core: &Core) -> Result<BTreeSet<(Timestamp, ScheduleName)>, EngineError> {
    let mut agenda = BTreeSet::new();
    let mut position = None;
    loop {
        let page = core.schedule_records(position, READ_PAGE, ANSWER_BYTES_MAX).await?;
        agenda.extend(page.records.iter().filter_map(read).filter_map(|stored| {
            let next = stored.schedule.next_boundary_at?;
            Some((next, stored.schedule.definition.name))
        }));
        position = page.next;
        if position.is_none() {
            return Ok(agenda);
        }
    }
}

/// Tells of changes, where the storage has signals.
async fn listen(core: &Core) -> Option<Wakes> {
    let listen = core.call("listen", |storage| async move {
        let topics = vec![Topic::Channel(changes())];
        match storage.signals() {
            Some(signals) => signals.listen(topics).await.map(Some),
            None => Ok(None),
        }
    });
    listen.await.unwrap_or_else(|error| {
        tracing::debug!(%error, "changes of schedules are not listened for");
        None
    })
}

/// Returns once something changed, or may have.
async fn heard(wakes: &mut Option<Wakes>) {
    if let Some(stream) = wakes
        && stream.next().await.is_some()
    {
        return;
    }
    // Not again at once: everything is read soon anyhow.
    *wakes = None;
    std::future::pending::<()>().await;
}

/// Whether no other schedule would fare better.
fn is_of_the_storage(error: &EngineError) -> bool {
    match error {
        EngineError::Closed => true,
        EngineError::Storage(error) => matches!(
            **error,
            StorageError::Unavailable { .. }
                | StorageError::OutcomeUnknown { .. }
                | StorageError::Full { .. }
        ),
        _ => false,
    }
}
