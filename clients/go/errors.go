package rdq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// errorDomain is that of the ErrorInfo of every error of the service.
const errorDomain = "rdq"

// outcomeUnknownKey marks, in the metadata, an error after which the change may have happened all the same.
const outcomeUnknownKey = "outcome_unknown"

// A Reason says why the service refused a call, or one item of a batch. It is an error itself, so that errors.Is finds
// it in an [*Error]; a Reason that this package does not know is the text that came.
type Reason string

// The reasons of the contract, with the gRPC code of each.
const (
	// ErrStaleClaim is FAILED_PRECONDITION: the claim is superseded or was never issued; drop the work.
	ErrStaleClaim Reason = "STALE_CLAIM"
	// ErrQueueNotEmpty is FAILED_PRECONDITION: the queue still holds tasks.
	ErrQueueNotEmpty Reason = "QUEUE_NOT_EMPTY"
	// ErrStaleCursor is FAILED_PRECONDITION: the page token is of a retired key; start with the first page.
	ErrStaleCursor Reason = "STALE_CURSOR"
	// ErrNotFound is NOT_FOUND: there is no such task.
	ErrNotFound Reason = "NOT_FOUND"
	// ErrQueueNotFound is NOT_FOUND: there is no such queue.
	ErrQueueNotFound Reason = "QUEUE_NOT_FOUND"
	// ErrIDConflict is ALREADY_EXISTS: the task's id is taken in another queue.
	ErrIDConflict Reason = "ID_CONFLICT"
	// ErrContention is ABORTED: others held what the call needed; nothing changed. Retried by this package.
	ErrContention Reason = "CONTENTION"
	// ErrInvalidName is INVALID_ARGUMENT: a name is empty, blank, too long or has control characters.
	ErrInvalidName Reason = "INVALID_NAME"
	// ErrReservedName is INVALID_ARGUMENT: a name starts with the reserved "__rdq_".
	ErrReservedName Reason = "RESERVED_NAME"
	// ErrInvalidArgument is INVALID_ARGUMENT: a value is missing, contradictory or out of range.
	ErrInvalidArgument Reason = "INVALID_ARGUMENT"
	// ErrInvalidCursor is INVALID_ARGUMENT: the page token is not one of the service's, or was changed.
	ErrInvalidCursor Reason = "INVALID_CURSOR"
	// ErrCursorBindingMismatch is INVALID_ARGUMENT: the page token belongs to another list or filter.
	ErrCursorBindingMismatch Reason = "CURSOR_BINDING_MISMATCH"
	// ErrPayloadTooLarge is INVALID_ARGUMENT: a part is larger than its limit; the metadata has "limit_bytes" and
	// "size_bytes".
	ErrPayloadTooLarge Reason = "PAYLOAD_TOO_LARGE"
	// ErrUnsupported is UNIMPLEMENTED: the backend cannot do this.
	ErrUnsupported Reason = "UNSUPPORTED"
	// ErrStorageUnavailable is UNAVAILABLE: the storage cannot be reached. Retried by this package.
	ErrStorageUnavailable Reason = "STORAGE_UNAVAILABLE"
	// ErrClosed is UNAVAILABLE: the server is draining. Retried by this package.
	ErrClosed Reason = "CLOSED"
	// ErrOverloaded is RESOURCE_EXHAUSTED: too much at once. Retried by this package, after the time the server names.
	ErrOverloaded Reason = "OVERLOADED"
	// ErrStorageFull is RESOURCE_EXHAUSTED: the storage has no space left.
	ErrStorageFull Reason = "STORAGE_FULL"
	// ErrMessageTooLarge is RESOURCE_EXHAUSTED: the request is larger than the server reads.
	ErrMessageTooLarge Reason = "MESSAGE_TOO_LARGE"
	// ErrInternal is INTERNAL: a fault of the service; the metadata's "correlation_id" finds it in its log.
	ErrInternal Reason = "INTERNAL"
	// ErrUnauthenticated is UNAUTHENTICATED: there are no valid credentials.
	ErrUnauthenticated Reason = "UNAUTHENTICATED"
	// ErrPermissionDenied is PERMISSION_DENIED: the credentials do not grant this.
	ErrPermissionDenied Reason = "PERMISSION_DENIED"
	// ErrDeadlineExceeded is DEADLINE_EXCEEDED: the deadline of the call passed; a change may have happened.
	ErrDeadlineExceeded Reason = "DEADLINE_EXCEEDED"
	// ErrCASConflict is ABORTED: the record is at another revision than the call expects; nothing changed. The metadata
	// has "key" and "expected_revision", and in a Commit "operation_index".
	ErrCASConflict Reason = "CAS_CONFLICT"
	// ErrInvalidSpec is INVALID_ARGUMENT: a schedule's spec or time zone is not one, or never comes.
	ErrInvalidSpec Reason = "INVALID_SPEC"
	// ErrOutboxMissing is NOT_FOUND: there is no such message of an outbox.
	ErrOutboxMissing Reason = "OUTBOX_MISSING"
	// ErrOutboxClaimMismatch is ABORTED: the message is not claimed by that worker with that generation.
	ErrOutboxClaimMismatch Reason = "OUTBOX_CLAIM_MISMATCH"
	// ErrMutationConflict is ALREADY_EXISTS: the ledger has a record of another request under this scope; nothing changed.
	ErrMutationConflict Reason = "MUTATION_CONFLICT"
)

