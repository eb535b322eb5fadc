"""Trace context, where OpenTelemetry is in the process. Without it, all of this does nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .job import Job

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # it is an extra
    _propagator = None
else:
    _propagator = TraceContextTextMapPropagator()

_HEADERS = ("traceparent", "tracestate")


def with_trace(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers, with the context of the caller's active span unless the caller set one."""
    if _propagator is None or any(name in headers for name in _HEADERS):
        return headers
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return {**headers, **carrier} if carrier else headers


def handling(job: Job) -> AbstractContextManager[object]:
    """A span `rdq.handle` around a handler, with the producer's span as its parent."""
    if _propagator is None:
        return nullcontext()
    return _span(job)


@contextmanager
def _span(job: Job) -> Iterator[None]:
    assert _propagator is not None
    carrier = {name: job.headers[name] for name in _HEADERS if name in job.headers}
    attributes: dict[str, str | int] = {"rdq.queue": job.queue, "rdq.task_id": job.id, "rdq.attempt": job.attempt_no}
    with trace.get_tracer("rdq").start_as_current_span(
        "rdq.handle",
        context=_propagator.extract(carrier),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        # What a handler raises may quote a payload; the task's history has it.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Exception as error:
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
