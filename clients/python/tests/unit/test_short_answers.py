"""Answers with fewer results than the request had items: nothing is lost, and nothing takes the lack for an answer."""

from __future__ import annotations

import grpc

import rdq
from rdq._stubs.v1 import task_service_pb2

from ..harness.relay import Relay
from ..harness.scene import Signal, pause
from ..harness.server import Server
from ..harness.waiting import finished, until


async def test_an_outcome_without_a_result_is_sent_again(server: Server) -> None:
    resolved: list[int] = []

    def cut(method: str, answer: bytes) -> bytes:
        if method != "ResolveBatch":
            return answer
        response = task_service_pb2.ResolveBatchResponse.FromString(answer)
        resolved.append(len(response.results))
        if len(resolved) == 1:
            del response.results[1:]
            response.results[0].Clear()  # one says nothing, and the others are missing
        return bytes(response.SerializeToString())

    async with Relay(server.target, unknown=("Work",), change=cut) as relay, rdq.Client(relay.target) as client:
        worker = rdq.Worker(client, ["work"], concurrency=3)
        go_on = Signal()

        @worker.handler("run")
        async def run(claim: rdq.Claim) -> str:
            await pause(claim, go_on)
            return claim.id

        async with worker:
            answers = await client.enqueue_many(rdq.NewTask(queue="work", handler_ref="run") for _ in range(3))
            go_on.set()
            tasks = await finished(client, *(answer.id for answer in answers if isinstance(answer, rdq.Admission)))
            await until("each is answered", lambda: sum(resolved) > 3 and _is_idle(worker))
    assert [task.result.decode() for task in tasks] == [task.id for task in tasks]
    assert [len(task.attempts) for task in tasks] == [1, 1, 1]


def _is_idle(worker: rdq.Worker) -> bool:
    running = worker._running
    return running is not None and running._core.idle.is_set()


async def test_a_heartbeat_without_a_result_is_sent_again(server: Server) -> None:
    def cut(method: str, answer: bytes) -> bytes:
        return b"" if method == "ExtendLeases" else answer

    async with Relay(server.target, unknown=("Work",), change=cut) as relay, rdq.Client(relay.target) as client:
        worker = rdq.Worker(client, ["work"])

        @worker.handler("run")
        async def run(claim: rdq.Claim) -> str:
            await until("heartbeats went", lambda: relay.called["ExtendLeases"] >= 3)
            return "done"

        async with worker:
            (task,) = await finished(client, (await client.enqueue("work", "run")).id)
    assert task.result == b"done"


async def test_a_task_without_a_result_has_an_error_of_its_own(server: Server) -> None:
    def cut(method: str, answer: bytes) -> bytes:
        response = task_service_pb2.EnqueueBatchResponse.FromString(answer)
        del response.results[1:]
        return bytes(response.SerializeToString())

    async with Relay(server.target, change=cut) as relay, rdq.Client(relay.target) as client:
        first, *others = await client.enqueue_many(
            rdq.NewTask(queue="work", handler_ref="run", id=id) for id in ("a", "b", "c")
        )
    assert isinstance(first, rdq.Admission)
    assert first.id == "a"
    assert len(others) == 2
    for other in others:
        assert isinstance(other, rdq.RdqError)
        assert other.code is grpc.StatusCode.INTERNAL
        assert other.outcome_unknown
