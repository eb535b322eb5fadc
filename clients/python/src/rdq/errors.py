"""Errors: one type for each reason of the contract, under `RdqError`.

A reason that this version does not know is `RdqError` itself, with the gRPC code. Nothing here makes calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from grpc import StatusCode

__all__ = [
    "CasConflict",
    "Closed",
    "Contention",
    "CursorBindingMismatch",
    "DeadlineExceeded",
    "IdConflict",
    "Internal",
    "InvalidArgument",
    "InvalidCursor",
    "InvalidName",
    "InvalidSpec",
    "LockLost",
    "LockNotAcquired",
    "MessageTooLarge",
    "MutationConflict",
    "NotFound",
    "OtherContractVersion",
    "OutboxClaimMismatch",
    "OutboxMissing",
    "Overloaded",
    "PayloadTooLarge",
    "PermissionDenied",
    "QueueNotEmpty",
    "QueueNotFound",
    "RdqError",
    "ReservedName",
    "StaleClaim",
    "StaleCursor",
    "StorageFull",
    "StorageUnavailable",
    "Unauthenticated",
    "Unsupported",
]


class RdqError(Exception):
    """A call, or one item of a batch, was refused or got no answer.

    Attributes:
        code: The gRPC status code.
        reason: The name of the contract's `ErrorReason` without its prefix, such as `STALE_CLAIM`; empty if the error
            came without one, for instance from a proxy or because no connection could be made.
        message: For people.
        metadata: What the message mentions, by the keys that `ErrorReason` documents.
        outcome_unknown: True if the change may have happened all the same.
        retry_after: How long the server asks to wait; None if it does not say.
        count: Of `redrive` and `purge` that broke off: how many tasks they had changed. None elsewhere.
    """

    #: The reason that a type stands for; empty for the base type.
    REASON: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: StatusCode = StatusCode.UNKNOWN,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        outcome_unknown: bool = False,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = self.REASON if reason is None else reason
        self.metadata: Mapping[str, str] = dict(metadata or {})
        self.outcome_unknown = outcome_unknown
        self.retry_after = retry_after
        self.count: int | None = None

    @property
    def retryable(self) -> bool:
        """Whether the same call can succeed later without anybody deciding anything.

        The client retried already, for as long as its deadline allowed.
        """
        if self.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
            return True
        return (self.code, self.reason) in (
            (StatusCode.ABORTED, "CONTENTION"),
            (StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED"),
        )

    @property
    def operation_index(self) -> int | None:
        """Which operation of a `Commit` was refused, counted from zero; None if it was none of them."""
        return _number(self.metadata.get("operation_index"))

    def __str__(self) -> str:
        return f"{self.reason or self.code.name}: {self.message}"


class StaleClaim(RdqError):
    """The claim was taken over, ended or cancelled (metadata `detail`); nothing changed."""

    REASON = "STALE_CLAIM"


class QueueNotEmpty(RdqError):
    """The queue still holds tasks."""

    REASON = "QUEUE_NOT_EMPTY"


class StaleCursor(RdqError):
    """The page token is of a retired key or an older format; start with the first page."""

    REASON = "STALE_CURSOR"


class NotFound(RdqError):
    """There is no such task, record or schedule."""

    REASON = "NOT_FOUND"


class QueueNotFound(RdqError):
    """There is no such queue."""

    REASON = "QUEUE_NOT_FOUND"


class IdConflict(RdqError):
    """The task id is taken in another queue."""

    REASON = "ID_CONFLICT"


class Contention(RdqError):
    """Others held what the call needed for too long; nothing changed."""

    REASON = "CONTENTION"


class InvalidName(RdqError):
    """A name is empty, blank, too long or has control characters."""

    REASON = "INVALID_NAME"


class ReservedName(RdqError):
    """A name starts with the reserved `__rdq_`."""

    REASON = "RESERVED_NAME"


class InvalidArgument(RdqError):
    """A value is missing, contradictory or out of range (metadata `field`)."""

    REASON = "INVALID_ARGUMENT"


class InvalidCursor(RdqError):
    """The page token is not one of the service's, or was changed."""

    REASON = "INVALID_CURSOR"


