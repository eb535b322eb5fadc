"""What a worker holds, and what it decides: which claims start, stop and end, and how."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

from .._stubs.v1 import task_service_pb2
from ..job import StopReason
from ..outcomes import Failure, Outcome, Permanent
from .conclusion import OutcomeMapper, Resolution, outcome_of, release, resolution
from .delivery import Delivery, timeout_in
from .handlers import Ended, Handlers, NoSuchVersion, Unroutable, start
from .keeper import Keeper
from .outbox import Outbox
from .threads import Threads

_LOG = logging.getLogger("rdq.worker")
#: A handler that is stopped by a shutdown has so long, in seconds, to end before its claim is given back.
_STOPPING_SECONDS = 1.0

_STOP_REASONS = {"CANCELLED": StopReason.CANCELLED, "EXPIRED": StopReason.EXPIRED}


@dataclass(frozen=True)
class Settings:
    """What a worker was made with; durations in seconds."""

    queues: tuple[str, ...]
    concurrency: int
    lease: float | None
    grace: float
    worker_id: str
    outcome_mapper: OutcomeMapper | None


class Core:
    """Claims from their arrival to their last answer. It makes no calls: it fills `outbox` and `keeper`."""

    def __init__(self, settings: Settings, handlers: Handlers) -> None:
        self._settings = settings
        self._handlers = handlers
        self._threads = Threads(settings.concurrency, "rdq-handler")
        #: Each takes a place of the concurrency.
        self._live: dict[bytes, Delivery] = {}
        #: The newest of each task that is held.
        self._newest: dict[str, Delivery] = {}
        #: They came while all handlers were busy, in order.
        self._waiting: dict[bytes, Delivery] = {}
        self._running = 0
        self._draining = False
        #: Set when there is something to send.
        self.wake = asyncio.Event()
        #: Set while nothing is held and no handler runs.
        self.idle = asyncio.Event()
        self.idle.set()
        self.outbox = Outbox(self.wake.set, self._settle)
        self.keeper = Keeper(self.wake.set, self._lose_with, self._progress_kept)

    def free(self) -> int:
        """How many more claims can be taken."""
        return 0 if self._draining else max(0, self._settings.concurrency - len(self._live))

    # ---- What arrives.

    def arrived(self, tasks: Iterable[task_service_pb2.ClaimedTask]) -> None:
        """Claims came."""
        now = time.monotonic()
        for claimed in tasks:
            delivery = Delivery(claimed, now)
            if delivery.token in self._live:
                continue
            before = self._newest.get(delivery.id)
            if before is not None and before.generation > delivery.generation:
                continue
            if before is not None:
                self._lose(before, StopReason.LOST)
            self._live[delivery.token] = self._newest[delivery.id] = delivery
            self.idle.clear()
            if self._draining:
                self._give_back(delivery)
                continue
            self.keeper.keep(delivery)
            self._waiting[delivery.token] = delivery
        self._start_waiting()

    def lost(self, lost: task_service_pb2.LostClaim) -> None:
        """The server says that a claim is over."""
        delivery = self._newest.get(lost.id)
        if delivery is not None and delivery.generation == lost.generation:
            self._lose_with(delivery, lost.detail)

    # ---- Running.

    def _start_waiting(self) -> None:
        while self._waiting and self._running < self._settings.concurrency:
            token, delivery = next(iter(self._waiting.items()))
            del self._waiting[token]
            self._start(delivery)

    def _start(self, delivery: Delivery) -> None:
        claimed, job = delivery.claimed, delivery.job
        if not delivery.may_start():
            _LOG.warning("task %s: its lease is all but over before it began, it is given back", delivery.id)
            self._give_back(delivery)
            return
        exact = claimed.version_mismatch == task_service_pb2.HANDLER_VERSION_MISMATCH_DEAD_LETTER
        try:
            found = self._handlers.find(job.handler_ref, job.handler_version, exact=exact)
        except Unroutable as error:
            self._end(delivery, Permanent(str(error), type="rdq.Unroutable"))
            return
        except NoSuchVersion as error:
            self._end(delivery, Permanent(str(error), type="rdq.VersionMismatch"))
            return
        loop = asyncio.get_running_loop()
        timeout = timeout_in(claimed, delivery.lease)
        if timeout is not None:
            delivery.timeout_timer = loop.call_later(timeout, self._timed_out, delivery)
        self._running += 1
        delivery.running = True
        run = delivery.run = start(found, job, self._threads)
        run.add_done_callback(lambda _: self._ended(delivery, run))

    def _ended(self, delivery: Delivery, run: asyncio.Future[Ended]) -> None:
        self._running -= 1
        delivery.running = False
        delivery.run = None
        job = delivery.job
        if job.stop_reason is None:
            self._end(delivery, outcome_of(job, _how(run), self._settings.outcome_mapper))
        elif job.stop_reason is StopReason.SHUTDOWN:
            self._give_back(delivery)
        elif not run.cancelled():
            run.exception()  # It is told to nobody, so it is not to be warned of.
        self._retire(delivery)

    def _stop(self, delivery: Delivery, reason: StopReason) -> None:
        if not delivery.running or delivery.job.stop_reason is not None:
            return
        _LOG.info("task %s: its handler is stopped (%s)", delivery.id, reason.value)
        delivery.job._stop(reason)
        if isinstance(delivery.run, asyncio.Task):
            delivery.run.cancel(reason.value)

    def _timed_out(self, delivery: Delivery) -> None:
        if delivery.running and delivery.held and not delivery.pending:
            self._stop(delivery, StopReason.TIMEOUT)
            timeout = delivery.claimed.execution_timeout.ToTimedelta()
            error = Failure(f"the handler was stopped after {timeout}", type="rdq.Timeout")
            # At once, since the server hands the task out again when the time is over.
            self._conclude(delivery, resolution(delivery.id, delivery.token, error))

    # ---- Ending.

    def _end(self, delivery: Delivery, outcome: Outcome) -> None:
        try:
            how = resolution(delivery.id, delivery.token, outcome)
        except Exception as error:  # an outcome made of what cannot be sent
            how = resolution(delivery.id, delivery.token, Failure(error))
        if how.WhichOneof("call") != "complete" and self._keep_progress_first(delivery, how):
            return
        self._conclude(delivery, how)

    def _give_back(self, delivery: Delivery) -> None:
        how = release(delivery.id, delivery.token)
        if not self._keep_progress_first(delivery, how):
            self._conclude(delivery, how)

    def _keep_progress_first(self, delivery: Delivery, how: Resolution) -> bool:
        """The next attempt is to have what the handler set last, so it goes before the outcome."""
        if not delivery.held or delivery.pending or delivery.new_progress() is None:
            return False
        delivery.pending = True
        delivery.deferred = how
        self.keeper.beat_now(delivery)
        return True

    def _progress_kept(self, delivery: Delivery) -> None:
        if delivery.deferred is not None and delivery.new_progress() is None:
            how, delivery.deferred = delivery.deferred, None
            self.outbox.add(delivery, how)

    def _conclude(self, delivery: Delivery, how: Resolution) -> None:
        if delivery.held and not delivery.pending:
            delivery.pending = True
            self.outbox.add(delivery, how)

    def _lose_with(self, delivery: Delivery, detail: str) -> None:
        self._lose(delivery, _STOP_REASONS.get(detail, StopReason.LOST))

    def _lose(self, delivery: Delivery, reason: StopReason) -> None:
        if delivery.pending and delivery.deferred is None:
            # Its outcome is on its way, and may be the very thing that ended the claim: the answer will tell.
            self.keeper.drop(delivery)
            return
        delivery.deferred = None
        self._stop(delivery, reason)
        self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        """The claim is over."""
        delivery.held = False
        delivery.stop_timers()
        self.keeper.drop(delivery)
        self._waiting.pop(delivery.token, None)
        if self._newest.get(delivery.id) is delivery:
            del self._newest[delivery.id]
        self._retire(delivery)

    def _retire(self, delivery: Delivery) -> None:
        """Makes its place free, if both the claim and the handler are over."""
        if delivery.held or delivery.running:
            if not delivery.running:
                self._start_waiting()
            return
        if self._live.pop(delivery.token, None) is not None:
            self.wake.set()
            if not self._live:
                self.idle.set()
        self._start_waiting()

    # ---- Shutdown.

    def drain(self) -> None:
        """Nothing starts any more, and what did not start is given back."""
        self._draining = True
        waiting, self._waiting = list(self._waiting.values()), {}
        for delivery in waiting:
            self._give_back(delivery)

    def stop_handlers(self) -> None:
        """The grace is over: each handler is stopped, and its claim given back when it has ended or will not."""
        loop = asyncio.get_running_loop()
        for delivery in list(self._live.values()):
            if delivery.running and delivery.held and not delivery.pending:
                self._stop(delivery, StopReason.SHUTDOWN)
                delivery.release_timer = loop.call_later(_STOPPING_SECONDS, self._give_back, delivery)

    def close(self) -> list[str]:
        """Gives up what is left, and says of which tasks the claims are still open."""
        open_claims = [delivery.id for delivery in self._live.values() if delivery.held]
        for delivery in list(self._live.values()):
            self._stop(delivery, StopReason.SHUTDOWN)
            delivery.held = False
            delivery.stop_timers()
        self.outbox.close()
        self._threads.close()
        return open_claims


def _how(run: asyncio.Future[Ended]) -> Ended:
    """How a handler ended."""
    if run.cancelled():
        return Ended(error=asyncio.CancelledError("the handler was cancelled from within"))
    error = run.exception()
    return Ended(error=error) if error is not None else run.result()
