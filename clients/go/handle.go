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
	ctx, span := startSpan(ctx, d.claim)
	defer func() {
		resolution := w.resolutionOf(d, result, err)
		if failure := failureOf(resolution); failure != nil {
			// Not with the message, which may quote the payload.
			span.SetStatus(codes.Error, failure.GetType())
		}
		span.End()
		w.returned(d, resolution)
	}()
	result, err = run(ctx, d.handler, d.claim)
	if w.options.MapOutcome != nil {
		mapped := func(ctx context.Context, claim *Claim) ([]byte, error) {
			return w.options.MapOutcome(ctx, claim, result, err)
		}
		result, err = run(ctx, mapped, d.claim)
	}
}

// resolutionOf is how a claim ends whose handler returned, nil if it is lost.
func (w *Worker) resolutionOf(d *delivery, result []byte, err error) *rdqv1.Resolution {
	resolution := resolutionOf(d.id, d.token, result, err, d.handler)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case d.isLost:
		return nil
	case d.outcome != nil:
		return d.outcome.resolution // decided before, for instance by a timeout
	case d.isStopped && err != nil:
		return releaseResolution(d.id, d.token, 0)
	default:
		return resolution
	}
}

// failureOf is the error of a failure or a dead letter, nil of all else.
func failureOf(resolution *rdqv1.Resolution) *rdqv1.AttemptError {
	if letter := resolution.GetDeadLetter(); letter != nil {
		return letter.GetAttempt().GetError()
	}
	return resolution.GetFail().GetAttempt().GetError()
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
func (w *Worker) returned(d *delivery, resolution *rdqv1.Resolution) {
	w.mu.Lock()
	d.isRunning = false
	w.work.running--
	if d.timeout != nil {
		d.timeout.Stop()
	}
	if d.isLost || resolution == nil || (d.outcome != nil && d.outcome.isDone) {
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
