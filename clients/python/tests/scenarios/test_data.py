"""What travels with a task, and comes back as it was."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rdq
from rdq._stubs.v1 import task_pb2

from ..harness.scene import Scene
from ..harness.waiting import finished, in_status, until

TEXT = "🚀 ñ مرحبا שלום 漢字 \u200f\u202e e\u0301"


async def test_unicode_and_binary(scene: Scene) -> None:
    """Emoji, right-to-left text and all 256 bytes in payload, headers, ids and errors come back as they were."""
    client = scene.client
    queue, ref, id = f"queue {TEXT}", f"handler {TEXT}", f"id {TEXT}"
    jobs: list[rdq.Job] = []

    async def run(job: rdq.Job) -> bytes:
        jobs.append(job)
        if job.attempt_no == 1:
            raise rdq.Failure(f"message {TEXT} \ud800", type=f"type {TEXT}", detail=f"detail {TEXT}")
        return job.payload[::-1]

    await client.put_queue(queue, rdq.QueueConfig(initial_backoff=timedelta(milliseconds=10)))
    async with scene.worker(queue, {ref: run}):
        admission = await client.enqueue(
            queue,
            ref,
            bytes(range(256)),
            id=id,
            headers={f"key {TEXT}": f"value {TEXT}"},
            content_type=f"text/{TEXT}",
            handler_version=f"version {TEXT}",
        )
        (task,) = await finished(client, id)

    assert admission.id == task.id == id
    job = jobs[0]
    assert (job.id, job.queue, job.handler_ref) == (id, queue, ref)
    assert (job.payload, job.content_type) == (bytes(range(256)), f"text/{TEXT}")
    assert job.headers == {f"key {TEXT}": f"value {TEXT}"}
    assert job.handler_version == f"version {TEXT}"
    assert task.headers == job.headers
    assert task.result == bytes(reversed(range(256)))
    error = task.attempts[0].error
    assert error is not None
    assert error.type == f"type {TEXT}"
    # What is no text in any encoding does not keep the rest from being told.
    assert error.message == f"message {TEXT} ?"
    assert error.detail == f"detail {TEXT}"


async def test_huge_payload(scene: Scene) -> None:
    """The largest payload that a queue takes, several at once; one byte more is refused, with limit and size."""
    client = scene.client
    largest = 2 << 20
    await client.put_queue("huge", rdq.QueueConfig(max_payload_bytes=largest))

    async def digest(job: rdq.Job) -> bytes:
        return hashlib.sha256(job.payload).digest()

    payloads = [bytes([n]) * largest for n in range(5)]
    tasks = [rdq.NewTask(queue="huge", handler_ref="digest", payload=payload) for payload in payloads]
    async with scene.worker("huge", {"digest": digest}):
        admissions = await client.enqueue_many(tasks)
        ids = [admission.id for admission in admissions if isinstance(admission, rdq.Admission)]
        done = await finished(client, *ids)
    with pytest.raises(rdq.PayloadTooLarge) as refused:
        await client.enqueue("huge", "digest", bytes(largest + 1))

    assert [task.result for task in done] == [hashlib.sha256(payload).digest() for payload in payloads]
    assert (refused.value.limit_bytes, refused.value.size_bytes) == (largest, largest + 1)


async def test_unknown_fields(scene: Scene) -> None:
    """Fields of a newer contract come back from claim and `get`, and through a failure and a redrive."""
    client = scene.client
    text = "from the future 🚀".encode()
    # Field 900, a text; and in an attempt that was carried over, the same.
    field = bytes([0xA2, 0x38, len(text)]) + text
    carried = task_pb2.Attempt(attempt_no=1, worker_id="before")
    carried.MergeFromString(field)
    extra = field + task_pb2.Task(attempts=[carried]).SerializeToString()
    seen: list[bytes] = []

    async def run(job: rdq.Job) -> None:
        seen.append(job.task.raw)
        if job.task.redrive_count == 0:
            raise rdq.Permanent("not now")

    async with scene.worker("new", {"run": run}):
        admission = await client.enqueue("new", "run", extra=extra)
        dead = await in_status(client, admission.id, rdq.TaskStatus.DEAD)
        assert await client.redrive("new", ids=[admission.id]) == 1
        done = await in_status(client, admission.id, rdq.TaskStatus.SUCCEEDED)

    assert len(seen) == 2
    for raw in (*seen, dead.raw, done.raw):
        assert raw.count(field) == 2
        attempt = task_pb2.Task.FromString(raw).attempts[0].SerializeToString()
        assert field in attempt


async def test_trace_context(scene: Scene) -> None:
    """The producer's trace is the handler's, unless the producer set another; without a span nothing is added."""
    client = scene.client
    spans = InMemorySpanExporter()
    _provider().add_span_processor(SimpleSpanProcessor(spans))
    tracer = trace.get_tracer("test")
    inner: dict[str, trace.SpanContext] = {}
    headers: dict[str, dict[str, str]] = {}

    async def run(job: rdq.Job) -> None:
        inner[job.text] = trace.get_current_span().get_span_context()
        headers[job.text] = dict(job.headers)
        if job.text == "fails":
            raise rdq.Permanent("no")

    own = f"00-{'1' * 32}-{'2' * 16}-01"
    async with scene.worker("traced", {"run": run}):
        with tracer.start_as_current_span("produce") as producer:
            ids = [(await client.enqueue("traced", "run", "one")).id]
            many = await client.enqueue_many(
                [
                    rdq.NewTask(queue="traced", handler_ref="run", payload="many"),
                    rdq.NewTask(queue="traced", handler_ref="run", payload="own", headers={"traceparent": own}),
                    rdq.NewTask(queue="traced", handler_ref="run", payload="fails"),
                ]
            )
            ids += [admission.id for admission in many if isinstance(admission, rdq.Admission)]
        ids.append((await client.enqueue("traced", "run", "none")).id)
        await finished(client, *ids)
        await until("every span has ended", lambda: len(_handled(spans)) == 5)

    context = producer.get_span_context()
    ours = {span.attributes["rdq.task_id"]: span for span in _handled(spans) if span.attributes}
    for name, id in zip(("one", "many"), ids, strict=False):
        assert inner[name].trace_id == context.trace_id
        span = ours[id]
        assert span.parent is not None
        assert span.parent.span_id == context.span_id
        assert span.attributes == {"rdq.queue": "traced", "rdq.task_id": id, "rdq.attempt": 1}
        assert span.context is not None
        assert span.context.span_id == inner[name].span_id
    assert headers["own"] == {"traceparent": own}
    assert inner["own"].trace_id == int("1" * 32, 16)
    assert ours[ids[3]].status.status_code is trace.StatusCode.ERROR
    assert headers["none"] == {}
    assert inner["none"].trace_id != context.trace_id


def _provider() -> TracerProvider:
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    return provider


def _handled(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == "rdq.handle"]
