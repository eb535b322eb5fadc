"""The contract's services by their generated stubs, on a client's own connection, with its metadata and deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from . import _status
from ._connection import Connection, Metadata
from ._stubs.v1 import (
    ledger_service_pb2_grpc,
    lock_service_pb2_grpc,
    outbox_service_pb2_grpc,
    queue_service_pb2_grpc,
    record_service_pb2_grpc,
    schedule_service_pb2_grpc,
    signal_service_pb2_grpc,
    stream_service_pb2_grpc,
    task_service_pb2_grpc,
    transaction_service_pb2_grpc,
)
from .errors import RdqError

if TYPE_CHECKING:
    # These exist for type checkers alone.
    from ._stubs.v1.ledger_service_pb2_grpc import LedgerServiceAsyncStub
    from ._stubs.v1.lock_service_pb2_grpc import LockServiceAsyncStub
    from ._stubs.v1.outbox_service_pb2_grpc import OutboxServiceAsyncStub
    from ._stubs.v1.queue_service_pb2_grpc import QueueServiceAsyncStub
    from ._stubs.v1.record_service_pb2_grpc import RecordServiceAsyncStub
    from ._stubs.v1.schedule_service_pb2_grpc import ScheduleServiceAsyncStub
    from ._stubs.v1.signal_service_pb2_grpc import SignalServiceAsyncStub
    from ._stubs.v1.stream_service_pb2_grpc import StreamServiceAsyncStub
    from ._stubs.v1.task_service_pb2_grpc import TaskServiceAsyncStub
    from ._stubs.v1.transaction_service_pb2_grpc import TransactionServiceAsyncStub


class Services:
    """A stub for each service; see `Client.services`.

    The messages are in `rdq.contract`. A call carries the client's metadata, and a unary one has the client's deadline
    if no `timeout` is given. Nothing is repeated, since not all of it may be. A unary call raises `RdqError`; a stream
    is gRPC's own call, and `error_of` tells what the error that it raises means.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        channel = cast(grpc.aio.Channel, _OnConnection(connection))
        self.tasks: TaskServiceAsyncStub = task_service_pb2_grpc.TaskServiceStub(channel)
        self.queues: QueueServiceAsyncStub = queue_service_pb2_grpc.QueueServiceStub(channel)
        self.signals: SignalServiceAsyncStub = signal_service_pb2_grpc.SignalServiceStub(channel)
        self.streams: StreamServiceAsyncStub = stream_service_pb2_grpc.StreamServiceStub(channel)
        self.locks: LockServiceAsyncStub = lock_service_pb2_grpc.LockServiceStub(channel)
        self.schedules: ScheduleServiceAsyncStub = schedule_service_pb2_grpc.ScheduleServiceStub(channel)
        self.outboxes: OutboxServiceAsyncStub = outbox_service_pb2_grpc.OutboxServiceStub(channel)
        self.records: RecordServiceAsyncStub = record_service_pb2_grpc.RecordServiceStub(channel)
        self.transactions: TransactionServiceAsyncStub = transaction_service_pb2_grpc.TransactionServiceStub(channel)
        self.ledger: LedgerServiceAsyncStub = ledger_service_pb2_grpc.LedgerServiceStub(channel)


def error_of(error: grpc.RpcError) -> RdqError:
    """What gRPC's own error of a call means, as one of this client's types."""
    return _status.of_call(cast(grpc.aio.AioRpcError, error))


class _OnConnection:
    """What a stub needs of a channel: each call goes by the connection that is current when it is made."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def unary_unary(self, method: str, **types: Any) -> Callable[..., Awaitable[Any]]:
        connection = self._connection

        async def call(request: Any, *, timeout: float | None = None, metadata: Metadata = (), **options: Any) -> Any:
            channel = connection.current()
            try:
                return await channel.channel.unary_unary(method, **types)(
                    request,
                    timeout=connection.deadline if timeout is None else timeout,
                    metadata=(*connection.metadata, *metadata),
                    **options,
                )
            except grpc.aio.AioRpcError as error:
                raise _status.of_call(error) from None

        return call

    def unary_stream(self, method: str, **types: Any) -> Callable[..., Any]:
        return self._streaming("unary_stream", method, types)

    def stream_stream(self, method: str, **types: Any) -> Callable[..., Any]:
        return self._streaming("stream_stream", method, types)

    def _streaming(self, kind: str, method: str, types: dict[str, Any]) -> Callable[..., Any]:
        connection = self._connection

        def call(request: Any = None, *, metadata: Metadata = (), **options: Any) -> Any:
            made = getattr(connection.current().channel, kind)(method, **types)
            return made(request, metadata=(*connection.metadata, *metadata), **options)

        return call
