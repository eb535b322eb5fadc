package rdq

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

const (
	// itemsMax is what the contract takes of heartbeats, and of outcomes, in one message.
	itemsMax = 1_000
	// creditsMax is what the contract takes of credits in one message.
	creditsMax = 10_000
	// unaryCallsMax of each kind are under way at once, when there is no stream.
	unaryCallsMax = 4
)

// callKind tells the unary calls of a worker apart.
type callKind int

const (
	extendCalls callKind = iota
	resolveCalls
)

// dispatch sends heartbeats, outcomes and credits: on the Work stream while there is one, else by unary calls. It is the
// one goroutine that sends on a stream, since a stream takes no two sends at once.
func (w *Worker) dispatch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for w.dispatchOnce(ctx) {
		}
		w.mu.Lock()
		next := w.work.nextDue
		w.mu.Unlock()
		var due <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wakes:
		case <-due:
		}
	}
}

// dispatchOnce sends one message or makes one call, and reports whether there may be more to send.
func (w *Worker) dispatchOnce(ctx context.Context) bool {
	w.mu.Lock()
	now := time.Now()
	w.startWaiting(ctx, now)
	w.collectDue(now)
	w.checkDrained()
	for w.beginResolveAlone(ctx) {
	}
	if s := w.work.workStream; s != nil {
		message, isLast := w.compose(s, now)
		if isLast {
			w.work.workStream = nil
		}
		w.mu.Unlock()
		return s.send(message, isLast)
	}
	defer w.mu.Unlock()
	return w.beginExtend(ctx, now) || w.beginResolve(ctx, now)
}

// collectDue queues what is due: heartbeats, and outcomes that were put off.
func (w *Worker) collectDue(now time.Time) {
	l := &w.work
	if l.nextDue.IsZero() || now.Before(l.nextDue) {
		return
	}
	l.nextDue = time.Time{}
	for _, d := range l.bySeq {
		if o := d.outcome; o != nil && !o.isHeld && !o.isQueued && !o.isDone && o.carrier == nil {
			if now.Before(o.notBefore) {
				w.due(o.notBefore)
			} else {
				w.queueOutcome(d)
			}
		}
		switch {
		case d.isWaiting:
			w.due(d.lease.ends.Add(-d.lease.margin()))
		case !d.wantsBeats() || d.isBeatQueued:
		case now.Before(d.nextBeat):
			w.due(d.nextBeat)
		default:
			w.queueBeat(d)
		}
	}
}

// wantsBeats reports whether the claim is to be kept: while its handler runs, and while its outcome cannot be sent.
func (d *delivery) wantsBeats() bool {
	if d.isLost {
		return false
	}
	if o := d.outcome; o != nil {
		return o.isHeld || (!o.isDone && o.carrier == nil && !o.isQueued)
	}
	return d.isRunning
}

// compose makes the next message for a stream, nil if there is nothing to say, and reports whether it is the last.
func (w *Worker) compose(s *workStream, now time.Time) (message *rdqv1.WorkRequest, isLast bool) {
	message = &rdqv1.WorkRequest{}
	isLast = w.work.draining
	isEmpty := true
	if !s.isGreeted {
		if isLast {
			return nil, true
		}
		s.isGreeted, isEmpty = true, false
		w.work.leave = nil // from here on the worker leaves by closing its side
		message.Start = &rdqv1.WorkStart{
			Queues: w.options.Queues, WorkerId: w.options.WorkerID, Lease: optionalDuration(w.options.Lease),
		}
	}
	if more := min(w.free()-s.credits, creditsMax); more > 0 && !isLast && !s.isLeaving {
		s.credits += more
		message.Credits, isEmpty = new(int32(more)), false
	}
	for _, extend := range w.takeBeats(s.carrier, now) {
		message.Heartbeats, isEmpty = append(message.Heartbeats, extend), false
	}
	for _, outcome := range w.takeOutcomes(s.carrier) {
		message.Outcomes, isEmpty = append(message.Outcomes, outcome), false
	}
	if isEmpty {
		return nil, isLast
	}
	// What is left over goes by unary calls.
	return message, isLast
}

