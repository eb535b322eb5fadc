"""The two servers, at addresses that stay: to be started, killed and started again."""

import asyncio
import os
import pathlib
import shutil
import signal
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import RDQ

# PostgreSQL refuses to run as root.
POSTGRES_USER = "postgres" if os.geteuid() == 0 else None


class Failed(Exception):
    """The run, and not the program."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def postgres_programs() -> pathlib.Path:
    """Of several versions the newest."""
    if found := shutil.which("postgres"):
        return pathlib.Path(found).resolve().parent
    installed = [path for path in pathlib.Path("/usr/lib/postgresql").glob("*/bin") if (path / "postgres").is_file()]
    if not installed:
        raise Failed("PostgreSQL is not installed (Debian package postgresql)")
    return max(installed, key=lambda path: int(path.parent.name))


class Program:
    """A program whose output goes to a file."""

    def __init__(self, folder: pathlib.Path, name: str, *command: str, user: str | None = None, **environment: str):
        self.name, self.log = name, folder / f"{name}.log"
        self._command, self._folder = command, folder
        self._account = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self._environment = {**os.environ, **environment}
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
                env=self._environment, **self._account,
            )  # fmt: skip

    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def kill(self, by: signal.Signals = signal.SIGKILL) -> None:
        """By SIGKILL it learns nothing of it."""
        if self.is_running():
            self.process.send_signal(by)
            await self.process.wait()
        self.process = None

    async def end(self) -> None:
        """By SIGTERM, in order."""
        if self.process is not None:
            self.process.terminate()
            await self.process.wait()
            self.check()

    def check(self) -> None:
        """That it has not failed."""
        if self.process is not None and self.process.returncode:
            raise Failed(f"{self.name} ended with code {self.process.returncode}")


class Server(Program):
    """A program that says when it serves."""

    port: int
    ready: str

    async def start(self) -> None:
        while not self.is_running():
            before = self.log.stat().st_size if self.log.exists() else 0
            await super().start()
            said = ""
            while self.is_running() and self.ready not in said:
                await asyncio.sleep(0.1)
                said = self.log.read_bytes()[before:].decode(errors="replace")
            # As PostgreSQL says it of what one that was killed left behind.
            if not self.is_running() and "is still in use" not in said:
                raise Failed(f"{self.name} did not start")


async def postgres(folder: pathlib.Path) -> Server:
    programs = postgres_programs()
    if POSTGRES_USER is not None:
        shutil.chown(folder, POSTGRES_USER, POSTGRES_USER)
    form = ("--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8")
    making = Program(folder, "initdb", str(programs / "initdb"), "--no-sync", *form, "-D", "data", user=POSTGRES_USER)
    await making.start()
    if await making.process.wait():
        raise Failed(f"initdb failed: {making.log.read_text()}")
    port = free_port()
    settings = (f"-cport={port}", "-clisten_addresses=127.0.0.1", "-cunix_socket_directories=")
    server = Server(folder, "postgres", str(programs / "postgres"), "-D", "data", *settings, user=POSTGRES_USER)
    server.port, server.ready = port, "database system is ready to accept connections"
    return server


def rdq(folder: pathlib.Path, storage: str) -> Server:
    port = free_port()
    addresses = ("--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0")
    server = Server(folder, "rdq", RDQ, "serve", *addresses, "--storage", storage)
    server.port, server.ready = port, "rdq serves"  # which comes when it has its schema; it listens before
    return server
