"""What a handler is given: the task, this attempt of it, and ways to tell and to be told."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property

from grpc import StatusCode

from . import _convert
from ._stubs.v1 import task_service_pb2
from .errors import PayloadTooLarge
from .tasks import Task

_PROGRESS_BYTES_MAX = 64 << 10


class StopReason(enum.Enum):
    """Why a handler is stopped."""

    #: Another claim took the task over: its lease ran out. Drop the work.
    LOST = "lost"
    #: The task was cancelled.
    CANCELLED = "cancelled"
    #: The task expired.
    EXPIRED = "expired"
    #: The queue's execution timeout is over.
    TIMEOUT = "timeout"
    #: The worker shuts down, and the grace is over.
    SHUTDOWN = "shutdown"


class Stopped(Exception):
    """Raised by `Job.raise_if_cancelled` in a handler that is to stop."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Job:
    """One attempt of one task, as its handler sees it. All of it may be used from any thread."""

    def __init__(self, claimed: task_service_pb2.ClaimedTask, lease_ends: float) -> None:
        self._claimed = claimed
        self._lease_ends = lease_ends
        self._progress: bytes | None = None
        self._stop_reason: StopReason | None = None
        self._cancelled = threading.Event()

    @property
    def id(self) -> str:
        """The task's id."""
        return self._claimed.task.id

    @property
    def queue(self) -> str:
        """The task's queue."""
        return self._claimed.task.queue

    @property
    def handler_ref(self) -> str:
        """The handler that the producer named."""
        return self._claimed.task.handler_ref

    @property
    def handler_version(self) -> str | None:
        """The version that the producer named."""
        task = self._claimed.task
        return task.handler_version if task.HasField("handler_version") else None

    @property
    def payload(self) -> bytes:
        """What the producer sent."""
        return self._claimed.task.payload

    @property
    def text(self) -> str:
        """The payload as UTF-8 text.

        Raises:
            UnicodeDecodeError: it is none.
        """
        return self.payload.decode()

    @property
    def content_type(self) -> str:
        """What the payload is; empty if the producer did not say."""
        return self._claimed.task.payload_content_type

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """What the producer sent beside the payload."""
        return dict(self._claimed.task.headers)

    @cached_property
    def task(self) -> Task:
        """The whole task, with its history (without stacks and details)."""
        return _convert.task(self._claimed.task)

    @property
    def attempt_no(self) -> int:
        """The number that this attempt will have in the history; counts for life."""
        return self._claimed.attempt_no

    @property
    def max_attempts(self) -> int:
        """How many attempts the task has."""
        return self._claimed.max_attempts

    @property
    def generation(self) -> int:
        """Grows with every claim of the task: hand it to systems that should refuse a slower, older worker."""
        return self._claimed.generation

    @property
    def progress(self) -> bytes:
        """The last checkpoint of this attempt or, before it set one, of an earlier attempt."""
        return self._claimed.task.progress if self._progress is None else self._progress

    def set_progress(self, progress: bytes | str) -> None:
        """Keeps a checkpoint, which later attempts are given. It travels with the next heartbeat, or at the end.

        Args:
            progress: Up to 64 KiB; text becomes UTF-8.

        Raises:
            PayloadTooLarge: it is larger.
        """
        data = progress.encode() if isinstance(progress, str) else bytes(progress)
        if len(data) > _PROGRESS_BYTES_MAX:
            raise PayloadTooLarge(
                f"progress is {len(data)} bytes, and the limit is {_PROGRESS_BYTES_MAX}",
                code=StatusCode.INVALID_ARGUMENT,
                metadata={
                    "field": "progress",
                    "limit_bytes": str(_PROGRESS_BYTES_MAX),
                    "size_bytes": str(len(data)),
                },
            )
        self._progress = data

    @property
    def lease_remaining(self) -> timedelta:
        """What is left of the lease, which the worker extends all the time; negative once it ran out."""
        return timedelta(seconds=self._lease_ends - time.monotonic())

    @property
    def cancelled(self) -> threading.Event:
        """Set when the handler is to stop. A plain handler looks at it, or waits on it in place of sleeping."""
        return self._cancelled

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the handler is to stop; None while it may go on."""
        return self._stop_reason

    def raise_if_cancelled(self) -> None:
        """Does nothing while the handler may go on.

        Raises:
            Stopped: the handler is to stop, and nothing that it returns or raises will count.
        """
        if self._stop_reason is not None:
            raise Stopped(self._stop_reason)

    def __repr__(self) -> str:
        return f"<Job {self.id!r} of {self.queue!r}, attempt {self.attempt_no}>"

    def _stop(self, reason: StopReason) -> None:
        """Tells the handler. The first reason stays."""
        if self._stop_reason is None:
            self._stop_reason = reason
            self._cancelled.set()
