"""How fast one worker is with a handler that does nothing, beside a bare unary call. See ../../README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import time

import grpc.aio

import rdq
from rdq._stubs.v1 import task_service_pb2, task_service_pb2_grpc

CONCURRENCY = 256
ECHO_CALLS = 64
ECHO_SECONDS = 3.0


async def tasks_per_second(server: str, count: int) -> float:
    queue = f"bench-{secrets.token_hex(4)}"
    began = 0.0
    handled = 0
    over = asyncio.Event()
    async with rdq.Client(server) as client:
        answers = await client.enqueue_many(
            rdq.NewTask(queue=queue, handler_ref="nothing", payload=bytes(100)) for _ in range(count)
        )
        for answer in answers:
            if isinstance(answer, rdq.RdqError):
                raise answer
        worker = rdq.Worker(client, [queue], concurrency=CONCURRENCY)

        @worker.handler("nothing")
        async def nothing(job: rdq.Job) -> None:
            nonlocal began, handled
            if handled == 0:
                began = time.perf_counter()
            handled += 1
            if handled == count:
                over.set()

        await worker.start()
        await over.wait()
        # It returns with the last acknowledgement.
        await worker.stop()
        ended = time.perf_counter()
    return count / (ended - began)


async def echo_per_second(server: str) -> float:
    request = task_service_pb2.GetCapabilitiesRequest()
    calls = 0
    async with grpc.aio.insecure_channel(server) as channel:
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        await stub.GetCapabilities(request)
        began = time.perf_counter()

        async def call() -> None:
            nonlocal calls
            while time.perf_counter() - began < ECHO_SECONDS:
                await stub.GetCapabilities(request)
                calls += 1

        await asyncio.gather(*(call() for _ in range(ECHO_CALLS)))
        return calls / (time.perf_counter() - began)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("--server", required=True)
    parser.add_argument("--tasks", type=int, required=True)
    options = parser.parse_args()
    tasks = await tasks_per_second(options.server, options.tasks)
    echo = await echo_per_second(options.server)
    print(json.dumps({"language": "python", "tasks_per_second": round(tasks, 1), "echo_per_second": round(echo, 1)}))


if __name__ == "__main__":
    asyncio.run(main())
