"""The event loop that plain clients and workers run on: one thread for the whole process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_current: LoopThread | None = None


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="rdq-loop", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def is_usable(self) -> bool:
        """False in a process that was forked: the thread stayed behind."""
        return self._pid == os.getpid()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Runs a coroutine there, in the caller's context, and returns at once.

        Raises:
            RuntimeError: the caller is that loop, which cannot wait for itself.
        """
        refusal = None
        if threading.current_thread() is self._thread:
            refusal = "a plain call would wait for itself here: use the asyncio client in a coroutine"
        elif not self.is_usable():
            refusal = "made before this process was forked: make clients and workers after the fork"
        if refusal is not None:
            work.close()
            raise RuntimeError(refusal)
        # The task inherits the context of this thread, and with it the caller's span.
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Calls a function there, soon. To be used from any thread."""
        self._loop.call_soon_threadsafe(function)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there, and waits for it. An interrupt of the wait cancels it."""
        result = self.start(work)
        try:
            return result.result()
        except BaseException:
            result.cancel()
            raise


def loop_thread() -> LoopThread:
    """The process's own; made when it is first needed."""
    global _current
    with _lock:
        if _current is None or not _current.is_usable():
            _current = LoopThread()
        return _current
