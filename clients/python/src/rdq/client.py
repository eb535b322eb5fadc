"""The producer's and the operator's calls, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import TypeAlias, TypeVar

import grpc
import grpc.aio

from . import _convert, _status
from ._batches import BYTES_MAX, ITEMS_MAX, batches
from ._connection import Channel, Connection
from ._ids import new_task_id
from ._stubs.v1 import queue_service_pb2, task_pb2, task_service_pb2
from ._time import to_duration
from ._tracing import with_trace
from .errors import DeadlineExceeded, InvalidArgument, RdqError
from .queues import Queue, QueueConfig
from .services import Services
from .tasks import (
    Admission,
    Cancellation,
    Capabilities,
    DlqFilter,
    NewTask,
    Page,
    QueueStats,
    Task,
    TaskStatus,
)

T = TypeVar("T")

#: What became of each of many tasks, in order.
Admissions: TypeAlias = "list[Admission | RdqError]"
#: Told how many tasks a `redrive` or `purge` has changed so far.
OnCount: TypeAlias = Callable[[int], None]

_CountCall: TypeAlias = (
    "grpc.aio.UnaryStreamCall[task_service_pb2.RedriveRequest, task_service_pb2.RedriveResponse]"
    " | grpc.aio.UnaryStreamCall[task_service_pb2.PurgeRequest, task_service_pb2.PurgeResponse]"
)


class Client:
    """A connection to a server, from one event loop. Many calls may be under way at once.

    Every unary call is repeated with backoff where that is safe and can help, within one deadline.

    Args:
        target: `HOST:PORT`, or any address that gRPC knows.
        credentials: For TLS, such as `grpc.ssl_channel_credentials()`; without, the connection is in the clear.
        deadline: How long a call may take with all its tries.
        metadata: Travels with every call, for instance `[("authorization", "Bearer …")]`.
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
        if deadline <= timedelta(0):
            raise ValueError("deadline must be above zero")
        self._connection = Connection(target, credentials, tuple(metadata), channel_options, deadline.total_seconds())
        self._services: Services | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls under way are cancelled. Safe to repeat."""
        await self._connection.close()

    @property
    def services(self) -> Services:
        """The contract's services, called by their generated stubs on this client's connection."""
        if self._services is None:
            self._services = Services(self._connection)
        return self._services

    # ---- The producer's half.

    async def enqueue(
        self,
        queue: str,
        handler_ref: str,
        payload: bytes | str = b"",
        *,
        id: str | None = None,
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: timedelta | None = None,
        due_at: datetime | None = None,
        expires_in: timedelta | None = None,
        expires_at: datetime | None = None,
        handler_version: str | None = None,
        max_attempts: int | None = None,
        lease: timedelta | None = None,
        initial_backoff: timedelta | None = None,
        retention_dead: timedelta | None = None,
        extra: bytes = b"",
    ) -> Admission:
        """Enqueues one task. The arguments are the attributes of `NewTask`.

        Raises:
            IdConflict: the id is taken in another queue.
            PayloadTooLarge: the payload is larger than the queue takes.
            InvalidArgument: a value is out of range; also `InvalidName` and `ReservedName`.
            ValueError: text that is no UTF-8, or an instant without a time zone.
        """
        new = NewTask(
            queue=queue,
            handler_ref=handler_ref,
            payload=payload,
            id=id,
            content_type=content_type,
            headers=headers or {},
            priority=priority,
            delay=delay,
            due_at=due_at,
            expires_in=expires_in,
            expires_at=expires_at,
            handler_version=handler_version,
            max_attempts=max_attempts,
            lease=lease,
            initial_backoff=initial_backoff,
            retention_dead=retention_dead,
            extra=extra,
        )
        request = task_service_pb2.EnqueueRequest(task=_envelope(new))
        response = await self._connection.call(lambda channel: channel.tasks.Enqueue, request)
        return _convert.admission(response)

    async def enqueue_many(self, tasks: Iterable[NewTask]) -> Admissions:
        """Enqueues many tasks, in as few requests as they fit in, in order.

        Args:
            tasks: Read as they are sent, so that a generator need not be held in memory.

        Returns:
            For each task, in order, its admission or why it was refused. One that is refused does not hold back the
            others; one refused only for the moment is sent again, within the deadline of its request. Once the server
            cannot be reached for a whole deadline, all that are left have that error.
        """
        answers: Admissions = []
        waiting = (_Item.of(new) for new in tasks)
        lost: RdqError | None = None
        for batch in batches(waiting, _Item.size, ITEMS_MAX, BYTES_MAX):
            sent = [item.message for item in batch if item.message is not None]
            if sent and lost is None:
                results, lost = await self._admit(sent)
            else:
                results = [lost] * len(sent) if lost is not None else []
            each = iter(results)
            answers += [item.error if item.error is not None else next(each) for item in batch]
        return answers

    async def _admit(self, tasks: Sequence[task_pb2.Task]) -> tuple[Admissions, RdqError | None]:
        """Sends one request, and again what of it was refused only for the moment, within one deadline.

        Returns:
            An answer for each; and the error with which the server turned out to be out of reach, if it did.
        """
        retries = self._connection.retries()
        answers: Admissions = []
        asked: Sequence[int] = range(len(tasks))
        while True:
            request = task_service_pb2.EnqueueBatchRequest(tasks=[tasks[n] for n in asked])
            try:
                response = await self._connection.call(lambda channel: channel.tasks.EnqueueBatch, request, retries)
            except RdqError as error:
                if not answers:
                    return [error] * len(tasks), error if error.retryable else None
                for n in asked:
                    answers[n] = error
                return answers, error if error.retryable else None
            results = [_enqueue_result(result) for result in response.results[: len(asked)]]
            results += [_no_result()] * (len(asked) - len(results))
            if not answers:
                answers = results
            else:
                for n, result in zip(asked, results, strict=True):
                    answers[n] = result
            refused = {n: answer for n in asked if isinstance(answer := answers[n], RdqError) and answer.retryable}
            if not refused or not await retries.wait(next(iter(refused.values()))):
                return answers, None
            asked = list(refused)

    # ---- The operator's half.

    async def get(self, id: str) -> Task:
        """Reads one task in any status, with its whole history.

        Raises:
            NotFound: there is none.
        """
        request = task_service_pb2.GetRequest(id=id)
        response = await self._connection.call(lambda channel: channel.tasks.Get, request)
        return _convert.task(response.task)

    async def cancel(self, id: str) -> Cancellation:
        """Ends a task for good; a handler that runs it is stopped. A finished task does not change.

        Raises:
            NotFound: there is none.
        """
        request = task_service_pb2.CancelRequest(id=id)
        response = await self._connection.call(lambda channel: channel.tasks.Cancel, request)
        return Cancellation(cancelled=response.cancelled, status=_convert.status(response.status))

    async def list_page(
        self,
        queue: str,
        *,
        status: TaskStatus | None = None,
        page_size: int | None = None,
        page_token: str = "",
        include_attempts: bool = False,
    ) -> Page[Task]:
        """One page of a queue's tasks, newest first.

        Args:
            queue: The queue.
            status: Only tasks in this status.
            page_size: Up to 1,000; 50 if None.
            page_token: The `next_page_token` of the page before.
            include_attempts: With histories.
        """
        request = task_service_pb2.ListRequest(
            queue=queue,
            status=f"TASK_STATUS_{status.name}" if status is not None else None,
            page_size=page_size,
            page_token=page_token,
            include_attempts=include_attempts,
        )
        response = await self._connection.call(lambda channel: channel.tasks.List, request)
        return Page(items=tuple(map(_convert.task, response.tasks)), next_page_token=response.next_page_token)

    async def list(
        self,
        queue: str,
        *,
        status: TaskStatus | None = None,
        page_size: int | None = None,
        include_attempts: bool = False,
    ) -> AsyncIterator[Task]:
        """All of a queue's tasks, newest first, read a page at a time. The arguments are those of `list_page`."""
        token = ""
        while True:
            page = await self.list_page(
                queue,
                status=status,
                page_size=page_size,
                page_token=token,
                include_attempts=include_attempts,
            )
            for item in page.items:
                yield item
            token = page.next_page_token
            if not token:
                return

    async def dlq_list_page(
        self,
        queue: str,
        *,
        where: DlqFilter | None = None,
        page_size: int | None = None,
        page_token: str = "",
        include_attempts: bool = False,
    ) -> Page[Task]:
        """One page of a queue's dead letters, newest first.

        Args:
            queue: The queue.
            where: Only those that match.
            page_size: Up to 1,000; 50 if None.
            page_token: The `next_page_token` of the page before.
            include_attempts: With histories.
        """
        request = task_service_pb2.DlqListRequest(
            queue=queue,
            filter=_convert.dlq_filter(where),
            page_size=page_size,
            page_token=page_token,
            include_attempts=include_attempts,
        )
        response = await self._connection.call(lambda channel: channel.tasks.DlqList, request)
        return Page(items=tuple(map(_convert.task, response.tasks)), next_page_token=response.next_page_token)

    async def dlq_list(
        self,
        queue: str,
        *,
        where: DlqFilter | None = None,
        page_size: int | None = None,
        include_attempts: bool = False,
    ) -> AsyncIterator[Task]:
        """All of a queue's dead letters, newest first. The arguments are those of `dlq_list_page`."""
        token = ""
        while True:
            page = await self.dlq_list_page(
                queue,
                where=where,
                page_size=page_size,
                page_token=token,
                include_attempts=include_attempts,
            )
            for item in page.items:
                yield item
            token = page.next_page_token
            if not token:
                return

    async def redrive(
        self,
        queue: str,
        *,
        ids: Iterable[str] | None = None,
        where: DlqFilter | None = None,
        all: bool = False,
        dry_run: bool = False,
        spread_over: timedelta | None = None,
        rate_per_second: float | None = None,
        on_count: OnCount | None = None,
    ) -> int:
        """Makes dead letters due again, with all their attempts ahead and their history kept.

        Args:
            queue: The queue.
            ids: These, up to 1,000; exactly one of `ids`, `where` and `all` is given.
            where: Those that match.
            all: Every one.
            dry_run: Count, and change nothing.
            spread_over: Spread the due times over so long; all due now if None.
            rate_per_second: Space the due times to so many tasks a second.
            on_count: Told how many were redriven so far.

        Returns:
            How many were redriven, or with `dry_run` would be.

        Raises:
            RdqError: it broke off; `count` says how many were redriven before.
        """
        request = task_service_pb2.RedriveRequest(
            queue=queue,
            selector=_selector(ids, where, all),
            dry_run=dry_run,
            spread_over=to_duration(spread_over),
            rate_per_second=rate_per_second,
        )
        metadata = self._connection.metadata
        return await self._counted(lambda channel: channel.tasks.Redrive(request, metadata=metadata), on_count)

    async def purge(
        self,
        queue: str,
        *,
        ids: Iterable[str] | None = None,
        where: DlqFilter | None = None,
        all: bool = False,
        dry_run: bool = False,
        on_count: OnCount | None = None,
    ) -> int:
        """Removes dead letters for good.

        Args:
            queue: The queue.
            ids: These, up to 1,000; exactly one of `ids`, `where` and `all` is given.
            where: Those that match.
            all: Every one.
            dry_run: Count, and change nothing.
            on_count: Told how many were removed so far.

        Returns:
            How many were removed, or with `dry_run` would be.

        Raises:
            RdqError: it broke off; `count` says how many were removed before.
        """
        request = task_service_pb2.PurgeRequest(queue=queue, selector=_selector(ids, where, all), dry_run=dry_run)
        metadata = self._connection.metadata
        return await self._counted(lambda channel: channel.tasks.Purge(request, metadata=metadata), on_count)

    async def stats(self, queues: Iterable[str] = ()) -> Sequence[QueueStats]:
        """Counts tasks by queue.

        Args:
            queues: Up to 64 names; all queues, up to 1,000, if none.
        """
        request = task_service_pb2.StatsRequest(queues=queues)
        response = await self._connection.call(lambda channel: channel.tasks.Stats, request)
        return tuple(map(_convert.queue_stats, response.queues))

    async def put_queue(self, name: str, config: QueueConfig) -> Queue:
        """Stores a queue's configuration, in place of what was stored before."""
        request = queue_service_pb2.PutQueueRequest(name=name, config=_convert.to_queue_config(config))
        response = await self._connection.call(lambda channel: channel.queues.PutQueue, request)
        return _convert.queue(response.queue)

    async def get_queue(self, name: str) -> Queue:
        """Reads a queue's configuration, stored and in force."""
        request = queue_service_pb2.GetQueueRequest(name=name)
        response = await self._connection.call(lambda channel: channel.queues.GetQueue, request)
        return _convert.queue(response.queue)

    async def list_queues_page(self, *, page_size: int | None = None, page_token: str = "") -> Page[Queue]:
        """One page of the queues that are configured or hold tasks, by name.

        Args:
            page_size: Up to 1,000; 50 if None.
            page_token: The `next_page_token` of the page before.
        """
        request = queue_service_pb2.ListQueuesRequest(page_size=page_size, page_token=page_token)
        response = await self._connection.call(lambda channel: channel.queues.ListQueues, request)
        return Page(items=tuple(map(_convert.queue, response.queues)), next_page_token=response.next_page_token)

    async def list_queues(self, *, page_size: int | None = None) -> AsyncIterator[Queue]:
        """All queues that are configured or hold tasks, by name."""
        token = ""
        while True:
            page = await self.list_queues_page(page_size=page_size, page_token=token)
            for item in page.items:
                yield item
            token = page.next_page_token
            if not token:
                return

    async def delete_queue(self, name: str) -> bool:
        """Removes a queue's stored configuration; True if there was one.

        Raises:
            QueueNotEmpty: it holds tasks.
        """
        request = queue_service_pb2.DeleteQueueRequest(name=name)
        response = await self._connection.call(lambda channel: channel.queues.DeleteQueue, request)
        return response.existed

    async def pause_queue(self, name: str) -> Queue:
        """Stops claims from a queue; admission goes on."""
        request = queue_service_pb2.PauseQueueRequest(name=name)
        response = await self._connection.call(lambda channel: channel.queues.PauseQueue, request)
        return _convert.queue(response.queue)

    async def resume_queue(self, name: str) -> Queue:
        """Lets claims from a queue go on."""
        request = queue_service_pb2.ResumeQueueRequest(name=name)
        response = await self._connection.call(lambda channel: channel.queues.ResumeQueue, request)
        return _convert.queue(response.queue)

    async def capabilities(self) -> Capabilities:
        """What the server offers."""
        request = task_service_pb2.GetCapabilitiesRequest()
        response = await self._connection.call(lambda channel: channel.tasks.GetCapabilities, request)
        return _convert.capabilities(response)

    async def _counted(
        self,
        start: Callable[[Channel], _CountCall],
        on_count: OnCount | None,
    ) -> int:
        """Reads a running count to its end. Begun again until its first message came, and never after that."""
        # A connection of its own: the shared one may be given up for another call's sake.
        channel = self._connection.open()

        async def first(timeout: float) -> tuple[_CountCall, int]:
            call = start(channel)
            try:
                message = await asyncio.wait_for(_read_count(call), timeout)
            except TimeoutError:
                call.cancel()
                raise DeadlineExceeded(
                    "no count came in time", code=grpc.StatusCode.DEADLINE_EXCEEDED, outcome_unknown=True
                ) from None
            return call, message or 0

        try:
            call, count = await self._connection.retry(first)
            while True:
                if on_count is not None:
                    on_count(count)
                try:
                    following = await _read_count(call)
                except RdqError as error:
                    error.count = count
                    raise
                if following is None:
                    return count
                count = following
        finally:
            await channel.close()


