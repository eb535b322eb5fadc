"""The application's functions that the helpers call: coroutine functions, or plain ones, which run in a thread."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

from ._worker.handlers import Ended, is_async
from ._worker.threads import Threads


class Calls:
    """Calls one function at a time. To be closed."""

    def __init__(self, name: str) -> None:
        self._threads = Threads(1, name)

    async def call(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Returns when the function has; raises what it raised. A cancellation stops a coroutine function; a plain one
        goes on in its thread, and is not waited for."""
        if is_async(function):
            await function(argument)
            return
        context = contextvars.copy_context()

        def run() -> Ended:
            try:
                return Ended(value=context.run(function, argument))
            except BaseException as error:  # sys.exit() there ends that function alone
                return Ended(error=error)

        ended = await self._threads.submit(run)
        if ended.error is not None:
            raise ended.error

    def close(self) -> None:
        """Its thread ends with what it has under way."""
        self._threads.close()
