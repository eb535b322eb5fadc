package rdq_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	rdq "github.com/rdq-project/rdq/clients/go"
)

func TestTraceContext(t *testing.T) {
	f := start(t)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	otel.SetTracerProvider(provider)

	state, err := trace.ParseTraceState("vendor=value")
	f.must(err)
	ctx := trace.ContextWithRemoteSpanContext(f.ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	ctx, producing := provider.Tracer("test").Start(ctx, "producing")
	set := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	tasks := []rdq.NewTask{
		{Queue: "q", HandlerRef: "h", ID: "traced", Headers: map[string]string{"mine": "kept"}},
		{Queue: "q", HandlerRef: "h", ID: "by hand", Headers: set},
		{Queue: "q", HandlerRef: "h", ID: "failing"},
	}
	_, err = f.client.EnqueueMany(ctx, tasks)
	f.must(err)
	producing.End()
	_, err = f.client.Enqueue(f.ctx, rdq.NewTask{Queue: "q", HandlerRef: "h", ID: "untraced"})
	f.must(err)

	handled := make(chan trace.SpanContext, 4)
	worker := f.work(rdq.WorkerOptions{Concurrency: 1}, func(ctx context.Context, claim *rdq.Claim) ([]byte, error) {
		handled <- trace.SpanContextFromContext(ctx)
		if claim.ID == "failing" {
			return nil, rdq.Permanent(errors.New("not to be seen"))
		}
		return nil, nil
	})
	bySpan := map[trace.SpanID]bool{}
	for range 4 {
		bySpan[receive(f, "a handler runs", handled).SpanID()] = true
	}
	f.must(worker.stop())

	traced := f.get("traced")
	if len(tasks[0].Headers) != 1 || traced.Headers["mine"] != "kept" || traced.Headers["tracestate"] != "vendor=value" ||
		!strings.Contains(traced.Headers["traceparent"], producing.SpanContext().TraceID().String()) {
		t.Errorf("the headers are %v", traced.Headers)
	}
	if headers := f.get("by hand").Headers; len(headers) != 1 || headers["traceparent"] != set["traceparent"] {
		t.Errorf("headers set by hand became %v", headers)
	}
	if headers := f.get("untraced").Headers; len(headers) != 0 {
		t.Errorf("without a span the headers are %v", headers)
	}
	parents := map[string]trace.SpanContext{}
	for _, span := range spans.Ended() {
		if span.Name() != "rdq.handle" || !bySpan[span.SpanContext().SpanID()] {
			continue
		}
		attributes := attribute.NewSet(span.Attributes()...)
		id, _ := attributes.Value("rdq.task_id")
		queue, _ := attributes.Value("rdq.queue")
		attempt, _ := attributes.Value("rdq.attempt")
		if queue.AsString() != "q" || attempt.AsInt64() != 1 {
			t.Errorf("the attributes of %s are %v", id.AsString(), span.Attributes())
		}
		parents[id.AsString()] = span.Parent()
		if strings.Contains(span.Status().Description, "not to be seen") {
			t.Errorf("the status of the span has the message: %+v", span.Status())
		}
	}
	want := producing.SpanContext()
	if len(parents) != 4 || parents["traced"].TraceID() != want.TraceID() || parents["traced"].SpanID() != want.SpanID() ||
		parents["by hand"].TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || parents["untraced"].IsValid() {
		t.Errorf("the parents are %v, the producer is %v", parents, want)
	}
}
