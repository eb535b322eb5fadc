"""Channels to one server, and unary calls with retries. What is retried is the table of the clients' README."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from . import _status
from ._backoff import Backoff
from ._stubs.v1 import (
    lock_service_pb2_grpc,
    outbox_service_pb2_grpc,
    queue_service_pb2_grpc,
    stream_service_pb2_grpc,
    task_service_pb2_grpc,
)
from .errors import DeadlineExceeded, RdqError

Request = TypeVar("Request", contravariant=True)
Response = TypeVar("Response", covariant=True)
Answer = TypeVar("Answer")

#: Call metadata: names and values that travel with every call.
Metadata = Sequence[tuple[str, str]]

#: One try gets no longer than this, in seconds.
TRY_SECONDS_MAX = 10.0
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 5.0
#: What was under way on a connection that is given up has this long to end, in seconds.
_RETIRED_SECONDS = 15.0

_CHANNEL_OPTIONS: list[tuple[str, int]] = [
    # Retries are decided here, where it is known what may be repeated.
    ("grpc.enable_retries", 0),
    # Two channels are two connections, so that a new one does not inherit a dead one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


class UnaryMethod(Protocol[Request, Response]):
    """A method of a stub: one request, one answer."""

    def __call__(
        self,
        request: Request,
        /,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Awaitable[Response]:
        """Makes the call, with a timeout in seconds."""
        ...


class Channel:
    """One connection, with the stubs on it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        #: What the stubs stand on.
        self.channel = channel
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.queues = queue_service_pb2_grpc.QueueServiceStub(channel)
        self.streams = stream_service_pb2_grpc.StreamServiceStub(channel)
        self.locks = lock_service_pb2_grpc.LockServiceStub(channel)
        self.outboxes = outbox_service_pb2_grpc.OutboxServiceStub(channel)

    async def close(self, grace: float | None = None) -> None:
        """Ends what is under way, after a grace in seconds."""
        await self.channel.close(grace)


class Connection:
    """The way to a server. Made in, and used by, one event loop."""

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        metadata: Metadata,
        options: Sequence[tuple[str, int | str]],
        deadline: float,
    ) -> None:
        self._target = target
        self._credentials = credentials
        self._options = options
        #: How long a call may take with all its tries, in seconds.
        self.deadline = deadline
        self._current: Channel | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False
        self.metadata = metadata

    def another(self) -> Connection:
        """One to the same server, which is closed apart from this."""
        return Connection(self._target, self._credentials, self.metadata, self._options, self.deadline)

    def open(self) -> Channel:
        """A connection of its own, for a stream; the caller closes it."""
        options = [*_CHANNEL_OPTIONS, *self._options]
        if self._credentials is None:
            return Channel(grpc.aio.insecure_channel(self._target, options=options))
        return Channel(grpc.aio.secure_channel(self._target, self._credentials, options=options))

    def current(self) -> Channel:
        """The connection that unary calls share."""
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._current is None:
            self._current = self.open()
        return self._current

    def give_up(self, channel: Channel) -> None:
        """The next call goes by a new connection: this one gave no answer."""
        if self._current is channel:
            self._current = None
            retiring = asyncio.ensure_future(channel.close(_RETIRED_SECONDS))
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """Ends all that is under way. Safe to repeat."""
        self._closed = True
        for retiring in list(self._retiring):
            retiring.cancel()
        if self._current is not None:
            current, self._current = self._current, None
            await current.close()

    async def once(
        self,
        method: Callable[[Channel], UnaryMethod[Request, Answer]],
        request: Request,
        timeout: float,
    ) -> Answer:
        """Makes a call once.

        Args:
            method: Which one.
            request: What to send.
            timeout: In seconds.

        Raises:
            RdqError: it was refused, or not answered in time.
        """
        channel = self.current()
        try:
            return await method(channel)(request, timeout=timeout, metadata=self.metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self.give_up(channel)
            raise _status.of_call(error) from None

    def retries(self) -> Retries:
        """The tries of one call, whose deadline begins now."""
        return Retries(self.deadline)

    async def call(
        self,
        method: Callable[[Channel], UnaryMethod[Request, Answer]],
        request: Request,
        retries: Retries | None = None,
    ) -> Answer:
        """Makes a call until it is answered, or the deadline is over.

        Args:
            method: Which one.
            request: What to send; the same each time, so it must be safe to repeat.
            retries: Of several calls that share one deadline; those of this call alone if None.

        Raises:
            RdqError: what the last try brought.
        """
        return await self.retry(lambda timeout: self.once(method, request, timeout), retries)

    async def retry(self, once: Callable[[float], Awaitable[Answer]], retries: Retries | None = None) -> Answer:
        """Tries until it succeeds, a retry cannot help, or the deadline is over.

        Args:
            once: One try, given its timeout in seconds.
            retries: As in `call`.

        Raises:
            RdqError: what the last try brought.
        """
        if retries is None:
            retries = self.retries()
        while True:
            try:
                return await once(retries.timeout())
            except RdqError as error:
                if not await retries.wait(error):
                    raise


class Retries:
    """The tries of one call: how long each may take, and the waits between them."""

    def __init__(self, deadline: float) -> None:
        """
        Args:
            deadline: For all of them, in seconds from now.
        """
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + deadline
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)

    def timeout(self) -> float:
        """How long the next try may take, in seconds."""
        return min(TRY_SECONDS_MAX, self._end - self._loop.time())

    async def wait(self, error: RdqError) -> bool:
        """Waits for the next try's time; False, at once, if there is none."""
        delay = retry_delay(error, self._backoff)
        if delay is None or self._loop.time() + delay >= self._end:
            return False
        await asyncio.sleep(delay)
        return True


def retry_delay(error: RdqError, backoff: Backoff) -> float | None:
    """How long to wait, in seconds, before the same call is made again; None if it must not be."""
    return delay_after(error, backoff) if error.retryable else None


def delay_after(error: RdqError, backoff: Backoff) -> float:
    """How long to wait after an error, in seconds."""
    delay = backoff.next()
    if error.retry_after is not None:
        # Not earlier than asked, and not all at that moment.
        delay += error.retry_after.total_seconds()
    return delay


async def within(seconds: float, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Does something, for so long at most.

    Raises:
        DeadlineExceeded: it did not end in time, and was cancelled.
    """
    # Not `wait_for`: a call that waits for its connection may not notice for a while that it is cancelled.
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.wait({doing}, timeout=seconds)
        if doing.done():
            return doing.result()
    finally:
        doing.cancel()
    raise DeadlineExceeded("no answer in time", code=grpc.StatusCode.DEADLINE_EXCEEDED, outcome_unknown=True)
