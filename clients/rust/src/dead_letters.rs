//! Dead letters: which of them, brought back or removed, with the running count.

use crate::{Client, Error};
use futures::{
    Stream, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use prost_types::Timestamp;
use rdq_proto::{time, v1};
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};
use tonic::{Response, Status, Streaming};

/// Which dead letters: what is set must hold, all of it.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct DlqFilter(v1::DlqFilter);

impl DlqFilter {
    /// One that nothing is asked of yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The exact error type of the final attempt.
    pub fn error_type(mut self, error_type: impl Into<String>) -> Self {
        self.0.error_type = Some(error_type.into());
        self
    }

    /// The exact handler.
    pub fn handler_ref(mut self, handler_ref: impl Into<String>) -> Self {
        self.0.handler_ref = Some(handler_ref.into());
        self
    }

    /// Dead since this instant, which is included.
    pub fn dead_from(mut self, at: SystemTime) -> Self {
        self.0.dead_lettered_from = Some(Timestamp::from(at));
        self
    }

    /// Dead before this instant.
    pub fn dead_to(mut self, at: SystemTime) -> Self {
        self.0.dead_lettered_to = Some(Timestamp::from(at));
        self
    }

    pub(crate) fn wire(self) -> v1::DlqFilter {
        self.0
    }
}

/// Which dead letters to act on.
#[derive(Debug, Clone, PartialEq)]
pub enum Selector {
    /// These tasks, 1 to 1,000. Those that are no dead letters of the queue are passed over.
    Ids(Vec<String>),
    /// Those that match. One that asks for nothing is refused.
    Filter(DlqFilter),
    /// Every dead letter of the queue.
    All,
}

impl Selector {
    /// These tasks.
    pub fn ids<I: Into<String>>(ids: impl IntoIterator<Item = I>) -> Self {
        Self::Ids(ids.into_iter().map(Into::into).collect())
    }

    fn wire(self) -> v1::Selector {
        use v1::selector::Selection;
        let selection = match self {
            Self::Ids(ids) => Selection::Ids(v1::TaskIds { ids }),
            Self::Filter(filter) => Selection::Filter(filter.wire()),
            Self::All => Selection::All(true),
        };
        v1::Selector { selection: Some(selection) }
    }
}

impl From<DlqFilter> for Selector {
    fn from(filter: DlqFilter) -> Self {
        Self::Filter(filter)
    }
}

/// How far a redrive or purge has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// Dead letters that were acted on so far; with a dry run, that would be.
    pub count: u64,
    /// Whether these are all.
    pub done: bool,
}

/// A redrive or purge ended before it was done.
#[derive(Debug, Clone, thiserror::Error)]
#[error("ended after {count} dead letters: {error}")]
#[non_exhaustive]
pub struct Interrupted {
    /// Dead letters that were acted on for certain.
    pub count: u64,
    /// Why it ended.
    #[source]
    pub error: Error,
}

impl From<Interrupted> for Error {
    fn from(interrupted: Interrupted) -> Self {
        interrupted.error
    }
}

impl Client {
    /// Makes dead letters of a queue due again: with no attempt spent, their history kept. Nothing
    /// happens before [`run`](Redrive::run) or [`counts`](Redrive::counts).
    pub fn redrive(&self, queue: impl Into<String>, selector: impl Into<Selector>) -> Redrive {
        let request = v1::RedriveRequest {
            queue: queue.into(),
            selector: Some(selector.into().wire()),
            ..v1::RedriveRequest::default()
        };
        Redrive { client: self.clone(), request }
    }

    /// Removes dead letters of a queue for good. Nothing happens before [`run`](Purge::run) or
    /// [`counts`](Purge::counts).
    pub fn purge(&self, queue: impl Into<String>, selector: impl Into<Selector>) -> Purge {
        let request = v1::PurgeRequest {
            queue: queue.into(),
            selector: Some(selector.into().wire()),
            ..v1::PurgeRequest::default()
        };
        Purge { client: self.clone(), request }
    }
}

/// A redrive that has not begun.
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `run` or `counts`"]
pub struct Redrive {
    client: Client,
    request: v1::RedriveRequest,
}

impl Redrive {
    /// Counts, and changes nothing.
    pub fn dry_run(mut self) -> Self {
        self.request.dry_run = true;
        self
    }