// ErrOtherContractVersion is the one reason that a server never sends: its contract has another major version than
// [ContractVersion], and a worker does not work with it. The metadata's "client_version" and "server_version" are the two.
const ErrOtherContractVersion Reason = "OTHER_CONTRACT_VERSION"

// Error returns the reason in lower case, as a sentinel's text.
func (r Reason) Error() string {
	return "rdq: " + strings.ToLower(strings.ReplaceAll(string(r), "_", " "))
}

// An Error is a refusal by the service, or a failure to reach it. Find it with errors.As, and its kind with errors.Is
// and a [Reason].
type Error struct {
	// Code is the gRPC status code.
	Code codes.Code
	// Reason is the service's; empty where the error is not the service's own.
	Reason Reason
	// Message is for people.
	Message string
	// Metadata has what the message mentions, by the keys that the contract names for the reason. Never nil in an
	// error of the service.
	Metadata map[string]string
	// RetryAfter is the time that the service asks for before a repetition, 0 if it named none.
	RetryAfter time.Duration

	cause error
}

// Error returns code, reason and message.
func (e *Error) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("rdq: %s (%s)", e.Message, e.Code)
	}
	return fmt.Sprintf("rdq: %s (%s, %s)", e.Message, e.Code, e.Reason)
}

// Is reports whether target is the reason of the error.
func (e *Error) Is(target error) bool {
	reason, ok := target.(Reason)
	return ok && reason != "" && reason == e.Reason
}

// Unwrap returns context.Canceled or context.DeadlineExceeded where the caller's own context ended the call, and the
// error of the transport elsewhere, if there is one.
func (e *Error) Unwrap() error { return e.cause }

// OutcomeUnknown reports whether the change may have happened although the call failed.
func (e *Error) OutcomeUnknown() bool { return e.Metadata[outcomeUnknownKey] == "true" }

// Retryable reports whether the same call may succeed later. Calls of this package have been repeated already, within
// their deadline, when they return such an error.
func (e *Error) Retryable() bool {
	switch e.Code {
	case codes.Unavailable:
		return true
	case codes.Aborted:
		return e.Reason == ErrContention
	case codes.ResourceExhausted:
		return e.Reason == ErrOverloaded
	case codes.DeadlineExceeded:
		return true
	default:
		return false
	}
}

// GRPCStatus returns the error as a gRPC status, with its ErrorInfo; it serves status.FromError and status.Code.
func (e *Error) GRPCStatus() *status.Status {
	plain := status.New(e.Code, e.Message)
	if e.Reason == "" {
		return plain
	}
	info := &errdetails.ErrorInfo{Reason: string(e.Reason), Domain: errorDomain, Metadata: e.Metadata}
	detailed, err := plain.WithDetails(info)
	if err != nil {
		return plain
	}
	return detailed
}

// FromError makes an *Error of what a call of the generated stub returned; nil stays nil. Calls of this package have done so
// already.
func FromError(err error) *Error {
	if err == nil {
		return nil
	}
	var already *Error
	if errors.As(err, &already) {
		return already
	}
	received, ok := status.FromError(err)
	if !ok {
		received = status.FromContextError(err)
	}
	result := &Error{Code: received.Code(), Message: received.Message(), Metadata: map[string]string{}, cause: err}
	for _, detail := range received.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == errorDomain && result.Reason == "" {
				result.Reason = Reason(detail.GetReason())
				maps.Copy(result.Metadata, detail.GetMetadata())
			}
		case *errdetails.RetryInfo:
			result.RetryAfter = max(0, detail.GetRetryDelay().AsDuration())
		}
	}
	if result.Reason == "" && mayHaveHappened(result.Code) {
		result.Metadata[outcomeUnknownKey] = "true"
	}
	return result
}

// mayHaveHappened reports whether a status that the transport made, not the service, leaves open what became of the
// call.
func mayHaveHappened(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return true
	default:
		return false
	}
}

// contextError is the error of a call that the caller's context ended.
func contextError(ctx context.Context, last *Error) *Error {
	cause := ctx.Err()
	result := &Error{
		Code:     status.FromContextError(cause).Code(),
		Message:  cause.Error(),
		Metadata: map[string]string{outcomeUnknownKey: "true"},
		cause:    cause,
	}
	if result.Code == codes.DeadlineExceeded {
		result.Reason = ErrDeadlineExceeded
	}
	if last != nil {
		result.Message += "; the last try: " + last.Message
		result.cause = errors.Join(cause, last)
	}
	return result
}

// itemError makes an *Error of the refusal of one item of a batch.
func itemError(item *rdqv1.ItemError) *Error {
	result := &Error{Code: codes.Code(item.GetCode()), Message: item.GetMessage(), Metadata: item.GetMetadata()}
	if result.Metadata == nil {
		result.Metadata = map[string]string{}
	}
	if name, ok := rdqv1.ErrorReason_name[int32(item.GetReason())]; ok && item.GetReason() != 0 {
		result.Reason = Reason(strings.TrimPrefix(name, "ERROR_REASON_"))
	}
	return result
}

// malformed is the error for an answer that breaks the contract.
func malformed(what string) *Error {
	return &Error{
		Code: codes.Internal, Message: "the server's answer has " + what,
		Metadata: map[string]string{outcomeUnknownKey: "true"},
	}
}

// invalid is the error for an argument that cannot even be sent.
func invalid(field, message string) *Error {
	return &Error{
		Code: codes.InvalidArgument, Reason: ErrInvalidArgument, Message: message,
		Metadata: map[string]string{"field": field},
	}
}
