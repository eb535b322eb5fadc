"""The operator's half: lists, dead letters, queues, and errors by their reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

import rdq
from rdq import _status, contract
from rdq._stubs.v1 import task_service_pb2, task_service_pb2_grpc

from ..harness.proxy import Proxy
from ..harness.relay import Relay
from ..harness.scene import Scene
from ..harness.waiting import collect, until_async


async def _make_dead(scene: Scene, queue: str, ids: list[str]) -> None:
    """Dead letters, each with its id's last letter as error type."""

    async def die(claim: rdq.Claim) -> None:
        raise rdq.Permanent("dead", type=claim.id[-1])

    async def all_dead() -> bool:
        (stats,) = await scene.client.stats([queue])
        return stats.dlq_depth == len(ids)

    async with scene.worker(queue, {"die": die}, concurrency=50):
        await scene.client.enqueue_many(rdq.NewTask(queue=queue, handler_ref="die", id=id) for id in ids)
        await until_async("all are dead", all_dead)


async def test_page_iteration(scene: Scene) -> None:
    """More tasks than a page, listed and in the DLQ, each once; a tampered token is `InvalidCursor`."""
    client = scene.client
    ids = [f"task-{n}" for n in range(60)]
    await client.enqueue_many(rdq.NewTask(queue="idle", handler_ref="run", id=f"idle-{n}") for n in range(60))
    await _make_dead(scene, "dead", ids)

    listed = await collect(client.list("idle", page_size=25))
    none = await collect(client.list("idle", status=rdq.TaskStatus.DEAD))
    dead = await collect(client.dlq_list("dead", page_size=25, include_attempts=True))
    some = await collect(client.dlq_list("dead", page_size=5, where=rdq.DlqFilter(error_type="7")))
    first = await client.list_page("idle", page_size=25)
    second = await client.list_page("idle", page_size=25, page_token=first.next_page_token)
    for n in range(12):
        await client.put_queue(f"queue-{n:02}", rdq.QueueConfig(paused=True))
    queues = [queue.name for queue in await collect(client.list_queues(page_size=5))]

    assert [task.id for task in listed] == [f"idle-{n}" for n in reversed(range(60))]
    assert none == []
    assert sorted(task.id for task in dead) == sorted(ids)
    assert all(len(task.attempts) == 1 for task in dead)
    assert sorted(task.id for task in some) == sorted(id for id in ids if id.endswith("7"))
    assert [*first.items, *second.items] == listed[:50]
    assert queues == sorted(["dead", "idle", *(f"queue-{n:02}" for n in range(12))])

    token = first.next_page_token
    other = "A" if token[10] != "A" else "B"
    with pytest.raises(rdq.InvalidCursor):
        await client.list_page("idle", page_token=token[:10] + other + token[11:])
    with pytest.raises(rdq.InvalidCursor):
        await client.dlq_list_page("dead", page_token="not a token")


async def test_operator_calls(scene: Scene) -> None:
    """Queue configuration, pause and resume, stats, redrive by ids, filter and all, purge, dry runs."""
    client = scene.client
    config = rdq.QueueConfig(
        max_attempts=7,
        initial_backoff=timedelta(seconds=3),
        multiplier=1.5,
        max_backoff=timedelta(minutes=2),
        jitter=0.0,
        retryable=["net.*"],
        permanent=["bad.*"],
        lease=timedelta(seconds=20),
        timeout=timedelta(minutes=5),
        strict_leases=True,
        max_payload_bytes=1234,
        retention_succeeded=timedelta(hours=1),
        retention_cancelled=timedelta(0),
        retention_dead=timedelta(days=9),
        version_mismatch=rdq.VersionMismatch.DEAD_LETTER,
        paused=False,
    )
    put = await client.put_queue("full", config)
    assert put.config == config
    assert (await client.get_queue("full")).config == config
    assert (await client.get_queue("full")).updated_at is not None
    sparse = await client.put_queue("full", rdq.QueueConfig(max_attempts=2))
    assert sparse.config == rdq.QueueConfig(max_attempts=2)
    assert sparse.effective.max_attempts == 2
    assert sparse.effective.lease == timedelta(seconds=60)
    assert (await client.get_queue("never seen")).config is None
    assert await client.delete_queue("full")
    assert not await client.delete_queue("full")

    assert (await client.pause_queue("work")).effective.paused
    await client.enqueue("work", "die", id="paused")
    with pytest.raises(rdq.QueueNotEmpty):
        await client.delete_queue("work")
    assert not (await client.resume_queue("work")).effective.paused
    await client.cancel("paused")

    ids = [f"task-{n}" for n in range(10)]
    await _make_dead(scene, "dead", ids)
    (stats,) = await client.stats(["dead"])
    assert (stats.dlq_depth, stats.pending, stats.in_flight) == (10, 0, 0)
    counts: list[int] = []
    assert await client.redrive("dead", all=True, dry_run=True, on_count=counts.append) == 10
    assert counts[-1] == 10
    assert await client.purge("dead", where=rdq.DlqFilter(error_type="3"), dry_run=True) == 1
    assert await client.redrive("dead", ids=["task-0", "task-1", "unheard of"]) == 2
    assert await client.redrive("dead", where=rdq.DlqFilter(error_type="2", handler_ref="die")) == 1
    assert await client.purge("dead", where=rdq.DlqFilter(error_type="3")) == 1
    assert await client.purge("dead", ids=["task-4"]) == 1
    assert await client.redrive("dead", all=True, spread_over=timedelta(hours=1)) == 5
    assert await client.purge("dead", all=True) == 0
    (stats,) = await client.stats(["dead"])
    assert (stats.dlq_depth, stats.pending) == (0, 8)
    assert {stats.queue for stats in await client.stats()} == {"work", "dead"}
    redriven = await client.get("task-0")
    assert (redriven.redrive_count, redriven.attempt_count, len(redriven.attempts)) == (1, 0, 1)

    capabilities = await client.capabilities()
    assert capabilities.contract_version.startswith("1.")
    assert capabilities.durability == "POWER_CUT"


