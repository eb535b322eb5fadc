"""Heartbeats: each claim that is held is extended at a third of its lease, for as long as it is held."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from .. import _status
from .._batches import BYTES_MAX, FRAME_BYTES, ITEMS_MAX
from .._connection import delay_after
from .._stubs.v1 import task_service_pb2
from .._time import seconds
from ..errors import InvalidArgument, NotFound, PayloadTooLarge, RdqError, StaleClaim
from .delivery import Delivery

_LOG = logging.getLogger("rdq.worker")
#: Heartbeats are no closer together than this, in seconds, however short a lease is.
_BETWEEN_SECONDS_MIN = 0.01
_MESSAGE_BYTES_MAX = BYTES_MAX // 2

#: Heartbeats under their numbers.
NumberedBeats: TypeAlias = list[tuple[int, task_service_pb2.ExtendLeaseRequest]]


class Keeper:
    """What is to be extended, and what was asked for and has no answer yet."""

    def __init__(
        self,
        wake: Callable[[], None],
        lost: Callable[[Delivery, str], None],
        kept: Callable[[Delivery], None],
    ) -> None:
        """
        Args:
            wake: Called when there is something to send.
            lost: Called when a claim turns out to be lost, with the server's detail.
            kept: Called when the server has what it takes of a handler's progress.
        """
        self._wake = wake
        self._lost = lost
        self._kept = kept
        self._numbers = itertools.count(1)
        self._due: dict[bytes, Delivery] = {}
        self._flying: dict[int, tuple[Delivery, bytes | None]] = {}

    def keep(self, delivery: Delivery) -> None:
        """Begins: the first heartbeat is at a third of the lease."""
        elapsed = delivery.lease - delivery.claim.lease_remaining.total_seconds()
        self._schedule(delivery, delivery.lease / 3 - elapsed)

    def beat_now(self, delivery: Delivery) -> None:
        """Sends a heartbeat as soon as it can be."""
        if delivery.beat_timer is not None:
            delivery.beat_timer.cancel()
        self._is_due(delivery)

    def drop(self, delivery: Delivery) -> None:
        """Ends: the claim is not held any more."""
        self._due.pop(delivery.token, None)

    def has_due(self) -> bool:
        """Whether something can be sent now."""
        return bool(self._due)

    def take(self) -> NumberedBeats:
        """What to send in one message. Each is sent again in a tenth of its lease, unless it is answered."""
        taken: NumberedBeats = []
        total = 0
        for token, delivery in list(self._due.items()):
            progress = delivery.new_progress()
            beat = task_service_pb2.ExtendLeaseRequest(id=delivery.id, claim_token=token, progress=progress)
            size = beat.ByteSize() + FRAME_BYTES
            if taken and (len(taken) == ITEMS_MAX or total + size > _MESSAGE_BYTES_MAX):
                break
            total += size
            del self._due[token]
            number = next(self._numbers)
            self._flying[number] = (delivery, progress)
            taken.append((number, beat))
            self._schedule(delivery, delivery.lease / 10)
        return taken

    def answered(self, number: int, result: task_service_pb2.ExtendLeaseResult | None) -> None:
        """The server answered one; None, or a result that says nothing, is no answer."""
        if result is None or result.WhichOneof("outcome") is None:
            self.unanswered([number])
            return
        delivery, progress = self._flying.pop(number, (None, None))
        if delivery is None or not delivery.held:
            return
        if result.HasField("error"):
            self._refused(delivery, progress, _status.of_item(result.error))
            return
        self._due.pop(delivery.token, None)
        delivery.extended(seconds(result.extended.lease_remaining))
        if progress is not None:
            delivery.kept_progress = progress
        self._schedule(delivery, delivery.lease / 3)
        self._kept(delivery)

    def unanswered(self, numbers: Iterable[int], error: RdqError | None = None) -> None:
        """No answer will come for these: they are sent again when their time has come.

        Args:
            numbers: Theirs.
            error: Why, if a call of their own failed.
        """
        for number in numbers:
            delivery, _ = self._flying.pop(number, (None, None))
            if delivery is not None:
                self._hasten(delivery, error)

    def _hasten(self, delivery: Delivery, error: RdqError | None) -> None:
        """An outcome that waits for progress to be kept is not held until the next heartbeat is due."""
        if delivery.held and delivery.deferred is not None:
            backoff = delivery.beat_backoff
            self._schedule(delivery, backoff.next() if error is None else delay_after(error, backoff))

    def _refused(self, delivery: Delivery, progress: bytes | None, error: RdqError) -> None:
        if isinstance(error, (StaleClaim, NotFound)):
            self._lost(delivery, error.metadata.get("detail", ""))
        elif isinstance(error, (PayloadTooLarge, InvalidArgument)) and progress is not None:
            _LOG.error("task %s: its progress is refused, and not kept (%s)", delivery.id, error.reason)
            delivery.kept_progress = progress
            self._kept(delivery)
        else:
            _LOG.warning("task %s: a heartbeat was refused (%s)", delivery.id, error.reason or error.code.name)
            self._hasten(delivery, error)

    def _schedule(self, delivery: Delivery, delay: float) -> None:
        if delivery.beat_timer is not None:
            delivery.beat_timer.cancel()
        delivery.beat_timer = asyncio.get_running_loop().call_later(
            max(delay, _BETWEEN_SECONDS_MIN), self._is_due, delivery
        )

    def _is_due(self, delivery: Delivery) -> None:
        if delivery.held:
            self._due[delivery.token] = delivery
            self._wake()
