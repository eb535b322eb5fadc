//! Whose turn it is among the queues of a claim. It is kept in memory: each server is fair by itself,
//! and then all of them are.

use rdq_spi::QueueName;
use std::{collections::HashMap, sync::Mutex, sync::PoisonError};

/// Queues remembered: beyond it all begin anew, which is fair too.
const QUEUES_MAX: usize = 10_000;

/// When each queue was served last, counted in services.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    services: u64,
    last: HashMap<QueueName, u64>,
}

impl Turns {
    /// Puts a claim's queues in the order of their turns: that first which was served least recently.
    /// Those that will be served if all have something count as served from now on, so that another
    /// claim of the same call has others first.
    pub(crate) fn arrange<T>(
        &self,
        queues: &mut [T],
        limit: usize,
        name: impl Fn(&T) -> &QueueName,
    ) {
        if queues.len() < 2 {
            return;
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.sort_by_key(|queue| state.last.get(name(queue)).copied().unwrap_or_default());
        if state.last.len() > QUEUES_MAX {
            state.last.clear();
        }
        for queue in queues.iter().take(limit) {
            state.serve(name(queue));
        }
    }

    /// The queue gave tasks to a claim.
    pub(crate) fn serve(&self, queue: &QueueName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).serve(queue);
    }
}

impl State {
    fn serve(&mut self, queue: &QueueName) {
        self.services += 1;
        self.last.insert(queue.clone(), self.services);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_one_call_begin_with_different_queues() {
        let turns = Turns::default();
        let names = ["a", "b", "c"].map(|name| QueueName::new(name).unwrap());
        let first_of = |limit| {
            let mut queues = names.clone();
            turns.arrange(&mut queues, limit, |name| name);
            queues[0].as_str().to_owned()
        };
        assert_eq!([first_of(1), first_of(1), first_of(1), first_of(1)], ["a", "b", "c", "a"]);
        turns.serve(&names[1]);
        assert_eq!(first_of(1), "c", "the one served least recently");
    }
}
