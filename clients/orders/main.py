"""Runs the shop, kills what it stands on, and checks what came of each order. See README.md."""

import asyncio
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

import asyncpg
import servers
from servers import Failed, Program
from shop import AWAY

HERE = pathlib.Path(__file__).resolve().parent
ORDERS = 250
COMMITTED = ORDERS - ORDERS // 5  # each fifth is rolled back
SECONDS_MAX = 300  # a run that hangs fails; one that does not takes a fraction

SHIPMENTS = """
    SELECT convert_from(payload, 'UTF8') AS order_id
    FROM rdq.events JOIN rdq.streams ON streams.id = events.stream WHERE streams.name = 'shipments'
"""
UNHANDLED = f"""
    SELECT orders.id FROM orders
    WHERE NOT EXISTS (SELECT FROM charges WHERE order_id = orders.id)
       OR NOT EXISTS (SELECT FROM invoices WHERE order_id = orders.id)
       OR orders.id NOT IN ({SHIPMENTS})
"""
HELD = """
    SELECT owner FROM rdq.locks
    WHERE name = 'shipping' AND expires_at > 1000 * extract(epoch FROM clock_timestamp())
"""
UNFINISHED = "SELECT id FROM rdq.tasks WHERE status <> 2"
# What no row may come of.
WRONG = {
    "an order was not handled": UNHANDLED,
    "an order that was rolled back is there": "SELECT id FROM orders WHERE split_part(id, '-', 2)::integer % 5 = 0",
    "a task did not succeed": UNFINISHED,
    "a task is of no order": "SELECT id FROM rdq.tasks WHERE id NOT IN (SELECT 'charge-' || id FROM orders)",
    "a shipment is of no order": f"SELECT order_id FROM ({SHIPMENTS}) AS s EXCEPT SELECT id FROM orders",
    "an order was shipped twice": f"SELECT order_id FROM ({SHIPMENTS}) AS s GROUP BY order_id HAVING count(*) > 1",
    "an order was charged twice": """
        SELECT revenue.cents FROM revenue, (SELECT sum(cents) AS cents FROM orders) AS due
        WHERE revenue.cents <> due.cents
    """,
    "an event is of no order, or there twice": """
        SELECT convert_from(key, 'UTF8') FROM rdq.events JOIN rdq.streams ON streams.id = events.stream
        WHERE streams.name = 'orders'
        GROUP BY key HAVING count(*) > 1 OR convert_from(key, 'UTF8') NOT IN (SELECT id FROM orders)
    """,
}


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:5.1f} s] {text}", flush=True)


class Shop:
    def __init__(self, folder: pathlib.Path, postgres: servers.Server):
        self.postgres = postgres
        self.url = f"postgres://postgres@127.0.0.1:{postgres.port}/postgres?sslmode=disable"
        self.rdq = servers.rdq(folder, self.url)
        environment = {"SHOP_DATABASE": self.url, "RDQ_SERVER": f"127.0.0.1:{self.rdq.port}"}

        def program(name: str, *command: str | pathlib.Path) -> Program:
            return Program(folder, name, *map(str, command), **environment)

        built, python = HERE / ".build", sys.executable
        self.order_service = program("order_service", python, HERE / "order_service.py", str(ORDERS))
        self.charge = program("charge", built / "charge")
        self.invoices = program("invoices", python, HERE / "invoices.py")
        self.shippers = [program(name, "node", built / "ship.mjs", name) for name in ("ship-1", "ship-2")]
        self.consumers = [self.charge, self.invoices, *self.shippers]
        self.programs = [self.order_service, *self.consumers, self.rdq, self.postgres]

    async def run(self) -> None:
        await self.postgres.start()
        connection = await asyncpg.connect(self.url)
        await connection.execute((HERE / "shop.sql").read_text())
        await connection.close()
        await self.rdq.start()  # which makes its schema
        for program in (*self.consumers, self.order_service):
            await program.start()
        say("the shop is open")

        await self.until(lambda: self.committed(COMMITTED // 5))
        await self.in_the_middle("PostgreSQL")
        await self.postgres.kill()
        await self.postgres.start()

        await self.until(lambda: self.committed(COMMITTED * 2 // 5))
        await self.in_the_middle("the rdq server")
        await self.rdq.kill()
        await self.until(lambda: self.committed(COMMITTED * 3 // 5))  # orders go on without it
        say(f"the rdq server comes back: {len(await self.rows(UNHANDLED))} orders wait for it")
        await self.rdq.start()

        while (shipper := await self.ships()) is None:
            await asyncio.sleep(0.1)
        await self.in_the_middle(f"{shipper.name}, which has the lock,")
        await shipper.kill()

        if await self.order_service.process.wait():
            raise Failed("the order service failed")
        say("there are no more orders")
        await self.until(self.is_done)
        for program in self.consumers:
            await program.end()  # having ended what they had begun
        await self.check()

    async def in_the_middle(self, what: str) -> None:
        placed, left = len(await self.rows("SELECT FROM orders")), len(await self.rows(UNHANDLED))
        if not left and not self.order_service.is_running():
            raise Failed(f"{what} would be killed when all is over")
        say(f"{what} is killed: {placed} orders are committed, {left} of them not handled yet")

    async def until(self, holds: Callable[[], Awaitable[object]]) -> None:
        while not await holds():
            for program in self.programs:
                program.check()
            await asyncio.sleep(0.1)

    async def rows(self, query: str) -> list[asyncpg.Record]:
        while True:
            try:
                connection = await asyncpg.connect(self.url, timeout=10)
                try:
                    return await connection.fetch(query)
                finally:
                    await connection.close()
            except AWAY:
                await asyncio.sleep(0.1)

    async def committed(self, number: int) -> bool:
        return len(await self.rows("SELECT FROM orders")) >= number

    async def ships(self) -> Program | None:
        """The one that has the lock."""
        names = [row["owner"] for row in await self.rows(HELD)]
        return next((program for program in self.shippers if program.name in names), None)

    async def is_done(self) -> bool:
        return not await self.rows(UNHANDLED) and not await self.rows(UNFINISHED)

    async def check(self) -> None:
        if (placed := len(await self.rows("SELECT FROM orders"))) != COMMITTED:
            raise Failed(f"{placed} orders, and not {COMMITTED}")
        for wrong, query in WRONG.items():
            if rows := await self.rows(query):
                raise Failed(f"{wrong}: {', '.join(str(row[0]) for row in rows)}")
        again = sum(program.log.read_text().count(" again\n") for program in self.consumers)
        say(f"{COMMITTED} orders committed, {ORDERS - COMMITTED} rolled back; deliveries that came again: {again}")
        print(f"orders: {COMMITTED} handled by all three, none twice, and none that was rolled back")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rdq-orders-") as name:
        folder = pathlib.Path(name)
        shop = Shop(folder, await servers.postgres(folder))
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await shop.run()
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"---- {log.name}\n{log.read_text(errors='replace')[-4000:]}", file=sys.stderr)
            raise
        finally:
            for program in shop.programs:
                # PostgreSQL takes its processes along, which write into the folder.
                await program.kill(signal.SIGQUIT if program is shop.postgres else signal.SIGKILL)


def stop(*_: object) -> None:
    raise KeyboardInterrupt


BEGAN = time.monotonic()
signal.signal(signal.SIGTERM, stop)
try:
    asyncio.run(main())
except Failed as failed:
    sys.exit(f"orders: {failed}")
