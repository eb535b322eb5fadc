"""Ways to use the client that no scenario has, against a real server."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rdq
import rdq.sync
from rdq._stubs.v1 import error_reason_pb2, task_service_pb2
from rdq._worker import receiver

from ..harness.proxy import Proxy
from ..harness.relay import Relay
from ..harness.scene import STOPPED, Scene, Signal, pause
from ..harness.server import Server
from ..harness.spans import handled, tracer_provider
from ..harness.waiting import finished, until, until_async


def details(reason: str) -> bytes:
    detail = AnyMessage()
    detail.Pack(error_details_pb2.ErrorInfo(domain="rdq", reason=reason))
    return bytes(status_pb2.Status(details=[detail]).SerializeToString())


AWAY = (grpc.StatusCode.UNAVAILABLE, details("STORAGE_UNAVAILABLE"))


async def test_a_plain_handler_of_an_asyncio_worker_runs_in_a_thread(server: Server) -> None:
    main = threading.current_thread()
    seen: list[threading.Thread] = []
    async with rdq.Client(server.target) as client:
        worker = rdq.Worker(client, ["work"])

        @worker.handler("plain")
        def plain(claim: rdq.Claim) -> str:
            seen.append(threading.current_thread())
            return claim.text

        async with worker:
            admission = await client.enqueue("work", "plain", "text")
            (task,) = await finished(client, admission.id)
    assert task.result == b"text"
    assert seen[0] is not main
    assert seen[0].daemon


async def test_an_async_handler_of_a_plain_worker_runs_on_the_loop(server: Server) -> None:
    def work() -> bytes:
        with rdq.sync.Client(server.target) as client:
            worker = rdq.sync.Worker(client, ["work"])

            @worker.handler("coroutine")
            async def coroutine(claim: rdq.Claim) -> str:
                await asyncio.sleep(0)
                with pytest.raises(RuntimeError, match="wait for itself"):
                    client.get(claim.id)
                return threading.current_thread().name

            with worker:
                id = client.enqueue("work", "coroutine").id
                while (task := client.get(id)).status not in (rdq.TaskStatus.SUCCEEDED, rdq.TaskStatus.DEAD):
                    pass
            return task.result

    assert await asyncio.to_thread(work) == b"rdq-loop"


@pytest.mark.parametrize(
    ("code", "reason", "is_retried"),
    [
        (grpc.StatusCode.UNAVAILABLE, "STORAGE_UNAVAILABLE", True),
        (grpc.StatusCode.ABORTED, "CONTENTION", True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL", False),
        (grpc.StatusCode.INTERNAL, "INTERNAL", False),
    ],
)
async def test_a_call_is_repeated_only_where_that_can_help(
    server: Server, code: grpc.StatusCode, reason: str, is_retried: bool
) -> None:
    async with (
        Relay(server.target, refused={"Stats": (code, details(reason))}) as relay,
        rdq.Client(relay.target) as client,
    ):
        calling = asyncio.ensure_future(client.stats(["work"]))
        if is_retried:
            await until("it is repeated", lambda: relay.called["Stats"] >= 3)
            relay.refused.clear()
            assert len(await calling) == 1
        else:
            with pytest.raises(rdq.RdqError) as refused:
                await calling
            assert refused.value.reason == reason
            assert relay.called["Stats"] == 1


async def test_a_redrive_is_begun_again_before_its_first_count(server: Server) -> None:
    away = (grpc.StatusCode.UNAVAILABLE, details("STORAGE_UNAVAILABLE"))
    async with (
        Relay(server.target, refused={"Redrive": away}) as relay,
        rdq.Client(relay.target) as client,
    ):
        calling = asyncio.ensure_future(client.redrive("work", all=True))
        await until("it is repeated", lambda: relay.called["Redrive"] >= 2)
        relay.refused.clear()
        assert await calling == 0


async def test_a_batch_that_cannot_be_sent_is_told_for_each_task(server: Server) -> None:
    async with rdq.Client(server.target, deadline=timedelta(milliseconds=200)) as client:
        await asyncio.to_thread(server.kill)
        answers = await client.enqueue_many(
            rdq.NewTask(queue="work", handler_ref="run", payload=bytes(500_000)) for _ in range(30)
        )
    assert len(answers) == 30
    assert all(isinstance(answer, rdq.RdqError) and answer.retryable for answer in answers)


@pytest.mark.parametrize("is_over", [False, True])
async def test_items_of_a_batch_that_are_refused_for_the_moment_are_sent_again(server: Server, is_over: bool) -> None:
    """Within the deadline: one item is refused for the moment, twice or always, and one for good."""
    seen: list[int] = []

    def refuse_second(method: str, answer: bytes) -> bytes:
        response = task_service_pb2.EnqueueBatchResponse.FromString(answer)
        if method == "EnqueueBatch":
            seen.append(len(response.results))
            if is_over or len(seen) <= 2:
                response.results[-1].error.code = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
                response.results[-1].error.reason = error_reason_pb2.ERROR_REASON_OVERLOADED
        return bytes(response.SerializeToString())

    deadline = timedelta(seconds=5 if is_over else 30)
    async with (
        Relay(server.target, change=refuse_second) as relay,
        rdq.Client(relay.target, deadline=deadline) as client,
    ):
        answers = await client.enqueue_many(
            [
                rdq.NewTask(queue="", handler_ref="run"),
                rdq.NewTask(queue="work", handler_ref="run", id="first"),
                rdq.NewTask(queue="work", handler_ref="run", id="second"),
            ]
        )
    assert isinstance(answers[0], rdq.RdqError)
    assert isinstance(answers[1], rdq.Admission)
    assert answers[1].id == "first"
    if is_over:
        assert isinstance(answers[2], rdq.Overloaded)
        assert set(seen[1:]) <= {1}
    else:
        assert isinstance(answers[2], rdq.Admission)
        assert answers[2].id == "second"
        assert seen == [3, 1, 1]


async def test_outcomes_of_a_refused_kind_are_sent_again(scene: Scene) -> None:
    """With unary calls alone: the outcome and the heartbeats get through once the server answers again."""
    away = (grpc.StatusCode.UNAVAILABLE, details("STORAGE_UNAVAILABLE"))

    async def run(claim: rdq.Claim) -> str:
        return "kept"

    async with Relay(scene.server.target, refused={"ResolveBatch": away, "ExtendLeases": away}) as relay:
        options = {"receive": "claim_due", "lease": timedelta(seconds=10)}
        async with scene.worker("work", {"run": run}, target=relay.target, **options):
            admission = await scene.client.enqueue("work", "run")
            await until("it is repeated", lambda: relay.called["ResolveBatch"] >= 3)
            relay.refused.clear()
            (task,) = await finished(scene.client, admission.id)
    assert task.result == b"kept"
    assert len(task.attempts) == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.INTERNAL, ""),
        (grpc.StatusCode.UNKNOWN, ""),
        (grpc.StatusCode.CANCELLED, ""),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ""),
        (grpc.StatusCode.UNIMPLEMENTED, ""),
        (grpc.StatusCode.INTERNAL, "INTERNAL"),
        (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"),
    ],
)
async def test_a_call_that_fails_makes_no_failure_of_a_success(
    server: Server, code: grpc.StatusCode, reason: str
) -> None:
    refused = {"ResolveBatch": (code, details(reason) if reason else b"")}
    async with (
        rdq.Client(server.target) as client,
        Relay(server.target, refused=refused) as relay,
        rdq.Client(relay.target) as through,
    ):
        worker = rdq.Worker(through, ["work"], receive="claim_due")
        worker.add_handler("run", lambda claim: "kept")
        async with worker:
            admission = await client.enqueue("work", "run")
            await until("it is repeated", lambda: relay.called["ResolveBatch"] >= 2)
            relay.refused.clear()
            (task,) = await finished(client, admission.id)
    assert (task.status, task.result) == (rdq.TaskStatus.SUCCEEDED, b"kept")


@pytest.mark.parametrize("by", ["failure", "timeout"])
async def test_progress_is_kept_before_the_failure_though_heartbeats_fail(server: Server, by: str) -> None:
    """The lease is so long that its next heartbeat would come far too late for this test."""
    began = threading.Event()
    seen: list[bytes] = []

    async def run(claim: rdq.Claim) -> None:
        seen.append(claim.progress)
        if claim.attempt_no == 1:
            # No lease reaches beyond the timeout, so this is after the last heartbeat before it.
            while by == "timeout" and claim.lease_remaining > timedelta(seconds=2):
                await asyncio.sleep(0.01)
            claim.set_progress("so far")
            began.set()
            if by == "failure":
                raise OSError("not yet")
            try:
                await asyncio.Event().wait()
            finally:
                claim.set_progress("too late")

    async with (
        rdq.Client(server.target) as client,
        Relay(server.target, refused={"ExtendLeases": AWAY} if by == "failure" else None) as relay,
        rdq.Client(relay.target) as through,
    ):
        timeout = timedelta(seconds=10) if by == "timeout" else None
        await client.put_queue("work", rdq.QueueConfig(timeout=timeout, initial_backoff=timedelta(milliseconds=10)))
        worker = rdq.Worker(through, ["work"], receive="claim_due", lease=timedelta(hours=1))
        worker.add_handler("run", run)
        async with worker:
            admission = await client.enqueue("work", "run")
            await until("it runs", began.is_set)
            if by == "failure":
                await until("it is repeated", lambda: relay.called["ExtendLeases"] >= 2)
                relay.refused.clear()
            (task,) = await finished(client, admission.id)
    assert seen == [b"", b"so far"]
    errors = [attempt.error.type for attempt in task.attempts if attempt.error is not None]
    assert errors == ["rdq.Timeout" if by == "timeout" else "OSError"]


async def test_an_outcome_whose_answer_was_lost_is_sent_again(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Of a task that is kept, and of one that is forgotten at once, whose repetition is NOT_FOUND."""
    client = scene.client
    await client.put_queue("forgetful", rdq.QueueConfig(retention_succeeded=timedelta(0)))
    go_on = Signal()
    running: list[str] = []

    async def run(claim: rdq.Claim) -> str:
        running.append(claim.id)
        await pause(claim, go_on)
        return "kept"

    with caplog.at_level(logging.WARNING, "rdq"):
        async with Proxy(scene.server.port) as proxy:
            async with scene.worker(("work", "forgetful"), {"run": run}, target=proxy.target) as worker:
                kept = await client.enqueue("work", "run")
                await client.enqueue("forgetful", "run")
                await until("both run", lambda: len(running) == 2)
                proxy.down.shut()
                go_on.set()
                await finished(client, kept.id)

                async def is_forgotten() -> bool:
                    return not [task async for task in client.list("forgetful")]

                await until_async("the other is forgotten", is_forgotten)
                proxy.cut()
                proxy.down.open()
                await worker.stop()
    assert [record.message for record in caplog.records] == []
    assert (await client.get(kept.id)).result == b"kept"


