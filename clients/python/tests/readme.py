"""Runs the Python blocks of the README as they are written, in their order: `python tests/readme.py HOST:PORT`.

Only the address is another: each block runs in a process of its own in which 127.0.0.1:7420 is that server's. A worker
that runs for ever is told to end by SIGTERM once the tasks that were produced before are done.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import rdq
import rdq.sync

README = Path(__file__).parent.parent / "README.md"
SECONDS_MAX = 60.0


def main(server: str) -> None:
    text = README.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5, "the README has other blocks than this program knows"
    with rdq.sync.Client(server) as client:
        for block in blocks:
            program = block.replace("127.0.0.1:7420", server)
            assert program != block, "a block names no server"
            run(program, client)
        (stats,) = client.stats(["mail"])
        assert (stats.succeeded, stats.pending, stats.in_flight) == (1, 0, 0), stats
    print(f"README: {len(blocks)} blocks ran as written")


def run(program: str, client: rdq.sync.Client) -> None:
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        if "worker.run(" in program:
            while client.stats(["mail"])[0].succeeded == 0:
                assert process.poll() is None, "the worker ended by itself"
            process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0, program
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
