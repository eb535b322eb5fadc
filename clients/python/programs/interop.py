"""Works with the other languages: what `produce` of one enqueues, `work` of another checks. See ../../README.md."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
from collections.abc import Iterator

import rdq

GREETING = "🚀 ñ مرحبا"
HANDLER = "interop.echo"
SECONDS_MAX = 60.0


def payload_of(id: str) -> bytes:
    return id.encode() + b"\0" + GREETING.encode() + bytes(range(256))


async def produce(server: str, queue: str, prefix: str, count: int) -> int:
    def tasks() -> Iterator[rdq.NewTask]:
        for n in range(1, count + 1):
            id = f"{prefix}-{n}"
            yield rdq.NewTask(
                queue=queue,
                handler_ref=HANDLER,
                payload=payload_of(id),
                id=id,
                headers={"language": "python", "greeting": GREETING},
            )

    async with rdq.Client(server) as client:
        refused = [answer for answer in await client.enqueue_many(tasks()) if isinstance(answer, rdq.RdqError)]
    for error in refused:
        print(f"refused: {error}", file=sys.stderr)
    return 1 if refused else 0


async def work(server: str, queue: str, count: int) -> int:
    succeeded = 0
    failure: list[str] = []
    over = asyncio.Event()

    def count_end(job: rdq.Job, value: object, error: BaseException | None) -> None:
        nonlocal succeeded
        if error is not None:
            failure.append(f"{job.id}: {error}")
        else:
            succeeded += 1
        if failure or succeeded == count:
            over.set()

    async with rdq.Client(server) as client:
        worker = rdq.Worker(client, [queue], outcome_mapper=count_end)

        @worker.handler(HANDLER)
        async def echo(job: rdq.Job) -> bytes:
            if job.payload != payload_of(job.id):
                raise rdq.Permanent(f"the payload differs: {job.payload.hex()}")
            if job.headers.get("greeting") != GREETING or not job.headers.get("language"):
                raise rdq.Permanent(f"the headers differ: {job.headers}")
            return hashlib.sha256(job.payload).digest()

        async with worker:
            try:
                await asyncio.wait_for(over.wait(), SECONDS_MAX)
            except TimeoutError:
                failure.append(f"only {succeeded} of {count} tasks came in {SECONDS_MAX} s")
    for text in failure:
        print(text, file=sys.stderr)
    return 1 if failure else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="interop")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("produce", "work"):
        command = commands.add_parser(name)
        command.add_argument("--server", required=True)
        command.add_argument("--queue", required=True)
        command.add_argument("--count", type=int, required=True)
        if name == "produce":
            command.add_argument("--prefix", required=True)
    options = parser.parse_args()
    if options.command == "produce":
        return asyncio.run(produce(options.server, options.queue, options.prefix, options.count))
    return asyncio.run(work(options.server, options.queue, options.count))


if __name__ == "__main__":
    sys.exit(main())
