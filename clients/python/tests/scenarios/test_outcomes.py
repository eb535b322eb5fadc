"""What a handler's end becomes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import rdq

from ..harness.scene import STOPPED, Scene, Signal, pause
from ..harness.waiting import finished, until_async

QUICK = rdq.QueueConfig(initial_backoff=timedelta(milliseconds=20), max_backoff=timedelta(milliseconds=20))


class Flaky(Exception):
    """An error of the handler's own."""


async def test_retry_then_success(scene: Scene) -> None:
    """A handler that fails twice: three attempts in the history, with error types, messages and stacks."""
    client = scene.client
    await client.put_queue("mail", QUICK)

    async def send(job: rdq.Job) -> bytes:
        if job.attempt_no == 1:
            raise Flaky("the first time")
        if job.attempt_no == 2:
            raise rdq.Failure("the second time", type="http.503", detail='{"status": 503}')
        return b"sent"

    async with scene.worker("mail", {"send": send}) as worker:
        admission = await client.enqueue("mail", "send")
        (task,) = await finished(client, admission.id)

    assert task.status is rdq.TaskStatus.SUCCEEDED
    assert task.result == b"sent"
    first, second, third = task.attempts
    assert [attempt.attempt_no for attempt in task.attempts] == [1, 2, 3]
    assert first.outcome is second.outcome is rdq.AttemptOutcome.RETRYABLE_FAILURE
    assert third.outcome is rdq.AttemptOutcome.SUCCESS
    assert first.worker_id == worker.worker_id
    assert first.error is not None
    assert first.error.type == f"{__name__}.Flaky"
    assert first.error.message == "the first time"
    assert 'raise Flaky("the first time")' in first.error.stack
    assert second.error is not None
    assert (second.error.type, second.error.message) == ("http.503", "the second time")
    assert second.error.detail == '{"status": 503}'
    assert "in send" in second.error.stack
    assert third.error is None


async def test_retry_after_and_snooze(scene: Scene) -> None:
    """`RetryAfter` spends an attempt, `Snooze` does not."""
    client = scene.client
    soon = timedelta(milliseconds=10)
    runs: list[int] = []

    async def send(job: rdq.Job) -> None:
        runs.append(job.attempt_no)
        if len(runs) == 1:
            raise rdq.Snooze(soon)
        if len(runs) == 2:
            raise rdq.RetryAfter(soon, Flaky("busy"), type="busy")

    async with scene.worker("mail", {"send": send}):
        admission = await client.enqueue("mail", "send")
        (task,) = await finished(client, admission.id)

    assert runs == [1, 1, 2]
    assert task.status is rdq.TaskStatus.SUCCEEDED
    assert task.attempt_count == 2
    error = task.attempts[0].error
    assert error is not None
    assert (error.type, error.message) == ("busy", "busy")
    assert task.attempts[0].outcome is rdq.AttemptOutcome.RETRYABLE_FAILURE


async def test_permanent_failure(scene: Scene) -> None:
    """`Permanent` is a dead letter after one attempt; `Retryable` is none, whatever the globs say."""
    client = scene.client
    await client.put_queue("mail", rdq.QueueConfig(initial_backoff=timedelta(milliseconds=10), permanent=["bad.*"]))

    async def send(job: rdq.Job) -> None:
        raise rdq.Permanent(Flaky("no such address"), type="smtp.550")

    async def insist(job: rdq.Job) -> None:
        if job.attempt_no == 1:
            raise rdq.Retryable("again", type="bad.luck")
        raise rdq.Failure("for good", type="bad.luck")

    async with scene.worker("mail", {"send": send, "insist": insist}):
        sent = await client.enqueue("mail", "send")
        insisted = await client.enqueue("mail", "insist")
        task, retried = await finished(client, sent.id, insisted.id)

    assert task.status is rdq.TaskStatus.DEAD
    (attempt,) = task.attempts
    assert attempt.outcome is rdq.AttemptOutcome.PERMANENT_FAILURE
    assert attempt.error is not None
    assert (attempt.error.type, attempt.error.message) == ("smtp.550", "no such address")
    assert retried.status is rdq.TaskStatus.DEAD
    assert [attempt.outcome for attempt in retried.attempts] == [
        rdq.AttemptOutcome.RETRYABLE_FAILURE,
        rdq.AttemptOutcome.PERMANENT_FAILURE,
    ]


