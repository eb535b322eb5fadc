"""The contract's services by their generated stubs, for plain threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, cast

import grpc
import grpc.aio

from .. import _status
from .. import services as _services
from .._connection import Connection, Metadata
from .._stubs.v1 import (
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
from ._loop import LoopThread


class Services:
    """A stub for each service; see `Client.services`.

    The messages are in `rdq.contract`. A call carries the client's metadata, and a unary one has the client's deadline
    if no `timeout` is given. Nothing is repeated, since not all of it may be. A call returns its answer; a stream is an
    iterator of its answers, and takes an iterator of its requests if it has many. All raise `RdqError`.
    """

    def __init__(self, loop: LoopThread, services: _services.Services) -> None:
        channel = cast(grpc.Channel, _Waiting(loop, services._connection))
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.queues = queue_service_pb2_grpc.QueueServiceStub(channel)
        self.signals = signal_service_pb2_grpc.SignalServiceStub(channel)
        self.streams = stream_service_pb2_grpc.StreamServiceStub(channel)
        self.locks = lock_service_pb2_grpc.LockServiceStub(channel)
        self.schedules = schedule_service_pb2_grpc.ScheduleServiceStub(channel)
        self.outboxes = outbox_service_pb2_grpc.OutboxServiceStub(channel)
        self.records = record_service_pb2_grpc.RecordServiceStub(channel)
        self.transactions = transaction_service_pb2_grpc.TransactionServiceStub(channel)


class _Waiting:
    """What a stub needs of a channel: calls that run on the background loop, and are waited for."""

    def __init__(self, loop: LoopThread, connection: Connection) -> None:
        self._loop = loop
        self._calls = _services._OnConnection(connection)

    def unary_unary(self, method: str, **types: Any) -> Callable[..., Any]:
        call = self._calls.unary_unary(method, **types)

        async def answered(request: Any, options: dict[str, Any]) -> Any:
            return await call(request, **options)

        return lambda request, **options: self._loop.run(answered(request, options))

    def unary_stream(self, method: str, **types: Any) -> Callable[..., Iterator[Any]]:
        call = self._calls.unary_stream(method, **types)
        return lambda request, *, metadata=(), **options: self._iterate(call, request, metadata, options)

    def stream_stream(self, method: str, **types: Any) -> Callable[..., Iterator[Any]]:
        call = self._calls.stream_stream(method, **types)
        return lambda requests, *, metadata=(), **options: self._iterate(call, _each(requests), metadata, options)

    def _iterate(
        self, call: Callable[..., Any], request: Any, metadata: Metadata, options: dict[str, Any]
    ) -> Iterator[Any]:
        async def start() -> Any:
            return call(request, metadata=metadata, **options)

        async def following() -> Any:
            try:
                return await answers.read()
            except grpc.aio.AioRpcError as error:
                raise _status.of_call(error) from None

        answers = self._loop.run(start())
        try:
            while (answer := self._loop.run(following())) is not grpc.aio.EOF:
                yield answer
        finally:
            self._loop.call(answers.cancel)


async def _each(requests: Iterable[Any]) -> AsyncIterator[Any]:
    """Each request, which its iterator may block for."""
    end = object()
    each = iter(requests)
    while (request := await asyncio.to_thread(next, each, end)) is not end:
        yield request
