//! Callers and a system, simulated from a seed: calls overlap, requests and answers get lost, workers
//! stall past their leases. The system may have one bug.

mod system;

use rdq_compliance::{
    Random,
    history::{Answer, Grant, History, Operation, Outcome, Ticket, Truth},
};
use rdq_spi::{Call, TaskId};
use std::time::Duration;
pub(crate) use system::Bug;
use system::{LEASE, MAX_ATTEMPTS, System};

const CALLERS: usize = 6;
const STEPS: usize = 3_000;
const TASKS: usize = 50;
const CALLS: [Call; 5] =
    [Call::Complete, Call::Reschedule, Call::DeadLetter, Call::Fail, Call::Release];

/// A history of a system with this bug, and what was found at its end.
pub(crate) fn simulate(seed: u64, bug: Bug) -> (History, Truth) {
    let history = History::new();
    let mut world = World {
        random: Random::seeded(seed),
        system: System::new(bug, seed),
        history: history.clone(),
        held: Vec::new(),
        callers: (0..CALLERS).map(|_| None).collect(),
        admitted: 0,
        faults: true,
    };
    for _ in 0..STEPS {
        world.step();
    }
    // Heal and drain: no more losses, and workers that only complete.
    world.faults = false;
    world.held.clear();
    for _ in 0..60 * TASKS {
        world.step();
        if world.is_idle() && world.system.states().values().all(|status| status.is_terminal()) {
            break;
        }
    }
    let states = world.system.states();
    (history, Truth { states, max_attempts: Some(MAX_ATTEMPTS) })
}

struct World {
    random: Random,
    system: System,
    history: History,
    held: Vec<Grant>,
    callers: Vec<Option<Pending>>,
    admitted: usize,
    faults: bool,
}

/// A call under way: sent, then applied, then answered.
struct Pending {
    ticket: Ticket,
    operation: Operation,
    answer: Option<Answer>,
}

impl World {
    fn step(&mut self) {
        self.system.pass(self.random.below(3));
        let caller = self.random.below(CALLERS);
        match self.callers[caller].take() {
            None => {
                let operation = self.operation();
                let ticket = self.history.invoke(operation.clone());
                self.callers[caller] = Some(Pending { ticket, operation, answer: None });
            }
            Some(lost) if self.faults && self.random.percent(2) => drop(lost.ticket),
            Some(mut pending) => match pending.answer.take() {
                None => {
                    let answer = self.system.apply(&pending.operation, &mut self.random);
                    self.callers[caller] = Some(Pending { answer: Some(answer), ..pending });
                }
                Some(answer) => {
                    if let Answer::Ok(Outcome::Claimed(grants)) = &answer {
                        self.held.extend(grants.iter().cloned());
                    }
                    pending.ticket.returned(answer);
                }
            },
        }
    }

    fn is_idle(&self) -> bool {
        self.callers.iter().all(Option::is_none)
    }

    /// What a caller asks next.
    fn operation(&mut self) -> Operation {
        if self.faults && self.admitted < TASKS && self.random.percent(15) {
            self.admitted += 1;
            let task = task_id(self.admitted);
            let due = self.random.percent(50).then(|| {
                let delay = Duration::from_millis(self.random.next_u64() % 200);
                self.system.now().after(delay)
            });
            return Operation::Enqueue { task, due };
        }
        if !self.faults && self.held.is_empty() && self.random.percent(50) {
            // Time passes: only so do all callers come to rest.
            self.system.pass(100);
        }
        if self.held.is_empty() || self.random.percent(40) {
            return Operation::Claim;
        }
        let index = self.random.below(self.held.len());
        let grant = self.held[index].clone();
        if !self.faults {
            self.held.remove(index);
            return Operation::Resolve {
                task: grant.task,
                token: grant.token,
                call: Call::Complete,
            };
        }
        match self.random.below(100) {
            0..4 => Operation::Cancel { task: grant.task },
            4..40 => {
                let lease = LEASE * u32::try_from(1 + self.random.below(2)).expect("small");
                let strict = self.random.percent(50);
                Operation::Extend { task: grant.task, token: grant.token, lease, strict }
            }
            n => {
                // Most are done with it; some repeat themselves, or come back much later.
                if n < 70 {
                    self.held.remove(index);
                }
                let call = CALLS[self.random.below(5)];
                Operation::Resolve { task: grant.task, token: grant.token, call }
            }
        }
    }
}

fn task_id(number: usize) -> TaskId {
    TaskId::new(format!("task-{number}")).expect("an id")
}
