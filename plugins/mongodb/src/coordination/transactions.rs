//! Transactions: operations that all apply, or none does, in one transaction of the database.

use super::{
    ledger, records,
    session::{Ended, Runs},
    signals::Announcer,
    streams,
};
use crate::{
    admission::{self, Answered},
    database::Db,
    errors::{Access, Step},
    holding, reads,
    token::StoreId,
};
use rdq_spi::{
    Applied, Mutation, Operation, QueueName, Rejected, Result, StorageError, StreamName, Topic,
    replayed::{Read, Then},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What operations did, and whom to tell once it is committed.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) applied: Vec<Applied>,
    pub(super) dues: Vec<(QueueName, Duration)>,
    pub(super) topics: BTreeSet<Topic>,
    /// What was observed, and what came of it.
    observed: Vec<Mutation>,
    /// How many events were foreseen, by stream.
    foreseen: BTreeMap<StreamName, i64>,
}

/// The streams that operations publish to.
pub(super) fn published(operations: &[Operation]) -> BTreeSet<StreamName> {
    let streams = operations.iter().filter_map(|operation| match operation {
        Operation::Publish(event) => Some(event.stream.clone()),
        _ => None,
    });
    streams.collect()
}

/// What the operations of calls tell of.
pub(super) fn topics(calls: &[Vec<Operation>]) -> BTreeSet<Topic> {
    let topics = calls.iter().flatten().filter_map(|operation| match operation {
        Operation::Publish(event) => Some(Topic::Stream(event.stream.clone())),
        Operation::Notify(channel) => Some(Topic::Channel(channel.clone())),
        _ => None,
    });
    topics.collect()
}

/// Whether what is run is to happen, with this after it.
pub(super) fn access(then: Option<&Then>) -> Access {
    match then {
        None | Some(Then::Commit(_)) => Access::Write,
        Some(Then::Undo | Then::Get(_) | Then::Read(_) | Then::Offset(..)) => Access::Read,
    }
}

/// Runs the operations of calls and what follows, again where they lost against others. What was done
/// is told of if it was kept.
pub(super) async fn run(
    db: &Db,
    store_id: StoreId,
    announcer: &Announcer,
    calls: &[Vec<Operation>],
    then: Option<&Then>,
) -> Step<Result<(Done, Read), Rejected>> {
    let is_foreseen =
        |operation: &Operation| matches!(operation, Operation::Publish(_) | Operation::Notify(_));
    if matches!(then, Some(Then::Undo)) && calls.iter().flatten().all(is_foreseen) {
        // It writes nothing.
        let done = apply(db, store_id, calls, Events::Foreseen).await?;
        return Ok(done.map(|done| (done, Read::Nothing)));
    }
    let mut runs = Runs::default();
    loop {
        let tx = db.begin(access(then)).await?;
        let ended = run_once(&tx, store_id, announcer, calls, then).await;
        if let Some(answer) = runs.settle(tx, ended).await? {
            return Ok(answer);
        }
        if let Some(rejected) = ledger::observed_before(db, calls).await? {
            return Ok(Err(rejected));
        }
    }
}

/// What becomes of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Events {
    Published,
    /// Nobody will see them: their offsets are all there is to know.
    Foreseen,
}

impl Events {
    fn before(then: Option<&Then>) -> Self {
        match then {
            None | Some(Then::Commit(_) | Then::Read(_)) => Self::Published,
            Some(Then::Undo | Then::Get(_) | Then::Offset(..)) => Self::Foreseen,
        }
    }
}

type Answer = Result<(Done, Read), Rejected>;

async fn run_once(
    tx: &Db,
    store_id: StoreId,
    announcer: &Announcer,
    calls: &[Vec<Operation>],
    then: Option<&Then>,
) -> Step<Ended<Answer>> {
    let mut done = match apply(tx, store_id, calls, Events::before(then)).await? {
        Ok(done) => done,
        Err(rejected) => return Ok(Ended::Undone(Err(rejected))),
    };
    let read = match then {
        None => Read::Nothing,
        Some(Then::Commit(expected)) => {
            if !done.applied.iter().zip(expected).all(|(now, then)| now.agrees(then)) {
                let error = StorageError::Contention { operation: "commit" };
                return Ok(Ended::Undone(Err(error.into())));
            }
            Read::Nothing
        }
        Some(then) => {
            let read = match then {
                Then::Get(task) => match reads::get(tx, task).await? {
                    Some(task) => Ok(Read::Task(Box::new(task))),
                    None => Err(StorageError::NotFound { task_id: task.clone() }.into()),
                },
                Then::Read(params) => Ok(Read::Events(streams::read(tx, params).await?)),
                Then::Offset(stream, consumer) => {
                    Ok(Read::Offset(streams::saved_offset(tx, stream, consumer).await?))
                }
                Then::Undo | Then::Commit(_) => Ok(Read::Nothing),
            };
            return Ok(Ended::Undone(read.map(|read| (done, read))));
        }
    };
    done.topics = topics(calls);
    announcer.tell(tx, &done.topics).await?;
    Ok(Ended::Kept(Ok((done, read))))
}

