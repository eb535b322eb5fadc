"""The producer's and the operator's calls, for plain threads."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc

from .. import client as _client
from ._loop import loop_thread
from .services import Services

P = ParamSpec("P")
R = TypeVar("R")


def _waiting(
    call: Callable[Concatenate[_client.Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    """The call, with the same arguments, that waits for its answer."""

    @functools.wraps(call)
    def wait(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.run(call(self._client, *args, **kwargs))

    return wait


def _iterating(
    call: Callable[Concatenate[_client.Client, P], AsyncIterator[R]],
) -> Callable[Concatenate[Client, P], Iterator[R]]:
    """The list, with the same arguments, as an iterator."""

    @functools.wraps(call)
    def iterate(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        items = call(self._client, *args, **kwargs)
        while True:
            try:
                item = self._loop.run(_following(items))
            except StopAsyncIteration:
                return
            yield item

    return iterate


async def _following(items: AsyncIterator[R]) -> R:
    return await anext(items)


class Client:
    """A connection to a server, for any number of threads. See `rdq.Client`, whose calls these are.

    Make it after a fork, not before.

    Args:
        target: `HOST:PORT`, or any address that gRPC knows.
        credentials: For TLS, such as `grpc.ssl_channel_credentials()`; without, the connection is in the clear.
        deadline: How long a call may take with all its tries.
        metadata: Travels with every call.
        channel_options: Options of gRPC channels, beside and above those of this client.
    """

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        deadline: timedelta = timedelta(seconds=30),
        metadata: Sequence[tuple[str, str]] = (),
        channel_options: Sequence[tuple[str, int | str]] = (),
    ) -> None:
        self._loop = loop_thread()
        self._client = _client.Client(
            target,
            credentials=credentials,
            deadline=deadline,
            metadata=metadata,
            channel_options=channel_options,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def services(self) -> Services:
        """The contract's services, called by their generated stubs on this client's connection."""
        return Services(self._loop, self._client.services)

    close = _waiting(_client.Client.close)

    enqueue = _waiting(_client.Client.enqueue)
    enqueue_many = _waiting(_client.Client.enqueue_many)

    get = _waiting(_client.Client.get)
    cancel = _waiting(_client.Client.cancel)
    list = _iterating(_client.Client.list)
    list_page = _waiting(_client.Client.list_page)
    dlq_list = _iterating(_client.Client.dlq_list)
    dlq_list_page = _waiting(_client.Client.dlq_list_page)
    redrive = _waiting(_client.Client.redrive)
    purge = _waiting(_client.Client.purge)
    stats = _waiting(_client.Client.stats)
    put_queue = _waiting(_client.Client.put_queue)
    get_queue = _waiting(_client.Client.get_queue)
    list_queues = _iterating(_client.Client.list_queues)
    list_queues_page = _waiting(_client.Client.list_queues_page)
    delete_queue = _waiting(_client.Client.delete_queue)
    pause_queue = _waiting(_client.Client.pause_queue)
    resume_queue = _waiting(_client.Client.resume_queue)
    capabilities = _waiting(_client.Client.capabilities)
