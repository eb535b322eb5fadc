import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from . import transaction_service_pb2 as _transaction_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MutationDisposition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MUTATION_DISPOSITION_UNSPECIFIED: _ClassVar[MutationDisposition]
    MUTATION_DISPOSITION_FIRST: _ClassVar[MutationDisposition]
    MUTATION_DISPOSITION_REPLAY: _ClassVar[MutationDisposition]
    MUTATION_DISPOSITION_CONFLICT: _ClassVar[MutationDisposition]

class MutationStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MUTATION_STATUS_UNSPECIFIED: _ClassVar[MutationStatus]
    MUTATION_STATUS_ACCEPTED: _ClassVar[MutationStatus]
    MUTATION_STATUS_REJECTED: _ClassVar[MutationStatus]
MUTATION_DISPOSITION_UNSPECIFIED: MutationDisposition
MUTATION_DISPOSITION_FIRST: MutationDisposition
MUTATION_DISPOSITION_REPLAY: MutationDisposition
MUTATION_DISPOSITION_CONFLICT: MutationDisposition
MUTATION_STATUS_UNSPECIFIED: MutationStatus
MUTATION_STATUS_ACCEPTED: MutationStatus
MUTATION_STATUS_REJECTED: MutationStatus

class MutationScope(_message.Message):
    __slots__ = ("subject", "operation", "key")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    subject: str
    operation: str
    key: str
    def __init__(self, subject: _Optional[str] = ..., operation: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("scope", "kind", "eligibility_claim", "request_fingerprint", "operations", "status", "response")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ELIGIBILITY_CLAIM_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    scope: MutationScope
    kind: str
    eligibility_claim: bytes
    request_fingerprint: bytes
    operations: _containers.RepeatedCompositeFieldContainer[_transaction_service_pb2.Operation]
    status: MutationStatus
    response: bytes
    def __init__(self, scope: _Optional[_Union[MutationScope, _Mapping]] = ..., kind: _Optional[str] = ..., eligibility_claim: _Optional[bytes] = ..., request_fingerprint: _Optional[bytes] = ..., operations: _Optional[_Iterable[_Union[_transaction_service_pb2.Operation, _Mapping]]] = ..., status: _Optional[_Union[MutationStatus, str]] = ..., response: _Optional[bytes] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ("disposition", "status", "response", "results")
    DISPOSITION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    disposition: MutationDisposition
    status: MutationStatus
    response: bytes
    results: _containers.RepeatedCompositeFieldContainer[_transaction_service_pb2.OperationResult]
    def __init__(self, disposition: _Optional[_Union[MutationDisposition, str]] = ..., status: _Optional[_Union[MutationStatus, str]] = ..., response: _Optional[bytes] = ..., results: _Optional[_Iterable[_Union[_transaction_service_pb2.OperationResult, _Mapping]]] = ...) -> None: ...

class Mutation(_message.Message):
    __slots__ = ("scope", "kind", "eligibility_claim", "request_fingerprint", "status", "response", "observed_at", "answers")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ELIGIBILITY_CLAIM_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    scope: MutationScope
    kind: str
    eligibility_claim: bytes
    request_fingerprint: bytes
    status: MutationStatus
    response: bytes
    observed_at: _timestamp_pb2.Timestamp
    answers: bytes
    def __init__(self, scope: _Optional[_Union[MutationScope, _Mapping]] = ..., kind: _Optional[str] = ..., eligibility_claim: _Optional[bytes] = ..., request_fingerprint: _Optional[bytes] = ..., status: _Optional[_Union[MutationStatus, str]] = ..., response: _Optional[bytes] = ..., observed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., answers: _Optional[bytes] = ...) -> None: ...

class GetMutationRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: MutationScope
    def __init__(self, scope: _Optional[_Union[MutationScope, _Mapping]] = ...) -> None: ...

class GetMutationResponse(_message.Message):
    __slots__ = ("mutation",)
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ...) -> None: ...

class PruneMutationsRequest(_message.Message):
    __slots__ = ("older_than", "limit")
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    older_than: _duration_pb2.Duration
    limit: int
    def __init__(self, older_than: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limit: _Optional[int] = ...) -> None: ...

class PruneMutationsResponse(_message.Message):
    __slots__ = ("count", "more")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    count: int
    more: bool
    def __init__(self, count: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...
