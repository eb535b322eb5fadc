//! Transactions: operations that all apply, or none does, in one transaction of the database.

use super::{
    records,
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
    Applied, Operation, QueueName, Rejected, Result, StorageError, StreamName, Topic,
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

/// What operations tell of.
pub(super) fn topics(operations: &[Operation]) -> BTreeSet<Topic> {
    let topics = operations.iter().filter_map(|operation| match operation {
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

/// Runs operations and what follows, again where they lost against others. What was done is told of
/// if it was kept.
pub(super) async fn run(
    db: &Db,
    store_id: StoreId,
    announcer: &Announcer,
    operations: &[Operation],
    then: Option<&Then>,
) -> Step<Result<(Done, Read), Rejected>> {
    let is_foreseen =
        |operation: &Operation| matches!(operation, Operation::Publish(_) | Operation::Notify(_));
    if matches!(then, Some(Then::Undo)) && operations.iter().all(is_foreseen) {
        // It writes nothing.
        let done = apply(db, store_id, operations, Events::Foreseen).await?;
        return Ok(done.map(|done| (done, Read::Nothing)));
    }
    let mut runs = Runs::default();
    loop {
        let tx = db.begin(access(then)).await?;
        let ended = run_once(&tx, store_id, announcer, operations, then).await;
        if let Some(answer) = runs.settle(tx, ended).await? {
            return Ok(answer);
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
    operations: &[Operation],
    then: Option<&Then>,
) -> Step<Ended<Answer>> {
    let mut done = match apply(tx, store_id, operations, Events::before(then)).await? {
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
    done.topics = topics(operations);
    announcer.tell(tx, &done.topics).await?;
    Ok(Ended::Kept(Ok((done, read))))
}

/// Applies them in their order, up to the first that fails.
async fn apply(
    tx: &Db,
    store_id: StoreId,
    operations: &[Operation],
    events: Events,
) -> Step<Result<Done, Rejected>> {
    let mut done = Done::default();
    let mut rest = operations;
    while let Some(first) = rest.first() {
        let from = done.applied.len();
        let answers = apply_first(tx, store_id, first, rest, events, &mut done).await?;
        rest = rest.get(answers.len()..).unwrap_or_default();
        for (place, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answer) => done.applied.push(answer),
                Err(error) => return Ok(Err(Rejected { index: Some(from + place), error })),
            }
        }
    }
    Ok(Ok(done))
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
        Operation::Observe(_) => Err(StorageError::Unsupported { operation: "observe" }),
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