// takeBeats puts the heartbeats that are due on a carrier.
func (w *Worker) takeBeats(c *carrier, now time.Time) []*rdqv1.WorkHeartbeat {
	l := &w.work
	var taken []*rdqv1.WorkHeartbeat
	bytes := 0
	for len(l.beats) > 0 && len(taken) < itemsMax && bytes < batchBytesMax {
		d := l.beats[0]
		l.beats = l.beats[1:]
		d.isBeatQueued = false
		if !d.wantsBeats() {
			continue
		}
		extend := &rdqv1.ExtendLeaseRequest{Id: d.id, ClaimToken: d.token}
		progress, version := d.claim.checkpoint()
		if version > d.keptVersion {
			extend.Progress = progress
		} else {
			version = 0
		}
		l.lastSeq++
		c.beats[l.lastSeq] = beat{delivery: d, version: version, sent: now}
		taken = append(taken, &rdqv1.WorkHeartbeat{Seq: l.lastSeq, Extend: extend})
		bytes += len(progress) + 1<<10
		again := d.lease.beatAgainAfter()
		if d.outcome != nil {
			again = min(again, callBackoff.limit) // an outcome waits for it
		}
		d.nextBeat = now.Add(again) // unless it is answered before
		w.due(d.nextBeat)
	}
	return taken
}

// takeOutcomes puts outcomes on a carrier.
func (w *Worker) takeOutcomes(c *carrier) []*rdqv1.WorkOutcome {
	l := &w.work
	var taken []*rdqv1.WorkOutcome
	bytes := 0
	for len(l.outbox) > 0 && len(taken) < itemsMax {
		d := l.outbox[0]
		if len(taken) > 0 && bytes+d.outcome.size > batchBytesMax {
			break
		}
		l.outbox = l.outbox[1:]
		bytes += d.outcome.size
		taken = append(taken, c.carry(d))
	}
	return taken
}

// carry puts one outcome on a carrier.
func (c *carrier) carry(d *delivery) *rdqv1.WorkOutcome {
	d.outcome.isQueued, d.outcome.carrier = false, c
	c.outcomes[d.seq] = d
	return &rdqv1.WorkOutcome{Seq: d.seq, Resolution: d.outcome.resolution}
}

// beginExtend sends heartbeats by a call of its own, and reports whether there were any.
func (w *Worker) beginExtend(ctx context.Context, now time.Time) bool {
	if len(w.work.beats) == 0 || w.work.unaryCalls[extendCalls] >= unaryCallsMax {
		return false
	}
	c := newCarrier()
	beats := w.takeBeats(c, now)
	if len(beats) == 0 {
		return false
	}
	request := &rdqv1.ExtendLeasesRequest{}
	for _, beat := range beats {
		request.Leases = append(request.Leases, beat.GetExtend())
	}
	w.unary(ctx, c, extendCalls, func(ctx context.Context) (func(), error) {
		response, err := w.client.tasks.ExtendLeases(ctx, request)
		return func() {
			for i, result := range response.GetResults() {
				if i < len(beats) {
					w.beatAnswered(c, beats[i].GetSeq(), result, time.Now())
				}
			}
		}, err
	})
	return true
}

// beginResolve sends outcomes by a call of its own, and reports whether there were any.
func (w *Worker) beginResolve(ctx context.Context, _ time.Time) bool {
	if len(w.work.outbox) == 0 || w.work.unaryCalls[resolveCalls] >= unaryCallsMax {
		return false
	}
	c := newCarrier()
	w.resolve(ctx, c, w.takeOutcomes(c))
	return true
}

// beginResolveAlone sends one of the outcomes that go alone, and reports whether there was one.
func (w *Worker) beginResolveAlone(ctx context.Context) bool {
	l := &w.work
	if len(l.alone) == 0 || l.unaryCalls[resolveCalls] >= unaryCallsMax {
		return false
	}
	d := l.alone[0]
	l.alone = l.alone[1:]
	c := newCarrier()
	w.resolve(ctx, c, []*rdqv1.WorkOutcome{c.carry(d)})
	return true
}

