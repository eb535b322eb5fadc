package rdq

import (
	"context"
	"errors"
	"log/slog"
	"time"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

const (
	// saveEvery is how old the last save may be while events of one message are handled.
	saveEvery = time.Second
	// lastSaveWithin bounds the save of a subscription that stops.
	lastSaveWithin = 5 * time.Second
)

// SubscriptionOptions are the optional settings of [Client.Subscribe]. The zero value is ready for use.
type SubscriptionOptions struct {
	// EventsPerMessage is how many events the server sends in one message at most, up to 1,000; the server's default
	// if 0.
	EventsPerMessage int
	// Logger is slog's default if nil. It gets no payload and no key.
	Logger *slog.Logger
}

// An EventHandler handles one event of a stream. Its context has the values of that of Subscribe, not its end.
type EventHandler func(ctx context.Context, event *rdqv1.StreamEvent) error

// Subscribe reads a stream as a consumer, from what the consumer saved on: first what is there, then each event as it is
// published. It calls the handler for one event after the other, in order, and saves the offset after those that
// succeeded: at the end of each message of the server, and each second within one. So every event is handled at least
// once; after a crash, those since the last save come again. Two subscriptions of one consumer at the same time both get
// every event.
//
// Lost connections are made again for as long as that takes. An error of the handler ends Subscribe and is returned: what
// succeeded before is saved, the failed event is not, and a Subscribe after it begins with that event. It is not retried
// here, since the order forbids going on without the event, and only the application knows whether trying again helps.
// Errors of the service that no repetition changes are returned too.
//
// When ctx ends, the handler of the current event goes on to its end, the offset is saved, within 5 seconds, and
// Subscribe returns nil, or what kept it from saving.
func (c *Client) Subscribe(
	ctx context.Context, stream, consumer string, handler EventHandler, options SubscriptionOptions,
) error {
	s := &subscription{
		client: c, stub: c.StreamService(), handler: handler, log: options.Logger,
		request: &rdqv1.SubscribeRequest{
			Stream: stream, Consumer: consumer, Limit: optionalSize(options.EventsPerMessage),
		},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s.run(ctx)
}

type subscription struct {
	client  *Client
	stub    rdqv1.StreamServiceClient
	handler EventHandler
	log     *slog.Logger
	request *rdqv1.SubscribeRequest

	handled, saved int64 // offsets
	lastSave       time.Time
}

// handlerError tells an error of the handler from those of the service.
type handlerError struct{ error }

func (s *subscription) run(ctx context.Context) error {
	s.lastSave = time.Now()
	for failures := 0; ctx.Err() == nil; {
		received, err := s.read(ctx)
		if failed, ok := err.(handlerError); ok {
			if notSaved := s.save(ctx); notSaved != nil {
				return errors.Join(failed.error, notSaved)
			}
			return failed.error
		}
		if ctx.Err() != nil {
			break
		}
		var refusal *Error
		if errors.As(err, &refusal) && !refusal.Retryable() {
			return errors.Join(err, s.save(ctx))
		}
		if received {
			failures = 0
		}
		failures++
		wait := connectBackoff.wait(failures)
		if refusal != nil {
			wait = max(wait, refusal.RetryAfter)
		}
		s.log.Warn("rdq: no stream of events, subscribing again",
			"stream", s.request.GetStream(), "consumer", s.request.GetConsumer(), "error", err, "wait", wait)
		sleep(ctx, wait)
	}
	return s.save(ctx)
}

// read subscribes and handles what comes until the stream ends. It reports whether anything came, and why it ended.
func (s *subscription) read(ctx context.Context) (received bool, err error) {
	// What an earlier save failed to say: the server goes on from what is saved.
	if err := s.save(ctx); err != nil {
		return false, err
	}
	streaming, end := context.WithCancelCause(ctx)
	defer end(nil)
	watchdog := time.AfterFunc(silenceMax, func() { end(errSilent) })
	defer watchdog.Stop()
	stream, err := s.stub.Subscribe(streaming, s.request)
	if err != nil {
		return false, ended(streaming, err)
	}
	for {
		// Only a stream that is waited for can be silent.
		watchdog.Reset(silenceMax)
		message, err := stream.Recv()
		if err != nil {
			return received, ended(streaming, err)
		}
		watchdog.Stop()
		received = true
		if err := s.handle(ctx, message.GetEvents()); err != nil {
			return received, err
		}
	}
}

// handle handles the events of one message, and saves.
func (s *subscription) handle(ctx context.Context, events []*rdqv1.StreamEvent) error {
	for _, event := range events {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if event.GetOffset() <= s.handled {
			continue
		}
		if err := s.handler(context.WithoutCancel(ctx), event); err != nil {
			return handlerError{err}
		}
		s.handled = event.GetOffset()
		if time.Since(s.lastSave) >= saveEvery {
			if err := s.save(ctx); err != nil {
				return err
			}
		}
	}
	return s.save(ctx)
}

// save saves what is handled, if it is not saved. Once ctx ended it takes no longer than 5 seconds.
func (s *subscription) save(ctx context.Context) error {
	if s.handled <= s.saved {
		return nil
	}
	saving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		sleep(saving, lastSaveWithin)
		end()
	})()
	offset := s.handled
	_, err := call(saving, s.client, s.stub.SaveOffset, &rdqv1.SaveOffsetRequest{
		Stream: s.request.GetStream(), Consumer: s.request.GetConsumer(), Offset: offset,
	})
	if err != nil {
		return err
	}
	s.saved, s.lastSave = offset, time.Now()
	return nil
}
