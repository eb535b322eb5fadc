//! Transactions: each operation as the request of its own.

use super::{
    answer::{enqueue_response, resolved_claim},
    coordination::{channel, compare_and_set, delete_record, new_event, save_offset},
    outbox::{held_message, new_message, release_message},
    request::task_id,
    resolution::resolution,
    task::{status, submission},
};
use crate::status::Refusal;
use rdq_engine::{OperationError, TransactionOperation};
use rdq_proto::{
    time,
    v1::{self, operation::Operation as Wire, operation_result::Result as WireResult},
};
use rdq_spi::{Applied, TaskId};

const OPERATIONS_MAX: usize = 1_000;

/// What was asked, as far as answers need it.
pub(crate) struct Asked {
    /// The member of the operation.
    kind: &'static str,
    /// What an enqueued task or message is called.
    id: Option<TaskId>,
}

/// The operations of a commit: all are of the contract, or none goes to the engine.
pub(crate) fn operations(
    from: v1::CommitRequest,
) -> Result<(Vec<TransactionOperation>, Vec<Asked>), Refusal> {
    at_least(1, from.operations)
}

/// The same of a mutation, which may have none.
pub(crate) fn effects(
    from: Vec<v1::Operation>,
) -> Result<(Vec<TransactionOperation>, Vec<Asked>), Refusal> {
    at_least(0, from)
}

fn at_least(
    min: usize,
    from: Vec<v1::Operation>,
) -> Result<(Vec<TransactionOperation>, Vec<Asked>), Refusal> {
    let count = from.len();
    if !(min..=OPERATIONS_MAX).contains(&count) {
        let message = format!("`operations` must have {min} to {OPERATIONS_MAX} items");
        return Err(Refusal::invalid("operations", message));
    }
    let (mut operations, mut asked) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for (index, operation) in from.into_iter().enumerate() {
        let kind = kind(&operation);
        let operation = self::operation(operation).map_err(|refusal| Refusal::Operation {
            index,
            kind,
            refusal: Box::new(refusal),
        })?;
        let id = match &operation {
            TransactionOperation::Enqueue(submission) => Some(submission.task.id.clone()),
            TransactionOperation::EnqueueMessage(message) => Some(message.id.clone()),
            _ => None,
        };
        asked.push(Asked { kind, id });
        operations.push(operation);
    }
    Ok((operations, asked))
}

fn kind(operation: &v1::Operation) -> &'static str {
    match &operation.operation {
        None => "operation",
        Some(Wire::Enqueue(_)) => "enqueue",
        Some(Wire::Publish(_)) => "publish",
        Some(Wire::Notify(_)) => "notify",
        Some(Wire::SaveOffset(_)) => "save_offset",
        Some(Wire::OutboxEnqueue(_)) => "outbox_enqueue",
        Some(Wire::CompareAndSet(_)) => "compare_and_set",
        Some(Wire::DeleteRecord(_)) => "delete_record",
        Some(Wire::Cancel(_)) => "cancel",
        Some(Wire::Resolve(_)) => "resolve",
        Some(Wire::MarkProjected(_)) => "mark_projected",
        Some(Wire::ReleaseWithError(_)) => "release_with_error",
    }
}

fn operation(from: v1::Operation) -> Result<TransactionOperation, Refusal> {
    use TransactionOperation as T;
    Ok(match from.operation {
        None => {
            let message = "an operation must have exactly one member";
            return Err(Refusal::invalid("", message));
        }
        Some(Wire::Enqueue(from)) => T::Enqueue(submission(&from.task)?),
        Some(Wire::Publish(from)) => T::Publish(new_event(from)?),
        Some(Wire::Notify(from)) => {
            T::Notify { channel: channel(&from.channel)?, payload_bytes: from.payload.len() }
        }
        Some(Wire::SaveOffset(from)) => T::SaveOffset(save_offset(&from)?),
        Some(Wire::OutboxEnqueue(from)) => T::EnqueueMessage(new_message(from)?),
        Some(Wire::CompareAndSet(from)) => T::ChangeRecord(compare_and_set(from)?),
        Some(Wire::DeleteRecord(from)) => T::ChangeRecord(delete_record(&from)?),
        Some(Wire::Cancel(from)) => T::Cancel(task_id(&from.id)?),
        Some(Wire::Resolve(from)) => T::Resolve(resolution(from)?),
        Some(Wire::MarkProjected(from)) => {
            T::MarkProjected(held_message(&from.id, &from.worker_id, from.generation)?)
        }
        Some(Wire::ReleaseWithError(from)) => {
            let (claim, attempt, delay) = release_message(from)?;
            T::ReleaseMessage { claim, attempt, delay }
        }
    })
}

