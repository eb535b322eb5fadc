package rdq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	defaultConcurrency = 10
	concurrencyMax     = 10_000
	defaultGrace       = 30 * time.Second
	// afterGrace is how long a stop waits, after the grace, for handlers to return and outcomes to be answered; after
	// its first second, claims of handlers that do not return are given back all the same.
	afterGrace, handBackWithin = 5 * time.Second, time.Second
	// lingerMax is how long a stop that has nothing else to wait for waits for the server to end the stream.
	lingerMax = time.Second
)

// A ReceiveMode says how a worker receives claims.
type ReceiveMode int

const (
	// ReceiveAuto uses the Work stream, and ClaimDue where the server does not know that.
	ReceiveAuto ReceiveMode = iota
	// ReceiveWork uses the Work stream alone.
	ReceiveWork
	// ReceiveClaimDue uses ClaimDue alone.
	ReceiveClaimDue
)

// WorkerOptions are the settings of a [Worker]. Only Queues is required.
type WorkerOptions struct {
	// Queues are those to take from, 1 to 64, fairly.
	Queues []string
	// Concurrency is how many handlers run at once, and how many claims the worker holds: 1 to 10,000; 10 if 0.
	Concurrency int
	// Lease is how long a claim is held before it must be extended, which the worker does; the task's or the queue's
	// if 0. From 10 milliseconds to 12 hours.
	Lease time.Duration
	// Grace is how long handlers may go on once the worker stops; 30 seconds if 0, none if negative.
	Grace time.Duration
	// WorkerID names the worker in attempts; host, process id and random letters if empty.
	WorkerID string
	// Receive says how claims are received.
	Receive ReceiveMode
	// MapOutcome, if set, sees what handlers return first.
	MapOutcome OutcomeMapper
	// Logger is slog's default if nil.
	Logger *slog.Logger
}

// A Worker receives tasks and runs their handlers. Register handlers, then call Run once.
type Worker struct {
	client      *Client
	options     WorkerOptions
	log         *slog.Logger
	concurrency int
	routes      routes

	stop     chan struct{} // closed by Stop
	stopOnce sync.Once
	over     chan struct{} // closed when Run returned
	wakes    chan struct{} // tells the dispatcher that there may be something to do
	drained  chan struct{} // closed when a draining worker has nothing left

	mu   sync.Mutex
	work ledger
}

// NewWorker makes a worker that receives through client.
func NewWorker(client *Client, options WorkerOptions) *Worker {
	if options.WorkerID == "" {
		options.WorkerID = newWorkerID()
	}
	if options.Grace == 0 {
		options.Grace = defaultGrace
	}
	worker := &Worker{
		client:      client,
		options:     options,
		log:         options.Logger,
		concurrency: options.Concurrency,
		routes:      routes{},
		stop:        make(chan struct{}),
		over:        make(chan struct{}),
		wakes:       make(chan struct{}, 1),
		drained:     make(chan struct{}),
	}
	if worker.log == nil {
		worker.log = slog.Default()
	}
	if worker.concurrency == 0 {
		worker.concurrency = defaultConcurrency
	}
	worker.work.init()
	return worker
}

// Handle registers the handler of a handler_ref, for tasks of every version that has none of its own. It panics if there
// is one already, as http.Handle does. Register before Run.
func (w *Worker) Handle(handlerRef string, handler Handler) {
	w.routes.add(handlerRef, "", handler)
}

// HandleVersion registers the handler of a handler_ref and a version. It panics if there is one already.
func (w *Worker) HandleVersion(handlerRef, version string, handler Handler) {
	w.routes.add(handlerRef, version, handler)
}

// ID is the worker's name in attempts and listings.
func (w *Worker) ID() string { return w.options.WorkerID }

// Run works until ctx ends or Stop is called, and then drains: nothing more is claimed, what did not start is given
// back, and handlers go on, their leases extended, until they return or the grace is over. Handlers see the values of
// ctx, not its end. Lost connections are made again for as long as that takes.
//
// Run returns nil when every outcome was answered. Else it returns, 5 seconds after the grace, an error that says what
// is left; the tasks are due again when their leases end. It returns [ErrOtherContractVersion] without having claimed
// anything if the server's contract has another major version. A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.options.Queues) == 0 {
		return errors.New("rdq: a worker needs a queue")
	}
	if w.concurrency < 1 || w.concurrency > concurrencyMax {
		return fmt.Errorf("rdq: a concurrency of %d; it may be 1 to %d", w.concurrency, concurrencyMax)
	}
	if len(w.routes) == 0 {
		return errors.New("rdq: a worker needs a handler")
	}
	w.mu.Lock()
	again := w.work.started
	w.work.started, w.work.receiving = true, true
	w.mu.Unlock()
	if again {
		return errors.New("rdq: a worker runs once")
	}
	defer close(w.over)

	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var loops sync.WaitGroup
	loops.Go(func() { w.dispatch(base) })
	loops.Go(func() { w.receive(base) })
	select {
	case <-ctx.Done():
		w.stopOnce.Do(func() { close(w.stop) })
	case <-w.stop:
	}
	err := w.drain()
	end()
	loops.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.work.failure != nil {
		return w.work.failure
	}
	return err
}

// Stop makes Run drain and waits until it has returned, or until ctx ends; then the drain goes on all the same.
func (w *Worker) Stop(ctx context.Context) error {
	w.stopOnce.Do(func() { close(w.stop) })
	w.mu.Lock()
	started := w.work.started
	w.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-w.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Worker) drain() error {
	w.mu.Lock()
	w.log.Info("rdq: the worker stops", "worker_id", w.ID(), "running", w.work.running)
	w.startDraining()
	w.mu.Unlock()
	w.wake()

	if w.drainedWithin(max(w.options.Grace, 0)) {
		return nil
	}
	w.mu.Lock()
	w.log.Warn("rdq: the grace of the stop is over", "worker_id", w.ID(), "running", w.work.running)
	w.stopRunning()
	w.mu.Unlock()
	if w.drainedWithin(handBackWithin) {
		return nil
	}
	w.mu.Lock()
	w.handBackRunning()
	w.mu.Unlock()
	w.wake()
	if w.drainedWithin(afterGrace - handBackWithin) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.work.bySeq) == 0 {
		return nil // only a stream was left, that nothing came by
	}
	return fmt.Errorf("rdq: the worker stopped with %d claims left, of which %d have a handler that did not return",
		len(w.work.bySeq), w.work.running)
}

func (w *Worker) drainedWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.drained:
		return true
	case <-timer.C:
		return false
	}
}

// wake makes the dispatcher look for something to do.
func (w *Worker) wake() {
	select {
	case w.wakes <- struct{}{}:
	default: // it will look anyway
	}
}

func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	// The contract takes 240 bytes.
	return fmt.Sprintf("%s-%d-%s", text(host, 200), os.Getpid(), rand.Text()[:8])
}