async def test_a_span_tells_of_failures_by_their_type_alone(scene: Scene) -> None:
    """Of what becomes a failure or a dead letter, by the mapper's word too; a message may quote a payload."""
    spans = InMemorySpanExporter()
    tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
    queue = f"spans-{scene.variant}"
    snoozed: list[str] = []

    async def run(claim: rdq.Claim) -> object:
        if claim.text == "snooze" and not snoozed:
            snoozed.append(claim.id)
            raise rdq.Snooze(timedelta(0))
        if claim.text == "raise":
            raise ValueError(f"secret {claim.text}")
        if claim.text == "return":
            return rdq.Permanent(ValueError("secret"), type="smtp.550")
        return "mapped" if claim.text == "map" else None

    def mapper(claim: rdq.Claim, value: Any, error: BaseException | None) -> rdq.Outcome | None:
        return rdq.Permanent(KeyError("secret")) if value == "mapped" else None

    async with scene.worker(queue, {"run": run}, outcome_mapper=mapper):
        for text in ("snooze", "raise", "return", "map", "well"):
            admission = await scene.client.enqueue(queue, "run", text, id=f"{queue}-{text}", max_attempts=1)
            await finished(scene.client, admission.id)
        await until("every span has ended", lambda: len(_of_queue(spans, queue)) == 6)
    ended = _of_queue(spans, queue)
    failed = {id: span.status.description for id, span in ended if span.status.status_code is trace.StatusCode.ERROR}
    assert failed == {f"{queue}-raise": "ValueError", f"{queue}-return": "smtp.550", f"{queue}-map": "KeyError"}
    assert not [span for _, span in ended if "secret" in span.to_json()]


