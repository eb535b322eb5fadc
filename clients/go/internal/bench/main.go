// Command bench measures one worker process with a handler that does nothing, beside bare unary calls to the same server.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	rdq "github.com/rdq-project/rdq/clients/go"
	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

const (
	payloadBytes = 100
	concurrency  = 256
	echoCallers  = 64
	echoFor      = 3 * time.Second
)

func main() {
	server := flag.String("server", "127.0.0.1:7420", "the server, `HOST:PORT`")
	tasks := flag.Int("tasks", 10_000, "the number of tasks")
	flag.Parse()
	if err := run(*server, *tasks); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(server string, count int) error {
	client, err := rdq.NewClient(server, rdq.ClientOptions{})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	queue := fmt.Sprintf("bench-go-%d", time.Now().UnixNano())
	tasks := make([]rdq.NewTask, count)
	for i := range tasks {
		tasks[i] = rdq.NewTask{Queue: queue, HandlerRef: "nothing", Payload: make([]byte, payloadBytes)}
	}
	if _, err := client.EnqueueMany(ctx, tasks); err != nil {
		return err
	}
	took, err := work(ctx, client, queue, count)
	if err != nil {
		return err
	}
	echoes, err := echo(ctx, client)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"language":         "go",
		"tasks_per_second": int(float64(count) / took.Seconds()),
		"echo_per_second":  int(float64(echoes) / echoFor.Seconds()),
	})
}

// work returns the time from the first handler's start to the last acknowledgement: a worker that stops returns when it
// has that.
func work(ctx context.Context, client *rdq.Client, queue string, count int) (time.Duration, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var first sync.Once
	var started time.Time
	var done atomic.Int64
	worker := rdq.NewWorker(client, rdq.WorkerOptions{Queues: []string{queue}, Concurrency: concurrency})
	worker.Handle("nothing", func(context.Context, *rdq.Claim) ([]byte, error) {
		first.Do(func() { started = time.Now() })
		if done.Add(1) == int64(count) {
			stop()
		}
		return nil, nil
	})
	if err := worker.Run(working); err != nil {
		return 0, err
	}
	return time.Since(started), nil
}

// echo counts the bare calls that go through in the time.
func echo(ctx context.Context, client *rdq.Client) (int64, error) {
	end := time.Now().Add(echoFor)
	var calls atomic.Int64
	var failure atomic.Pointer[error]
	var callers sync.WaitGroup
	for range echoCallers {
		callers.Go(func() {
			for failure.Load() == nil {
				_, err := client.TaskService().GetCapabilities(ctx, &rdqv1.GetCapabilitiesRequest{})
				if err != nil {
					failure.Store(&err)
					return
				}
				if time.Now().After(end) {
					return
				}
				calls.Add(1)
			}
		})
	}
	callers.Wait()
	if err := failure.Load(); err != nil {
		return 0, *err
	}
	return calls.Load(), nil
}
