//! A lock that is held for as long as its guard: acquired, renewed in the background, lost no later
//! than the server lets go of it, and released.

use crate::{
    Client, Error,
    client::{Rpc, Try, now},
    retry::{self, Backoff},
    worker::worker_id,
};
use rdq_proto::{time, v1};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::Request;

const TTL: Duration = Duration::from_secs(30);
/// No renewal has longer.
const RENEW_WITHIN: Duration = Duration::from_secs(10);
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// For the release of a lock of which nobody knows whether it was acquired.
const FORGET_WITHIN: Duration = Duration::from_secs(1);

/// A lock to acquire.
#[derive(Debug, Clone)]
#[must_use = "nothing is locked before `acquire`"]
pub struct Lock {
    client: Client,
    name: String,
    owner: String,
    ttl: Duration,
    wait: Duration,
}

impl Client {
    /// A lock by its name, to be acquired.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock {
            client: self.clone(),
            name: name.into(),
            owner: worker_id(),
            ttl: TTL,
            wait: Duration::ZERO,
        }
    }
}

impl Lock {
    /// How long the hold lasts if it is not renewed, which is done at a third of it; 30 s if not
    /// set.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for a lock that another holds; not at all if not set.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Names the holder; host, process id and random letters if not set. Two who share an owner
    /// share the lock.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Acquires the lock; none if another holds it for longer than there is time to wait.
    pub async fn acquire(self) -> Result<Option<LockGuard>, Error> {
        let unknown = Unknown { lock: &self, is_over: false };
        let acquired = self.acquire_within().await;
        // A failure leaves open whether it was acquired; to drop this future does too.
        unknown.settle(acquired.is_ok());
        Ok(acquired?.map(|(generation, end, sent)| self.guard(generation, end, sent)))
    }

    async fn acquire_within(&self) -> Result<Option<(i64, Instant, Instant)>, Error> {
        // None: for ever.
        let until = now().checked_add(self.wait);
        let mut backoff = Backoff::new(retry::LOCKS);
        loop {
            let (answer, sent) = self.attempt().await?;
            if answer.acquired {
                let end = end_of(sent, answer.remaining.as_ref(), self.ttl);
                return Ok(Some((answer.generation, end, sent)));
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now()));
            if left.is_zero() {
                return Ok(None);
            }
            tokio::time::sleep(backoff.next().min(left)).await;
        }
    }

    /// The answer, and when the try was sent whose answer it is.
    async fn attempt(&self) -> Result<(v1::TryLockResponse, Instant), Error> {
        let sent = Mutex::new(now());
        let answer = self
            .client
            .call(|mut rpc, ask| {
                *sent.lock().unwrap_or_else(PoisonError::into_inner) = now();
                let message = v1::TryLockRequest {
                    name: self.name.clone(),
                    owner: self.owner.clone(),
                    ttl: Some(time::duration(self.ttl)),
                };
                async move { rpc.locks.try_lock(ask.request(message)).await }
            })
            .await?;
        Ok((answer, sent.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    fn guard(self, generation: i64, end: Instant, sent: Instant) -> LockGuard {
        let lost = CancellationToken::new();
        let released = CancellationToken::new();
        let last_error = Arc::<Mutex<Option<Error>>>::default();
        let keeper = Keeper {
            lock: self.clone(),
            generation,
            end,
            lost: lost.clone(),
            released: released.clone(),
            last_error: Arc::clone(&last_error),
        };
        let keeping = tokio::spawn(keeper.keep(sent));
        let Self { name, owner, .. } = self;
        LockGuard { name, owner, generation, lost, released, last_error, keeping: Some(keeping) }
    }

    fn release(&self, generation: Option<i64>) -> v1::LockServiceReleaseRequest {
        let (name, owner) = (self.name.clone(), self.owner.clone());
        v1::LockServiceReleaseRequest { name, owner, generation }
    }
}

/// The end of a hold, by the answer to a try that was sent then: never later than the server's.
fn end_of(sent: Instant, remaining: Option<&prost_types::Duration>, ttl: Duration) -> Instant {
    let remaining = remaining.and_then(time::at_least_zero).unwrap_or_default();
    sent + remaining.min(ttl)
}

/// A lock of which nobody knows whether it is held: dropped so, it is released.
struct Unknown<'a> {
    lock: &'a Lock,
    is_over: bool,
}

impl Unknown<'_> {
    fn settle(mut self, is_known: bool) {
        self.is_over = is_known;
    }
}

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.is_over {
            return;
        }
        let mut rpc = self.lock.client.rpc();
        let mut request = Request::new(self.lock.release(None));
        request.set_timeout(FORGET_WITHIN);
        runtime.spawn(async move {
            if let Err(status) = rpc.locks.release(request).await {
                tracing::debug!(%status, "a lock that may be held was not released");
            }
        });
    }
}

