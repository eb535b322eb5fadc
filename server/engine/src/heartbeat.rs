//! Heartbeats: a claim is kept for a lease from now on.

use crate::{
    Engine, EngineError,
    admission::run_accepted,
    batcher::{Batcher, Kind, about},
    clock,
    core::{Core, refuse_all, spread},
    feed::Ended,
    limits::{LEASE_MAX, LEASE_MIN, check_blob, check_lease},
    queues::Snapshot,
    resolution::read_token,
    token::ClaimContext,
};
use bytes::Bytes;
use rdq_spi::{ClaimRef, ExtendParams, Extended, TaskId};
use std::{sync::Arc, time::Duration};

/// A claim to keep.
#[derive(Debug, Clone)]
pub struct ExtendRequest {
    /// The task.
    pub task_id: TaskId,
    /// The claim's token, as the claim answered it.
    pub token: Bytes,
    /// From 10 ms to 12 h; else the lease of the claim.
    pub lease: Option<Duration>,
    /// Replaces the checkpoint if set, at most 64 KiB.
    pub progress: Option<Bytes>,
    /// Refuse it once the lease has run out, whatever the queue says.
    pub strict: bool,
}

/// A heartbeat, and the claim it is for.
pub(crate) struct Beat {
    params: ExtendParams,
    claim: Ended,
}

impl Engine {
    /// Keeps a claim: its lease becomes now + the lease, whatever it was.
    pub async fn extend(&self, request: ExtendRequest) -> Result<Extended, EngineError> {
        let beat = check(&self.core.queues.snapshot(), request)?;
        Batcher::<Extensions>::join(&self.core, beat).await
    }

    /// Keeps many claims, each with its own answer.
    pub async fn extend_batch(
        &self,
        requests: Vec<ExtendRequest>,
    ) -> Vec<Result<Extended, EngineError>> {
        extend_all(&self.core, requests).await
    }

    /// Which of these claims are live, and how much of their lease is left.
    pub async fn live_claims(
        &self,
        claims: Vec<(TaskId, Bytes)>,
    ) -> Result<Vec<Option<Duration>>, EngineError> {
        self.core.live(claims).await
    }
}

pub(crate) async fn extend_all(
    core: &Arc<Core>,
    requests: Vec<ExtendRequest>,
) -> Vec<Result<Extended, EngineError>> {
    let snapshot = core.queues.snapshot();
    let count = requests.len();
    let beats = requests.into_iter().map(|request| check(&snapshot, request)).collect();
    run_accepted(beats, |beats: Vec<Beat>| async move {
        let accepted = beats.len();
        let run = Extensions::run(Arc::clone(core), beats);
        core.run(Extensions::OPERATION, run).await.unwrap_or_else(|e| refuse_all(&e, accepted))
    })
    .await
    .unwrap_or_else(|| refuse_all(&EngineError::Closed, count))
}

fn check(snapshot: &Snapshot, request: ExtendRequest) -> Result<Beat, EngineError> {
    let ExtendRequest { task_id, token, lease, progress, strict } = request;
    check_lease("lease", lease)?;
    if let Some(progress) = &progress {
        check_blob("progress", progress)?;
    }
    let context = read_token(&task_id, &token)?;
    let effective = snapshot.effective(&context.queue);
    let claim = (context.holder, task_id.clone(), context.generation);
    let params = ExtendParams {
        claim: ClaimRef { task_id, token: context.storage_token },
        // The token's word is not trusted beyond the contract's range.
        lease: lease.unwrap_or(context.lease).clamp(LEASE_MIN, LEASE_MAX),
        held_max: effective.timeout,
        progress,
        strict: strict || effective.strict_leases,
    };
    Ok(Beat { params, claim })
}

impl Core {
    /// Asks the storage which claims are live. A token that is none is not.
    pub(crate) async fn live(
        &self,
        claims: Vec<(TaskId, Bytes)>,
    ) -> Result<Vec<Option<Duration>>, EngineError> {
        let mut refs = Vec::with_capacity(claims.len());
        let mut known = Vec::with_capacity(claims.len());
        for (task_id, token) in claims {
            let context = ClaimContext::decode(&token);
            known.push(context.is_some());
            refs.extend(context.map(|it| ClaimRef { task_id, token: it.storage_token }));
        }
        if refs.is_empty() {
            return Ok(vec![None; known.len()]);
        }
        let live = self
            .call("live_claims", |storage| async move { storage.live_claims(refs).await })
            .await?;
        let mut live = live.into_iter();
        Ok(known.into_iter().map(|known| known.then(|| live.next().flatten()).flatten()).collect())
    }
}

/// Heartbeats of single calls.
pub(crate) struct Extensions;

impl Kind for Extensions {
    type Item = Beat;
    type Answer = Extended;
    const OPERATION: &'static str = "extend_leases";

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.extensions
    }

    fn bytes(beat: &Beat) -> usize {
        beat.params.progress.as_ref().map_or(0, Bytes::len)
    }

    fn about(beat: &Beat) -> Option<u64> {
        Some(about(&beat.params.claim.task_id))
    }

    async fn run(core: Arc<Core>, beats: Vec<Beat>) -> Vec<Result<Extended, EngineError>> {
        let asked = clock::now();
        let (params, claims): (Vec<_>, Vec<_>) =
            beats.into_iter().map(|beat| (beat.params, beat.claim)).unzip();
        let count = claims.len();
        let answers = spread(Self::OPERATION, core.storage.extend_leases(params).await, count);
        for (claim, answer) in claims.iter().zip(&answers) {
            if let Ok(extended) = answer {
                core.feeds.extended(claim, asked + extended.remaining.min(LEASE_MAX));
            }
        }
        answers
    }
}
