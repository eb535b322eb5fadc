package rdq

import (
	"context"
	"errors"
	"log/slog"
	"time"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

const (
	// deliveryErrorBytesMax is what an outbox keeps of a delivery's error.
	deliveryErrorBytesMax = 4 << 10
	// giveBackWithin bounds giving a message back whose delivery was broken off.
	giveBackWithin = time.Second
)

// idleBackoff spaces the claims of a relay that found nothing.
var idleBackoff = backoff{base: 100 * time.Millisecond, limit: 2 * time.Second}

// OutboxRelayOptions are the optional settings of an [OutboxRelay]. The zero value is ready for use.
type OutboxRelayOptions struct {
	// Outbox is the one whose messages are carried; those of any if empty.
	Outbox string
	// Lease is how long a message is claimed, the server's default of 60 seconds if 0. No claim is extended: it has to
	// be longer than a delivery takes.
	Lease time.Duration
	// Logger is slog's default if nil. It gets no payload and no header.
	Logger *slog.Logger
}

// A Deliver carries a message elsewhere. It may get one again that it delivered before: at least once is what an outbox
// gives.
type Deliver func(ctx context.Context, message *rdqv1.OutboxMessage) error

// An OutboxRelay carries the messages of an outbox elsewhere, oldest first. It is safe for use by many goroutines.
type OutboxRelay struct {
	client  *Client
	stub    rdqv1.OutboxServiceClient
	options OutboxRelayOptions
	log     *slog.Logger
}

// NewOutboxRelay makes a relay that claims through client.
func NewOutboxRelay(client *Client, options OutboxRelayOptions) *OutboxRelay {
	relay := &OutboxRelay{client: client, stub: client.OutboxService(), options: options, log: options.Logger}
	if relay.log == nil {
		relay.log = slog.Default()
	}
	return relay
}

// RunOnce claims a message, delivers it and marks it as projected. It reports whether there was one.
//
// If deliver fails, the message comes again after a while or is a dead letter, by the outboxes' policy, with the type and
// text of the error; that is no error of RunOnce. Nor is it one if the claim ended meanwhile: the message is another's
// then. A deliver that fails once ctx ended was broken off and has not failed: the message is given back, due at once, and
// RunOnce returns the error of ctx.
func (r *OutboxRelay) RunOnce(ctx context.Context, workerID string, deliver Deliver) (bool, error) {
	return r.once(ctx, ctx, workerID, deliver)
}

// Run delivers message after message until ctx ends. While there is none it asks again with backoff, up to 2 seconds;
// after an error of the service that a repetition helps, as a worker connects again. Any other error ends it and is
// returned. When ctx ends, the delivery under way goes on to its end and is answered, nothing more is claimed, and Run
// returns nil. A deliver sees the values of ctx, not its end.
func (r *OutboxRelay) Run(ctx context.Context, workerID string, deliver Deliver) error {
	for idle, failures := 0, 0; ctx.Err() == nil; {
		found, err := r.once(ctx, context.WithoutCancel(ctx), workerID, deliver)
		var wait time.Duration
		switch {
		case ctx.Err() != nil && !found:
			return nil
		case err != nil:
			failure := FromError(err)
			if !failure.Retryable() {
				return err
			}
			failures++
			wait = max(connectBackoff.wait(failures), failure.RetryAfter)
			r.log.Warn("rdq: the relay cannot reach its outbox", "worker_id", workerID, "error", err, "wait", wait)
		case found:
			idle, failures = 0, 0
			continue
		default:
			failures = 0
			idle++
			wait = idleBackoff.wait(idle)
		}
		sleep(ctx, wait)
	}
	return nil
}

// once claims under one context and delivers under another.
func (r *OutboxRelay) once(claiming, delivering context.Context, workerID string, deliver Deliver) (bool, error) {
	request := &rdqv1.ClaimBatchRequest{
		Limit: new(int32(1)), WorkerId: workerID, Lease: optionalDuration(r.options.Lease),
	}
	if r.options.Outbox != "" {
		request.Outbox = &r.options.Outbox
	}
	claimed, err := call(claiming, r.client, r.stub.ClaimBatch, request)
	if err != nil {
		return false, err
	}
	if len(claimed.GetMessages()) == 0 {
		return false, nil
	}
	message := claimed.GetMessages()[0]
	failed := deliver(delivering, message)
	if failed != nil && delivering.Err() != nil {
		r.giveBack(delivering, message)
		return true, contextError(delivering, nil)
	}
	// What was delivered, or failed, is told in any case.
	telling := context.WithoutCancel(delivering)
	if failed == nil {
		_, err = call(telling, r.client, r.stub.MarkProjected, &rdqv1.MarkProjectedRequest{
			Id: message.GetId(), WorkerId: message.GetWorkerId(), Generation: message.GetGeneration(),
		})
	} else {
		_, err = call(telling, r.client, r.stub.Fail, &rdqv1.OutboxServiceFailRequest{
			Id: message.GetId(), WorkerId: message.GetWorkerId(), Generation: message.GetGeneration(),
			Error: text(errorType(failed)+": "+failed.Error(), deliveryErrorBytesMax),
		})
	}
	return true, r.unlessEnded(message, err)
}

// giveBack makes a message due again whose delivery was broken off.
func (r *OutboxRelay) giveBack(ctx context.Context, message *rdqv1.OutboxMessage) {
	telling, end := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer end()
	_, err := r.stub.ReleaseWithError(telling, &rdqv1.ReleaseWithErrorRequest{
		Id: message.GetId(), WorkerId: message.GetWorkerId(), Generation: message.GetGeneration(),
		Error: "the delivery was broken off",
	})
	if err = r.unlessEnded(message, err); err != nil {
		r.log.Warn("rdq: a message was not given back and comes again when its claim ends",
			"message", message.GetId(), "error", FromError(err))
	}
}

// unlessEnded is nil if the error says that the claim of the message ended.
func (r *OutboxRelay) unlessEnded(message *rdqv1.OutboxMessage, err error) error {
	if err == nil {
		return nil
	}
	failure := FromError(err)
	if errors.Is(failure, ErrOutboxClaimMismatch) || errors.Is(failure, ErrOutboxMissing) {
		r.log.Warn("rdq: the claim of a message ended before its delivery",
			"outbox", message.GetOutbox(), "message", message.GetId(), "error", failure)
		return nil
	}
	return failure
}
