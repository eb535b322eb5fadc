"""Threads for plain handlers.

Not `concurrent.futures`: its threads hold up the end of the interpreter, and a handler that ignores its cancellation
would keep a process alive that was told to end.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """Daemon threads, made when they are needed and kept until `close`."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._made = 0
        self._busy = 0

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Runs a call that does not raise in a thread. To be called from the event loop, as the others are."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def finish(result: T) -> None:
            self._busy -= 1
            if not future.done():
                future.set_result(result)

        def work() -> None:
            result = call()
            try:
                loop.call_soon_threadsafe(finish, result)
            except RuntimeError:
                pass  # The loop is closed: nobody waits any more.

        self._busy += 1
        if self._busy > self._made and self._made < self._threads_max:
            self._made += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._made}", daemon=True).start()
        self._work.put(work)
        return future

    def close(self) -> None:
        """Lets each thread end after what it has under way."""
        for _ in range(self._made):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
