"""From what gRPC answers to errors: the only place that reads statuses and the errors of single items."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

from ._stubs.v1 import error_reason_pb2, task_service_pb2
from .errors import BY_REASON, RdqError

_DOMAIN = "rdq"
_PREFIX = "ERROR_REASON_"
_DETAILS_KEY = "grpc-status-details-bin"
_CODES: Mapping[int, StatusCode] = {code.value[0]: code for code in StatusCode}


def of_call(error: grpc.aio.AioRpcError) -> RdqError:
    """What the status of a failed call means."""
    code = error.code()
    reason = ""
    metadata: Mapping[str, str] = {}
    retry_after = None
    for detail in _details(error):
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == _DOMAIN:
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Is(retry.DESCRIPTOR) and detail.Unpack(retry):
            retry_after = retry.retry_delay.ToTimedelta()
    if not reason and code is StatusCode.DEADLINE_EXCEEDED:
        # Said by this side of the connection, which knows the reason as well as the server does.
        reason, metadata = "DEADLINE_EXCEEDED", {"outcome_unknown": "true"}
    made = _make(code, reason, error.details() or code.name, metadata, retry_after)
    if not reason and code is StatusCode.UNAVAILABLE:
        # The connection broke, or never was: nobody says which.
        made.outcome_unknown = True
    return made


def of_item(error: task_service_pb2.ItemError) -> RdqError:
    """What the error of one item of a batch means."""
    code = _CODES.get(error.code, StatusCode.UNKNOWN)
    return _make(code, reason_name(error.reason), error.message, dict(error.metadata), None)


def reason_name(value: int) -> str:
    """The name of a reason, without its prefix; its number for one that this version does not know."""
    if value == error_reason_pb2.ERROR_REASON_UNSPECIFIED:
        return ""
    known = error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(value)
    return known.name.removeprefix(_PREFIX) if known is not None else str(value)


def _make(
    code: StatusCode,
    reason: str,
    message: str,
    metadata: Mapping[str, str],
    retry_after: timedelta | None,
) -> RdqError:
    return BY_REASON.get(reason, RdqError)(
        message,
        code=code,
        reason=reason,
        metadata=metadata,
        outcome_unknown=metadata.get("outcome_unknown") == "true",
        retry_after=retry_after,
    )


def _details(error: grpc.aio.AioRpcError) -> list[Any]:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return list(status_pb2.Status.FromString(value).details)
            except DecodeError:
                return []
    return []
