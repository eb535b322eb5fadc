"""Ends: of the worker, of the server, and of what a server knows."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

import rdq
from rdq._contract import CONTRACT_VERSION
from rdq._stubs.v1 import task_service_pb2

from ..harness.relay import Relay
from ..harness.scene import STOPPED, Scene, Signal, pause
from ..harness.waiting import finished, in_status, until, until_async


async def _drains(scene: Scene, worker: rdq.Worker, go_on: Signal, running: list[str]) -> None:
    """`stop` during two handlers: they end, their outcomes are kept, and nothing new is claimed."""
    client = scene.client
    ids = [(await client.enqueue("drain", "run")).id for _ in range(4)]
    await until("two handlers run", lambda: len(running) == 2)
    stopping = asyncio.ensure_future(worker.stop())
    leases = {id: (await client.get(id)).lease_expires_at for id in running}

    async def are_extended() -> bool:
        tasks = [await client.get(id) for id in running]
        return all(
            task.lease_expires_at is not None and task.lease_expires_at > (leases[task.id] or task.lease_expires_at)
            for task in tasks
        )

    await until_async("their leases are extended", are_extended)
    assert not stopping.done()
    late = await client.enqueue("drain", "run")
    go_on.set()
    await stopping

    # `stop` returns when the outcomes are answered: there is nothing to wait for.
    for id in [*ids, late.id]:
        task = await client.get(id)
        if id in running:
            assert (task.status, task.result) == (rdq.TaskStatus.SUCCEEDED, b"ended")
        else:
            assert (task.status, task.attempts) == (rdq.TaskStatus.PENDING, ())
    assert len(running) == 2


async def test_drain(scene: Scene) -> None:
    """`stop` during handlers: they end, their outcomes are kept, nothing new is claimed."""
    go_on = Signal()
    running: list[str] = []

    async def run(claim: rdq.Claim) -> str:
        running.append(claim.id)
        await pause(claim, go_on)
        assert claim.stop_reason is None
        return "ended"

    lease = timedelta(seconds=3)
    async with scene.worker("drain", {"run": run}, concurrency=2, lease=lease) as worker:
        await _drains(scene, worker, go_on, running)


async def test_drain_grace_over(scene: Scene) -> None:
    """A handler longer than the grace is stopped, its claim given back: due at once, and no attempt spent."""
    client = scene.client
    began = Signal()
    stopped: list[rdq.StopReason | None] = []

    async def run(claim: rdq.Claim) -> bytes:
        claim.set_progress("so far")
        began.set()
        try:
            await pause(claim, Signal())
        except STOPPED:
            stopped.append(claim.stop_reason)
            raise
        return b"not to be kept"

    async def again(claim: rdq.Claim) -> bytes:
        return claim.progress

    async with scene.worker("work", {"run": run}) as worker:
        admission = await client.enqueue("work", "run")
        await until("it runs", began.is_set)
        await worker.stop(timedelta(milliseconds=100))
        task = await client.get(admission.id)

    assert stopped == [rdq.StopReason.SHUTDOWN]
    assert task.status is rdq.TaskStatus.PENDING
    assert (task.attempt_count, task.attempts) == (0, ())
    async with scene.worker("work", {"run": again}):
        (task,) = await finished(client, admission.id)
    assert [attempt.attempt_no for attempt in task.attempts] == [1]
    assert task.result == b"so far"


async def test_other_contract_version(scene: Scene) -> None:
    """A worker says that the server's contract is another, and claims nothing; a producer does not ask."""
    assert (await scene.client.capabilities()).contract_version == CONTRACT_VERSION

    def foreign(method: str, answer: bytes) -> bytes:
        if method != "GetCapabilities":
            return answer
        return bytes(task_service_pb2.GetCapabilitiesResponse(contract_version="2.7").SerializeToString())

    async def run(claim: rdq.Claim) -> None:
        raise AssertionError("it was claimed")

    async with Relay(scene.server.target, change=foreign) as relay:
        admission = await scene.new_client(relay.target).enqueue("work", "run")
        assert relay.called == {"Enqueue": 1}
        with pytest.raises(rdq.OtherContractVersion) as refused:
            await scene.new_worker("work", {"run": run}, target=relay.target).run()
        assert relay.called == {"Enqueue": 1, "GetCapabilities": 1}
    assert (refused.value.client_version, refused.value.server_version) == (CONTRACT_VERSION, "2.7")
    assert CONTRACT_VERSION in str(refused.value)
    assert "'2.7'" in str(refused.value)
    task = await scene.client.get(admission.id)
    assert (task.status, task.attempts) == (rdq.TaskStatus.PENDING, ())


