"""Enqueueing, working, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

import rdq

from ..harness.proxy import Proxy
from ..harness.scene import Scene
from ..harness.waiting import collect, finished


async def test_happy_path(scene: Scene) -> None:
    """One task and many are enqueued, worked, and succeed with the handler's result."""

    async def shout(job: rdq.Job) -> str:
        return job.text.upper()

    async with scene.worker("mail", {"shout": shout}):
        one = await scene.client.enqueue("mail", "shout", "hello")
        many = await scene.client.enqueue_many(
            rdq.NewTask(queue="mail", handler_ref="shout", payload=f"task {n}") for n in range(40)
        )
        ids = [admission.id for admission in many if isinstance(admission, rdq.Admission)]
        assert len(set(ids)) == 40
        tasks = await finished(scene.client, one.id, *ids)

    assert one.created
    assert [task.status for task in tasks] == [rdq.TaskStatus.SUCCEEDED] * 41
    assert tasks[0].result == b"HELLO"
    assert [task.result.decode() for task in tasks[1:]] == [f"TASK {n}" for n in range(40)]
    assert all(task.attempts[0].outcome is rdq.AttemptOutcome.SUCCESS for task in tasks)


async def test_enqueue_options(scene: Scene) -> None:
    """Everything that a producer can set arrives as set; of two tasks the one of higher priority goes first."""
    client = scene.client
    hour = timedelta(hours=1)
    jobs: list[rdq.Job] = []

    async def note(job: rdq.Job) -> None:
        jobs.append(job)

    low = await client.enqueue("options", "note", id="low", priority=-5)
    full = await client.enqueue(
        "options",
        "note",
        b"{}",
        id="full",
        content_type="application/json",
        headers={"tenant": "7", "empty": ""},
        priority=9,
        expires_in=2 * hour,
        handler_version="v2",
        max_attempts=3,
        lease=timedelta(seconds=45),
        initial_backoff=timedelta(milliseconds=1500),
        retention_dead=timedelta(days=3),
    )
    delayed = await client.enqueue("options", "note", delay=hour)
    at = datetime(2100, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone(timedelta(hours=2)))
    dated = await client.enqueue("options", "note", due_at=at, expires_at=at + hour)
    async with scene.worker("options", {"note": note}, concurrency=1):
        await finished(client, low.id, full.id)

    assert [job.id for job in jobs] == ["full", "low"]
    job = jobs[0]
    assert (job.queue, job.handler_ref, job.handler_version) == ("options", "note", "v2")
    assert (job.payload, job.content_type) == (b"{}", "application/json")
    assert job.headers == {"tenant": "7", "empty": ""}
    assert (job.max_attempts, job.attempt_no, job.generation) == (3, 1, 1)
    task = job.task
    assert (task.priority, task.max_attempts) == (9, 3)
    assert task.lease == timedelta(seconds=45)
    assert task.initial_backoff == timedelta(milliseconds=1500)
    assert task.retention_dead == timedelta(days=3)
    assert task.created_at is not None
    assert task.expires_at == task.created_at + 2 * hour
    assert jobs[1].headers == {}
    assert jobs[1].handler_version is None

    later = await client.get(delayed.id)
    assert later.status is rdq.TaskStatus.PENDING
    assert later.created_at is not None
    assert later.next_attempt_at == later.created_at + hour
    fixed = await client.get(dated.id)
    assert fixed.next_attempt_at == at
    assert fixed.expires_at == at + hour


async def test_enqueue_repeated(scene: Scene) -> None:
    """The same id again is not new, and the first stays; in another queue it is a conflict."""
    client = scene.client
    first = await client.enqueue("one", "note", b"first", id="same")
    second = await client.enqueue("one", "note", b"second", id="same")
    with pytest.raises(rdq.IdConflict) as refused:
        await client.enqueue("two", "note", id="same")

    assert (first.created, second.created) == (True, False)
    assert second.status is rdq.TaskStatus.PENDING
    assert (await client.get("same")).payload == b"first"
    assert refused.value.metadata["task_id"] == "same"
    assert not refused.value.retryable


async def test_enqueue_answer_lost(scene: Scene) -> None:
    """The answer of the first try is lost: one task, one id, and the caller sees a success."""
    async with Proxy(scene.server.port) as proxy:
        client = scene.new_client(proxy.target)
        await client.capabilities()
        proxy.lose_answer()
        made = await client.enqueue("mail", "send", b"once")
        assert proxy.lost == 1
        proxy.lose_answer()
        chosen = await client.enqueue("mail", "send", b"once", id="chosen")
        assert proxy.lost == 2
        proxy.lose_answer()
        many = await client.enqueue_many([rdq.NewTask(queue="mail", handler_ref="send")])
        assert proxy.lost == 3

    tasks = await collect(scene.client.list("mail"))
    assert made.created
    assert chosen.id == "chosen"
    assert isinstance(many[0], rdq.Admission)
    assert many[0].created
    assert {task.id for task in tasks} == {made.id, "chosen", many[0].id}
    assert len(tasks) == 3


async def test_enqueue_many_mixed(scene: Scene) -> None:
    """2,500 tasks, of which some are refused: an answer each, in order."""
    client = scene.client
    await client.enqueue("elsewhere", "note", id="taken")
    await client.put_queue("small", rdq.QueueConfig(max_payload_bytes=100))

    def tasks() -> Iterator[rdq.NewTask]:
        for n in range(2_500):
            if n % 100 == 1:
                yield rdq.NewTask(queue="bulk", handler_ref="note", id="taken")
            elif n % 100 == 2:
                yield rdq.NewTask(queue="bulk", handler_ref="")
            elif n % 100 == 3:
                yield rdq.NewTask(queue="small", handler_ref="note", payload=bytes(101))
            elif n % 100 == 4:
                yield rdq.NewTask(queue="bulk", handler_ref="no UTF-8: \ud800")
            else:
                yield rdq.NewTask(queue="bulk", handler_ref="note", id=f"bulk-{n}", payload=bytes(3_000))

    answers = await client.enqueue_many(tasks())

    assert len(answers) == 2_500
    refusals = {1: rdq.IdConflict, 2: rdq.InvalidName, 3: rdq.PayloadTooLarge, 4: rdq.InvalidArgument}
    for n, answer in enumerate(answers):
        if n % 100 in refusals:
            assert isinstance(answer, refusals[n % 100]), (n, answer)
        else:
            assert answer == rdq.Admission(id=f"bulk-{n}", created=True, status=rdq.TaskStatus.PENDING)
    (stats,) = await client.stats(["bulk"])
    assert stats.pending == 2_400
