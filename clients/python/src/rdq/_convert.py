"""Between the contract's messages and the types of the public API."""

from __future__ import annotations

from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from ._stubs.v1 import queue_service_pb2, task_pb2, task_service_pb2
from ._time import from_timestamp, to_duration, to_timestamp
from .queues import Queue, QueueConfig, VersionMismatch
from .tasks import (
    Admission,
    Attempt,
    AttemptError,
    AttemptOutcome,
    Capabilities,
    DlqFilter,
    NewTask,
    QueueStats,
    Task,
    TaskStatus,
)


def encoded(text: bytes | str) -> bytes:
    """Bytes as they are, and text as UTF-8."""
    return text.encode() if isinstance(text, str) else bytes(text)


def new_task(new: NewTask, task_id: str) -> task_pb2.Task:
    """The envelope of a new task.

    Raises:
        ValueError: text that is no UTF-8, a number out of range, or an instant without a time zone.
    """
    message = task_pb2.Task(
        id=task_id,
        queue=new.queue,
        handler_ref=new.handler_ref,
        handler_version=new.handler_version,
        payload=encoded(new.payload),
        payload_content_type=new.content_type,
        headers=new.headers,
        priority=new.priority,
        max_attempts=new.max_attempts,
        lease=to_duration(new.lease),
        initial_backoff=to_duration(new.initial_backoff),
        retention_dead=to_duration(new.retention_dead),
        delay=to_duration(new.delay),
        next_attempt_at=to_timestamp(new.due_at),
        expires_in=to_duration(new.expires_in),
        expires_at=to_timestamp(new.expires_at),
    )
    if new.extra:
        message.MergeFromString(new.extra)
    return message


def task(message: task_pb2.Task) -> Task:
    """A task as the server told it."""
    return Task(
        id=message.id,
        queue=message.queue,
        handler_ref=message.handler_ref,
        handler_version=message.handler_version if message.HasField("handler_version") else None,
        payload=message.payload,
        content_type=message.payload_content_type,
        headers=dict(message.headers),
        priority=message.priority,
        max_attempts=message.max_attempts if message.HasField("max_attempts") else None,
        lease=_span(message, "lease"),
        initial_backoff=_span(message, "initial_backoff"),
        retention_dead=_span(message, "retention_dead"),
        status=status(message.status),
        attempt_count=message.attempt_count,
        redrive_count=message.redrive_count,
        lease_expired_count=message.lease_expired_count,
        progress=message.progress,
        result=message.result,
        claimed_at=_instant(message, "claimed_at"),
        claimed_by=message.claimed_by,
        next_attempt_at=_instant(message, "next_attempt_at"),
        lease_expires_at=_instant(message, "lease_expires_at"),
        expires_at=_instant(message, "expires_at"),
        created_at=_instant(message, "created_at"),
        finished_at=_instant(message, "finished_at"),
        attempts=tuple(_attempt(attempt) for attempt in message.attempts),
        raw=message.SerializeToString(),
    )


def status(value: int) -> TaskStatus:
    """A status; UNKNOWN for one of a newer contract."""
    try:
        return TaskStatus(value)
    except ValueError:
        return TaskStatus.UNKNOWN


def admission(message: task_service_pb2.EnqueueResponse, *, own_id: bool) -> Admission:
    """What became of a task.

    Args:
        message: The answer.
        own_id: The client made the id: whatever admitted it was an earlier try of the same call.
    """
    return Admission(id=message.id, created=message.created or own_id, status=status(message.status))


def dlq_filter(where: DlqFilter | None) -> task_service_pb2.DlqFilter | None:
    """A filter; None stays None."""
    if where is None:
        return None
    return task_service_pb2.DlqFilter(
        error_type=where.error_type,
        handler_ref=where.handler_ref,
        dead_lettered_from=to_timestamp(where.dead_lettered_from),
        dead_lettered_to=to_timestamp(where.dead_lettered_to),
    )


def queue_stats(message: task_service_pb2.QueueStats) -> QueueStats:
    """A snapshot of a queue."""
    return QueueStats(
        queue=message.queue,
        pending=message.pending,
        ready=message.ready,
        delayed=message.delayed,
        in_flight=message.in_flight,
        lapsed=message.lapsed,
        dlq_depth=message.dlq_depth,
        succeeded=message.succeeded,
        cancelled=message.cancelled,
        oldest_pending_age=_span(message, "oldest_pending_age"),
    )


def capabilities(message: task_service_pb2.GetCapabilitiesResponse) -> Capabilities:
    """What a server offers."""
    known = task_service_pb2.Durability.DESCRIPTOR.values_by_number.get(message.durability)
    durability = known.name.removeprefix("DURABILITY_") if known is not None and known.number else ""
    return Capabilities(
        contract_version=message.contract_version,
        server_version=message.server_version,
        durability=durability,
        capabilities=tuple(message.capabilities),
    )


