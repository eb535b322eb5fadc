"""Outbox relays, for plain threads."""

from __future__ import annotations

from datetime import timedelta

from .. import outboxes as _outboxes
from ..outboxes import Deliver
from .client import Client


class OutboxRelay:
    """Carries messages of an outbox elsewhere. See `rdq.OutboxRelay`, whose arguments these are.

    Deliveries run in a thread of their own; a coroutine function runs on the background loop, and must not block it.
    """

    def __init__(self, client: Client, outbox: str | None = None, *, lease: timedelta | None = None) -> None:
        self._loop = client._loop
        self._relay = _outboxes.OutboxRelay(client._client, outbox, lease=lease)

    def run_once(self, worker_id: str, deliver: Deliver) -> bool:
        """Claims one message, delivers it, and says so. See `rdq.OutboxRelay.run_once`."""
        return self._loop.run(self._relay.run_once(worker_id, deliver))

    def run(self, worker_id: str, deliver: Deliver) -> None:
        """Does so until another thread, or `deliver`, calls `stop`. See `rdq.OutboxRelay.run`."""
        self._loop.run(self._relay.run(worker_id, deliver))

    def stop(self) -> None:
        """Lets the delivery end that is under way, and `run` return then. From any thread; safe to repeat."""
        self._loop.call(self._relay.stop)
