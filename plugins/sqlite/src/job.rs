//! Calls as the writer sees them: what they do to each other in a transaction, how they are answered,
//! and how those wait that make claims and got nothing. When they run is the writer's business.

use crate::{
    errors::{Failure, Sql},
    transaction::Tx,
};
use rdq_spi::{ClaimParams, Result, StorageError};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;

/// What a call does, in the order in which calls of one transaction run: they all wait at once, so
/// that any order is right. Tasks that are admitted may be handed to claims that come after, and what
/// takes its time before gives claims the time to come.
#[derive(Debug)]
pub(crate) enum Role {
    /// Anything else.
    Other,
    /// It admits tasks.
    Admits,
    /// It makes these claims.
    Claims(Arc<[ClaimParams]>),
    /// The same, and while it gets nothing it waits, until this is cancelled.
    WaitingClaims(Arc<[ClaimParams]>, CancellationToken),
}

impl Role {
    /// The claims, if it makes any.
    pub(crate) fn claims(&self) -> Option<&Arc<[ClaimParams]>> {
        match self {
            Self::Claims(claims) | Self::WaitingClaims(claims, _) => Some(claims),
            Self::Other | Self::Admits => None,
        }
    }
}

/// What is left of a call after a commit.
pub(crate) enum Left {
    /// It is answered.
    Nothing,
    /// It waits for the next transaction that may serve it.
    Waiting(Box<dyn Job>),
}

/// A call, as the writer sees it.
pub(crate) trait Job: Send {
    fn cost(&self) -> u32;
    fn role(&self) -> &Role;
    /// Whether it waits, and is not to run unless something is there for it.
    fn is_parked(&self) -> bool;
    /// Whether it is one to wait, and nobody waits for its answer any more.
    fn is_abandoned(&self) -> bool;
    /// It is not run in this transaction.
    fn pass(&mut self);
    fn run(&mut self, tx: &mut Tx<'_, '_>) -> Sql<()>;
    fn succeed(self: Box<Self>) -> Left;
    fn fail(self: Box<Self>, failure: &Failure);
    fn close(self: Box<Self>);
}

pub(crate) struct Call<T, W> {
    operation: &'static str,
    work: W,
    answer: Option<T>,
    to: oneshot::Sender<Result<T>>,
    /// None for what waits: it must not keep others from coming.
    cost: Option<OwnedSemaphorePermit>,
    role: Role,
    is_parked: bool,
    /// Whether an answer is worth no waiting caller's while.
    is_nothing: fn(&T) -> bool,
}

impl<T, W> Call<T, W> {
    pub(crate) fn new(
        operation: &'static str,
        role: Role,
        cost: OwnedSemaphorePermit,
        work: W,
        is_nothing: fn(&T) -> bool,
        to: oneshot::Sender<Result<T>>,
    ) -> Self {
        let (answer, cost, is_parked) = (None, Some(cost), false);
        Self { operation, work, answer, to, cost, role, is_parked, is_nothing }
    }

    fn waits(&self) -> bool {
        matches!(&self.role, Role::WaitingClaims(_, enough) if !enough.is_cancelled())
    }
}

impl<T, W> Job for Call<T, W>
where
    T: Send + 'static,
    W: Fn(&mut Tx<'_, '_>) -> Sql<T> + Send + 'static,
{
    fn cost(&self) -> u32 {
        let permits = self.cost.as_ref().map_or(1, OwnedSemaphorePermit::num_permits);
        u32::try_from(permits).unwrap_or(u32::MAX)
    }

    fn role(&self) -> &Role {
        &self.role
    }

    fn is_parked(&self) -> bool {
        self.is_parked && self.waits()
    }

    fn is_abandoned(&self) -> bool {
        matches!(self.role, Role::WaitingClaims(..)) && self.to.is_closed()
    }

    fn pass(&mut self) {
        // There may be one, of a transaction that was rolled back.
        self.answer = None;
    }

    fn run(&mut self, tx: &mut Tx<'_, '_>) -> Sql<()> {
        self.answer = Some((self.work)(tx)?);
        Ok(())
    }

    // The caller may be gone; what it asked for is done all the same.
    fn succeed(mut self: Box<Self>) -> Left {
        let got_nothing = match &self.answer {
            Some(answer) => self.waits() && (self.is_nothing)(answer),
            None => self.is_parked,
        };
        if got_nothing {
            (self.answer, self.cost, self.is_parked) = (None, None, true);
            return Left::Waiting(self);
        }
        if let Some(answer) = self.answer {
            let _ = self.to.send(Ok(answer));
        }
        Left::Nothing
    }

    fn fail(self: Box<Self>, failure: &Failure) {
        let _ = self.to.send(Err(failure.answer(self.operation)));
    }

    fn close(self: Box<Self>) {
        let _ = self.to.send(Err(StorageError::Closed));
    }
}