    /// Spreads the due times evenly over this duration, against a thundering herd. Not together
    /// with [`rate_per_second`](Self::rate_per_second).
    pub fn spread_over(mut self, duration: Duration) -> Self {
        self.request.spread_over = Some(time::duration(duration));
        self
    }

    /// Makes so many tasks due each second.
    pub fn rate_per_second(mut self, rate: f64) -> Self {
        self.request.rate_per_second = Some(rate);
        self
    }

    /// The running count, as it comes. The last has `done`.
    pub fn counts(self) -> Counts {
        let Self { client, request } = self;
        Counts::new(client, request, |mut rpc, request| {
            Box::pin(async move { rpc.tasks.redrive(request).await })
        })
    }

    /// Runs it to its end, and says how many were redriven.
    pub async fn run(self) -> Result<u64, Interrupted> {
        self.counts().last().await
    }
}

/// A purge that has not begun.
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `run` or `counts`"]
pub struct Purge {
    client: Client,
    request: v1::PurgeRequest,
}

impl Purge {
    /// Counts, and changes nothing.
    pub fn dry_run(mut self) -> Self {
        self.request.dry_run = true;
        self
    }

    /// The running count, as it comes. The last has `done`.
    pub fn counts(self) -> Counts {
        let Self { client, request } = self;
        Counts::new(client, request, |mut rpc, request| {
            Box::pin(async move { rpc.tasks.purge(request).await })
        })
    }

    /// Runs it to its end, and says how many were removed.
    pub async fn run(self) -> Result<u64, Interrupted> {
        self.counts().last().await
    }
}

/// The running count of a redrive or purge: a [`Stream`], and with [`next`](Self::next) for who has
/// none of its traits at hand. Dropping it ends the work.
pub struct Counts(BoxStream<'static, Result<Count, Error>>);

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl Stream for Counts {
    type Item = Result<Count, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

type Opening<M> = BoxFuture<'static, Result<Response<Streaming<M>>, Status>>;

impl Counts {
    fn new<Q, M>(
        client: Client,
        request: Q,
        open: fn(crate::client::Rpc, tonic::Request<Q>) -> Opening<M>,
    ) -> Self
    where
        Q: Clone + Send + Sync + 'static,
        M: Into<Count> + Send + 'static,
    {
        let first = async move {
            // Repeated until the first message: from then on the caller learns how far it came.
            let mut calling = client.calling();
            loop {
                let ask = calling.next_try();
                let opened = ask.answer(async {
                    // Without the deadline of a unary call: it lasts as long as it needs.
                    let request = tonic::Request::new(request.clone());
                    let mut stream = open(client.rpc(), request).await?.into_inner();
                    let first = stream.message().await?;
                    Ok((stream, first))
                });
                match opened.await {
                    Ok(opened) => return Ok(opened),
                    Err(error) => calling.wait_after(error).await?,
                }
            }
        };
        let counts = stream::once(first).flat_map(|opened| match opened {
            Ok((stream, first)) => {
                let first = first.map(Ok::<_, Status>);
                let rest = stream::iter(first).chain(stream);
                rest.map(|message| message.map(Into::into).map_err(Error::from)).boxed()
            }
            Err(error) => stream::iter([Err(error)]).boxed(),
        });
        Self(counts.boxed())
    }

    /// The next count; none after the last.
    pub async fn next(&mut self) -> Option<Result<Count, Error>> {
        self.0.next().await
    }

    async fn last(mut self) -> Result<u64, Interrupted> {
        let mut count = 0;
        let mut done = false;
        while let Some(next) = self.next().await {
            let next = next.map_err(|error| Interrupted { count, error })?;
            (count, done) = (next.count, next.done);
        }
        if done {
            Ok(count)
        } else {
            Err(Interrupted { count, error: Error::broken("ended before it was done") })
        }
    }
}

impl From<v1::RedriveResponse> for Count {
    fn from(response: v1::RedriveResponse) -> Self {
        Self { count: response.count.try_into().unwrap_or(0), done: response.done }
    }
}

impl From<v1::PurgeResponse> for Count {
    fn from(response: v1::PurgeResponse) -> Self {
        Self { count: response.count.try_into().unwrap_or(0), done: response.done }
    }
}
