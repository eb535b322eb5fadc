package rdq_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	rdq "github.com/rdq-project/rdq/clients/go"
	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// newClient makes a client that is closed with the test.
func newClient(t *testing.T, target string) *rdq.Client {
	t.Helper()
	return newClientWith(t, target, rdq.ClientOptions{})
}

// newClientWith does so with options. Its deadline is longer than the machine may stand still, unless the options have one.
func newClientWith(t *testing.T, target string, options rdq.ClientOptions) *rdq.Client {
	t.Helper()
	if options.Deadline == 0 {
		options.Deadline = time.Hour
	}
	client, err := rdq.NewClient(target, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A fixture is a server and a client of it.
type fixture struct {
	*testing.T
	ctx    context.Context
	server *server
	client *rdq.Client
}

// start makes the test one of those that run at the same time, and gives it a server of its own.
func start(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	s := startServer(t)
	return &fixture{T: t, ctx: t.Context(), server: s, client: newClient(t, s.address())}
}

// must ends the test at an error.
func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("unexpected error: %v", err)
	}
}

// until waits for what is expected.
func (f *fixture) until(what string, holds func() bool) {
	f.Helper()
	for waited := new(patience); !holds(); {
		if !waited.step(10 * time.Millisecond) {
			f.Fatalf("this did not happen: %s", what)
		}
	}
}

// receive waits for a value that something else sends.
func receive[T any](f *fixture, what string, from <-chan T) T {
	f.Helper()
	for waited := new(patience); ; {
		select {
		case value := <-from:
			return value
		default:
		}
		if !waited.step(5 * time.Millisecond) {
			f.Fatalf("this did not happen: %s", what)
		}
	}
}

// enqueue admits a task for queue "q" and handler "h", unless the task says else.
func (f *fixture) enqueue(task rdq.NewTask) string {
	f.Helper()
	if task.Queue == "" {
		task.Queue = "q"
	}
	if task.HandlerRef == "" {
		task.HandlerRef = "h"
	}
	admission, err := f.client.Enqueue(f.ctx, task)
	f.must(err)
	return admission.ID
}

func (f *fixture) get(id string) *rdq.Task {
	f.Helper()
	task, err := f.client.Get(f.ctx, id)
	f.must(err)
	return task
}

// ends waits until a task stands so.
func (f *fixture) ends(id string, status rdq.TaskStatus) *rdq.Task {
	f.Helper()
	var task *rdq.Task
	f.until(id+" is "+status.String(), func() bool {
		task = f.get(id)
		return task.Status == status
	})
	return task
}

func (f *fixture) configure(queue string, config rdq.QueueConfig) {
	f.Helper()
	_, err := f.client.PutQueue(f.ctx, queue, config)
	f.must(err)
}

func (f *fixture) stats(queue string) rdq.QueueStats {
	f.Helper()
	stats, err := f.client.Stats(f.ctx, queue)
	f.must(err)
	return stats[0]
}

// claim takes a task as another worker does, nil if none is due.
func (f *fixture) claim(queue, workerID string) *rdqv1.ClaimedTask {
	f.Helper()
	stream, err := f.client.TaskService().ClaimDue(f.ctx, &rdqv1.ClaimDueRequest{
		Queues: []string{queue}, WorkerId: workerID,
	})
	f.must(err)
	message, err := stream.Recv()
	f.must(err)
	if len(message.GetTasks()) == 0 {
		return nil
	}
	return message.GetTasks()[0]
}

// A running is a worker that runs until the test ends, or until it is stopped.
type running struct {
	f      *fixture
	worker *rdq.Worker
	ended  chan error
	once   sync.Once
	err    error
}

// work starts a worker for queue "q", unless the options say else, with one handler "h", unless it is nil.
func (f *fixture) work(options rdq.WorkerOptions, handler rdq.Handler) *running {
	f.Helper()
	return f.workWith(f.client, options, func(worker *rdq.Worker) { worker.Handle("h", handler) })
}

// workWith does so through another client, with what register registers.
func (f *fixture) workWith(client *rdq.Client, options rdq.WorkerOptions, register func(*rdq.Worker)) *running {
	f.Helper()
	if options.Queues == nil {
		options.Queues = []string{"q"}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(logTo{f}, nil))
	}
	worker := rdq.NewWorker(client, options)
	register(worker)
	r := &running{f: f, worker: worker, ended: make(chan error, 1)}
	go func() { r.ended <- worker.Run(context.Background()) }()
	f.Cleanup(func() { _ = r.stop() })
	return r
}

// stop drains the worker and returns what Run did.
func (r *running) stop() error {
	r.once.Do(func() {
		r.err = r.worker.Stop(context.Background())
		if r.err == nil {
			r.err = <-r.ended
		}
	})
	return r.err
}

// logTo writes to the log of a test.
type logTo struct{ f *fixture }

func (l logTo) Write(line []byte) (int, error) {
	l.f.Logf("%s", line)
	return len(line), nil
}
