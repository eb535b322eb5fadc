from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_STALE_CLAIM: _ClassVar[ErrorReason]
    ERROR_REASON_QUEUE_NOT_EMPTY: _ClassVar[ErrorReason]
    ERROR_REASON_STALE_CURSOR: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_QUEUE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_ID_CONFLICT: _ClassVar[ErrorReason]
    ERROR_REASON_CONTENTION: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_NAME: _ClassVar[ErrorReason]
    ERROR_REASON_RESERVED_NAME: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_ARGUMENT: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_CURSOR: _ClassVar[ErrorReason]
    ERROR_REASON_CURSOR_BINDING_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_PAYLOAD_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_UNSUPPORTED: _ClassVar[ErrorReason]
    ERROR_REASON_STORAGE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_CLOSED: _ClassVar[ErrorReason]
    ERROR_REASON_OVERLOADED: _ClassVar[ErrorReason]
    ERROR_REASON_STORAGE_FULL: _ClassVar[ErrorReason]
    ERROR_REASON_MESSAGE_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE_EXCEEDED: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_STALE_CLAIM: ErrorReason
ERROR_REASON_QUEUE_NOT_EMPTY: ErrorReason
ERROR_REASON_STALE_CURSOR: ErrorReason
ERROR_REASON_NOT_FOUND: ErrorReason
ERROR_REASON_QUEUE_NOT_FOUND: ErrorReason
ERROR_REASON_ID_CONFLICT: ErrorReason
ERROR_REASON_CONTENTION: ErrorReason
ERROR_REASON_INVALID_NAME: ErrorReason
ERROR_REASON_RESERVED_NAME: ErrorReason
ERROR_REASON_INVALID_ARGUMENT: ErrorReason
ERROR_REASON_INVALID_CURSOR: ErrorReason
ERROR_REASON_CURSOR_BINDING_MISMATCH: ErrorReason
ERROR_REASON_PAYLOAD_TOO_LARGE: ErrorReason
ERROR_REASON_UNSUPPORTED: ErrorReason
ERROR_REASON_STORAGE_UNAVAILABLE: ErrorReason
ERROR_REASON_CLOSED: ErrorReason
ERROR_REASON_OVERLOADED: ErrorReason
ERROR_REASON_STORAGE_FULL: ErrorReason
ERROR_REASON_MESSAGE_TOO_LARGE: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_PERMISSION_DENIED: ErrorReason
ERROR_REASON_DEADLINE_EXCEEDED: ErrorReason
