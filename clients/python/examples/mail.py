"""Sends mail through a server that is sometimes down: run `python examples/mail.py HOST:PORT`.

It produces three tasks and works them: one succeeds, one after a retry, and one is a dead letter, which it prints.
"""

import asyncio
import json
import sys
from datetime import timedelta

import rdq


class MailServerDown(Exception):
    """It may be up again soon."""


async def main(server: str) -> None:
    """Produces, works, and looks at what is left."""
    async with rdq.Client(server) as client:
        await client.put_queue("mail", rdq.QueueConfig(max_attempts=5, initial_backoff=timedelta(milliseconds=100)))
        addresses = ["ada@example.com", "busy@example.com", "nobody@example.com"]
        answers = await client.enqueue_many(
            rdq.NewTask(
                queue="mail",
                handler_ref="send",
                payload=json.dumps({"to": address}),
                content_type="application/json",
            )
            for address in addresses
        )
        ids = []
        for answer in answers:
            if isinstance(answer, rdq.RdqError):
                raise answer
            ids.append(answer.id)

        worker = rdq.Worker(client, ["mail"], concurrency=4)

        @worker.handler("send")
        async def send(job: rdq.Job) -> str:
            to = json.loads(job.payload)["to"]
            if to.startswith("nobody"):
                raise rdq.Permanent("no such mailbox", type="smtp.550")
            if to.startswith("busy") and job.attempt_no == 1:
                raise MailServerDown("try later")
            return f"sent to {to}"

        async with worker:
            for id in ids:
                while (task := await client.get(id)).finished_at is None:
                    await asyncio.sleep(0.05)
                print(task.status.name, task.result.decode() or "-", f"after {len(task.attempts)} attempts")

        async for dead in client.dlq_list("mail", include_attempts=True):
            error = dead.attempts[-1].error
            print("dead:", error.type if error else "?", error.message if error else "")
        print("purged:", await client.purge("mail", all=True))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7420"))
