"""Leases: how a claim is kept, lost, given back and taken over."""

from __future__ import annotations

import threading
from datetime import timedelta

import rdq
from rdq._stubs.v1 import task_service_pb2

from ..harness.proxy import Proxy
from ..harness.relay import Relay
from ..harness.scene import STOPPED, Scene, Signal, pause
from ..harness.waiting import finished, in_status, until, until_async


async def test_lease_extended(scene: Scene) -> None:
    """A handler several leases long runs once, while another claimant asks all the time."""
    client = scene.client
    lease = timedelta(seconds=2)
    go_on = Signal()
    runs: list[str] = []

    async def long(job: rdq.Job) -> str:
        runs.append("first")
        await pause(job, go_on)
        return "once"

    async def other(job: rdq.Job) -> str:
        runs.append("second")
        return "twice"

    async with scene.worker("work", {"long": long}, lease=lease):
        admission = await client.enqueue("work", "long")
        claimed = await in_status(client, admission.id, rdq.TaskStatus.IN_FLIGHT)
        assert claimed.claimed_at is not None
        several = claimed.claimed_at + 4 * lease
        async with scene.worker("work", {"long": other}):

            async def is_long() -> bool:
                task = await client.get(admission.id)
                return task.lease_expires_at is not None and task.lease_expires_at > several

            await until_async("it is held for several leases", is_long)
            go_on.set()
            (task,) = await finished(client, admission.id)

    assert runs == ["first"]
    assert task.result == b"once"
    assert (task.lease_expired_count, len(task.attempts)) == (0, 1)


async def test_lease_lost_mid_handler(scene: Scene) -> None:
    """The worker hears and says nothing until another claimed: its handler is stopped, its outcome changes nothing."""
    client = scene.client
    lease = timedelta(seconds=1)
    go_on, end_early = Signal(), Signal()
    began: list[str] = []
    stopped: list[tuple[str, rdq.StopReason | None]] = []
    ended_early = Signal()

    async def cut_off(job: rdq.Job) -> str:
        began.append(job.id)
        try:
            await pause(job, end_early if job.id == "early" else Signal())
        except STOPPED:
            stopped.append((job.id, job.stop_reason))
        else:
            ended_early.set()
        return "stale"

    async def other(job: rdq.Job) -> str:
        began.append(f"{job.id} again")
        await pause(job, go_on)
        return "the other's"

    async with Proxy(scene.server.port) as proxy:
        async with scene.worker("work", {"run": cut_off}, target=proxy.target, lease=lease, concurrency=2):
            for id in ("late", "early"):
                await client.enqueue("work", "run", id=id)
            await until("both run", lambda: set(began) == {"late", "early"})
            proxy.up.shut()
            proxy.down.shut()
            end_early.set()
            await until("one has ended", ended_early.is_set)
            async with scene.worker("work", {"run": other}):
                await until("the other has both", lambda: {"late again", "early again"} <= set(began))
                proxy.up.open()
                proxy.down.open()
                await until("the handler is stopped", lambda: len(stopped) == 1)
                go_on.set()
                late, early = await finished(client, "late", "early")

    assert stopped == [("late", rdq.StopReason.LOST)]
    for task in (late, early):
        assert task.result == b"the other's"
        assert [attempt.outcome for attempt in task.attempts] == [
            rdq.AttemptOutcome.LEASE_EXPIRED,
            rdq.AttemptOutcome.SUCCESS,
        ]


async def test_lease_all_but_gone(scene: Scene) -> None:
    """A claim that comes late is given back: its handler never starts, and no attempt is spent."""
    late: list[int] = []
    runs: list[int] = []

    def change(method: str, answer: bytes) -> bytes:
        if method != "Work" or late:
            return answer
        response = task_service_pb2.WorkResponse.FromString(answer)
        for claimed in response.tasks:
            # As if it had been on its way for almost the whole lease.
            claimed.lease_remaining.FromMilliseconds(90)
            late.append(claimed.generation)
        return response.SerializeToString()

    async def run(job: rdq.Job) -> None:
        runs.append(job.generation)

    async with Relay(scene.server.target, change=change) as relay:
        async with scene.worker("work", {"run": run}, target=relay.target, concurrency=1):
            admission = await scene.client.enqueue("work", "run")
            (task,) = await finished(scene.client, admission.id)

    assert late == [1]
    assert runs == [2]
    assert [attempt.attempt_no for attempt in task.attempts] == [1]
    assert task.attempts[0].outcome is rdq.AttemptOutcome.SUCCESS
    assert task.lease_expired_count == 0


