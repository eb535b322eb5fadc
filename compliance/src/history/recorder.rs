//! Records calls from many tasks at once. It reads no clock: it counts.

use super::{Answer, Event, Operation, watched::Watched};
use rdq_spi::Storage;
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// A history of calls. Clones record into the same one.
///
/// Its clock is a counter that every invocation and every answer draws from: an answer with a lower
/// number came before an invocation with a higher one, with no two alike.
#[derive(Clone, Default)]
pub struct History(Arc<Inner>);

#[derive(Default)]
struct Inner {
    clock: AtomicU64,
    events: Mutex<Vec<Event>>,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Call right before sending a call. What becomes of it is told to the ticket.
    pub fn invoke(&self, operation: Operation) -> Ticket {
        let operation = Some(operation);
        Ticket { history: self.clone(), operation, invoked: self.tick() }
    }

    /// The store, with every call through it recorded here.
    pub fn watch(&self, store: Arc<dyn Storage>) -> Arc<dyn Storage> {
        Arc::new(Watched::new(store, self.clone()))
    }

    /// What was recorded so far, in the order of invocation.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        events.sort_by_key(|event| event.invoked);
        events
    }

    fn tick(&self) -> u64 {
        self.0.clock.fetch_add(1, SeqCst)
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History({} calls)", self.events().len())
    }
}

/// A call that is under way. Dropped without an answer, it may have been applied.
#[derive(Debug)]
#[must_use = "a call that is never answered counts as maybe applied"]
pub struct Ticket {
    history: History,
    /// Taken when recorded.
    operation: Option<Operation>,
    invoked: u64,
}

impl Ticket {
    /// For one more answer of the same call, as a stream has. What it brings may be as old as the
    /// call, however late it is read.
    pub fn one_more(&self) -> Self {
        let operation = self.operation.clone();
        Self { history: self.history.clone(), operation, invoked: self.invoked }
    }

    /// Call right after the answer came.
    pub fn returned(mut self, answer: Answer) {
        let returned = self.history.tick();
        self.record(Some(returned), answer);
    }

    fn record(&mut self, returned: Option<u64>, answer: Answer) {
        if let Some(operation) = self.operation.take() {
            let event = Event { operation, invoked: self.invoked, returned, answer };
            self.history.0.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.record(None, Answer::Unknown);
    }
}
