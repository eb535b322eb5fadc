"""Takes outcomes and heartbeats to the server: on the stream while there is one, else by unary calls.

Only this task writes to a stream: two writers at once would corrupt it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import zip_longest
from typing import Any, TypeAlias

import grpc
import grpc.aio

from .._connection import TRY_SECONDS_MAX, Connection
from .._stubs.v1 import task_service_pb2
from ..errors import RdqError
from .core import Core
from .keeper import NumberedBeats
from .outbox import Numbered

#: Unary calls at once, of outcomes and of heartbeats.
_CALLS_MAX = 4
#: Credits in one message.
_CREDITS_MAX = 10_000

WorkCall: TypeAlias = "grpc.aio.StreamStreamCall[task_service_pb2.WorkRequest, task_service_pb2.WorkResponse]"


class WorkStream:
    """A stream that was begun, and what went up on it without an answer yet."""

    def __init__(self, call: WorkCall, credits: int) -> None:
        self.call = call
        #: Granted, and not used by a claim yet.
        self.credits = credits
        self.outcomes: set[int] = set()
        self.beats: set[int] = set()
        #: The courier closes this side as soon as it can.
        self.closing = False
        #: The server hands out nothing more, and the stream is there for what is under way.
        self.draining = False


class Courier:
    """The sending half of a worker."""

    def __init__(self, core: Core, connection: Connection) -> None:
        self._core = core
        self._connection = connection
        self._stream: WorkStream | None = None
        self._calls: dict[str, set[asyncio.Task[None]]] = {"outcomes": set(), "beats": set()}

    def use(self, stream: WorkStream | None) -> None:
        """From now on things go by this stream; None: by unary calls."""
        self._stream = stream
        if stream is not None:
            self._core.outbox.hurry()
        self._core.wake.set()

    def close_stream(self) -> None:
        """Closes the sending side, so that nothing more is claimed."""
        if self._stream is not None:
            self._stream.closing = True
            self._core.wake.set()

    async def run(self) -> None:
        """Sends what there is to send, until it is cancelled."""
        wake = self._core.wake
        try:
            while True:
                await wake.wait()
                wake.clear()
                stream = self._stream
                if stream is not None:
                    await self._serve(stream)
                self._send_by_calls()
        finally:
            for calls in self._calls.values():
                for call in calls:
                    call.cancel()

    async def _serve(self, stream: WorkStream) -> None:
        try:
            while self._stream is stream:
                if stream.closing:
                    await stream.call.done_writing()
                    self._stream = None
                elif (request := self._compose(stream)) is not None:
                    await stream.call.write(request)
                else:
                    return
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            self._stream_broke(stream)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            self._stream_broke(stream)

    def _stream_broke(self, stream: WorkStream) -> None:
        # Its reader learns why, and gives back what was under way.
        if self._stream is stream:
            self._stream = None
        self._core.wake.set()

    def _compose(self, stream: WorkStream) -> task_service_pb2.WorkRequest | None:
        core = self._core
        request = task_service_pb2.WorkRequest()
        credits = 0 if stream.draining else min(core.free() - stream.credits, _CREDITS_MAX)
        if credits > 0:
            request.credits = credits
            stream.credits += credits
        for number, beat in core.keeper.take():
            request.heartbeats.add(seq=number, extend=beat)
            stream.beats.add(number)
        for number, letter in core.outbox.take():
            request.outcomes.add(seq=number, resolution=letter.resolution)
            stream.outcomes.add(number)
        return request if request.ByteSize() else None

    def _send_by_calls(self) -> None:
        outbox, keeper = self._core.outbox, self._core.keeper
        while len(self._calls["outcomes"]) < _CALLS_MAX and (letters := outbox.take_alone()):
            self._start("outcomes", self._resolve(letters))
        if self._stream is not None:
            return
        while len(self._calls["beats"]) < _CALLS_MAX and (beats := keeper.take()):
            self._start("beats", self._extend(beats))
        while len(self._calls["outcomes"]) < _CALLS_MAX and (letters := outbox.take()):
            self._start("outcomes", self._resolve(letters))

    def _start(self, kind: str, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(call)
        self._calls[kind].add(task)

        def ended(_: asyncio.Task[None]) -> None:
            self._calls[kind].discard(task)
            self._core.wake.set()

        task.add_done_callback(ended)

    async def _resolve(self, letters: Numbered) -> None:
        outbox = self._core.outbox
        request = task_service_pb2.ResolveBatchRequest(resolutions=[letter.resolution for _, letter in letters])
        try:
            response = await self._connection.once(lambda channel: channel.tasks.ResolveBatch, request, TRY_SECONDS_MAX)
        except RdqError as error:
            outbox.call_failed([number for number, _ in letters], error)
            return
        for (number, _), result in zip_longest(letters, response.results[: len(letters)]):
            outbox.answered(number, result)

    async def _extend(self, beats: NumberedBeats) -> None:
        keeper = self._core.keeper
        request = task_service_pb2.ExtendLeasesRequest(leases=[beat for _, beat in beats])
        try:
            response = await self._connection.once(lambda channel: channel.tasks.ExtendLeases, request, TRY_SECONDS_MAX)
        except RdqError as error:
            keeper.unanswered((number for number, _ in beats), error)
            return
        for (number, _), result in zip_longest(beats, response.results[: len(beats)]):
            keeper.answered(number, result)


def _is_cancelled() -> bool:
    """Whether this task was cancelled: else it is a call that was."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