class _Item:
    """One task of `enqueue_many`: what to send of it, or why it cannot be sent."""

    def __init__(self, message: task_pb2.Task | None, error: RdqError | None) -> None:
        self.message = message
        self.error = error

    @classmethod
    def of(cls, new: NewTask) -> _Item:
        try:
            return cls(_envelope(new), None)
        except (TypeError, ValueError) as error:
            refused = InvalidArgument(str(error), code=grpc.StatusCode.INVALID_ARGUMENT)
            refused.__cause__ = error
            return cls(None, refused)

    def size(self) -> int:
        return self.message.ByteSize() if self.message is not None else 0


def _envelope(new: NewTask) -> task_pb2.Task:
    headers = with_trace(new.headers)
    if headers is not new.headers:
        new = replace(new, headers=headers)
    return _convert.new_task(new, new.id or new_task_id())


def _enqueue_result(result: task_service_pb2.EnqueueResult) -> Admission | RdqError:
    if result.HasField("error"):
        return _status.of_item(result.error)
    if result.HasField("enqueued"):
        return _convert.admission(result.enqueued)
    return _no_result()


def _no_result() -> RdqError:
    """Of a task that the answer says nothing of."""
    return RdqError(
        "the server's answer has no result for this task", code=grpc.StatusCode.INTERNAL, outcome_unknown=True
    )


def _selector(ids: Iterable[str] | None, where: DlqFilter | None, all: bool) -> task_service_pb2.Selector:
    if (ids is not None) + (where is not None) + all != 1:
        raise ValueError("give exactly one of ids, where and all")
    if ids is not None:
        return task_service_pb2.Selector(ids=task_service_pb2.TaskIds(ids=ids))
    if where is not None:
        return task_service_pb2.Selector(filter=_convert.dlq_filter(where))
    return task_service_pb2.Selector(all=True)


async def _read_count(call: _CountCall) -> int | None:
    """The next count; None at the end."""
    try:
        message = await call.read()
    except grpc.aio.AioRpcError as error:
        raise _status.of_call(error) from None
    if isinstance(message, (task_service_pb2.RedriveResponse, task_service_pb2.PurgeResponse)):
        return message.count
    return None