// resolve sends the outcomes of a carrier by a call.
func (w *Worker) resolve(ctx context.Context, c *carrier, outcomes []*rdqv1.WorkOutcome) {
	request := &rdqv1.ResolveBatchRequest{}
	for _, outcome := range outcomes {
		request.Resolutions = append(request.Resolutions, outcome.GetResolution())
	}
	w.unary(ctx, c, resolveCalls, func(ctx context.Context) (func(), error) {
		response, err := w.client.tasks.ResolveBatch(ctx, request)
		return func() {
			for i, result := range response.GetResults() {
				if i < len(outcomes) {
					w.outcomeAnswered(c, outcomes[i].GetSeq(), result)
				}
			}
		}, err
	})
}

// unary makes one try of a call; what it leaves unanswered is sent again.
func (w *Worker) unary(ctx context.Context, c *carrier, kind callKind, try func(context.Context) (func(), error)) {
	w.work.unaryCalls[kind]++
	go func() {
		ctx, cancel := context.WithTimeout(ctx, tryWithin)
		defer cancel()
		answered, err := try(ctx)
		w.mu.Lock()
		w.work.unaryCalls[kind]--
		failure := FromError(err)
		if failure != nil {
			w.unaryFailed(failure)
		} else {
			w.work.unaryFailures = 0
			answered()
		}
		w.abandon(c, time.Now(), true, failure)
		w.mu.Unlock()
		w.wake()
	}()
}

// unaryFailed logs the first of several failures in a row as a warning.
func (w *Worker) unaryFailed(failure *Error) {
	level := slog.LevelDebug
	if w.work.unaryFailures == 0 {
		level = slog.LevelWarn
	}
	w.work.unaryFailures++
	w.log.Log(context.Background(), level, "rdq: heartbeats or outcomes were not answered, sending them again",
		"worker_id", w.ID(), "error", failure)
}

// abandon takes back what a carrier that has ended leaves unanswered, to send it again: at once after a stream, with
// backoff after a call, and not before the time that its failure, if there was one, asks for. A failure of a whole
// request says nothing of how a claim ends. But where it is about what the request had in it, each outcome goes alone
// from then on, so that one that the service cannot take does not hold up the others.
func (w *Worker) abandon(c *carrier, now time.Time, wasCall bool, failure *Error) {
	var asked time.Duration
	if failure != nil {
		asked = failure.RetryAfter
	}
	aboutContent := isAboutContent(failure)
	for seq, d := range c.outcomes {
		delete(c.outcomes, seq)
		o := d.outcome
		o.carrier, o.wasSent = nil, true
		o.isAlone = o.isAlone || aboutContent
		if wasCall || aboutContent {
			o.failures++
			o.notBefore = now.Add(max(callBackoff.wait(o.failures), asked))
			w.due(o.notBefore)
		} else {
			w.queueOutcome(d)
		}
	}
	for seq, beat := range c.beats {
		delete(c.beats, seq)
		if d := beat.delivery; d.outcome != nil && d.outcome.isHeld {
			w.beatAgain(d, now, asked)
		} else if at := now.Add(asked); at.After(d.nextBeat) {
			d.nextBeat = at
		}
	}
}

// isAboutContent reports whether a request was refused for what it had in it.
func isAboutContent(e *Error) bool {
	return e != nil && (e.Reason == ErrInvalidArgument || e.Reason == ErrMessageTooLarge || e.Reason == ErrPayloadTooLarge)
}

// beatAgain puts off the heartbeat that an outcome waits for.
func (w *Worker) beatAgain(d *delivery, now time.Time, asked time.Duration) {
	d.beatFailures++
	d.nextBeat = now.Add(max(callBackoff.wait(d.beatFailures), asked))
	w.due(d.nextBeat)
}

