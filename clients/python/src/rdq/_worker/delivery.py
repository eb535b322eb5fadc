"""One claim that came to this worker. Known by its token: the same task again is another delivery."""

from __future__ import annotations

import asyncio
import time

from .._stubs.v1 import task_service_pb2
from .._time import seconds
from ..job import Job
from .conclusion import Resolution
from .handlers import Ended


class Delivery:
    """A claim, its handler, and what became of both.

    It takes a place of the worker's concurrency while the claim is held or the handler runs, whichever is longer.
    """

    __slots__ = (
        "beat_timer",
        "claimed",
        "deferred",
        "generation",
        "held",
        "id",
        "job",
        "kept_progress",
        "lease",
        "lease_ends",
        "pending",
        "release_timer",
        "run",
        "running",
        "timeout_timer",
        "token",
    )

    def __init__(self, claimed: task_service_pb2.ClaimedTask, arrived: float) -> None:
        """
        Args:
            claimed: What came.
            arrived: When, by the monotonic clock.
        """
        self.claimed = claimed
        self.id = claimed.task.id
        self.token = claimed.claim_token
        self.generation = claimed.generation
        remaining = seconds(claimed.lease_remaining)
        #: The whole lease, in seconds.
        self.lease = max(_whole_lease(claimed), remaining)
        #: When it ends, by the monotonic clock.
        self.lease_ends = arrived + remaining
        self.job = Job(claimed, self.lease_ends)
        #: The progress that the server has from this attempt.
        self.kept_progress: bytes | None = None
        #: The claim is this worker's, as far as it knows.
        self.held = True
        #: How the claim ends is decided, and not yet answered.
        self.pending = False
        #: How it ends, once its progress is kept.
        self.deferred: Resolution | None = None
        #: The handler has begun, and not ended.
        self.running = False
        self.run: asyncio.Future[Ended] | None = None
        self.beat_timer: asyncio.TimerHandle | None = None
        self.timeout_timer: asyncio.TimerHandle | None = None
        self.release_timer: asyncio.TimerHandle | None = None

    def extended(self, remaining: float) -> None:
        """The lease has so much left, in seconds."""
        self.lease_ends = time.monotonic() + remaining
        self.job._lease_ends = self.lease_ends

    def new_progress(self) -> bytes | None:
        """What the handler set last, if the server does not have it."""
        progress = self.job._progress
        return None if progress is self.kept_progress else progress

    def may_start(self) -> bool:
        """Whether enough of the lease is left for a handler to begin."""
        return self.lease_ends - time.monotonic() >= start_margin(self.lease)

    def stop_timers(self) -> None:
        """Nothing is due for it any more."""
        for timer in (self.beat_timer, self.timeout_timer, self.release_timer):
            if timer is not None:
                timer.cancel()


def start_margin(lease: float) -> float:
    """With less than this left of a lease, both in seconds, a handler is not started."""
    return min(max(lease / 10, 0.1), lease / 2)


def timeout_in(claimed: task_service_pb2.ClaimedTask, lease: float) -> float | None:
    """In how many seconds from its arrival a handler is to be stopped; None: never.

    The timeout counts from the claim. At its end the server hands the task out again, so the handler is stopped a
    little before: late, its failure would be a stale one, and the history would tell of a lease that ran out.
    """
    if not claimed.HasField("execution_timeout"):
        return None
    timeout = seconds(claimed.execution_timeout)
    spent = lease - seconds(claimed.lease_remaining)
    return max(0.0, timeout - min(timeout / 10, 1.0) - spent)


def _whole_lease(claimed: task_service_pb2.ClaimedTask) -> float:
    task = claimed.task
    start, end = task.claimed_at, task.lease_expires_at
    return end.seconds - start.seconds + (end.nanos - start.nanos) / 1e9
