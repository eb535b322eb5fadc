//! Subscriptions to streams: what is there, then what comes. A subscription reads no further than
//! its client takes, and waits for wakes, which are hints: it reads again at latest after a while.

use crate::{
    Engine, EngineError,
    clock::{self, Instant},
    core::Core,
    faculties::streams,
    listeners::Listener,
    streams::{event_bytes, read_params},
};
use futures::{Stream, stream};
use rdq_spi::{ConsumerName, ReadFrom, StreamEvent, StreamName, Topic};
use std::{pin::Pin, sync::Arc, time::Duration};

/// With wakes, a read without one comes at latest after this: one may be lost.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Whose events, and from where on.
#[derive(Debug, Clone)]
pub struct SubscribeRequest {
    /// The stream.
    pub stream: StreamName,
    /// Who reads; it begins after what it saved.
    pub consumer: ConsumerName,
    /// Events of one item, at least 1, cut to 1,000.
    pub limit: u32,
}

/// Events in the order of their offsets. The first item comes at once, perhaps empty, and an empty
/// one after each silence of the keep-alive. It ends with an error: the storage's, or
/// [`EngineError::Closed`] on a drain.
pub type Events = Pin<Box<dyn Stream<Item = Result<Vec<StreamEvent>, EngineError>> + Send>>;

/// A subscription under way.
struct Reader {
    core: Arc<Core>,
    stream: StreamName,
    limit: u32,
    /// What was handed out last.
    offset: i64,
    listener: Option<Listener>,
    /// Whether there may be events that were not read.
    news: bool,
    first: bool,
    spoke_at: Instant,
}

impl Engine {
    /// Subscribes to a stream.
    pub async fn subscribe(&self, request: SubscribeRequest) -> Result<Events, EngineError> {
        let SubscribeRequest { stream, consumer, limit } = request;
        if limit == 0 {
            return Err(EngineError::invalid("limit", "must be at least 1"));
        }
        if self.core.closing.is_cancelled() {
            return Err(EngineError::Closed);
        }
        // Who is refused hears it before the first item.
        let offset = self.saved_offset(stream.clone(), consumer).await?;
        let reader = Reader {
            core: Arc::clone(&self.core),
            stream,
            limit,
            offset,
            listener: None,
            news: true,
            first: true,
            spoke_at: clock::now(),
        };
        Ok(Box::pin(stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            let item = reader.next().await;
            let go_on = item.is_ok();
            Some((item, go_on.then_some(reader)))
        })))
    }
}

impl Reader {
    async fn next(&mut self) -> Result<Vec<StreamEvent>, EngineError> {
        let core = Arc::clone(&self.core);
        tokio::select! {
            biased;
            () = core.closing.cancelled() => Err(EngineError::Closed),
            events = self.read_on() => events,
        }
    }

    async fn read_on(&mut self) -> Result<Vec<StreamEvent>, EngineError> {
        loop {
            if self.news {
                // Before the read, so that nothing falls between.
                if self.listener.is_none() && self.core.has_wakes() {
                    let topic = Topic::Stream(self.stream.clone());
                    self.listener = Some(self.core.listen(topic).await?);
                }
                let events = self.read().await?;
                if !events.is_empty() || self.first {
                    self.first = false;
                    self.spoke_at = clock::now();
                    return Ok(events);
                }
            }
            if !self.wait().await {
                self.spoke_at = clock::now();
                return Ok(Vec::new());
            }
        }
    }

    async fn read(&mut self) -> Result<Vec<StreamEvent>, EngineError> {
        let from = ReadFrom::Offset(self.offset);
        let params = read_params(self.stream.clone(), from, self.limit);
        let (limit, bytes_max) = (params.limit as usize, params.bytes_max);
        let events = self
            .core
            .call("read", |storage| async move { streams(&*storage, "read")?.read(params).await })
            .await?;
        if let Some(last) = events.last() {
            self.offset = last.offset;
        }
        // What stopped at neither bound is all there was.
        let bytes: usize = events.iter().map(event_bytes).sum();
        self.news = events.len() >= limit || bytes >= bytes_max / 2;
        Ok(events)
    }

    /// Waits for news, real or supposed; else says that it was silent for long.
    async fn wait(&mut self) -> bool {
        let pause = match self.listener {
            Some(_) => READ_AGAIN_AFTER,
            None => self.core.options.poll_interval,
        };
        let silent_at = self.spoke_at + self.core.options.keep_alive.min(clock::TIMER_MAX);
        let listener = self.listener.as_mut();
        let has_listener = listener.is_some();
        tokio::select! {
            biased;
            wake = async { listener?.next().await }, if has_listener => {
                if wake.is_none() {
                    // Its source died; the next read listens anew, or fails.
                    self.listener = None;
                }
                self.news = true;
            }
            () = clock::sleep_until(silent_at) => return false,
            () = clock::sleep(clock::jittered(pause, 0.2)) => self.news = true,
        }
        true
    }
}
