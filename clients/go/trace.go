package rdq

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	traceparentHeader = "traceparent"
	tracestateHeader  = "tracestate"
	tracerName        = "github.com/rdq-project/rdq/clients/go"
)

// traceHeaders adds the active span to the headers of a task, unless they name one already. The map that came is not
// changed.
func traceHeaders(ctx context.Context, headers map[string]string) map[string]string {
	_, parent := headers[traceparentHeader]
	_, state := headers[tracestateHeader]
	if parent || state || !trace.SpanContextFromContext(ctx).IsValid() {
		return headers
	}
	merged := make(propagation.MapCarrier, len(headers)+2)
	for key, value := range headers {
		merged[key] = value
	}
	propagation.TraceContext{}.Inject(ctx, merged)
	return merged
}

// startSpan starts the span of a handler, with the producer's as its parent.
func startSpan(ctx context.Context, claim *Claim) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(claim.Headers))
	return otel.Tracer(tracerName).Start(ctx, "rdq.handle",
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("rdq.queue", claim.Queue),
			attribute.String("rdq.task_id", claim.ID),
			attribute.Int("rdq.attempt", claim.AttemptNo),
		))
}
