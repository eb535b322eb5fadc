//! What the function of commits takes and answers. It decides nothing.

use super::{ledger, records, signals, streams};
use crate::{
    packing::{Packer, Unpacker},
    replies::{Reply, next},
    requests::{self, Args},
    storage::{admission, bytes_of, cancellation, not_found, resolution, resolved},
};
use bytes::Bytes;
use rdq_spi::{
    Applied, CompareAndSet, MutationScope, NewTask, Operation, RecordName, Rejected, Result,
    StorageError, TaskId,
};

// The kinds of operations. They are stored with mutations, and stay.
const ENQUEUE: u8 = 1;
const PUBLISH: u8 = 2;
const NOTIFY: u8 = 3;
const SAVE_OFFSET: u8 = 4;
const COMPARE_AND_SET: u8 = 5;
const CANCEL: u8 = 6;
const RESOLVE: u8 = 7;
const OBSERVE: u8 = 8;

fn kind(operation: &Operation) -> u8 {
    match operation {
        Operation::Enqueue(_) => ENQUEUE,
        Operation::Publish(_) => PUBLISH,
        Operation::Notify(_) => NOTIFY,
        Operation::SaveOffset(_) => SAVE_OFFSET,
        Operation::CompareAndSet(_) => COMPARE_AND_SET,
        Operation::Cancel(_) => CANCEL,
        Operation::Resolve(_) => RESOLVE,
        Operation::Observe(_) => OBSERVE,
    }
}

/// Whether the store is larger after it, which a full server refuses.
pub(super) fn makes_something(operation: &Operation) -> bool {
    match operation {
        Operation::Enqueue(_) | Operation::Publish(_) | Operation::Observe(_) => true,
        Operation::CompareAndSet(change) => change.value.is_some(),
        Operation::Notify(_)
        | Operation::SaveOffset(_)
        | Operation::Cancel(_)
        | Operation::Resolve(_) => false,
    }
}

/// The operations, each behind an argument that says which kind it is and how many arguments it has.
/// Admissions that follow each other are one, for each stretch of a kind.
pub(super) fn args(operations: Vec<Operation>) -> Args {
    let mut args = Args::new();
    let mut tasks: Vec<NewTask> = Vec::new();
    let kinds: Vec<_> = operations.iter().skip(1).map(kind).collect();
    for operation in operations {
        if let Operation::Enqueue(task) = operation {
            tasks.push(task);
            continue;
        }
        admit(&mut args, &mut tasks);
        let kind = kind(&operation);
        let own: Args = match operation {
            Operation::Enqueue(_) => continue,
            Operation::Publish(event) => streams::event(&event).into(),
            Operation::Notify(channel) => vec![signals::topic_of_channel(&channel)],
            Operation::SaveOffset(save) => streams::save(&save).into(),
            Operation::CompareAndSet(set) => records::change(&set).into(),
            Operation::Cancel(task) => vec![bytes_of(task.as_str())],
            Operation::Resolve(resolution) => {
                let mut own = Args::new();
                requests::resolution(&mut own, resolution);
                own
            }
            // The first operation: these are the kinds of the others.
            Operation::Observe(mutation) => ledger::observation(&mutation, &kinds).into(),
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

/// What an operation of this kind did, as a commit answers it and as it is stored with a mutation.
pub(super) fn applied(kind: u8, from: &mut Unpacker<'_>) -> Option<Applied> {
    Some(match kind {
        ENQUEUE => Applied::Enqueued(admission(from.u8()?)?),
        PUBLISH => Applied::Published(from.i64()?),
        NOTIFY => Applied::Notified,
        SAVE_OFFSET => Applied::OffsetSaved(from.i64()?),
        COMPARE_AND_SET => Applied::Recorded(from.i64()?),
        CANCEL => Applied::Cancelled(cancellation(from.u8()?.into())?),
        RESOLVE => Applied::Resolved(resolution(from.array()?)?),
        OBSERVE => Applied::Observed,
        _ => return None,
    })
}

/// What an operation is answered with.
pub(super) struct Expected {
    kind: u8,
    failure: Failure,
}

/// How an operation can fail, with what its error tells.
enum Failure {
    Never,
    IdConflict(TaskId),
    CasConflict(RecordName, i64),
    NotFound(TaskId),
    NotHeld(TaskId),
    Observed(MutationScope),
}

impl Expected {
    pub(super) fn of(operation: &Operation) -> Self {
        let failure = match operation {
            Operation::Enqueue(task) => Failure::IdConflict(task.id.clone()),
            Operation::Publish(_) | Operation::Notify(_) | Operation::SaveOffset(_) => {
                Failure::Never
            }
            Operation::CompareAndSet(CompareAndSet { key, expected_revision, .. }) => {
                Failure::CasConflict(key.name.clone(), *expected_revision)
            }
            Operation::Cancel(task) => Failure::NotFound(task.clone()),
            Operation::Resolve(resolution) => Failure::NotHeld(resolution.claim.task_id.clone()),
            Operation::Observe(mutation) => Failure::Observed(mutation.scope.clone()),
        };
        Self { kind: kind(operation), failure }
    }
}

impl Failure {
    /// The error that an answer tells of.
    fn error(&self, answer: Reply) -> Option<StorageError> {
        Some(match self {
            Self::Never => return None,
            Self::IdConflict(task) => StorageError::IdConflict { task_id: task.clone() },
            Self::CasConflict(name, expected_revision) => StorageError::CasConflict {
                name: name.clone(),
                expected_revision: *expected_revision,
            },
            Self::NotFound(task) => not_found(task),
            Self::NotHeld(task) => {
                let code = answer.number()?.try_into().ok()?;
                let answer = Packer::default().u8(code).u8(0).i64(0).done();
                resolved(&mut Unpacker(&answer), task)?.err()?
            }
            Self::Observed(scope) => {
                let mutation = Box::new(ledger::found(scope, answer)??);
                StorageError::MutationObserved { mutation }
            }
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
        let error = expected.get(index)?.failure.error(answer)?;
        return Some(Err(Rejected { index: Some(index), error }));
    }
    let answer = answer.bytes()?;
    let mut from = Unpacker(&answer);
    let answers = expected.iter().map(|it| applied(it.kind, &mut from)).collect::<Option<_>>()?;
    from.is_empty().then_some(Ok(answers))
}
