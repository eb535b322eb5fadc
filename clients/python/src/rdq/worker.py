"""The worker, for asyncio: receives tasks, runs handlers, keeps their claims, tells how they ended."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Literal, TypeVar

from ._connection import Connection
from ._ids import new_worker_id
from ._worker.conclusion import OutcomeMapper
from ._worker.core import Core, Settings
from ._worker.courier import Courier
from ._worker.handlers import Handler, Handlers
from ._worker.receiver import Receive, Receiver
from .client import Client
from .errors import OtherContractVersion

_LOG = logging.getLogger("rdq.worker")
#: After the grace, answers to the last outcomes are awaited for so long, in seconds.
_LAST_ANSWERS_SECONDS = 5.0
#: When nothing is held, the end of the stream is awaited for so long, in seconds.
_STREAM_ENDS_SECONDS = 1.0
_CONCURRENCY_MAX = 10_000

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Worker:
    """Runs handlers for the tasks of some queues.

    Register handlers, then `run`, or use it as a context manager. A coroutine function runs on the event loop and is
    stopped by `asyncio.CancelledError`; a plain function runs in a thread and is told by `Claim.cancelled`. An event
    loop that a handler blocks extends no lease.

    Args:
        client: Where to: the worker makes connections of its own to the same server.
        queues: Which queues to take from, 1 to 64; taken from fairly.
        concurrency: How many handlers run at once, 1 to 10,000. Never more claims are held.
        lease: How long a task is held without a sign of life; the task's or the queue's if None. 10 ms to 12 h.
        grace: How long `stop` lets handlers go on.
        worker_id: Names the worker in histories; host, process id and random letters if None.
        outcome_mapper: Sees first how each handler ended.
        receive: `auto` uses `Work`, and `ClaimDue` if something on the way does not know that; the others force one.
    """

    def __init__(
        self,
        client: Client,
        queues: Sequence[str],
        *,
        concurrency: int = 10,
        lease: timedelta | None = None,
        grace: timedelta = timedelta(seconds=30),
        worker_id: str | None = None,
        outcome_mapper: OutcomeMapper | None = None,
        receive: Literal["auto", "work", "claim_due"] = "auto",
    ) -> None:
        if isinstance(queues, str):
            raise TypeError("queues is a sequence of names, not one name")
        if not queues:
            raise ValueError("a worker needs a queue")
        if not 1 <= concurrency <= _CONCURRENCY_MAX:
            raise ValueError(f"concurrency must be 1 to {_CONCURRENCY_MAX}")
        self._client = client
        self._settings = Settings(
            queues=tuple(queues),
            concurrency=concurrency,
            lease=None if lease is None else lease.total_seconds(),
            grace=grace.total_seconds(),
            worker_id=new_worker_id() if worker_id is None else worker_id,
            outcome_mapper=outcome_mapper,
        )
        self._receive = Receive(receive)
        self._handlers = Handlers()
        self._running: _Running | None = None

    @property
    def worker_id(self) -> str:
        """The name in histories."""
        return self._settings.worker_id

    def handler(self, handler_ref: str, *, version: str | None = None) -> Callable[[AnyHandler], AnyHandler]:
        """Registers the function that it decorates, which is given a `Claim`, for a `handler_ref`.

        What the function returns (bytes, text or None) is the task's result, at most 64 KiB; what it raises is a
        failure. `Success`, `Failure`, `Permanent`, `Retryable`, `RetryAfter` and `Snooze` say more, raised or returned.

        Args:
            handler_ref: What producers name.
            version: For tasks that name this version; one without a version takes all that have no other.
        """

        def register(handler: AnyHandler) -> AnyHandler:
            self.add_handler(handler_ref, handler, version=version)
            return handler

        return register

    def add_handler(self, handler_ref: str, handler: Handler, *, version: str | None = None) -> None:
        """The same, for a function that is not decorated.

        Raises:
            ValueError: there is a handler for this reference and version.
        """
        self._handlers.add(handler_ref, version, handler)

    async def start(self) -> None:
        """Begins to receive, and returns at once.

        Raises:
            RuntimeError: it runs already.
        """
        if self._running is not None:
            raise RuntimeError("the worker runs already")
        connection = self._client._connection.another()
        self._running = _Running(self._settings, self._handlers, self._receive, connection)

    async def stop(self, grace: timedelta | None = None) -> None:
        """Drains: nothing more is claimed, and what did not start is given back at once. Handlers go on, their leases
        extended, until they end or the grace is over; then they are stopped and their claims given back, but for one
        that returns its result within a second.

        Returns when nothing is held and every outcome is answered, or 5 s after the grace. Safe to repeat: a later
        call may shorten the grace, and waits for the same end.

        Args:
            grace: In place of the worker's own.
        """
        running = self._running
        if running is None:
            return
        await running.stop(self._settings.grace if grace is None else grace.total_seconds())
        if self._running is running:
            self._running = None

    async def run(self, *, handle_signals: bool = False) -> None:
        """Starts, and works until `stop` is called. When it is cancelled, it drains first.

        Args:
            handle_signals: SIGTERM and SIGINT drain; a second one ends the grace.

        Raises:
            OtherContractVersion: the server's contract has another major version; nothing was claimed.
        """
        await self.start()
        running = self._running
        assert running is not None
        undo = self._on_signals() if handle_signals else None
        try:
            await running.ended()
        finally:
            await self.stop()
            if undo is not None:
                undo()

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _on_signals(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []

        def stop() -> None:
            # The first lets handlers go on for the grace, the second does not.
            stopping.append(asyncio.ensure_future(self.stop(timedelta(0) if stopping else None)))

        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, stop)

        def undo() -> None:
            for number in signals:
                loop.remove_signal_handler(number)

        return undo


class _Running:
    """A worker from its start to its end."""

    def __init__(self, settings: Settings, handlers: Handlers, receive: Receive, connection: Connection) -> None:
        self._connection = connection
        self._core = Core(settings, handlers)
        self._courier = Courier(self._core, connection)
        self._receiver = Receiver(settings, self._core, self._courier, connection, receive)
        self._receiving = asyncio.ensure_future(self._receiver.run())
        self._sending = asyncio.ensure_future(self._courier.run())
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        self._draining: asyncio.Task[None] | None = None
        self._grace_ends = float("inf")
        self._shorter = asyncio.Event()
        for task in (self._receiving, self._sending):
            task.add_done_callback(self._one_ended)

    async def ended(self) -> None:
        """Returns after `stop`; raises what broke the worker, if something did."""
        await asyncio.shield(self._over)

    async def stop(self, grace: float) -> None:
        self._grace_ends = min(self._grace_ends, asyncio.get_running_loop().time() + grace)
        self._shorter.set()
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())
        await asyncio.shield(self._draining)

    async def _drain(self) -> None:
        core = self._core
        loop = asyncio.get_running_loop()
        self._receiver.drain()
        core.drain()
        idle = asyncio.ensure_future(self._all_done())
        while not idle.done() and (left := self._grace_ends - loop.time()) > 0:
            self._shorter.clear()
            shorter = asyncio.ensure_future(self._shorter.wait())
            await asyncio.wait({idle, shorter}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            shorter.cancel()
        if not idle.done():
            core.stop_handlers()
            await asyncio.wait({idle}, timeout=_LAST_ANSWERS_SECONDS)
        idle.cancel()
        for task in (self._receiving, self._sending):
            task.cancel()
        await asyncio.wait({self._receiving, self._sending})
        for id in core.close():
            _LOG.warning("task %s: the worker ended before its claim did, its lease will run out", id)
        await self._connection.close()
        if not self._over.done():
            self._over.set_result(None)

    async def _all_done(self) -> None:
        # A claim may arrive as long as the stream is open: only after its end does idle mean idle. A server that does
        # not end it when asked is out of reach.
        idle = self._core.idle
        while True:
            await idle.wait()
            await asyncio.wait({self._receiving}, timeout=_STREAM_ENDS_SECONDS)
            if idle.is_set():
                return

    def _one_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None or self._over.done():
            return
        if isinstance(error, OtherContractVersion):
            _LOG.critical("%s: the worker stops", error)
        else:
            _LOG.critical("the worker broke", exc_info=error)
        # Nothing can be told any more, so there is nothing to wait for.
        self._grace_ends = 0.0
        self._shorter.set()
        self._over.set_exception(error)
