from . import outbox_service_pb2 as _outbox_service_pb2
from . import record_service_pb2 as _record_service_pb2
from . import signal_service_pb2 as _signal_service_pb2
from . import stream_service_pb2 as _stream_service_pb2
from . import task_service_pb2 as _task_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Operation(_message.Message):
    __slots__ = ("enqueue", "publish", "notify", "save_offset", "outbox_enqueue", "compare_and_set", "delete_record", "cancel", "resolve", "mark_projected", "release_with_error")
    ENQUEUE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    SAVE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_ENQUEUE_FIELD_NUMBER: _ClassVar[int]
    COMPARE_AND_SET_FIELD_NUMBER: _ClassVar[int]
    DELETE_RECORD_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RESOLVE_FIELD_NUMBER: _ClassVar[int]
    MARK_PROJECTED_FIELD_NUMBER: _ClassVar[int]
    RELEASE_WITH_ERROR_FIELD_NUMBER: _ClassVar[int]
    enqueue: _task_service_pb2.EnqueueRequest
    publish: _stream_service_pb2.PublishRequest
    notify: _signal_service_pb2.NotifyRequest
    save_offset: _stream_service_pb2.SaveOffsetRequest
    outbox_enqueue: _outbox_service_pb2.OutboxServiceEnqueueRequest
    compare_and_set: _record_service_pb2.CompareAndSetRequest
    delete_record: _record_service_pb2.DeleteRecordRequest
    cancel: _task_service_pb2.CancelRequest
    resolve: _task_service_pb2.Resolution
    mark_projected: _outbox_service_pb2.MarkProjectedRequest
    release_with_error: _outbox_service_pb2.ReleaseWithErrorRequest
    def __init__(self, enqueue: _Optional[_Union[_task_service_pb2.EnqueueRequest, _Mapping]] = ..., publish: _Optional[_Union[_stream_service_pb2.PublishRequest, _Mapping]] = ..., notify: _Optional[_Union[_signal_service_pb2.NotifyRequest, _Mapping]] = ..., save_offset: _Optional[_Union[_stream_service_pb2.SaveOffsetRequest, _Mapping]] = ..., outbox_enqueue: _Optional[_Union[_outbox_service_pb2.OutboxServiceEnqueueRequest, _Mapping]] = ..., compare_and_set: _Optional[_Union[_record_service_pb2.CompareAndSetRequest, _Mapping]] = ..., delete_record: _Optional[_Union[_record_service_pb2.DeleteRecordRequest, _Mapping]] = ..., cancel: _Optional[_Union[_task_service_pb2.CancelRequest, _Mapping]] = ..., resolve: _Optional[_Union[_task_service_pb2.Resolution, _Mapping]] = ..., mark_projected: _Optional[_Union[_outbox_service_pb2.MarkProjectedRequest, _Mapping]] = ..., release_with_error: _Optional[_Union[_outbox_service_pb2.ReleaseWithErrorRequest, _Mapping]] = ...) -> None: ...

