"""A client of rdq, the durable task, retry and coordination service: for asyncio here, for plain threads in `rdq.sync`.

Start with `Client` to produce, and with `Worker` to work.
"""

from ._worker.conclusion import OutcomeMapper
from ._worker.handlers import Handler
from .client import Admissions, Client
from .errors import *  # noqa: F403  each reason of the contract
from .errors import __all__ as _errors
from .job import Job, Stopped, StopReason
from .outcomes import Failure, Outcome, Permanent, Retryable, RetryAfter, Snooze, Success
from .queues import Queue, QueueConfig, VersionMismatch
from .tasks import (
    Admission,
    Attempt,
    AttemptError,
    AttemptOutcome,
    Cancellation,
    Capabilities,
    DlqFilter,
    NewTask,
    Page,
    QueueStats,
    Task,
    TaskStatus,
)
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Admission",
    "Admissions",
    "Attempt",
    "AttemptError",
    "AttemptOutcome",
    "Cancellation",
    "Capabilities",
    "Client",
    "DlqFilter",
    "Failure",
    "Handler",
    "Job",
    "NewTask",
    "Outcome",
    "OutcomeMapper",
    "Page",
    "Permanent",
    "Queue",
    "QueueConfig",
    "QueueStats",
    "Retryable",
    "RetryAfter",
    "Snooze",
    "StopReason",
    "Stopped",
    "Success",
    "Task",
    "TaskStatus",
    "VersionMismatch",
    "Worker",
    *_errors,
]
