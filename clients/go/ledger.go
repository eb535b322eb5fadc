package rdq

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// The ledger is what a worker knows of the claims that it holds. Its methods, and those of Worker in this file, are
// called under Worker.mu.
type ledger struct {
	started   bool
	draining  bool
	receiving bool  // the receiving loop has not ended
	closed    bool  // Worker.drained is closed
	failure   error // why the worker cannot work

	// Each claim is in the ledger from its arrival until its outcome is answered, or it is lost, and its handler has
	// returned. They are as many as the places taken, of Worker.concurrency.
	bySeq   map[int64]*delivery
	byToken map[string]*delivery
	byID    map[string]*delivery // the newest of that task
	lastSeq int64

	running int         // handlers
	waiting []*delivery // arrived without a free handler, which only ClaimDue can bring about

	beats  []*delivery // whose heartbeats are due
	outbox []*delivery // whose outcomes are to be sent
	alone  []*delivery // whose outcomes are to be sent each by a call of its own
	// nextDue is when the next heartbeat, or an outcome that was put off, is due, or sooner; zero if none.
	nextDue time.Time

	workStream    *workStream      // the one that takes messages, nil if there is none
	leave         func()           // ends a stream that has no other way to be left, nil if there is none
	abort         func()           // ends the stream that was opened last, nil if there was none
	linger        *time.Timer      // calls abort, nil until a draining worker has nothing left
	unaryCalls    map[callKind]int // under way
	unaryFailures int              // in a row
}

// A delivery is one claim, known by its token: the same task again is another one.
type delivery struct {
	seq        int64
	id         string
	token      []byte
	generation int64
	claim      *Claim // the handler's
	proto      *rdqv1.ClaimedTask
	lease      lease

	handler   Handler
	isRunning bool
	isWaiting bool
	isLost    bool // nothing is sent any more
	isStopped bool // the grace is over
	stop      context.CancelCauseFunc
	timeout   *time.Timer

	nextBeat     time.Time
	isBeatQueued bool
	beatFailures int
	keptVersion  uint64 // of the progress that the service has, or refused

	outcome *outcome
}

// An outcome is how a claim ends.
type outcome struct {
	resolution *rdqv1.Resolution
	size       int
	isHeld     bool // until the progress is stored
	isQueued   bool
	wasSent    bool     // its answer may have been lost
	isAlone    bool     // a request was refused for what it had in it, which may have been another outcome
	carrier    *carrier // on which it is under way
	failures   int
	notBefore  time.Time
	isReplaced bool // it stands for one that was refused
	isDone     bool
}

// A carrier is a stream or a call, and what is under way on it.
type carrier struct {
	outcomes map[int64]*delivery
	beats    map[int64]beat
}

// A beat is a heartbeat under way.
type beat struct {
	delivery *delivery
	version  uint64 // of the progress that it carries; 0 if none
	sent     time.Time
}

func newCarrier() *carrier {
	return &carrier{outcomes: map[int64]*delivery{}, beats: map[int64]beat{}}
}

func (l *ledger) init() {
	l.bySeq, l.byToken, l.byID = map[int64]*delivery{}, map[string]*delivery{}, map[string]*delivery{}
	l.unaryCalls = map[callKind]int{}
}

// free is how many claims may still arrive.
func (w *Worker) free() int { return max(0, w.concurrency-len(w.work.bySeq)) }

// arrived takes a claim in, and starts its handler, or decides at once how it ends.
func (w *Worker) arrived(ctx context.Context, claimed *rdqv1.ClaimedTask, now time.Time) {
	l := &w.work
	if l.byToken[string(claimed.GetClaimToken())] != nil {
		return // the server never sends a claim twice
	}
	l.lastSeq++
	d := &delivery{
		seq:        l.lastSeq,
		id:         claimed.GetTask().GetId(),
		token:      claimed.GetClaimToken(),
		generation: claimed.GetGeneration(),
		claim:      claimOf(claimed),
		proto:      claimed,
		lease:      leaseOf(claimed, now),
	}
	if before := l.byID[d.id]; before != nil {
		// The server would not hand the task out again while that claim holds.
		w.lost(before, ErrClaimLost)
	}
	l.bySeq[d.seq], l.byToken[string(d.token)], l.byID[d.id] = d, d, d
	handler, errorType, message := w.routes.find(claimed)
	if handler == nil {
		attempt := &rdqv1.Attempt{Error: attemptError(errorType, message, "")}
		w.decide(d, deadLetterResolution(d.id, d.token, attempt))
		return
	}
	d.handler = handler
	if l.running >= w.concurrency && !l.draining {
		d.isWaiting = true
		l.waiting = append(l.waiting, d)
		w.due(d.lease.ends.Add(-d.lease.margin()))
		return
	}
	w.begin(ctx, d, now)
}

// begin starts a handler, unless it is too late for that.
func (w *Worker) begin(ctx context.Context, d *delivery, now time.Time) {
	if w.work.draining || d.lease.allButGone(now) {
		w.log.Debug("rdq: a claim is given back before its handler started", "task_id", d.id,
			"draining", w.work.draining)
		w.decide(d, releaseResolution(d.id, d.token, 0))
		return
	}
	var handling context.Context
	handling, d.stop = context.WithCancelCause(ctx)
	d.isRunning = true
	w.work.running++
	d.nextBeat = d.lease.firstBeat(now)
	w.due(d.nextBeat)
	if timeout := d.proto.GetExecutionTimeout(); timeout != nil {
		d.timeout = time.AfterFunc(d.lease.stopAt(timeout.AsDuration()).Sub(now), func() { w.timedOut(d) })
	}
	go w.handle(handling, d)
}

