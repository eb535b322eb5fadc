//! Streams: events in one order each, and the offsets of those who read them.

use crate::{admission::detach, state::State, undo::Undo};
use rdq_spi::{
    ConsumerName, NewEvent, ReadFrom, ReadParams, SaveOffset, StreamEvent, StreamName, Timestamp,
    Topic, TrimParams, Trimmed,
};
use std::collections::{BTreeMap, HashMap};

/// One stream. It is never removed, so that its offsets only grow.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    pub(crate) last_offset: i64,
    pub(crate) events: BTreeMap<i64, StreamEvent>,
    pub(crate) saved: HashMap<ConsumerName, i64>,
}

impl State {
    pub(crate) fn publish(&mut self, mut event: NewEvent, now: Timestamp) -> i64 {
        detach(&mut event.payload);
        let NewEvent { stream, key, payload } = event;
        let log = self.streams.entry(stream.clone()).or_default();
        log.last_offset += 1;
        let offset = log.last_offset;
        log.events.insert(offset, StreamEvent { offset, key, payload, created_at: now });
        self.undo.note(|| Undo::Publish(stream.clone()));
        self.wakes.push(Topic::Stream(stream));
        offset
    }

    pub(crate) fn read(&self, params: &ReadParams) -> Vec<StreamEvent> {
        let Some(log) = self.streams.get(&params.stream) else { return Vec::new() };
        let after = match &params.from {
            ReadFrom::Offset(offset) => *offset,
            ReadFrom::Consumer(consumer) => log.saved.get(consumer).copied().unwrap_or(0),
        };
        let Some(first) = after.checked_add(1) else { return Vec::new() };
        let mut bytes = 0;
        let fits = |event: &&StreamEvent| {
            let is_first = bytes == 0;
            bytes += event.payload.len() + event.key.as_ref().map_or(1, |key| key.as_str().len());
            is_first || bytes <= params.bytes_max
        };
        let events = log.events.range(first..).map(|(_, event)| event);
        events.take(params.limit as usize).take_while(fits).cloned().collect()
    }

    pub(crate) fn save_offset(&mut self, save: SaveOffset) -> i64 {
        let SaveOffset { stream, consumer, offset } = save;
        let before = self.offset(&stream, &consumer);
        if offset <= before {
            return before;
        }
        let log = self.streams.entry(stream.clone()).or_default();
        let before = log.saved.insert(consumer.clone(), offset);
        self.undo.note(|| Undo::SaveOffset(stream, consumer, before));
        offset
    }

    pub(crate) fn offset(&self, stream: &StreamName, consumer: &ConsumerName) -> i64 {
        self.streams.get(stream).and_then(|log| log.saved.get(consumer)).copied().unwrap_or(0)
    }

    pub(crate) fn trim(&mut self, params: &TrimParams) -> Trimmed {
        let Some(log) = self.streams.get_mut(&params.stream) else { return Trimmed::default() };
        let mut count = 0;
        while let Some(first) = log.events.first_entry() {
            if *first.key() > params.horizon {
                break;
            }
            if count == u64::from(params.limit) {
                return Trimmed { count, more: true };
            }
            first.remove();
            count += 1;
        }
        Trimmed { count, more: false }
    }
}
