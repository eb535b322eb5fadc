"""Brings claims: by `Work`, or by `ClaimDue` where something before the server does not know that. Connects again after
every end."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from datetime import timedelta

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from .. import _contract, _status
from .._backoff import Backoff
from .._connection import TRY_SECONDS_MAX, Channel, Connection
from .._stubs.v1 import task_service_pb2
from .._time import to_duration
from ..errors import RdqError
from .core import Core, Settings
from .courier import Courier, WorkStream, _is_cancelled

_LOG = logging.getLogger("rdq.worker")
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 10.0
#: The server sends something every 15 s; a stream that is silent for so long is dropped.
SILENCE_SECONDS_MAX = 40.0
_CLAIMS_MAX = 1_000
_CREDITS_MAX = 10_000
#: The server ends a stream in these ways for what came on it, so that it would end the next one too.
_REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


class Receive(enum.Enum):
    """How claims are received."""

    #: By `Work`, and by `ClaimDue` once that turns out to be unknown.
    AUTO = "auto"
    #: By `Work` alone.
    WORK = "work"
    #: By `ClaimDue` alone.
    CLAIM_DUE = "claim_due"


class Receiver:
    """The receiving half of a worker."""

    def __init__(
        self,
        settings: Settings,
        core: Core,
        courier: Courier,
        connection: Connection,
        receive: Receive,
    ) -> None:
        self._settings = settings
        self._core = core
        self._courier = courier
        self._connection = connection
        self._receive = receive
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        self._draining = asyncio.Event()
        self._attempt: asyncio.Future[None] | None = None
        self._stream: WorkStream | None = None
        self._heard = 0.0
        self._contract_known = False
        self._closing: asyncio.Task[None] | None = None

    def drain(self) -> None:
        """Nothing more is claimed; what is on its way still arrives, and `run` returns after that."""
        self._draining.set()
        if self._stream is not None:
            if self._stream.draining:
                # Nothing is claimed by it any more, and what runs has no other way to the server.
                self._closing = asyncio.ensure_future(self._close_when_idle())
            else:
                self._courier.close_stream()
        elif self._attempt is not None:
            self._attempt.cancel()

    async def _close_when_idle(self) -> None:
        await self._core.idle.wait()
        self._courier.close_stream()

    async def run(self) -> None:
        """Receives until `drain`.

        Raises:
            OtherContractVersion: the server's contract has another major version; nothing was claimed.
        """
        while not self._draining.is_set():
            channel = self._connection.open()
            # A task, since a call that waits for its connection does not notice that it is cancelled.
            self._attempt = asyncio.ensure_future(self._receive_by(channel))
            try:
                await self._attempt
            except grpc.aio.AioRpcError as error:
                self._ended(_status.of_call(error))
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                # The attempt was cancelled: by `drain`, or because it was silent.
            finally:
                self._attempt = None
                await channel.close()
            if not self._draining.is_set():
                await self._pause()

    async def _receive_by(self, channel: Channel) -> None:
        if not self._contract_known:
            await self._check_contract(channel)
        await (self._claim_due(channel) if self._receive is Receive.CLAIM_DUE else self._work(channel))

    async def _check_contract(self, channel: Channel) -> None:
        """Asks which contract the server speaks, before anything is claimed from it."""
        request = task_service_pb2.GetCapabilitiesRequest()
        try:
            answer = await channel.tasks.GetCapabilities(
                request, timeout=TRY_SECONDS_MAX, metadata=self._connection.metadata
            )
        except grpc.aio.AioRpcError as error:
            if _status.of_call(error).retryable:
                raise
            # Something on the way that does not let this call through may well let the stream.
            return
        self._contract_known = True
        _contract.check(answer.contract_version)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._draining.wait(), self._backoff.next())
        except TimeoutError:
            pass

    def _ended(self, error: RdqError) -> None:
        if error.code is grpc.StatusCode.UNIMPLEMENTED and self._receive is Receive.AUTO:
            _LOG.warning("the server does not know Work: claims come by ClaimDue from now on")
            self._receive = Receive.CLAIM_DUE
            self._backoff.reset()
        elif self._draining.is_set():
            pass
        elif error.retryable:
            _LOG.info("the stream of claims ended, connecting again (%s)", error)
        else:
            _LOG.warning("the stream of claims was refused, trying again (%s)", error)

    async def _work(self, channel: Channel) -> None:
        settings, core = self._settings, self._core
        call = channel.tasks.Work(metadata=self._connection.metadata)
        stream = WorkStream(call, min(core.free(), _CREDITS_MAX))
        begin = task_service_pb2.WorkRequest(
            start=task_service_pb2.WorkStart(
                queues=settings.queues, worker_id=settings.worker_id, lease=_duration(settings.lease)
            ),
            credits=stream.credits or None,
        )
        watch = self._watch()
        refused = False
        try:
            try:
                await call.write(begin)
            except asyncio.InvalidStateError:
                pass  # It ended already: reading tells how.
            if self._draining.is_set():
                return
            self._stream = stream
            self._courier.use(stream)
            async for response in call:
                self._heard_something()
                self._take(stream, response)
        except grpc.aio.AioRpcError as error:
            refused = error.code() in _REFUSALS
            raise
        finally:
            watch.cancel()
            if self._closing is not None:
                self._closing.cancel()
            self._stream = None
            self._courier.use(None)
            core.keeper.unanswered(stream.beats)
            core.outbox.stream_ended(stream.outcomes, alone=refused)
            call.cancel()

    def _take(self, stream: WorkStream, response: task_service_pb2.WorkResponse) -> None:
        core = self._core
        for outcome in response.outcome_acks:
            stream.outcomes.discard(outcome.seq)
            core.outbox.answered(outcome.seq, outcome.result)
        for beat in response.heartbeat_acks:
            stream.beats.discard(beat.seq)
            core.keeper.answered(beat.seq, beat.result)
        for lost in response.lost:
            core.lost(lost)
        if response.tasks:
            stream.credits -= len(response.tasks)
            core.arrived(response.tasks)
        if response.draining and not stream.draining:
            _LOG.info("the server drains: its stream is kept for what is under way")
            # It takes no new connections: outcomes and heartbeats have no other way to it until the stream ends.
            stream.draining = True

    async def _claim_due(self, channel: Channel) -> None:
        settings = self._settings
        request = task_service_pb2.ClaimDueRequest(
            queues=settings.queues,
            limit=min(settings.concurrency, _CLAIMS_MAX),
            lease=_duration(settings.lease),
            worker_id=settings.worker_id,
            follow=True,
            max_in_flight=settings.concurrency,
        )
        call = channel.tasks.ClaimDue(request, metadata=self._connection.metadata)
        watch = self._watch()
        try:
            async for response in call:
                self._heard_something()
                self._core.arrived(response.tasks)
        finally:
            watch.cancel()
            call.cancel()

    def _heard_something(self) -> None:
        self._heard = time.monotonic()
        self._backoff.reset()

    def _watch(self) -> asyncio.Task[None]:
        attempt = self._attempt
        self._heard = time.monotonic()

        async def watch() -> None:
            while (left := self._heard + SILENCE_SECONDS_MAX - time.monotonic()) > 0:
                await asyncio.sleep(left)
            _LOG.warning("the stream of claims is silent, connecting again")
            if attempt is not None:
                attempt.cancel()

        return asyncio.ensure_future(watch())


def _duration(seconds: float | None) -> Duration | None:
    return None if seconds is None else to_duration(timedelta(seconds=seconds))
