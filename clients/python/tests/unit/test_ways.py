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

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

import rdq
import rdq.sync
from rdq._worker import receiver

from ..harness.proxy import Proxy
from ..harness.relay import Relay
from ..harness.scene import Scene, Signal, pause
from ..harness.server import Server
from ..harness.waiting import finished, until, until_async


def details(reason: str) -> bytes:
    detail = AnyMessage()
    detail.Pack(error_details_pb2.ErrorInfo(domain="rdq", reason=reason))
    return bytes(status_pb2.Status(details=[detail]).SerializeToString())


async def test_a_plain_handler_of_an_asyncio_worker_runs_in_a_thread(server: Server) -> None:
    main = threading.current_thread()
    seen: list[threading.Thread] = []
    async with rdq.Client(server.target) as client:
        worker = rdq.Worker(client, ["work"])

        @worker.handler("plain")
        def plain(job: rdq.Job) -> str:
            seen.append(threading.current_thread())
            return job.text

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
            async def coroutine(job: rdq.Job) -> str:
                await asyncio.sleep(0)
                with pytest.raises(RuntimeError, match="wait for itself"):
                    client.get(job.id)
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


async def test_outcomes_of_a_refused_kind_are_sent_again(scene: Scene) -> None:
    """With unary calls alone: the outcome and the heartbeats get through once the server answers again."""
    away = (grpc.StatusCode.UNAVAILABLE, details("STORAGE_UNAVAILABLE"))

    async def run(job: rdq.Job) -> str:
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


async def test_an_outcome_whose_answer_was_lost_is_sent_again(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Of a task that is kept, and of one that is forgotten at once, whose repetition is NOT_FOUND."""
    client = scene.client
    await client.put_queue("forgetful", rdq.QueueConfig(retention_succeeded=timedelta(0)))
    go_on = Signal()
    running: list[str] = []

    async def run(job: rdq.Job) -> str:
        running.append(job.id)
        await pause(job, go_on)
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


async def test_a_silent_stream_is_dropped(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "SILENCE_SECONDS_MAX", 1.0)

    async def run(job: rdq.Job) -> str:
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

    async def run(job: rdq.Job) -> str:
        running.append(job.id)
        await pause(job, go_on)
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


async def test_nothing_that_a_user_sent_is_logged(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def run(job: rdq.Job) -> bytes:
        job.set_progress("secret")
        if job.attempt_no == 1:
            raise ValueError(job.text)
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

    async def run(job: rdq.Job) -> str:
        began.set()
        return "never told"

    async with scene.worker("work", {"run": run}, grace=timedelta(0)) as worker:
        await scene.client.enqueue("work", "run")
        await until("it runs", began.is_set)
        await asyncio.to_thread(scene.server.kill)
        await worker.stop()


async def test_a_worker_starts_once_and_again_after_its_stop(scene: Scene) -> None:
    async def run(job: rdq.Job) -> str:
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
    async def leave(job: rdq.Job) -> None:
        sys.exit(3)

    async def cancel(job: rdq.Job) -> None:
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
    def run(job):
        print("began", flush=True)
        sys.stdin.readline()
        return b"ended in order"

def main():
    with api.Client("{target}") as client:
        worker = api.Worker(client, ["work"])
        plain(worker)
        worker.run(handle_signals=True)

async def amain():
    async with api.Client("{target}") as client:
        worker = api.Worker(client, ["work"])
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
        # It may have been claimed before the signal was seen; then it was given back.
        assert (await client.get(later.id)).attempts == ()


def test_it_works_without_opentelemetry(tmp_path: Path, server: Server) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('not here')")
    program = (
        "import rdq.sync\n"
        f"with rdq.sync.Client('{server.target}') as client:\n"
        "    worker = rdq.sync.Worker(client, ['work'])\n"
        "    worker.add_handler('run', lambda job: str(dict(job.headers)))\n"
        "    with worker:\n"
        "        id = client.enqueue('work', 'run').id\n"
        "        while not (task := client.get(id)).finished_at:\n"
        "            pass\n"
        "    print(task.result.decode())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("{}\n", 0), ended.stderr
