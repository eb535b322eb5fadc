import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OutboxMessage(_message.Message):
    __slots__ = ("id", "outbox", "payload", "headers", "attempt_count", "last_error", "available_at", "created_at", "worker_id", "generation", "lease_expires_at")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    outbox: str
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    attempt_count: int
    last_error: str
    available_at: _timestamp_pb2.Timestamp
    created_at: _timestamp_pb2.Timestamp
    worker_id: str
    generation: int
    lease_expires_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., outbox: _Optional[str] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., attempt_count: _Optional[int] = ..., last_error: _Optional[str] = ..., available_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., worker_id: _Optional[str] = ..., generation: _Optional[int] = ..., lease_expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class OutboxServiceEnqueueRequest(_message.Message):
    __slots__ = ("outbox", "id", "payload", "headers", "delay")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    outbox: str
    id: str
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    delay: _duration_pb2.Duration
    def __init__(self, outbox: _Optional[str] = ..., id: _Optional[str] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class OutboxServiceEnqueueResponse(_message.Message):
    __slots__ = ("id", "created")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    created: bool
    def __init__(self, id: _Optional[str] = ..., created: _Optional[bool] = ...) -> None: ...

class ClaimBatchRequest(_message.Message):
    __slots__ = ("outbox", "limit", "lease", "worker_id")
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    outbox: str
    limit: int
    lease: _duration_pb2.Duration
    worker_id: str
    def __init__(self, outbox: _Optional[str] = ..., limit: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., worker_id: _Optional[str] = ...) -> None: ...

class ClaimBatchResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[OutboxMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[OutboxMessage, _Mapping]]] = ...) -> None: ...

class MarkProjectedRequest(_message.Message):
    __slots__ = ("id", "worker_id", "generation")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    worker_id: str
    generation: int
    def __init__(self, id: _Optional[str] = ..., worker_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class MarkProjectedResponse(_message.Message):
    __slots__ = ("replayed",)
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    replayed: bool
    def __init__(self, replayed: _Optional[bool] = ...) -> None: ...

class ReleaseWithErrorRequest(_message.Message):
    __slots__ = ("id", "worker_id", "generation", "error", "delay")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    id: str
    worker_id: str
    generation: int
    error: str
    delay: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., worker_id: _Optional[str] = ..., generation: _Optional[int] = ..., error: _Optional[str] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReleaseWithErrorResponse(_message.Message):
    __slots__ = ("available_at",)
    AVAILABLE_AT_FIELD_NUMBER: _ClassVar[int]
    available_at: _timestamp_pb2.Timestamp
    def __init__(self, available_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class OutboxServiceFailRequest(_message.Message):
    __slots__ = ("id", "worker_id", "generation", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    worker_id: str
    generation: int
    error: str
    def __init__(self, id: _Optional[str] = ..., worker_id: _Optional[str] = ..., generation: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class OutboxServiceFailResponse(_message.Message):
    __slots__ = ("dead", "available_at")
    DEAD_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_AT_FIELD_NUMBER: _ClassVar[int]
    dead: bool
    available_at: _timestamp_pb2.Timestamp
    def __init__(self, dead: _Optional[bool] = ..., available_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CountUnprojectedRequest(_message.Message):
    __slots__ = ("outbox",)
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    outbox: str
    def __init__(self, outbox: _Optional[str] = ...) -> None: ...

class CountUnprojectedResponse(_message.Message):
    __slots__ = ("counts",)
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedCompositeFieldContainer[OutboxCount]
    def __init__(self, counts: _Optional[_Iterable[_Union[OutboxCount, _Mapping]]] = ...) -> None: ...

class OutboxCount(_message.Message):
    __slots__ = ("outbox", "unprojected")
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    UNPROJECTED_FIELD_NUMBER: _ClassVar[int]
    outbox: str
    unprojected: int
    def __init__(self, outbox: _Optional[str] = ..., unprojected: _Optional[int] = ...) -> None: ...