async def test_outcome_mapper(scene: Scene) -> None:
    """A return value becomes a permanent failure, an exception a success, and the rest stays as it is."""
    client = scene.client

    async def answer(job: rdq.Job) -> bytes:
        return job.payload

    async def fail(job: rdq.Job) -> None:
        raise Flaky(job.text)

    def map_outcome(job: rdq.Job, value: Any, error: BaseException | None) -> rdq.Outcome | None:
        if value == b"404":
            return rdq.Permanent("not there", type="http.404")
        if isinstance(error, Flaky) and str(error) == "done before":
            return rdq.Success("as before")
        if value == b"broken":
            raise RuntimeError("the mapper broke")
        return None

    async with scene.worker("mail", {"answer": answer, "fail": fail}, outcome_mapper=map_outcome):
        bad = await client.enqueue("mail", "answer", "404", max_attempts=1)
        good = await client.enqueue("mail", "fail", "done before", max_attempts=1)
        same = await client.enqueue("mail", "answer", "200", max_attempts=1)
        worse = await client.enqueue("mail", "fail", "other", max_attempts=1)
        broken = await client.enqueue("mail", "answer", "broken", max_attempts=1)
        tasks = await finished(client, bad.id, good.id, same.id, worse.id, broken.id)

    assert [task.status for task in tasks] == [
        rdq.TaskStatus.DEAD,
        rdq.TaskStatus.SUCCEEDED,
        rdq.TaskStatus.SUCCEEDED,
        rdq.TaskStatus.DEAD,
        rdq.TaskStatus.DEAD,
    ]
    errors = [task.attempts[0].error for task in tasks]
    assert errors[0] is not None
    assert errors[0].type == "http.404"
    assert tasks[1].result == b"as before"
    assert tasks[2].result == b"200"
    assert errors[3] is not None
    assert errors[3].message == "other"
    assert errors[4] is not None
    assert errors[4].type == "RuntimeError"


async def test_unroutable(scene: Scene) -> None:
    """No handler: a dead letter, `rdq.Unroutable`."""
    client = scene.client

    async def send(job: rdq.Job) -> None:
        raise AssertionError("this is another handler")

    async with scene.worker("mail", {"send": send}):
        admission = await client.enqueue("mail", "unheard of")
        (task,) = await finished(client, admission.id)

    assert task.status is rdq.TaskStatus.DEAD
    (attempt,) = task.attempts
    assert attempt.error is not None
    assert attempt.error.type == "rdq.Unroutable"
    assert attempt.outcome is rdq.AttemptOutcome.PERMANENT_FAILURE


async def test_version_mismatch(scene: Scene) -> None:
    """A version that is not there is a dead letter where the queue says so, else the latest runs."""
    client = scene.client
    await client.put_queue("strict", rdq.QueueConfig(version_mismatch=rdq.VersionMismatch.DEAD_LETTER))

    def named(name: str) -> Any:
        async def run(job: rdq.Job) -> str:
            return name

        return run

    handlers = {
        ("send", "1"): named("first"),
        ("send", "2"): named("second"),
        ("call", "1"): named("call 1"),
        "call": named("any call"),
    }
    async with scene.worker(("strict", "lax"), handlers):
        admissions = [
            await client.enqueue(queue, ref, handler_version=version)
            for queue in ("strict", "lax")
            for ref, version in [("send", "1"), ("send", "3"), ("send", None), ("call", "3"), ("call", None)]
        ]
        tasks = await finished(client, *[admission.id for admission in admissions])

    strict, lax = tasks[:5], tasks[5:]
    assert [task.result for task in lax] == [b"first", b"second", b"second", b"any call", b"any call"]
    assert [task.result for task in strict] == [b"first", b"", b"second", b"", b"any call"]
    for task in (strict[1], strict[3]):
        assert task.status is rdq.TaskStatus.DEAD
        error = task.attempts[0].error
        assert error is not None
        assert error.type == "rdq.VersionMismatch"


