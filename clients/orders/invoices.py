"""Writes an invoice for each event of an order: a subscription, and a table with an order once."""

import asyncio
import json
import os

import rdq
from shop import AWAY, database, stopped


async def main() -> None:
    stop = stopped()
    async with database() as pool, rdq.Client(os.environ["RDQ_SERVER"]) as client:

        async def write(event: rdq.StreamEvent) -> None:
            order = json.loads(event.payload)["order"]
            insert = "INSERT INTO invoices VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
            if not await pool.fetchval(insert, order, event.offset):
                print(f"{order} again", flush=True)

        subscription = rdq.Subscription(client, "orders", "invoices", write)

        async def read() -> None:
            while True:
                try:
                    return await subscription.run()
                except AWAY as error:
                    # It goes on with the event that has no invoice yet.
                    print(f"the database is away: {error!r}", flush=True)
                    await asyncio.sleep(0.2)

        reading = asyncio.create_task(read())
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        subscription.stop()
        await reading


asyncio.run(main())
