"""The client for plain threads: the same calls as `rdq`, which wait for their answers.

`Client` and `Worker` may be used from any thread. Both run the asyncio client on one loop in a background thread.
"""

from .client import Client
from .events import Subscription
from .locks import Lock
from .outboxes import OutboxRelay
from .services import Services
from .worker import Worker

__all__ = ["Client", "Lock", "OutboxRelay", "Services", "Subscription", "Worker"]