class OperationResult(_message.Message):
    __slots__ = ("enqueue", "publish", "notify", "save_offset", "outbox_enqueue", "compare_and_set", "delete_record", "cancel", "resolve", "mark_projected", "release_with_error")
    ENQUEUE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    SAVE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_ENQUEUE_FIELD_NUMBER: _ClassVar[int]
    COMPARE_AND_SET_FIELD_NUMBER: _ClassVar[int]
    DELETE_RECORD_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RESOLVE_FIELD_NUMBER: _ClassVar[int]
    MARK_PROJECTED_FIELD_NUMBER: _ClassVar[int]
    RELEASE_WITH_ERROR_FIELD_NUMBER: _ClassVar[int]
    enqueue: _task_service_pb2.EnqueueResponse
    publish: _stream_service_pb2.PublishResponse
    notify: _signal_service_pb2.NotifyResponse
    save_offset: _stream_service_pb2.SaveOffsetResponse
    outbox_enqueue: _outbox_service_pb2.OutboxServiceEnqueueResponse
    compare_and_set: _record_service_pb2.CompareAndSetResponse
    delete_record: _record_service_pb2.DeleteRecordResponse
    cancel: _task_service_pb2.CancelResponse
    resolve: _task_service_pb2.ResolvedClaim
    mark_projected: _outbox_service_pb2.MarkProjectedResponse
    release_with_error: _outbox_service_pb2.ReleaseWithErrorResponse
    def __init__(self, enqueue: _Optional[_Union[_task_service_pb2.EnqueueResponse, _Mapping]] = ..., publish: _Optional[_Union[_stream_service_pb2.PublishResponse, _Mapping]] = ..., notify: _Optional[_Union[_signal_service_pb2.NotifyResponse, _Mapping]] = ..., save_offset: _Optional[_Union[_stream_service_pb2.SaveOffsetResponse, _Mapping]] = ..., outbox_enqueue: _Optional[_Union[_outbox_service_pb2.OutboxServiceEnqueueResponse, _Mapping]] = ..., compare_and_set: _Optional[_Union[_record_service_pb2.CompareAndSetResponse, _Mapping]] = ..., delete_record: _Optional[_Union[_record_service_pb2.DeleteRecordResponse, _Mapping]] = ..., cancel: _Optional[_Union[_task_service_pb2.CancelResponse, _Mapping]] = ..., resolve: _Optional[_Union[_task_service_pb2.ResolvedClaim, _Mapping]] = ..., mark_projected: _Optional[_Union[_outbox_service_pb2.MarkProjectedResponse, _Mapping]] = ..., release_with_error: _Optional[_Union[_outbox_service_pb2.ReleaseWithErrorResponse, _Mapping]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("operations",)
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OperationResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OperationResult, _Mapping]]] = ...) -> None: ...

class TransactRequest(_message.Message):
    __slots__ = ("apply", "get_task", "get_offset", "read_stream", "commit")
    APPLY_FIELD_NUMBER: _ClassVar[int]
    GET_TASK_FIELD_NUMBER: _ClassVar[int]
    GET_OFFSET_FIELD_NUMBER: _ClassVar[int]
    READ_STREAM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    apply: CommitRequest
    get_task: _task_service_pb2.GetRequest
    get_offset: _stream_service_pb2.GetOffsetRequest
    read_stream: _stream_service_pb2.ReadRequest
    commit: CommitTransaction
    def __init__(self, apply: _Optional[_Union[CommitRequest, _Mapping]] = ..., get_task: _Optional[_Union[_task_service_pb2.GetRequest, _Mapping]] = ..., get_offset: _Optional[_Union[_stream_service_pb2.GetOffsetRequest, _Mapping]] = ..., read_stream: _Optional[_Union[_stream_service_pb2.ReadRequest, _Mapping]] = ..., commit: _Optional[_Union[CommitTransaction, _Mapping]] = ...) -> None: ...

class CommitTransaction(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TransactResponse(_message.Message):
    __slots__ = ("applied", "task", "offset", "events", "committed", "error")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    applied: CommitResponse
    task: _task_service_pb2.GetResponse
    offset: _stream_service_pb2.GetOffsetResponse
    events: _stream_service_pb2.ReadResponse
    committed: CommittedTransaction
    error: TransactError
    def __init__(self, applied: _Optional[_Union[CommitResponse, _Mapping]] = ..., task: _Optional[_Union[_task_service_pb2.GetResponse, _Mapping]] = ..., offset: _Optional[_Union[_stream_service_pb2.GetOffsetResponse, _Mapping]] = ..., events: _Optional[_Union[_stream_service_pb2.ReadResponse, _Mapping]] = ..., committed: _Optional[_Union[CommittedTransaction, _Mapping]] = ..., error: _Optional[_Union[TransactError, _Mapping]] = ...) -> None: ...

class CommittedTransaction(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TransactError(_message.Message):
    __slots__ = ("error", "operation_index")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OPERATION_INDEX_FIELD_NUMBER: _ClassVar[int]
    error: _task_service_pb2.ItemError
    operation_index: int
    def __init__(self, error: _Optional[_Union[_task_service_pb2.ItemError, _Mapping]] = ..., operation_index: _Optional[int] = ...) -> None: ...
