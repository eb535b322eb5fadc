"""Cutting many items into requests that the server reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

#: The most items in one request.
ITEMS_MAX = 1_000
#: The most bytes in one request. The server reads more, but what stands before it may not.
BYTES_MAX = 3 << 20
#: What a field costs beside its content: a tag, and a length of up to 4 bytes.
FRAME_BYTES = 6


def batches(
    items: Iterable[T],
    size: Callable[[T], int],
    items_max: int = ITEMS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Iterator[list[T]]:
    """Cuts items, in order, into lists of at most so many items and bytes; a larger item is a list of its own."""
    batch: list[T] = []
    total = 0
    for item in items:
        cost = size(item) + FRAME_BYTES
        if batch and (len(batch) == items_max or total + cost > bytes_max):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += cost
    if batch:
        yield batch