def _of_queue(spans: InMemorySpanExporter, queue: str) -> list[tuple[object, ReadableSpan]]:
    told = [(span.attributes or {}, span) for span in handled(spans)]
    return [(attributes["rdq.task_id"], span) for attributes, span in told if attributes["rdq.queue"] == queue]


async def test_a_silent_stream_is_dropped(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "SILENCE_SECONDS_MAX", 1.0)

    async def run(claim: rdq.Claim) -> str:
        return "done"

    async with Proxy(scene.server.port) as proxy:
        proxy.down.shut()
        async with scene.worker("work", {"run": run}, target=proxy.target):
            await until("it connects again", lambda: proxy.accepted >= 3)
            proxy.down.open()
            admission = await scene.client.enqueue("work", "run")
            (task,) = await finished(scene.client, admission.id)
    assert task.result == b"done"


async def test_a_server_that_drains_loses_nothing(scene: Scene) -> None:
    """A handler runs while the server ends in order and starts again."""
    client = scene.client
    go_on = Signal()
    running: list[str] = []

    async def run(claim: rdq.Claim) -> str:
        running.append(claim.id)
        await pause(claim, go_on)
        return "done"

    async with scene.worker("work", {"run": run}, concurrency=2):
        ids = [(await client.enqueue("work", "run")).id for _ in range(3)]
        await until("two run", lambda: len(running) == 2)
        await asyncio.to_thread(scene.server.end)
        await asyncio.to_thread(scene.server.restart)
        go_on.set()
        tasks = await finished(client, *ids)
    assert sorted(running) == sorted(ids)
    assert [(task.result, len(task.attempts)) for task in tasks] == [(b"done", 1)] * 3


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_an_outcome_reaches_a_server_that_drains(
    scene: Scene, is_stopped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A server is told to end while a handler runs, which ends within the server's grace; the worker is, too."""
    client = scene.client
    go_on, began = Signal(), Signal()

    async def run(claim: rdq.Claim) -> str:
        began.set()
        await pause(claim, go_on)
        return "done"

    caplog.set_level(logging.INFO, "rdq")
    # Only the stream leads to the server.
    async with Relay(scene.server.target, refused={"ResolveBatch": AWAY, "ExtendLeases": AWAY}) as relay:
        async with scene.worker("work", {"run": run}, target=relay.target) as worker:
            admission = await client.enqueue("work", "run")
            await until("it runs", began.is_set)
            ending = asyncio.ensure_future(asyncio.to_thread(scene.server.end))
            await until("it drains", lambda: "the server drains" in caplog.text)
            if is_stopped:
                stopping = asyncio.ensure_future(worker.stop())
                await asyncio.sleep(0)
            go_on.set()
            await ending
            if is_stopped:
                await stopping
            assert relay.acknowledged == 1
        await asyncio.to_thread(scene.server.restart)
        (task,) = await finished(client, admission.id)
    assert (task.result, len(task.attempts)) == (b"done", 1)
    assert relay.called["ResolveBatch"] == 0


async def test_nothing_that_a_user_sent_is_logged(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def run(claim: rdq.Claim) -> bytes:
        claim.set_progress("secret")
        if claim.attempt_no == 1:
            raise ValueError(claim.text)
        return b"secret" * 20_000

    with caplog.at_level(logging.DEBUG):
        async with scene.worker("work", {"run": run}):
            admission = await scene.client.enqueue(
                "work",
                "run",
                "secret",
                headers={"h": "secret"},
                max_attempts=2,
                initial_backoff=timedelta(milliseconds=10),
            )
            (task,) = await finished(scene.client, admission.id)
    assert task.status is rdq.TaskStatus.DEAD
    assert any("refused" in record.getMessage() for record in caplog.records)
    assert not [record for record in caplog.records if "secret" in record.getMessage()]


async def test_stop_returns_though_the_server_is_away(scene: Scene) -> None:
    began = threading.Event()

    async def run(claim: rdq.Claim) -> str:
        began.set()
        return "never told"

    async with scene.worker("work", {"run": run}, grace=timedelta(0)) as worker:
        await scene.client.enqueue("work", "run")
        await until("it runs", began.is_set)
        await asyncio.to_thread(scene.server.kill)
        await worker.stop()


async def test_stop_returns_at_once_though_nothing_comes_through(scene: Scene) -> None:
    """Nothing is held, and the grace is far longer than this test may take."""

    async def run(claim: rdq.Claim) -> str:
        return "done"

    async with Proxy(scene.server.port) as proxy:
        async with scene.worker("work", {"run": run}, target=proxy.target, grace=timedelta(hours=1)) as worker:
            admission = await scene.client.enqueue("work", "run")
            await finished(scene.client, admission.id)
            await until("all is answered", lambda: _is_idle(worker))
            proxy.up.shut()
            proxy.down.shut()
            await asyncio.wait_for(worker.stop(), 90)


def _is_idle(worker: Any) -> bool:
    inner = worker.plain._worker if hasattr(worker, "plain") else worker
    return bool(inner._running._core.idle.is_set())


async def test_a_result_after_the_grace_counts(scene: Scene) -> None:
    """If its claim was not given back yet."""
    began = Signal()

    async def run(claim: rdq.Claim) -> str:
        began.set()
        try:
            await pause(claim, Signal())
        except STOPPED:
            assert claim.stop_reason is rdq.StopReason.SHUTDOWN
        return "just done"

    async with scene.worker("work", {"run": run}) as worker:
        admission = await scene.client.enqueue("work", "run")
        await until("it runs", began.is_set)
        await worker.stop(timedelta(0))
    task = await scene.client.get(admission.id)
    assert (task.status, task.result) == (rdq.TaskStatus.SUCCEEDED, b"just done")


async def test_a_worker_starts_once_and_again_after_its_stop(scene: Scene) -> None:
    async def run(claim: rdq.Claim) -> str:
        return "done"

    async with scene.worker("work", {"run": run}) as worker:
        with pytest.raises(RuntimeError, match="runs already"):
            await worker.start()
        await worker.stop()
        await worker.stop()
        await worker.start()
        admission = await scene.client.enqueue("work", "run")
        (task,) = await finished(scene.client, admission.id)
    assert task.result == b"done"


async def test_a_handler_that_exits_or_cancels_itself_fails(scene: Scene) -> None:
    async def leave(claim: rdq.Claim) -> None:
        sys.exit(3)

    async def cancel(claim: rdq.Claim) -> None:
        raise asyncio.CancelledError

    async with scene.worker("work", {"leave": leave, "cancel": cancel}):
        admissions = [await scene.client.enqueue("work", ref, max_attempts=1) for ref in ("leave", "cancel")]
        tasks = await finished(scene.client, *[admission.id for admission in admissions])
    errors = [task.attempts[0].error for task in tasks]
    assert [error.type for error in errors if error] == ["SystemExit", "asyncio.exceptions.CancelledError"]


SIGNALLED = """
import {module} as api, rdq, sys, time, asyncio

def plain(worker):
    @worker.handler("run")
    def run(claim):
        print("began", flush=True)
        sys.stdin.readline()
        return b"ended in order"

def main():
    with api.Client("{target}") as client:
        worker = api.Worker(client, ["work"], concurrency=1)
        plain(worker)
        worker.run(handle_signals=True)

async def amain():
    async with api.Client("{target}") as client:
        worker = api.Worker(client, ["work"], concurrency=1)
        plain(worker)
        await worker.run(handle_signals=True)

asyncio.run(amain()) if api is rdq else main()
print("over", flush=True)
"""


@pytest.mark.parametrize("module", ["rdq", "rdq.sync"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains(server: Server, module: str, number: signal.Signals) -> None:
    async with rdq.Client(server.target) as client:
        admission = await client.enqueue("work", "run")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SIGNALLED.format(module=module, target=server.target),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert await process.stdout.readline() == b"began\n"
            process.send_signal(number)
            later = await client.enqueue("work", "run")
            process.stdin.write(b"go on\n")
            assert await process.stdout.readline() == b"over\n"
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        (task,) = await finished(client, admission.id)
        assert task.result == b"ended in order"
        assert (await client.get(later.id)).attempts == ()


def test_it_works_without_opentelemetry(tmp_path: Path, server: Server) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('not here')")
    program = (
        "import rdq.sync\n"
        f"with rdq.sync.Client('{server.target}') as client:\n"
        "    worker = rdq.sync.Worker(client, ['work'])\n"
        "    worker.add_handler('run', lambda claim: str(dict(claim.headers)))\n"
        "    with worker:\n"
        "        id = client.enqueue('work', 'run').id\n"
        "        while not (task := client.get(id)).finished_at:\n"
        "            pass\n"
        "    print(task.result.decode())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("{}\n", 0), ended.stderr
