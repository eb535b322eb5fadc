//! What a transaction changed, and how to take it back.

use crate::{entry::Entry, records::Slot, state::State};
use rdq_spi::{ConsumerName, MutationScope, RecordKey, StreamName, Timestamp};

/// One step back.
#[derive(Debug)]
pub(crate) enum Undo {
    /// A task was this, or was not there.
    Task(u64, Option<Box<Entry>>),
    /// The stream's newest event was not there.
    Publish(StreamName),
    /// The consumer had saved this, or nothing.
    SaveOffset(StreamName, ConsumerName, Option<i64>),
    /// The record was this, or was never there.
    Record(RecordKey, Option<Slot>),
    /// The mutation was not recorded.
    Mutation(MutationScope),
}

/// The steps back to where a transaction began. Outside of one nothing is noted.
#[derive(Debug, Default)]
pub(crate) struct UndoLog(Option<Vec<Undo>>);

impl UndoLog {
    pub(crate) fn note(&mut self, step: impl FnOnce() -> Undo) {
        if let Some(steps) = &mut self.0 {
            steps.push(step());
        }
    }
}

impl State {
    /// Runs `work` as a whole: if it says so, everything that it changed is taken back.
    pub(crate) fn attempt<T>(
        &mut self,
        now: Timestamp,
        work: impl FnOnce(&mut Self) -> T,
        keep: impl FnOnce(&T) -> bool,
    ) -> T {
        let wakes = self.wakes.len();
        self.undo = UndoLog(Some(Vec::new()));
        let answer = work(self);
        let steps = std::mem::take(&mut self.undo).0.unwrap_or_default();
        if !keep(&answer) {
            self.wakes.truncate(wakes);
            for step in steps.into_iter().rev() {
                self.take_back(step, now);
            }
        }
        answer
    }

    fn take_back(&mut self, step: Undo, now: Timestamp) {
        match step {
            Undo::Task(admitted, before) => {
                self.remove(admitted);
                if let Some(entry) = before {
                    self.insert(entry, now);
                }
            }
            Undo::Publish(stream) => {
                if let Some(log) = self.streams.get_mut(&stream) {
                    log.events.remove(&log.last_offset);
                    log.last_offset -= 1;
                }
            }
            Undo::SaveOffset(stream, consumer, before) => {
                if let Some(log) = self.streams.get_mut(&stream) {
                    match before {
                        Some(offset) => log.saved.insert(consumer, offset),
                        None => log.saved.remove(&consumer),
                    };
                }
            }
            Undo::Record(key, before) => {
                match before {
                    Some(slot) => self.slots.insert(key, slot),
                    None => self.slots.remove(&key),
                };
            }
            Undo::Mutation(scope) => self.mutations.remove(&scope),
        }
    }
}
