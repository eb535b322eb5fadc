"""One way to speak to both variants of the client, so that each scenario is written once.

Tests are coroutines. For the variant `plain` the calls of `rdq.sync` are made in threads, and a handler, which is
written as a coroutine function that awaits nothing but `pause`, is driven as a plain function, in which `pause` blocks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, cast

import rdq
import rdq.sync

from .server import Server

Variant: TypeAlias = Literal["asyncio", "plain"]
#: A handler as scenarios write it.
TestHandler: TypeAlias = Callable[[rdq.Claim], Coroutine[Any, Any, Any]]

#: What a handler sees when it is stopped while it pauses.
STOPPED = (asyncio.CancelledError, rdq.Stopped)


class Scene:
    """A server, and a variant of the client."""

    def __init__(self, variant: Variant, server: Server) -> None:
        self.variant = variant
        self.server = server
        self._close: list[Callable[[], Awaitable[None]]] = []
        self.client = self.new_client()

    def new_client(self, target: str | None = None, **options: Any) -> rdq.Client:
        """A client, which the scene closes; of the plain variant one whose calls are made in threads."""
        where = self.server.target if target is None else target
        if self.variant == "asyncio":
            client = rdq.Client(where, **options)
        else:
            client = cast(rdq.Client, _InThreads(rdq.sync.Client(where, **options)))
        self._close.append(client.close)
        return client

    @asynccontextmanager
    async def worker(
        self,
        queue: str | tuple[str, ...],
        handlers: Mapping[Any, TestHandler],
        *,
        target: str | None = None,
        **options: Any,
    ) -> AsyncIterator[rdq.Worker]:
        """A worker that runs until the end of the scope.

        Args:
            queue: Where it takes from.
            handlers: By `handler_ref`, or by `handler_ref` and version.
            target: Where it connects to, if not to the server itself.
            options: Of `rdq.Worker`.
        """
        worker = self.new_worker(queue, handlers, target=target, **options)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop()

    def new_worker(
        self,
        queue: str | tuple[str, ...],
        handlers: Mapping[Any, TestHandler],
        *,
        target: str | None = None,
        **options: Any,
    ) -> rdq.Worker:
        """The same, not started."""
        queues = (queue,) if isinstance(queue, str) else queue
        client = self.new_client(target)
        if self.variant == "asyncio":
            worker = rdq.Worker(client, queues, **options)
        else:
            plain = cast(_InThreads, client).plain
            worker = cast(rdq.Worker, _InThreads(rdq.sync.Worker(cast(rdq.sync.Client, plain), queues, **options)))
        register = worker if self.variant == "asyncio" else cast(_InThreads, worker).plain
        for name, handler in handlers.items():
            ref, version = name if isinstance(name, tuple) else (name, None)
            register.add_handler(ref, handler if self.variant == "asyncio" else driven(handler), version=version)
        return worker

    async def close(self) -> None:
        """Closes every client."""
        for close in reversed(self._close):
            await close()


class _InThreads:
    """Makes the calls of a plain object in threads, and its iterators asynchronous."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.plain, name)
        if not callable(value):
            return value
        if name in ("list", "dlq_list", "list_queues"):
            return lambda *args, **kwargs: _in_threads(value(*args, **kwargs))
        return lambda *args, **kwargs: asyncio.to_thread(value, *args, **kwargs)


async def _in_threads(items: Iterator[Any]) -> AsyncIterator[Any]:
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield item


class Signal:
    """Something that a test tells a handler, or a handler the test."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """It is so."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether it is so."""
        return self._event.is_set()


class _Pause:
    """Waits, as each variant does it."""

    def __init__(self, claim: rdq.Claim, signal: Signal) -> None:
        self.claim = claim
        self.signal = signal

    def __await__(self) -> Generator[Any, None, None]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            yield self  # to `driven`
        else:
            yield from self._wait().__await__()

    async def _wait(self) -> None:
        while not self.signal.is_set():
            await asyncio.sleep(0.01)

    def block(self) -> None:
        """The plain way."""
        while not self.signal.is_set():
            self.claim.cancelled.wait(0.01)
            self.claim.raise_if_cancelled()


async def pause(claim: rdq.Claim, signal: Signal) -> None:
    """In a handler: waits for a signal, or to be stopped as the variant does it."""
    await _Pause(claim, signal)


def driven(handler: TestHandler) -> Callable[[rdq.Claim], Any]:
    """The handler as a plain function."""

    def run(claim: rdq.Claim) -> Any:
        coroutine = handler(claim)
        stopped: rdq.Stopped | None = None
        try:
            while True:
                request = coroutine.send(None) if stopped is None else coroutine.throw(stopped)
                stopped = None
                assert isinstance(request, _Pause), "a scenario's handler awaits nothing but pause"
                try:
                    request.block()
                except rdq.Stopped as error:
                    stopped = error
        except StopIteration as end:
            return end.value

    return run
