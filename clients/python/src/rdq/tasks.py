"""Tasks as a producer makes them, and as the server tells them. Nothing here makes calls."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")


class TaskStatus(enum.IntEnum):
    """Where a task stands. `UNKNOWN` is a status of a newer contract: treat it as not finished."""

    UNKNOWN = 0
    PENDING = 1
    IN_FLIGHT = 2
    SUCCEEDED = 3
    DEAD = 4
    CANCELLED = 5


class AttemptOutcome(enum.IntEnum):
    """How an attempt ended. `UNKNOWN` is an outcome of a newer contract: treat it as a failure that may run again."""

    UNKNOWN = 0
    SUCCESS = 1
    RETRYABLE_FAILURE = 2
    PERMANENT_FAILURE = 3
    LEASE_EXPIRED = 4
    CANCELLED = 5


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to enqueue. Only `queue` and `handler_ref` are needed; what is None is the queue's or the server's.

    Attributes:
        queue: Where it waits: 1 to 240 bytes of UTF-8.
        handler_ref: Which handler of the worker runs it.
        payload: Bytes for the handler; text becomes UTF-8. At most 1 MiB, unless the queue says otherwise.
        id: Names the task for life, 1 to 255 bytes of UTF-8; the client makes a ULID if None.
        content_type: What the payload is, such as `application/json`; carried, never interpreted.
        headers: Carried to the handler; 64 KiB at most, keys not starting with `rdq.`.
        priority: The higher goes first.
        delay: The task is due this long after its admission; wins over `due_at`.
        due_at: The task is due then. With a time zone.
        expires_in: The task is dead, if unfinished, this long after its admission; wins over `expires_at`.
        expires_at: The task is dead then, if unfinished. With a time zone.
        handler_version: The version of the handler that is meant.
        max_attempts: How many attempts it has; at least 1.
        lease: How long a worker holds it without a sign of life; 10 ms to 12 h.
        initial_backoff: The delay after the first failed attempt.
        retention_dead: How long it is kept once dead.
        extra: Encoded fields of `rdq.v1.Task` that this version does not know; carried as they are.
    """

    queue: str
    handler_ref: str
    payload: bytes | str = field(default=b"", repr=False)
    id: str | None = None
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    priority: int = 0
    delay: timedelta | None = None
    due_at: datetime | None = None
    expires_in: timedelta | None = None
    expires_at: datetime | None = None
    handler_version: str | None = None
    max_attempts: int | None = None
    lease: timedelta | None = None
    initial_backoff: timedelta | None = None
    retention_dead: timedelta | None = None
    extra: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What became of a task that was enqueued.

    Attributes:
        id: The task's id.
        created: True if this call admitted it, False if it was there already.
        status: Where it stands now.
    """

    id: str
    created: bool
    status: TaskStatus


@dataclass(frozen=True, kw_only=True)
class AttemptError:
    """Why an attempt failed: a stable type, and text for people and programs."""

    type: str
    message: str
    detail: str
    stack: str


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt to run a task.

    Attributes:
        attempt_no: Counts from 1, for life.
        started_at: The claim's instant, by the storage's clock.
        finished_at: Its end, by the storage's clock.
        outcome: How it ended.
        error: Why it failed; None for a success.
        worker_id: Who ran it.
        folded_count: Above 0, the record stands for so many attempts.
    """

    attempt_no: int
    started_at: datetime | None
    finished_at: datetime | None
    outcome: AttemptOutcome
    error: AttemptError | None
    worker_id: str
    folded_count: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task as the server tells it. Instants are UTC, by the storage's clock, and None where they do not apply.

    Attributes:
        id: Its id.
        queue: Its queue.
        handler_ref: Its handler.
        handler_version: The version that the producer meant.
        payload: What the producer sent.
        content_type: What the payload is.
        headers: What the producer sent beside it.
        priority: The higher goes first.
        max_attempts: Its own bound; None if it has the queue's.
        lease: Its own lease; None if it has the queue's.
        initial_backoff: Its own backoff; None if it has the queue's.
        retention_dead: Its own retention; None if it has the queue's.
        status: Where it stands.
        attempt_count: Attempts spent since the last redrive.
        redrive_count: How often it was redriven.
        lease_expired_count: How many of its leases ran out and were reclaimed.
        progress: The last checkpoint of a handler.
        result: What the handler returned.
        claimed_at: When the live claim began.
        claimed_by: The worker that holds it; empty if none does.
        next_attempt_at: When it is due.
        lease_expires_at: When the live claim's lease ends.
        expires_at: When it is dead if unfinished.
        created_at: When it was admitted.
        finished_at: When it ended.
        attempts: Its history, oldest first, where the call gives one.
        raw: The whole envelope (`rdq.v1.Task`) as it came, fields of a newer contract included.
    """

    id: str
    queue: str
    handler_ref: str
    handler_version: str | None
    payload: bytes = field(repr=False)
    content_type: str
    headers: Mapping[str, str] = field(repr=False)
    priority: int
    max_attempts: int | None
    lease: timedelta | None
    initial_backoff: timedelta | None
    retention_dead: timedelta | None
    status: TaskStatus
    attempt_count: int
    redrive_count: int
    lease_expired_count: int
    progress: bytes = field(repr=False)
    result: bytes = field(repr=False)
    claimed_at: datetime | None
    claimed_by: str
    next_attempt_at: datetime | None
    lease_expires_at: datetime | None
    expires_at: datetime | None
    created_at: datetime | None
    finished_at: datetime | None
    attempts: Sequence[Attempt]
    raw: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Cancellation:
    """What `cancel` did.

    Attributes:
        cancelled: True if this call cancelled the task.
        status: Where it stands now: `CANCELLED`, or what it had finished as.
    """

    cancelled: bool
    status: TaskStatus


@dataclass(frozen=True, kw_only=True)
class DlqFilter:
    """Which dead letters: all that is set must hold.

    Attributes:
        error_type: The exact error type of the final attempt.
        handler_ref: The exact handler.
        dead_lettered_from: Dead since then, inclusive. With a time zone.
        dead_lettered_to: Dead before then, exclusive. With a time zone.
    """

    error_type: str | None = None
    handler_ref: str | None = None
    dead_lettered_from: datetime | None = None
    dead_lettered_to: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class QueueStats:
    """A snapshot of one queue.

    Attributes:
        queue: Its name.
        pending: Tasks that wait: `ready` and `delayed`.
        ready: Those that are due.
        delayed: Those that are due later.
        in_flight: Tasks that are claimed.
        lapsed: Those whose lease ran out and that nobody took over yet.
        dlq_depth: Dead letters.
        succeeded: Succeeded tasks that are kept.
        cancelled: Cancelled tasks that are kept.
        oldest_pending_age: How long the oldest due task has been due; None if none is.
    """

    queue: str
    pending: int
    ready: int
    delayed: int
    in_flight: int
    lapsed: int
    dlq_depth: int
    succeeded: int
    cancelled: int
    oldest_pending_age: timedelta | None


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list.

    Attributes:
        items: What is on it; fewer than asked for may come.
        next_page_token: For the next page; empty on the last.
    """

    items: Sequence[T]
    next_page_token: str


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What the server offers.

    Attributes:
        contract_version: `major.minor`.
        server_version: The server's own.
        durability: What an acknowledged write survives: `NONE`, `PROCESS`, `POWER_CUT`, or empty if not known.
        capabilities: Faculties beyond the contract's floor.
    """

    contract_version: str
    server_version: str
    durability: str
    capabilities: Sequence[str]
