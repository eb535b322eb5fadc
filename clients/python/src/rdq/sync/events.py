"""Subscriptions, for plain threads."""

from __future__ import annotations

from .. import events as _events
from ..events import EventHandler
from .client import Client


class Subscription:
    """Reads a stream as a consumer. See `rdq.Subscription`, whose arguments these are.

    The handler runs in a thread of its own; a coroutine function runs on the background loop, and must not block it.
    """

    def __init__(
        self, client: Client, stream: str, consumer: str, handler: EventHandler, *, limit: int | None = None
    ) -> None:
        self._loop = client._loop
        self._subscription = _events.Subscription(client._client, stream, consumer, handler, limit=limit)

    def run(self) -> None:
        """Handles events until another thread, or the handler, calls `stop`. See `rdq.Subscription.run`."""
        self._loop.run(self._subscription.run())

    def stop(self) -> None:
        """Lets the handler end that is under way, and `run` return when what was handled is saved, within 5 s. From any
        thread; safe to repeat."""
        self._loop.call(self._subscription.stop)
