"""Subscriptions: events of a stream, handled in order, with what was handled kept at the server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import grpc
import grpc.aio

from . import _status
from ._backoff import Backoff
from ._calls import Calls
from ._connection import Channel, Connection, delay_after, within
from ._stubs.v1 import stream_service_pb2
from ._time import from_timestamp
from .client import Client
from .errors import DeadlineExceeded, RdqError

_LOG = logging.getLogger("rdq.subscription")
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 10.0
#: The server sends something every 15 s; a stream that is silent for so long is dropped.
_SILENCE_SECONDS_MAX = 40.0
#: Within a message what was handled is saved so often, in seconds.
_SAVE_SECONDS = 1.0
#: At the end the last save has this long, in seconds.
_LAST_SAVE_SECONDS = 5.0


@dataclass(frozen=True)
class StreamEvent:
    """An event of a stream.

    Attributes:
        offset: Its place in the stream. Only this orders.
        stream: The stream.
        key: The publisher's key, if it set one.
        payload: What was published.
        created_at: When it was published.
    """

    offset: int
    stream: str
    key: str | None = field(repr=False)
    payload: bytes = field(repr=False)
    created_at: datetime

    @property
    def text(self) -> str:
        """The payload as UTF-8 text.

        Raises:
            UnicodeDecodeError: it is none.
        """
        return self.payload.decode()


#: Is given each event; plain, or a coroutine function.
EventHandler: TypeAlias = Callable[[StreamEvent], Any]


class Subscription:
    """Reads a stream as a consumer, from what this consumer saved: what is there, then each event as it is published.

    Events are handled one at a time and in order, each at least once: the offset is saved after handlers that
    succeeded, at the end of each message of the server and every second, so after a crash the events since the last
    save come again. An exception of the handler ends the subscription, with nothing saved beyond the event before; run
    it again to begin with that event. A connection that breaks is made again, with growing delays, for as long as it
    takes.

    A coroutine function runs on the event loop, a plain one in a thread. Two subscriptions of one consumer both get
    every event.

    Args:
        client: Where to: the subscription makes a connection of its own to the same server.
        stream: What to read.
        consumer: Who reads; what was handled is saved under this name.
        handler: Given each event.
        limit: Events in one message at most, up to 1,000; the server's 100 if None.
    """

    def __init__(
        self, client: Client, stream: str, consumer: str, handler: EventHandler, *, limit: int | None = None
    ) -> None:
        self._client = client
        self._stream = stream
        self._consumer = consumer
        self._handler = handler
        self._limit = limit
        self._running: _Running | None = None

    async def run(self) -> None:
        """Handles events until `stop` is called. When it is cancelled, the handler is, and what was handled is saved.

        Raises:
            RdqError: the stream or a save was refused, and trying again cannot help.
            Exception: whatever the handler raised.
            RuntimeError: it runs already.
        """
        if self._running is not None:
            raise RuntimeError("the subscription runs already")
        connection = self._client._connection.another()
        running = self._running = _Running(self._stream, self._consumer, self._handler, self._limit, connection)
        try:
            await running.run()
        finally:
            self._running = None
            await connection.close()

    def stop(self) -> None:
        """Lets the handler end that is under way, and `run` return when what was handled is saved, within 5 s. To be
        called from the event loop, for instance from the handler. Safe to repeat."""
        if self._running is not None:
            self._running.stop()


class _HandlerFailed(Exception):
    """Carries what a handler raised past the errors of the stream."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Running:
    """A subscription from its start to its end."""

    def __init__(
        self, stream: str, consumer: str, handler: EventHandler, limit: int | None, connection: Connection
    ) -> None:
        self._stream = stream
        self._consumer = consumer
        self._handler = handler
        self._limit = limit
        self._connection = connection
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        self._calls = Calls("rdq-event")
        self._stopping = asyncio.get_running_loop().create_future()
        #: The last event that was handled, and the last that was saved; None as long as there is none.
        self._handled: int | None = None
        self._saved: int | None = None
        self._saved_at = 0.0

    def stop(self) -> None:
        if not self._stopping.done():
            self._stopping.set_result(None)

    async def run(self) -> None:
        try:
            while not self._stopping.done():
                try:
                    await self._read()
                    delay = self._backoff.next()
                except RdqError as error:
                    if not error.retryable:
                        raise
                    _LOG.info("%s as %s: connecting again (%s)", self._stream, self._consumer, error)
                    delay = delay_after(error, self._backoff)
                await asyncio.wait({self._stopping}, timeout=delay)
        except _HandlerFailed as failed:
            raise failed.error from failed.error.__cause__
        finally:
            self._calls.close()
            await self._save_last()

    async def _read(self) -> None:
        """Reads by one stream to its end, or until `stop`."""
        channel = self._connection.open()
        try:
            # What could not be saved before: else the server would begin before it.
            await self._save()
            await self._read_by(channel)
        finally:
            await channel.close()

    async def _read_by(self, channel: Channel) -> None:
        request = stream_service_pb2.SubscribeRequest(stream=self._stream, consumer=self._consumer, limit=self._limit)
        call = channel.streams.Subscribe(request, metadata=self._connection.metadata)
        self._saved_at = time.monotonic()
        try:
            while (message := await self._next(call)) is not None:
                self._backoff.reset()
                for event in message.events:
                    if self._stopping.done():
                        return
                    if self._handled is not None and event.offset <= self._handled:
                        continue
                    await self._handle(event)
                    if time.monotonic() - self._saved_at >= _SAVE_SECONDS:
                        await self._save()
                await self._save()
        finally:
            call.cancel()

    async def _next(
        self,
        call: grpc.aio.UnaryStreamCall[stream_service_pb2.SubscribeRequest, stream_service_pb2.SubscribeResponse],
    ) -> stream_service_pb2.SubscribeResponse | None:
        """The next message; None at the end of the stream, or when it is to stop."""
        reading = asyncio.ensure_future(call.read())
        try:
            await asyncio.wait(
                {reading, self._stopping}, timeout=_SILENCE_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
            )
            if self._stopping.done():
                return None
            if not reading.done():
                raise DeadlineExceeded("the stream is silent", code=grpc.StatusCode.DEADLINE_EXCEEDED)
            message = reading.result()
        except grpc.aio.AioRpcError as error:
            raise _status.of_call(error) from None
        finally:
            reading.cancel()
        return message if isinstance(message, stream_service_pb2.SubscribeResponse) else None

    async def _handle(self, event: stream_service_pb2.StreamEvent) -> None:
        given = StreamEvent(
            offset=event.offset,
            stream=event.stream,
            key=event.key if event.HasField("key") else None,
            payload=event.payload,
            created_at=from_timestamp(event.created_at),
        )
        try:
            await self._calls.call(self._handler, given)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            raise _HandlerFailed(error) from None
        self._handled = event.offset

    async def _save(self) -> None:
        """Saves what was handled. Given up when it is to stop: the last save is another."""
        handled = self._handled
        if handled is None or handled == self._saved:
            return
        saving = asyncio.ensure_future(self._save_offset(handled))
        try:
            await asyncio.wait({saving, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
            if saving.done():
                saving.result()
        finally:
            saving.cancel()

    async def _save_offset(self, offset: int) -> None:
        request = stream_service_pb2.SaveOffsetRequest(stream=self._stream, consumer=self._consumer, offset=offset)
        await self._connection.call(lambda channel: channel.streams.SaveOffset, request)
        self._saved, self._saved_at = offset, time.monotonic()

    async def _save_last(self) -> None:
        if self._handled is None or self._handled == self._saved:
            return
        try:
            await within(_LAST_SAVE_SECONDS, self._save_offset(self._handled))
        except RdqError as error:
            _LOG.warning(
                "%s as %s: what was handled last is not saved and comes again (%s)",
                self._stream,
                self._consumer,
                error,
            )