// startWaiting starts handlers of claims that waited for a free one, and gives those back that waited too long.
func (w *Worker) startWaiting(ctx context.Context, now time.Time) {
	l := &w.work
	if len(l.waiting) == 0 {
		return
	}
	var still []*delivery
	for _, d := range l.waiting {
		switch {
		case d.isLost:
		case l.running < w.concurrency || l.draining || d.lease.allButGone(now):
			d.isWaiting = false
			w.begin(ctx, d, now)
		default:
			still = append(still, d)
			w.due(d.lease.ends.Add(-d.lease.margin()))
		}
	}
	l.waiting = still
}

// decide sets how a claim ends. The first decision counts.
func (w *Worker) decide(d *delivery, resolution *rdqv1.Resolution) {
	if d.outcome != nil || d.isLost {
		return
	}
	d.outcome = &outcome{resolution: resolution, size: proto.Size(resolution)}
	if d.outcome.size > batchBytesMax {
		w.refused(d, &Error{
			Code: codes.InvalidArgument, Reason: ErrPayloadTooLarge,
			Message: fmt.Sprintf("the outcome has %d bytes; a message takes %d", d.outcome.size, batchBytesMax),
		})
		return
	}
	if _, version := d.claim.checkpoint(); resolution.GetComplete() == nil && version > d.keptVersion {
		d.outcome.isHeld = true
		w.queueBeat(d)
		return
	}
	w.queueOutcome(d)
}

func (w *Worker) queueOutcome(d *delivery) {
	if !d.outcome.isQueued && !d.outcome.isDone && d.outcome.carrier == nil {
		d.outcome.isQueued, d.outcome.notBefore = true, time.Time{}
		if d.outcome.isAlone {
			w.work.alone = append(w.work.alone, d)
		} else {
			w.work.outbox = append(w.work.outbox, d)
		}
	}
}

func (w *Worker) queueBeat(d *delivery) {
	d.nextBeat = time.Time{}
	if !d.isBeatQueued {
		d.isBeatQueued = true
		w.work.beats = append(w.work.beats, d)
	}
}

// due makes the dispatcher look at the ledger at that time.
func (w *Worker) due(at time.Time) {
	if l := &w.work; l.nextDue.IsZero() || at.Before(l.nextDue) {
		l.nextDue = at
	}
}

// lost ends a claim that is not this worker's any more: its handler is stopped, and nothing is sent.
func (w *Worker) lost(d *delivery, why error) {
	if d.isLost {
		return
	}
	if o := d.outcome; o != nil && (o.isDone || !o.isHeld) {
		return // the answer to the outcome says what counts
	}
	d.isLost = true
	w.log.Warn("rdq: a claim is lost", "task_id", d.id, "generation", d.generation, "reason", why.Error())
	if d.stop != nil {
		d.stop(why)
	}
	w.forget(d)
}

// settled notes that an outcome was answered.
func (w *Worker) settled(d *delivery) {
	d.outcome.isDone = true
	w.forget(d)
}

// forget takes a claim out of the ledger, once its handler has returned.
func (w *Worker) forget(d *delivery) {
	if d.isRunning {
		return
	}
	l := &w.work
	delete(l.bySeq, d.seq)
	delete(l.byToken, string(d.token))
	if l.byID[d.id] == d {
		delete(l.byID, d.id)
	}
	w.lingerIfDone()
}

// startDraining stops the claiming and gives back what waits.
func (w *Worker) startDraining() {
	w.work.draining = true
	if w.work.leave != nil {
		w.work.leave()
	}
	w.lingerIfDone()
}

// lingerIfDone gives the server a moment to end the stream of a draining worker that has nothing left. A server that
// cannot be reached does not end it.
func (w *Worker) lingerIfDone() {
	l := &w.work
	if !l.draining || !l.receiving || len(l.bySeq) > 0 {
		return
	}
	if l.linger != nil {
		l.linger.Stop()
	}
	l.linger = time.AfterFunc(lingerMax, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(l.bySeq) == 0 && l.abort != nil {
			l.abort()
		}
	})
}

// stopRunning stops every handler, at the end of the grace.
func (w *Worker) stopRunning() {
	for _, d := range w.work.bySeq {
		if d.isRunning && !d.isLost {
			d.isStopped = true
			d.stop(ErrGraceOver)
		}
	}
}

// handBackRunning gives the claims of handlers back that did not return when they were stopped.
func (w *Worker) handBackRunning() {
	for _, d := range w.work.bySeq {
		if d.isRunning {
			w.decide(d, releaseResolution(d.id, d.token, 0))
		}
	}
}

// checkDrained tells a draining worker when nothing is left.
func (w *Worker) checkDrained() {
	l := &w.work
	if l.draining && !l.receiving && len(l.bySeq) == 0 && !l.closed {
		l.closed = true
		close(w.drained)
	}
}
