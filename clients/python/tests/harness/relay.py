"""A gRPC server before the server: forwards every call as it is, but for what a test changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType

import grpc
import grpc.aio

#: Sees an answer of a method, and may change it.
Change = Callable[[str, bytes], bytes]


class Relay(grpc.GenericRpcHandler):
    """To be used as a context manager, in the test's event loop."""

    def __init__(
        self,
        target: str,
        *,
        unknown: tuple[str, ...] = (),
        refused: Mapping[str, tuple[grpc.StatusCode, bytes]] | None = None,
        change: Change | None = None,
    ) -> None:
        """
        Args:
            target: The server behind.
            unknown: Methods that it does not know, by their last name.
            refused: Methods that it refuses, with code and details, until a test takes them out.
            change: Given each answer.
        """
        self._to = target
        self._unknown = unknown
        self._change = change
        self.refused = dict(refused or {})
        self._server = grpc.aio.server(handlers=(self,))
        self._channel: grpc.aio.Channel | None = None
        self.port = 0
        #: The last name of each method that was called, and how often.
        self.called: Counter[str] = Counter()

    @property
    def target(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Relay:
        self._channel = grpc.aio.insecure_channel(self._to, options=[("grpc.use_local_subchannel_pool", 1)])
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.stop(None)
        assert self._channel is not None
        await self._channel.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Every method, as a stream of bytes in both directions: on the wire they are alike."""
        method = handler_call_details.method
        name = method.rpartition("/")[2]
        self.called[name] += 1
        if name in self._unknown:
            return None

        async def forward(
            requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[bytes]:
            assert self._channel is not None
            if name in self.refused:
                code, details = self.refused[name]
                await context.abort(code, "refused", (("grpc-status-details-bin", details),))
            forwarded: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(method)
            call = forwarded(requests)
            try:
                async for answer in call:
                    yield self._change(name, answer) if self._change is not None else answer
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata()))
            finally:
                call.cancel()

        return grpc.stream_stream_rpc_method_handler(forward)
