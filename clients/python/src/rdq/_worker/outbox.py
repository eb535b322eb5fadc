"""Outcomes on their way: each is sent until it is answered."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from grpc import StatusCode

from .. import _status
from .._backoff import Backoff
from .._batches import BYTES_MAX, FRAME_BYTES, ITEMS_MAX
from .._connection import delay_after
from .._stubs.v1 import task_service_pb2
from ..errors import InvalidArgument, MessageTooLarge, NotFound, PayloadTooLarge, RdqError, StaleClaim
from ..outcomes import Failure
from .conclusion import Resolution, resolution
from .delivery import Delivery

_LOG = logging.getLogger("rdq.worker")
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 5.0
#: Outcomes take no more of one message than this, since heartbeats travel in it too.
_MESSAGE_BYTES_MAX = BYTES_MAX // 2
#: What the server says when a request itself is at fault, not the moment or the way there.
_OF_THE_REQUEST = (InvalidArgument, MessageTooLarge, PayloadTooLarge)
_OF_THE_REQUEST_CODES = (StatusCode.INVALID_ARGUMENT, StatusCode.RESOURCE_EXHAUSTED, StatusCode.OUT_OF_RANGE)


class Letter:
    """One outcome on its way."""

    __slots__ = ("alone", "backoff", "delivery", "not_before", "refused", "resolution", "sends", "size")

    def __init__(self, delivery: Delivery, resolution: Resolution) -> None:
        self.delivery = delivery
        self.resolution = resolution
        self.size = resolution.ByteSize() + FRAME_BYTES
        #: How often it was sent.
        self.sends = 0
        #: It says that another outcome was refused.
        self.refused = False
        #: It goes by a call of its own, since it may be what a message was refused for.
        self.alone = False
        #: It waits until the moment that the server named.
        self.not_before = False
        self.backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)


#: Letters under their numbers.
Numbered: TypeAlias = list[tuple[int, Letter]]


class Outbox:
    """What is to be sent, and what was sent and has no answer yet."""

    def __init__(self, wake: Callable[[], None], settled: Callable[[Delivery], None]) -> None:
        """
        Args:
            wake: Called when there is something to send.
            settled: Called when an outcome is answered for good.
        """
        self._wake = wake
        self._settled = settled
        self._numbers = itertools.count(1)
        self._ready: dict[int, Letter] = {}
        self._alone: dict[int, Letter] = {}
        self._flying: dict[int, Letter] = {}
        self._later: dict[Letter, asyncio.TimerHandle] = {}

    def add(self, delivery: Delivery, how: Resolution) -> None:
        """Sends an outcome, until it is answered."""
        letter = Letter(delivery, how)
        if letter.size > BYTES_MAX:
            # Not even a message of its own would be read.
            self._refuse(
                letter,
                PayloadTooLarge(f"the outcome is {letter.size} bytes", code=StatusCode.INVALID_ARGUMENT),
            )
        else:
            self._put(letter)

    def has_ready(self) -> bool:
        """Whether something can be sent now."""
        return bool(self._ready)

    def take(self) -> Numbered:
        """What to send in one message; it is on its way from now on."""
        taken: Numbered = []
        total = 0
        for number, letter in self._ready.items():
            if taken and (len(taken) == ITEMS_MAX or total + letter.size > _MESSAGE_BYTES_MAX):
                break
            taken.append((number, letter))
            total += letter.size
        for number, letter in taken:
            del self._ready[number]
            self._fly(number, letter)
        return taken

    def take_alone(self) -> Numbered:
        """One that goes by a call of its own, if there is one."""
        for number, letter in self._alone.items():
            del self._alone[number]
            self._fly(number, letter)
            return [(number, letter)]
        return []

    def answered(self, number: int, result: task_service_pb2.ResolveResult | None) -> None:
        """The server answered one; with None, or with a result that says nothing, it is sent again."""
        letter = self._flying.pop(number, None)
        if letter is None:
            return
        if result is not None and result.HasField("resolved"):
            self._settled(letter.delivery)
        elif result is not None and result.HasField("error"):
            self._refuse(letter, _status.of_item(result.error))
        else:
            self._send_later(letter, RdqError("no result for an outcome", code=StatusCode.INTERNAL))

    def call_failed(self, numbers: Sequence[int], error: RdqError) -> None:
        """The call that carried these was refused, or got no answer. That says nothing of the outcomes themselves, but
        for one that went alone in a request which the server found at fault."""
        for number in numbers:
            letter = self._flying.pop(number, None)
            if letter is None:
                continue
            if len(numbers) == 1 and isinstance(error, _OF_THE_REQUEST):
                self._refuse(letter, error)
            else:
                # What stands before the server refuses large requests, too, in its own words.
                letter.alone = letter.alone or error.code in _OF_THE_REQUEST_CODES
                self._send_later(letter, error)

    def stream_ended(self, numbers: Iterable[int], *, alone: bool) -> None:
        """The stream that carried these ended, and they have no answer.

        Args:
            numbers: Of the letters that went by it.
            alone: One of them may be what the server ended it for.
        """
        for number in numbers:
            letter = self._flying.pop(number, None)
            if letter is not None:
                letter.alone = letter.alone or alone
                self._put(letter)

    def hurry(self) -> None:
        """There is a new way to the server: what waits for a better moment goes now, if the server named none."""
        for letter, timer in list(self._later.items()):
            if letter.not_before:
                continue
            timer.cancel()
            del self._later[letter]
            self._put(letter)

    def close(self) -> None:
        """Nothing is sent any more."""
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()

    def _fly(self, number: int, letter: Letter) -> None:
        letter.sends += 1
        self._flying[number] = letter

    def _put(self, letter: Letter) -> None:
        (self._alone if letter.alone else self._ready)[next(self._numbers)] = letter
        self._wake()

    def _refuse(self, letter: Letter, error: RdqError) -> None:
        delivery = letter.delivery
        if error.retryable:
            self._send_later(letter, error)
        elif isinstance(error, NotFound) and letter.sends > 1:
            # It was done before, and the task is gone since.
            self._settled(delivery)
        elif isinstance(error, (StaleClaim, NotFound)):
            _LOG.warning("task %s: the claim is lost, its outcome changes nothing (%s)", delivery.id, error.reason)
            self._settled(delivery)
        elif not letter.refused:
            _LOG.error("task %s: its outcome was refused (%s), it fails instead", delivery.id, error.reason)
            failed = resolution(delivery.id, delivery.token, Failure(str(error), type="rdq.OutcomeRefused"))
            instead = Letter(delivery, failed)
            instead.refused = True
            self._put(instead)
        else:
            _LOG.error("task %s: its failure was refused too (%s), its lease will run out", delivery.id, error.reason)
            self._settled(delivery)

    def _send_later(self, letter: Letter, error: RdqError) -> None:
        letter.not_before = error.retry_after is not None
        delay = delay_after(error, letter.backoff)
        self._later[letter] = asyncio.get_running_loop().call_later(delay, self._again, letter)

    def _again(self, letter: Letter) -> None:
        del self._later[letter]
        self._put(letter)
