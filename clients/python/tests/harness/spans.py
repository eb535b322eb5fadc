"""The spans that OpenTelemetry is told of. Makes no calls."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def tracer_provider() -> TracerProvider:
    """The process's, made if there is none."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    return provider


def handled(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """The handlers' spans that have ended."""
    return [span for span in spans.get_finished_spans() if span.name == "rdq.handle"]
