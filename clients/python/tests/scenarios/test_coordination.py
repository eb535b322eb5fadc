"""Events, locks, outboxes and transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest

import rdq
import rdq.sync
from rdq import contract

from ..harness.scene import Scene, _InThreads
from ..harness.waiting import finished, until, until_async


def _kind(scene: Scene, kind: type[Any], plain: type[Any]) -> Callable[..., Any]:
    """A helper of the scene's variant; the plain one's calls are made in threads."""
    if scene.variant == "asyncio":
        return lambda *arguments, **options: kind(scene.client, *arguments, **options)
    client = cast(_InThreads, scene.client).plain
    return lambda *arguments, **options: _InThreads(plain(client, *arguments, **options))


def _function(scene: Scene, function: Callable[[Any], None]) -> Callable[[Any], Any]:
    """The function as a coroutine function, for the variant that has them."""
    if scene.variant == "plain":
        return function

    async def run(argument: Any) -> None:
        function(argument)

    return run


async def _call(scene: Scene, method: Callable[[Any], Any], request: Any) -> Any:
    """A call of a stub, as the variant makes it."""
    services = scene.client.services
    if scene.variant == "asyncio":
        return await method(services)(request)
    return await asyncio.to_thread(method(services), request)


async def _stop(helper: Any) -> None:
    stopping = helper.stop()
    if isinstance(stopping, Awaitable):
        await stopping


async def test_subscription(scene: Scene) -> None:
    """Events published before and while subscribed come in order, over a restart of the server too; a handler that
    fails stops it with nothing saved beyond; a new subscription goes on after what was saved."""
    got: list[tuple[int, str]] = []
    subscription = _kind(scene, rdq.Subscription, rdq.sync.Subscription)

    async def publish(*texts: str) -> None:
        for text in texts:
            request = contract.PublishRequest(stream="orders", key="k", payload=text.encode())
            await _call(scene, lambda services: services.streams.Publish, request)

    async def saved() -> int:
        request = contract.GetOffsetRequest(stream="orders", consumer="mailer")
        answer = await _call(scene, lambda services: services.streams.GetOffset, request)
        return cast(int, answer.offset)

    def keep(event: rdq.StreamEvent) -> None:
        assert (event.stream, event.key) == ("orders", "k")
        if event.text == "poison" and not cured.is_set():
            raise ValueError("poison")
        got.append((event.offset, event.text))

    cured = threading.Event()
    await publish("1", "2", "3")
    first = subscription("orders", "mailer", _function(scene, keep), limit=2)
    running = asyncio.ensure_future(first.run())
    await until("what was there", lambda: len(got) == 3)
    await publish("4")
    await until("what is published now", lambda: len(got) == 4)

    async def all_saved() -> bool:
        return await saved() == got[-1][0]

    await until_async("offsets are saved", all_saved)
    scene.server.kill()
    scene.server.restart()
    await publish("5", "6")
    await until("what is published after the restart", lambda: len(got) == 6)
    await _stop(first)
    await running
    assert await saved() == got[-1][0]

    await publish("7", "poison", "9")
    second = subscription("orders", "mailer", _function(scene, keep))
    with pytest.raises(ValueError, match="poison"):
        await second.run()
    assert await saved() == got[-1][0]
    assert [text for _, text in got] == ["1", "2", "3", "4", "5", "6", "7"]
    cured.set()
    third = subscription("orders", "mailer", _function(scene, keep))
    running = asyncio.ensure_future(third.run())
    await until("what was left", lambda: len(got) == 9)
    await _stop(third)
    await running
    assert [text for _, text in got] == ["1", "2", "3", "4", "5", "6", "7", "poison", "9"]
    assert [offset for offset, _ in got] == sorted(offset for offset, _ in got)


async def test_lock_guard(scene: Scene) -> None:
    """One of two has the lock, for several ttls; the other, which waits, has it after the release, with a higher
    generation; the server away for longer than the ttl: the holder is told."""
    lock = _kind(scene, rdq.Lock, rdq.sync.Lock)
    ttl = timedelta(seconds=3)
    one = lock("nightly", ttl=ttl)
    assert await one.acquire()
    assert not await lock("nightly", ttl=ttl).acquire()
    request = contract.GetLockRequest(name="nightly")
    ends = (await _call(scene, lambda services: services.locks.GetLock, request)).expires_at.ToDatetime()

    async def renewed() -> bool:
        held = await _call(scene, lambda services: services.locks.GetLock, request)
        assert (held.owner, held.generation) == (one.owner, one.generation)
        return bool(held.expires_at.ToDatetime() > ends + 2 * ttl)

    await until_async("it is held for several ttls", renewed)
    assert not one.is_lost
    two = lock("nightly", ttl=ttl, wait=timedelta(minutes=1))
    waiting = asyncio.ensure_future(two.acquire())
    await one.release()
    assert await waiting
    assert two.generation > one.generation
    assert not one.is_lost

    scene.server.kill()
    if scene.variant == "asyncio":
        await two.wait_lost()
    else:
        assert await asyncio.to_thread(two.plain.lost.wait, 60)
    assert two.is_lost
    scene.server.restart()
    told = two if scene.variant == "asyncio" else two.plain
    with pytest.raises(rdq.LockLost):
        told.raise_if_lost()
    await two.release()
    three = lock("nightly", ttl=ttl, wait=timedelta(minutes=1))
    assert await three.acquire()
    assert three.generation > two.generation
    await three.release()
    assert not (await _call(scene, lambda services: services.locks.GetLock, request)).held

    # The scope: not had, had, and lost in it.
    async def hold(broken: bool) -> None:
        def plain() -> None:
            client = cast(_InThreads, scene.client).plain
            with rdq.sync.Lock(client, "scope", ttl=ttl) as held:
                with pytest.raises(rdq.LockNotAcquired), rdq.sync.Lock(client, "scope", ttl=ttl):
                    raise AssertionError("two hold it")
                if broken:
                    scene.server.kill()
                    assert held.lost.wait(60)

        if scene.variant == "plain":
            await asyncio.to_thread(plain)
            return
        async with rdq.Lock(scene.client, "scope", ttl=ttl):
            with pytest.raises(rdq.LockNotAcquired):
                async with rdq.Lock(scene.client, "scope", ttl=ttl):
                    raise AssertionError("two hold it")
            if broken:
                scene.server.kill()
                await asyncio.Event().wait()

    await hold(broken=False)
    with pytest.raises(rdq.LockLost):
        await hold(broken=True)
    if scene.variant == "asyncio":
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0


async def test_outbox_relay(scene: Scene) -> None:
    """A message is delivered once; one whose delivery fails comes again with attempt 2, and is delivered; an ended
    claim is no error; the loop stops."""
    relay = _kind(scene, rdq.OutboxRelay, rdq.sync.OutboxRelay)
    seen: list[rdq.OutboxMessage] = []

    async def enqueue(id: str) -> None:
        request = contract.OutboxServiceEnqueueRequest(outbox="mail", id=id, payload=id.encode(), headers={"to": "ada"})
        await _call(scene, lambda services: services.outboxes.Enqueue, request)

    async def left() -> int:
        request = contract.CountUnprojectedRequest(outbox="mail")
        answer = await _call(scene, lambda services: services.outboxes.CountUnprojected, request)
        return cast(int, answer.counts[0].unprojected)

    once = relay("mail")
    assert not await once.run_once("relay-1", _function(scene, seen.append))
    await enqueue("a")
    assert await once.run_once("relay-1", _function(scene, seen.append))
    assert not await once.run_once("relay-1", _function(scene, seen.append))
    assert [(message.id, message.text, message.headers, message.attempt_count) for message in seen] == [
        ("a", "a", {"to": "ada"}, 1)
    ]
    assert await left() == 0

    def fail_at_first(message: rdq.OutboxMessage) -> None:
        seen.append(message)
        if message.attempt_count == 1:
            raise ConnectionError("the other side is away")

    await enqueue("b")
    looping = relay()
    running = asyncio.ensure_future(looping.run("relay-2", _function(scene, fail_at_first)))

    async def none_left() -> bool:
        return await left() == 0

    await until_async("it is delivered", none_left)
    await _stop(looping)
    await running
    assert [(message.id, message.attempt_count) for message in seen[1:]] == [("b", 1), ("b", 2)]
    assert seen[2].last_error == "ConnectionError: the other side is away"

    # Another took the message over while it was delivered: its claim counts, and this one's end is no error.
    await enqueue("c")
    short = relay("mail", lease=timedelta(milliseconds=10))
    taken: list[Any] = []
    came, go_on = threading.Event(), threading.Event()

    def slow(message: rdq.OutboxMessage) -> None:
        came.set()
        assert go_on.wait(60)

    carrying = asyncio.ensure_future(short.run_once("relay-3", slow))
    await until("it is being delivered", came.is_set)

    async def take() -> bool:
        request = contract.ClaimBatchRequest(outbox="mail", worker_id="relay-4")
        taken.extend((await _call(scene, lambda services: services.outboxes.ClaimBatch, request)).messages)
        return bool(taken)

    await until_async("another has it", take)
    go_on.set()
    assert await carrying
    assert await left() == 1
    mark = contract.MarkProjectedRequest(id="c", worker_id="relay-4", generation=taken[0].generation)
    assert not (await _call(scene, lambda services: services.outboxes.MarkProjected, mark)).replayed
    assert await left() == 0


async def test_commit(scene: Scene) -> None:
    """An event, a task and a record in one `Commit` are there; with one conflicting operation none is, and the error is
    `CasConflict` and names the operation."""

    def commit(id: str) -> contract.CommitRequest:
        task = contract.Task(id=id, queue="orders", handler_ref="ship")
        record = contract.CompareAndSetRequest(key="order", value=id.encode())
        return contract.CommitRequest(
            operations=[
                contract.Operation(publish=contract.PublishRequest(stream="orders", payload=id.encode())),
                contract.Operation(enqueue=contract.EnqueueRequest(task=task)),
                contract.Operation(compare_and_set=record),
            ]
        )

    async def there() -> tuple[list[bytes], bytes, int]:
        read = contract.ReadRequest(stream="orders", offset=0)
        events = (await _call(scene, lambda services: services.streams.Read, read)).events
        get = contract.GetRecordRequest(key="order")
        record = (await _call(scene, lambda services: services.records.GetRecord, get)).record
        return [event.payload for event in events], record.value, record.revision

    results = (await _call(scene, lambda services: services.transactions.Commit, commit("first"))).results
    assert [result.WhichOneof("result") for result in results] == ["publish", "enqueue", "compare_and_set"]
    assert await there() == ([b"first"], b"first", 1)
    assert (await scene.client.get("first")).handler_ref == "ship"

    with pytest.raises(rdq.CasConflict) as refused:
        await _call(scene, lambda services: services.transactions.Commit, commit("second"))
    assert refused.value.operation_index == 2
    assert refused.value.metadata["key"] == "order"
    assert not refused.value.retryable
    assert await there() == ([b"first"], b"first", 1)
    with pytest.raises(rdq.NotFound):
        await scene.client.get("second")

    async def ship(claim: rdq.Claim) -> None:
        pass

    async with scene.worker("orders", {"ship": ship}):
        (task,) = await finished(scene.client, "first")
    assert task.status is rdq.TaskStatus.SUCCEEDED
