package rdq

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// call makes a unary call and repeats it where that helps. Every call of the contract that comes through here may be
// repeated: it names an id or a token, or only reads, or sets what it sets.
func call[Request, Response any](
	ctx context.Context, c *Client,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error), request *Request,
) (*Response, error) {
	var response *Response
	err := c.retry(ctx, func(ctx context.Context) error {
		var err error
		response, err = method(ctx, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// retry runs try until it succeeds, until its error is one that no repetition changes, or until the deadline.
func (c *Client) retry(caller context.Context, try func(context.Context) error) error {
	total, cancel := context.WithTimeout(caller, c.deadline)
	defer cancel()
	for failures := 1; ; failures++ {
		failure, own := attempt(total, try)
		if failure == nil {
			return nil
		}
		if caller.Err() != nil {
			return contextError(caller, failure)
		}
		if total.Err() != nil || !(own || repeatable(failure)) {
			return failure
		}
		wait := max(callBackoff.wait(failures), failure.RetryAfter)
		if deadline, _ := total.Deadline(); time.Until(deadline) <= wait {
			return failure
		}
		if !sleep(total, wait) && caller.Err() != nil {
			return contextError(caller, failure)
		}
	}
}

// attempt runs one try, and reports whether it was the try's own time that ended it.
func attempt(total context.Context, try func(context.Context) error) (failure *Error, own bool) {
	ctx, cancel := context.WithTimeout(total, tryWithin)
	defer cancel()
	failure = FromError(try(ctx))
	// The server is told the deadline, and may say a moment before us that it passed.
	deadline, _ := ctx.Deadline()
	over := ctx.Err() != nil || time.Until(deadline) < tryWithin/10
	return failure, failure != nil && failure.Code == codes.DeadlineExceeded && over
}

// repeatable reports whether the same call is worth another try: README.md has the table.
func repeatable(e *Error) bool {
	switch e.Code {
	case codes.Unavailable:
		return true
	case codes.Aborted:
		return e.Reason == ErrContention
	case codes.ResourceExhausted:
		return e.Reason == ErrOverloaded
	default:
		return false
	}
}