async def test_cancel_mid_handler(scene: Scene) -> None:
    """`cancel` stops the handler, which is told why; nothing that it does then counts."""
    client = scene.client
    began = Signal()
    stopped: list[rdq.StopReason | None] = []

    async def run(job: rdq.Job) -> bytes:
        began.set()
        try:
            await pause(job, Signal())
        except STOPPED:
            stopped.append(job.stop_reason)
        return b"too late"

    async with scene.worker("work", {"run": run}):
        admission = await client.enqueue("work", "run")
        await until("it runs", began.is_set)
        first = await client.cancel(admission.id)
        await until("it is stopped", lambda: stopped)
        second = await client.cancel(admission.id)

    task = await client.get(admission.id)
    assert stopped == [rdq.StopReason.CANCELLED]
    assert first == rdq.Cancellation(cancelled=True, status=rdq.TaskStatus.CANCELLED)
    assert second == rdq.Cancellation(cancelled=False, status=rdq.TaskStatus.CANCELLED)
    assert task.status is rdq.TaskStatus.CANCELLED
    assert task.result == b""
    assert [attempt.outcome for attempt in task.attempts] == [rdq.AttemptOutcome.CANCELLED]


async def test_redelivery(scene: Scene) -> None:
    """The same task, again, to the same worker while the first handler still runs: the second's outcome counts."""
    client = scene.client
    finish_second = Signal()
    began: list[int] = []
    stopped: list[tuple[int, rdq.StopReason | None]] = []

    async def run(job: rdq.Job) -> str:
        began.append(job.generation)
        if job.generation == 1:
            try:
                await pause(job, Signal())
            except STOPPED:
                stopped.append((job.generation, job.stop_reason))
            return "the first's"
        await pause(job, finish_second)
        assert job.stop_reason is None
        return "the second's"

    async with Proxy(scene.server.port) as proxy:
        lease = timedelta(seconds=1)
        async with scene.worker("work", {"run": run}, target=proxy.target, lease=lease, concurrency=2):
            admission = await client.enqueue("work", "run", max_attempts=10)
            await until("it runs", lambda: began == [1])
            # Heartbeats do not arrive, and so the server gives the task out again, on the same stream.
            proxy.up.shut()
            await until("it runs again", lambda: len(began) > 1)
            await until("the first is stopped", lambda: stopped)
            proxy.up.open()
            finish_second.set()
            (task,) = await finished(client, admission.id)

    assert stopped[0] == (1, rdq.StopReason.LOST)
    assert task.result == b"the second's"
    outcomes = [attempt.outcome for attempt in task.attempts]
    assert outcomes[0] is rdq.AttemptOutcome.LEASE_EXPIRED
    assert outcomes[-1] is rdq.AttemptOutcome.SUCCESS


async def test_bounded_concurrency(scene: Scene) -> None:
    """50 tasks, concurrency 4: never more than 4 handlers, never more than 4 claims in flight at the server."""
    client = scene.client
    running = 0
    most = 0
    four = Signal()

    async def run(job: rdq.Job) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 4:
                four.set()
        await pause(job, four)
        with lock:
            running -= 1

    lock = threading.Lock()
    admissions = await client.enqueue_many(
        rdq.NewTask(queue="work", handler_ref="run", id=f"task-{n}") for n in range(50)
    )
    assert all(isinstance(admission, rdq.Admission) for admission in admissions)
    in_flight: list[int] = []

    async def all_done() -> bool:
        (stats,) = await client.stats(["work"])
        in_flight.append(stats.in_flight)
        return stats.succeeded == 50

    async with scene.worker("work", {"run": run}, concurrency=4):
        await until_async("all have succeeded", all_done)

    assert most == 4
    assert max(in_flight) <= 4
