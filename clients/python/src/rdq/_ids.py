"""Task ids and worker ids that nobody else makes."""

from __future__ import annotations

import os
import secrets
import socket
import string
import time

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_WORKER_ID_BYTES_MAX = 240


def new_task_id() -> str:
    """A ULID: sorts by the millisecond of its making, with 80 random bits."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


def new_worker_id() -> str:
    """The host, the process id and random letters."""
    letters = "".join(secrets.choice(string.ascii_lowercase) for _ in range(6))
    own = f"-{os.getpid()}-{letters}"
    host = socket.gethostname().encode()[: _WORKER_ID_BYTES_MAX - len(own)].decode(errors="ignore")
    return (host or "localhost") + own
