import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from . import task_service_pb2 as _task_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueueConfig(_message.Message):
    __slots__ = ("retry", "classification", "execution", "limits", "retention", "handler", "paused")
    RETRY_FIELD_NUMBER: _ClassVar[int]
    CLASSIFICATION_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    retry: RetryConfig
    classification: ClassificationConfig
    execution: ExecutionConfig
    limits: LimitsConfig
    retention: RetentionConfig
    handler: HandlerConfig
    paused: bool
    def __init__(self, retry: _Optional[_Union[RetryConfig, _Mapping]] = ..., classification: _Optional[_Union[ClassificationConfig, _Mapping]] = ..., execution: _Optional[_Union[ExecutionConfig, _Mapping]] = ..., limits: _Optional[_Union[LimitsConfig, _Mapping]] = ..., retention: _Optional[_Union[RetentionConfig, _Mapping]] = ..., handler: _Optional[_Union[HandlerConfig, _Mapping]] = ..., paused: _Optional[bool] = ...) -> None: ...

class RetryConfig(_message.Message):
    __slots__ = ("max_attempts", "initial_backoff", "multiplier", "max_backoff", "jitter")
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    max_attempts: int
    initial_backoff: _duration_pb2.Duration
    multiplier: float
    max_backoff: _duration_pb2.Duration
    jitter: float
    def __init__(self, max_attempts: _Optional[int] = ..., initial_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., multiplier: _Optional[float] = ..., max_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., jitter: _Optional[float] = ...) -> None: ...

class ClassificationConfig(_message.Message):
    __slots__ = ("retryable", "permanent")
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    retryable: _containers.RepeatedScalarFieldContainer[str]
    permanent: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, retryable: _Optional[_Iterable[str]] = ..., permanent: _Optional[_Iterable[str]] = ...) -> None: ...

class ExecutionConfig(_message.Message):
    __slots__ = ("lease", "timeout", "strict_leases")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    STRICT_LEASES_FIELD_NUMBER: _ClassVar[int]
    lease: _duration_pb2.Duration
    timeout: _duration_pb2.Duration
    strict_leases: bool
    def __init__(self, lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., strict_leases: _Optional[bool] = ...) -> None: ...

class LimitsConfig(_message.Message):
    __slots__ = ("max_payload_bytes",)
    MAX_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_payload_bytes: int
    def __init__(self, max_payload_bytes: _Optional[int] = ...) -> None: ...

class RetentionConfig(_message.Message):
    __slots__ = ("succeeded", "cancelled", "dead")
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    succeeded: _duration_pb2.Duration
    cancelled: _duration_pb2.Duration
    dead: _duration_pb2.Duration
    def __init__(self, succeeded: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cancelled: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dead: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class HandlerConfig(_message.Message):
    __slots__ = ("version_mismatch",)
    VERSION_MISMATCH_FIELD_NUMBER: _ClassVar[int]
    version_mismatch: _task_service_pb2.HandlerVersionMismatch
    def __init__(self, version_mismatch: _Optional[_Union[_task_service_pb2.HandlerVersionMismatch, str]] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "config", "effective", "updated_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    config: QueueConfig
    effective: QueueConfig
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., config: _Optional[_Union[QueueConfig, _Mapping]] = ..., effective: _Optional[_Union[QueueConfig, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PutQueueRequest(_message.Message):
    __slots__ = ("name", "config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    config: QueueConfig
    def __init__(self, name: _Optional[str] = ..., config: _Optional[_Union[QueueConfig, _Mapping]] = ...) -> None: ...

class PutQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_page_token")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    next_page_token: str
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class PauseQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PauseQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class ResumeQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ResumeQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...
