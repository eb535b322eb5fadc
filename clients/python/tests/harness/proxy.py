"""A TCP proxy that loses answers, swallows bytes and cuts connections, when a test says so."""

from __future__ import annotations

import asyncio
from types import TracebackType

_CHUNK_BYTES = 64 << 10
_FRAME_HEADER_BYTES = 9
_HEADERS_FRAME = 1


class Gate:
    """Lets bytes of one direction through while it is open."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def shut(self) -> None:
        """What comes waits, and the other side hears nothing."""
        self._open.clear()

    def open(self) -> None:
        """What waited goes on."""
        self._open.set()

    async def pass_through(self) -> None:
        """Returns once it is open."""
        await self._open.wait()


class Proxy:
    """Stands before a server. To be used as a context manager, in the test's event loop."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._answers_to_lose = 0
        self.port = 0
        self.up = Gate()
        self.down = Gate()
        #: How many answers were lost.
        self.lost = 0
        #: How many connections were made.
        self.accepted = 0

    @property
    def target(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def lose_answer(self) -> None:
        """The next answer does not arrive: its connection is cut once the server gave it."""
        self._answers_to_lose += 1

    def cut(self) -> None:
        """Ends every connection."""
        for connection in self._connections:
            connection.cancel()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.accepted += 1
        far_writer = None
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
            ways = {
                asyncio.ensure_future(self._carry_up(reader, far_writer)),
                asyncio.ensure_future(self._carry_down(far_reader, writer)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # The server is away, or the test cut this.
        finally:
            self._connections.discard(task)
            for side in (writer, far_writer):
                if side is not None:
                    side.transport.abort()

    async def _carry_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self.up.pass_through()
            writer.write(data)
            await writer.drain()

    async def _carry_down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Frame by frame, since an answer begins with a frame of its own kind."""
        while True:
            try:
                header = await reader.readexactly(_FRAME_HEADER_BYTES)
                body = await reader.readexactly(int.from_bytes(header[:3], "big"))
            except asyncio.IncompleteReadError:
                return
            await self.down.pass_through()
            if header[3] == _HEADERS_FRAME and self._answers_to_lose:
                self._answers_to_lose -= 1
                self.lost += 1
                return
            writer.write(header + body)
            await writer.drain()
