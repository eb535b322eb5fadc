package rdq

import (
	"context"
	"errors"
	"runtime/debug"

	"go.opentelemetry.io/otel/codes"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// errGoexit is of a handler that ended its goroutine in place of returning.
var errGoexit = WithType(TypePanic, errors.New("the handler called runtime.Goexit"))

// handle runs the handler of a claim and decides, of what it returned, how the claim ends.
func (w *Worker) handle(ctx context.Context, d *delivery) {
	result, err := []byte(nil), errGoexit
	// Deferred, for a handler that calls runtime.Goexit comes no further than here.
	defer func() { w.returned(d, result, err) }()
	ctx, span := startSpan(ctx, d.claim)
	defer span.End()
	result, err = run(ctx, d.handler, d.claim)
	if w.options.MapOutcome != nil {
		mapped := func(ctx context.Context, claim *Claim) ([]byte, error) {
			return w.options.MapOutcome(ctx, claim, result, err)
		}
		result, err = run(ctx, mapped, d.claim)
	}
	if err != nil {
		span.SetStatus(codes.Error, errorType(err))
	}
}

// run calls a handler and makes an error of its panic.
func run(ctx context.Context, handler Handler, claim *Claim) (result []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			result, err = nil, &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return handler(ctx, claim)
}

// returned notes that a handler has ended.
func (w *Worker) returned(d *delivery, result []byte, err error) {
	resolution := resolutionOf(d.id, d.token, result, err, d.handler)
	w.mu.Lock()
	d.isRunning = false
	w.work.running--
	if d.timeout != nil {
		d.timeout.Stop()
	}
	if d.isStopped && err != nil {
		resolution = releaseResolution(d.id, d.token, 0)
	}
	if d.isLost || (d.outcome != nil && d.outcome.isDone) {
		w.forget(d)
	} else {
		w.decide(d, resolution)
	}
	w.mu.Unlock()
	d.stop(nil) // frees what the context holds
	w.wake()
}

// timedOut stops a handler that takes longer than its queue allows.
func (w *Worker) timedOut(d *delivery) {
	w.mu.Lock()
	if d.isRunning && !d.isLost && d.outcome == nil {
		timeout := d.proto.GetExecutionTimeout().AsDuration()
		attempt := &rdqv1.Attempt{Error: attemptError(TypeTimeout, "the handler took longer than "+timeout.String(), "")}
		w.decide(d, failResolution(d.id, d.token, attempt))
		d.stop(ErrExecutionTimeout)
	}
	w.mu.Unlock()
	w.wake()
}
