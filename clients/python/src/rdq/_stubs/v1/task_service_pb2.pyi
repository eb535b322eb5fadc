import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from . import error_reason_pb2 as _error_reason_pb2
from . import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HandlerVersionMismatch(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HANDLER_VERSION_MISMATCH_UNSPECIFIED: _ClassVar[HandlerVersionMismatch]
    HANDLER_VERSION_MISMATCH_RUN_LATEST: _ClassVar[HandlerVersionMismatch]
    HANDLER_VERSION_MISMATCH_DEAD_LETTER: _ClassVar[HandlerVersionMismatch]

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_NONE: _ClassVar[Durability]
    DURABILITY_PROCESS: _ClassVar[Durability]
    DURABILITY_POWER_CUT: _ClassVar[Durability]
HANDLER_VERSION_MISMATCH_UNSPECIFIED: HandlerVersionMismatch
HANDLER_VERSION_MISMATCH_RUN_LATEST: HandlerVersionMismatch
HANDLER_VERSION_MISMATCH_DEAD_LETTER: HandlerVersionMismatch
DURABILITY_UNSPECIFIED: Durability
DURABILITY_NONE: Durability
DURABILITY_PROCESS: Durability
DURABILITY_POWER_CUT: Durability

class EnqueueRequest(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("id", "created", "status")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    id: str
    created: bool
    status: _task_pb2.TaskStatus
    def __init__(self, id: _Optional[str] = ..., created: _Optional[bool] = ..., status: _Optional[_Union[_task_pb2.TaskStatus, str]] = ...) -> None: ...

class EnqueueBatchRequest(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[_task_pb2.Task]
    def __init__(self, tasks: _Optional[_Iterable[_Union[_task_pb2.Task, _Mapping]]] = ...) -> None: ...

class EnqueueBatchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EnqueueResult]
    def __init__(self, results: _Optional[_Iterable[_Union[EnqueueResult, _Mapping]]] = ...) -> None: ...

class EnqueueResult(_message.Message):
    __slots__ = ("enqueued", "error")
    ENQUEUED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    enqueued: EnqueueResponse
    error: ItemError
    def __init__(self, enqueued: _Optional[_Union[EnqueueResponse, _Mapping]] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ...) -> None: ...

class ItemError(_message.Message):
    __slots__ = ("code", "reason", "message", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: _error_reason_pb2.ErrorReason
    message: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ClaimDueRequest(_message.Message):
    __slots__ = ("queues", "limit", "lease", "worker_id", "follow", "max_in_flight")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    lease: _duration_pb2.Duration
    worker_id: str
    follow: bool
    max_in_flight: int
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., worker_id: _Optional[str] = ..., follow: _Optional[bool] = ..., max_in_flight: _Optional[int] = ...) -> None: ...

class ClaimDueResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[ClaimedTask]
    def __init__(self, tasks: _Optional[_Iterable[_Union[ClaimedTask, _Mapping]]] = ...) -> None: ...

class ClaimedTask(_message.Message):
    __slots__ = ("task", "claim_token", "generation", "attempt_no", "lease_remaining", "execution_timeout", "max_attempts", "version_mismatch")
    TASK_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_NO_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_MISMATCH_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    claim_token: bytes
    generation: int
    attempt_no: int
    lease_remaining: _duration_pb2.Duration
    execution_timeout: _duration_pb2.Duration
    max_attempts: int
    version_mismatch: HandlerVersionMismatch
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., claim_token: _Optional[bytes] = ..., generation: _Optional[int] = ..., attempt_no: _Optional[int] = ..., lease_remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., execution_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_attempts: _Optional[int] = ..., version_mismatch: _Optional[_Union[HandlerVersionMismatch, str]] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("start", "credits", "outcomes", "heartbeats")
    START_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    start: WorkStart
    credits: int
    outcomes: _containers.RepeatedCompositeFieldContainer[WorkOutcome]
    heartbeats: _containers.RepeatedCompositeFieldContainer[WorkHeartbeat]
    def __init__(self, start: _Optional[_Union[WorkStart, _Mapping]] = ..., credits: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[WorkOutcome, _Mapping]]] = ..., heartbeats: _Optional[_Iterable[_Union[WorkHeartbeat, _Mapping]]] = ...) -> None: ...

