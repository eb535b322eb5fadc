"""A real server for the programs beside this file: RDQ_BIN, else target/debug/rdq, on a free port."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

CLIENTS = pathlib.Path(__file__).resolve().parent
LANGUAGES = ["go", "java", "python", "typescript", "rust"]
RDQ = os.environ.get("RDQ_BIN") or str(CLIENTS.parent / "target/debug/rdq")


@contextlib.contextmanager
def served(folder: str) -> Iterator[str]:
    """Serves on a file in this folder; gives HOST:PORT, and ends the server afterwards."""
    command = [RDQ, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--storage", f"sqlite:{folder}/rdq.db"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if found := re.search(r"rdq serves listen=(\S+)", line):
                break
        else:
            sys.exit(f"{RDQ} did not start")
        # What it says later is not read by anybody: it must not wait for that.
        threading.Thread(target=server.stderr.read, daemon=True).start()
        yield found[1]
    finally:
        server.kill()
        server.wait()
