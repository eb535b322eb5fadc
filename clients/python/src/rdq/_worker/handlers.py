"""The handlers that a worker has, by `handler_ref` and version, and how one is run."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from .._tracing import HandlerSpan
from ..claim import Claim
from .threads import Threads

#: A handler: plain, or a coroutine function. What it returns is the task's result.
Handler: TypeAlias = Callable[[Claim], Any]


@dataclass(frozen=True)
class Ended:
    """How a handler ended: it returned `value`, or raised `error`."""

    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True)
class Found:
    """A handler that was found."""

    handler: Handler
    is_async: bool


class Unroutable(Exception):
    """No handler has the task's `handler_ref`."""


class NoSuchVersion(Exception):
    """No handler has the task's version, and the queue wants no other."""


class Handlers:
    """What was registered."""

    def __init__(self) -> None:
        self._by_ref: dict[str, dict[str | None, Found]] = {}

    def add(self, handler_ref: str, version: str | None, handler: Handler) -> None:
        """Registers a handler.

        Raises:
            TypeError: it cannot be called.
            ValueError: there is one for this reference and version.
        """
        if not callable(handler):
            raise TypeError("a handler must be callable")
        versions = self._by_ref.setdefault(handler_ref, {})
        if version in versions:
            raise ValueError(f"there is a handler for {handler_ref!r}, version {version!r} already")
        versions[version] = Found(handler, is_async(handler))

    def find(self, handler_ref: str, version: str | None, *, exact: bool) -> Found:
        """The handler of a task.

        Args:
            handler_ref: What the task names.
            version: What the task names.
            exact: No other version will do.

        Raises:
            Unroutable: none has the reference.
            NoSuchVersion: none has the version, and no other will do.
        """
        versions = self._by_ref.get(handler_ref)
        if not versions:
            raise Unroutable(f"no handler for {handler_ref!r}")
        if version in versions:
            return versions[version]
        if version is not None and exact:
            raise NoSuchVersion(f"no handler for {handler_ref!r} has version {version!r}")
        return versions[None] if None in versions else next(reversed(versions.values()))


def start(found: Found, claim: Claim, threads: Threads, span: HandlerSpan) -> asyncio.Future[Ended]:
    """Runs a handler: a coroutine function as a task, which can be cancelled, a plain one in a thread."""
    if found.is_async:
        return asyncio.ensure_future(_run_async(found.handler, claim, span))
    context = contextvars.copy_context()
    return threads.submit(lambda: context.run(_run_plain, found.handler, claim, span))


async def _run_async(handler: Callable[[Claim], Awaitable[Any]], claim: Claim, span: HandlerSpan) -> Ended:
    try:
        with span.current():
            return Ended(value=await handler(claim))
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit() in a handler ends the handler, not the worker
        return Ended(error=error)


def _run_plain(handler: Handler, claim: Claim, span: HandlerSpan) -> Ended:
    try:
        with span.current():
            return Ended(value=handler(claim))
    except BaseException as error:
        return Ended(error=error)


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether it is a coroutine function, or an object that is called as one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004  an object with an async __call__
    )