// beatAnswered takes the answer to a heartbeat.
func (w *Worker) beatAnswered(c *carrier, seq int64, result *rdqv1.ExtendLeaseResult, now time.Time) {
	beat, ok := c.beats[seq]
	if !ok {
		return
	}
	delete(c.beats, seq)
	d := beat.delivery
	if extended := result.GetExtended(); extended != nil {
		d.beatFailures = 0
		d.lease.ends = now.Add(extended.GetLeaseRemaining().AsDuration())
		d.keptVersion = max(d.keptVersion, beat.version)
		d.nextBeat = beat.sent.Add(d.lease.beatAfter())
		w.due(d.nextBeat)
		w.release(d)
		return
	}
	refusal := itemError(result.GetError())
	switch {
	case refusal.Reason == ErrStaleClaim || refusal.Code == codes.NotFound:
		w.lost(d, whyLost(refusal.Metadata["detail"]))
	case beat.version > 0 && refusal.Code == codes.InvalidArgument:
		w.log.Warn("rdq: progress was refused", "task_id", d.id, "error", refusal)
		d.keptVersion = max(d.keptVersion, beat.version)
		w.release(d)
	default:
		w.log.Warn("rdq: a lease was not extended", "task_id", d.id, "error", refusal)
		if d.outcome != nil && d.outcome.isHeld {
			w.beatAgain(d, now, 0)
		}
	}
}

// release lets an outcome go that was held until the progress is stored.
func (w *Worker) release(d *delivery) {
	if o := d.outcome; o != nil && o.isHeld && !d.isLost {
		if _, version := d.claim.checkpoint(); version > d.keptVersion {
			w.queueBeat(d)
			return
		}
		o.isHeld = false
		w.queueOutcome(d)
	}
}

// outcomeAnswered takes the answer to an outcome.
func (w *Worker) outcomeAnswered(c *carrier, seq int64, result *rdqv1.ResolveResult) {
	d := c.outcomes[seq]
	if d == nil {
		return
	}
	delete(c.outcomes, seq)
	o := d.outcome
	wasRepeated := o.wasSent
	o.carrier, o.wasSent = nil, true
	if result.GetResolved() != nil {
		w.settled(d)
		return
	}
	refusal := itemError(result.GetError())
	switch {
	case result.GetError() == nil, repeatable(refusal), refusal.Code == codes.DeadlineExceeded:
		o.failures++
		o.notBefore = time.Now().Add(callBackoff.wait(o.failures))
		w.due(o.notBefore)
	case refusal.Code == codes.NotFound && wasRepeated:
		w.settled(d) // the lost answer was a success, and the task is gone since
	case refusal.Reason == ErrStaleClaim || refusal.Code == codes.NotFound:
		w.log.Warn("rdq: an outcome came too late, the claim is lost", "task_id", d.id,
			"generation", d.generation, "error", refusal)
		w.settled(d)
	default:
		w.refused(d, refusal)
	}
}

// refused turns an outcome that the service does not take into a failure that says so, once.
func (w *Worker) refused(d *delivery, refusal *Error) {
	w.log.Error("rdq: an outcome was refused", "task_id", d.id, "error", refusal)
	if d.outcome.isReplaced {
		w.settled(d) // its lease ends by itself
		return
	}
	attempt := &rdqv1.Attempt{Error: attemptError(TypeOutcomeRefused, refusal.Error(), "")}
	resolution := failResolution(d.id, d.token, attempt)
	d.outcome = &outcome{resolution: resolution, size: proto.Size(resolution), isReplaced: true}
	w.queueOutcome(d)
}

// whyLost is the cause of what the service names as detail.
func whyLost(detail string) error {
	switch detail {
	case "CANCELLED":
		return ErrTaskCancelled
	case "EXPIRED":
		return ErrTaskExpired
	default:
		return ErrClaimLost
	}
}

var (
	errSilent = errors.New("the stream carried nothing for too long")
	errLeave  = errors.New("the worker stops")
)
