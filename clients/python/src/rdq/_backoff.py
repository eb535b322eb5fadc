"""Delays between tries: full jitter, doubling from a first delay to a longest one."""

from __future__ import annotations

import random


class Backoff:
    """A growing sequence of random delays, in seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._taken = 0

    def next(self) -> float:
        """The next delay: anything from zero to a bound that doubles each time."""
        delay = random.uniform(0, self.bound())
        self._taken += 1
        return delay

    def bound(self) -> float:
        """The longest that the next delay can be."""
        # Beyond 2^32 the longest has long won.
        return min(self._longest, self._first * float(2 ** min(self._taken, 32)))

    def reset(self) -> None:
        """Starts again with the first delay."""
        self._taken = 0
