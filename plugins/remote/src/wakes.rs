//! Wakes of the other server, kept coming: a stream that breaks is opened again, and who listens is
//! told that wakes may have been lost between.
//!
//! Channels are listened to. Of streams the wire has no wakes, but their events: each message of a
//! subscription is one. What it has seen is saved under a consumer of this plugin's own, one for each
//! stream, so that no listener begins at the beginning again.

use crate::{
    client::{CALL_WITHIN, Client, in_time, request},
    errors::Failure,
};
use futures::{StreamExt as _, stream};
use rdq_proto::v1;
use rdq_spi::{Topic, Wake, Wakes};
use std::{collections::VecDeque, time::Duration};
use tokio::sync::watch;
use tonic::Streaming;

/// Who reads streams for their wakes.
const CONSUMER: &str = "__rdq_remote_wakes";
const EVENTS_AT_ONCE: i32 = 1_000;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A live server says something every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Wakes of these topics, until `closed` turns true. Fails if a first stream cannot be opened.
pub(crate) async fn wakes(
    client: &Client,
    topics: Vec<Topic>,
    closed: &watch::Sender<bool>,
) -> Result<Wakes, Failure> {
    let opening = topics.into_iter().map(|topic| async {
        let source = open(client, &topic).await?;
        let (source, backoff) = (Some(source), BACKOFF_MIN);
        Ok(Watch { client: client.clone(), topic, source, pending: VecDeque::new(), backoff })
    });
    let opened: Vec<Result<Watch, Failure>> = futures::future::join_all(opening).await;
    let mut watches = Vec::with_capacity(opened.len());
    for watch in opened {
        watches.push(Box::pin(stream::unfold(watch?, |mut watch| async move {
            let wake = watch.next().await;
            Some((wake, watch))
        })));
    }
    let mut closed = closed.subscribe();
    let end = async move {
        // An error says that the handle is gone, which ends the wakes as well.
        let _ = closed.wait_for(|closed| *closed).await;
    };
    Ok(Box::pin(stream::select_all(watches).take_until(Box::pin(end))))
}

enum Source {
    Channel(Streaming<v1::ListenResponse>),
    Stream(Streaming<v1::SubscribeResponse>),
}

/// Opens the source of a topic's wakes, and waits until it is attached.
async fn open(client: &Client, topic: &Topic) -> Result<Source, Failure> {
    match topic {
        Topic::Channel(channel) => {
            let asked = v1::ListenRequest { channel: channel.as_str().to_owned() };
            let mut signals = client.signals.clone();
            in_time(async move {
                let mut wakes = signals.listen(asked).await?.into_inner();
                wakes.message().await?;
                Ok(Source::Channel(wakes))
            })
            .await
        }
        Topic::Stream(stream) => {
            let asked = v1::SubscribeRequest {
                stream: stream.as_str().to_owned(),
                consumer: CONSUMER.to_owned(),
                limit: Some(EVENTS_AT_ONCE),
            };
            let mut streams = client.streams.clone();
            in_time(async move {
                let mut events = streams.subscribe(asked).await?.into_inner();
                events.message().await?;
                Ok(Source::Stream(events))
            })
            .await
        }
    }
}

struct Watch {
    client: Client,
    topic: Topic,
    source: Option<Source>,
    pending: VecDeque<Wake>,
    backoff: Duration,
}

impl Watch {
    async fn next(&mut self) -> Wake {
        loop {
            if let Some(wake) = self.pending.pop_front() {
                return wake;
            }
            let Some(source) = &mut self.source else {
                self.reopen().await;
                continue;
            };
            let said = match source {
                Source::Channel(wakes) => {
                    let said = tokio::time::timeout(SILENCE_MAX, wakes.message()).await;
                    said.ok()
                        .and_then(Result::ok)
                        .flatten()
                        .map(|it| (!it.channel.is_empty(), it.reconnected, None))
                }
                Source::Stream(events) => {
                    let said = tokio::time::timeout(SILENCE_MAX, events.message()).await;
                    said.ok().and_then(Result::ok).flatten().map(|it| {
                        let last = it.events.last().map(|event| event.offset);
                        (last.is_some(), false, last)
                    })
                }
            };
            let Some((is_news, reconnected, last)) = said else {
                // Silence, an end or an error: what came in the meantime is not known.
                self.source = None;
                continue;
            };
            self.backoff = BACKOFF_MIN;
            if reconnected {
                self.pending.push_back(Wake::Reconnected);
            }
            if is_news {
                self.pending.push_back(Wake::News(self.topic.clone()));
            }
            if let Some(offset) = last {
                self.save(offset);
            }
        }
    }

    /// Only spares the next listener what this one has seen: nobody waits for it.
    fn save(&self, offset: i64) {
        let Topic::Stream(stream) = &self.topic else { return };
        let stream = stream.as_str().to_owned();
        let asked = v1::SaveOffsetRequest { stream, consumer: CONSUMER.to_owned(), offset };
        let mut streams = self.client.streams.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(CALL_WITHIN, streams.save_offset(request(asked))).await;
        });
    }

    async fn reopen(&mut self) {
        // Spread, so that all who lost the server do not come back at once.
        let pause = self.backoff.mul_f64(0.5 + fastrand::f64());
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        tokio::time::sleep(pause).await;
        if let Ok(source) = open(&self.client, &self.topic).await {
            self.source = Some(source);
            self.pending.push_back(Wake::Reconnected);
        }
    }
}
