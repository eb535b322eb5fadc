package rdq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	rdq "github.com/rdq-project/rdq/clients/go"
	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// said is a logger, and a channel that is closed once it said a text.
func (f *fixture) said(text string) (*slog.Logger, <-chan struct{}) {
	seen := make(chan struct{})
	var once sync.Once
	return slog.New(slog.NewTextHandler(writer(func(line []byte) {
		f.Logf("%s", line)
		if strings.Contains(string(line), text) {
			once.Do(func() { close(seen) })
		}
	}), nil)), seen
}

type writer func([]byte)

func (w writer) Write(line []byte) (int, error) {
	w(line)
	return len(line), nil
}

func TestDrain(t *testing.T) {
	f := start(t)
	drains(f, f.client, rdq.WorkerOptions{})
}

// drains is what a stop does while handlers run.
func drains(f *fixture, client *rdq.Client, options rdq.WorkerOptions) {
	const lease = 3 * time.Second
	f.configure("drains", rdq.QueueConfig{Lease: new(lease), MaxAttempts: new(1)})
	var ids []string
	for i := range 5 {
		ids = append(ids, f.enqueue(rdq.NewTask{Queue: "drains", Payload: []byte{byte(i)}}))
	}
	starts, finish := make(chan string, len(ids)), make(chan struct{})
	var stopping <-chan struct{}
	options.Queues, options.Concurrency, options.Grace = []string{"drains"}, 2, limit
	options.Logger, stopping = f.said("the worker stops")
	worker := f.workWith(client, options, func(worker *rdq.Worker) {
		worker.Handle("h", func(ctx context.Context, claim *rdq.Claim) ([]byte, error) {
			starts <- claim.ID
			<-finish
			if claim.Payload[0] == 1 {
				return nil, errors.New("failed in the drain")
			}
			return []byte("kept"), context.Cause(ctx)
		})
	})
	first, second := receive(f, "a handler starts", starts), receive(f, "another handler starts", starts)

	stopped := make(chan error, 1)
	go func() { stopped <- worker.stop() }()
	receive(f, "the worker drains", stopping)
	f.until("leases go on being extended", func() bool {
		one, other := f.get(first), f.get(second)
		return one.LeaseExpiresAt.Sub(one.ClaimedAt) > 2*lease && other.LeaseExpiresAt.Sub(other.ClaimedAt) > 2*lease
	})
	close(finish)
	f.must(receive(f, "stop returns", stopped))

	for _, id := range []string{first, second} {
		want := rdq.StatusSucceeded
		if id == ids[1] {
			want = rdq.StatusDead
		}
		if task := f.get(id); task.Status != want || len(task.Attempts) != 1 {
			f.Errorf("%s is %s after %d attempts, want %s", id, task.Status, len(task.Attempts), want)
		}
	}
	stats := f.stats("drains")
	if len(starts) != 0 || stats.Ready != int64(len(ids)-2) || stats.InFlight != 0 {
		f.Errorf("%d handlers more started, the queue has %+v", len(starts), stats)
	}
}

