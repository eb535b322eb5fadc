"""`rdq serve` as a process: started, killed, started again on the same file and port. It makes no calls."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

#: Below the ports that systems give to outgoing connections, so that one is still free when a killed server wants it.
_FIRST_PORT = 20_000
_PORTS = 12_000
_START_SECONDS_MAX = 60.0


class Server:
    """A server of a test's own, with a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.log: list[str] = []

    @property
    def target(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it on a free port, and returns when it serves."""
        start = os.getpid() * 37
        for offset in range(_PORTS):
            self.port = _FIRST_PORT + (start + offset) % _PORTS
            if _is_free(self.port) and self._serve():
                return
        raise AssertionError("no port is free")

    def restart(self) -> None:
        """Starts it again after `kill`, on the same port and file."""
        for _ in range(50):
            if self._serve():
                return
        raise AssertionError("it did not start again:\n" + self.log_text())

    def kill(self) -> None:
        """Ends it as a power cut of its own would: SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def end(self) -> None:
        """Ends it in order: SIGTERM."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        assert process.wait(_START_SECONDS_MAX) == 0, self.log_text()

    def log_text(self) -> str:
        """Its last lines."""
        return "\n".join(self.log[-60:])

    def _serve(self) -> bool:
        """Starts the process; False if the port is taken."""
        process = self._process = subprocess.Popen(
            [
                os.environ["RDQ_BIN"],
                "serve",
                f"--listen=127.0.0.1:{self.port}",
                "--http=127.0.0.1:0",
                f"--storage=sqlite:{self._folder / 'rdq.db'}",
            ],
            env={**os.environ, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        serves = threading.Event()
        ended = threading.Event()
        first = len(self.log)

        def read() -> None:
            assert process.stderr is not None
            with process.stderr as lines:
                for line in lines:
                    self.log.append(line.rstrip())
                    if "rdq serves" in line:
                        serves.set()
            ended.set()
            serves.set()

        threading.Thread(target=read, daemon=True).start()
        assert serves.wait(_START_SECONDS_MAX), "it does not serve:\n" + self.log_text()
        if not ended.is_set():
            return True
        process.wait()
        assert any("cannot listen" in line for line in self.log[first:]), "it ended:\n" + self.log_text()
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