/// Why the engine did not apply them, by the operation that it is about.
pub(crate) fn operation_refusal(error: OperationError, asked: &[Asked]) -> Refusal {
    let OperationError { index, error } = error;
    match index.and_then(|index| Some((index, asked.get(index)?.kind))) {
        Some((index, kind)) => {
            Refusal::Operation { index, kind, refusal: Box::new(Refusal::Engine(error)) }
        }
        None => Refusal::Engine(error),
    }
}

/// The answer of a commit.
pub(crate) fn commit_response(
    asked: Vec<Asked>,
    applied: Vec<Applied>,
) -> Result<v1::CommitResponse, Refusal> {
    Ok(v1::CommitResponse { results: results(asked, applied)? })
}

/// What each operation was answered.
pub(crate) fn results(
    asked: Vec<Asked>,
    applied: Vec<Applied>,
) -> Result<Vec<v1::OperationResult>, Refusal> {
    let results = asked.into_iter().zip(applied).map(|(asked, applied)| {
        let kind = asked.kind;
        let result = result(asked, applied);
        let missing = || Refusal::internal(&format!("no answer to a `{kind}` is {applied:?}"));
        Ok(v1::OperationResult { result: Some(result.ok_or_else(missing)?) })
    });
    results.collect()
}

fn result(asked: Asked, applied: Applied) -> Option<WireResult> {
    Some(match (asked.kind, applied) {
        ("enqueue", Applied::Enqueued(admission)) => {
            WireResult::Enqueue(enqueue_response(asked.id?, admission))
        }
        ("outbox_enqueue", Applied::Enqueued(admission)) => {
            WireResult::OutboxEnqueue(v1::OutboxServiceEnqueueResponse {
                id: asked.id?.into(),
                created: admission.created,
            })
        }
        (_, Applied::Published(offset)) => WireResult::Publish(v1::PublishResponse { offset }),
        (_, Applied::Notified) => WireResult::Notify(v1::NotifyResponse {}),
        (_, Applied::OffsetSaved(offset)) => {
            WireResult::SaveOffset(v1::SaveOffsetResponse { offset })
        }
        ("delete_record", Applied::Recorded(_)) => {
            WireResult::DeleteRecord(v1::DeleteRecordResponse {})
        }
        (_, Applied::Recorded(revision)) => {
            WireResult::CompareAndSet(v1::CompareAndSetResponse { revision })
        }
        (_, Applied::Cancelled(cancelled)) => WireResult::Cancel(v1::CancelResponse {
            status: status(cancelled.status).into(),
            cancelled: cancelled.changed,
        }),
        ("mark_projected", Applied::Resolved(resolved)) => {
            WireResult::MarkProjected(v1::MarkProjectedResponse { replayed: resolved.replayed })
        }
        ("release_with_error", Applied::Resolved(resolved)) => {
            let available_at = resolved.next_attempt_at.map(|at| time::timestamp(at.millis()));
            WireResult::ReleaseWithError(v1::ReleaseWithErrorResponse { available_at })
        }
        (_, Applied::Resolved(resolved)) => WireResult::Resolve(resolved_claim(resolved)),
        (_, Applied::Enqueued(_) | Applied::Observed) => return None,
    })
}
