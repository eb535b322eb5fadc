"""Waiting for what is expected, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import rdq

T = TypeVar("T")

#: Far above what anything here takes: what is not there by then will not come.
_SECONDS_MAX = 90.0
FINISHED = (rdq.TaskStatus.SUCCEEDED, rdq.TaskStatus.DEAD, rdq.TaskStatus.CANCELLED)


async def until(what: str, condition: Callable[[], T]) -> T:
    """Waits until a condition gives something true, and answers that."""
    end = time.monotonic() + _SECONDS_MAX
    while not (found := condition()):
        assert time.monotonic() < end, f"never: {what}"
        await asyncio.sleep(0.01)
    return found


async def until_async(what: str, condition: Callable[[], Awaitable[T]]) -> T:
    """The same, of a condition that makes calls."""
    end = time.monotonic() + _SECONDS_MAX
    while not (found := await condition()):
        assert time.monotonic() < end, f"never: {what}"
        await asyncio.sleep(0.03)
    return found


async def finished(client: rdq.Client, *ids: str) -> list[rdq.Task]:
    """Waits until tasks have ended, and answers them in order."""
    tasks = []
    for id in ids:
        task = await client.get(id)
        end = time.monotonic() + _SECONDS_MAX
        while task.status not in FINISHED:
            assert time.monotonic() < end, f"never finished: {task}"
            await asyncio.sleep(0.03)
            task = await client.get(id)
        tasks.append(task)
    return tasks


async def in_status(client: rdq.Client, id: str, *statuses: rdq.TaskStatus) -> rdq.Task:
    """Waits until a task stands so, and answers it."""

    async def look() -> rdq.Task | None:
        task = await client.get(id)
        return task if task.status in statuses else None

    found = await until_async(f"{id} is {statuses}", look)
    assert found is not None
    return found


async def collect(items: AsyncIterator[T]) -> list[T]:
    """All that a list has."""
    return [item async for item in items]
