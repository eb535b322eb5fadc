"""A client of rdq, the durable task, retry and coordination service: for asyncio here, for plain threads in `rdq.sync`.

Start with `Client` to produce, and with `Worker` to work.
"""

from ._worker.conclusion import OutcomeMapper
from ._worker.handlers import Handler
from .claim import Claim, Stopped, StopReason
from .client import Admissions, Client
from .errors import *  # noqa: F403  each reason of the contract
from .errors import __all__ as _errors
from .events import StreamEvent, Subscription
from .locks import Lock
from .outboxes import OutboxMessage, OutboxRelay
from .outcomes import Failure, Outcome, Permanent, Retryable, RetryAfter, Snooze, Success
from .queues import Queue, QueueConfig, VersionMismatch
from .services import Services, error_of
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
    "Claim",
    "Lock",
    "NewTask",
    "Outcome",
    "OutboxMessage",
    "OutboxRelay",
    "OutcomeMapper",
    "Page",
    "Permanent",
    "Queue",
    "QueueConfig",
    "QueueStats",
    "Retryable",
    "RetryAfter",
    "Services",
    "Snooze",
    "StopReason",
    "Stopped",
    "StreamEvent",
    "Subscription",
    "Success",
    "Task",
    "TaskStatus",
    "VersionMismatch",
    "Worker",
    "error_of",
    *_errors,
]
