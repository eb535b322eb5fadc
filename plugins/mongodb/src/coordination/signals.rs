//! Wakes: those who listen here are told at once, other servers by small documents that they watch.
//! Such a document is part of the transaction that it tells of: whoever is killed after a commit has
//! told of it. It is removed a while later, which nobody looks at.

use crate::{
    database::Db,
    document::date,
    errors::{Failure, Step},
    notifier::COLLECTION,
};
use mongodb::bson::{Bson, Document, doc};
use rdq_spi::{ChannelName, StreamName, Topic, WakeHub, Wakes};
use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::Arc,
};

/// Tells who listens. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Announcer {
    hub: Arc<WakeHub>,
    /// Tells this handle's documents from others'.
    sender: i64,
}

impl Default for Announcer {
    fn default() -> Self {
        let sender = RandomState::new().build_hasher().finish().cast_signed();
        Self { hub: Arc::default(), sender }
    }
}

impl Announcer {
    /// Wakes of these topics, from now on.
    pub(super) fn listen(&self, topics: &[Topic]) -> Wakes {
        self.hub.listen(topics)
    }

    /// Tells other servers, within the transaction if this is one.
    pub(super) async fn tell(&self, db: &Db, topics: &BTreeSet<Topic>) -> Step<()> {
        if topics.is_empty() {
            return Ok(());
        }
        let names = topics.iter().map(|topic| match topic {
            Topic::Channel(channel) => doc! { "c": channel.as_str() },
            Topic::Stream(stream) => doc! { "s": stream.as_str() },
        });
        let told = doc! {
            "told_by": self.sender,
            "told_at": date(db.clock.latest()),
            "topics": names.collect::<Vec<_>>(),
        };
        db.write(doc! { "insert": COLLECTION, "documents": [told] }).await.map(|_| ())
    }

    /// Wakes whoever listens to these channels.
    pub(super) async fn notify(&self, db: &Db, channels: Vec<ChannelName>) -> Step<()> {
        let topics = channels.into_iter().map(Topic::Channel).collect();
        let told = self.tell(db, &topics).await;
        if matches!(told, Ok(()) | Err(Failure::Unknown(_))) {
            self.wake(&topics);
        }
        told
    }

    /// Wakes those who listen here.
    pub(super) fn wake(&self, topics: &BTreeSet<Topic>) {
        for topic in topics {
            self.hub.wake(topic);
        }
    }

    /// Passes on what a document tells that is not of this handle.
    pub(crate) fn heard(&self, told: &Document) {
        if told.get_i64("told_by").is_ok_and(|sender| sender != self.sender) {
            read(told).for_each(|topic| self.hub.wake(&topic));
        }
    }

    /// Tells every listener here that it may have missed something.
    pub(crate) fn reconnected(&self) {
        self.hub.reconnected();
    }

    /// Ends every listener.
    pub(crate) fn close(&self) {
        self.hub.close();
    }
}

/// What a document tells.
fn read(told: &Document) -> impl Iterator<Item = Topic> {
    let topics = told.get_array("topics").into_iter().flatten();
    topics.filter_map(Bson::as_document).filter_map(|topic| {
        let (kind, name) = topic.iter().next()?;
        let name = name.as_str()?;
        match kind.as_str() {
            "c" => Some(Topic::Channel(ChannelName::stored(name))),
            "s" => Some(Topic::Stream(StreamName::stored(name))),
            _ => None,
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_of_us_said_tells_nothing() {
        for garbage in [
            doc! {},
            doc! { "topics": 1 },
            doc! { "topics": [1, "c", {}, { "c": 1 }, { "d": "x" }] },
        ] {
            assert_eq!(read(&garbage).count(), 0, "{garbage:?}");
        }
        let both = doc! { "topics": [{ "c": "é" }, { "s": "é" }] };
        let channel = Topic::Channel(ChannelName::new("é").unwrap());
        let stream = Topic::Stream(StreamName::new("é").unwrap());
        assert_eq!(read(&both).collect::<Vec<_>>(), [channel, stream]);
    }
}