class CursorBindingMismatch(RdqError):
    """The page token belongs to another caller, list or filter."""

    REASON = "CURSOR_BINDING_MISMATCH"


class PayloadTooLarge(RdqError):
    """A payload, or another part with a limit, is too large (`field`, `limit_bytes`, `size_bytes`)."""

    REASON = "PAYLOAD_TOO_LARGE"

    @property
    def limit_bytes(self) -> int | None:
        """The most that is taken, in bytes."""
        return _number(self.metadata.get("limit_bytes"))

    @property
    def size_bytes(self) -> int | None:
        """What was sent, in bytes."""
        return _number(self.metadata.get("size_bytes"))


class Unsupported(RdqError):
    """The server's storage cannot do this."""

    REASON = "UNSUPPORTED"


class StorageUnavailable(RdqError):
    """The server's storage cannot be reached."""

    REASON = "STORAGE_UNAVAILABLE"


class Closed(RdqError):
    """The server is going down."""

    REASON = "CLOSED"


class Overloaded(RdqError):
    """Too many calls or streams at once; nothing changed."""

    REASON = "OVERLOADED"


class StorageFull(RdqError):
    """The server's storage has no space left; nothing changed."""

    REASON = "STORAGE_FULL"


class MessageTooLarge(RdqError):
    """The request is larger than the server reads."""

    REASON = "MESSAGE_TOO_LARGE"


class Internal(RdqError):
    """A fault of the service; its log has the detail under the metadata `correlation_id`."""

    REASON = "INTERNAL"


class Unauthenticated(RdqError):
    """There are no valid credentials."""

    REASON = "UNAUTHENTICATED"


class PermissionDenied(RdqError):
    """The credentials do not grant this."""

    REASON = "PERMISSION_DENIED"


class DeadlineExceeded(RdqError):
    """The call got no answer in time; a change may have happened."""

    REASON = "DEADLINE_EXCEEDED"


class CasConflict(RdqError):
    """The record is at another revision than was expected; nothing changed (metadata `key`, `expected_revision`)."""

    REASON = "CAS_CONFLICT"


class InvalidSpec(RdqError):
    """A schedule's spec or time zone is not one, or never comes (metadata `field`)."""

    REASON = "INVALID_SPEC"


class OutboxMissing(RdqError):
    """There is no such message of an outbox (metadata `id`)."""

    REASON = "OUTBOX_MISSING"


class OutboxClaimMismatch(RdqError):
    """The message is not claimed by that worker with that generation; nothing changed (metadata `id`)."""

    REASON = "OUTBOX_CLAIM_MISMATCH"


class MutationConflict(RdqError):
    """The ledger has a record of another request under this scope; nothing changed (metadata `subject`, `operation`,
    `key`)."""

    REASON = "MUTATION_CONFLICT"


class LockNotAcquired(RdqError):
    """Somebody else holds the lock, for longer than was waited for it. No server sends this."""

    REASON = "LOCK_NOT_ACQUIRED"


class LockLost(RdqError):
    """A lock that was held is held no more. No server sends this."""

    REASON = "LOCK_LOST"


class OtherContractVersion(RdqError):
    """The server's contract has another major version than this client's, so a worker stops. No server sends this."""

    REASON = "OTHER_CONTRACT_VERSION"

    @property
    def client_version(self) -> str:
        """`major.minor` of the contract that this client speaks."""
        return self.metadata.get("client_version", "")

    @property
    def server_version(self) -> str:
        """`major.minor` of the contract that the server speaks."""
        return self.metadata.get("server_version", "")


#: The types by the reason that they stand for.
BY_REASON: Mapping[str, type[RdqError]] = {kind.REASON: kind for kind in RdqError.__subclasses__()}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