async def test_server_restart(scene: Scene) -> None:
    """The server is killed and started again with handlers running and tasks waiting: every task ends once."""
    client = scene.client
    go_on, one_may_end = Signal(), Signal()
    runs: list[str] = []
    ended: list[str] = []

    async def run(claim: rdq.Claim) -> str:
        runs.append(claim.id)
        await pause(claim, one_may_end if claim.id == runs[0] else go_on)
        ended.append(claim.id)
        return claim.id

    async with scene.worker("work", {"run": run}, concurrency=3):
        ids = [(await client.enqueue("work", "run")).id for _ in range(8)]
        await until("three handlers run", lambda: len(runs) == 3)
        await asyncio.to_thread(scene.server.kill)
        # One ends while there is no server.
        one_may_end.set()
        await until("one has ended", lambda: len(ended) == 1)
        await asyncio.to_thread(scene.server.restart)
        go_on.set()
        tasks = await finished(client, *ids)

    assert sorted(runs) == sorted(ids)
    for task in tasks:
        assert (task.status, task.result.decode()) == (rdq.TaskStatus.SUCCEEDED, task.id)
        assert len(task.attempts) == 1


async def test_claim_due_fallback(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The happy path, a failure, a cancel and a drain with a server that does not know `Work`."""
    client = scene.client
    await client.put_queue("work", rdq.QueueConfig(initial_backoff=timedelta(milliseconds=10)))
    go_on, began = Signal(), Signal()
    running: list[str] = []
    stopped: list[rdq.StopReason | None] = []

    async def succeed(claim: rdq.Claim) -> bytes:
        return claim.payload

    async def fail_once(claim: rdq.Claim) -> bytes:
        if claim.attempt_no == 1:
            claim.set_progress("half")
            raise OSError("not yet")
        return claim.progress

    async def hang(claim: rdq.Claim) -> None:
        began.set()
        try:
            await pause(claim, Signal())
        except STOPPED:
            stopped.append(claim.stop_reason)

    async def run(claim: rdq.Claim) -> str:
        running.append(claim.id)
        await pause(claim, go_on)
        return "ended"

    handlers = {"succeed": succeed, "fail_once": fail_once, "hang": hang, "run": run}
    async with Relay(scene.server.target, unknown=("Work",)) as relay:
        with caplog.at_level(logging.WARNING, "rdq"):
            async with scene.worker(
                ("work", "drain"), handlers, target=relay.target, concurrency=2, lease=timedelta(seconds=2)
            ) as worker:
                happy = [await client.enqueue("work", "succeed", f"{n}") for n in range(10)]
                failing = await client.enqueue("work", "fail_once")
                *tasks, failed = await finished(client, *[admission.id for admission in happy], failing.id)
                hanging = await client.enqueue("work", "hang")
                await until("it runs", began.is_set)
                await client.cancel(hanging.id)
                await until("it is stopped", lambda: stopped)
                cancelled = await in_status(client, hanging.id, rdq.TaskStatus.CANCELLED)
                await _drains(scene, worker, go_on, running)

    assert [task.result for task in tasks] == [f"{n}".encode() for n in range(10)]
    assert [attempt.outcome for attempt in failed.attempts] == [
        rdq.AttemptOutcome.RETRYABLE_FAILURE,
        rdq.AttemptOutcome.SUCCESS,
    ]
    assert failed.result == b"half"
    assert stopped == [rdq.StopReason.CANCELLED]
    assert len(cancelled.attempts) == 1
    assert {"Work", "ClaimDue", "ExtendLeases", "ResolveBatch"} <= set(relay.called)
    said = [record for record in caplog.records if "does not know Work" in record.message]
    assert len(said) == 1
