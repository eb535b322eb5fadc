"""Queue configuration. What is None is inherited. Nothing here makes calls."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


class VersionMismatch(enum.IntEnum):
    """What a worker does with a task whose handler version it does not have."""

    RUN_LATEST = 1
    DEAD_LETTER = 2


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """The configuration of a queue; in brackets what holds where nobody says otherwise.

    Attributes:
        max_attempts: Attempts of a task before it is dead [5].
        initial_backoff: The delay after the first failure [1 s].
        multiplier: How much longer each further delay is [2.0].
        max_backoff: The longest delay [10 min].
        jitter: How much a delay varies, as a fraction [0.2].
        retryable: Globs on error types that may run again [none].
        permanent: Globs on error types that may not [none].
        lease: How long a worker holds a task without a sign of life [60 s].
        timeout: How long an attempt may take in all [no bound].
        strict_leases: Refuse every call under a lease that ran out [False].
        max_payload_bytes: The largest payload [1 MiB].
        retention_succeeded: How long succeeded tasks are kept [24 h].
        retention_cancelled: How long cancelled tasks are kept [24 h].
        retention_dead: How long dead letters are kept [for ever].
        version_mismatch: What a worker does that lacks the handler's version [`RUN_LATEST`].
        paused: True stops claims [False].
    """

    max_attempts: int | None = None
    initial_backoff: timedelta | None = None
    multiplier: float | None = None
    max_backoff: timedelta | None = None
    jitter: float | None = None
    retryable: Sequence[str] = ()
    permanent: Sequence[str] = ()
    lease: timedelta | None = None
    timeout: timedelta | None = None
    strict_leases: bool | None = None
    max_payload_bytes: int | None = None
    retention_succeeded: timedelta | None = None
    retention_cancelled: timedelta | None = None
    retention_dead: timedelta | None = None
    version_mismatch: VersionMismatch | None = None
    paused: bool | None = None

    def __post_init__(self) -> None:
        # So that one that was read equals one that was written, whatever sequences that had.
        object.__setattr__(self, "retryable", tuple(self.retryable))
        object.__setattr__(self, "permanent", tuple(self.permanent))


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A queue and its configuration.

    Attributes:
        name: Its name.
        config: What is stored; None if nothing is.
        effective: What is in force.
        updated_at: When the configuration was stored; None if it is not.
    """

    name: str
    config: QueueConfig | None
    effective: QueueConfig
    updated_at: datetime | None
