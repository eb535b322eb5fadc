"""The order service. It knows PostgreSQL alone: what an order sets off is committed with the order, or is not there."""

import asyncio
import json
import sys

import asyncpg
from shop import AWAY, database


class Declined(Exception):
    """The customer's card was declined, which is known last."""


async def place(connection: asyncpg.Connection, order: str, cents: int, *, declined: bool) -> None:
    payload = json.dumps({"order": order, "cents": cents}).encode()
    async with connection.transaction():
        # A try that was committed, though its answer was lost, has done everything.
        insert = "INSERT INTO orders VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
        if not await connection.fetchval(insert, order, cents):
            return
        await connection.execute("SELECT rdq.enqueue('charges', 'charge', $1, $2)", payload, f"charge-{order}")
        # Last: who publishes to a stream keeps others who do waiting until the commit.
        await connection.execute("SELECT rdq.publish('orders', $1, $2)", payload, order)
        if declined:
            raise Declined(order)


async def main() -> None:
    async with database() as pool:
        for number in range(1, int(sys.argv[1]) + 1):
            while True:
                try:
                    async with pool.acquire(timeout=10) as connection:
                        await place(connection, f"order-{number}", 100 + number, declined=number % 5 == 0)
                except AWAY as error:
                    print(f"order-{number}, once more: {error!r}", flush=True)
                    await asyncio.sleep(0.2)
                    continue
                except Declined:
                    pass  # and rolled back
                break
            await asyncio.sleep(0.02)  # customers do not come all at once


asyncio.run(main())
