"""Locks, for plain threads."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import TracebackType

from grpc import StatusCode

from .. import locks as _locks
from ..errors import LockNotAcquired
from .client import Client


class Lock:
    """Holds a lock for a scope, at most once. See `rdq.Lock`, whose arguments these are.

    It is renewed on the background loop, whatever the scope does. A thread cannot be broken off: it looks at `lost`, or
    calls `raise_if_lost`. A scope that ends without an exception after the lock was lost raises `LockLost`.
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
        self._loop = client._loop
        self._lock = _locks.Lock(client._client, name, ttl=ttl, wait=wait, owner=owner)

    @property
    def name(self) -> str:
        """The lock."""
        return self._lock.name

    @property
    def owner(self) -> str:
        """Who holds it."""
        return self._lock.owner

    @property
    def generation(self) -> int:
        """The hold's fencing number, which grows with every acquisition of the name; 0 before it is acquired."""
        return self._lock.generation

    @property
    def lost(self) -> threading.Event:
        """Set when the lock is lost. A holder looks at it, or waits on it in place of sleeping."""
        return self._lock._lost

    @property
    def is_lost(self) -> bool:
        """True once it was acquired and is held no more, though it was not released."""
        return self._lock.is_lost

    def raise_if_lost(self) -> None:
        """Does nothing while the lock is held.

        Raises:
            LockLost: it is held no more.
        """
        self._lock.raise_if_lost()

    def acquire(self) -> bool:
        """Acquires it, and begins to renew it. For who does not use `with`; `release` it then.

        Returns:
            False if somebody else has it, for longer than `wait`.
        """
        return self._loop.run(self._lock.acquire())

    def release(self) -> None:
        """Ends the hold. Safe to repeat. A release that fails is logged: the hold ends by itself then."""
        self._loop.run(self._lock.release())

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise LockNotAcquired(f"{self.name!r} is held by another", code=StatusCode.FAILED_PRECONDITION)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        if kind is None:
            self.raise_if_lost()
