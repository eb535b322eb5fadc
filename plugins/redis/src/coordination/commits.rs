//! What the function of commits takes and answers. It decides nothing.

use super::{records, signals, streams};
use crate::{
    packing::{Packer, Unpacker},
    replies::{Reply, next},
    requests::{self, Args},
    storage::{bytes_of, cancelled, not_found, read_admission, resolved},
};
use bytes::Bytes;
use rdq_spi::{
    Applied, CompareAndSet, NewTask, Operation, RecordName, Rejected, Result, StorageError, TaskId,
};

const ENQUEUE: u8 = 1;
const PUBLISH: u8 = 2;
const NOTIFY: u8 = 3;
const SAVE_OFFSET: u8 = 4;
const COMPARE_AND_SET: u8 = 5;
const CANCEL: u8 = 6;
const RESOLVE: u8 = 7;

/// Whether the store is larger after it, which a full server refuses.
pub(super) fn makes_something(operation: &Operation) -> bool {
    match operation {
        Operation::Enqueue(_) | Operation::Publish(_) => true,
        Operation::CompareAndSet(change) => change.value.is_some(),
        Operation::Notify(_)
        | Operation::SaveOffset(_)
        | Operation::Cancel(_)
        | Operation::Resolve(_)
        | Operation::Observe(_) => false,
    }
}

/// The operations, each behind an argument that says which kind it is and how many arguments it has.
/// Admissions that follow each other are one, for each stretch of a kind.
pub(super) fn args(operations: Vec<Operation>) -> Args {
    let mut args = Args::new();
    let mut tasks: Vec<NewTask> = Vec::new();
    for operation in operations {
        if let Operation::Enqueue(task) = operation {
            tasks.push(task);
            continue;
        }
        admit(&mut args, &mut tasks);
        let (kind, own): (u8, Args) = match operation {
            // An observation was refused before.
            Operation::Enqueue(_) | Operation::Observe(_) => continue,
            Operation::Publish(event) => (PUBLISH, streams::event(&event).into()),
            Operation::Notify(channel) => (NOTIFY, vec![signals::topic_of_channel(&channel)]),
            Operation::SaveOffset(save) => (SAVE_OFFSET, streams::save(&save).into()),
            Operation::CompareAndSet(set) => (COMPARE_AND_SET, records::change(&set).into()),
            Operation::Cancel(task) => (CANCEL, vec![bytes_of(task.as_str())]),
            Operation::Resolve(resolution) => {
                let mut own = Args::new();
                requests::resolution(&mut own, resolution);
                (RESOLVE, own)
            }
        };
        args.push(head(kind, own.len()));
        args.extend(own);
    }
    admit(&mut args, &mut tasks);
    args
}

fn admit(args: &mut Args, tasks: &mut Vec<NewTask>) {
    for stretch in requests::stretches(std::mem::take(tasks)) {
        args.push(head(ENQUEUE, stretch.len()));
        args.extend(stretch);
    }
}

fn head(kind: u8, len: usize) -> Bytes {
    Packer::default().u8(kind).len32(len).done()
}

/// What an operation is answered with.
pub(super) enum Expected {
    Admission(TaskId),
    Offset,
    Nothing,
    Saved,
    Revision(RecordName, i64),
    Cancellation(TaskId),
    Resolution(TaskId),
}

impl Expected {
    pub(super) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Enqueue(task) => Self::Admission(task.id.clone()),
            Operation::Publish(_) => Self::Offset,
            Operation::Notify(_) | Operation::Observe(_) => Self::Nothing,
            Operation::SaveOffset(_) => Self::Saved,
            Operation::CompareAndSet(CompareAndSet { key, expected_revision, .. }) => {
                Self::Revision(key.name.clone(), *expected_revision)
            }
            Operation::Cancel(task) => Self::Cancellation(task.clone()),
            Operation::Resolve(resolution) => Self::Resolution(resolution.claim.task_id.clone()),
        }
    }

    fn read(&self, from: &mut Unpacker<'_>) -> Option<Applied> {
        Some(match self {
            Self::Admission(task) => Applied::Enqueued(read_admission(from, task)?.ok()?),
            Self::Offset => Applied::Published(from.i64()?),
            Self::Nothing => Applied::Notified,
            Self::Saved => Applied::OffsetSaved(from.i64()?),
            Self::Revision(..) => Applied::Recorded(from.i64()?),
            Self::Cancellation(task) => {
                Applied::Cancelled(cancelled(from.u8()?.into(), task)?.ok()?)
            }
            Self::Resolution(task) => Applied::Resolved(resolved(from, task)?.ok()?),
        })
    }

    /// The error of this number.
    fn error(&self, number: i64) -> Option<StorageError> {
        Some(match self {
            Self::Admission(task) => StorageError::IdConflict { task_id: task.clone() },
            Self::Revision(name, expected_revision) => StorageError::CasConflict {
                name: name.clone(),
                expected_revision: *expected_revision,
            },
            Self::Cancellation(task) => not_found(task),
            Self::Resolution(task) => {
                let answer = Packer::default().u8(number.try_into().ok()?).u8(0).i64(0).done();
                resolved(&mut Unpacker(&answer), task)?.err()?
            }
            Self::Offset | Self::Nothing | Self::Saved => return None,
        })
    }
}

/// What each operation did, or which of them failed.
pub(super) fn answers(
    reply: Reply,
    expected: &[Expected],
) -> Option<Result<Vec<Applied>, Rejected>> {
    let mut parts = reply.list()?;
    let failed = next(&mut parts)?.number()?;
    let answer = next(&mut parts)?;
    if let Ok(index) = usize::try_from(failed) {
        let error = expected.get(index)?.error(answer.number()?)?;
        return Some(Err(Rejected { index: Some(index), error }));
    }
    let answer = answer.bytes()?;
    let mut from = Unpacker(&answer);
    let applied = expected.iter().map(|it| it.read(&mut from)).collect::<Option<_>>()?;
    from.is_empty().then_some(Ok(applied))
}
