"""The worker, for plain threads: the one of `rdq` on a loop in the background, its plain handlers in threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, Literal

from .. import worker as _worker
from .._worker.conclusion import OutcomeMapper
from .._worker.handlers import Handler
from ..worker import AnyHandler
from .client import Client


class Worker:
    """Runs handlers for the tasks of some queues. See `rdq.Worker`, whose arguments these are.

    Handlers run in threads of their own, as many as `concurrency`; a coroutine function runs on the background loop,
    and must not block it. Heartbeats go on whatever a plain handler does.
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
        self._loop = client._loop
        self._worker = _worker.Worker(
            client._client,
            queues,
            concurrency=concurrency,
            lease=lease,
            grace=grace,
            worker_id=worker_id,
            outcome_mapper=outcome_mapper,
            receive=receive,
        )

    @property
    def worker_id(self) -> str:
        """The name in histories."""
        return self._worker.worker_id

    def handler(self, handler_ref: str, *, version: str | None = None) -> Callable[[AnyHandler], AnyHandler]:
        """Registers the function that it decorates. See `rdq.Worker.handler`."""
        return self._worker.handler(handler_ref, version=version)

    def add_handler(self, handler_ref: str, handler: Handler, *, version: str | None = None) -> None:
        """The same, for a function that is not decorated."""
        self._worker.add_handler(handler_ref, handler, version=version)

    def start(self) -> None:
        """Begins to receive, and returns at once.

        Raises:
            RuntimeError: it runs already.
        """
        self._loop.run(self._worker.start())

    def stop(self, grace: timedelta | None = None) -> None:
        """Drains, and returns when every outcome is answered. See `rdq.Worker.stop`."""
        self._loop.run(self._worker.stop(grace))

    def run(self, *, handle_signals: bool = False) -> None:
        """Starts, and works until another thread calls `stop`. When the wait is interrupted, it drains first.

        Args:
            handle_signals: SIGTERM and SIGINT drain; a second one ends the grace. Only in the main thread.
        """
        working = self._loop.start(self._worker.run())
        ended = threading.Event()
        working.add_done_callback(lambda _: ended.set())
        undo = self._on_signals() if handle_signals else None
        try:
            # The event, not the result, so that an exception is that of the wait.
            ended.wait()
        finally:
            if not ended.is_set():
                self.stop()
            if undo is not None:
                undo()
        working.result()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _on_signals(self) -> Callable[[], None]:
        signals = (signal.SIGTERM, signal.SIGINT)
        came = 0

        def stop(number: int, frame: FrameType | None) -> None:
            nonlocal came
            came += 1
            # The first lets handlers go on for the grace, the second does not.
            self._loop.start(self._worker.stop(None if came == 1 else timedelta(0)))

        before: dict[signal.Signals, Any] = {number: signal.signal(number, stop) for number in signals}

        def undo() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return undo
