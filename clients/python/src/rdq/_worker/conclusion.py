"""What the end of a handler means for its task, as the contract's message."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

from .._convert import encoded
from .._stubs.v1 import task_pb2, task_service_pb2
from .._time import to_duration
from ..claim import Claim
from ..outcomes import Failure, Outcome, Permanent, Retryable, RetryAfter, Snooze, Success
from .handlers import Ended

Resolution: TypeAlias = task_service_pb2.Resolution

#: Sees first what a handler returned, or raised; answers an outcome, or None to leave it to the rules.
OutcomeMapper: TypeAlias = Callable[[Claim, Any, BaseException | None], Outcome | None]

#: The server cuts text, and marks it; this much of it is sent, so that a huge text does not clog the stream.
_TYPE_CHARS = 256
_MESSAGE_CHARS = 8 << 10
_LONG_CHARS = 128 << 10


def outcome_of(claim: Claim, ended: Ended, mapper: OutcomeMapper | None) -> Outcome:
    """How an attempt ends, by what its handler did."""
    if mapper is not None:
        try:
            mapped = mapper(claim, ended.value, ended.error)
        except Exception as error:
            return Failure(error)
        if mapped is not None:
            return mapped
    if isinstance(ended.error, Outcome):
        return ended.error
    if ended.error is not None:
        return Failure(ended.error)
    if isinstance(ended.value, Outcome):
        return ended.value
    return Success(ended.value)


def resolution(id: str, token: bytes, outcome: Outcome) -> Resolution:
    """The call that ends a claim in this way."""
    if isinstance(outcome, Success):
        try:
            result = _result(outcome.result)
        except (TypeError, ValueError) as error:
            return resolution(id, token, Failure(error))
        return Resolution(complete=task_service_pb2.CompleteRequest(id=id, claim_token=token, result=result))
    if isinstance(outcome, Snooze):
        return Resolution(
            release=task_service_pb2.ReleaseRequest(id=id, claim_token=token, delay=to_duration(outcome.delay))
        )
    failure = outcome if isinstance(outcome, Failure) else Failure(outcome)
    attempt = task_pb2.Attempt(error=_error(failure))
    if isinstance(failure, Permanent):
        return Resolution(dead_letter=task_service_pb2.DeadLetterRequest(id=id, claim_token=token, attempt=attempt))
    if isinstance(failure, RetryAfter):
        return Resolution(
            reschedule=task_service_pb2.RescheduleRequest(
                id=id, claim_token=token, attempt=attempt, delay=to_duration(failure.delay)
            )
        )
    if isinstance(failure, Retryable):
        attempt.outcome = task_pb2.ATTEMPT_OUTCOME_RETRYABLE_FAILURE
    return Resolution(fail=task_service_pb2.FailRequest(id=id, claim_token=token, attempt=attempt))


def release(id: str, token: bytes) -> Resolution:
    """Gives a claim back unspent."""
    return Resolution(release=task_service_pb2.ReleaseRequest(id=id, claim_token=token))


def error_type(error: BaseException) -> str:
    """An exception's name as a traceback shows it; this package's own are left bare, since `rdq.` is reserved."""
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__") or kind.__module__.startswith("rdq."):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _result(result: object) -> bytes:
    if result is None:
        return b""
    if isinstance(result, (bytes, bytearray, memoryview, str)):
        return encoded(result if isinstance(result, str) else bytes(result))
    raise TypeError(f"a handler returns bytes, str or None, not {type(result).__qualname__}")


def _error(failure: Failure) -> task_pb2.AttemptError:
    cause = failure.error if failure.error is not None else failure
    message = _message(cause)
    stack = "" if cause.__traceback__ is None else "".join(traceback.format_exception(cause))
    return task_pb2.AttemptError(
        type=_text(failure.type or error_type(cause), _TYPE_CHARS),
        message=_text(message, _MESSAGE_CHARS),
        detail=_text(failure.detail, _LONG_CHARS),
        stack=_text(stack, _LONG_CHARS),
    )


def described(error: BaseException) -> str:
    """An exception's type and message, of which the server keeps the beginning."""
    return _text(f"{error_type(error)}: {_message(error)}", _MESSAGE_CHARS)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failed:
        return f"the message could not be read: {type(failed).__qualname__}"


def _text(text: str, chars_max: int) -> str:
    # A lone surrogate cannot be sent; diagnostic text must never keep an outcome from being told.
    return text[:chars_max].encode("utf-8", "replace").decode()