/// A lock is not held any more: what it guards must stop.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the lock {name}, generation {generation}, is lost")]
pub struct LockLost {
    name: String,
    generation: i64,
    /// The last renewal's, if that failed.
    #[source]
    last_renewal: Option<Error>,
}

/// A lock that is held, and renewed in the background, until it is released or lost. Dropped, it is
/// released in the background.
///
/// It is lost no later than its end at the server. A process that is stopped as a whole is told
/// late: so what the lock guards should refuse a [`generation`](Self::generation) lower than one
/// that it saw.
#[derive(Debug)]
#[must_use = "dropped, the lock is released"]
pub struct LockGuard {
    name: String,
    owner: String,
    generation: i64,
    lost: CancellationToken,
    released: CancellationToken,
    last_error: Arc<Mutex<Option<Error>>>,
    keeping: Option<JoinHandle<()>>,
}

impl LockGuard {
    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who holds it.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The hold's fencing number, which grows with each acquisition of the lock.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Whether it is lost.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Cancelled once the lock is lost, and not by its release.
    pub fn cancellation(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Over once the lock is lost.
    pub async fn lost(&self) -> LockLost {
        self.lost.cancelled().await;
        let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        LockLost {
            name: self.name.clone(),
            generation: self.generation,
            last_renewal: last_error.clone(),
        }
    }

    /// Does what the lock guards: dropped, at the `await` where it stands, if the lock is lost.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, LockLost> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            done = work => Ok(done),
        }
    }

    /// Releases it, in 5 s at most. A release that fails is logged: the hold ends by itself. A lock
    /// that is lost is not released.
    pub async fn release(mut self) {
        self.released.cancel();
        if let Some(keeping) = self.keeping.take() {
            // It does not panic; a runtime that ends takes it along.
            let _ = keeping.await;
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.released.cancel();
    }
}

/// What keeps a lock, in the background.
struct Keeper {
    lock: Lock,
    generation: i64,
    end: Instant,
    lost: CancellationToken,
    released: CancellationToken,
    last_error: Arc<Mutex<Option<Error>>>,
}

impl Keeper {
    async fn keep(mut self, sent: Instant) {
        let mut next = sent + self.lock.ttl / 3;
        loop {
            let renewal =
                renew(self.lock.client.rpc(), &self.lock, self.generation, next, self.end);
            let renewed = tokio::select! {
                biased;
                () = self.released.cancelled() => return self.release().await,
                () = tokio::time::sleep_until(self.end) => return self.lose(),
                renewed = renewal => renewed,
            };
            match renewed {
                Ok((answer, sent)) => {
                    self.note(None);
                    if !answer.renewed {
                        return self.lose();
                    }
                    self.end = end_of(sent, answer.remaining.as_ref(), self.lock.ttl);
                    next = sent + self.lock.ttl / 3;
                }
                Err(error) => {
                    tracing::warn!(%error, lock = self.lock.name, "a lock was not renewed");
                    self.note(Some(error));
                    next = now() + (self.lock.ttl / 10).max(Duration::from_millis(1));
                }
            }
        }
    }

    fn note(&self, error: Option<Error>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    fn lose(&self) {
        let (lock, generation) = (self.lock.name.as_str(), self.generation);
        tracing::error!(lock, generation, "a lock is lost");
        self.lost.cancel();
    }

    async fn release(&self) {
        let left = self.end.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        let message = self.lock.release(Some(self.generation));
        let client = self.lock.client.with_deadline(left.min(RELEASE_WITHIN));
        let released = client.call(|mut rpc, ask| {
            let message = message.clone();
            async move { rpc.locks.release(ask.request(message)).await }
        });
        if let Err(error) = released.await {
            tracing::warn!(%error, lock = self.lock.name, "a lock was not released");
        }
    }
}

/// Renews once, when that is due; answers with when it was sent.
async fn renew(
    mut rpc: Rpc,
    lock: &Lock,
    generation: i64,
    due: Instant,
    end: Instant,
) -> Result<(v1::RenewResponse, Instant), Error> {
    tokio::time::sleep_until(due).await;
    let sent = now();
    let mut request = Request::new(v1::RenewRequest {
        name: lock.name.clone(),
        owner: lock.owner.clone(),
        generation: Some(generation),
        ttl: Some(time::duration(lock.ttl)),
    });
    request.set_timeout(end.saturating_duration_since(sent).min(RENEW_WITHIN));
    let answer = Try::ONLY.answer(rpc.locks.renew(request)).await?;
    Ok((answer.into_inner(), sent))
}
