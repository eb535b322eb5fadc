"""Trace context, where OpenTelemetry is in the process. Without it, all of this does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .claim import Claim

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


class HandlerSpan:
    """A span `rdq.handle` of one handler, with the producer's span as its parent.

    What a handler raises may quote a payload, so the span is told its type alone; the task's history has the rest.
    """

    def __init__(self, claim: Claim) -> None:
        self._span: trace.Span | None = None
        if _propagator is not None:
            carrier = {name: claim.headers[name] for name in _HEADERS if name in claim.headers}
            self._span = trace.get_tracer("rdq").start_span(
                "rdq.handle",
                context=_propagator.extract(carrier),
                kind=trace.SpanKind.CONSUMER,
                attributes={"rdq.queue": claim.queue, "rdq.task_id": claim.id, "rdq.attempt": claim.attempt_no},
            )

    def current(self) -> AbstractContextManager[object]:
        """Makes it the active span of the handler, in whatever thread that runs."""
        if self._span is None:
            return nullcontext()
        return trace.use_span(self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def end(self, error_type: str = "") -> None:
        """Ends it.

        Args:
            error_type: Of the failure or dead letter that the attempt ended as; empty if it ended as neither.
        """
        if self._span is not None:
            if error_type:
                self._span.set_status(trace.StatusCode.ERROR, error_type)
            self._span.end()
