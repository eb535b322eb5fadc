"""What the programs of the shop in Python share: the database, and how they are told to stop."""

import asyncio
import os
import signal

import asyncpg

# The database is gone, or not there yet: all that these say is that it is worth trying again.
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InternalClientError,  # of a connection that has heard of its end, and not seen it yet
)


def database() -> asyncpg.Pool:
    """Connections that are made when they are needed, and made again when they broke."""
    return asyncpg.create_pool(os.environ["SHOP_DATABASE"], min_size=0, max_size=2, timeout=10)


def stopped() -> asyncio.Event:
    """Set by SIGTERM."""
    event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, event.set)
    return event
