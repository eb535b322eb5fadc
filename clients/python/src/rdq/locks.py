"""Locks: held for a scope, renewed in the background, and told when they are lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta
from types import TracebackType

from grpc import StatusCode

from ._backoff import Backoff
from ._connection import TRY_SECONDS_MAX, within
from ._ids import new_worker_id
from ._stubs.v1 import lock_service_pb2
from ._time import seconds, to_duration
from .client import Client
from .errors import LockLost, LockNotAcquired, RdqError

_LOG = logging.getLogger("rdq.lock")
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 1.0
_RELEASE_SECONDS_MAX = 5.0
_GIVE_BACK_SECONDS_MAX = 1.0


class Lock:
    """Holds a lock for a scope, at most once.

    `async with` acquires it, raises `LockNotAcquired` if somebody else has it for longer than `wait`, renews it in the
    background and releases it at the end. When the lock is lost, the scope is cancelled and ends with `LockLost`, no
    later than the hold's end at the server. An event loop that is blocked renews nothing and tells nothing, nor does a
    process that is stopped: so hand `generation` to what the lock guards, and let that refuse lower ones.

    Args:
        client: Where to.
        name: The lock.
        ttl: How long a hold lasts without a renewal, 1 ms to 12 h; renewed at a third of it.
        wait: How long to wait while somebody else holds it.
        owner: Who holds it; a new name if None. Two who share an owner share the lock.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl: timedelta = timedelta(seconds=30),
        wait: timedelta = timedelta(0),
        owner: str | None = None,
    ) -> None:
        if ttl <= timedelta(0):
            raise ValueError("ttl must be above zero")
        self._connection = client._connection
        self._name = name
        self._ttl = ttl.total_seconds()
        self._wait = wait.total_seconds()
        self._owner = new_worker_id() if owner is None else owner
        self._generation = 0
        self._keeping: asyncio.Task[None] | None = None
        self._released = False
        #: When the hold ends, and when the try was sent by which that is known, by the loop's clock.
        self._end = 0.0
        self._sent = 0.0
        self._cause: RdqError | None = None
        # For both variants: a plain holder is told by the one, a coroutine by the other.
        self._lost = threading.Event()
        self._losing: asyncio.Future[None] | None = None
        self._scope: asyncio.Task[object] | None = None
        self._cancelling = 0

    @property
    def name(self) -> str:
        """The lock."""
        return self._name

    @property
    def owner(self) -> str:
        """Who holds it."""
        return self._owner

    @property
    def generation(self) -> int:
        """The hold's fencing number, which grows with every acquisition of the name; 0 before it is acquired."""
        return self._generation

    @property
    def is_lost(self) -> bool:
        """True once it was acquired and is held no more, though it was not released."""
        return self._lost.is_set()

    async def wait_lost(self) -> None:
        """Returns when the lock is lost."""
        if self._losing is None:
            raise RuntimeError("the lock was not acquired")
        await asyncio.shield(self._losing)

    def raise_if_lost(self) -> None:
        """Does nothing while the lock is held.

        Raises:
            LockLost: it is held no more.
        """
        if self._lost.is_set():
            raise self._lost_error() from self._cause

    async def acquire(self) -> bool:
        """Acquires it, and begins to renew it. For who does not use `async with`; `release` it then.

        Returns:
            False if somebody else has it, for longer than `wait`.

        Raises:
            RuntimeError: it was acquired before.
        """
        if self._keeping is not None:
            raise RuntimeError("a Lock is acquired once")
        loop = asyncio.get_running_loop()
        until = loop.time() + self._wait
        backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        try:
            while not await self._connection.retry(self._try_lock):
                left = until - loop.time()
                if left <= 0:
                    return False
                await asyncio.sleep(min(backoff.next(), left))
        except BaseException:
            # It may be held all the same, by nobody who knows.
            await self._release(_GIVE_BACK_SECONDS_MAX, None)
            raise
        self._losing = loop.create_future()
        self._keeping = asyncio.ensure_future(self._keep())
        return True

    async def release(self) -> None:
        """Ends the hold. Safe to repeat. A release that fails is logged: the hold ends by itself then."""
        if self._keeping is None or self._released:
            return
        self._released = True
        self._keeping.cancel()
        left = self._end - asyncio.get_running_loop().time()
        if not self.is_lost and left > 0:
            await self._release(min(left, _RELEASE_SECONDS_MAX), self._generation)

    async def __aenter__(self) -> Lock:
        self._scope = asyncio.current_task()
        assert self._scope is not None
        self._cancelling = self._scope.cancelling()
        if not await self.acquire():
            raise LockNotAcquired(f"{self._name!r} is held by another", code=StatusCode.FAILED_PRECONDITION)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        scope, self._scope = self._scope, None
        await self.release()
        if not self.is_lost:
            return
        # As `asyncio.timeout` does it: the cancellation was this lock's own, unless there was another.
        assert scope is not None
        ours = scope.uncancel() <= self._cancelling
        if kind is None or (ours and issubclass(kind, asyncio.CancelledError)):
            raise self._lost_error() from self._cause

    def _lost_error(self) -> LockLost:
        return LockLost(f"{self._name!r} is held no more", code=StatusCode.ABORTED)

    async def _try_lock(self, timeout: float) -> bool:
        sent = asyncio.get_running_loop().time()
        request = lock_service_pb2.TryLockRequest(
            name=self._name, owner=self._owner, ttl=to_duration(timedelta(seconds=self._ttl))
        )
        response = await self._connection.once(lambda channel: channel.locks.TryLock, request, timeout)
        if response.acquired:
            self._generation = response.generation
            self._held_from(sent, seconds(response.remaining))
        return response.acquired

    async def _renew(self) -> bool:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        request = lock_service_pb2.RenewRequest(
            name=self._name,
            owner=self._owner,
            generation=self._generation,
            ttl=to_duration(timedelta(seconds=self._ttl)),
        )
        timeout = min(TRY_SECONDS_MAX, self._end - sent)
        response = await self._connection.once(lambda channel: channel.locks.Renew, request, timeout)
        if response.renewed:
            self._held_from(sent, seconds(response.remaining))
        return response.renewed

    def _held_from(self, sent: float, remaining: float) -> None:
        self._sent = sent
        self._end = sent + min(remaining, self._ttl)

    async def _keep(self) -> None:
        """Renews until it is cancelled, or the lock is lost."""
        loop = asyncio.get_running_loop()
        due = self._sent + self._ttl / 3
        renewing: asyncio.Task[bool] | None = None
        try:
            while (now := loop.time()) < self._end:
                if renewing is None:
                    if now < due:
                        await asyncio.sleep(min(due, self._end) - now)
                        continue
                    renewing = asyncio.ensure_future(self._renew())
                # A call that hangs does not put off the end.
                await asyncio.wait({renewing}, timeout=self._end - now)
                if not renewing.done():
                    continue
                try:
                    if not renewing.result():
                        break
                    self._cause = None
                    due = self._sent + self._ttl / 3
                except RdqError as error:
                    self._cause = error
                    due = loop.time() + self._ttl / 10
                renewing = None
        finally:
            if renewing is not None:
                renewing.cancel()
        self._lose()

    def _lose(self) -> None:
        _LOG.warning("lock %r is lost (%s)", self._name, self._cause or "the server says so")
        self._lost.set()
        if self._losing is not None and not self._losing.done():
            self._losing.set_result(None)
        if self._scope is not None:
            self._scope.cancel()

    async def _release(self, within_seconds: float, generation: int | None) -> None:
        request = lock_service_pb2.LockServiceReleaseRequest(name=self._name, owner=self._owner, generation=generation)
        try:
            await within(within_seconds, self._connection.call(lambda channel: channel.locks.Release, request))
        except RdqError as error:
            _LOG.warning("lock %r was not released and ends by itself (%s)", self._name, error)