func TestDrainGraceOver(t *testing.T) {
	f := start(t)
	id := f.enqueue(rdq.NewTask{})
	starts, causes := make(chan struct{}, 1), make(chan error, 1)
	worker := f.work(rdq.WorkerOptions{Grace: 50 * time.Millisecond}, func(ctx context.Context, _ *rdq.Claim) ([]byte, error) {
		starts <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	receive(f, "the handler starts", starts)
	f.must(worker.stop())

	if cause := receive(f, "the handler is stopped", causes); !errors.Is(cause, rdq.ErrGraceOver) {
		t.Errorf("the cause is %v", cause)
	}
	task := f.get(id)
	if task.Status != rdq.StatusPending || task.AttemptCount != 0 || len(task.Attempts) != 0 {
		t.Errorf("the task is %s after %+v", task.Status, task.Attempts)
	}
	if ready := f.stats("q").Ready; ready != 1 {
		t.Errorf("%d tasks are due", ready)
	}
}

func TestDrainWithAHandlerThatDoesNotReturn(t *testing.T) {
	f := start(t)
	id := f.enqueue(rdq.NewTask{})
	starts, finish := make(chan struct{}, 1), make(chan struct{})
	defer close(finish)
	worker := f.work(rdq.WorkerOptions{Grace: -1}, func(context.Context, *rdq.Claim) ([]byte, error) {
		starts <- struct{}{}
		<-finish
		return nil, nil
	})
	receive(f, "the handler starts", starts)

	if err := worker.stop(); err == nil {
		t.Error("Run says that nothing is left")
	}
	if task := f.get(id); task.Status != rdq.StatusPending || len(task.Attempts) != 0 {
		t.Errorf("the task is %s after %+v", task.Status, task.Attempts)
	}
}

func TestDrainWithoutAServer(t *testing.T) {
	f := start(t)
	f.enqueue(rdq.NewTask{})
	starts := make(chan struct{}, 1)
	worker := f.work(rdq.WorkerOptions{Grace: 50 * time.Millisecond}, func(ctx context.Context, _ *rdq.Claim) ([]byte, error) {
		starts <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	receive(f, "the handler starts", starts)

	f.server.kill()
	if err := worker.stop(); err == nil {
		t.Error("Run says that every outcome was answered")
	}
}

func TestDrainOfAnIdleWorker(t *testing.T) {
	f := start(t)
	idle := func(context.Context, *rdq.Claim) ([]byte, error) { return nil, nil }
	worker := f.work(rdq.WorkerOptions{Grace: limit}, idle)
	f.ends(f.enqueue(rdq.NewTask{}), rdq.StatusSucceeded)
	f.must(worker.stop())

	f.server.kill()
	f.must(f.work(rdq.WorkerOptions{Grace: limit}, idle).stop())
}

func TestDrainOfAnIdleWorkerInABlackHole(t *testing.T) {
	f := start(t)
	between := startProxy(t, f.server.address())
	client := newClient(t, between.address())
	started, ended := make(chan bool, 1), make(chan bool, 1)
	worker := f.workWith(client, rdq.WorkerOptions{Grace: limit}, func(worker *rdq.Worker) {
		worker.Handle("h", func(ctx context.Context, _ *rdq.Claim) ([]byte, error) {
			started <- true
			<-ctx.Done()
			ended <- true
			return nil, nil
		})
	})
	id := f.enqueue(rdq.NewTask{})
	receive(f, "the handler starts", started)
	// Of a task that is cancelled there is no outcome whose answer could be lost.
	_, _, err := f.client.Cancel(f.ctx, id)
	f.must(err)
	receive(f, "the handler is stopped", ended)
	between.hold(true, true)

	stopped := make(chan error, 1)
	go func() { stopped <- worker.stop() }()
	// Sooner than a silent connection is dropped.
	for waited := new(patience); len(stopped) == 0; waited.step(10 * time.Millisecond) {
		if time.Duration(*waited) > 8*time.Second {
			t.Fatal("the stop waits for a stream that nothing comes by")
		}
	}
	f.must(<-stopped)
}

func TestOtherContractVersion(t *testing.T) {
	f := start(t)
	capabilities, err := f.client.TaskService().GetCapabilities(f.ctx, &rdqv1.GetCapabilitiesRequest{})
	f.must(err)
	if capabilities.GetContractVersion() != rdq.ContractVersion {
		t.Errorf("the server speaks %s, this client %s", capabilities.GetContractVersion(), rdq.ContractVersion)
	}
	foreign := startForeigner(t, "2.7")
	client := newClient(t, foreign.address)
	// A producer asks for nothing but what it wants.
	if _, err := client.Enqueue(f.ctx, rdq.NewTask{Queue: "q", HandlerRef: "h"}); err == nil {
		t.Error("a server without Enqueue admits a task")
	}
	worker := rdq.NewWorker(client, rdq.WorkerOptions{Queues: []string{"q"}})
	worker.Handle("h", func(context.Context, *rdq.Claim) ([]byte, error) { return nil, nil })
	err = worker.Run(f.ctx)
	var refusal *rdq.Error
	if !errors.Is(err, rdq.ErrOtherContractVersion) || !errors.As(err, &refusal) ||
		refusal.Metadata["client_version"] != rdq.ContractVersion || refusal.Metadata["server_version"] != "2.7" ||
		!strings.Contains(err.Error(), rdq.ContractVersion) || !strings.Contains(err.Error(), "2.7") {
		t.Errorf("the worker ended by %v", err)
	}
	if got := foreign.called(); !slices.Equal(got, []string{"Enqueue", "GetCapabilities"}) {
		t.Errorf("it called %v", got)
	}
}

func TestServerDrains(t *testing.T) {
	f := start(t)
	id := f.enqueue(rdq.NewTask{})
	once, draining := new(sync.Once), make(chan struct{})
	client := newClientWith(t, f.server.address(), rdq.ClientOptions{DialOptions: []grpc.DialOption{
		grpc.WithStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer,
			options ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, conn, method, options...)
			return &drainWatcher{ClientStream: stream, once: once, draining: draining}, err
		}),
	}})
	starts, finish := make(chan struct{}, 1), make(chan struct{})
	worker := f.workWith(client, rdq.WorkerOptions{Grace: limit}, func(worker *rdq.Worker) {
		worker.Handle("h", func(ctx context.Context, _ *rdq.Claim) ([]byte, error) {
			starts <- struct{}{}
			<-finish
			return []byte("kept"), context.Cause(ctx)
		})
	})
	receive(f, "the handler starts", starts)

	f.must(f.server.process.Process.Signal(syscall.SIGTERM))
	receive(f, "the worker is told", draining)
	close(finish)
	receive(f, "the server, that waited for the outcome, ends", f.server.exited)
	f.must(worker.stop()) // the outcome is answered
	f.server.restart()
	task := f.get(id)
	if task.Status != rdq.StatusSucceeded || string(task.Result) != "kept" || len(task.Attempts) != 1 {
		t.Errorf("the task is %s with %q after %+v", task.Status, task.Result, task.Attempts)
	}
}

// A drainWatcher tells when the server says by a stream that it drains.
type drainWatcher struct {
	grpc.ClientStream
	once     *sync.Once
	draining chan struct{} // closed then
}

func (w *drainWatcher) RecvMsg(message any) error {
	err := w.ClientStream.RecvMsg(message)
	if response, ok := message.(*rdqv1.WorkResponse); ok && err == nil && response.GetDraining() {
		w.once.Do(func() { close(w.draining) })
	}
	return err
}

func TestServerRestart(t *testing.T) {
	f := start(t)
	const count, concurrency = 12, 4
	var ids []string
	for i := range count {
		ids = append(ids, f.enqueue(rdq.NewTask{Payload: []byte{byte(i)}}))
	}
	var mu sync.Mutex
	runs := map[string]int{}
	starts, whileDown, afterwards := make(chan string, count), make(chan struct{}), make(chan struct{})
	f.work(rdq.WorkerOptions{Concurrency: concurrency}, func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
		mu.Lock()
		runs[claim.ID]++
		order := len(runs)
		mu.Unlock()
		starts <- claim.ID
		if order <= concurrency/2 {
			<-whileDown
		} else {
			<-afterwards
		}
		return claim.Payload, nil
	})
	for range concurrency {
		receive(f, "a handler starts", starts)
	}

	f.server.kill()
	close(whileDown)
	f.server.restart()
	close(afterwards)
	for i, id := range ids {
		task := f.ends(id, rdq.StatusSucceeded)
		if len(task.Attempts) != 1 || len(task.Result) != 1 || task.Result[0] != byte(i) {
			t.Errorf("task %d has result %v after %+v", i, task.Result, task.Attempts)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for id, times := range runs {
		if times != 1 {
			t.Errorf("%s ran %d times", id, times)
		}
	}
}

func TestClaimDueFallback(t *testing.T) {
	f := start(t)
	f.configure("q", rdq.QueueConfig{Lease: new(3 * time.Second), InitialBackoff: new(time.Millisecond)})
	address := startRelay(t, f.server.address(), &relay{unknown: map[string]bool{workMethod: true}})
	client := newClient(t, address)
	var fallbacks atomic.Int32
	logger := slog.New(slog.NewTextHandler(writer(func(line []byte) {
		f.Logf("%s", line)
		if strings.Contains(string(line), "Work is not known") {
			fallbacks.Add(1)
		}
	}), nil))
	starts, causes := make(chan struct{}, 1), make(chan error, 1)
	f.workWith(client, rdq.WorkerOptions{Logger: logger}, func(worker *rdq.Worker) {
		worker.Handle("h", func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
			return append([]byte("did "), claim.Payload...), nil
		})
		worker.Handle("fails", func(_ context.Context, claim *rdq.Claim) ([]byte, error) {
			if claim.AttemptNo == 1 {
				return nil, errors.New("once")
			}
			return nil, rdq.Permanent(errors.New("enough"))
		})
		worker.Handle("waits", func(ctx context.Context, _ *rdq.Claim) ([]byte, error) {
			starts <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		})
	})

	var ids []string
	for i := range 20 {
		ids = append(ids, f.enqueue(rdq.NewTask{Payload: fmt.Appendf(nil, "%d", i)}))
	}
	for i, id := range ids {
		if result := f.ends(id, rdq.StatusSucceeded).Result; string(result) != fmt.Sprintf("did %d", i) {
			t.Errorf("result %d is %q", i, result)
		}
	}
	if task := f.ends(f.enqueue(rdq.NewTask{HandlerRef: "fails"}), rdq.StatusDead); len(task.Attempts) != 2 {
		t.Errorf("the attempts are %+v", task.Attempts)
	}
	cancelled := f.enqueue(rdq.NewTask{HandlerRef: "waits"})
	receive(f, "the handler starts", starts)
	_, _, err := f.client.Cancel(f.ctx, cancelled)
	f.must(err)
	if cause := receive(f, "the handler is stopped", causes); !errors.Is(cause, rdq.ErrTaskCancelled) {
		t.Errorf("the cause is %v", cause)
	}
	if fallbacks.Load() != 1 {
		t.Errorf("the log has %d lines about it", fallbacks.Load())
	}
	drains(f, client, rdq.WorkerOptions{})
}