async def test_errors_by_reason(scene: Scene) -> None:
    """Each reason that a client can provoke is its type; a reason unknown to the client is the base type."""
    client = scene.client
    await client.enqueue("one", "run", id="taken")
    await client.enqueue("one", "run")
    await client.enqueue("one", "run")
    token = (await client.list_page("one", page_size=1)).next_page_token

    async def provoke(kind: type[rdq.RdqError], call: Awaitable[object]) -> rdq.RdqError:
        with pytest.raises(rdq.RdqError) as refused:
            await call
        assert type(refused.value) is kind, refused.value
        return refused.value

    name = await provoke(rdq.InvalidName, client.enqueue("", "run"))
    assert (name.code, name.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_NAME")
    assert name.metadata["field"] == "task.queue"
    assert "queue" in name.message
    assert not name.retryable
    assert not name.outcome_unknown
    await provoke(rdq.ReservedName, client.enqueue("__rdq_queue", "run"))
    await provoke(rdq.InvalidArgument, client.enqueue("one", "run", max_attempts=0))
    await provoke(rdq.IdConflict, client.enqueue("two", "run", id="taken"))
    await provoke(rdq.PayloadTooLarge, client.enqueue("one", "run", bytes((1 << 20) + 1)))
    await provoke(rdq.MessageTooLarge, client.enqueue("one", "run", bytes(9 << 20)))
    await provoke(rdq.NotFound, client.get("nowhere"))
    await provoke(rdq.NotFound, client.cancel("nowhere"))
    await provoke(rdq.QueueNotEmpty, client.delete_queue("one"))
    await provoke(rdq.InvalidCursor, client.list_page("one", page_token="?"))
    await provoke(
        rdq.CursorBindingMismatch,
        client.list_page("one", page_token=token, status=rdq.TaskStatus.DEAD),
    )
    await provoke(rdq.InvalidArgument, client.redrive("one", where=rdq.DlqFilter()))

    async with grpc.aio.insecure_channel(scene.server.target) as channel:
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as stale:
            await stub.Complete(task_service_pb2.CompleteRequest(id="taken", claim_token=b"another's"))
        assert type(_status.of_call(stale.value)) is rdq.StaleClaim

    def by_stub(method: Callable[[rdq.Services], Any], request: object) -> Awaitable[object]:
        call = method(client.services)
        answer: Awaitable[object] = call(request) if scene.variant == "asyncio" else asyncio.to_thread(call, request)
        return answer

    conflict = await provoke(
        rdq.CasConflict,
        by_stub(lambda all: all.records.CompareAndSet, contract.CompareAndSetRequest(key="k", expected_revision=3)),
    )
    assert (conflict.code, conflict.metadata["expected_revision"]) == (grpc.StatusCode.ABORTED, "3")
    assert not conflict.retryable
    schedule = contract.Schedule(name="s", spec="never", queue="one", handler_ref="run")
    await provoke(
        rdq.InvalidSpec,
        by_stub(lambda all: all.schedules.PutSchedule, contract.PutScheduleRequest(schedule=schedule)),
    )
    nowhere = contract.MarkProjectedRequest(id="nowhere", worker_id="w", generation=1)
    await provoke(rdq.OutboxMissing, by_stub(lambda all: all.outboxes.MarkProjected, nowhere))
    message = contract.OutboxServiceEnqueueRequest(outbox="o", id="message")
    await by_stub(lambda all: all.outboxes.Enqueue, message)
    unclaimed = contract.MarkProjectedRequest(id="message", worker_id="w", generation=1)
    mismatch = await provoke(rdq.OutboxClaimMismatch, by_stub(lambda all: all.outboxes.MarkProjected, unclaimed))
    assert mismatch.metadata["id"] == "message"

    async with Proxy(scene.server.port) as proxy:
        proxy.down.shut()
        silent = scene.new_client(proxy.target, deadline=timedelta(milliseconds=300))
        late = await provoke(rdq.DeadlineExceeded, silent.get("taken"))
        assert late.outcome_unknown
        assert late.retryable
    nobody = scene.new_client(proxy.target, deadline=timedelta(milliseconds=300))
    away = await provoke(rdq.RdqError, nobody.get("taken"))
    assert (away.code, away.reason) == (grpc.StatusCode.UNAVAILABLE, "")
    assert away.outcome_unknown

    future = (grpc.StatusCode.FAILED_PRECONDITION, _details("FROM_THE_FUTURE", {"why": "not yet"}))
    async with Relay(scene.server.target, refused={"Get": future}) as relay:
        newer = scene.new_client(relay.target)
        unknown = await provoke(rdq.RdqError, newer.get("taken"))
        assert (unknown.code, unknown.reason) == (future[0], "FROM_THE_FUTURE")
        assert unknown.metadata == {"why": "not yet"}


def _details(reason: str, metadata: dict[str, str]) -> bytes:
    """A status as the server sends it."""
    detail = AnyMessage()
    detail.Pack(error_details_pb2.ErrorInfo(domain="rdq", reason=reason, metadata=metadata))
    return bytes(status_pb2.Status(details=[detail]).SerializeToString())