async def test_execution_timeout(scene: Scene) -> None:
    """The handler is stopped, and the attempt is `rdq.Timeout`."""
    client = scene.client
    await client.put_queue("slow", rdq.QueueConfig(timeout=timedelta(seconds=2), max_attempts=1))
    stopped: list[rdq.StopReason | None] = []

    async def run(job: rdq.Job) -> bytes:
        try:
            await pause(job, Signal())
        except STOPPED:
            stopped.append(job.stop_reason)
        return b"not to be kept"

    async with scene.worker("slow", {"run": run}):
        admission = await client.enqueue("slow", "run")
        (task,) = await finished(client, admission.id)

    assert stopped == [rdq.StopReason.TIMEOUT]
    assert task.status is rdq.TaskStatus.DEAD
    (attempt,) = task.attempts
    assert attempt.error is not None
    assert attempt.error.type == "rdq.Timeout"
    assert task.result == b""


async def test_progress_and_result(scene: Scene) -> None:
    """Progress of a failed attempt is there in the next; empty, binary and largest results are kept."""
    client = scene.client
    await client.put_queue("work", QUICK)
    seen: list[bytes] = []
    go_on = Signal()

    async def step(job: rdq.Job) -> bytes:
        seen.append(job.progress)
        if job.attempt_no == 1:
            job.set_progress("row 10")
            job.set_progress(bytes(range(256)))
            raise Flaky("half-way")
        if job.attempt_no == 2:
            with pytest.raises(rdq.PayloadTooLarge):
                job.set_progress(bytes((64 << 10) + 1))
            job.set_progress("kept by a heartbeat")
            await pause(job, go_on)
            raise Flaky("later")
        return job.progress

    async def result(job: rdq.Job) -> bytes | str | None:
        sizes: dict[str, bytes | str | None] = {
            "none": None,
            "empty": "",
            "text": "ñ 🚀",
            "binary": bytes(range(256)),
            "largest": bytes(64 << 10),
        }
        return sizes[job.text]

    async with scene.worker("work", {"step": step, "result": result}, lease=timedelta(seconds=3)):
        stepping = await client.enqueue("work", "step")

        async def is_kept() -> bool:
            return (await client.get(stepping.id)).progress == b"kept by a heartbeat"

        await until_async("a heartbeat carries the progress", is_kept)
        go_on.set()
        names = ("none", "empty", "text", "binary", "largest")
        results = [await client.enqueue("work", "result", name) for name in names]
        task, *others = await finished(client, stepping.id, *[admission.id for admission in results])

    assert seen == [b"", bytes(range(256)), b"kept by a heartbeat"]
    assert task.result == b"kept by a heartbeat"
    assert [other.result for other in others] == [
        b"",
        b"",
        "ñ 🚀".encode(),
        bytes(range(256)),
        bytes(64 << 10),
    ]


async def test_result_too_large(scene: Scene) -> None:
    """It ends as a failure that says so, and the worker goes on; larger than a message, too."""
    client = scene.client

    async def make(job: rdq.Job) -> bytes:
        return bytes(int(job.text))

    async with scene.worker("work", {"make": make}):
        sizes = [(64 << 10) + 1, 5 << 20, 10]
        made = [await client.enqueue("work", "make", str(size), max_attempts=1) for size in sizes]
        tasks = await finished(client, *[admission.id for admission in made])

    assert [task.status for task in tasks] == [
        rdq.TaskStatus.DEAD,
        rdq.TaskStatus.DEAD,
        rdq.TaskStatus.SUCCEEDED,
    ]
    for task in tasks[:2]:
        error = task.attempts[0].error
        assert error is not None
        assert error.type == "rdq.OutcomeRefused"
        assert "PAYLOAD_TOO_LARGE" in error.message
    assert tasks[2].result == bytes(10)
