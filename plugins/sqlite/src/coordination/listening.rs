//! Wakes. Within the process they come with the commit; what other processes committed is found in
//! the file, once its version says that they were here: streams whose counter moved, and channels
//! whose notification has a number above all that were seen.

use super::Counter;
use crate::{
    clock::Deadline,
    errors::Sql,
    reader::Snapshot,
    statements::{Statements, text},
    transaction::Tx,
};
use futures::StreamExt as _;
use rdq_spi::{ChannelName, StreamName, Topic, WakeHub, Wakes};
use rusqlite::{OptionalExtension as _, params};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How long a notification is kept for other processes, in milliseconds. Whoever looked for none that
/// long is told that it may have missed some.
const KEPT_MILLIS: i64 = 60_000;
/// At least so many of the oldest notifications are looked at for some to forget.
const FORGET_MIN: usize = 16;

/// Those of this process who listen.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    hub: WakeHub,
    /// Each of them holds one.
    count: Arc<()>,
}

impl Listeners {
    /// Wakes of these topics, from now on.
    pub(crate) fn listen(&self, topics: &[Topic]) -> Wakes {
        let one = Arc::clone(&self.count);
        Box::pin(self.hub.listen(topics).inspect(move |_| {
            let _ = &one;
        }))
    }

    /// Whether there are any.
    pub(crate) fn are_there(&self) -> bool {
        Arc::strong_count(&self.count) > 1
    }

    /// Ends all wakes.
    pub(crate) fn close(&self) {
        self.hub.close();
    }
}

/// What a transaction tells those who listen.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The streams that have new events, and their last offsets.
    streams: BTreeMap<StreamName, i64>,
    channels: BTreeSet<ChannelName>,
}

impl News {
    /// The stream has a new event.
    pub(super) fn published(&mut self, stream: &StreamName, offset: i64) {
        match self.streams.get_mut(stream) {
            Some(last) => *last = offset,
            None => drop(self.streams.insert(stream.clone(), offset)),
        }
    }

    /// Takes in what is told later.
    pub(crate) fn add(&mut self, later: Self) {
        self.streams.extend(later.streams);
        self.channels.extend(later.channels);
    }
}

/// Notifies a channel.
pub(super) fn notify(tx: &mut Tx<'_, '_>, channel: &ChannelName) -> Sql<()> {
    if !tx.news.channels.insert(channel.clone()) {
        return Ok(());
    }
    let number = tx.next_seq();
    let sql = &mut tx.sql.coordination;
    sql.notify.execute(params![number, channel.as_str(), tx.now.millis()])?;
    Ok(())
}

/// Forgets old notifications, so many at most as keeps their number from growing.
pub(crate) fn forget_notifications(tx: &mut Tx<'_, '_>) -> Sql<()> {
    if tx.news.channels.is_empty() {
        return Ok(());
    }
    let before = tx.now.millis().saturating_sub(KEPT_MILLIS);
    let max = (2 * tx.news.channels.len()).max(FORGET_MIN);
    let sql = &mut tx.sql.coordination;
    let mut forgotten = sql.forget_notifications.query(params![before, max])?;
    let mut last: Option<i64> = None;
    while let Some(row) = forgotten.next()? {
        last = last.max(Some(row.get(0)?));
    }
    if let Some(last) = last {
        sql.put_forgotten.execute([last])?;
    }
    Ok(())
}

/// What stood in the file when somebody began to listen.
#[derive(Debug)]
pub(crate) struct Since {
    number: i64,
    streams: Vec<(StreamName, i64)>,
}

impl Snapshot<'_> {
    /// What stands in the file now.
    pub(crate) fn since(&self, topics: &[Topic]) -> Sql<Since> {
        let mut streams = Vec::new();
        for topic in topics {
            if let Topic::Stream(name) = topic {
                let last = self.stream(name)?.map_or(0, Counter::last);
                streams.push((name.clone(), last));
            }
        }
        Ok(Since { number: self.last_number()?, streams })
    }

    /// The last number that was given to an admission, a record or a notification.
    pub(super) fn last_number(&self) -> Sql<i64> {
        self.db.prepare_cached(text!(notified))?.query_row([], |row| row.get(0))
    }
}

/// What those who listen have heard of: the writer's memory, kept while anybody listens.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Every notification up to this number.
    number: Option<i64>,
    /// Of these streams, events up to this offset.
    streams: BTreeMap<StreamName, i64>,
    /// When to look whatever the file's version is.
    look: Option<Deadline>,
}

impl Heard {
    /// Somebody more listens, and had heard of this. It is looked at again soon: what came meanwhile
    /// may have been looked at before this was known.
    pub(crate) fn begin(&mut self, since: Since) {
        self.number.get_or_insert(since.number);
        for (stream, last) in since.streams {
            self.streams.entry(stream).or_insert(last);
        }
        self.look_again_in(Duration::ZERO);
    }

    /// Tells of a commit of this process.
    pub(crate) fn tell(&mut self, listeners: &Listeners, news: News) {
        if !listeners.are_there() {
            return;
        }
        for (stream, last) in news.streams {
            if let Some(heard) = self.streams.get_mut(&stream) {
                *heard = last;
            }
            listeners.hub.wake(&Topic::Stream(stream));
        }
        for channel in news.channels {
            listeners.hub.wake(&Topic::Channel(channel));
        }
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.look.is_some_and(Deadline::has_passed)
    }

    /// Looks then, if not before.
    pub(crate) fn look_again_in(&mut self, wait: Duration) {
        self.look = Some(Deadline::after(wait));
    }

    /// Tells of what stands in the file.
    pub(crate) fn look(&mut self, sql: &mut Statements<'_>, listeners: &Listeners) -> Sql<()> {
        // Outside of a transaction it is one of its own, here to see one state of the file.
        sql.state.savepoint.execute([])?;
        let looked = self
            .look_at_streams(sql, listeners)
            .and_then(|()| self.look_at_channels(sql, listeners));
        sql.state.release.execute([])?;
        self.look = None;
        looked
    }

    fn look_at_streams(&mut self, sql: &mut Statements<'_>, listeners: &Listeners) -> Sql<()> {
        if self.streams.is_empty() {
            return Ok(());
        }
        let watched: BTreeSet<_> = listeners.hub.watched().into_iter().collect();
        self.streams.retain(|stream, _| watched.contains(&Topic::Stream(stream.clone())));
        for (stream, heard) in &mut self.streams {
            let sql = &mut sql.coordination.stream;
            let found = sql.query_row([stream.as_str()], Counter::read).optional()?;
            let last = found.map_or(0, Counter::last);
            if std::mem::replace(heard, last) != last {
                listeners.hub.wake(&Topic::Stream(stream.clone()));
            }
        }
        Ok(())
    }

    fn look_at_channels(&mut self, sql: &mut Statements<'_>, listeners: &Listeners) -> Sql<()> {
        let Some(heard) = self.number else { return Ok(()) };
        let sql = &mut sql.coordination;
        let (last, forgotten): (i64, i64) =
            sql.notified.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut rows = sql.notifications.query([heard])?;
        while let Some(row) = rows.next()? {
            let channel = ChannelName::stored(row.get_ref(0)?.as_str()?);
            listeners.hub.wake(&Topic::Channel(channel));
        }
        if forgotten > heard {
            listeners.hub.reconnected();
        }
        self.number = Some(last);
        Ok(())
    }
}