def to_queue_config(config: QueueConfig) -> queue_service_pb2.QueueConfig:
    """What to store of a configuration: only what is set."""
    message = queue_service_pb2.QueueConfig(paused=config.paused)
    retry = queue_service_pb2.RetryConfig(
        max_attempts=config.max_attempts,
        initial_backoff=to_duration(config.initial_backoff),
        multiplier=config.multiplier,
        max_backoff=to_duration(config.max_backoff),
        jitter=config.jitter,
    )
    classification = queue_service_pb2.ClassificationConfig(retryable=config.retryable, permanent=config.permanent)
    execution = queue_service_pb2.ExecutionConfig(
        lease=to_duration(config.lease),
        timeout=to_duration(config.timeout),
        strict_leases=config.strict_leases,
    )
    limits = queue_service_pb2.LimitsConfig(max_payload_bytes=config.max_payload_bytes)
    retention = queue_service_pb2.RetentionConfig(
        succeeded=to_duration(config.retention_succeeded),
        cancelled=to_duration(config.retention_cancelled),
        dead=to_duration(config.retention_dead),
    )
    if retry.ByteSize():
        message.retry.CopyFrom(retry)
    if classification.ByteSize():
        message.classification.CopyFrom(classification)
    if execution.ByteSize():
        message.execution.CopyFrom(execution)
    if limits.ByteSize():
        message.limits.CopyFrom(limits)
    if retention.ByteSize():
        message.retention.CopyFrom(retention)
    if config.version_mismatch is not None:
        message.handler.CopyFrom(
            queue_service_pb2.HandlerConfig(version_mismatch=f"HANDLER_VERSION_MISMATCH_{config.version_mismatch.name}")
        )
    return message


def queue(message: queue_service_pb2.Queue) -> Queue:
    """A queue and its configuration."""
    return Queue(
        name=message.name,
        config=_queue_config(message.config) if message.HasField("config") else None,
        effective=_queue_config(message.effective),
        updated_at=_instant(message, "updated_at"),
    )


def _queue_config(message: queue_service_pb2.QueueConfig) -> QueueConfig:
    retry, execution, retention = message.retry, message.execution, message.retention
    return QueueConfig(
        max_attempts=retry.max_attempts if retry.HasField("max_attempts") else None,
        initial_backoff=_span(retry, "initial_backoff"),
        multiplier=retry.multiplier if retry.HasField("multiplier") else None,
        max_backoff=_span(retry, "max_backoff"),
        jitter=retry.jitter if retry.HasField("jitter") else None,
        retryable=tuple(message.classification.retryable),
        permanent=tuple(message.classification.permanent),
        lease=_span(execution, "lease"),
        timeout=_span(execution, "timeout"),
        strict_leases=execution.strict_leases if execution.HasField("strict_leases") else None,
        max_payload_bytes=(message.limits.max_payload_bytes if message.limits.HasField("max_payload_bytes") else None),
        retention_succeeded=_span(retention, "succeeded"),
        retention_cancelled=_span(retention, "cancelled"),
        retention_dead=_span(retention, "dead"),
        version_mismatch=_version_mismatch(message.handler.version_mismatch),
        paused=message.paused if message.HasField("paused") else None,
    )


def _version_mismatch(value: int) -> VersionMismatch | None:
    if value == 0:
        return None
    # One of a newer contract is to be treated as RUN_LATEST.
    return VersionMismatch.DEAD_LETTER if value == VersionMismatch.DEAD_LETTER else VersionMismatch.RUN_LATEST


def _attempt(message: task_pb2.Attempt) -> Attempt:
    return Attempt(
        attempt_no=message.attempt_no,
        started_at=_instant(message, "started_at"),
        finished_at=_instant(message, "finished_at"),
        outcome=_attempt_outcome(message.outcome),
        error=_attempt_error(message.error) if message.HasField("error") else None,
        worker_id=message.worker_id,
        folded_count=message.folded_count,
    )


def _attempt_outcome(value: int) -> AttemptOutcome:
    try:
        return AttemptOutcome(value)
    except ValueError:
        return AttemptOutcome.UNKNOWN


def _attempt_error(message: task_pb2.AttemptError) -> AttemptError:
    return AttemptError(type=message.type, message=message.message, detail=message.detail, stack=message.stack)


def _instant(message: Message, field: str) -> datetime | None:
    if not message.HasField(field):
        return None
    value = getattr(message, field)
    assert isinstance(value, Timestamp)
    return from_timestamp(value)


def _span(message: Message, field: str) -> timedelta | None:
    if not message.HasField(field):
        return None
    value = getattr(message, field)
    assert isinstance(value, Duration)
    return value.ToTimedelta()