/// Applies the operations of calls in their order, up to the first that fails.
async fn apply(
    tx: &Db,
    store_id: StoreId,
    calls: &[Vec<Operation>],
    events: Events,
) -> Step<Result<Done, Rejected>> {
    let mut done = Done::default();
    for operations in calls {
        if let Err(rejected) = apply_call(tx, store_id, operations, events, &mut done).await? {
            return Ok(Err(rejected));
        }
    }
    Ok(Ok(done))
}

/// Applies the operations of one call. If it observes a mutation, the others' answers are kept.
async fn apply_call(
    tx: &Db,
    store_id: StoreId,
    operations: &[Operation],
    events: Events,
    done: &mut Done,
) -> Step<Result<(), Rejected>> {
    let before = done.applied.len();
    let observed = match Operation::observation(operations) {
        Ok(observed) => observed,
        Err(rejected) => return Ok(Err(rejected.after(before))),
    };
    let mut rest = operations;
    while let Some(first) = rest.first() {
        let from = done.applied.len();
        let answers = apply_first(tx, store_id, first, rest, events, done).await?;
        rest = rest.get(answers.len()..).unwrap_or_default();
        for (place, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answer) => done.applied.push(answer),
                Err(error) => return Ok(Err(Rejected { index: Some(from + place), error })),
            }
        }
    }
    if observed.is_some()
        && let Some(mutation) = done.observed.last_mut()
    {
        let effects = done.applied.get(before + 1..).unwrap_or_default();
        ledger::complete(tx, mutation, effects).await?;
    }
    Ok(Ok(()))
}

/// Applies the first of these, and with it those of its kind that follow it where they are a few
/// commands together.
async fn apply_first(
    tx: &Db,
    store_id: StoreId,
    first: &Operation,
    operations: &[Operation],
    fate: Events,
    done: &mut Done,
) -> Step<Vec<Result<Applied>>> {
    let dues = &mut done.dues;
    let answer = match first {
        Operation::Publish(_) => {
            let events = operations.iter().map_while(|operation| match operation {
                Operation::Publish(event) => Some(event),
                _ => None,
            });
            let events: Vec<_> = events.collect();
            let offsets = match fate {
                Events::Published => streams::publish(tx, &events).await?,
                Events::Foreseen => streams::foresee(tx, &events, &mut done.foreseen).await?,
            };
            return Ok(offsets.into_iter().map(|offset| Ok(Applied::Published(offset))).collect());
        }
        Operation::Enqueue(_) => {
            let tasks = operations.iter().map_while(|operation| match operation {
                Operation::Enqueue(task) => Some(task),
                _ => None,
            });
            let answers = admission::enqueue_within(tx, &tasks.collect::<Vec<_>>()).await?;
            return Ok(of(answers, dues, Applied::Enqueued));
        }
        Operation::Cancel(task) => {
            return Ok(of(holding::cancel(tx, &[task]).await?, dues, Applied::Cancelled));
        }
        Operation::Resolve(resolution) => {
            let answers = holding::judge_each(tx, store_id, &[resolution]).await?;
            return Ok(of(answers, dues, Applied::Resolved));
        }
        Operation::Notify(_) => Ok(Applied::Notified),
        Operation::SaveOffset(save) => {
            Ok(Applied::OffsetSaved(streams::save_offset(tx, save).await?))
        }
        Operation::CompareAndSet(change) => {
            records::compare_and_set(tx, change).await?.map(Applied::Recorded)
        }
        Operation::Observe(mutation) => ledger::observe(tx, mutation, &mut done.observed).await?,
    };
    Ok(vec![answer])
}

/// Answers about tasks, as those of operations; who is to be hinted is noted.
fn of<T>(
    answers: Vec<Answered<T>>,
    dues: &mut Vec<(QueueName, Duration)>,
    applied: impl Fn(T) -> Applied,
) -> Vec<Result<Applied>> {
    let answers = answers.into_iter().map(|(answer, due)| {
        dues.extend(due);
        answer.map(&applied)
    });
    answers.collect()
}
