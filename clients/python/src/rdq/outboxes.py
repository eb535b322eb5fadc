"""Outbox relays: messages of an outbox, carried elsewhere, each at least once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from ._backoff import Backoff
from ._calls import Calls
from ._connection import delay_after, within
from ._stubs.v1 import outbox_service_pb2
from ._time import from_timestamp, to_duration
from ._worker.conclusion import described
from .client import Client
from .errors import OutboxClaimMismatch, OutboxMissing, RdqError

_LOG = logging.getLogger("rdq.outbox")
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_IDLE_SECONDS = 2.0
_LONGEST_BACKOFF_SECONDS = 10.0
_GIVE_BACK_SECONDS_MAX = 1.0


@dataclass(frozen=True)
class OutboxMessage:
    """A message of an outbox, under a claim.

    Attributes:
        id: Its id: let the other side refuse one that it has already.
        outbox: The outbox.
        payload: What was enqueued.
        headers: What was enqueued beside the payload.
        attempt_count: How often it was claimed, this time included.
        last_error: What the last `ReleaseWithError` said; empty if none did.
        created_at: When it was enqueued.
        generation: The claim's fencing number.
        lease_expires_at: When the claim ends.
    """

    id: str
    outbox: str
    payload: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    attempt_count: int
    last_error: str = field(repr=False)
    created_at: datetime
    generation: int
    lease_expires_at: datetime

    @property
    def text(self) -> str:
        """The payload as UTF-8 text.

        Raises:
            UnicodeDecodeError: it is none.
        """
        return self.payload.decode()


#: Carries a message; plain, or a coroutine function. What it raises is a failure of that delivery.
Deliver: TypeAlias = Callable[[OutboxMessage], Any]


class OutboxRelay:
    """Carries messages of an outbox elsewhere.

    Each is delivered at least once. No claim is extended, so the lease has to be longer than a delivery takes; one that
    takes longer may be delivered twice. A message whose delivery fails comes again after a delay that begins at 5 s and
    doubles, and is a dead letter after the fifth failure.

    Args:
        client: Where to.
        outbox: Which; any if None.
        lease: How long a message is claimed; the server's 60 s if None.
    """

    def __init__(self, client: Client, outbox: str | None = None, *, lease: timedelta | None = None) -> None:
        self._connection = client._connection
        self._outbox = outbox
        self._lease = lease
        self._stopping: asyncio.Future[None] | None = None

    async def run_once(self, worker_id: str, deliver: Deliver) -> bool:
        """Claims one message, delivers it, and says so. A delivery that is cancelled is given back, due at once.

        Args:
            worker_id: Who claims.
            deliver: Given the message. A coroutine function runs on the event loop, a plain one in a thread.

        Returns:
            Whether there was a message, delivered or not.

        Raises:
            RdqError: a call was refused, or had no answer in time.
        """
        calls = Calls("rdq-relay")
        try:
            return await self._run_once(worker_id, deliver, calls)
        finally:
            calls.close()

    async def run(self, worker_id: str, deliver: Deliver) -> None:
        """Does so again and again until `stop` is called: at once after a message, after growing delays of up to 2 s
        when there is none, and of up to 10 s when the server cannot be reached.

        Raises:
            RdqError: a call was refused, and trying again cannot help.
            RuntimeError: it runs already.
        """
        if self._stopping is not None:
            raise RuntimeError("the relay runs already")
        stopping = self._stopping = asyncio.get_running_loop().create_future()
        calls = Calls("rdq-relay")
        idle = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_IDLE_SECONDS)
        broken = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        try:
            while not stopping.done():
                try:
                    found = await self._run_once(worker_id, deliver, calls)
                except RdqError as error:
                    if not error.retryable:
                        raise
                    _LOG.info("trying again (%s)", error)
                    delay = delay_after(error, broken)
                else:
                    broken.reset()
                    if found:
                        idle.reset()
                        continue
                    delay = idle.next()
                await asyncio.wait({stopping}, timeout=delay)
        finally:
            self._stopping = None
            calls.close()

    def stop(self) -> None:
        """Lets the delivery end that is under way, and `run` return then. To be called from the event loop, for
        instance from `deliver`. Safe to repeat."""
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)

    async def _run_once(self, worker_id: str, deliver: Deliver, calls: Calls) -> bool:
        request = outbox_service_pb2.ClaimBatchRequest(
            outbox=self._outbox, limit=1, lease=to_duration(self._lease), worker_id=worker_id
        )
        claimed = await self._connection.call(lambda channel: channel.outboxes.ClaimBatch, request)
        for message in claimed.messages:
            await self._carry(message, deliver, calls)
        return bool(claimed.messages)

    async def _carry(self, message: outbox_service_pb2.OutboxMessage, deliver: Deliver, calls: Calls) -> None:
        failed: BaseException | None = None
        try:
            await calls.call(deliver, _given(message))
        except asyncio.CancelledError:
            await self._give_back(message)
            raise
        except BaseException as error:
            failed = error
        try:
            if failed is None:
                projected = outbox_service_pb2.MarkProjectedRequest(
                    id=message.id, worker_id=message.worker_id, generation=message.generation
                )
                await self._connection.call(lambda channel: channel.outboxes.MarkProjected, projected)
            else:
                _LOG.info("message %s: the delivery failed", message.id)
                fail = outbox_service_pb2.OutboxServiceFailRequest(
                    id=message.id,
                    worker_id=message.worker_id,
                    generation=message.generation,
                    error=described(failed),
                )
                await self._connection.call(lambda channel: channel.outboxes.Fail, fail)
        except (OutboxClaimMismatch, OutboxMissing) as error:
            _LOG.warning("message %s: its claim ended (%s)", message.id, error)

    async def _give_back(self, message: outbox_service_pb2.OutboxMessage) -> None:
        request = outbox_service_pb2.ReleaseWithErrorRequest(
            id=message.id,
            worker_id=message.worker_id,
            generation=message.generation,
            error="the delivery was cancelled",
        )
        try:
            await within(
                _GIVE_BACK_SECONDS_MAX,
                self._connection.once(
                    lambda channel: channel.outboxes.ReleaseWithError, request, _GIVE_BACK_SECONDS_MAX
                ),
            )
        except RdqError as error:
            _LOG.warning("message %s: its claim was not given back and ends by itself (%s)", message.id, error)


def _given(message: outbox_service_pb2.OutboxMessage) -> OutboxMessage:
    return OutboxMessage(
        id=message.id,
        outbox=message.outbox,
        payload=message.payload,
        headers=dict(message.headers),
        attempt_count=message.attempt_count,
        last_error=message.last_error,
        created_at=from_timestamp(message.created_at),
        generation=message.generation,
        lease_expires_at=from_timestamp(message.lease_expires_at),
    )
