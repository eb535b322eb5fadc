package rdq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"time"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// Error types that the package writes into attempts.
const (
	// TypeUnroutable is of a task that has no handler here.
	TypeUnroutable = "rdq.Unroutable"
	// TypeVersionMismatch is of a task whose version of the handler is not here, where the queue asks for that.
	TypeVersionMismatch = "rdq.VersionMismatch"
	// TypeTimeout is of an attempt that took longer than the queue's execution timeout.
	TypeTimeout = "rdq.Timeout"
	// TypeOutcomeRefused is of an attempt whose outcome the service did not take, for instance a result that is too large.
	TypeOutcomeRefused = "rdq.OutcomeRefused"
	// TypePanic is of an attempt whose handler panicked.
	TypePanic = "rdq.Panic"
)

// More of a text than this is not sent: the service cuts messages at 4 KiB and stacks at 64 KiB, and marks the cut.
const (
	messageBytesMax = 8 << 10
	stackBytesMax   = 96 << 10
)

// An ErrorTyper is an error that names its own type, for instance "http.503". The queue's classification matches it.
type ErrorTyper interface {
	error
	ErrorType() string
}

// Permanent makes a handler's error one that must not run again: the task is a dead letter. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &verdict{kind: permanent, err: err, stack: callers()}
}

// Retryable makes a handler's error one that may run again, whatever the queue's classification says of its type.
// Retryable(nil) is nil.
func Retryable(err error) error {
	if err == nil {
		return nil
	}
	return &verdict{kind: retryable, err: err, stack: callers()}
}

// RetryAfter makes a handler's error one that runs again after delay, instead of the queue's backoff. It spends an
// attempt; err may be nil.
func RetryAfter(delay time.Duration, err error) error {
	return &verdict{kind: retryAfter, delay: delay, err: err, stack: callers()}
}

// Snooze, returned by a handler, gives the task back for delay. No attempt is spent.
func Snooze(delay time.Duration) error {
	return &verdict{kind: snooze, delay: delay}
}

// WithType names the type of an error, for instance "http.503". WithType(…, nil) is nil.
func WithType(errorType string, err error) error {
	if err == nil {
		return nil
	}
	return &typedError{errorType: errorType, err: err, stack: callers()}
}

type verdictKind int

const (
	permanent verdictKind = iota
	retryable
	retryAfter
	snooze
)

// A verdict is what a handler said of its error.
type verdict struct {
	kind  verdictKind
	delay time.Duration
	err   error
	stack []uintptr
}

func (v *verdict) Error() string {
	switch {
	case v.err != nil:
		return v.err.Error()
	case v.kind == snooze:
		return fmt.Sprintf("snooze for %s", v.delay)
	default:
		return fmt.Sprintf("retry after %s", v.delay)
	}
}

func (v *verdict) Unwrap() error { return v.err }

type typedError struct {
	errorType string
	err       error
	stack     []uintptr
}

func (e *typedError) Error() string     { return e.err.Error() }
func (e *typedError) ErrorType() string { return e.errorType }
func (e *typedError) Unwrap() error     { return e.err }

// A PanicError is the panic of a handler, as an outcome mapper sees it.
type PanicError struct {
	// Value is what the handler panicked with.
	Value any
	// Stack is that of the handler's goroutine.
	Stack []byte
}

// Error returns the value as text.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// ErrorType returns TypePanic.
func (e *PanicError) ErrorType() string { return TypePanic }

// Unwrap returns the value where that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// resolutionOf makes the call that ends a claim of what its handler returned.
func resolutionOf(id string, token, result []byte, err error, handler Handler) *rdqv1.Resolution {
	if err == nil {
		return &rdqv1.Resolution{Call: &rdqv1.Resolution_Complete{
			Complete: &rdqv1.CompleteRequest{Id: id, ClaimToken: token, Result: result},
		}}
	}
	attempt := &rdqv1.Attempt{Error: attemptErrorOf(err, handler)}
	var said *verdict
	if !errors.As(err, &said) {
		return failResolution(id, token, attempt)
	}
	switch said.kind {
	case permanent:
		return deadLetterResolution(id, token, attempt)
	case retryAfter:
		return &rdqv1.Resolution{Call: &rdqv1.Resolution_Reschedule{Reschedule: &rdqv1.RescheduleRequest{
			Id: id, ClaimToken: token, Attempt: attempt, Delay: optionalDuration(said.delay),
		}}}
	case snooze:
		return releaseResolution(id, token, said.delay)
	default:
		attempt.Outcome = OutcomeRetryableFailure
		return failResolution(id, token, attempt)
	}
}