class WorkStart(_message.Message):
    __slots__ = ("queues", "worker_id", "lease")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    worker_id: str
    lease: _duration_pb2.Duration
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., worker_id: _Optional[str] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WorkOutcome(_message.Message):
    __slots__ = ("seq", "resolution")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    seq: int
    resolution: Resolution
    def __init__(self, seq: _Optional[int] = ..., resolution: _Optional[_Union[Resolution, _Mapping]] = ...) -> None: ...

class WorkHeartbeat(_message.Message):
    __slots__ = ("seq", "extend")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    seq: int
    extend: ExtendLeaseRequest
    def __init__(self, seq: _Optional[int] = ..., extend: _Optional[_Union[ExtendLeaseRequest, _Mapping]] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("tasks", "outcome_acks", "heartbeat_acks", "lost", "draining")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_ACKS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_ACKS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[ClaimedTask]
    outcome_acks: _containers.RepeatedCompositeFieldContainer[WorkOutcomeAck]
    heartbeat_acks: _containers.RepeatedCompositeFieldContainer[WorkHeartbeatAck]
    lost: _containers.RepeatedCompositeFieldContainer[LostClaim]
    draining: bool
    def __init__(self, tasks: _Optional[_Iterable[_Union[ClaimedTask, _Mapping]]] = ..., outcome_acks: _Optional[_Iterable[_Union[WorkOutcomeAck, _Mapping]]] = ..., heartbeat_acks: _Optional[_Iterable[_Union[WorkHeartbeatAck, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[LostClaim, _Mapping]]] = ..., draining: _Optional[bool] = ...) -> None: ...

class WorkOutcomeAck(_message.Message):
    __slots__ = ("seq", "result")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    seq: int
    result: ResolveResult
    def __init__(self, seq: _Optional[int] = ..., result: _Optional[_Union[ResolveResult, _Mapping]] = ...) -> None: ...

class WorkHeartbeatAck(_message.Message):
    __slots__ = ("seq", "result")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    seq: int
    result: ExtendLeaseResult
    def __init__(self, seq: _Optional[int] = ..., result: _Optional[_Union[ExtendLeaseResult, _Mapping]] = ...) -> None: ...

class LostClaim(_message.Message):
    __slots__ = ("id", "generation", "detail")
    ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    id: str
    generation: int
    detail: str
    def __init__(self, id: _Optional[str] = ..., generation: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class WaitDueRequest(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queues: _Optional[_Iterable[str]] = ...) -> None: ...

class WaitDueResponse(_message.Message):
    __slots__ = ("queue", "due_in")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DUE_IN_FIELD_NUMBER: _ClassVar[int]
    queue: str
    due_in: _duration_pb2.Duration
    def __init__(self, queue: _Optional[str] = ..., due_in: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ExtendLeaseRequest(_message.Message):
    __slots__ = ("id", "claim_token", "lease", "progress")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    id: str
    claim_token: bytes
    lease: _duration_pb2.Duration
    progress: bytes
    def __init__(self, id: _Optional[str] = ..., claim_token: _Optional[bytes] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., progress: _Optional[bytes] = ...) -> None: ...

class ExtendLeaseResponse(_message.Message):
    __slots__ = ("lease_expires_at", "lease_remaining")
    LEASE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_FIELD_NUMBER: _ClassVar[int]
    lease_expires_at: _timestamp_pb2.Timestamp
    lease_remaining: _duration_pb2.Duration
    def __init__(self, lease_expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ExtendLeasesRequest(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[ExtendLeaseRequest]
    def __init__(self, leases: _Optional[_Iterable[_Union[ExtendLeaseRequest, _Mapping]]] = ...) -> None: ...

class ExtendLeasesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ExtendLeaseResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ExtendLeaseResult, _Mapping]]] = ...) -> None: ...

class ExtendLeaseResult(_message.Message):
    __slots__ = ("extended", "error")
    EXTENDED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    extended: ExtendLeaseResponse
    error: ItemError
    def __init__(self, extended: _Optional[_Union[ExtendLeaseResponse, _Mapping]] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("id", "claim_token", "attempt", "result")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    id: str
    claim_token: bytes
    attempt: _task_pb2.Attempt
    result: bytes
    def __init__(self, id: _Optional[str] = ..., claim_token: _Optional[bytes] = ..., attempt: _Optional[_Union[_task_pb2.Attempt, _Mapping]] = ..., result: _Optional[bytes] = ...) -> None: ...

class CompleteResponse(_message.Message):
    __slots__ = ("replayed",)
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    replayed: bool
    def __init__(self, replayed: _Optional[bool] = ...) -> None: ...

class RescheduleRequest(_message.Message):
    __slots__ = ("id", "claim_token", "attempt", "next_attempt_at", "delay")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_AT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    id: str
    claim_token: bytes
    attempt: _task_pb2.Attempt
    next_attempt_at: _timestamp_pb2.Timestamp
    delay: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., claim_token: _Optional[bytes] = ..., attempt: _Optional[_Union[_task_pb2.Attempt, _Mapping]] = ..., next_attempt_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RescheduleResponse(_message.Message):
    __slots__ = ("next_attempt_at", "replayed")
    NEXT_ATTEMPT_AT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    next_attempt_at: _timestamp_pb2.Timestamp
    replayed: bool
    def __init__(self, next_attempt_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class DeadLetterRequest(_message.Message):
    __slots__ = ("id", "claim_token", "attempt")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    id: str
    claim_token: bytes
    attempt: _task_pb2.Attempt
    def __init__(self, id: _Optional[str] = ..., claim_token: _Optional[bytes] = ..., attempt: _Optional[_Union[_task_pb2.Attempt, _Mapping]] = ...) -> None: ...

class DeadLetterResponse(_message.Message):
    __slots__ = ("replayed",)
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    replayed: bool
    def __init__(self, replayed: _Optional[bool] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("id", "claim_token", "attempt")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    id: str
    claim_token: bytes
    attempt: _task_pb2.Attempt
    def __init__(self, id: _Optional[str] = ..., claim_token: _Optional[bytes] = ..., attempt: _Optional[_Union[_task_pb2.Attempt, _Mapping]] = ...) -> None: ...

class FailResponse(_message.Message):
    __slots__ = ("status", "next_attempt_at", "replayed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_AT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    status: _task_pb2.TaskStatus
    next_attempt_at: _timestamp_pb2.Timestamp
    replayed: bool
    def __init__(self, status: _Optional[_Union[_task_pb2.TaskStatus, str]] = ..., next_attempt_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("id", "claim_token", "delay")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    id: str
    claim_token: bytes
    delay: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., claim_token: _Optional[bytes] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("next_attempt_at", "replayed")
    NEXT_ATTEMPT_AT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    next_attempt_at: _timestamp_pb2.Timestamp
    replayed: bool
    def __init__(self, next_attempt_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class Resolution(_message.Message):
    __slots__ = ("complete", "reschedule", "dead_letter", "fail", "release", "decided_fail")
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULE_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FAIL_FIELD_NUMBER: _ClassVar[int]
    complete: CompleteRequest
    reschedule: RescheduleRequest
    dead_letter: DeadLetterRequest
    fail: FailRequest
    release: ReleaseRequest
    decided_fail: bool
    def __init__(self, complete: _Optional[_Union[CompleteRequest, _Mapping]] = ..., reschedule: _Optional[_Union[RescheduleRequest, _Mapping]] = ..., dead_letter: _Optional[_Union[DeadLetterRequest, _Mapping]] = ..., fail: _Optional[_Union[FailRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseRequest, _Mapping]] = ..., decided_fail: _Optional[bool] = ...) -> None: ...

class ResolveBatchRequest(_message.Message):
    __slots__ = ("resolutions",)
    RESOLUTIONS_FIELD_NUMBER: _ClassVar[int]
    resolutions: _containers.RepeatedCompositeFieldContainer[Resolution]
    def __init__(self, resolutions: _Optional[_Iterable[_Union[Resolution, _Mapping]]] = ...) -> None: ...

class ResolveBatchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ResolveResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ResolveResult, _Mapping]]] = ...) -> None: ...

class ResolveResult(_message.Message):
    __slots__ = ("resolved", "error")
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    resolved: ResolvedClaim
    error: ItemError
    def __init__(self, resolved: _Optional[_Union[ResolvedClaim, _Mapping]] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ...) -> None: ...

class ResolvedClaim(_message.Message):
    __slots__ = ("status", "next_attempt_at", "replayed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_AT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    status: _task_pb2.TaskStatus
    next_attempt_at: _timestamp_pb2.Timestamp
    replayed: bool
    def __init__(self, status: _Optional[_Union[_task_pb2.TaskStatus, str]] = ..., next_attempt_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class LiveClaimsRequest(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[ClaimRef]
    def __init__(self, claims: _Optional[_Iterable[_Union[ClaimRef, _Mapping]]] = ...) -> None: ...

class ClaimRef(_message.Message):
    __slots__ = ("id", "claim_token")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    id: str
    claim_token: bytes
    def __init__(self, id: _Optional[str] = ..., claim_token: _Optional[bytes] = ...) -> None: ...

class LiveClaimsResponse(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[LiveClaim]
    def __init__(self, claims: _Optional[_Iterable[_Union[LiveClaim, _Mapping]]] = ...) -> None: ...

class LiveClaim(_message.Message):
    __slots__ = ("live", "lease_remaining")
    LIVE_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_FIELD_NUMBER: _ClassVar[int]
    live: bool
    lease_remaining: _duration_pb2.Duration
    def __init__(self, live: _Optional[bool] = ..., lease_remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("status", "cancelled")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    status: _task_pb2.TaskStatus
    cancelled: bool
    def __init__(self, status: _Optional[_Union[_task_pb2.TaskStatus, str]] = ..., cancelled: _Optional[bool] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("id", "outbox")
    ID_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    id: str
    outbox: str
    def __init__(self, id: _Optional[str] = ..., outbox: _Optional[str] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("queue", "status", "page_size", "page_token", "include_attempts")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    status: _task_pb2.TaskStatus
    page_size: int
    page_token: str
    include_attempts: bool
    def __init__(self, queue: _Optional[str] = ..., status: _Optional[_Union[_task_pb2.TaskStatus, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_attempts: _Optional[bool] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[_task_pb2.Task]
    next_page_token: str
    def __init__(self, tasks: _Optional[_Iterable[_Union[_task_pb2.Task, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DlqListRequest(_message.Message):
    __slots__ = ("queue", "filter", "page_size", "page_token", "include_attempts", "outbox")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    queue: str
    filter: DlqFilter
    page_size: int
    page_token: str
    include_attempts: bool
    outbox: str
    def __init__(self, queue: _Optional[str] = ..., filter: _Optional[_Union[DlqFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_attempts: _Optional[bool] = ..., outbox: _Optional[str] = ...) -> None: ...

class DlqListResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[_task_pb2.Task]
    next_page_token: str
    def __init__(self, tasks: _Optional[_Iterable[_Union[_task_pb2.Task, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DlqFilter(_message.Message):
    __slots__ = ("error_type", "handler_ref", "dead_lettered_from", "dead_lettered_to")
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    HANDLER_REF_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FROM_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_TO_FIELD_NUMBER: _ClassVar[int]
    error_type: str
    handler_ref: str
    dead_lettered_from: _timestamp_pb2.Timestamp
    dead_lettered_to: _timestamp_pb2.Timestamp
    def __init__(self, error_type: _Optional[str] = ..., handler_ref: _Optional[str] = ..., dead_lettered_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dead_lettered_to: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Selector(_message.Message):
    __slots__ = ("ids", "filter", "all")
    IDS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    ids: TaskIds
    filter: DlqFilter
    all: bool
    def __init__(self, ids: _Optional[_Union[TaskIds, _Mapping]] = ..., filter: _Optional[_Union[DlqFilter, _Mapping]] = ..., all: _Optional[bool] = ...) -> None: ...

class TaskIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("queue", "selector", "dry_run", "spread_over", "rate_per_second", "outbox")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SPREAD_OVER_FIELD_NUMBER: _ClassVar[int]
    RATE_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    queue: str
    selector: Selector
    dry_run: bool
    spread_over: _duration_pb2.Duration
    rate_per_second: float
    outbox: str
    def __init__(self, queue: _Optional[str] = ..., selector: _Optional[_Union[Selector, _Mapping]] = ..., dry_run: _Optional[bool] = ..., spread_over: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rate_per_second: _Optional[float] = ..., outbox: _Optional[str] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("count", "done")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    count: int
    done: bool
    def __init__(self, count: _Optional[int] = ..., done: _Optional[bool] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("queue", "selector", "dry_run", "outbox")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    queue: str
    selector: Selector
    dry_run: bool
    outbox: str
    def __init__(self, queue: _Optional[str] = ..., selector: _Optional[_Union[Selector, _Mapping]] = ..., dry_run: _Optional[bool] = ..., outbox: _Optional[str] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("count", "done")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    count: int
    done: bool
    def __init__(self, count: _Optional[int] = ..., done: _Optional[bool] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("queues", "outboxes")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    OUTBOXES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    outboxes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., outboxes: _Optional[_Iterable[str]] = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueStats]
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueStats, _Mapping]]] = ...) -> None: ...

class QueueStats(_message.Message):
    __slots__ = ("queue", "pending", "ready", "delayed", "in_flight", "lapsed", "dlq_depth", "succeeded", "cancelled", "oldest_pending_age", "outbox")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LAPSED_FIELD_NUMBER: _ClassVar[int]
    DLQ_DEPTH_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PENDING_AGE_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    queue: str
    pending: int
    ready: int
    delayed: int
    in_flight: int
    lapsed: int
    dlq_depth: int
    succeeded: int
    cancelled: int
    oldest_pending_age: _duration_pb2.Duration
    outbox: str
    def __init__(self, queue: _Optional[str] = ..., pending: _Optional[int] = ..., ready: _Optional[int] = ..., delayed: _Optional[int] = ..., in_flight: _Optional[int] = ..., lapsed: _Optional[int] = ..., dlq_depth: _Optional[int] = ..., succeeded: _Optional[int] = ..., cancelled: _Optional[int] = ..., oldest_pending_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., outbox: _Optional[str] = ...) -> None: ...

class PurgeSucceededRequest(_message.Message):
    __slots__ = ("queue", "older_than")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    queue: str
    older_than: _timestamp_pb2.Timestamp
    def __init__(self, queue: _Optional[str] = ..., older_than: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PurgeSucceededResponse(_message.Message):
    __slots__ = ("purged", "more")
    PURGED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    purged: int
    more: bool
    def __init__(self, purged: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class SweepExpiredRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class SweepExpiredResponse(_message.Message):
    __slots__ = ("expired", "removed", "more")
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    expired: int
    removed: int
    more: bool
    def __init__(self, expired: _Optional[int] = ..., removed: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class GetCapabilitiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCapabilitiesResponse(_message.Message):
    __slots__ = ("contract_version", "server_version", "durability", "capabilities")
    CONTRACT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    contract_version: str
    server_version: str
    durability: Durability
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, contract_version: _Optional[str] = ..., server_version: _Optional[str] = ..., durability: _Optional[_Union[Durability, str]] = ..., capabilities: _Optional[_Iterable[str]] = ...) -> None: ...
