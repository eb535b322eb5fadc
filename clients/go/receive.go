package rdq

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// silenceMax ends a stream that carries nothing: the server sends something every 15 seconds.
const silenceMax = 40 * time.Second

// A workStream is one Work stream. What it holds is under Worker.mu, but for the stream, on which the dispatcher alone
// sends.
type workStream struct {
	stream    grpc.BidiStreamingClient[rdqv1.WorkRequest, rdqv1.WorkResponse]
	end       context.CancelCauseFunc
	carrier   *carrier
	isGreeted bool
	isLeaving bool // the server drains
	credits   int  // granted, and not used yet
}

// send sends a message, if there is one, and closes the sending side after the last. It reports whether there may be
// more to send.
func (s *workStream) send(message *rdqv1.WorkRequest, isLast bool) bool {
	if message != nil {
		// A stream that has ended says why to its receiver.
		if s.stream.Send(message) != nil {
			return false
		}
	}
	if isLast {
		if !s.isGreeted {
			s.end(errLeave)
		}
		_ = s.stream.CloseSend()
		return true
	}
	return message != nil
}

// receive keeps a stream open until the worker drains.
func (w *Worker) receive(ctx context.Context) {
	defer func() {
		w.mu.Lock()
		w.work.receiving = false
		w.mu.Unlock()
		w.wake()
	}()
	claimDue := w.options.Receive == ReceiveClaimDue
	isKnown := false // which contract the server speaks
	for failures := 0; !w.isDraining(); {
		open := w.openWork
		if claimDue {
			open = w.openClaimDue
		}
		var received bool
		var err error
		if !isKnown {
			isKnown, err = w.askContract(ctx)
		}
		if err == nil {
			received, err = open(ctx)
		}
		if w.isDraining() {
			return
		}
		if errors.Is(err, ErrOtherContractVersion) {
			w.giveUp(err)
			return
		}
		if !claimDue && w.options.Receive == ReceiveAuto && FromError(err).Code == codes.Unimplemented {
			w.log.Warn("rdq: Work is not known there, going on with ClaimDue", "worker_id", w.ID())
			claimDue = true
			continue
		}
		if received {
			failures = 0
		}
		failures++
		wait := max(connectBackoff.wait(failures), FromError(err).RetryAfter)
		w.log.Warn("rdq: no stream of claims, connecting again", "worker_id", w.ID(), "error", err, "wait", wait)
		select {
		case <-time.After(wait):
		case <-w.stop:
		case <-ctx.Done():
			return
		}
	}
}

// giveUp makes Run return an error.
func (w *Worker) giveUp(err error) {
	w.log.Error("rdq: the worker cannot work with this server", "worker_id", w.ID(), "error", err)
	w.mu.Lock()
	w.work.failure = err
	w.mu.Unlock()
	w.stopOnce.Do(func() { close(w.stop) })
}

func (w *Worker) isDraining() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.work.draining
}

// mayOpen notes how to leave a stream that is about to be opened; false if the worker drains.
func (w *Worker) mayOpen(leave func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work.leave, w.work.abort = leave, leave
	return !w.work.draining
}

// openWork opens a Work stream and receives until it ends. It reports whether anything came, and why it ended.
func (w *Worker) openWork(ctx context.Context) (received bool, err error) {
	streaming, end := context.WithCancelCause(ctx)
	defer end(nil)
	watchdog := time.AfterFunc(silenceMax, func() { end(errSilent) })
	defer watchdog.Stop()
	if !w.mayOpen(func() { end(errLeave) }) {
		return false, errLeave
	}
	stream, err := w.client.tasks.Work(streaming)
	if err != nil {
		return false, ended(streaming, err)
	}
	s := &workStream{stream: stream, end: end, carrier: newCarrier()}
	w.mu.Lock()
	w.work.workStream = s
	w.mu.Unlock()
	w.wake()
	defer func() {
		w.mu.Lock()
		if w.work.workStream == s {
			w.work.workStream = nil
		}
		w.abandon(s.carrier, time.Now(), false, FromError(err))
		w.mu.Unlock()
		w.wake()
	}()
	for {
		message, err := stream.Recv()
		if err != nil {
			return received, ended(streaming, err)
		}
		now := time.Now()
		watchdog.Reset(silenceMax)
		received = true
		w.mu.Lock()
		w.took(ctx, s, message, now)
		w.mu.Unlock()
		w.wake()
	}
}

// took takes a message of a Work stream in.
func (w *Worker) took(ctx context.Context, s *workStream, message *rdqv1.WorkResponse, now time.Time) {
	for _, ack := range message.GetHeartbeatAcks() {
		w.beatAnswered(s.carrier, ack.GetSeq(), ack.GetResult(), now)
	}
	for _, ack := range message.GetOutcomeAcks() {
		w.outcomeAnswered(s.carrier, ack.GetSeq(), ack.GetResult())
	}
	for _, lost := range message.GetLost() {
		if d := w.work.byID[lost.GetId()]; d != nil && d.generation == lost.GetGeneration() {
			w.lost(d, whyLost(lost.GetDetail()))
		}
	}
	for _, claimed := range message.GetTasks() {
		s.credits = max(0, s.credits-1)
		w.arrived(ctx, claimed, now)
	}
	if message.GetDraining() {
		// No more tasks come by it. It ends once the claims that it knows of have, and takes their outcomes until then.
		s.isLeaving = true
	}
}

// openClaimDue opens a subscription and receives until it ends.
func (w *Worker) openClaimDue(ctx context.Context) (received bool, err error) {
	streaming, end := context.WithCancelCause(ctx)
	defer end(nil)
	watchdog := time.AfterFunc(silenceMax, func() { end(errSilent) })
	defer watchdog.Stop()
	if !w.mayOpen(func() { end(errLeave) }) {
		return false, errLeave
	}
	var lease *durationpb.Duration
	if w.options.Lease != 0 {
		lease = durationpb.New(w.options.Lease)
	}
	stream, err := w.client.tasks.ClaimDue(streaming, &rdqv1.ClaimDueRequest{
		Queues: w.options.Queues, WorkerId: w.options.WorkerID, Lease: lease, Follow: true,
		Limit:       new(int32(min(w.concurrency, itemsMax))),
		MaxInFlight: new(int32(min(w.concurrency, creditsMax))),
	})
	if err != nil {
		return false, ended(streaming, err)
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return received, ended(streaming, err)
		}
		now := time.Now()
		watchdog.Reset(silenceMax)
		received = true
		w.mu.Lock()
		for _, claimed := range message.GetTasks() {
			w.arrived(ctx, claimed, now)
		}
		w.mu.Unlock()
		w.wake()
	}
}

// ended is why a stream ended: the worker's own reason, if it had one.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended the stream")
	}
	return FromError(err)
}