func failResolution(id string, token []byte, attempt *rdqv1.Attempt) *rdqv1.Resolution {
	return &rdqv1.Resolution{Call: &rdqv1.Resolution_Fail{
		Fail: &rdqv1.FailRequest{Id: id, ClaimToken: token, Attempt: attempt},
	}}
}

func deadLetterResolution(id string, token []byte, attempt *rdqv1.Attempt) *rdqv1.Resolution {
	return &rdqv1.Resolution{Call: &rdqv1.Resolution_DeadLetter{
		DeadLetter: &rdqv1.DeadLetterRequest{Id: id, ClaimToken: token, Attempt: attempt},
	}}
}

func releaseResolution(id string, token []byte, delay time.Duration) *rdqv1.Resolution {
	return &rdqv1.Resolution{Call: &rdqv1.Resolution_Release{
		Release: &rdqv1.ReleaseRequest{Id: id, ClaimToken: token, Delay: optionalDuration(delay)},
	}}
}

func attemptErrorOf(err error, handler Handler) *rdqv1.AttemptError {
	return attemptError(errorType(err), err.Error(), stackOf(err, handler))
}

func attemptError(errorType, message, stack string) *rdqv1.AttemptError {
	return &rdqv1.AttemptError{
		Type:    text(errorType, messageBytesMax),
		Message: text(message, messageBytesMax),
		Stack:   text(stack, stackBytesMax),
	}
}

// text makes UTF-8 of limited length.
func text(value string, limit int) string {
	return strings.ToValidUTF8(value[:min(len(value), limit)], "\uFFFD")
}

// errorType names an error: as it says itself, else as its type is called, of the first in the chain whose type says
// more than that it is an error.
func errorType(err error) string {
	var typer ErrorTyper
	if errors.As(err, &typer) {
		return typer.ErrorType()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "context.DeadlineExceeded"
	}
	if errors.Is(err, context.Canceled) {
		return "context.Canceled"
	}
	for each := err; each != nil; {
		if name := strings.TrimPrefix(fmt.Sprintf("%T", each), "*"); !plainTypes[name] {
			return name
		}
		switch wrapper := each.(type) {
		case interface{ Unwrap() error }:
			each = wrapper.Unwrap()
		case interface{ Unwrap() []error }:
			each = nil
			if wrapped := wrapper.Unwrap(); len(wrapped) > 0 {
				each = wrapped[0]
			}
		default:
			each = nil
		}
	}
	return "error"
}

// plainTypes say nothing of what went wrong.
var plainTypes = map[string]bool{
	"errors.errorString": true, "errors.joinError": true, "fmt.wrapError": true, "fmt.wrapErrors": true,
	"rdq.verdict": true, "rdq.typedError": true,
}

// stackOf is where an error came from: the stack that it carries, else that of the wrapper of this package, else the
// chain of errors and the handler.
func stackOf(err error, handler Handler) string {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return string(panicked.Stack)
	}
	var pcs []uintptr
	for each := err; each != nil; each = errors.Unwrap(each) {
		// The widespread packages that record stacks print them so.
		if reflect.ValueOf(each).MethodByName("StackTrace").IsValid() {
			return fmt.Sprintf("%+v", each)
		}
		switch each := each.(type) {
		case *verdict:
			pcs = each.stack
		case *typedError:
			pcs = each.stack
		}
	}
	var out bytes.Buffer
	for each := err; each != nil; each = errors.Unwrap(each) {
		fmt.Fprintf(&out, "%T: %s\n", each, text(each.Error(), messageBytesMax))
	}
	if len(pcs) == 0 {
		fmt.Fprintf(&out, "returned by %s\n", nameOf(handler))
		return out.String()
	}
	frames := runtime.CallersFrames(pcs)
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&out, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			return out.String()
		}
	}
}

// callers is the stack of who called the function that called it.
func callers() []uintptr {
	pcs := make([]uintptr, 32)
	return pcs[:runtime.Callers(3, pcs)]
}

// nameOf is a handler's name and place in the source.
func nameOf(handler Handler) string {
	pc := reflect.ValueOf(handler).Pointer()
	function := runtime.FuncForPC(pc)
	if function == nil {
		return "a handler"
	}
	file, line := function.FileLine(pc)
	return fmt.Sprintf("%s\n\t%s:%d", function.Name(), file, line)
}
